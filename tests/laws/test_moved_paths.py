"""Bounds on moments at high frequencies by moved paths of integration, against plain sums of the moments."""

from math import exp, inf, log

import numpy as np
import pytest

from hockeystick.laws.law import Array
from hockeystick.laws.moved_paths import LEAST, MovedPath
from hockeystick.laws.poisson_moments import PoissonMoments

STEPS = [(0.01, 1.0), (2.9e-4, 0.62), (0.5, 0.4), (0.3, 12.0), (1e-5, 3.0)]
"""Rate and noise multiplier."""


def sizes(moments: PoissonMoments, order: float, frequencies: Array) -> Array:
    """|M(c + it) / M(c)| by a trapezoidal sum over more nodes than a line has, which no bound is needed for."""
    low, high = moments.ends(order)
    spacing = min(0.5 * moments.spacing(order, float(frequencies[-1])), 0.01)
    z = np.arange(low - 1.0, high + 1.0, spacing)
    logs = moments.log_ratios(z)[0]
    weights = np.exp(order * logs - 0.5 * z * z - (order * logs - 0.5 * z * z).max())
    return np.array([abs(weights @ np.exp(1j * t * logs)) for t in frequencies]) / weights.sum()


@pytest.mark.parametrize(("rate", "sigma"), STEPS)
@pytest.mark.parametrize("distance", [40.0, 6.0, 0.3, -0.3, -6.0, -40.0])
@pytest.mark.parametrize("needed", [5e-3, 0.1, 2.0, 8.0])
def test_the_bound_is_above_the_moments(rate: float, sigma: float, distance: float, needed: float) -> None:
    """At frequencies from far below the one that is found to far above it, where it is least."""
    moments = PoissonMoments(rate, sigma)
    order = 1.0 + distance if distance > 0.0 else distance
    path = moments.moved_path(order, needed)
    settled = path.settled(-needed)
    assert settled < inf
    # Rotations of sums are rounded, and so is what is left of them.
    frequencies = np.geomspace(0.02, 5.0, 25) * min(settled, 1e3)
    bounds = np.exp([path.log_bound(float(t)) for t in frequencies])
    assert (sizes(moments, order, frequencies) <= bounds + 1e-12).all()
    assert (np.diff(bounds) <= 0.0).all()
    assert path.log_bound(settled) <= -needed < path.log_bound(settled / 1.03)


@pytest.mark.parametrize("order", [8.0, -3.0])
def test_the_bound_tells_much_of_the_moments(order: float) -> None:
    """They are as small as is asked for at no less than half of the frequency that is found; by variations, a tenth."""
    moments = PoissonMoments(0.01, 1.0)
    for needed in (0.02, 0.2, 2.0):
        settled = moments.moved_path(order, needed).settled(-needed)
        assert sizes(moments, order, np.array([0.5 * settled]))[0] > exp(-needed)


@pytest.mark.parametrize(("shares", "angles", "rest"), [([1.0, 0.5], [0.0, 2.0], 0.1), ([1.2], [1e-3], 1e-300)])
def test_ends_are_found_from_any_limit(shares: list[float], angles: list[float], rest: float) -> None:
    path = MovedPath(np.array(shares), np.array(angles), rest)
    size = path.log_bound(5.0)
    assert size == pytest.approx(log(np.exp(-5.0 * np.array(angles)) @ np.array(shares) + rest), rel=1e-12)
    for limit in (inf, 1e4, 5.0001, 5.0):
        found = path.settled(size, limit)
        assert found <= limit * (1.0 + 1e-9)
        assert path.log_bound(found) <= size
        assert found <= 5.0 * 1.03
    assert path.settled(size, 4.9) == inf
    assert path.settled(log(rest) - 1.0) == inf
    assert path.settled(1.0) <= LEAST


def test_what_does_not_turn_is_all_of_a_bound_far_out() -> None:
    """Beyond the ends of the nodes, and where a cell has next to nothing: at least the density there."""
    moments = PoissonMoments(0.2, 2.0)
    for order in (3.0, -3.0, -30.0):
        path = moments.moved_path(order, 1.0)
        low, high = moments.ends(order)
        z = np.concatenate([np.linspace(low - 5.0, low, 4001), np.linspace(high, high + 5.0, 4001)])
        inside = np.linspace(low, high, 20_001)
        beyond = np.exp(order * moments.log_ratios(z)[0] - 0.5 * z * z).sum() * (z[1] - z[0])
        within = np.exp(order * moments.log_ratios(inside)[0] - 0.5 * inside**2).sum() * (inside[1] - inside[0])
        assert beyond / within <= path.rest <= 1e-12
