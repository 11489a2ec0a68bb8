"""What triples add to the opposite one with much noise, against integrals over the plane of outputs."""

from math import exp, expm1, inf, log, pi, sinh, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from hockeystick.laws.reflections import chord_weights, excess, largest_share, spread_opposite
from hockeystick.laws.triples import opposite
from hockeystick.types import Side


def divergence(points: np.ndarray, rate: float, low: float, high: float, count: int = 320) -> float:
    """``D_f`` for ``f'' = x^(-3/2)`` where the logarithm is from -low to high, f(1) = f'(1) = 0; of v, e and e'.

    By the trapezoid rule, whose error is far below 1e-4 of it.
    """
    sides = [np.linspace(points[:, i].min() - 8.0, points[:, i].max() + 8.0, count) for i in (0, 1)]
    x, y = np.meshgrid(*sides, indexing="ij")
    rest, own, other = (np.exp(-0.5 * ((x - p[0]) ** 2 + (y - p[1]) ** 2)) for p in points)
    p, q = (1.0 - rate) * rest + rate * own, (1.0 - rate) * rest + rate * other
    ratios = p / q
    inside = np.exp(np.clip(np.log(ratios), -low, high))
    slope = 2.0 * (1.0 - inside**-0.5)
    values = 2.0 * (np.sqrt(inside) - 1.0) ** 2 + slope * (ratios - inside)
    steps = [side[1] - side[0] for side in sides]
    return float((q * values).sum() * steps[0] * steps[1] / (2.0 * pi))


def triples(rng: np.random.Generator, distance: float, count: int) -> list[np.ndarray]:
    """v, e and e' on the rim of a disc or in it; first those with a right angle at v, or a somewhat smaller one."""
    radius = 0.5 * distance
    turns = [(pi - turn, -short, pi + short) for turn in np.linspace(0.0, 0.5 * pi, 7) for short in (0.0, 0.05, 0.3)]
    found = [radius * np.array([[np.cos(t), np.sin(t)] for t in three]) for three in turns]
    for _ in range(count):
        angles, near = rng.uniform(0.0, 2.0 * pi, 3), 10.0 ** rng.uniform(-2.0, 0.0)
        if rng.random() < 0.5:
            angles = np.array([pi + near * rng.uniform(-1.0, 1.0), 0.0, pi + near * rng.uniform(-1.0, 1.0)])
        lengths = np.sqrt(rng.uniform(size=3)) if rng.random() < 0.3 else np.ones(3)
        points = radius * (lengths * np.array([np.cos(angles), np.sin(angles)])).T
        found.append(points if rng.random() < 0.7 else points[[0, 2, 1]])
    return found


