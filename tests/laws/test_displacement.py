"""Tight steps: above every step with two gradients of norm 1 or less, and equal to the worst of each direction."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hockeystick.laws.displacement import Displacement, tight_step
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction

Chances = tuple[float, float, float]
EPSILONS = (0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0)
GRID_ERROR = 1e-4
"""Of ``divergence``, relative, beside 1e-9: hinges of densities on cells of a hundredth of sigma."""


def step(empty: float, taken: float, placed: float) -> Displacement:
    return Displacement(
        loose=1.0 - empty - taken - placed,
        empty=empty,
        taken=taken,
        placed=placed,
        pushed=0.0,
        counts=np.zeros(0),
        rate=0.5,
        error=0.0,
    )


def divergence(chances: Chances, v: float, e: float, sigma: float, direction: Direction) -> np.ndarray:
    """Of a tight step whose gradients lie on a line, by sums over a grid of outputs."""
    total = sum(chances)
    empty, taken, placed = (chance / total for chance in chances)
    y = np.arange(-2.0 - 9.0 * sigma, 2.0 + 9.0 * sigma, 0.01 * sigma)

    def density(own: float) -> np.ndarray:
        parts = ((empty, 0.0), (taken, v), (placed, own))
        return sum(
            (weight * np.exp(-0.5 * ((y - place) / sigma) ** 2) for weight, place in parts), np.zeros(y.size)
        ) / (sigma * np.sqrt(2.0 * np.pi))

    p, q = density(e), density(0.0)
    if direction is Direction.ADD:
        p, q = q, p
    return np.array([np.maximum(p - exp(epsilon) * q, 0.0).sum() * 0.01 * sigma for epsilon in EPSILONS])


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("chances", [(0.01, 0.5, 0.02), (0.2, 0.1, 0.1), (0.0, 0.7, 0.3), (0.3, 1e-9, 0.01)])
def test_the_worst_gradients_attain_it(chances: Chances, sigma: float) -> None:
    """To remove, the other's gradient is opposite to the example's; to add, the same."""
    law = tight_step(step(*chances), sigma, Resolution(72, 1e-12))
    for direction, v in ((Direction.REMOVE, -1.0), (Direction.ADD, 1.0)):
        exact = divergence(chances, v, 1.0, sigma, direction)
        for epsilon, delta in zip(EPSILONS, exact, strict=True):
            bound = law_delta(law, epsilon, direction)
            assert delta * (1.0 - GRID_ERROR) - 1e-9 <= bound <= delta * (1.0 + 5e-3) + 1e-9


@given(
    chances=st.tuples(*[st.floats(0.001, 1.0)] * 3),
    v=st.floats(-1.0, 1.0),
    e=st.floats(-1.0, 1.0),
    sigma=st.floats(0.3, 4.0),
)
def test_no_gradients_are_above(chances: Chances, v: float, e: float, sigma: float) -> None:
    scaled = tuple(chance / (4.0 * sum(chances)) for chance in chances)
    law = tight_step(step(*scaled), sigma, Resolution(18, 1e-9))
    for direction in Direction:
        for epsilon, delta in zip(EPSILONS, divergence(scaled, v, e, sigma, direction), strict=True):
            assert law_delta(law, epsilon, direction) >= delta * (1.0 - GRID_ERROR) - 1e-9
