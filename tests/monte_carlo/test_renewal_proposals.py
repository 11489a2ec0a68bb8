"""Proposals of b-min-sep against the enumeration of all tuples of participations, and against numerical integration."""

import pickle
from collections import defaultdict
from functools import cache
from math import exp, inf, log, log1p, sqrt

import numpy as np
import pytest
from renewal_oracle import participations
from renewal_proposal_laws import (
    Maker,
    copies_law,
    copies_proposal,
    exact_law,
    lattice,
    log_densities,
    log_ratio_of,
    order_proposal,
    pair_of,
    proposal_law,
    relaxed_law,
    renewal_of,
)
from scipy.special import logsumexp

from hockeystick.errors import InvalidInputError
from hockeystick.moments.copies.renewal import Table, state_count, weigh_moves
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.renewal.family import FAMILY
from hockeystick.monte_carlo.renewal.means import MeanProposal, ThinnedProposal
from hockeystick.monte_carlo.renewal.proposals import (
    CopiesProposal,
    OrderProposal,
    propose,
)
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction

SCORE = 6.5  # standard errors that a mean may be off; a correct sampler fails a test with probability below 1e-9


CASES = [
    # steps, bands, min_sep, prob, warm, sigma, seed
    (5, 2, 3, 0.3, False, 1.1, 1),
    (5, 2, 3, 0.3, True, 1.1, 2),
    (4, 1, 2, 0.2, True, 0.9, 3),
    (4, 3, 4, 0.45, True, 1.4, 4),
    (3, 2, 4, 0.6, True, 1.2, 5),
    (3, 1, 1, 0.25, False, 0.8, 6),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [2, 3])
def test_the_moments_are_those_of_all_tuples(case: tuple, order: int) -> None:
    pair = pair_of(*case)
    for separation in range(pair.columns.shape[1], pair.min_sep + 1):
        table = Table.of(renewal_of(pair), order, separation)
        _, total = copies_law(pair, order, separation)
        assert table.log_moment == pytest.approx(log(total), abs=1e-10)
        assert 0.0 < table.error < 1e-10


@pytest.mark.parametrize("case", CASES)
def test_with_all_of_its_separation_the_relaxed_ratio_is_the_ratio(case: tuple) -> None:
    pair = pair_of(*case)
    outputs = np.random.default_rng(7).normal(scale=2.0, size=(50, pair.matrix.steps))
    exact = log_ratio_of(pair, outputs, exact_law(pair))
    np.testing.assert_allclose(log_ratio_of(pair, outputs, relaxed_law(pair, pair.min_sep)), exact, atol=1e-12)
    for separation in range(1, pair.min_sep):
        assert np.all(log_ratio_of(pair, outputs, relaxed_law(pair, separation)) >= exact - 1e-12)


@pytest.mark.parametrize("case", CASES[:5])
@pytest.mark.parametrize("order", [2, 3])
def test_the_chain_of_copies_has_the_law_of_the_tuples(case: tuple, order: int) -> None:
    """Products of the transition probabilities that the sampler uses, over all of its paths."""
    pair = pair_of(*case)
    for separation in {pair.columns.shape[1], pair.min_sep}:
        table = Table.of(renewal_of(pair), order, separation)
        (weights, vectors), _ = copies_law(pair, order, separation)
        expected = {tuple(vector): weight for vector, weight in zip(vectors, weights, strict=True)}
        law: dict[tuple[float, ...], float] = defaultdict(float)
        for start, step, state in zip(np.exp(table.log_starts), table.first_steps, table.first_states, strict=True):
            _walk(table, int(step), int(state), float(start), (0.0,) * int(step), law)
        assert set(law) == set(expected)
        for vector, weight in expected.items():
            assert law[vector] == pytest.approx(weight, rel=1e-10)


def _walk(table: Table, step: int, state: int, weight: float, past: tuple[float, ...], law: dict) -> None:
    steps = table.values.shape[0]
    if step >= steps:
        law[past[:steps]] += weight
        return
    terms = np.empty(table.copies.jumps.shape[1])
    most = weigh_moves(terms, step, state, table.values, table.log_skip, table.log_takes, table.lagged, table.copies)
    for taken in range(most + 1):
        chance = exp(terms[taken] - table.values[step, state])
        jump, target = int(table.copies.jumps[state, taken]), int(table.copies.targets[state, taken])
        _walk(table, step + jump, target, weight * chance, (*past, float(taken), *[0.0] * (jump - 1)), law)


