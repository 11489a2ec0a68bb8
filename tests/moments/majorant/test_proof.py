"""The certificate: sound kernels, what it must accept, and what it must not."""

from collections.abc import Callable
from fractions import Fraction
from math import comb, exp, inf, isinf

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import Array
from hockeystick.moments.double_double import rational
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import Polynomial
from hockeystick.moments.majorant.hockey_stick import SplitHockeyStick
from hockeystick.moments.majorant.proof import expectation, proves, repair_needed, repaired
from hockeystick.moments.majorant.proof_kernels import bernstein_coefficients, bernstein_weights, taylor_coefficients
from hockeystick.types import Direction, Side

DIRECTIONS = (Direction.REMOVE, Direction.ADD)
SIDES = (Side.UPPER, Side.LOWER)
POINTS = np.concatenate([np.linspace(0.0, 8.0, 161), [10.0, 16.0, 40.0, 400.0]])


def from_fractions(centre: float, coefficients: list[Fraction]) -> Polynomial:
    return Polynomial.rounded(centre, coefficients)


def from_doubles(centre: float, *coefficients: float) -> Polynomial:
    return from_fractions(centre, [Fraction(c) for c in coefficients])


def shifted(polynomial: Polynomial, by: float) -> Polynomial:
    """The polynomial plus a constant."""
    first, *others = polynomial.exact
    return from_fractions(polynomial.centre, [first + Fraction(by), *others])


def in_doubles(polynomial: Polynomial, x: Array) -> Array:
    return np.polynomial.polynomial.polyval(x - polynomial.centre, polynomial.coefficients.real)


def violation(polynomial: Polynomial, hockey_stick: SplitHockeyStick, side: Side, x: Array) -> mp.mpf:
    """The largest ``F - p`` (UPPER) or ``p - F`` in 40 digits, at the 12 of the places x that look worst."""
    sign = 1 if side is Side.UPPER else -1
    worst = np.argsort(sign * (in_doubles(polynomial, x) - hockey_stick.value(x)))[:12]
    coefficients = [mp.mpf(pair.real) + mp.mpf(pair.imag) for pair in polynomial.coefficients]
    with mp.workdps(40):
        strike, mu = mp.exp(mp.mpf(hockey_stick.epsilon)), mp.sqrt(mp.mpf(hockey_stick.variance))
        largest = mp.mpf("-inf")
        for place in x[worst]:
            y = mp.mpf(place)
            value = sum((c * (y - mp.mpf(polynomial.centre)) ** k for k, c in enumerate(coefficients)), mp.mpf(0))
            if hockey_stick.direction is Direction.REMOVE:
                first = (mp.log(y / strike) if y else -mp.inf) / mu + mu / 2
                truth = y * mp.ncdf(first) - strike * mp.ncdf(first - mu)
            else:
                first = (mp.log(y * strike) if y else -mp.inf) / mu + mu / 2
                truth = mp.ncdf(mu - first) - strike * y * mp.ncdf(-first)
            largest = max(largest, sign * (truth - value))
    return largest


def squared_majorant(hockey_stick: SplitHockeyStick, spread: float) -> Polynomial:
    """``E (L x - K + s)^2 / (4 s)`` >= F by ``t_+ <= (t + s)^2 / (4 s)``; raised by 1e-12 for the doubles of e^v."""
    growth, strike = exp(hockey_stick.variance), exp(hockey_stick.epsilon)
    if hockey_stick.direction is Direction.REMOVE:
        gap = spread - strike
        return from_doubles(0.0, gap * gap / (4 * spread) + 1e-9, 2 * gap / (4 * spread), growth / (4 * spread))
    gap = 1.0 + spread
    linear, square = -2 * gap * strike / (4 * spread), strike * strike * growth / (4 * spread) * (1 + 1e-9)
    return from_doubles(0.0, gap * gap / (4 * spread) + 1e-9, linear, square)


