"""docs/theory/adaptivity.md: no adaptive choice beats constant gradients where visits are hidden and C >= 0.

Two steps, one visit at a hidden one of them, sigma = 1, C = [[1, 0], [c, 1]], gradients on a line. The gradient of step
2 reacts to the first row. Both hockey sticks are summed over a grid of both rows.
"""

from collections.abc import Callable
from math import exp

import numpy as np
import pytest

from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.types import Side

AXIS = np.linspace(-9.0, 10.0, 1901)
FIRST, SECOND = np.meshgrid(AXIS, AXIS, indexing="ij")
DENSITY = np.exp(-(FIRST**2 + SECOND**2) / 2.0) / (2.0 * np.pi) * (AXIS[1] - AXIS[0]) ** 2
EPSILONS = (0.0, 0.3, 1.0, 2.0)
GRID_ERROR = 1e-5

Rule = Callable[[np.ndarray], np.ndarray]


def deltas(second_gradient: Rule, below: float) -> np.ndarray:
    """(remove, add) at every epsilon, shape (2, epsilons), for a gradient of step 2 that is a function of row 1."""
    own = second_gradient(FIRST)
    visit_first = np.exp(FIRST - 0.5 + below * SECOND - below**2 / 2.0)
    visit_second = np.exp(own * SECOND - own**2 / 2.0)
    ratio = 0.5 * (visit_first + visit_second)
    remove = [(np.maximum(ratio - exp(epsilon), 0.0) * DENSITY).sum() for epsilon in EPSILONS]
    add = [(np.maximum(1.0 - exp(epsilon) * ratio, 0.0) * DENSITY).sum() for epsilon in EPSILONS]
    return np.array([remove, add])


def constant(first: np.ndarray) -> np.ndarray:
    return np.ones_like(first)


RULES: tuple[Rule, ...] = (
    np.sign,
    lambda first: -np.sign(first),
    lambda first: (first > 1.0).astype(float),
    np.tanh,
    lambda first: np.cos(3.0 * first),
)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("below", [0.0, 0.4, 1.0])
def test_no_rule_beats_constant_gradients(rule: Rule, below: float) -> None:
    gain = deltas(rule, below) - deltas(constant, below)
    assert gain.max() <= GRID_ERROR
    if below > 0.0:
        assert gain.min() < -1e-3  # the rules are not the constant one in disguise


def test_negative_entries_make_another_choice_better() -> None:
    """C = [[1, 0], [-1, 1]]: turning the second gradient round is worse for privacy than constant gradients."""
    turned = deltas(lambda first: -constant(first), -1.0)
    assert (turned - deltas(constant, -1.0)).max() > 0.03
    np.testing.assert_allclose(turned, deltas(constant, 1.0), atol=GRID_ERROR)  # the pair of |C|


def test_visits_that_react_are_still_one_gaussian() -> None:
    """Theorem 1: shift 0.6, then 0.8 in row 2 or in row 3, whichever row 1 says: exactly sensitivity 1.

    Rows 2 and 3 are both summed over: the ratio is the product of the three factors.
    """
    axis = np.linspace(-8.0, 8.0, 161)
    first, second, third = np.meshgrid(axis, axis, axis, indexing="ij")
    density = np.exp(-(first**2 + second**2 + third**2) / 2.0) / (2.0 * np.pi) ** 1.5 * (axis[1] - axis[0]) ** 3
    chosen = np.where(first > 0.05, second, third)
    ratio = np.exp(0.6 * first - 0.18 + 0.8 * chosen - 0.32)
    for epsilon in EPSILONS:
        truth = gaussian_delta(1.0, 1.0, epsilon, Side.UPPER)
        assert float((np.maximum(ratio - exp(epsilon), 0.0) * density).sum()) == pytest.approx(truth, rel=0.01)
        assert float((np.maximum(1.0 - exp(epsilon) * ratio, 0.0) * density).sum()) == pytest.approx(truth, rel=0.01)
