"""Poisson sampling with many bands: bounds on the ratio and proposals against sums over all subsets and counts."""

import pickle
from itertools import product
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from history_oracle import (
    among,
    chances_of,
    drawn_histories,
    exponents_of,
    histories,
    interval,
    limited,
    mean_field,
    ratio,
    whole_of,
)
from many_bands_cases import CASES, above_of, pair_of

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.monte_carlo.far import family
from hockeystick.monte_carlo.far.family import propose
from hockeystick.monte_carlo.far.kernels import filtered
from hockeystick.monte_carlo.far.limits import Limits, chance_of_others, largest_field
from hockeystick.monte_carlo.far.proposals import Add, Below, Counted, rates
from hockeystick.monte_carlo.far.subjects import MAX_COINS, columns_for
from hockeystick.monte_carlo.subsets.family import FAMILY
from hockeystick.monte_carlo.whole_curve import CurveEstimation
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.visits import binomial
from hockeystick.strategies.matrix.causal_columns import MAX_ENTRIES
from hockeystick.strategies.matrix.causal_factor import causal_factor
from hockeystick.types import Direction, Side


@pytest.mark.parametrize("pair", CASES)
@pytest.mark.parametrize("side", Side)
def test_columns_have_the_inner_products_of_the_first_group(pair: SubsetMixture, side: Side) -> None:
    own = columns_for(pair, side)
    whole = pair.step_matrix.materialize()[:, :: pair.groups] / pair.noise_multiplier
    gram, products = whole.T @ whole, whole_of(own).T @ whole_of(own)
    np.testing.assert_allclose(products, gram, rtol=1e-9)
    sign = 1.0 if side is Side.UPPER else -1.0
    assert (sign * (products - gram) >= -1e-15 * gram).all()
    for u, coupling in enumerate(own.couplings):
        np.testing.assert_allclose(coupling[: gram.shape[0] - u], gram[u, u : u + coupling.size], rtol=1e-9)
    np.testing.assert_allclose(own.row_sums, own.law.coins * whole_of(own).sum(axis=1), rtol=1e-13)
    chosen = histories(own)
    means, chances = chosen @ whole_of(own).T, chances_of(own, chosen)
    np.testing.assert_allclose(own.law.chances, [chances[chosen[:, 0] == n].sum() for n in range(own.law.coins + 1)])
    squared_mean, mean_square = own.moments
    assert squared_mean == pytest.approx(float(np.square(chances @ means).sum()))
    assert mean_square == pytest.approx(float(chances @ np.square(means).sum(axis=1)))


def mechanism(strategy: object, sampler: object) -> SubsetMixture:
    pair = dominating_pair(hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=2.0))
    assert isinstance(pair, SubsetMixture)
    return pair


@pytest.mark.parametrize("strategy", [hs.BinaryTree(), hs.TreeRestart(height=3)])
@pytest.mark.parametrize("groups", [1, 3, 4])
def test_columns_of_a_tree_have_inner_products_that_no_group_exceeds(strategy: object, groups: int) -> None:
    sampler = hs.CyclicPoisson(groups=groups, sampling_prob=0.1, steps=27)
    pair = mechanism(strategy, sampler if groups > 1 else hs.Poisson(sampling_prob=0.1, steps=27))
    whole = pair.matrix.materialize()
    grams = [whole[:, group::groups].T @ whole[:, group::groups] / 4.0 for group in range(groups)]
    above, below = (whole_of(columns_for(pair, side)) for side in (Side.UPPER, Side.LOWER))
    largest = above.T @ above
    for gram in grams:
        assert (largest[: gram.shape[0], : gram.shape[0]] >= gram).all()
    reached = np.max([np.pad(gram, (0, grams[0].shape[0] - gram.shape[0])) for gram in grams], axis=0)
    np.testing.assert_allclose(largest, reached, rtol=1e-9)
    assert (below.T @ below <= grams[0]).all()
    assert not (below.T @ below >= grams[0]).all()
    np.testing.assert_allclose(below.T @ below, grams[0], rtol=1e-9)