def fitted(hockey_stick: SplitHockeyStick, side: Side, degree: int, top: float = 8.0) -> Polynomial:
    """The polynomial closest to F, weighted to x near 1, that respects it on a grid of [0, top] and far out."""
    sign = 1.0 if side is Side.UPPER else -1.0
    x = 0.5 * top * (1.0 - np.cos(np.linspace(0.0, np.pi, 241)))
    near = np.polynomial.chebyshev.chebvander(2.0 * x / top - 1.0, degree)
    start = 2.0 * POINTS[-1] / top - 1.0
    slope = 0.5 * top if hockey_stick.direction is Direction.REMOVE else 0.0
    far = np.array([derivatives(start, degree, k) for k in range(degree + 1)])
    size = np.abs(far).max(axis=1)
    line = np.zeros(degree + 1)
    line[:2] = hockey_stick.value(POINTS[-1:])[0], slope
    programme = linprog(
        sign * (np.exp(-8.0 * np.log(np.maximum(x, 1e-9)) ** 2) @ near),
        A_ub=-sign * np.concatenate([near, far / size[:, None]]),
        b_ub=-sign * np.concatenate([hockey_stick.value(x), line / size])
        - np.repeat([0.0, 1e-6], [x.size, degree + 1]),
        bounds=(None, None),
        method="highs",
    )
    powers = np.polynomial.chebyshev.cheb2poly(programme.x)
    powers = np.pad(powers, (0, degree + 1 - powers.size))
    return from_doubles(0.5 * top, *(powers / (0.5 * top) ** np.arange(degree + 1)).tolist())


def derivatives(place: float, degree: int, order: int) -> Array:
    """Of all Chebyshev polynomials up to the degree, at one place."""
    return np.polynomial.chebyshev.chebval(place, np.polynomial.chebyshev.chebder(np.eye(degree + 1), order))


def even_powers(degree: int, centre: float = 4.0) -> Polynomial:
    """``sum_k ((x - centre) / centre)^(2k)``: a repair."""
    return from_doubles(centre, *[centre**-k if k % 2 == 0 else 0.0 for k in range(degree + 1)])


def log_normal_moments(variance: float, largest: int) -> ExactMoments:
    with mp.workdps(60):
        values = []
        for k in range(largest + 1):
            moment = mp.exp(mp.mpf(variance) * k * (k - 1) / 2)
            values.append(Fraction(int(moment * 10**40), 10**40))
    return ExactMoments(values=tuple(values), error=Fraction(1, 10**35))


# Kernels


@given(
    coefficients=st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e-10, 1e-10)), min_size=1, max_size=9),
    centre=st.floats(-5.0, 50.0),
    left=st.floats(0.0, 100.0),
    width=st.floats(0.0, 50.0),
)
@settings(max_examples=30)
def test_kernels_contain_the_exact_coefficients(
    coefficients: list[tuple[float, float]], centre: float, left: float, width: float
) -> None:
    """Taylor and Bernstein coefficients against rational arithmetic, with doubles that do not fit as pairs too."""
    given_pairs = np.array([complex(*c) for c in coefficients])
    right = left + width
    exact = [rational(pair) for pair in given_pairs]
    step, span = Fraction(left) - Fraction(centre), Fraction(right) - Fraction(left)
    taylor = [
        sum((comb(j, k) * c * step ** (j - k) for j, c in enumerate(exact) if j >= k), Fraction(0))
        for k in range(len(exact))
    ]
    values, errors = taylor_coefficients(given_pairs, centre, np.array([left]))
    for k, truth in enumerate(taylor):
        assert abs(Fraction(float(values[0, k])) - truth) <= Fraction(float(errors[0, k]))
    degree = max(1, len(exact) - 1)
    computed, bounds = bernstein_coefficients(values, errors, np.array([right - left]), bernstein_weights(degree))
    for j in range(degree + 1):
        truth = sum(
            (Fraction(comb(j, k), comb(degree, k)) * t * span**k for k, t in enumerate(taylor) if k <= j), Fraction(0)
        )
        assert abs(Fraction(float(computed[0, j])) - truth) <= Fraction(float(bounds[0, j]))