@pytest.mark.parametrize("case", CASES)
def test_survival_is_the_chance_that_available_copies_do_nothing(case: tuple) -> None:
    pair = pair_of(*case)
    table = Table.of(renewal_of(pair), 2, pair.min_sep)
    for step in range(pair.matrix.steps):
        later = table.values[step + 1, 0] if step + 1 < pair.matrix.steps else 0.0
        stay = 2 * table.log_skip + later - table.values[step, 0]
        assert table.survival[step + 1] - table.survival[step] == pytest.approx(stay, abs=1e-12)
        assert stay < 0.0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(("make", "share"), [(order_proposal, 0.4), (order_proposal, 1.0), (copies_proposal, 0.4)])
def test_densities_are_those_of_the_enumerated_mixtures(case: tuple, order: int, make: Maker, share: float) -> None:
    pair = pair_of(*case)
    outputs = np.random.default_rng(8).normal(scale=2.0, size=(40, pair.matrix.steps))
    exact = log_ratio_of(pair, outputs, exact_law(pair))
    for separation in {pair.columns.shape[1], pair.min_sep}:
        proposal = make(pair, order, separation, share)
        log_x, log_proposal = log_densities(proposal, outputs)
        np.testing.assert_allclose(log_x, exact, atol=1e-10)
        np.testing.assert_allclose(log_proposal, log_ratio_of(pair, outputs, proposal_law(proposal)), atol=1e-10)
        harsh = log_densities(proposal, outputs, in_logs=True)
        np.testing.assert_allclose(harsh, (log_x, log_proposal), atol=1e-11)


@pytest.mark.parametrize("seed", range(60))
def test_chains_of_many_copies_for_random_pairs(seed: int) -> None:
    """The density that weighs samples is that of the enumerated draws, and no value is above M, near or far."""
    rng = np.random.default_rng([71, seed])
    steps, min_sep = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    bands = int(rng.integers(1, min(steps, min_sep) + 1))
    pair = pair_of(steps, bands, min_sep, rng.uniform(0.02, 0.7), bool(seed % 2), rng.uniform(0.5, 3.0), seed)
    proposal = CopiesProposal(
        direction=Direction.REMOVE,
        pair=pair,
        order=int(rng.integers(2, 4)),
        separation=int(rng.integers(bands, min_sep + 1)),
        share=float(rng.uniform(0.1, 1.0)),
        reach=int(rng.integers(2, 9)),
        cap=int(rng.integers(1, 4)),
    )
    assert proposal.proved
    outputs = rng.normal(scale=rng.uniform(0.5, 4.0), size=(60, steps)) + rng.uniform(-1.0, 3.0)
    log_x, log_proposal = log_densities(proposal, outputs)
    np.testing.assert_allclose(log_x, log_ratio_of(pair, outputs, exact_law(pair)), atol=1e-9)
    np.testing.assert_allclose(log_proposal, log_ratio_of(pair, outputs, proposal_law(proposal)), atol=1e-9)
    for epsilon in (0.0, 0.5, 2.0):
        value = np.exp(log_x - log_proposal) * -np.expm1(np.minimum(epsilon - log_x, 0.0))
        assert value.max() <= proposal.weight_bound(epsilon) * (1.0 + 1e-9)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("make", "share"), [(order_proposal, 0.4), (order_proposal, 1.0), (copies_proposal, 0.4)])
def test_the_mean_of_y_is_delta_by_integration(warm: bool, make: Maker, share: float) -> None:
    """The enumerated law of the draws times the proposal's own weights, integrated in two dimensions."""
    pair = pair_of(2, 2, 2, 0.3, warm, 1.3, 9)
    outputs, density = lattice(2, 13.0, 300)
    log_x = log_ratio_of(pair, outputs, exact_law(pair))
    for order, epsilon in ((2, 0.5), (3, 1.0)):
        proposal = make(pair, order, 2, share)
        own_x, own_proposal = log_densities(proposal, outputs)
        drawn = density * np.exp(log_ratio_of(pair, outputs, proposal_law(proposal)))
        value = np.exp(own_x - own_proposal) * -np.expm1(np.minimum(epsilon - own_x, 0.0))
        delta = float((density * np.exp(log_x) * -np.expm1(np.minimum(epsilon - log_x, 0.0))).sum())
        assert drawn.sum() == pytest.approx(1.0, abs=1e-9)
        assert (drawn * value).sum() == pytest.approx(delta, abs=1e-9)
        assert delta > 1e-3


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("order", [2, 3])
def test_no_value_is_above_the_largest_and_some_come_close(warm: bool, order: int) -> None:
    pair = pair_of(2, 2, 2, 0.3, warm, 1.0, 10)
    outputs, _ = lattice(2, 12.0, 400)
    for make, share, least in ((order_proposal, 1.0, 0.999), (order_proposal, 0.4, 0.02), (copies_proposal, 0.4, 0.02)):
        proposal = make(pair, order, 2, share)
        log_x, log_proposal = log_densities(proposal, outputs)
        for epsilon in (0.0, 0.7, 2.0):
            value = np.exp(log_x - log_proposal) * -np.expm1(np.minimum(epsilon - log_x, 0.0))
            assert least * proposal.weight_bound(epsilon) < value.max() <= proposal.weight_bound(epsilon)


