"""A run whose adversary chooses the worst triple at every ratio, against triples and games in numbers."""

import math
from collections.abc import Callable
from functools import cache
from math import cos, exp, inf, pi, sin

import numpy as np
import pytest
from scipy.special import ndtr

from hockeystick.laws import backward_induction
from hockeystick.laws.backward_induction import (
    Charges,
    Correlation,
    Lattice,
    Run,
    charges,
    lower_values,
    planned,
    profile,
    upper_values,
)
from hockeystick.laws.triples import Cell, box_width, corner, cover, covered, halves, log_places, opposite, others
from hockeystick.types import Side

SETTINGS = {
    "some jumps": Run(0.05, 1.5, 1, Lattice(0.01, 300, 2.0), 1500),
    "often": Run(0.4, 0.8, 1, Lattice(0.02, 200, 2.0), 1500),
    "few cells": Run(0.05, 0.7, 1, Lattice(0.004, 300, 2.0), 30),
    "far apart": Run(0.7, 2.9, 1, Lattice(0.05, 120, 2.0), 300),
    "much noise": Run(0.02, 0.3, 1, Lattice(0.0002, 1300, 2.0), 100),
}


LEAST = 1e-25
"""Boxes with less mass are left out, so that less is told apart."""


def nothing() -> None:
    """Nobody is told of progress."""


def boxes(points: np.ndarray, rate: float, count: int = 260) -> tuple[np.ndarray, np.ndarray]:
    """P- and Q-masses of boxes of outputs for v, e and e' in the plane, shape (3, 2): less than the outputs tell."""
    low, high = points.min(axis=0) - 7.0, points.max(axis=0) + 7.0
    ends = [np.linspace(*both, count) for both in zip(low, high, strict=True)]
    rest, own, other = (
        np.multiply.outer(*(cells(side - centre) for side, centre in zip(ends, point, strict=True))).ravel()
        for point in points
    )
    p, q = (1.0 - rate) * rest + rate * own, (1.0 - rate) * rest + rate * other
    seen = (p > LEAST) & (q > LEAST)
    return p[seen], q[seen]


def cells(ends: np.ndarray) -> np.ndarray:
    """Normal masses, each from the tail on its own side, where it keeps its digits."""
    return np.where(ends[1:] <= 0.0, np.diff(ndtr(ends)), -np.diff(ndtr(-ends)))


def triple(rng: np.random.Generator, distance: float) -> np.ndarray:
    """Points of a disc whose diameter is this distance, often on its rim, and often near the opposite ones."""
    angles, lengths = rng.uniform(0.0, 2.0 * pi, 3), np.sqrt(rng.uniform(0.0, 1.0, 3))
    if rng.random() < 0.8:
        lengths[:] = 1.0
    if rng.random() < 0.5:
        near = 10.0 ** rng.uniform(-3.0, 0.0)
        angles = np.array([pi + near * rng.uniform(-1.0, 1.0), 0.0, pi + near * rng.uniform(-1.0, 1.0)])
    points = 0.5 * distance * (lengths * np.array([np.cos(angles), np.sin(angles)])).T
    return points[[1, 0, 2]] if rng.random() < 0.2 else points[[0, 2, 1]] if rng.random() < 0.5 else points


def truth(points: np.ndarray, rate: float, logs: np.ndarray) -> np.ndarray:
    """At most o of a triple at ``e^logs``."""
    p, q = boxes(points, rate)
    order = np.argsort(p / q, kind="stable")
    p, q = p[order], q[order]
    from_here = np.searchsorted(p / q, np.exp(logs))
    p_above, q_above = (np.append(np.cumsum(one[::-1])[::-1], 0.0)[from_here] for one in (p, q))
    p_below, q_below = (np.append(0.0, np.cumsum(one))[from_here] for one in (p, q))
    ratios = np.exp(logs)
    return np.where(logs >= 0.0, p_above - ratios * q_above, ratios * q_below - p_below)


