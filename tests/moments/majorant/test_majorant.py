"""Bounds from moments against laws whose atoms are known: E F is a finite sum, taken by mpmath."""

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.bounds import SMALLEST_UPPER
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant import majorant as module
from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
from hockeystick.moments.majorant.majorant import majorant_delta, majorant_profile, proved_expectation
from hockeystick.moments.majorant.programme import propose
from hockeystick.types import Direction, Side

ROUNDING = 1e-13
"""Of the oracle, relatively."""


def moments_of(
    atoms: list[Fraction], masses: list[Fraction], degree: int, error: Fraction = Fraction(0)
) -> ExactMoments:
    values = tuple(sum((w * x**k for w, x in zip(masses, atoms, strict=True)), Fraction(0)) for k in range(degree + 1))
    return ExactMoments(values=values, error=error)


def truth_of(
    atoms: list[Fraction], masses: list[Fraction], direction: Direction, epsilon: float, variance: float
) -> float:
    """``E (L Y - K)_+`` or ``E (1 - K L Y)_+`` by Black's formula in 40 digits."""
    with mpmath.workdps(40):
        strike, deviation, total = mpmath.exp(epsilon), mpmath.sqrt(variance), mpmath.mpf(0)
        for atom, mass in zip(atoms, masses, strict=True):
            x, weight = mpmath.mpf(atom.numerator) / atom.denominator, mpmath.mpf(mass.numerator) / mass.denominator
            level, bar = (x, strike) if direction is Direction.REMOVE else (strike * x, mpmath.mpf(1))
            sign = 1 if direction is Direction.REMOVE else -1
            if deviation == 0 or x == 0:
                value = max(sign * (level - bar), mpmath.mpf(0))
            else:
                d1 = mpmath.log(level / bar) / deviation + deviation / 2
                value = sign * (level * mpmath.ncdf(sign * d1) - bar * mpmath.ncdf(sign * (d1 - deviation)))
            total += weight * value
        return float(total)


def log_normal_atoms(deviation: float, count: int = 24) -> tuple[list[Fraction], list[Fraction]]:
    """A discrete law of mean 1 whose atoms and masses look like those of a log-normal one."""
    z = np.linspace(-4.0, 4.0, count)
    masses = [Fraction(float(w)) for w in np.exp(-0.5 * z**2)]
    total = sum(masses)
    masses = [w / total for w in masses]
    atoms = [Fraction(float(x)) for x in np.exp(deviation * z)]
    mean = sum((w * x for w, x in zip(masses, atoms, strict=True)), Fraction(0))
    return [x / mean for x in atoms], masses


def between(truth: float, lower: float, upper: float) -> bool:
    return lower <= truth * (1.0 + ROUNDING) and upper >= min(truth, 1.0) * (1.0 - ROUNDING)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("epsilon", "size", "gap"), [(0.47, 1e-3, 2e-5), (0.75, 1e-5, 2e-5), (1.05, 1e-8, 1e-3), (1.2, 1e-10, 1e-2)]
)
def test_two_sided_in_the_tail(direction: Direction, epsilon: float, size: float, gap: float) -> None:
    """Deltas from 1e-3 to 1e-10, each within the gap at degree 12."""
    atoms, masses = log_normal_atoms(0.05)
    moments, variance = moments_of(atoms, masses, 12), 0.04
    truth = truth_of(atoms, masses, direction, epsilon, variance)
    assert 0.1 * size < truth < 10.0 * size
    hockey_stick, gaps = SplitHockeyStick(direction, epsilon, variance), []
    for degree in range(2, 13):
        upper = majorant_delta(moments, hockey_stick, Side.UPPER, [degree])
        lower = majorant_delta(moments, hockey_stick, Side.LOWER, [degree])
        assert between(truth, lower, upper)
        gaps.append((upper - lower) / truth)
    assert all(after <= before * (1.0 + 1e-4) + 1e-4 for before, after in pairwise(gaps))
    assert gaps[-1] < gap


