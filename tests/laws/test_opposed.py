"""Two mixtures that move apart, against closed forms in high precision."""

import mpmath
import numpy as np
import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.opposed import opposed_law
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction

CASES = [
    ([0.99, 0.01], [0.0, 2.0], [0.0, 1.0], 1.0),
    ([0.5, 0.5], [0.0, 2.0], [0.0, 1.0], 0.2),
    ([1e-6, 1.0 - 1e-6], [0.0, 2.0], [0.0, 1.0], 3.0),
    ([1.0 - 1e-7, 1e-7], [0.0, 2.0], [0.0, 1.0], 0.7),
    ([0.3, 0.4, 0.3], [0.0, 2.0, 4.0], [0.0, 1.0, 2.0], 1.3),
    ([0.9, 0.1], [0.0, 0.002], [0.0, 0.001], 1.0),
    ([0.9, 0.1], [0.0, 1.0], [0.0, 0.0], 1.0),
]
EPSILONS = (0.0, 0.01, 0.5, 2.0, 6.0)


def exact(
    weights: list[float], ahead: list[float], behind: list[float], sigma: float, epsilon: float
) -> dict[Direction, float]:
    """The ratio increases, so a hockey stick is a difference of tails beyond the place where it is e^eps or e^-eps."""
    with mpmath.workdps(40):
        total = mpmath.fsum(weights)
        w = [mpmath.mpf(weight) / total for weight in weights]
        a, b = ([mpmath.mpf(shift) / mpmath.mpf(sigma) for shift in shifts] for shifts in (ahead, behind))

        def log_ratio(y: mpmath.mpf) -> mpmath.mpf:
            of_p = mpmath.fsum(v * mpmath.npdf(y - s) for v, s in zip(w, a, strict=True))
            return mpmath.log(of_p / mpmath.fsum(v * mpmath.npdf(y + s) for v, s in zip(w, b, strict=True)))

        def place(level: float) -> mpmath.mpf | None:
            high = 300 + max(*a, *b)
            low = -high
            if log_ratio(high) < level or log_ratio(low) > level:
                return None
            for _ in range(110):
                middle = (low + high) / 2
                low, high = (middle, high) if log_ratio(middle) < level else (low, middle)
            return low

        def above(y: mpmath.mpf, shifts: list[mpmath.mpf]) -> mpmath.mpf:
            return mpmath.fsum(v * mpmath.ncdf(s - y) for v, s in zip(w, shifts, strict=True))

        def below(y: mpmath.mpf, shifts: list[mpmath.mpf]) -> mpmath.mpf:
            return mpmath.fsum(v * mpmath.ncdf(y - s) for v, s in zip(w, shifts, strict=True))

        factor, back = mpmath.exp(mpmath.mpf(epsilon)), [-shift for shift in b]
        up, down = place(epsilon), place(-epsilon)
        remove = mpmath.mpf(0) if up is None else above(up, a) - factor * above(up, back)
        add = mpmath.mpf(0) if down is None else below(down, back) - factor * below(down, a)
        return {Direction.REMOVE: float(remove), Direction.ADD: float(add)}


@pytest.mark.parametrize(("weights", "ahead", "behind", "sigma"), CASES)
def test_never_below_and_close(weights: list[float], ahead: list[float], behind: list[float], sigma: float) -> None:
    law = opposed_law(np.array(weights), np.array(ahead), np.array(behind), sigma, Resolution())
    for epsilon in EPSILONS:
        for direction, delta in exact(weights, ahead, behind, sigma, epsilon).items():
            bound = law_delta(law, epsilon, direction)
            assert delta <= bound <= delta * (1.0 + 5e-3) + 1e-11


def test_rounding_is_covered_where_nodes_are_few() -> None:
    """With two nodes in a standard deviation the spread is coarse, and still on its side."""
    law = opposed_law(np.array([0.8, 0.2]), np.array([0.0, 2.0]), np.array([0.0, 1.0]), 0.5, Resolution(2, 1e-3))
    for epsilon in EPSILONS:
        for direction, delta in exact([0.8, 0.2], [0.0, 2.0], [0.0, 1.0], 0.5, epsilon).items():
            assert delta <= law_delta(law, epsilon, direction)


@pytest.mark.parametrize("sigma", [1e-3, 0.02, 0.1, 1e4])
def test_extreme_noise(sigma: float) -> None:
    law = opposed_law(np.array([0.6, 0.4]), np.array([0.0, 2.0]), np.array([0.0, 1.0]), sigma, Resolution())
    assert np.all(np.diff(law.support) > 0.0)
    assert np.all(law.mass >= 0.0)
    assert law.mass.sum() == pytest.approx(1.0, abs=1e-9)
    for epsilon in EPSILONS:
        for direction, delta in exact([0.6, 0.4], [0.0, 2.0], [0.0, 1.0], sigma, epsilon).items():
            assert delta <= law_delta(law, epsilon, direction) <= max(delta * 1.01, 1e-11)


def test_a_mixture_without_a_component_at_rest_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="stays in place"):
        opposed_law(np.array([1.0]), np.array([2.0]), np.array([1.0]), 1.0, Resolution())
    with pytest.raises(InvalidInputError, match="at least 1e-15"):
        opposed_law(np.array([0.0, 1.0]), np.array([0.0, 2.0]), np.array([0.0, 1.0]), 1.0, Resolution())