def test_taylor_coefficients_keep_thirty_digits_of_what_cancels() -> None:
    """(x - 1)^12 written about 1000: its value at 1 + 2^-10 is lost in doubles, but not here."""
    written = from_fractions(1000.0, [Fraction(comb(12, k) * 999 ** (12 - k)) for k in range(13)])
    values, errors = taylor_coefficients(written.coefficients, 1000.0, np.array([3.0]))
    for k in range(13):
        assert values[0, k] == pytest.approx(comb(12, k) * 2.0 ** (12 - k), abs=2.0 * errors[0, k])
    assert errors[0].max() < 1e8 * 1000.0**12 * 2.0**-103


def test_overflow_proves_nothing() -> None:
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 1.0, 0.1)
    for sign in (1.0, -1.0):
        huge = from_doubles(0.0, 0.0, 1.0, *[sign * 1e300] * 8)
        for side in SIDES:
            assert not proves(huge, hockey_stick, side, np.array([0.0, 1.0, 1e20]))
            assert isinf(repair_needed(huge, even_powers(8, 1.0), hockey_stick, side, np.array([0.0, 1.0, 1e20])))


# What is accepted


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("variance", [1e-6, 0.02, 0.5])
def test_a_known_majorant_is_accepted_and_a_known_minorant(direction: Direction, variance: float) -> None:
    hockey_stick = SplitHockeyStick(direction, 0.7, variance)
    for spread in (0.3, 1.0):
        assert proves(squared_majorant(hockey_stick, spread), hockey_stick, Side.UPPER, POINTS)
    for place in (0.4, 1.0, 2.5):
        intercept, slope = (float(part[0]) for part in hockey_stick.line_below(np.array([place])))
        assert proves(from_doubles(0.0, intercept - 1e-9, slope), hockey_stick, Side.LOWER, POINTS)
    assert proves(from_doubles(0.0, 0.0), hockey_stick, Side.LOWER, POINTS)
    assert proves(from_doubles(0.0, 1.0, 1.0), hockey_stick, Side.UPPER, POINTS)


def test_the_cells_may_start_above_zero_and_be_none() -> None:
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.7, 0.1)
    identity = from_doubles(0.0, -1e-3, 1.001)  # x - 1e-3 + x / 1000, below F near 0 but not from 1 on
    assert not proves(identity, hockey_stick, Side.UPPER, np.array([0.0, 1.0, 5.0]))
    assert proves(identity, hockey_stick, Side.UPPER, np.array([1.0, 5.0]))
    assert proves(identity, hockey_stick, Side.UPPER, np.array([1.0]))


def test_a_majorant_that_is_tight_by_less_than_any_grid_is_accepted() -> None:
    """(x - 1/2)^2 / 2 touches the hinge (x - 1)_+ at 1/2 and 3/2, between points; a flatter parabola cuts it."""
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.0, 0.0)
    points = np.array([0.0, 0.3, 0.77, 1.1, 1.8, 5.0])
    assert proves(from_doubles(0.5, 1e-12, 0.0, 0.5), hockey_stick, Side.UPPER, points)
    assert not proves(from_doubles(0.5, 1e-12, 0.0, 0.499), hockey_stick, Side.UPPER, points)


# What is rejected


@pytest.mark.parametrize("place", [0.5, 1.5])
def test_a_dip_of_one_in_a_thousand_million_between_points_is_rejected(place: float) -> None:
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.0, 0.0)
    points = np.array([0.0, 0.3, 0.77, 1.1, 1.8, 5.0])
    lowered = (-1e-9, 1e-9) if place == 0.5 else (1e-12, -1e-9)
    proposal = from_doubles(0.5, *lowered, 0.5)
    at_points = in_doubles(proposal, points) - hockey_stick.value(points)
    assert (at_points > 1e-2).all()
    assert in_doubles(proposal, np.array([place]))[0] < hockey_stick.value(np.array([place]))[0] - 9e-10
    assert not proves(proposal, hockey_stick, Side.UPPER, points)
    assert proves(shifted(proposal, 2e-9), hockey_stick, Side.UPPER, points)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("degree", [4, 8])
