"""The geometric mean's bound of the add direction: exact for one bin, above the truth for more, rounded up."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants import direct
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.moments.geometric_mean import _variance_and_drift, geometric_mean_profile
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

EPSILONS = [0.0, 1e-6, 0.03, 0.3, 1.0, 4.0, 12.0, 60.0, 700.0]


def mixture(coefficients: list[float], steps: int, bins: int, sigma: float) -> BinMixture:
    return BinMixture(noise_multiplier=sigma, matrix=ToeplitzMatrix(np.array(coefficients), steps), bins=bins)


def profile_of(pair: BinMixture) -> Profile:
    return geometric_mean_profile(pair.gram, pair.rounding, pair.noise_multiplier)


def variance_and_drift(pair: BinMixture) -> tuple[float, float]:
    return _variance_and_drift(pair.gram, pair.rounding, pair.noise_multiplier)


def high_precision(pair: BinMixture, epsilon: float, digits: int = 60) -> mp.mpf:
    """``Phi(a) - e^(eps - m + v/2) Phi(a - sqrt v)``, ``a = (m - eps) / sqrt v``, from the matrix's own entries."""
    with mp.workdps(digits):
        entries = [[mp.mpf(x) for x in row] for row in pair.matrix.materialize()]
        means = [[mp.fsum(row[i :: pair.bins]) for row in entries] for i in range(pair.bins)]
        variance = mp.mpf(pair.noise_multiplier) ** 2
        m = mp.fsum(x * x for mean in means for x in mean) / (2 * pair.bins * variance)
        v = mp.fsum(mp.fsum(x) ** 2 for x in zip(*means, strict=True)) / (pair.bins**2 * variance)
        a = (m - mp.mpf(epsilon)) / mp.sqrt(v)
        return mp.ncdf(a) - mp.exp(mp.mpf(epsilon) - m + v / 2) * mp.ncdf(a - mp.sqrt(v))


@pytest.mark.parametrize("sigma", [0.4, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_bin_is_the_gaussian(sigma: float, epsilon: float) -> None:
    pair = mixture([1.0, 0.5], 3, 1, sigma)
    exact = gaussian_delta(sigma, pair.full_sensitivity, epsilon, hs.Side.LOWER)
    value = profile_of(pair)(epsilon)
    assert value >= exact
    squared = 1.0 + (epsilon * sigma / pair.full_sensitivity) ** 2  # how much the tail magnifies a relative error
    assert value <= max(exact * (1.0 + 1e-9 * squared), 1e-300)


@pytest.mark.parametrize(
    "pair",
    [
        mixture([1.0, 0.5, 0.375], 6, 3, 0.5),
        mixture([1.0, 0.5, 0.375], 12, 4, 2.0),
        mixture([1.0], 5, 5, 0.3),
        mixture([1.0], 8, 4, 30.0),
        mixture([1.0, 1.0, 1.0, 1.0], 4, 2, 1.0),
        mixture([1.0, 1e-9], 2, 2, 1e-2),
    ],
)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_closed_form_in_high_precision_is_never_above(pair: BinMixture, epsilon: float) -> None:
    """The precision outlasts the difference's cancellation: 700 digits where the terms are e^(-700) and less."""
    exact = high_precision(pair, epsilon, digits=60 if epsilon < 20.0 else 700)
    value = profile_of(pair)(epsilon)
    assert value >= exact
    assert value <= 1.0
    if exact > 1e-290:
        variance, drift = variance_and_drift(pair)
        squared = 1.0 + (epsilon - drift) ** 2 / variance  # how much the tail magnifies a relative error
        assert value <= exact * (1.0 + 1e-9 * squared)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 2.0])
def test_above_the_true_profile_of_the_identity(sigma: float, epsilon: float) -> None:
    """C = I is random allocation, whose lower bound is computed by other means."""
    pair = mixture([1.0], 6, 6, sigma)
    allocation = AveragedSteps(noise_multiplier=sigma, bins=6)
    lower = direct.ACCOUNTANT.bound(allocation, hs.Side.LOWER).profiles[hs.Direction.ADD](epsilon)
    assert profile_of(pair)(epsilon) >= lower
    if sigma == 4.0:  # the bins do amplify
        assert profile_of(pair)(epsilon) < 0.6 * gaussian_delta(sigma, 1.0, epsilon, hs.Side.LOWER)


def test_drift_and_variance_are_rounded_up() -> None:
    class Rounded(ToeplitzMatrix):
        """Entries within one percent."""

        @property
        def rounding(self) -> float:
            return 0.0025

    exact = mixture([1.0, 0.5], 4, 2, 1.0)
    matrix: StrategyMatrix = Rounded(np.array([1.0, 0.5]), 4)
    loose = BinMixture(noise_multiplier=1.0, matrix=matrix, bins=2)
    # by hand: G = [[2.5, 1.5], [1.5, 2.25]], m = 4.75 / 4, v = 7.75 / 4
    m, v = 4.75 / 4.0, 7.75 / 4.0
    variance, drift = variance_and_drift(exact)
    assert v <= variance <= v * (1.0 + 1e-12)
    assert m - v / 2.0 <= drift <= (m - v / 2.0) * (1.0 + 1e-11)
    variance, drift = variance_and_drift(loose)
    assert variance >= 1.01 * v
    assert drift >= 1.01 * m - 0.99 * v / 2.0
    for epsilon in [0.0, 0.2, 1.0, 5.0]:
        assert profile_of(loose)(epsilon) > profile_of(exact)(epsilon)


def test_does_not_increase_with_epsilon() -> None:
    profile = profile_of(mixture([1.0, 0.5, 0.375], 6, 3, 0.5))
    values = [profile(epsilon) for epsilon in np.linspace(0.0, 50.0, 500)]
    assert all(a >= b for a, b in pairwise(values))
    assert values[0] < 1.0
