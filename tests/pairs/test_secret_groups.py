"""Cyclic Poisson sampling with secret groups: no lower bound assumes that they are known."""

from itertools import product
from math import exp, inf

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants.registry import every_accountant
from hockeystick.bounds import Bound
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.secret_groups import SecretGroups
from hockeystick.settings import Settings
from hockeystick.strategies import Strategy
from hockeystick.types import Direction, Kind, Side

WORK = Settings(resolution=Resolution(32, 1e-8), effort=0.5)


def pair_of(strategy: Strategy, sampler: object, sigma: float = 1.0) -> DominatingPair:
    return dominating_pair(hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma))


def secret(groups: int, sampling_prob: float, steps: int) -> hs.CyclicPoisson:
    return hs.CyclicPoisson(groups=groups, sampling_prob=sampling_prob, steps=steps, partition="independent")


def bounds(pair: DominatingPair, side: Side) -> list[Bound]:
    """All deterministic bounds of a side."""
    return [
        method.bound(pair, side, WORK)
        for method in every_accountant().values()
        if method.kind is Kind.DETERMINISTIC and method.why_not(pair, side) is None
    ]


def test_groups_without_subsampling_are_balls_in_bins() -> None:
    """The same batches, so no lower bound may pass an upper bound of theirs: known groups would have epsilon 4.377."""
    ours = pair_of(hs.Identity(), secret(100, 1.0, 100))
    theirs = pair_of(hs.Identity(), hs.BallsInBins(bins=100))
    smallest = min(bound.epsilon(1e-5) for bound in bounds(theirs, Side.UPPER))
    assert smallest < 0.63
    assert 0.6 < max(bound.epsilon(1e-5) for bound in bounds(ours, Side.LOWER)) <= smallest
    assert min(bound.epsilon(1e-5) for bound in bounds(ours, Side.UPPER)) == smallest


def test_replayed_groups_have_the_pair_of_balls_in_bins() -> None:
    groups, bins = secret(6, 1.0, 18), hs.BallsInBins(bins=6, epochs=3)
    assert pair_of(hs.Identity(), groups) == pair_of(hs.Identity(), bins)
    ours, theirs = (pair_of(hs.BandedSquareRoot(bands=4), sampler) for sampler in (groups, bins))
    assert isinstance(ours, BinMixture)
    assert isinstance(theirs, BinMixture)
    assert np.array_equal(ours.gram, theirs.gram)
    assert ours.noise_multiplier == theirs.noise_multiplier


@pytest.mark.parametrize("bands", [2, 8])
def test_correlated_noise_has_no_lower_bound(bands: int) -> None:
    """Bands within and beyond a round: with public groups both sides are bounded."""
    strategy = hs.BandedSquareRoot(bands=bands)
    hidden = pair_of(strategy, secret(4, 0.3, 16), 2.0)
    public = pair_of(strategy, hs.CyclicPoisson(groups=4, sampling_prob=0.3, steps=16), 2.0)
    assert [method.name for method in every_accountant().values() if method.why_not(hidden, Side.LOWER) is None] == []
    assert {method.name for method in every_accountant().values() if method.why_not(public, Side.LOWER) is None} >= {
        "linear_statistic"
    }
    above = [[bound.delta(1.0) for bound in bounds(pair, Side.UPPER)] for pair in (hidden, public)]
    assert above[0] == above[1]
    uneven = pair_of(strategy, secret(4, 1.0, 15), 2.0)  # nor without subsampling, where public batches have one
    assert not bounds(uneven, Side.LOWER)
    assert bounds(uneven, Side.UPPER)


def truth(groups: int, prob: float, steps: int, sigma: float, epsilon: float, points: int) -> dict[Direction, float]:
    """Both divergences of the mixture over groups and subsets, by the midpoint rule in ``steps`` dimensions."""
    axis = np.linspace(-7.0, 8.0 + 1.0 / sigma, points)
    grid = np.stack([coordinate.ravel() for coordinate in np.meshgrid(*[axis] * steps, indexing="ij")])
    without = np.exp(-0.5 * np.sum(grid**2, axis=0)) * ((axis[1] - axis[0]) / np.sqrt(2.0 * np.pi)) ** steps
    factors = np.exp(grid / sigma - 0.5 / sigma**2)
    ratio = np.zeros(grid.shape[1])
    for group in range(groups):
        own = np.arange(group, steps, groups)
        for taken in product((False, True), repeat=own.size):
            weight = np.prod(np.where(taken, prob, 1.0 - prob)) / groups
            ratio += weight * np.prod(factors[own[list(taken)]], axis=0)
    level = exp(epsilon)
    return {
        Direction.REMOVE: float(without @ np.maximum(ratio - level, 0.0)),
        Direction.ADD: float(without @ np.maximum(1.0 - level * ratio, 0.0)),
    }


@pytest.mark.parametrize(("groups", "prob", "steps"), [(2, 0.4, 3), (2, 0.7, 2), (4, 0.6, 3), (2, 1.0, 3)])
def test_without_correlation_both_sides_are_about_secret_groups(groups: int, prob: float, steps: int) -> None:
    """The grid of the truth is 0.1 wide: halving it in two dimensions moves nothing by more than 1e-3 (checked)."""
    sigma = 1.0
    pair = pair_of(hs.Identity(), secret(groups, prob, steps), sigma)
    assert isinstance(pair, SecretGroups)
    lower = {bound.method: bound for bound in bounds(pair, Side.LOWER)}
    upper = {bound.method: bound for bound in bounds(pair, Side.UPPER)}
    assert set(lower) == {"direct"}
    assert set(upper) == {"direct", "gaussian"}
    known = pair_of(hs.Identity(), hs.CyclicPoisson(groups=groups, sampling_prob=prob, steps=steps), sigma)
    for epsilon in (0.0, 0.2, 0.5):
        exact = truth(groups, prob, steps, sigma, epsilon, 150)
        for direction in Direction:
            low, high = (by_method["direct"].profiles[direction](epsilon) for by_method in (lower, upper))
            assert low <= exact[direction] * 1.002 + 1e-5
            assert high >= exact[direction] * 0.998 - 1e-5
            assert high <= 1.02 * low + 1e-6
            for bound in bounds(known, Side.LOWER):  # what was reported before is above the truth
                assert bound.profiles[direction](epsilon) > 1.05 * exact[direction]


def test_the_oracle_has_converged() -> None:
    for epsilon in (0.0, 0.5):
        rough, fine = (truth(2, 0.7, 2, 1.0, epsilon, points) for points in (150, 600))
        for direction in Direction:
            assert rough[direction] == pytest.approx(fine[direction], rel=1e-3)


def test_what_the_run_has_to_keep_secret_is_said() -> None:
    assert "keep the groups secret" in secret(4, 0.5, 8).requirement
    assert "public" not in secret(4, 0.5, 8).requirement
    assert "may be public" in hs.CyclicPoisson(groups=4, sampling_prob=0.5, steps=8).requirement


def test_a_single_group_hides_nothing() -> None:
    assert isinstance(pair_of(hs.Identity(), secret(1, 0.5, 8)), IndependentSteps)
    correlated = pair_of(hs.BandedSquareRoot(bands=2), secret(1, 0.5, 8))
    assert max(bound.epsilon(1e-3) for bound in bounds(correlated, Side.LOWER)) > 0.0
    assert min(bound.epsilon(1e-3) for bound in bounds(correlated, Side.UPPER)) < inf
