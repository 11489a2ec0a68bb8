"""Hidden cuts: what a cell is said to reveal, against all batches that a set of others leaves; means; labels."""

from fractions import Fraction
from itertools import combinations
from math import acos, comb, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from hockeystick.laws import hidden_cuts
from hockeystick.laws.displacement import Displacement
from hockeystick.laws.hidden_cuts import Apart, Cell, Places, cover, hiding, seen

ABOVE = np.array([0.0, 0.3, 1.0, 5.0, 30.0, 300.0])
GRID_ERROR = 2e-3
"""Of sums over cells of a twelfth of sigma, relative, beside 1e-7: halving the cells changes them by less."""


def vectors(count: int) -> st.SearchStrategy[np.ndarray]:
    """In the unit disc: shape (count, 2); many on its edge."""
    one = st.tuples(st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.0]), st.floats(-pi, pi))
    return st.lists(one, min_size=count, max_size=count).map(
        lambda polar: np.array([(length * np.cos(turn), length * np.sin(turn)) for length, turn in polar])
    )


def revealed(places: Places, inside: np.ndarray, outside: np.ndarray, sigma: float, cells: float = 12.0) -> np.ndarray:
    """What an end step reveals of the gradient (1, 0), given the set that is inside; by all its subsets.

    Gradients have two or three coordinates.
    """
    size, own_place = inside.shape[0], np.eye(1, inside.shape[1])[0]
    sums = [
        (empty, -inside[list(subset)].sum(axis=0))
        for empty in range(len(places.left))
        for subset in combinations(range(size), empty)
    ]
    means = np.array([own_place, *outside, *(place for _, place in sums)])
    axes = [np.arange(side.min() - 6.0 * sigma, side.max() + 6.0 * sigma, sigma / cells) for side in means.T]

    def density(place: np.ndarray) -> np.ndarray:
        result = np.ones(1)
        for axis, coordinate in zip(axes, place, strict=True):
            along = np.exp(-0.5 * ((axis - coordinate) / sigma) ** 2) / (np.sqrt(2.0 * np.pi) * cells)
            result = np.multiply.outer(result, along)
        return result

    own, still = density(own_place), density(0.0 * own_place)
    hides = places.placed * still
    for other in outside:
        hides += places.taken / outside.shape[0] * density(other)
    for empty, place in sums:
        hides += places.left[empty] / comb(size, empty) * density(place)
    return np.array([np.maximum(own - still - above * hides, 0.0).sum() for above in ABOVE])


def places_of(weights: tuple[float, ...]) -> Places:
    placed, taken, *left = (weight / sum(weights) for weight in weights)
    return Places(placed=placed, taken=taken, left=tuple(left))


@given(
    inside=vectors(3),
    outside=vectors(2),
    weights=st.tuples(*[st.floats(0.01, 1.0)] * 5),
    sigma=st.floats(0.5, 2.0),
    wide=st.floats(0.0, 0.4),
)
def test_no_set_of_others_reveals_more_than_its_cell(
    inside: np.ndarray, outside: np.ndarray, weights: tuple[float, ...], sigma: float, wide: float
) -> None:
    """The theorem, for any set inside and outside: the cell is somewhere around the mean of those inside."""
    places = places_of(weights)
    mean = inside.mean(axis=0)
    length = float(np.hypot(*mean))
    angle = acos(float(np.clip(mean[0] / length, -1.0, 1.0))) if length > 1e-9 else 0.5 * pi
    short = 0.0 if length < 0.05 else max(0.05, length - wide)
    cell = Cell((max(0.0, angle - wide), min(pi, angle + 0.5 * wide)), (short, min(length + 0.3 * wide, 1.0) + 1e-12))
    apart = float(np.hypot(*(outside.mean(axis=0) - mean))) + 1e-12
    bounds = seen(ABOVE, places, cover(cell, apart), sigma)
    exact = revealed(places, inside, outside, sigma)
    assert np.all(bounds >= exact * (1.0 - GRID_ERROR) - 1e-7)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("angle", [0.3, 1.8, 2.5])