def test_fewer_blocked_steps_give_a_larger_bound_that_still_holds() -> None:
    pair = pair_of(3, 1, 3, 0.4, True, 0.8, 11)
    outputs, _ = lattice(3, 8.0, 50)
    proposals = [order_proposal(pair, 2, separation, 1.0) for separation in (1, 2, 3)]
    assert proposals[0].weight_bound(1.0) > proposals[1].weight_bound(1.0) > proposals[2].weight_bound(1.0)
    for proposal in proposals:
        log_x, log_proposal = log_densities(proposal, outputs)
        value = np.exp(log_x - log_proposal) * -np.expm1(np.minimum(1.0 - log_x, 0.0))
        assert value.max() <= proposal.weight_bound(1.0)


def _scores(proposal: Proposal, deltas: dict[float, float], samples: int, seed: int) -> list[float]:
    """Errors of the sample means in standard errors; with Y bounded and these sizes, close to normal."""
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.Generator(np.random.SFC64(seed)), log_weights, losses)
    scores = []
    for epsilon, delta in deltas.items():
        value = np.exp(log_weights) * -np.expm1(np.minimum(epsilon - losses, 0.0))
        assert value.max() <= proposal.weight_bound(epsilon) * (1.0 + 1e-9)
        scores.append((value.mean() - delta) / (value.std() / sqrt(samples)))
    return scores


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("make", "order", "separation", "share"),
    [
        (order_proposal, 2, 3, 1.0),
        (order_proposal, 2, 2, 0.5),
        (order_proposal, 3, 3, 0.5),
        (order_proposal, 3, 2, 1.0),
        (order_proposal, 4, 2, 0.7),
        (copies_proposal, 2, 3, 0.3),
        (copies_proposal, 3, 2, 0.6),
    ],
)
def test_seeded_means_are_delta(warm: bool, make: Maker, order: int, separation: int, share: float) -> None:
    """Four epsilons each, 6.5 standard errors: below 1e-9 for all of them if a correct sampler's means are normal."""
    pair, deltas = _three_steps(warm)
    proposal = make(pair, order, separation, share)
    assert max(map(abs, _scores(proposal, deltas, 20_000, 100 + order))) < SCORE


@cache
def _three_steps(warm: bool) -> tuple[RenewalMixture, dict[float, float]]:
    """A pair in three dimensions, and its delta at four epsilons; the lattice is good to about 1e-3 of them."""
    pair = pair_of(3, 2, 3, 0.25, warm, 1.2, 12)
    outputs, density = lattice(3, 9.0, 90)
    log_x = log_ratio_of(pair, outputs, exact_law(pair))
    return pair, {
        epsilon: float((density * np.exp(log_x) * -np.expm1(np.minimum(epsilon - log_x, 0.0))).sum())
        for epsilon in (0.1, 0.5, 1.0, 1.5)
    }


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_longer_run_draws_what_its_density_says(share: float) -> None:
    """``E_R (dR'/dR) = 1`` for R' another proposal of the same pair, whose densities are tested above; bounded weights.

    The ratio of the two mixtures is at most 1 / 0.5; so the mean of 4,000 is off by 6.5 standard errors with
    probability below 1e-9.
    """
    pair = RenewalMixture(
        noise_multiplier=1.0,
        matrix=ToeplitzMatrix(np.array([1.0, 0.5, 0.375]), 60),
        min_sep=7,
        participation_prob=0.05,
        warm_start=True,
    )
    proposal, other = order_proposal(pair, 2, 7, share, rate=0.1), order_proposal(pair, 2, 7, 0.5, rate=0.1)
    log_weights, losses = np.empty(4000), np.empty(4000)
    proposal.draw(np.random.Generator(np.random.SFC64(5)), log_weights, losses)
    # P relative to R, times the moment of order 2 relative to P: R_2 relative to R, below 1 / share.
    ratio = np.exp(log_weights + losses - other.table.log_moment)
    assert ratio.max() <= (1.0 + 1e-9) / share
    if share == 1.0:
        np.testing.assert_allclose(ratio, 1.0, rtol=1e-9)
    else:
        assert abs(ratio.mean() - 1.0) < SCORE * ratio.std() / sqrt(4000)


