"""Random proposals for columns that reach far against sums over all histories: Y is at most M, its mean on its side.

Means are compared within five standard errors of each and what rare large values can add, by the empirical Bernstein
inequality (Maurer and Pontil 2009, Theorem 4): each of two fails by chance with a probability of at most 7.5e-6, all
3,000 with at most .05, and seeds are fixed.
"""

from collections.abc import Iterator
from math import exp

import numpy as np
import pytest
from history_oracle import chances_of, histories, whole_of

from hockeystick.monte_carlo.far.chains import DECAYS
from hockeystick.monte_carlo.far.family import KINDS
from hockeystick.monte_carlo.far.limits import BLOCKS, TAILS, fewest
from hockeystick.monte_carlo.far.linked import trees_of
from hockeystick.monte_carlo.far.proposals import rates
from hockeystick.monte_carlo.far.subjects import columns_for, subject_of, why_not
from hockeystick.monte_carlo.far.tuples import CAPS, ORDERS
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.repeated_columns import RepeatedSubsets, repeated
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side

LAWS = ("coins", "groups", "users", "waits", "visits")
EACH = 10
"""Proposals for a pair."""
SAMPLES, EXACT = 10_000, 20_000
"""For a proposal; and for the truth, with the ratio of each by its sum."""
LARGEST = 30.0
"""M of proposals that are drawn from: so few samples of others show nothing."""


def random_matrix(rng: np.random.Generator, steps: int) -> StrategyMatrix:
    which = rng.integers(3)
    if which == 0:
        return TreeMatrix(int(2 ** rng.integers(4)), steps)
    if which == 1:
        return ToeplitzMatrix((1.0 + np.arange(steps)) ** -rng.uniform(0.0, 1.5), steps)
    return DenseMatrix(np.tril(rng.uniform(0.1, 1.0, (steps, steps))))


def random_pair(law: str, rng: np.random.Generator) -> DominatingPair:
    steps, prob = int(rng.integers(2, 6)), float(rng.uniform(0.05, 0.5))
    if law == "visits":
        bins = int(rng.integers(2, 4))
        steps = bins * int(rng.integers(1, 4))
    matrix = random_matrix(rng, steps)
    sigma = float(np.linalg.norm(matrix.materialize().sum(axis=1)) / steps**0.5 * exp(rng.uniform(-0.5, 1.5)))
    if law == "visits":
        return FreshBins(noise_multiplier=sigma, matrix=matrix, bins=bins)
    if law == "waits":
        return RenewalMixture(
            noise_multiplier=sigma,
            matrix=matrix,
            min_sep=int(rng.integers(1, steps + 2)),
            participation_prob=prob,
            warm_start=bool(rng.integers(2)),
        )
    if law == "users":
        coins = int(rng.integers(2, 4))
        return RepeatedSubsets(noise_multiplier=coins * sigma, matrix=repeated(matrix, coins), sampling_prob=prob)
    groups = 2 if law == "groups" else 1
    return SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob, groups=groups)


def random_proposal(pair: DominatingPair, rng: np.random.Generator) -> Proposal | None:
    """Any one that is proved, or None; parameters are those that a certificate may name."""
    kind = KINDS[rng.integers(len(KINDS))]
    own, block = columns_for(pair, Side.UPPER), int(rng.choice(BLOCKS[:2]))
    tail = float(rng.choice(TAILS[:5]))
    limit = (own.law.bins, 1) if own.law.bins else (block, fewest(own, block, tail))
    values = {
        "order": int(rng.choice(ORDERS[:3])) if "cap" in kind.chosen else int(rng.integers(2, 5)),
        "rate": float(rng.choice(rates(own))),
        "decay": float(rng.choice(DECAYS)),
        "cap": float(rng.choice(CAPS)),
        "beta": float(f"{exp(rng.uniform(-1.0, 2.0)):.2e}"),
        "block": limit[0],
        "limit": limit[1],
    }
    if "cap" in kind.chosen and not subject_of(pair).tuples:
        return None
    if kind.chosen == ("order", "rate", "block", "limit") and trees_of(pair) is None:
        return None
    direction = kind.directions[0]
    proposal = kind(pair=pair, direction=direction, **{name: values[name] for name in kind.chosen})
    return proposal if proposal.proved and proposal.weight_bound(0.0) < LARGEST else None