def test_others_of_one_gradient_attain_it(sigma: float, angle: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all others alike the bound of a cell that is a point is what they reveal, with narrow cells of outputs."""
    monkeypatch.setattr(hidden_cuts, "WIDTH", 0.02)
    places = places_of((0.05, 0.6, 0.1, 0.2, 0.15))
    others = np.tile([np.cos(angle), np.sin(angle)], (3, 1))
    bounds = seen(ABOVE, places, cover(Cell((angle, angle), (1.0, 1.0)), 0.0), sigma)
    exact = revealed(places, others, others, sigma, cells=24.0)
    for bound, value in zip(bounds, exact, strict=True):
        assert value * (1.0 - GRID_ERROR) - 1e-7 <= bound <= value * (1.0 + 2.0 * GRID_ERROR) + 1e-6


@pytest.mark.parametrize("weights", [(0.02, 0.93, 0.05), (0.02, 0.03, 0.05, 0.9)])
@pytest.mark.parametrize("short", [0.3, 0.1])
def test_others_that_differ_hide_less(weights: tuple[float, ...], short: float) -> None:
    """Two that differ in a third direction, of one mean: in a cell that starts at its length and ends at 1."""
    mean, sigma = short * np.array([np.cos(1.8), np.sin(1.8), 0.0]), 0.5
    apart = np.array([0.0, 0.0, np.sqrt(1.0 - short**2)])
    others, places = np.array([mean + apart, mean - apart]), places_of(weights)
    exact = revealed(places, others, others, sigma, cells=6.0)
    for long in (short, 1.0):
        points = cover(Cell((1.8, 1.8), (short, long)), 0.0)
        assert min(points.lacking) >= (1.0 - short**2) * (1.0 - 1e-12)
        bounds = seen(ABOVE, places, points, sigma)
        assert np.all(bounds >= exact * (1.0 - 4.0 * GRID_ERROR) - 1e-7)


@pytest.mark.parametrize("angle", [1.6, 1.8, 2.0])
@pytest.mark.parametrize("wide", [0.1, 0.3, 0.6])
def test_all_angles_of_a_cell_are_covered(angle: float, wide: float) -> None:
    """Others that are alike, at one end of the cell, each end in turn."""
    places, sigma = places_of((0.001, 0.5, 0.002, 0.002, 0.002)), 0.6
    others = np.tile([np.cos(angle), np.sin(angle)], (2, 1))
    exact = revealed(places, others, others, sigma)
    for angles in ((angle, angle + wide), (angle - wide, angle)):
        bounds = seen(ABOVE, places, cover(Cell(angles, (1.0, 1.0)), 0.0), sigma)
        assert np.all(bounds >= exact * (1.0 - GRID_ERROR) - 1e-7)


@given(
    polar=st.tuples(st.floats(0.0, pi), st.floats(0.051, 1.0)),
    other=st.tuples(st.floats(0.0, pi), st.floats(0.0, 2.0 * pi), st.floats(0.0, 1.0)),
)
def test_no_entry_of_a_gram_matrix_is_lowered(polar: tuple[float, float], other: tuple[float, float, float]) -> None:
    """For cells that are points: all relative to the example, from the mean outside to ten empty places."""
    angle, length = polar
    turn, around, outside = other
    own, mean = np.array([1.0, 0.0, 0.0]), length * np.array([np.cos(angle), np.sin(angle), 0.0])
    beyond = outside * np.array([np.cos(turn), np.sin(turn) * np.cos(around), np.sin(turn) * np.sin(around)])
    points = cover(Cell((angle, angle), (length, length)), float(np.linalg.norm(beyond - mean)) + 1e-12)
    truth = np.array([beyond, *(-m * mean for m in range(10))]) - own
    example = np.array([points.along, points.across])
    covers = np.array([[points.fresh, 0.0], *([-m * points.ray, 0.0] for m in range(10))]) - example
    assert np.all(covers @ covers.T >= truth @ truth.T - 1e-9)


@pytest.mark.parametrize(("inside", "others"), [(99, 150), (99, 10_000), (400, 900)])
@pytest.mark.parametrize("rare", [0.2, 0.005, 1e-12])
@pytest.mark.parametrize("opposite", [0.01, 0.1, 0.5])
def test_means_are_hardly_ever_farther_apart(inside: int, others: int, rare: float, opposite: float) -> None:
    """Some of the others have the gradient -1, the rest 1: how many of each are inside is hypergeometric."""
    apart = Apart((inside, others), rare)
    few = round(opposite * others)
    counts = np.arange(max(0, inside - (others - few)), min(inside, few) + 1)
    mean = 1.0 - 2.0 * counts / inside
    beyond = 1.0 - 2.0 * (few - counts) / (others - inside)
    allowed = np.array([apart.of(float(abs(length))) for length in mean])
    chance = hypergeom.pmf(counts, others, few, inside)[np.abs(mean - beyond) > allowed].sum()
    assert chance <= rare
    # Not too careful: within three times the distance of a normal number as rare.
    if opposite == 0.5 and rare > 1e-3:
        assert allowed.min() <= 3.0 * 4.0 * (inside * (1.0 - inside / others)) ** -0.5 + 0.1


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0])
def test_labels_of_a_step_in_exact_fractions(noise_multiplier: float) -> None:
    """By the count of others that are drawn; an example may be at stake in all steps but those at rest."""
    size, cap, rate = 60, 20, Fraction(1, 4)
    counts = [comb(size - 1, r) * rate**r * (1 - rate) ** (size - 1 - r) for r in range(size)]
    pushed = sum((counts[r] * rate * cap / (r + 1) for r in range(cap, size)), Fraction(0))
    empty, taken = counts[cap - 1] * (1 - rate), sum(counts[cap:], Fraction(0)) - pushed
    placed = counts[cap - 1] * rate + pushed
    step = Displacement(
        loose=float(sum(counts[: cap - 1], Fraction(0))),
        empty=float(empty),
        taken=float(taken),
        placed=float(placed),
        pushed=float(pushed),
        counts=np.array([float(count) for count in counts[:cap][::-1]]),
        rate=0.25,
        error=0.0,
    )
    labels = hiding(step, noise_multiplier)
    places, depth = labels.places, len(labels.places.left)
    assert labels.end + labels.near + labels.loose == pytest.approx(1.0, rel=1e-12)
    assert places.placed + places.taken + sum(places.left) == pytest.approx(1.0, rel=1e-12)
    assert labels.loose == pytest.approx(float(sum(counts[: cap - depth], Fraction(0))), rel=1e-12)
    assert labels.end * places.placed == pytest.approx(float(placed), rel=1e-12)
    assert labels.end * places.taken == pytest.approx(float(taken), rel=1e-12)
    assert labels.end * places.left[0] == pytest.approx(float(empty), rel=1e-12)
    # Of all steps with r others and without the example, those that are not at the end are near it.
    drawn = sum(counts[cap - depth : cap - 1], Fraction(0)) * rate
    assert labels.near_rate * labels.near == pytest.approx(float(drawn), rel=1e-12)
    for empties in range(1, depth):
        idle = float(counts[cap - 1 - empties] * (1 - rate))
        assert 0.5 * idle * (1.0 - 1e-12) <= labels.end * places.left[empties] <= idle