def test_a_tight_polynomial_shifted_by_a_thousandth_of_delta_is_rejected(
    direction: Direction, side: Side, degree: int
) -> None:
    hockey_stick = SplitHockeyStick(direction, 0.4, 0.05)
    polynomial, repair = fitted(hockey_stick, side, degree), even_powers(degree)
    eta = repair_needed(polynomial, repair, hockey_stick, side, POINTS)
    assert 0.0 < eta < inf
    tight = repaired(polynomial, repair, eta, side)
    assert proves(tight, hockey_stick, side, POINTS)
    moments = log_normal_moments(0.15, degree)
    truth = float(SplitHockeyStick(direction, 0.4, 0.2).value(np.ones(1))[0])
    bound = expectation(tight, moments, side)
    assert bound >= truth if side is Side.UPPER else bound <= truth
    outward = -1e-3 * truth if side is Side.UPPER else 1e-3 * truth
    assert not proves(shifted(tight, outward), hockey_stick, side, POINTS)


@pytest.mark.parametrize("side", SIDES)
def test_the_tail_has_to_be_proved(side: Side) -> None:
    """Fine up to the last point, wrong far beyond it."""
    hockey_stick = SplitHockeyStick(Direction.ADD, 0.5, 0.1)
    sign = 1.0 if side is Side.UPPER else -1.0
    level = 2.0 if side is Side.UPPER else -2.0
    assert proves(from_doubles(0.0, level, 0.0, sign * 1e-9), hockey_stick, side, POINTS)
    assert not proves(from_doubles(0.0, level, 0.0, -sign * 1e-9), hockey_stick, side, POINTS)
    assert proves(from_doubles(0.0, level, 0.0, -sign * 1e-9, sign * 1e-9), hockey_stick, side, POINTS)
    remove = SplitHockeyStick(Direction.REMOVE, 0.5, 0.1)
    assert not proves(from_doubles(0.0, 1.0, 0.999), remove, Side.UPPER, POINTS)
    assert not proves(from_doubles(0.0, -3.0, 1.0, 1e-12), remove, Side.LOWER, POINTS)


# Repair


@pytest.mark.parametrize("side", SIDES)
def test_the_repair_is_hardly_more_than_the_worst_violation(side: Side) -> None:
    """A constant repairs what a shift of 1e-3 did to a polynomial that touches F."""
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.0, 0.0)
    constant = from_doubles(0.5, 1.0)
    points = np.array([0.0, 0.3, 0.77, 1.1, 1.8, 5.0])
    moved = from_doubles(0.5, -1e-3, 0.0, 0.5)
    if side is Side.LOWER:  # the line x - 1, raised
        moved = from_doubles(0.5, -0.5 + 1e-3, 1.0)
    eta = repair_needed(moved, constant, hockey_stick, side, points)
    assert 1e-3 <= eta <= 1.02e-3
    assert proves(repaired(moved, constant, eta, side), hockey_stick, side, points)
    assert not proves(repaired(moved, constant, 0.99 * 1e-3, side), hockey_stick, side, points)


def test_a_repair_that_does_not_help_is_said_so() -> None:
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.0, 0.0)
    moved = from_doubles(0.5, -1e-3, 0.0, 0.5)
    points = np.array([0.0, 0.3, 0.77, 1.1, 1.8, 5.0])
    for useless in (from_doubles(0.5, -1.0), from_doubles(0.5, 0.0), from_doubles(0.5, 0.0, 0.0, 1.0)):
        assert isinf(repair_needed(moved, useless, hockey_stick, Side.UPPER, points))
    assert isinf(repair_needed(from_doubles(0.0, 0.0, 0.5), from_doubles(0.0, 1.0), hockey_stick, Side.UPPER, points))
    assert repair_needed(from_doubles(0.0, 1.0, 1.0), from_doubles(0.0, -1.0), hockey_stick, Side.UPPER, points) == 0.0