def test_columns_whose_inner_products_need_negative_entries_are_refused() -> None:
    """A lower-triangular square C is its own factor; of what sampling in groups leaves of its columns it is not."""
    tall = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    square = np.array([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 3.0, 2.0]])
    factor = causal_factor(square.T @ square)
    assert factor is not None
    np.testing.assert_allclose(factor[0], square, atol=1e-12)
    assert causal_factor(tall.T @ tall) is not None
    gram = np.array([[2.0, 0.1, 1.0], [0.1, 2.0, 1.0], [1.0, 1.0, 2.0]])  # given the third, the others are at odds
    assert causal_factor(gram) is None
    assert causal_factor(np.array([[1.0, 2.0], [2.0, 1.0]])) is None


LIMITED = [(3, 1), (3, 2), (16, 3), (2, 2)]


@pytest.mark.parametrize("pair", CASES)
@pytest.mark.parametrize(("block", "limit"), LIMITED)
def test_the_ratio_lies_between_its_bounds(pair: SubsetMixture, block: int, limit: int) -> None:
    own, rng = columns_for(pair, Side.UPPER), np.random.default_rng(1)
    few = limited(own, block, limit)
    for shift in (0.0, 1.0, 2.0, -1.0):
        y = rng.normal(shift, 1.0, own.steps)
        z, exact = exponents_of(own, y), ratio(own, y, few)
        assert mean_field(own, z) <= log(ratio(own, y)) + 1e-12
        largest, logs = drawn_histories(own, z, Limits(block, limit), rng, 2000)
        alone = np.exp(few @ z - among(own, few))
        assert largest == pytest.approx(log(float(alone @ chances_of(own, few))), abs=1e-12)
        assert logs.max() <= 1e-12
        ratios = np.exp(logs + largest)
        assert abs(ratios.mean() - exact) <= 6.2 * ratios.std() / sqrt(ratios.size) + 1e-9  # 6.2 sigma: about FAILURE


@pytest.mark.parametrize("pair", CASES)
@pytest.mark.parametrize(("block", "limit"), LIMITED)
def test_other_histories_have_at_most_the_chance_that_is_charged(pair: SubsetMixture, block: int, limit: int) -> None:
    own = columns_for(pair, Side.UPPER)
    others = 1.0 - chances_of(own, limited(own, block, limit)).sum()
    charged = chance_of_others(own, Limits(block, limit))
    assert others <= charged + 1e-15
    assert charged <= 2.0 * others + 1e-15 or others > 0.2
    field = (limited(own, block, limit) @ np.triu(whole_of(own).T @ whole_of(own), 1)).max()
    assert largest_field(own.couplings, block, limit, own.law.coins) == pytest.approx(field, rel=1e-12)


def test_the_mean_field_is_tight_where_participations_hardly_overlap() -> None:
    own, rng = columns_for(pair_of(8, 0.05, 6.0), Side.LOWER), np.random.default_rng(2)
    for _ in range(5):
        y = rng.normal(0.5, 1.0, 8)
        z = exponents_of(own, y)
        lost = log(ratio(own, y)) - mean_field(own, z)
        second_order = 0.5 * np.square(own.couplings[:, 1:]).sum() * (0.05 * exp(z.max())) ** 2
        assert 0.0 <= lost <= 2.0 * second_order


@pytest.mark.parametrize("coins", [1, 2])
def test_filtered_rows_have_a_density(coins: int) -> None:
    own, rng = columns_for(pair_of(3, 0.3, 0.8, coins=coins), Side.UPPER), np.random.default_rng(3)
    rates_of = binomial(coins, 0.4 / coins)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    total = sum(
        weights[i] * weights[j] * weights[k] * exp(filtered(rng, own.columns, rates_of, False, nodes[[i, j, k]]))
        for i, j, k in product(range(20), repeat=3)
    )
    assert total == pytest.approx(1.0, abs=1e-6)
    y = np.empty(3)
    for _ in range(20):  # drawn and given rows have the same density
        drawn = filtered(rng, own.columns, rates_of, True, y)
        assert drawn == pytest.approx(filtered(rng, own.columns, rates_of, False, y), abs=1e-12)


@pytest.mark.parametrize("coins", [1, 2])
def test_filtered_rows_are_drawn_from_their_density(coins: int) -> None:
    own, rng = columns_for(pair_of(5, 0.3, 0.8, coins=coins), Side.UPPER), np.random.default_rng(4)
    rates_of = binomial(coins, 0.4 / coins)
    y, inverse = np.empty(5), np.empty(20000)
    for place in range(inverse.size):  # the mean of Q / R under R is one, also where it is cut off by y
        log_density = filtered(rng, own.columns, rates_of, True, y)
        inverse[place] = exp(-log_density) if abs(y).max() < 2.0 else 0.0
    inside = (1.0 - 2.0 * 0.022750131948179195) ** 5
    assert abs(inverse.mean() - inside) <= 6.2 * inverse.std() / sqrt(inverse.size)