@pytest.mark.parametrize(
    ("rate", "distance", "ends"),
    [
        (0.01, 0.5, (2.0, 6.0, 12.0, 30.0)),
        (0.002, 0.25, (3.0, 8.0, 15.0)),
        (0.05, 0.2, (5.0, 10.0, 40.0)),
        (0.001, 0.7, (10.0, 40.0, 120.0)),
        (0.7, 0.5, (2.0, 100.0)),
    ],
)
def test_no_triple_exceeds_the_opposite_one_by_more(rate: float, distance: float, ends: tuple[float, ...]) -> None:
    """For intervals around 1, and those that reach further up than down; ends in steps' standard deviations.

    Some exceed it where the interval is short, and at all lengths where nearly all examples are drawn.
    """
    rng, alone = np.random.default_rng(7), 0.5 * distance * np.array([[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    whole, more = 0.5 * rate**2 * expm1(distance**2), []
    for end in ends:
        high = end * rate * distance
        allowed = float(excess(rate, distance**2, np.array([high]))[0])
        for low in (high, 0.3 * high, 0.0):
            own = divergence(alone, rate, low, high)
            for points in triples(rng, distance, 12):
                more.append((divergence(points, rate, low, high) - own) / whole)
                assert more[-1] <= allowed / whole + 1e-6
    assert max(more) > 0.002 or ends[0] > 2.0


@pytest.mark.parametrize(("rate", "squared"), [(0.01, 0.25), (0.003, 0.6), (0.1, 0.01)])
def test_what_is_allowed_is_a_tail(rate: float, squared: float) -> None:
    """``M^2 / K`` where M is more than a multiple of K, by quadrature: the most of all distances up to the largest.

    That is at the largest one, but where the multiple is small; all of ``M^2 / K`` is allowed there.
    """
    share = largest_share(squared)
    assert (1.0 - share) * (2.0 - 4.0 * share) == pytest.approx(exp(0.5 * squared), rel=1e-10)
    for high in (0.5 * rate, 20.0 * rate * sqrt(squared), 1.0):
        multiple = min(expm1(high), share / (1.0 - share))
        tails = [squares_beyond(multiple, rate, part * squared) for part in (1.0, 0.5, 0.1, 0.01)]
        found = float(excess(rate, squared, np.array([high]))[0])
        if multiple * (1.0 - rate) > rate:
            most = max(tails)
            assert most == tails[0]
        else:
            most = rate**2 / (1.0 - rate) * exp(squared)
            assert most >= max(tails)
        assert 2.5 * squared * most <= found <= 2.5 * squared * most * (1.0 + 1e-9)


def squares_beyond(multiple: float, rate: float, squared: float) -> float:
    """The integral of ``M^2 / K`` over ``M > multiple K``, for ``M = q N(e)`` and ``K = (1-q) N(v)`` so far apart."""
    d = sqrt(squared)
    start = (log(multiple * (1.0 - rate) / rate) + 0.5 * squared) / d  # in standard deviations from v

    def squares(g: float) -> float:
        own = rate * exp(d * g - 0.5 * squared)  # q N(e) over N(v)
        return own**2 / (1.0 - rate) * exp(-0.5 * g * g) / sqrt(2.0 * pi)

    first = max(start, 2.0 * d - 12.0)
    return quad(squares, first, max(first, 2.0 * d) + 12.0, epsabs=0.0, epsrel=1e-11, limit=200)[0]


def test_little_noise_has_no_lemma() -> None:
    assert largest_share(2.0 * log(2.0)) == 0.0
    assert excess(0.01, 2.0, np.array([1.0]))[0] == inf


def test_means_over_bins_are_bounded_by_chords() -> None:
    """Against quadrature of calls, which are convex at 1 too; the mean of a bin keeps its place."""
    rate, distance, spacing = 0.2, 0.6, 0.02
    ends, weights = chord_weights(spacing)
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert weights @ np.exp(ends) == pytest.approx(1.0, abs=1e-14)
    found = spread_opposite(rate, distance, spacing, -20, 40)
    single = opposite(rate, distance, spacing * np.arange(-20, 41), Side.UPPER)

    def call(x: float) -> float:
        a = max(1.0 + expm1(x) / rate, 1e-300)
        return rate * float(ndtr(0.5 * distance - log(a) / distance) - a * ndtr(-0.5 * distance - log(a) / distance))

    for place in range(-20, 41):

        def weighed(x: float, middle: float = place * spacing) -> float:
            value = call(middle + x) if exp(middle + x) > 1.0 - rate else 1.0 - exp(middle + x)
            return (value - max(1.0 - exp(middle), 0.0)) * exp(-0.5 * x)

        edge = log(1.0 - rate) - place * spacing
        points = [edge] if abs(edge) < 0.5 * spacing else None
        whole = quad(weighed, -0.5 * spacing, 0.5 * spacing, points=points, epsabs=1e-15)[0]
        mean, one = whole / (4.0 * sinh(0.25 * spacing)), single[place + 20]
        assert mean - 1e-12 <= found[place + 20] <= mean + 0.3 * max(mean - one, 0.0) + 1e-7