@cache
def bound_of(name: str):
    return charges(SETTINGS[name], nothing)


@pytest.mark.parametrize("name", SETTINGS)
def test_no_triple_has_more_than_the_opposite_one_and_its_charges(name: str) -> None:
    """Sums over intervals around all ratios, of random triples and of those in the proof.

    Far apart, an equilateral triangle has more than the opposite triple, however long the interval is.
    """
    run = SETTINGS[name]
    spacing, places, _ = run.lattice
    base, charged, far, most = bound_of(name)
    logs = log_places(spacing, -places, places)
    weights, reach = np.exp(-0.5 * logs), charged.shape[0]
    rng = np.random.default_rng(48)
    right = pi * np.array([[0.0, 1.0, 1.0], [0.5, 0.0, 1.0], [2.0 / 3.0, 0.0, 4.0 / 3.0], [0.6, 0.0, 1.0]])
    named = [0.5 * run.distance * np.array([np.cos(angles), np.sin(angles)]).T for angles in right]
    for points in [*named, *(triple(rng, run.distance) for _ in range(60))]:
        found = truth(points, run.rate, logs)
        assert np.all(found <= most[: logs.size] * (1.0 + 1e-9) + 1e-15)
        beyond = np.append(0.0, np.cumsum(weights * (found - base[: logs.size])))
        for away in (0, 1, 3, 10, 40):
            for r in (0, 1, 2, 5, 10, 20, 50, 100, places):
                first, last = places + away - r, min(places + away + r, 2 * places)
                allowed = 0.0 if r < away else charged[away, r] if r < reach else far[away]
                assert beyond[last + 1] - beyond[first] <= allowed + 1e-13


def charges_with(monkeypatch: pytest.MonkeyPatch, run: Run, most_added: Callable[[np.ndarray], np.ndarray]) -> Charges:
    """Charges where the lemma of reflections says this at the upper ends of intervals, in places."""
    spacing = run.lattice.spacing
    monkeypatch.setattr(
        backward_induction, "excess", lambda rate, squared, highs: spacing * most_added(highs / spacing)
    )
    return charges(run, nothing)


SHORT = Run(0.02, 0.3, 1, Lattice(0.0002, 900, 2.0), 20)
"""Cells are few, so that the lemma says less."""
ENOUGH = 1e-6
"""Far below what those cells charge, and few enough for the lemma to be used."""


def test_the_lemma_is_read_at_the_upper_ends_of_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """From n - r to n + r places, and half a place more; for all longer ones at the shortest of them."""

    def falling(ends: np.ndarray) -> np.ndarray:
        return ENOUGH / ends

    cells = charges_with(monkeypatch, SHORT, lambda ends: np.where(ends < ends[-1], inf, 0.0))
    both = charges_with(monkeypatch, SHORT, falling)
    assert np.array_equal(both.base, cells.base)
    reach, places = both.charged.shape[0], SHORT.lattice.places
    for n in (0, 1, 7, 300, reach - 1):
        for r in (0, 1, 6, 7, 8, 250, 400, reach - 1):
            assert both.charged[n, r] == pytest.approx(min(cells.charged[n, r], falling(n + r + 0.5)), rel=1e-9)
    for n in (0, 5, reach - 1, reach, reach + 20, places):
        assert both.far[n] == pytest.approx(falling(n + max(n, reach) + 0.5), rel=1e-9)
    assert np.count_nonzero(both.charged < 0.99 * cells.charged) > 1000


