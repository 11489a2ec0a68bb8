"""Hoelder's bound for k-of-t allocation: against enumeration, the blocks and the direct accountant."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hockeystick.accountants import direct, dong_chen_ozgur
from hockeystick.accountants.dong_chen_ozgur import balanced_moments, log_overlap_moment
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side
from hockeystick_papers import renyi

COARSE = Settings(resolution=Resolution(nodes_per_unit=24))


def enumerated_log_moment(sigma: float, bins: int, participations: int, order: int) -> float:
    """log M_a = log E exp(sum_(i<j) |S_i n S_j| / sigma^2) over all a-tuples of k-subsets."""
    subsets = [frozenset(subset) for subset in itertools.combinations(range(bins), participations)]
    total = 0.0
    for rest in itertools.product(subsets, repeat=order - 1):  # the first may be fixed by symmetry
        chosen = (subsets[0], *rest)
        overlap = sum(len(a & b) for a, b in itertools.combinations(chosen, 2))
        total += math.exp(overlap / sigma**2)
    return math.log(total / len(subsets) ** (order - 1))


@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.0])
@pytest.mark.parametrize(
    ("bins", "participations", "order"), [(4, 1, 4), (4, 2, 4), (5, 2, 3), (5, 3, 3), (3, 2, 5), (4, 4, 4), (6, 3, 2)]
)
def test_at_least_the_exact_moment(sigma: float, bins: int, participations: int, order: int) -> None:
    exact = enumerated_log_moment(sigma, bins, participations, order)
    bound = float(balanced_moments(sigma, bins, participations, np.array([float(order)])).values[0])
    assert bound >= exact * (1.0 - 1e-13)
    if order == 2 or participations == bins:
        assert bound == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize(("bins", "participations"), [(10, 1), (10, 4), (10, 7), (10, 10), (1000, 30), (500, 400)])
@pytest.mark.parametrize("rate", [1e-4, 0.5, 5.0])
def test_overlap_moment_against_binomial_coefficients(bins: int, participations: int, rate: float) -> None:
    with mp.workdps(40):
        t, k = bins, participations
        ways = [math.comb(k, h) * math.comb(t - k, k - h) for h in range(max(0, 2 * k - t), k + 1)]
        masses = [mp.mpf(way) / math.comb(t, k) for way in ways]
        exact = mp.log(sum(mass * mp.exp(mp.mpf(rate) * (k - i)) for i, mass in enumerate(reversed(masses))))
        assert exact <= log_overlap_moment(bins, participations, rate) <= exact * (1 + 1e-9)


def test_binomial_bound_is_above_and_close(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = log_overlap_moment(10_000, 100, 0.5)
    monkeypatch.setattr(dong_chen_ozgur, "LARGEST_OVERLAP", 10)
    assert exact <= log_overlap_moment(10_000, 100, 0.5) <= 1.02 * exact


@pytest.mark.parametrize(
    ("sigma", "participations", "peer"),
    [
        (1.0, 1, 1.259932692963897),
        (1.0, 4, 2.2603572748541905),
        (1.0, 16, 5.251488468743304),
        (1.0, 64, 17.674456949),
    ],
)
def test_agrees_with_the_public_implementation(sigma: float, participations: int, peer: float) -> None:
    """random-allocation 0.1.0, RDP_DCO, remove direction, t = 1024, delta = 1e-6, integer orders 2 to 201."""
    pair = AveragedSteps(noise_multiplier=sigma, bins=1024, participations=participations)
    remove = dong_chen_ozgur.ACCOUNTANT.bound(pair, Side.UPPER).profiles[Direction.REMOVE]
    assert remove(peer * (1.0 + 1e-6)) <= 1e-6
    assert remove(peer * 0.98) > 1e-6


def test_the_peers_add_formula_is_below_the_exact_divergence() -> None:
    """random-allocation 0.1.0, RDP_DCO, add direction, at t = 2, k = 1, sigma = 1, order 2: 0.5502.

    The exact value is log E_Q[1/X] = 0.569043 (two-dimensional quadrature), so that formula is not used here.
    """
    peer = 2.0 / 4.0 + 2.0 / 4.0 - math.log(1.0 + 2.0 * math.expm1(0.25))
    exact = float(dong_chen_ozgur.block_add_moments(AveragedSteps(noise_multiplier=1.0, bins=2), COARSE).values[6])
    assert exact == pytest.approx(0.569043, abs=1e-6)
    assert peer < exact


def test_one_of_the_two_methods_for_many_visits_is_not_always_better() -> None:
    def epsilons(pair: AveragedSteps) -> list[float]:
        return [module.ACCOUNTANT.bound(pair, Side.UPPER).epsilon(1e-6) for module in (renyi, dong_chen_ozgur)]

    blocks, whole = epsilons(AveragedSteps(noise_multiplier=1.0, bins=1024, participations=16))
    assert blocks < whole
    blocks, whole = epsilons(AveragedSteps(noise_multiplier=0.5, bins=100, participations=3, epochs=4))
    assert whole < blocks


@settings(derandomize=True, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    sigma=st.floats(0.4, 6.0),
    bins=st.integers(1, 2000),
    share=st.floats(0.0, 1.0),
    epochs=st.integers(1, 10),
    epsilon=st.floats(0.0, 8.0),
)
def test_stays_above_direct_lower(sigma: float, bins: int, share: float, epochs: int, epsilon: float) -> None:
    participations = 1 + int(share**3 * (bins - 1))
    pair = AveragedSteps(noise_multiplier=sigma, bins=bins, participations=participations, epochs=epochs)
    bound = dong_chen_ozgur.ACCOUNTANT.bound(pair, Side.UPPER, COARSE)
    lower = direct.ACCOUNTANT.bound(pair, Side.LOWER, COARSE)
    for direction in Direction:
        assert bound.profiles[direction](epsilon) >= lower.profiles[direction](epsilon)


@pytest.mark.parametrize("participations", [1, 10**3, 10**6, 10**9 - 1, 10**9])
def test_any_size_is_bounded_without_a_loop_over_it(participations: int) -> None:
    pair = AveragedSteps(noise_multiplier=5.0, bins=10**9, participations=participations, epochs=3)
    bound = dong_chen_ozgur.ACCOUNTANT.bound(pair, Side.UPPER, COARSE)
    lower = direct.ACCOUNTANT.bound(pair, Side.LOWER, COARSE)
    for direction in Direction:
        assert bound.profiles[direction](1e-3) >= lower.profiles[direction](1e-3)


def test_overlap_moments_are_never_below_their_value_in_60_digits() -> None:
    """Without the charge for rounding they are, by up to 300 roundings."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        bins = int(rng.integers(2, 400))
        visits, rate = int(rng.integers(1, bins)), float(np.exp(rng.uniform(-8.0, 2.0)))
        with mp.workdps(60):
            overlaps = range(max(0, 2 * visits - bins), visits + 1)
            ways = (mp.binomial(visits, h) * mp.binomial(bins - visits, visits - h) for h in overlaps)
            total = mp.fsum(way * mp.exp(mp.mpf(rate) * h) for way, h in zip(ways, overlaps, strict=True))
            exact = mp.log(total / mp.binomial(bins, visits))
            moment = dong_chen_ozgur.log_overlap_moment(bins, visits, rate)
            assert exact <= moment <= exact * (1 + mp.mpf(10) ** -9)
