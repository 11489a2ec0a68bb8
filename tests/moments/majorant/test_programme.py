"""The programme against HiGHS on the same points, closed forms, and the inequality that it promises."""

import itertools
from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.optimize import linprog

from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import Polynomial
from hockeystick.moments.majorant.basis import orthonormal_basis
from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
from hockeystick.moments.majorant.programme import exchange, propose
from hockeystick.types import Direction, Side

ATOMS = [Fraction(k, 64) for k in (40, 47, 52, 56, 60, 63, 66, 70, 75, 81, 90, 105, 150)]
MASSES = [Fraction(k, 1000) for k in (20, 60, 110, 150, 160, 140, 120, 90, 70, 40, 25, 13, 2)]


def moments_of(atoms: list[Fraction], masses: list[Fraction], degree: int) -> ExactMoments:
    values = tuple(sum((w * x**k for w, x in zip(masses, atoms, strict=True)), Fraction(0)) for k in range(degree + 1))
    return ExactMoments(values=values, error=Fraction(0))


MOMENTS = moments_of(ATOMS, MASSES, 12)


def values_at(polynomial: Polynomial, x: np.ndarray) -> np.ndarray:
    """In rational arithmetic."""
    result = []
    for place in x:
        offset, total = Fraction(float(place)) - Fraction(polynomial.centre), Fraction(0)
        for coefficient in reversed(polynomial.exact):
            total = total * offset + coefficient
        result.append(float(total))
    return np.array(result)