@given(
    direction=st.sampled_from(DIRECTIONS),
    side=st.sampled_from(SIDES),
    epsilon=st.floats(0.0, 1.5),
    log_variance=st.floats(-8.0, 0.5),
    noise=st.lists(st.floats(-1.0, 1.0), min_size=5, max_size=9),
    size=st.floats(-9.0, 0.0),
    share=st.sampled_from([0.9, 0.999, 1.0, 1.0, 1.1]),
)
@settings(max_examples=60)
def test_what_is_proved_is_true(
    direction: Direction,
    side: Side,
    epsilon: float,
    log_variance: float,
    noise: list[float],
    size: float,
    share: float,
) -> None:
    """Random polynomials near F, repaired by about what they need: none that passes violates a dense check.

    All that are repaired by enough pass, but where that is a subnormal number, which says its own size badly.
    """
    hockey_stick = SplitHockeyStick(direction, epsilon, exp(log_variance))
    start = squared_majorant(hockey_stick, 0.4) if side is Side.UPPER else tangent(hockey_stick, 1.1)
    noise = noise if len(noise) % 2 else noise[:-1]
    padded = np.pad(start.coefficients.real, (0, len(noise) - 1 - start.degree))
    padded += 10.0**size * np.array(noise) * 0.3 ** np.arange(len(noise))
    rough = from_doubles(0.0, *padded.tolist())
    repair = from_doubles(0.0, *[1.0 if k % 2 == 0 else 0.0 for k in range(len(noise))])
    eta = repair_needed(rough, repair, hockey_stick, side, POINTS)
    assume(eta < inf)
    final = repaired(rough, repair, share * eta, side)
    proved = proves(final, hockey_stick, side, POINTS)
    assert proved or share < 1.0 or 0.0 < eta < np.finfo(float).tiny
    if proved:
        x = np.concatenate([np.linspace(0.0, 8.0, 4001), np.geomspace(8.0, 1e5, 400)])
        assert violation(final, hockey_stick, side, x) <= 0
        assert violation(final, hockey_stick, side, x[:4001]) <= 0


def tangent(hockey_stick: SplitHockeyStick, place: float) -> Polynomial:
    intercept, slope = (float(part[0]) for part in hockey_stick.line_below(np.array([place])))
    return from_doubles(0.0, intercept, slope, 0.0)


def test_repairs_of_other_centres_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="centre"):
        repaired(from_doubles(0.0, 1.0), from_doubles(1.0, 1.0), 0.1, Side.UPPER)


def test_a_repair_of_higher_degree_fits() -> None:
    raised = repaired(from_doubles(2.0, 1.0), from_doubles(2.0, 0.0, 0.0, 4.0), 0.25, Side.LOWER)
    assert raised.degree == 2
    assert raised.coefficients.tolist()[:2] == [1.0, 0.0]
    assert raised.coefficients[2].real == pytest.approx(-1.0, rel=2e-3)
    assert raised.coefficients[2].real < -1.0


# Expectation


@given(
    coefficients=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e-12, 1e-12)), min_size=1, max_size=8),
    centre=st.floats(-30.0, 30.0),
    values=st.lists(st.integers(1, 10**20).map(lambda n: Fraction(n, 3**20)), min_size=8, max_size=8),
    error=st.integers(0, 10**6).map(lambda n: Fraction(n, 10**9)),
)
@settings(max_examples=30)
def test_expectations_are_on_the_side(
    coefficients: list[tuple[float, float]], centre: float, values: list[Fraction], error: Fraction
) -> None:
    """Against the binomial expansion, with moments moved to the worst corner of their errors."""
    polynomial = Polynomial(centre=centre, coefficients=np.array([complex(*c) for c in coefficients]))
    raw = [Fraction(0)] * len(coefficients)
    for k, c in enumerate(coefficients):
        for j in range(k + 1):
            raw[j] += rational(complex(*c)) * comb(k, j) * (-Fraction(centre)) ** (k - j)
    moments = ExactMoments(values=tuple(values), error=error)
    for side, sign in ((Side.UPPER, 1), (Side.LOWER, -1)):
        worst = sum(a * m * (1 + (sign if a > 0 else -sign) * error) for a, m in zip(raw, values, strict=False))
        mean = expectation(polynomial, moments, side)
        assert sign * (Fraction(mean) - worst) >= 0
        assert abs(Fraction(mean) - worst) <= abs(worst) * Fraction(1, 2**52) + Fraction(1, 2**1070)