laws = st.lists(
    st.tuples(st.integers(min_value=0, max_value=4000), st.integers(min_value=1, max_value=10**6)),
    min_size=2,
    max_size=9,
    unique_by=lambda pair: pair[0],
)


@given(
    law=laws,
    degree=st.integers(min_value=2, max_value=12),
    direction=st.sampled_from(Direction),
    epsilon=st.floats(min_value=0.0, max_value=6.0),
    variance=st.sampled_from([0.0, 1e-6, 1e-3, 0.05, 1.0]),
    narrow=st.sampled_from([1, 10, 10**3]),
    mass=st.sampled_from([Fraction(1), Fraction(1, 10**4)]),
    error=st.sampled_from([Fraction(0), Fraction(1, 10**29)]),
)
@settings(max_examples=80)
def test_random_laws(
    law: list[tuple[int, int]],
    degree: int,
    direction: Direction,
    epsilon: float,
    variance: float,
    narrow: int,
    mass: Fraction,
    error: Fraction,
) -> None:
    atoms = [1 + (Fraction(place, 1000) - 1) / narrow for place, _ in law]
    total = sum(weight for _, weight in law)
    masses = [mass * Fraction(weight, total) for _, weight in law]
    moments, hockey_stick = moments_of(atoms, masses, degree, error), SplitHockeyStick(direction, epsilon, variance)
    truth = truth_of(atoms, masses, direction, epsilon, variance)
    upper = majorant_delta(moments, hockey_stick, Side.UPPER, range(2, degree + 1))
    lower = majorant_delta(moments, hockey_stick, Side.LOWER, range(2, degree + 1))
    assert SMALLEST_UPPER <= upper <= 1.0
    assert between(truth, lower, upper)


@pytest.mark.parametrize("direction", Direction)
def test_nearly_degenerate_law(direction: Direction) -> None:
    """Variance 1e-6: four moments say everything, and rounding spoils nothing."""
    atoms, masses = log_normal_atoms(1e-3)
    moments, hockey_stick = moments_of(atoms, masses, 8, Fraction(1, 10**30)), SplitHockeyStick(direction, 1.0, 0.1)
    truth = truth_of(atoms, masses, direction, 1.0, 0.1)
    for degree in range(2, 9):
        upper = majorant_delta(moments, hockey_stick, Side.UPPER, range(2, degree + 1))
        lower = majorant_delta(moments, hockey_stick, Side.LOWER, range(2, degree + 1))
        assert between(truth, lower, upper)
        assert upper - lower < (0.02 if degree < 4 else 2e-5) * truth


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("deviation", [1.0, 2.0, 4.0])
def test_heavy_tails(direction: Direction, deviation: float) -> None:
    atoms, masses = log_normal_atoms(deviation)
    moments = moments_of(atoms, masses, 12)
    for epsilon in (0.5, 3.0):
        hockey_stick = SplitHockeyStick(direction, epsilon, 0.2)
        truth = truth_of(atoms, masses, direction, epsilon, 0.2)
        upper = majorant_delta(moments, hockey_stick, Side.UPPER, range(2, 13))
        lower = majorant_delta(moments, hockey_stick, Side.LOWER, range(2, 13))
        assert between(truth, lower, upper)


@pytest.mark.parametrize("direction", Direction)
def test_two_atoms(direction: Direction) -> None:
    """Three moments leave some freedom; all degrees beyond are refused, and the third still counts."""
    atoms, masses = [Fraction(1, 2), Fraction(3, 2)], [Fraction(1, 2)] * 2
    hockey_stick, truth = SplitHockeyStick(direction, 0.2, 0.3), truth_of(atoms, masses, direction, 0.2, 0.3)
    upper, lower = (
        majorant_delta(moments_of(atoms, masses, 12), hockey_stick, side, range(2, 13))
        for side in (Side.UPPER, Side.LOWER)
    )
    assert between(truth, lower, upper)
    assert upper - lower < 0.2 * truth
    assert majorant_delta(moments_of(atoms, masses, 12), hockey_stick, Side.UPPER, [6, 8]) == 1.0
    assert majorant_delta(moments_of(atoms, masses, 12), hockey_stick, Side.LOWER, [6, 8]) == 0.0