@pytest.mark.parametrize("scale", [0.5, 6.0, 40.0, 400.0])
def test_recursions_with_and_without_logarithms_agree(scale: float) -> None:
    """From outputs of which X is about 1 up to those of which its logarithm is in the thousands."""
    pair = RenewalMixture(
        noise_multiplier=0.3,
        matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 200),
        min_sep=5,
        participation_prob=0.1,
        warm_start=True,
    )
    proposal = order_proposal(pair, 2, 3, 0.5)
    outputs = np.random.default_rng(13).normal(scale=scale, size=(6, 200))
    log_x, log_proposal = log_densities(proposal, outputs)
    harsh = log_densities(proposal, outputs, in_logs=True)
    np.testing.assert_allclose(harsh, (log_x, log_proposal), rtol=1e-12, atol=1e-10)
    assert np.all(np.isfinite(log_x))


@pytest.mark.parametrize("thinning", [1.0, 0.6])
@pytest.mark.parametrize("warm", [False, True])
def test_the_mean_proposal_is_unbiased_and_bounded(warm: bool, thinning: float) -> None:
    """Integrated in two dimensions: the shifted normal's own density times the weights, and Y against M."""
    pair = pair_of(2, 2, 2, 0.4, warm, 1.1, 14)
    outputs, density = lattice(2, 13.0, 300)
    weights, vectors = exact_law(pair)
    log_x = log_ratio_of(pair, outputs, (weights, vectors))
    rarer, same = participations(2, 2, 0.4 * thinning, warm, before=0.4)
    np.testing.assert_array_equal(same, vectors)
    means = vectors @ pair.matrix.materialize().T / pair.noise_multiplier
    mean = rarer @ means
    # The relative entropy of the coins, by the chain rule. Merging what leads to the same vector can only lower it.
    rate = 0.4 * thinning
    coin = rate * log(rate / 0.4) + (1.0 - rate) * log((1.0 - rate) / 0.6)
    entropy = coin * float((rarer @ vectors).sum()) / rate
    merged = float(rarer @ np.log(rarer / weights))
    assert merged <= entropy + 1e-12
    assert warm or merged == pytest.approx(entropy, abs=1e-12)
    for beta, epsilon in ((0.5, 0.05), (2.0, 0.2)):
        if thinning == 1.0:
            proposal = FAMILY.build(pair, Direction.ADD, MeanProposal.name, {"beta": beta})
        else:
            proposal = FAMILY.build(pair, Direction.ADD, ThinnedProposal.name, {"beta": beta, "thinning": thinning})
        log_weight = beta * outputs @ mean + 0.5 * beta**2 * mean @ mean
        value = np.exp(log_weight) * -np.expm1(np.minimum(epsilon + log_x, 0.0))
        assert value.max() <= proposal.weight_bound(epsilon)
        # Jensen's inequality, under the law of rarer participations, is all that is between M and the largest value.
        least = outputs @ mean - 0.5 * rarer @ (means**2).sum(axis=1) - entropy
        assert np.all(least <= log_x + 1e-12)
        jensen = np.exp(log_weight) * -np.expm1(np.minimum(epsilon + least, 0.0))
        assert proposal.weight_bound(epsilon) == pytest.approx(jensen.max(), rel=1e-3)
        drawn = np.exp(-0.5 * ((outputs + beta * mean) ** 2).sum(axis=1)) / (2 * np.pi)
        cell = density[0] / (np.exp(-0.5 * (outputs[0] ** 2).sum()) / (2 * np.pi))
        delta = float((density * -np.expm1(np.minimum(epsilon + log_x, 0.0))).sum())
        assert (drawn * cell * value).sum() == pytest.approx(delta, abs=1e-9)
        assert delta > 1e-3
        # Below 1e-9 as for the order proposals.
        assert max(map(abs, _scores(proposal, {epsilon: delta}, 40_000, 21))) < SCORE