def truth(pair: DominatingPair, side: Side, epsilon: float, rng: np.random.Generator) -> dict[Direction, np.ndarray]:
    """Values whose means are the two profiles, of columns on this side."""
    own = columns_for(pair, side)
    chosen = histories(own)
    chances = chances_of(own, chosen)
    chosen, chances = chosen[chances > 0.0], chances[chances > 0.0]
    means = chosen @ whole_of(own).T
    noise = rng.standard_normal((EXACT, own.steps))
    with_it = noise + means[rng.choice(chances.size, size=EXACT, p=chances / chances.sum())]

    def log_ratios(y: np.ndarray) -> np.ndarray:
        logs = y @ means.T - 0.5 * np.square(means).sum(axis=1)
        top = logs.max(axis=1)
        return np.asarray(top + np.log(np.exp(logs - top[:, None]) @ chances))

    return {
        Direction.REMOVE: -np.expm1(np.minimum(epsilon - log_ratios(with_it), 0.0)),
        Direction.ADD: -np.expm1(np.minimum(epsilon + log_ratios(noise), 0.0)),
    }


def values_of(proposal: Proposal, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    log_weights, losses = np.empty(SAMPLES), np.empty(SAMPLES)
    proposal.draw(rng, log_weights, losses)
    return -np.exp(log_weights) * np.expm1(np.minimum(epsilon - losses, 0.0))


def proposals(law: str, seed: int) -> Iterator[tuple[Proposal, float, np.ndarray]]:
    """Of one random pair: each with an epsilon, and values whose mean is the profile."""
    rng = np.random.default_rng([seed, LAWS.index(law)])
    pair = random_pair(law, rng)
    while why_not(pair) is not None:
        pair = random_pair(law, rng)
    epsilon, count = float(rng.uniform(0.0, 1.5)), 0
    exact = {side: truth(pair, side, epsilon, rng) for side in Side}
    for _ in range(20 * EACH):
        proposal = random_proposal(pair, rng)
        if proposal is not None:
            yield proposal, epsilon, exact[proposal.sides[0]][proposal.direction]
            count += 1
        if count == EACH:
            return


def room(values: np.ndarray, largest: float) -> float:
    """By the inequality above, with ``log(2 / chance)`` of 12.5."""
    return float(5.0 * values.std() / values.size**0.5 + 7.0 * 12.5 / 3.0 * largest / (values.size - 1))


def check(law: str, seeds: range) -> tuple[int, set[str]]:
    """How many proposals were compared, and of which kinds."""
    count, kinds = 0, set[str]()
    for seed in seeds:
        rng = np.random.default_rng([7, seed, LAWS.index(law)])
        for proposal, epsilon, exact in proposals(law, seed):
            values = values_of(proposal, epsilon, rng)
            what = f"{proposal.name} {proposal.parameters} of {law} {seed} at {epsilon}"
            assert not np.isnan(values).any(), what
            assert values.max() <= proposal.drawn_bound(proposal.sides[0], epsilon) * (1.0 + 1e-9), what
            error = room(values, proposal.drawn_bound(proposal.sides[0], epsilon)) + room(exact, 1.0)
            if proposal.sides == (Side.UPPER,):
                assert values.mean() >= exact.mean() - error, what
            else:
                assert values.mean() <= exact.mean() + error, what
            count, kinds = count + 1, kinds | {proposal.name}
    return count, kinds


@pytest.mark.parametrize("law", LAWS)
def test_random_proposals_stay_on_their_side(law: str) -> None:
    count, kinds = check(law, range(3))
    assert count == 3 * EACH
    assert kinds >= {"far_below", "far_add", "far_counted"}


@pytest.mark.weekly
@pytest.mark.parametrize("law", LAWS)
def test_three_thousand_random_proposals_stay_on_their_side(law: str) -> None:
    count, kinds = check(law, range(3, 63))
    assert count >= 590
    assert kinds >= {"far_below", "far_add", "far_counted"}
    assert ("far_linked" in kinds) == (law in ("waits", "visits"))
    assert ("far_tuples" in kinds) == (law == "waits")