@pytest.mark.parametrize(
    ("pair", "epsilon", "near"),
    [
        (CASES[0], 1.5, 0.5),
        (CASES[1], 0.4, 0.8),
        (CASES[2], 1.0, 0.6),
        (CASES[3], 1.5, 0.5),
        (CASES[4], 1.0, 0.6),
    ],
)
def test_each_side_stays_on_its_side_of_the_truth(pair: SubsetMixture, epsilon: float, near: float) -> None:
    own, rng = columns_for(pair, Side.UPPER), np.random.default_rng(5)
    nodes = rng.standard_normal((4000, own.steps))  # Q, and the ratio of every sample by its sum over histories
    chosen = histories(own)
    chances = chances_of(own, chosen)
    means = chosen @ whole_of(own).T
    picked = rng.choice(chances.size, size=nodes.shape[0], p=chances)
    with_it = nodes + means[picked]

    def ratios(y: np.ndarray) -> np.ndarray:
        return np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ chances

    remove = np.maximum(1.0 - exp(epsilon) / ratios(with_it), 0.0)
    add = np.maximum(1.0 - exp(epsilon) * ratios(nodes), 0.0)
    rate = min(3.0 * own.law.prob, 0.8)
    below = Below(direction=Direction.REMOVE, pair=pair, rate=rate)
    above = above_of(pair, rate=rate)
    other = Add(direction=Direction.ADD, pair=pair, beta=1.0)
    for values, lower, upper in ((remove, below, above), (add, None, other)):
        error = 6.2 * values.std() / sqrt(values.size)
        least, most = values.mean() - error, values.mean() + error
        assert interval(upper, epsilon, 20000, 6)[1] >= least
        if lower is not None:
            assert interval(lower, epsilon, 20000, 7)[0] <= most
            assert interval(lower, epsilon, 20000, 7)[1] >= near * interval(upper, epsilon, 20000, 6)[0]


@pytest.mark.parametrize("coins", [1, 2])
def test_the_samples_that_stand_for_other_histories_have_their_chance(coins: int) -> None:
    pair = pair_of(20, 0.1 / coins, 2.0, coins=coins)
    above = Counted(
        direction=Direction.REMOVE,
        pair=pair,
        order=2,
        decay=0.9,
        rate=rates(columns_for(pair, Side.UPPER))[0],
        block=16,
        limit=1,
    )
    log_weights, losses = np.empty(40000), np.empty(40000)
    above.draw(np.random.default_rng(10), log_weights, losses)
    values = -np.exp(log_weights) * np.expm1(np.minimum(30.0 - losses, 0.0))  # no other sample has such a loss
    charged = chance_of_others(columns_for(pair, Side.UPPER), Limits(16, 1))
    assert abs(values.mean() - charged) <= 6.2 * values.std() / sqrt(values.size)
    assert values.max() <= above.weight_bound(30.0)


