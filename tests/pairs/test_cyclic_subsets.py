"""The pair of cyclic Poisson sampling: which one belongs to which run, and its sensitivity."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.samplers import CyclicPoisson
from hockeystick.strategies import Strategy
from hockeystick.strategies.matrix.base import BLOCK
from hockeystick.strategies.matrix.dense import DenseMatrix


def run(strategy: Strategy, groups: int, steps: int, sampling_prob: float = 0.3) -> Mechanism:
    sampler = CyclicPoisson(groups=groups, sampling_prob=sampling_prob, steps=steps)
    return Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=2.0)


@pytest.mark.parametrize(("groups", "steps", "opportunities"), [(3, 9, 3), (3, 10, 4), (8, 5, 1), (1, 7, 7)])
def test_without_correlation_the_first_group_is_counted(groups: int, steps: int, opportunities: int) -> None:
    pair = dominating_pair(run(hs.Identity(), groups, steps))
    assert pair == IndependentSteps(noise_multiplier=2.0, sampling_prob=0.3, steps=opportunities)


def test_one_group_is_poisson_sampling() -> None:
    pair = dominating_pair(run(hs.BandedSquareRoot(bands=3), 1, 8))
    assert isinstance(pair, SubsetMixture)
    assert pair.groups == 1
    assert (pair.sampling_prob, pair.noise_multiplier, pair.matrix.steps, pair.slack) == (0.3, 2.0, 8, 0.0)


@pytest.mark.parametrize(("groups", "steps"), [(2, 8), (3, 8), (5, 8), (4, 6), (9, 8)])
@pytest.mark.parametrize(
    "strategy", [hs.BandedSquareRoot(bands=3), hs.SquareRoot(), hs.BinaryTree(), hs.ColumnNormalizedBanded(bands=2)]
)
def test_sensitivity_is_that_of_the_worst_group(strategy: Strategy, groups: int, steps: int) -> None:
    pair = dominating_pair(run(strategy, groups, steps))
    assert isinstance(pair, SubsetMixture)
    dense = pair.matrix.materialize()
    of_groups = [float(np.linalg.norm(dense[:, group::groups].sum(axis=1))) for group in range(min(groups, steps))]
    assert pair.full_sensitivity == pytest.approx(max(of_groups), rel=1e-12)
    assert pair.groups_in_play == len(of_groups)
    for group in range(pair.groups_in_play):
        assert pair.group_steps(group).tolist() == [t for t in range(steps) if t % groups == group]
    assert not pair.batches_are_public


def test_sensitivity_with_more_groups_than_are_worked_on_at_a_time() -> None:
    groups, steps = BLOCK + 5, 2 * BLOCK + 30
    entries = np.tril(np.random.default_rng(2).random((steps, steps))) + np.eye(steps)
    pair = SubsetMixture(noise_multiplier=1.0, matrix=DenseMatrix(entries), groups=groups, sampling_prob=0.1)
    worst = max(float(np.linalg.norm(entries[:, group::groups].sum(axis=1))) for group in range(groups))
    assert pair.full_sensitivity == pytest.approx(worst, rel=1e-12)


def test_with_probability_one_the_batches_are_public() -> None:
    pair = dominating_pair(run(hs.BandedSquareRoot(bands=3), 4, 8, sampling_prob=1.0))
    assert pair.batches_are_public
