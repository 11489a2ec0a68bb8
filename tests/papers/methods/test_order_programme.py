"""The programme over all moments: feasible in high precision, optimal against a linear programme, never below a law."""

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import linprog

from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.moments.log_moments import LogMoments, moment_delta, sparse_orders
from hockeystick.types import Side
from hockeystick_papers import order_programme as moment_programme
from hockeystick_papers.order_programme import _candidates, _certified, _hull, _Polynomial, programme_profile
from hockeystick_papers.renyi import averaged_moments, thinned_moments, thinned_real_moments

EPSILONS = [0.0, 1e-3, 0.1, 0.5, 2.0, 6.0]
INTEGERS = np.arange(2.0, 9.0)


def gaussian_moments(sigma: float, orders: np.ndarray) -> LogMoments:
    return LogMoments(orders, 0.5 * orders * (orders - 1.0) / sigma**2)


CASES = {
    "gaussian": gaussian_moments(1.3, INTEGERS),
    "gaussian, much noise": gaussian_moments(30.0, sparse_orders(3000)),
    "gaussian, little noise": gaussian_moments(0.2, sparse_orders(64)),
    "one order": gaussian_moments(0.8, np.array([4.0])),
    "poisson step": thinned_moments(1.0, 0.01, np.arange(2.0, 40.0)),
    "poisson, real orders": thinned_moments(0.7, 0.02, np.arange(2.0, 30.0)).merged(thinned_real_moments(0.7, 0.02)),
    "allocation": averaged_moments(1.0, 100, 32),
    "tiny excess": thinned_moments(5.0, 1e-8, np.arange(2.0, 10.0)),
}


def on_a_grid(moments: LogMoments, epsilon: float) -> float:
    """The dual programme over laws on a grid of atoms, by HiGHS: at most the optimum, and close to it."""
    c = math.exp(epsilon)
    above = c * np.exp(np.geomspace(1e-5, 5.0, 1500))
    x = np.unique(np.concatenate([np.linspace(0.0, 1.0, 400), 1.0 - np.geomspace(1e-9, 1.0, 800), [c, 1.0], above]))
    orders = moments.orders[:, None]
    used = (np.exp(orders * np.log(np.maximum(x, 1e-300))) - 1.0 - orders * (x - 1.0)) / np.expm1(moments.values)[
        :, None
    ]
    x, used = x[used.max(axis=0) < 1e9], used[:, used.max(axis=0) < 1e9]
    solved = linprog(
        -np.maximum(x - c, 0.0),
        A_ub=used,
        b_ub=np.ones(len(used)),
        A_eq=np.vstack([np.ones_like(x), x - 1.0]),
        b_eq=[1.0, 0.0],
        method="highs",
    )
    assert solved.success
    return -float(solved.fun)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.4, 1.5])
@pytest.mark.parametrize(
    "moments",
    [
        gaussian_moments(0.9, INTEGERS),
        gaussian_moments(2.5, np.array([1.25, 1.5, 2.0, 3.0, 5.0])),
        LogMoments(INTEGERS, thinned_moments(1.0, 0.05, INTEGERS).times(20).values),
        LogMoments(INTEGERS, np.array([0.1, 0.9, 1.0, 2.0, 5.0, 5.1, 9.0])),  # not convex, so no law has just these
        gaussian_moments(1.0, np.array([2.0])),
    ],
)
def test_optimal_against_a_linear_programme(moments: LogMoments, epsilon: float) -> None:
    oracle = on_a_grid(moments, epsilon)
    value = programme_profile(moments)(epsilon)
    assert value >= oracle * (1.0 - 1e-7)  # HiGHS' own tolerance
    assert value <= oracle * 1.002  # what the grid loses


def polynomial_value(polynomial: _Polynomial, alpha: float, beta: float, factor: float, x: mp.mpf) -> mp.mpf:
    curve = mp.mpf(0)
    for k, w, _ in polynomial.terms:
        scale = mp.mpf(w) * mp.exp(-(mp.mpf(k) - 1) * mp.mpf(polynomial.upper))
        curve += scale * (x ** mp.mpf(k) - 1 - mp.mpf(k) * (x - 1))
    return mp.mpf(alpha) + mp.mpf(beta) * (x - 1) + mp.mpf(factor) * curve


def smallest_on(function, low: mp.mpf, high: mp.mpf) -> mp.mpf:
    """The minimum of a convex function, by ternary search."""
    for _ in range(220):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if function(a) < function(b) else (a, high)
    return function((low + high) / 2)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", CASES)