def test_proposals_can_be_built_again_and_draw_the_same() -> None:
    pair = RenewalMixture(
        noise_multiplier=0.6,
        matrix=ToeplitzMatrix(np.array([1.0, 0.5, 0.375]), 120),
        min_sep=10,
        participation_prob=0.01,
        warm_start=True,
    )
    # The means are small next to the noise in all, as X has a floor near which delta of the direction add ends.
    for direction, epsilon in ((Direction.REMOVE, 4.0), (Direction.ADD, 0.6)):
        proposals = propose(pair, direction, epsilon)
        assert proposals
        for proposal in proposals:
            assert 0.0 < proposal.weight_bound(epsilon) < 1.0
            assert proposal.loss_error < 1e-7
            assert proposal.cost > 0.0
            again = FAMILY.build(pair, direction, proposal.name, proposal.parameters)
            drawn = []
            for copy in (proposal, again, pickle.loads(pickle.dumps(proposal))):
                log_weights, losses = np.empty(20), np.empty(20)
                copy.draw(np.random.Generator(np.random.SFC64(3)), log_weights, losses)
                drawn.append((log_weights, losses))
            np.testing.assert_array_equal(drawn[0], drawn[1])
            np.testing.assert_array_equal(drawn[0], drawn[2])


def test_a_rare_event_is_found() -> None:
    """delta near 1e-8 of one step with C = 1, by integration in one dimension; hardly a sample of P would get there.

    A mean of 20,000 values of relative variance below 100 is off by 6.5 standard errors with probability below 1e-9.
    """
    pair = RenewalMixture(
        noise_multiplier=0.4,
        matrix=ToeplitzMatrix(np.array([1.0]), 1),
        min_sep=1,
        participation_prob=1e-3,
        warm_start=False,
    )
    epsilon = 7.0
    y = np.linspace(-40.0, 40.0, 200_001)
    density = np.exp(-0.5 * y**2) / sqrt(2 * np.pi) * (y[1] - y[0])
    log_x = np.logaddexp(log1p(-1e-3), log(1e-3) + y / 0.4 - 0.5 / 0.16)
    delta = float((density * np.exp(log_x) * -np.expm1(np.minimum(epsilon - log_x, 0.0))).sum())
    assert 1e-10 < delta < 1e-6
    proposal = propose(pair, Direction.REMOVE, epsilon)[0]
    (score,) = _scores(proposal, {epsilon: delta}, 20_000, 31)
    assert abs(score) < SCORE
    assert proposal.weight_bound(epsilon) / delta < 100.0


def test_pairs_that_the_proofs_do_not_cover_have_no_proposals() -> None:
    overlapping = pair_of(6, 3, 2, 0.2, False, 1.0, 1)
    many = RenewalMixture(
        noise_multiplier=1.0,
        matrix=ToeplitzMatrix(np.array([1.0]), 6),
        min_sep=2,
        participation_prob=0.1,
        warm_start=False,
        examples_per_user=2,
    )
    for pair in (overlapping, many):
        for direction in Direction:
            assert propose(pair, direction, 2.0) == []
        with pytest.raises(InvalidInputError, match="proposal"):
            FAMILY.build(pair, Direction.ADD, MeanProposal.name, {"beta": 1.0})


def test_what_cannot_be_built_is_refused() -> None:
    pair = pair_of(5, 2, 3, 0.3, False, 1.1, 1)
    good = order_proposal(pair, 2, 3, 0.5).parameters
    assert FAMILY.build(pair, Direction.REMOVE, OrderProposal.name, good).parameters == good
    for direction, name in (
        (Direction.ADD, OrderProposal.name),
        (Direction.REMOVE, MeanProposal.name),
        (Direction.REMOVE, ""),
    ):
        with pytest.raises(InvalidInputError, match="'proposal' field"):
            FAMILY.build(pair, direction, name, good)
    for change in (
        {"order": 1.0},
        {"order": 2.5},
        {"separation": 1.0},
        {"separation": 4.0},
        {"share": 0.0},
        {"share": 1.5},
        {"rate": 0.0},
        {"rate": 1.0},
        {"shift": 2.25},
        {"far": 1.0},
        {"order": inf},
        {"share": float("nan")},
        {"more": 1.0},
    ):
        with pytest.raises(InvalidInputError, match="'proposal' field"):
            FAMILY.build(pair, Direction.REMOVE, OrderProposal.name, {**good, **change})
    for beta in (0.0, -1.0, inf, float("nan")):
        with pytest.raises(InvalidInputError, match="'proposal' field"):
            FAMILY.build(pair, Direction.ADD, MeanProposal.name, {"beta": beta})
    with pytest.raises(InvalidInputError, match="'proposal' field"):
        FAMILY.build(pair, Direction.ADD, MeanProposal.name, {})


def test_the_number_of_states() -> None:
    assert [state_count(2, 5), state_count(3, 4), state_count(4, 1)] == [5, 10, 1]
    assert logsumexp(Table.of(renewal_of(pair_of(*CASES[1])), 3, 3).log_starts) == pytest.approx(0.0, abs=1e-12)
