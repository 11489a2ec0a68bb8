"""Truncated b-min-sep subsampling whose batches are hardly ever cut: proposals of the run without a cap, and cuts."""

import pickle
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from history_oracle import assert_same

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.monte_carlo.proposals import Naive, Proposal
from hockeystick.monte_carlo.renewal import family as renewal
from hockeystick.monte_carlo.renewal.truncated import FAMILY, Covered, NaiveTruncated
from hockeystick.monte_carlo.runs import fingerprint
from hockeystick.monte_carlo.weighing import OTHER_SHARE
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.truncated_renewal import TruncatedRenewal, cuts
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side


def pair(cap: int, bands: int = 3, num_examples: int = 1000, sigma: float = 1.5) -> TruncatedRenewal:
    return TruncatedRenewal(
        noise_multiplier=sigma,
        matrix=ToeplitzMatrix(0.5 ** np.arange(float(bands)), 30),
        min_sep=4,
        participation_prob=0.05,
        warm_start=True,
        truncated_batch_size=cap,
        num_examples=num_examples,
    )


RARELY, OFTEN = 150, 60
"""Caps on batches of some 43 examples."""


def values(proposal: Proposal, epsilon: float, samples: int, seed: int) -> np.ndarray:
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.default_rng(seed), log_weights, losses)
    return -np.exp(log_weights) * np.expm1(np.minimum(epsilon - losses, 0.0))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("cap", [OFTEN, 70])
def test_the_mean_is_that_without_a_cap_and_what_cuts_add(cap: int, direction: Direction) -> None:
    """Within 6.2 standard errors of both means, at a cap that cuts often enough to be seen."""
    cut_pair, epsilon, samples = pair(cap), 0.3, 200_000
    chance, expected = cuts(cut_pair)
    added = 2.0 * chance if direction is Direction.REMOVE else chance + expected
    assert 1e-6 < added < 1.0
    inner = renewal.propose(cut_pair.without_cuts, direction, epsilon)[0]
    whole = Covered(direction=direction, pair=cut_pair, inner=inner)
    assert whole.added == added
    with_cuts, without = values(whole, epsilon, samples, 1), values(inner, epsilon, samples, 2)
    assert with_cuts.max() <= whole.weight_bound(epsilon)
    error = 6.2 * sqrt((with_cuts.var() + without.var()) / samples)
    assert abs(with_cuts.mean() - without.mean() - added) <= error


def test_the_samples_that_stand_for_cuts_count_at_every_epsilon() -> None:
    cut_pair = pair(OFTEN)
    whole = Covered(
        direction=Direction.REMOVE,
        pair=cut_pair,
        inner=renewal.propose(cut_pair.without_cuts, Direction.REMOVE, 1.0)[0],
    )
    log_weights, losses = np.empty(100_000), np.empty(100_000)
    whole.draw(np.random.default_rng(3), log_weights, losses)
    rest = losses == ENDLESS
    assert abs(rest.mean() - OTHER_SHARE) <= 6.2 * sqrt(OTHER_SHARE / losses.size)
    np.testing.assert_allclose(np.exp(log_weights[rest]) * OTHER_SHARE, whole.added, rtol=1e-12)


def test_importance_proposals_are_for_rare_cuts() -> None:
    """The naive one comes last where it runs; where columns reach beyond the separation it does not."""
    names = [proposal.evidence_name for proposal in FAMILY.propose(pair(RARELY), Direction.REMOVE, 1.0)]
    assert len(names) > 1
    assert names[-1] == "naive"
    assert [proposal.evidence_name for proposal in FAMILY.propose(pair(OFTEN), Direction.REMOVE, 1.0)] == ["naive"]
    wide = FAMILY.propose(pair(RARELY, bands=8), Direction.REMOVE, 1.0)
    assert wide
    assert not any(isinstance(proposal, Naive) for proposal in wide)
    assert all(proposal.sides == (Side.UPPER,) for proposal in wide)
    assert FAMILY.refusal(pair(RARELY, bands=8), Side.UPPER) is None
    assert "hardly ever cut" in (FAMILY.refusal(pair(OFTEN, bands=8), Side.UPPER) or "")


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("bands", [3, 8])
def test_they_are_built_again_from_their_parameters(bands: int, direction: Direction) -> None:
    cut_pair = pair(RARELY, bands=bands)
    for proposal in FAMILY.propose(cut_pair, direction, 1.0):
        if isinstance(proposal, Covered):
            again = FAMILY.build(cut_pair, direction, proposal.evidence_name, proposal.parameters)
            for copy in (again, pickle.loads(pickle.dumps(proposal))):
                assert_same(proposal, copy)