def test_certified_polynomials_are_feasible_and_charged_in_full(name: str, epsilon: float) -> None:
    """``f >= 0`` and ``f >= x - c`` at their minima, and the bound is at least E f, with 60 digits."""
    moments = _hull(CASES[name])
    log_excess = moments.values + np.log(-np.expm1(-moments.values))
    used = 0
    with mp.workdps(60):
        c = mp.exp(mp.mpf(epsilon))
        value_of = dict(zip(moments.orders.tolist(), moments.values.tolist(), strict=True))
        for polynomial in _candidates(moments.orders, log_excess, epsilon):
            bound, *parts = _certified(polynomial, epsilon)
            if bound == math.inf:
                continue
            used += 1

            def f(x: mp.mpf, polynomial: _Polynomial = polynomial, parts: list[float] = parts) -> mp.mpf:
                return polynomial_value(polynomial, *parts, x)  # type: ignore[call-arg]

            assert smallest_on(f, mp.mpf(0), c) >= 0
            far = 3 * mp.exp(mp.mpf(polynomial.upper))
            assert smallest_on(lambda x, f=f: f(x) - x + c, c, far) >= 0
            expected = mp.mpf(parts[0])
            for k, w, _ in polynomial.terms:
                excess = mp.expm1(mp.mpf(value_of[k]))
                expected += mp.mpf(parts[2]) * w * mp.exp(-(mp.mpf(k) - 1) * mp.mpf(polynomial.upper)) * excess
            assert bound >= expected
    assert used >= 1 or moment_delta(moments, epsilon) < 1e-250  # nothing to gain: the search is left to underflow


def law_moments(atoms: np.ndarray, masses: np.ndarray, orders: np.ndarray) -> LogMoments:
    excess = [math.fsum(masses * (atoms**k - 1.0 - k * (atoms - 1.0))) for k in orders]
    return LogMoments(orders, np.log1p(np.array(excess)) * (1.0 + 1e-12))


@pytest.mark.parametrize("seed", range(40))
def test_never_below_a_law_and_sharp_for_two_atoms(seed: int) -> None:
    """A law with two atoms is the worst one for its own moments when c lies where two orders pin it down."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 6))
    atoms = np.sort(np.exp(rng.uniform(-3.0, 3.0, count)))
    masses = rng.dirichlet(np.ones(count))
    atoms /= masses @ atoms
    moments = law_moments(atoms, masses, np.array([1.5, 2.0, 2.5, 3.0, 5.0]))
    for epsilon in np.linspace(0.0, math.log(atoms[-1]), 7)[:-1]:
        truth = float(masses @ np.maximum(atoms - math.exp(epsilon), 0.0))
        assert programme_profile(moments)(float(epsilon)) >= truth
    if count == 2:
        # c at which the tangents of x^2 at the two atoms meet: order 2 alone is tight there
        middle = math.log(0.5 * (atoms[0] + atoms[1]))
        if middle >= 0.0:
            truth = float(masses[1] * (atoms[1] - math.exp(middle)))
            assert programme_profile(moments)(middle) <= truth * (1.0 + 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_never_above_one_order_and_does_not_increase(name: str) -> None:
    values = []
    for epsilon in np.linspace(0.0, 8.0, 25):
        values.append(programme_profile(CASES[name])(float(epsilon)))
        assert 0.0 < values[-1] <= moment_delta(CASES[name], float(epsilon))
    assert all(b <= a * (1.0 + 1e-6) for a, b in pairwise(values))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("epsilon", [*EPSILONS, 30.0, 299.0, 301.0, 700.0])
def test_at_least_the_exact_gaussian_profile(sigma: float, epsilon: float) -> None:
    bound = programme_profile(gaussian_moments(sigma, sparse_orders(2048)))(epsilon)
    assert bound >= gaussian_delta(sigma, 1.0, epsilon, Side.LOWER)


def test_gains_where_amplification_is_strong() -> None:
    """One Poisson step at q = 0.01: Markov pays for ``M_k`` near 1, the programme for ``M_k - 1``."""
    moments = CASES["poisson step"]
    assert programme_profile(moments)(0.5) < 0.05 * moment_delta(moments, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_search_costs_tightness_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the search returns, the certificate repairs or rejects it."""
    rng = np.random.default_rng(seed)
    moments, epsilon = CASES["gaussian"], float(rng.uniform(0.0, 2.0))
    best = programme_profile(moments)(epsilon)
    junk = (-float(rng.uniform(3.0, 12.0)), float(rng.uniform(1e-3, 0.9)), *(int(i) for i in rng.integers(0, 7, 2)))
    monkeypatch.setattr(moment_programme, "_worst_law", lambda *_: junk)
    assert best * (1.0 - 1e-6) <= programme_profile(moments)(epsilon) <= moment_delta(moments, epsilon)


def test_a_polynomial_that_is_never_steep_is_rejected() -> None:
    flat = _Polynomial(-0.1, 1.0, ((2.0, 1e-3, 0.0),))
    assert _certified(flat, 0.5).bound == math.inf


@pytest.mark.parametrize("values", [[], [np.inf, np.inf], [np.inf, 1.0]])
def test_infinite_moments_are_left_out(values: list[float]) -> None:
    moments = LogMoments(np.arange(2.0, 2.0 + len(values)), np.array(values))
    bound = programme_profile(moments)(1.0)
    assert 0.0 < bound <= 1.0
    assert bound == moment_delta(moments, 1.0) or bound < 1.0


def test_orders_above_a_chord_are_left_out() -> None:
    moments = LogMoments(np.array([1.5, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 4.0, 6.0]))
    hull = _hull(moments)
    assert hull.orders.tolist() == [2.0, 4.0]
    assert hull.values.tolist() == [1.0, 6.0]
    assert moment_delta(hull, 1.0) <= moment_delta(moments, 1.0)