@pytest.mark.parametrize("direction", Direction)
def test_the_first_proposal_is_found_without_a_chain(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first of all, and the search for an epsilon takes it alone."""
    pair = pair_of(60, 0.02, 4.0)
    first = FAMILY.propose(pair, direction, 1.0)[0]
    monkeypatch.delattr(family, "best_chain")
    proposal = FAMILY.first(pair, direction, 1.0)
    assert (proposal.name, proposal.direction, proposal.parameters) == (first.name, first.direction, first.parameters)


@pytest.mark.parametrize("coins", [1, 2])
def test_what_the_family_proposes_is_built_again_from_its_parameters(coins: int) -> None:
    pair = pair_of(60, 0.02 / coins, 4.0, coins=coins)
    above = above_of(pair, rate=rates(columns_for(pair, Side.UPPER))[8])
    proposals = [*FAMILY.propose(pair, Direction.REMOVE, 1.0), *FAMILY.propose(pair, Direction.ADD, 1.0), above]
    assert {proposal.sides for proposal in proposals} == {(Side.LOWER,), (Side.UPPER,)}
    for proposal in proposals:
        again = FAMILY.build(pair, proposal.direction, proposal.name, proposal.parameters)
        for copy in (again, pickle.loads(pickle.dumps(proposal))):
            drawn = []
            for each in (proposal, copy):
                log_weights, losses = np.empty(16), np.empty(16)
                each.draw(np.random.default_rng(8), log_weights, losses)
                drawn.append(np.concatenate([log_weights, losses]))
            np.testing.assert_array_equal(*drawn)
            assert 0.0 < copy.loss_error < 1e-4
            assert copy.weight_bound(1.0) == proposal.weight_bound(1.0)


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 1.0, "decay": 0.9, "rate": 0.1, "block": 16.0, "limit": 9.0},
        ),
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 2.0, "decay": 0.91, "rate": 0.1, "block": 16.0, "limit": 9.0},
        ),
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 2.0, "decay": 0.9, "rate": 0.101, "block": 16.0, "limit": 9.0},
        ),
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 17.0, "decay": 0.9, "rate": 0.1, "block": 16.0, "limit": 9.0},
        ),
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 2.0, "decay": 0.9, "rate": inf, "block": 16.0, "limit": 9.0},
        ),
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 2.0, "decay": 0.9, "rate": 0.1, "block": 17.0, "limit": 9.0},
        ),
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 2.0, "decay": 0.9, "rate": 0.1, "block": 16.0, "limit": 1.0},
        ),
        (Direction.REMOVE, "far_below", {"rate": 1.0}),
        (Direction.ADD, "far_add", {"beta": inf}),
        (Direction.REMOVE, "naive", {}),
        (Direction.ADD, "mean", {"beta": 1.0}),
    ],
)
def test_other_proposals_are_refused(direction: Direction, name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be"):
        FAMILY.build(pair_of(20, 0.1, 2.0), direction, name, parameters)


@pytest.mark.parametrize(("bands", "alone"), [(6, False), (7, True), (13, True)])
def test_the_recursion_is_for_few_bands(bands: int, alone: bool) -> None:
    pair = mechanism(hs.BandedSquareRoot(bands=bands), hs.Poisson(sampling_prob=0.05, steps=20))
    for direction in Direction:
        assert all(proposal.name.startswith("far") == alone for proposal in FAMILY.propose(pair, direction, 0.5))


def test_users_of_many_examples_are_refused() -> None:
    assert FAMILY.refusal(pair_of(8, 0.01, 4.0, coins=MAX_COINS), Side.UPPER) is None
    assert str(MAX_COINS) in str(FAMILY.refusal(pair_of(8, 0.01, 4.0, coins=MAX_COINS + 1), Side.UPPER))


def test_entries_that_are_left_out_are_no_more_than_rounding() -> None:
    """The columns of an inverse fall by powers; of those that hardly fall nothing is left out."""
    pair = mechanism(hs.BandedInverseSquareRoot(bands=4), hs.Poisson(sampling_prob=0.05, steps=400))
    own, whole = columns_for(pair, Side.UPPER), pair.matrix.materialize() / pair.noise_multiplier
    assert own.columns.shape[1] < 200
    missing = whole - whole_of(own)
    assert (missing >= 0.0).all()
    assert 0.0 < missing.sum(axis=0).max() <= 2.0**-53 * whole.sum(axis=0).max()
    assert missing.sum(axis=1).max() <= 2.0**-53 * whole.sum(axis=1).max()
    slow = mechanism(hs.SquareRoot(), hs.Poisson(sampling_prob=0.05, steps=400))
    assert columns_for(slow, Side.UPPER).columns.shape == (1, 400)


def test_parameters_come_from_short_lists() -> None:
    pair = pair_of(20, 0.1, 2.0)
    assert len(rates(columns_for(pair, Side.UPPER))) <= 17
    above = {"order": 2.0, "decay": 0.9, "rate": 0.1, "block": 16.0, "limit": 9.0}
    assert FAMILY.build(pair, Direction.REMOVE, "far_counted", above).proved


def test_runs_that_are_too_long_are_refused() -> None:
    assert FAMILY.refusal(pair_of(2048, 0.01, 4.0), Side.LOWER) is None
    assert str(MAX_ENTRIES) in str(FAMILY.refusal(pair_of(2049, 0.01, 4.0), Side.LOWER))
    assert "without subsampling" in str(FAMILY.refusal(pair_of(20, 1.0, 4.0), Side.UPPER))


def test_no_upper_bound_is_proposed_where_the_chain_proves_nothing() -> None:
    flat = pair_of(200, 0.1, 2.0, slowness=0.0)
    assert [proposal.sides for proposal in propose(flat, Direction.REMOVE, 1.0)] == [(Side.LOWER,)]


def test_a_whole_curve_has_both_sides() -> None:
    options = hs.MonteCarlo(seed=2, failure_probability=1e-9, ratio=1.0)
    curve = CurveEstimation(pair_of(13, 0.05, 3.0), hs.Question(delta=1e-2), options, hs.Deadline(), work=0.3)
    curve.sample()
    for level in {tally.run.nodes[-1].epsilon for tally in curve.tallies if tally.run.direction is Direction.REMOVE}:
        assert curve.profiles(Side.UPPER)[Direction.REMOVE](level) < 1.0
        assert curve.profiles(Side.LOWER)[Direction.REMOVE](level) > 0.0
    spent = sum(node.failure for tally in curve.tallies for node in tally.run.nodes)  # all nodes have to hold
    assert spent <= 1e-9 * (1.0 + 1e-12)


def test_parameters_that_rounding_ruins_prove_nothing() -> None:
    flat = pair_of(200, 0.1, 0.5, slowness=0.0)
    above = above_of(flat, order=16, decay=0.8)
    assert above.loss_error == inf
    assert above.drawn_bound(Side.UPPER, 1.0) == inf


def test_a_certificate_has_both_sides_and_can_be_verified() -> None:
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=13),
        sampler=hs.Poisson(sampling_prob=0.02, steps=24),
        noise_multiplier=2.0,
    )
    options = hs.MonteCarlo(seed=1, failure_probability=1e-3, ratio=1.0)
    certificate = hs.certify(run, delta=1e-2, method="monte_carlo", budget=20.0, monte_carlo=options)
    assert certificate.method.upper == "monte_carlo"
    assert {claimed.run.proposal for claimed in certificate.monte_carlo.runs} >= {"far_counted", "far_below"}
    hs.verify(certificate)


USER = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4),
    sampler=hs.Poisson(sampling_prob=0.01, steps=60),
    unit=hs.Unit(kind="user", examples_per_user=2),
    noise_multiplier=3.0,
)


def test_a_certificate_about_users_has_both_sides_and_can_be_verified() -> None:
    options = hs.MonteCarlo(seed=1, failure_probability=1e-6, ratio=0.5)
    certificate = hs.certify(USER, delta=1e-4, method="monte_carlo", monte_carlo=options)
    assert (certificate.method.upper, certificate.method.lower) == ("monte_carlo", "monte_carlo")
    assert certificate.bounds.upper <= 1.1 * certificate.bounds.lower
    single = hs.certify(USER.model_copy(update={"unit": hs.Unit()}), delta=1e-4, method="split_noise")
    assert certificate.bounds.lower > single.bounds.upper
    hs.verify(certificate, evidence=options.ledger)


@pytest.mark.weekly
def test_a_calibration_for_users_is_released() -> None:
    """The members of a user's pair are its copies: the tests are about them."""
    sampler = hs.Poisson(sampling_prob=0.02, steps=20)
    run = USER.model_copy(update={"sampler": sampler, "noise_multiplier": None})
    options = hs.MonteCarlo(seed=1, failure_probability=1e-4, ratio=1.0)
    certificate = hs.calibrate_and_certify(run, epsilon=0.5, delta=1e-2, method="gaussian", monte_carlo=options)
    assert (certificate.kind, certificate.method.upper) == (hs.Kind.MONTE_CARLO, "monte_carlo")
    assert certificate.bounds.upper <= 0.5
    look = hs.certify(certificate.mechanism, delta=1e-2, method="split_noise")
    assert look.bounds.lower is not None
    assert 0.8 * 0.5 <= look.bounds.lower <= 0.5
    hs.verify(certificate, evidence=options.ledger)


@pytest.mark.parametrize(
    "unit", [hs.Unit(kind="user", examples_per_user=2, neighbours="replace"), hs.Unit(neighbours="replace")]
)
def test_nothing_is_sampled_for_examples_that_are_replaced(unit: hs.Unit) -> None:
    run = USER.model_copy(update={"unit": unit})
    with pytest.raises(UnsupportedError, match="no analysis of examples that are replaced"):
        hs.certify(run, delta=1e-3, method="monte_carlo", monte_carlo=hs.MonteCarlo(seed=1))