def test_the_lemma_is_not_used_with_a_base_that_is_not_raised_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compares with means over bins: o at the places alone is less than that."""
    monkeypatch.setattr(backward_induction, "reaches_far", lambda rate, squared: False)
    alone = charges_with(monkeypatch, SHORT, lambda ends: np.full(ends.size, inf))
    little = charges_with(monkeypatch, SHORT, lambda ends: np.full(ends.size, 1e-9))
    for one, other in zip(alone, little, strict=True):
        assert np.array_equal(one, other)


def test_the_base_of_the_lemma_is_the_opposite_triple_with_bins_for_places() -> None:
    """Its sums, against the integral over outputs of the f with the second derivative ``x^(-3/2)`` on all bins."""
    rate, distance, _, (spacing, places, _), _ = run = SHORT
    base = charges(run, nothing).base
    weighed = np.exp(-0.5 * log_places(spacing, -places, places)) * base[: 2 * places + 1]
    y = np.linspace(-9.0, 9.0 + distance, 400_001)
    density = np.exp(-0.5 * y * y) / math.sqrt(2.0 * pi)
    beyond = rate * np.expm1(distance * y - 0.5 * distance**2)  # X - 1
    log_ratios = np.log1p(beyond)
    for r in (0, 1, 5, 40, 200, 880):
        inside = np.clip(log_ratios, -(r + 0.5) * spacing, (r + 0.5) * spacing)
        slopes = -2.0 * np.expm1(-0.5 * inside)
        f = 2.0 * np.expm1(0.5 * inside) ** 2 + slopes * (beyond - np.expm1(inside))
        # What calls at the ratios of the lower half of the bin at 1 have more than puts: 1 - x, weighed.
        calls = 2.0 * math.expm1(0.25 * spacing) + 2.0 * math.expm1(-0.25 * spacing)
        whole = (float(f @ density) * (y[1] - y[0]) + calls) / (4.0 * math.sinh(0.25 * spacing))
        found = float(weighed[places - r : places + r + 1].sum())
        assert whole * (1.0 - 1e-7) <= found <= whole * (1.0 + 2e-4)


def test_the_opposite_triple_is_known_in_closed_form() -> None:
    logs = log_places(0.05, -60, 60)
    points = 0.75 * np.array([[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    found = truth(points, 0.3, logs)
    upper, lower = (opposite(0.3, 1.5, logs, side) for side in (Side.UPPER, Side.LOWER))
    assert np.all(lower <= upper)
    assert np.all(upper - lower <= 1e-10 * upper + 1e-12)
    assert np.all(found <= upper + 1e-15)
    assert np.all(found >= 0.98 * lower - 1e-6)  # boxes of a twentieth of a standard deviation


def test_covers_are_worse_than_the_triangles_of_their_cells() -> None:
    """At every ratio, for cells of all sizes; what lies outside of a half is in the other."""
    rng, logs = np.random.default_rng(3), log_places(0.05, -80, 80)
    for _ in range(30):
        cell = others(0.05)
        for _ in range(int(rng.integers(0, 9))):
            parts = halves(cell)
            cell = parts[int(rng.integers(len(parts)))]
        values = covered(0.1, cover(2.0, cell), 0.05, 80, box_width(2.0, cell))
        gram = cover(2.0, cell)
        for _ in range(3):
            at_e, at_other = (rng.uniform(*interval) for interval in cell)
            if at_e + at_other < 0.5 * pi:
                continue
            assert gram.own >= 2.0 * sin(at_other) ** 2
            assert gram.other >= 2.0 * sin(at_e) ** 2
            assert gram.inner <= 2.0 * sin(at_e) * sin(at_other) * max(-cos(at_e + at_other), 0.0)
            # On the unit circle the arc over a chord is twice the angle at the third point.
            turns = np.array([0.0, -2.0 * at_other, 2.0 * at_e])
            points = 0.5 * 2.0**0.5 * np.array([np.cos(turns), np.sin(turns)]).T
            assert np.all(truth(points, 0.1, logs) <= values + 1e-14)
    assert corner(0.05) == Cell((0.0, 0.05), (0.5 * pi - 0.05, 0.5 * pi))


def test_what_triples_add_is_charged_at_all_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    """At short intervals, and however far: in the second step, as the first is known, but for its places."""
    run, x = Run(0.3, 1.0, 2, Lattice(0.01, 200, 2.0), 10), np.exp(log_places(0.01, -200, 0))
    base = opposite(0.3, 1.0, log_places(0.01, -200, 400), Side.UPPER)
    short = np.triu(np.random.default_rng(4).uniform(1e-3, 2e-3, (20, 20)))
    short[0, 0] = 0.0  # or the first step would have it
    far = np.linspace(1e-3, 2e-3, 201)

    def values(short: np.ndarray, far: np.ndarray) -> np.ndarray:
        monkeypatch.setattr(backward_induction, "charges", lambda run, tick: Charges(base, short, far, base))
        return upper_values(run, nothing)[::-1]

    first = one_step(np.exp(log_places(0.01, -201, 1)), 0.3, 1.0)
    slopes = np.diff(first) / np.diff(np.exp(log_places(0.01, -201, 1)))
    least = np.minimum.accumulate((np.diff(slopes) * np.sqrt(x))[::-1])
    alone, roots = values(0.0 * short, 0.0 * far), np.sqrt(x[::-1])
    added = values(0.0 * short, far) - alone
    assert np.allclose(added[:-1], (roots * far * least[np.maximum(np.arange(201), 20)])[:-1], rtol=1e-3, atol=1e-12)
    added = values(short, 0.0 * far) - alone
    assert np.allclose(added[:20], roots[:20] * (short @ (least[:20] - least[1:21])), rtol=2e-3, atol=1e-12)
    assert np.all(added[20:] == 0.0)


def one_step(x: np.ndarray, rate: float, distance: float) -> np.ndarray:
    """V_1 exactly: ``x q G(1 + (1/x - 1) / q)`` up to 1, the rest by symmetry."""
    low = np.minimum(x, 1.0 / x)
    a = 1.0 + (1.0 / low - 1.0) / rate
    gaussian = ndtr(0.5 * distance - np.log(a) / distance) - a * ndtr(-0.5 * distance - np.log(a) / distance)
    value = low * rate * gaussian
    return np.where(x <= 1.0, value, x - 1.0 + x * value)


@pytest.mark.parametrize(
    ("rate", "distance", "spacing"), [(0.2, 1.0, 0.004), (0.6, 1.6, 0.004), (0.05, 2.5, 0.004), (0.02, 0.3, 0.0002)]
)
def test_two_steps_are_the_game_of_two_steps(rate: float, distance: float, spacing: float) -> None:
    """The second step is known exactly. Whatever the first one is, the run has at most the upper bound; and the lower
    bound is of a run that begins with the opposite triple, but for a place's length.
    """
    run = Run(rate, distance, 2, Lattice(spacing, 800, 2.0), 400)
    upper, lower = upper_values(run, nothing), lower_values(run, nothing)
    x = np.exp(log_places(spacing, -800, 0))
    rng, some = np.random.default_rng(5), np.arange(300, 801, 50)
    opposed = 0.5 * distance * np.array([[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    for points in [opposed, *(triple(rng, distance) for _ in range(25))]:
        p, q = boxes(points, rate, 300)
        least = np.array([float(q @ one_step(at * p / q, rate, distance)) for at in x[some]])
        assert np.all(least <= upper[some] * (1.0 + 1e-9))
        if points is opposed:
            assert np.all(lower[some] <= least * 1.002)
            assert np.all(lower[some] >= least * 0.97 - 1e-9)


def test_one_step_is_exact_but_for_what_is_left_of_cells() -> None:
    run = Run(0.3, 1.2, 1, Lattice(0.005, 600, 2.0), 1500)
    x = np.exp(log_places(0.005, -600, 0))
    exact = one_step(x, 0.3, 1.2)
    assert np.all(exact <= upper_values(run, nothing))
    assert np.all(upper_values(run, nothing) <= exact * 1.08 + 1e-12)
    lower = lower_values(run, nothing)
    assert np.all(lower <= exact * (1.0 + 1e-12))
    assert np.all(lower[100:] >= exact[100:] * 0.99)


@pytest.mark.parametrize("side", Side)
def test_sums_by_transforms_err_to_the_asked_side(side: Side) -> None:
    rng, places = np.random.default_rng(1), 40
    lattice = Lattice(0.1, places, 1.5)
    kernels = rng.exponential(size=3 * places + 1), rng.exponential(size=2 * places + 1)
    values = [rng.exponential(size=2 * places + 1) for _ in kernels]
    found = Correlation(lattice, *kernels).of(side, *values)
    for i in range(-places, 1):
        exact = 0.0
        for kernel, value in zip(kernels, values, strict=True):
            for j in range(-places, places + 1):
                if -places <= j - i < kernel.size - places:
                    exact += value[j + places] * kernel[j - i + places]
        sign = 1.0 if side is Side.UPPER else -1.0
        assert sign * (found[i + places] - exact) + 1e-13 * exact >= 0.0
        assert found[i + places] == pytest.approx(exact, rel=1e-7)


def test_profiles_are_read_between_places_to_the_asked_side() -> None:
    """delta is convex in ``e^epsilon``; below 0 the two runs change places."""
    run = Run(0.3, 1.2, 1, Lattice(0.05, 80, 2.0), 50)
    upper, lower = (profile(run, side, nothing) for side in (Side.UPPER, Side.LOWER))
    for epsilon in (0.0, 0.013, 0.05, 0.72, 1.5, 2.349):
        exact = float(one_step(np.array([exp(-epsilon)]), 0.3, 1.2)[0]) * exp(epsilon)
        assert lower(epsilon) <= exact <= upper(epsilon)
        at = int(epsilon / 0.05 + 1e-9)
        ends = [0.05 * at, 0.05 * (at + 1)]
        chord = np.interp(exp(epsilon), np.exp(ends), [upper(end) for end in ends])
        assert upper(epsilon) == pytest.approx(float(chord), rel=1e-6)
        swapped = 1.0 - exp(-epsilon) + exp(-epsilon) * exact
        assert lower(-epsilon) <= swapped * (1.0 + 1e-12)
        assert upper(-epsilon) >= swapped * (1.0 - 1e-12)
    assert upper(100.0) >= 0.0
    assert lower(100.0) == 0.0


def test_lattices_that_would_be_too_long_are_not_planned() -> None:
    assert planned(0.0025, 2.0 / 1.2573, 10**9, 1e-7, 68) is None
    assert planned(0.0025, 2.0 / 0.4, 1500, 1e-7, 68) is None


@pytest.mark.parametrize("noise", [1.2573, 8.0, 1e3, 1e6])
def test_lattices_reach_a_little_farther_than_epsilon(noise: float) -> None:
    """Moments of high orders say how far that is where there is much noise; a Gaussian is near the truth there."""
    run = planned(0.0025, 2.0 / noise, 1500, 1e-7, 68)
    assert run is not None
    end = run.lattice.spacing * run.lattice.places
    root = 0.0025 * math.sqrt(math.expm1(4.0 / noise**2) * 1500.0)
    assert 5.0 * root < end < (8.0 if noise > 2.0 else 30.0) * root


def test_angles_of_covers_are_those_of_triangles() -> None:
    """A cell of one equilateral triangle: all distances are the square root of 3."""
    third = pi / 3.0
    gram = cover(4.0, Cell((third, third), (third, third)))
    assert gram.own == pytest.approx(3.0)
    assert gram.other == pytest.approx(3.0)
    assert gram.inner == pytest.approx(1.5)
    assert gram.own == pytest.approx(4.0 * sin(third) ** 2)
    assert cos(third) == pytest.approx(0.5)


def test_a_lattice_that_ends_early_says_no_less() -> None:
    """Below its first place V is straight; what is known of a longer lattice is a lower bound there."""
    short, long = (Run(0.3, 1.5, 3, Lattice(0.02, places, 1.5), 200) for places in (40, 300))
    upper, lower = upper_values(short, nothing), lower_values(long, nothing)[-41:]
    assert np.all(upper >= lower)
    assert np.all(upper <= np.exp(log_places(0.02, -40, 0)))