def test_cuts_that_cost_everything_are_not_proved() -> None:
    certain = pair(OFTEN)
    inner = renewal.propose(certain.without_cuts, Direction.ADD, 1.0)[0]
    always = TruncatedRenewal(
        noise_multiplier=1.0,
        matrix=certain.matrix,
        min_sep=4,
        participation_prob=1.0,
        warm_start=False,
        truncated_batch_size=3,
        num_examples=10,
    )
    assert Covered(direction=Direction.ADD, pair=certain, inner=inner).proved
    assert not Covered(direction=Direction.ADD, pair=always, inner=inner).proved


def test_a_delta_below_what_counting_reaches_is_certified_and_verified() -> None:
    """delta = 1e-10: counting outputs would take some 1e12 of them."""
    sampler = hs.BMinSep(min_sep=4, sampling_prob=0.04, steps=32, truncated_batch_size=250, num_examples=2000)
    run = hs.Mechanism(strategy=hs.BinaryTree(), sampler=sampler, noise_multiplier=10.0)
    plain = hs.certify(run, delta=1e-10)
    options = hs.MonteCarlo(seed=1, failure_probability=1e-6, ratio=1.0)
    certificate = hs.certify(run, delta=1e-10, method="monte_carlo", monte_carlo=options)
    assert certificate.bounds.upper < 0.95 * plain.bounds.upper
    assert certificate.bounds.lower is None
    hs.verify(certificate)


def test_samples_of_other_matrices_and_caps_are_not_shared() -> None:
    """Trees of the same steps too, whose rows are more than these."""
    matrices = [TreeMatrix(32, 30), TreeMatrix(16, 30), ToeplitzMatrix(0.5 ** np.arange(3.0), 30)]
    pairs = [replace(pair(cap), matrix=matrix) for cap in (RARELY, OFTEN) for matrix in matrices]
    assert len({fingerprint(FAMILY, cut_pair) for cut_pair in pairs}) == len(pairs)


@pytest.mark.parametrize("matrix", [TreeMatrix(32, 30), ToeplitzMatrix(0.5 ** np.arange(8.0), 30)])
def test_nothing_else_is_built_where_columns_reach_beyond_the_separation(matrix: StrategyMatrix) -> None:
    """The naive recursion is for shorter columns, and a proposal for lower bounds has a mean below the profile."""
    cut_pair = replace(pair(RARELY), matrix=matrix)
    below = renewal.propose(cut_pair.without_cuts, Direction.REMOVE, 0.5)[0]
    assert below.sides == (Side.LOWER,)
    assert not NaiveTruncated(direction=Direction.REMOVE, pair=cut_pair).proved
    for name, parameters in (("naive", {}), (below.name, below.parameters)):
        with pytest.raises(InvalidInputError):
            FAMILY.build(cut_pair, Direction.REMOVE, name, parameters)


def test_without_any_upper_proposal_other_methods_are_left() -> None:
    """A tree at low noise, where no tuple or chain has a finite M."""
    sampler = hs.BMinSep(min_sep=4, sampling_prob=0.02, steps=40, truncated_batch_size=100, num_examples=1000)
    run = hs.Mechanism(strategy=hs.BinaryTree(), sampler=sampler, noise_multiplier=0.2)
    with pytest.raises(UnsupportedError, match="No samples of the run without a cap"):
        FAMILY.propose(dominating_pair(run), Direction.REMOVE, 1.0)
    settings = hs.Settings(monte_carlo=hs.MonteCarlo(seed=1), question=hs.Question(delta=1e-5))
    with pytest.raises(UnsupportedError, match="No samples of the run without a cap"):
        hs.bound(run, "monte_carlo", side=Side.UPPER, settings=settings)