@pytest.mark.parametrize("degree", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("direction", Direction)
def test_exchange_agrees_with_highs(degree: int, sign: float, direction: Direction) -> None:
    basis = orthonormal_basis(MOMENTS, degree)
    assert basis is not None
    rule = basis.quadrature(0.0)
    assert rule is not None
    points = np.unique(np.concatenate([rule[0], np.linspace(0.0, 4.0, 150), np.geomspace(4.0, 1e4, 40)]))
    rows, scale = basis.scaled(points)
    rows = np.concatenate([rows, basis.at_infinity[None]])
    hockey_stick = SplitHockeyStick(direction, 0.3, 0.01).value(points) / scale
    values = np.append(sign * hockey_stick / hockey_stick.max(), 0.0)
    weights, atoms = np.zeros(degree + 1), np.searchsorted(points, rule[0])
    assert exchange(rows, values, basis.expectations, atoms, weights)
    assert (rows @ weights - values).min() > -1e-9
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    oracle = linprog(
        basis.expectations, A_ub=-rows, b_ub=-values, bounds=(None, None), method="highs-ds", options=tight
    )
    assert oracle.status == 0
    assert weights @ basis.expectations == pytest.approx(oracle.fun, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("strike", [0.2, 0.5, 0.52, 0.8, 1.0, 1.5, 3.0, 20.0])
def test_degree_two_is_the_bound_of_scarf(strike: float) -> None:
    """The largest E (Y - K)_+ for Y >= 0 of given mean and variance (Scarf 1958; Lo 1987)."""
    mean, second = float(MOMENTS.values[1]), float(MOMENTS.values[2])
    spread = second - mean**2
    if strike >= second / (2.0 * mean):
        expected = 0.5 * (sqrt(spread + (strike - mean) ** 2) - (strike - mean))
    else:
        expected = mean - strike * mean**2 / second

    class Call:
        def value(self, x: np.ndarray) -> np.ndarray:
            return np.maximum(x - strike, 0.0)

        def line_beyond(self, x: float) -> tuple[float, float]:
            return max(-strike, -x), 1.0

    candidate = propose(MOMENTS, Call(), Side.UPPER, degree=2)  # type: ignore[arg-type]
    assert candidate is not None
    assert candidate.value == pytest.approx(expected, rel=2e-5)
    lower = propose(MOMENTS, Call(), Side.LOWER, degree=2)  # type: ignore[arg-type]
    assert lower is not None
    assert lower.value == pytest.approx(max(mean - strike, 0.0), abs=1e-5)  # Jensen: the line through the mean


VARIANCES = (0.0, 1e-4, 0.05)
"""Of every two of degree, direction, side and variance all values are in every run together; the rest runs weekly."""


@pytest.mark.parametrize(
    ("variance", "side", "direction", "degree"),
    [
        pytest.param(
            variance, side, direction, degree, marks=() if (i + j + k + degree) % 3 == 0 else pytest.mark.weekly
        )
        for i, variance in enumerate(VARIANCES)
        for j, side in enumerate(Side)
        for k, direction in enumerate(Direction)
        for degree in range(2, 13)
    ],
)
def test_keeps_to_its_side(degree: int, direction: Direction, side: Side, variance: float) -> None:
    hockey_stick = SplitHockeyStick(direction, 0.4, variance)
    candidate = propose(MOMENTS, hockey_stick, side, degree=degree)
    assert candidate is not None
    assert candidate.points[0] == 0.0
    assert (np.diff(candidate.points) > 0.0).all()
    x = np.concatenate([np.linspace(0.0, 3.0, 400), np.geomspace(3.0, 1e7, 100)])
    distance = values_at(candidate.polynomial, x) - hockey_stick.value(x)
    distance *= 1.0 if side is Side.UPPER else -1.0
    size = (hockey_stick.value(x) / values_at(candidate.repair, x)).max()
    assert (distance >= -1e-4 * size * values_at(candidate.repair, x)).all()
    truth = sum(float(w) * hockey_stick.value(np.array([float(y)]))[0] for w, y in zip(MASSES, ATOMS, strict=True))
    slack = 1e-4 * (degree + 2) * size
    assert (candidate.value >= truth - slack) if side is Side.UPPER else (candidate.value <= truth + slack)


@pytest.mark.parametrize("direction", Direction)
def test_the_gap_closes_with_the_degree(direction: Direction) -> None:
    hockey_stick = SplitHockeyStick(direction, 0.3, 0.02)
    gaps = []
    for degree in range(2, 13):
        upper = propose(MOMENTS, hockey_stick, Side.UPPER, degree=degree)
        lower = propose(MOMENTS, hockey_stick, Side.LOWER, degree=degree)
        assert upper is not None
        assert lower is not None
        gaps.append(upper.value - lower.value)
    scale = gaps[0]
    assert all(after <= before + 1e-4 * scale for before, after in itertools.pairwise(gaps))
    assert gaps[-1] < 5e-3 * scale


@pytest.mark.parametrize("degree", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("mass", [Fraction(1), Fraction(1, 10**4)])
def test_divided(degree: int, mass: Fraction) -> None:
    """``x p(x) >= F(x)`` from the start on, for a measure of any mass; better than p >= F / start."""
    moments = moments_of(ATOMS, [mass * w for w in MASSES], 8)
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.4, 0.01)
    candidate = propose(moments, hockey_stick, Side.UPPER, degree=degree, start=0.6, divided=True)
    assert candidate is not None
    assert candidate.points[0] == 0.6
    assert candidate.polynomial.degree == degree + 1
    x = np.concatenate([np.linspace(0.6, 3.0, 300), np.geomspace(3.0, 1e7, 50)])
    values, repair = values_at(candidate.polynomial, x), values_at(candidate.repair, x)
    for polynomial, size in ((candidate.polynomial, values), (candidate.repair, repair)):
        assert abs(values_at(polynomial, np.zeros(1))[0]) <= 1e-12 * np.abs(size).max()  # x divides both
    assert (values >= hockey_stick.value(x) - 1e-4 * (hockey_stick.value(x) / repair).max() * repair).all()
    truth = sum(
        float(mass * w) * hockey_stick.value(np.array([float(y)]))[0] / float(y)
        for w, y in zip(MASSES, ATOMS, strict=True)
    )
    assert candidate.value >= truth * (1.0 - 1e-9)
    if degree == 8:
        assert candidate.value <= 1.1 * truth


def test_the_start_helps() -> None:
    hockey_stick = SplitHockeyStick(Direction.ADD, 0.4, 0.001)
    whole = propose(MOMENTS, hockey_stick, Side.UPPER, degree=4)
    part = propose(MOMENTS, hockey_stick, Side.UPPER, degree=4, start=0.6)
    assert whole is not None
    assert part is not None
    assert part.value < 0.99 * whole.value
    assert (
        propose(MOMENTS, hockey_stick, Side.UPPER, degree=4, start=2.0) is None
    )  # beyond the mean: there is no such law


def test_an_answer_far_below_the_target_is_not_resolved() -> None:
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 300.0, 0.01)
    candidate = propose(MOMENTS, hockey_stick, Side.UPPER, degree=8, target=1e-20)
    assert candidate is not None
    assert 0.0 <= candidate.value < 1e-20


@pytest.mark.parametrize("deviation", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("degree", [4, 8, 12])
@pytest.mark.parametrize("side", Side)
def test_heavy_tails_are_refused_or_solved(deviation: float, degree: int, side: Side) -> None:
    """Log-normal moments ``exp(S^2 k (k - 1) / 2)``."""
    values = tuple(Fraction(exp(deviation**2 * k * (k - 1) / 2)) for k in range(degree + 1) if k < 10 or deviation < 4)
    if len(values) <= degree:
        values += (Fraction(10) ** 400,) * (degree + 1 - len(values))
    moments = ExactMoments(values=values, error=Fraction(1, 10**15))
    hockey_stick = SplitHockeyStick(Direction.REMOVE, log(5.0), 0.1)
    candidate = propose(moments, hockey_stick, side, degree=degree)
    if candidate is not None:
        assert np.isfinite(candidate.polynomial.coefficients).all()
        x = np.geomspace(1e-3, 1e8, 200)
        scale, bound = values_at(candidate.repair, x), hockey_stick.value(x)
        over = (values_at(candidate.polynomial, x) - bound) * (1.0 if side is Side.UPPER else -1.0)
        assert (over >= -1e-3 * (bound / scale).max() * scale).all()
    if deviation == 1.0 and degree == 4:
        assert candidate is not None