def test_falls_back_to_degrees_that_the_moments_are_good_for() -> None:
    atoms, masses = log_normal_atoms(0.01)
    blurred = moments_of(atoms, masses, 12, Fraction(1, 10**14))
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.5, 0.05)
    truth = truth_of(atoms, masses, Direction.REMOVE, 0.5, 0.05)
    alone = majorant_delta(blurred, hockey_stick, Side.UPPER, [12])
    chosen = majorant_delta(blurred, hockey_stick, Side.UPPER, range(2, 13))
    assert alone == 1.0
    assert truth <= chosen < 1.001 * truth


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("direction", Direction)
def test_profile(side: Side, direction: Direction) -> None:
    atoms, masses = log_normal_atoms(0.3)
    moments, deadline = moments_of(atoms, masses, 8), Deadline()
    profile = majorant_profile(moments, 0.05, direction, side, degrees=range(2, 9), deadline=deadline)
    epsilons = [0.0, 0.1, 0.5, 1.0, 2.0, 4.0]
    values = [profile(epsilon) for epsilon in epsilons]
    for epsilon, value in zip(epsilons, values, strict=True):
        assert value == majorant_delta(moments, SplitHockeyStick(direction, epsilon, 0.05), side, range(2, 9))
        truth = truth_of(atoms, masses, direction, epsilon, 0.05)
        assert value >= truth * (1 - ROUNDING) if side is Side.UPPER else value <= truth * (1 + ROUNDING)
    assert all(after <= before for before, after in pairwise(values))
    ticks = deadline.ticks
    assert ticks >= len(epsilons)
    assert profile(0.5) == values[2]
    assert deadline.ticks == ticks


@pytest.mark.parametrize("direction", Direction)
def test_profile_far_out(direction: Direction) -> None:
    """The search for an epsilon looks at 700 too."""
    atoms, masses = log_normal_atoms(0.3)
    moments = moments_of(atoms, masses, 8)
    upper, lower = (
        majorant_profile(moments, 0.05, direction, side, degrees=[4, 8]) for side in (Side.UPPER, Side.LOWER)
    )
    assert lower(700.0) == 0.0
    assert SMALLEST_UPPER <= upper(700.0) < (1e-30 if direction is Direction.REMOVE else 0.01)
    assert smallest_epsilon(upper, 1e-8, Side.UPPER) >= smallest_epsilon(lower, 1e-8, Side.LOWER) > 0.0


def test_profile_keeps_to_its_budget() -> None:
    atoms, masses = log_normal_atoms(0.3)
    profile = majorant_profile(
        moments_of(atoms, masses, 8), 0.05, Direction.ADD, Side.UPPER, degrees=[8], deadline=Deadline(seconds=0.0)
    )
    with pytest.raises(BudgetExceededError):
        profile(1.0)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("direction", Direction)
def test_what_may_hide_below_the_floor_is_charged(
    direction: Direction, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A law may lie below the floor with probability BEYOND, where the polynomial may be off by its own size."""
    moments = moments_of(*log_normal_atoms(0.05), 6)
    hockey_stick, floor = SplitHockeyStick(direction, 0.3, 0.04), 0.5
    candidate = propose(moments, hockey_stick, side, degree=6, start=floor)
    assert candidate is not None
    free = proved_expectation(candidate, moments, hockey_stick, side, floor)
    monkeypatch.setattr(module, "BEYOND", 1e-3)
    charged = proved_expectation(candidate, moments, hockey_stick, side, floor)
    charge = charged - free if side is Side.UPPER else free - charged
    below, polynomial = np.linspace(0.0, floor, 50), candidate.polynomial
    off = np.abs(np.polynomial.polynomial.polyval(below - polynomial.centre, polynomial.coefficients.real))
    assert charge >= 1e-3 * (off + hockey_stick.value(below)).max() * (1.0 - 1e-9)
