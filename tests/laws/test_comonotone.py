"""Sums of dependent ratios are below those that are large together, which are below the revealed choice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.errors import InvalidInputError
from hockeystick.laws.comonotone import comonotone
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.operations import mix
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side

RESOLUTION = Resolution(24, 1e-6)


def law_of(values: np.ndarray, masses: np.ndarray) -> Law:
    order = np.argsort(values)
    support, inverse = np.unique(values[order], return_inverse=True)
    mass = np.bincount(inverse, weights=masses[order])
    return Law(support, mass, 0.0, Side.UPPER, 1e-15, 1e-15)


@settings(derandomize=True, max_examples=60)
@given(st.integers(2, 4), st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_above_any_dependence_and_below_the_revealed_choice(parts: int, outcomes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    masses = rng.dirichlet(np.ones(outcomes))
    ratios = rng.exponential(size=(parts, outcomes))
    ratios /= (ratios @ masses)[:, None]
    weights = rng.dirichlet(np.ones(parts))
    laws = [law_of(support, masses) for support in ratios]
    together = comonotone(laws, weights.tolist(), RESOLUTION, tick=lambda: None)
    revealed = mix(laws, weights.tolist(), RESOLUTION)
    truth = law_of(weights @ ratios, masses)
    assert together.mean() == pytest.approx(1.0, abs=1e-9)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        for direction in Direction:
            middle = law_delta(together, epsilon, direction)
            assert law_delta(truth, epsilon, direction) <= middle * (1.0 + 1e-9) + 1e-15
            if together.size <= 2 * outcomes:  # nothing was projected
                assert middle <= law_delta(revealed, epsilon, direction) * (1.0 + 1e-9) + 1e-13


def test_a_law_with_itself_is_itself() -> None:
    law = gaussian_law(1.0, 1.0, Side.UPPER, RESOLUTION)
    twice = comonotone([law, law], [0.3, 0.7], RESOLUTION, tick=lambda: None)
    for epsilon in (0.0, 1.0, 3.0):
        assert law_delta(twice, epsilon, Direction.REMOVE) == pytest.approx(
            law_delta(law, epsilon, Direction.REMOVE), rel=1e-9
        )


def test_a_rare_part_keeps_its_weight() -> None:
    """A weight of 1e-18 next to 1 is not lost: far in the tail it is all there is."""
    small, large = (gaussian_law(1.0, shift, Side.UPPER, RESOLUTION) for shift in (0.01, 5.0))
    law = comonotone([small, large], [1.0, 1e-18], RESOLUTION, tick=lambda: None)
    assert law.mean() - 1.0 <= 1e-3
    assert float(law.support[-1]) >= 0.99e-18 * float(large.support[-1])


def test_lower_laws_are_refused() -> None:
    law = gaussian_law(1.0, 1.0, Side.LOWER, RESOLUTION)
    with pytest.raises(InvalidInputError, match="must be upper laws"):
        comonotone([law, law], [0.5, 0.5], RESOLUTION, tick=lambda: None)