def test_expectations_out_of_the_range_of_doubles() -> None:
    moments = ExactMoments(values=(Fraction(1), Fraction(10) ** 200, Fraction(10) ** 500), error=Fraction(0))
    rising, falling = from_doubles(0.0, 0.0, 0.0, 1.0), from_doubles(0.0, 0.0, 0.0, -1.0)
    largest = float(np.finfo(np.float64).max)
    assert expectation(rising, moments, Side.UPPER) == inf
    assert expectation(rising, moments, Side.LOWER) == largest
    assert expectation(falling, moments, Side.UPPER) == -largest
    assert expectation(falling, moments, Side.LOWER) == -inf


def test_a_claim_that_the_moments_do_not_support_is_rejected() -> None:
    """A millionth more in one moment, or in the errors of all, and the claimed bound no longer follows."""
    hockey_stick = SplitHockeyStick(Direction.REMOVE, 0.4, 0.05)
    moments = log_normal_moments(0.15, 2)
    for side, polynomial in (
        (Side.UPPER, squared_majorant(hockey_stick, 0.4)),
        (Side.LOWER, tangent(hockey_stick, 1.2)),
    ):
        outward = 1.0 if side is Side.UPPER else -1.0
        polynomial = shifted(polynomial, outward * 1e-9)
        claimed = expectation(polynomial, moments, side)
        assert proves(polynomial, hockey_stick, side, POINTS)
        order = 2 if side is Side.UPPER else 1
        moved = list(moments.values)
        moved[order] *= 1 + Fraction(int(outward), 10**6)
        other = expectation(polynomial, ExactMoments(values=tuple(moved), error=moments.error), side)
        assert outward * (other - claimed) > 0.0
        unsure = expectation(polynomial, ExactMoments(values=moments.values, error=Fraction(1, 10**6)), side)
        assert outward * (unsure - claimed) > 1e-7


@pytest.mark.parametrize(
    "call",
    [
        lambda p, f, m: proves(p, f, Side.UPPER, np.array([])),
        lambda p, f, m: proves(p, f, Side.UPPER, np.array([-1.0, 1.0])),
        lambda p, f, m: proves(p, f, Side.UPPER, np.array([0.0, 1.0, 1.0])),
        lambda p, f, m: proves(p, f, Side.UPPER, np.array([0.0, inf])),
        lambda p, f, m: expectation(from_doubles(0.0, *[1.0] * 4), m, Side.UPPER),
        lambda p, f, m: expectation(Polynomial(centre=0.0, coefficients=np.array([inf + 0j])), m, Side.UPPER),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[Polynomial, SplitHockeyStick, ExactMoments], object]) -> None:
    with pytest.raises(InvalidInputError):
        call(from_doubles(0.0, 1.0, 1.0), SplitHockeyStick(Direction.ADD, 1.0, 0.1), log_normal_moments(0.1, 2))


def test_a_smaller_common_factor_is_another_claim() -> None:
    """F grows with v: a majorant that is tight for one v does not do for a larger one."""
    narrow, wide = SplitHockeyStick(Direction.REMOVE, 0.4, 0.05), SplitHockeyStick(Direction.REMOVE, 0.4, 0.06)
    polynomial, repair = fitted(narrow, Side.UPPER, 8), even_powers(8)
    tight = repaired(polynomial, repair, repair_needed(polynomial, repair, narrow, Side.UPPER, POINTS), Side.UPPER)
    assert proves(tight, narrow, Side.UPPER, POINTS)
    assert not proves(tight, wide, Side.UPPER, POINTS)
