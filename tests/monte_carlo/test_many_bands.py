"""Poisson sampling with many bands: bounds on the ratio and proposals against sums over all subsets and counts."""

import pickle
from itertools import product
from math import comb, exp, inf, log, sqrt

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.confidence import betting_lower, betting_upper
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.subsets.family import FAMILY
from hockeystick.monte_carlo.subsets.history_kernels import (
    exponents,
    filtered,
    log_history,
    log_mean_field,
    log_product,
    split,
)
from hockeystick.monte_carlo.subsets.many_bands import (
    MAX_ENTRIES,
    Columns,
    ManyBandsAbove,
    ManyBandsAdd,
    ManyBandsBelow,
    _chain,
    columns_of,
    proposals,
    rates,
)
from hockeystick.monte_carlo.whole_curve import CurveEstimation
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side

FAILURE = 1e-9
"""Of each interval; there are some thirty of them, so all tests together fail by chance with probability 1e-7."""


def pair_of(steps: int, prob: float, sigma: float, groups: int = 1, slowness: float = 0.7) -> SubsetMixture:
    """Columns that never end and fall slowly."""
    column = (1.0 + np.arange(steps)) ** -slowness
    return SubsetMixture(
        noise_multiplier=sigma, matrix=ToeplitzMatrix(column, steps), sampling_prob=prob, groups=groups
    )


def whole_of(own: Columns) -> np.ndarray:
    """The columns in full, shape (rows, opportunities)."""
    whole = np.zeros((own.steps, own.columns.shape[0]))
    for u, column in enumerate(own.columns):
        rows = whole[u * own.every :, u]
        rows[: column.size] = column[: rows.size]
    return whole


def ratio(own: Columns, y: np.ndarray) -> float:
    """X, by the sum over all sets of opportunities."""
    whole = whole_of(own)
    total = 0.0
    for chosen in product((0.0, 1.0), repeat=whole.shape[1]):
        mean = whole @ np.array(chosen)
        taken = sum(chosen)
        chance = own.prob**taken * (1.0 - own.prob) ** (whole.shape[1] - taken)
        total += chance * exp(mean @ y - 0.5 * mean @ mean)
    return total


CASES = [pair_of(6, 0.3, 1.0), pair_of(7, 0.1, 2.0, slowness=0.2), pair_of(9, 0.4, 1.5, groups=2)]


@pytest.mark.parametrize("pair", CASES)
def test_columns_are_those_of_the_first_group(pair: SubsetMixture) -> None:
    own = columns_of(pair)
    whole = pair.matrix.materialize()[:, :: pair.groups] / pair.noise_multiplier
    np.testing.assert_allclose(whole_of(own), whole, rtol=1e-14)
    gram = whole.T @ whole
    for u, coupling in enumerate(own.couplings):
        np.testing.assert_allclose(coupling[: gram.shape[0] - u], gram[u, u : u + coupling.size], rtol=1e-13)
    np.testing.assert_allclose(own.row_sums, whole.sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("pair", CASES)
def test_the_ratio_lies_between_its_bounds(pair: SubsetMixture) -> None:
    own, rng = columns_of(pair), np.random.default_rng(1)
    z, fields = np.empty(own.couplings.shape[0]), np.empty(own.couplings.shape[0])
    for shift in (0.0, 0.0, 1.0, 2.0, -1.0):
        y = rng.normal(shift, 1.0, own.steps)
        exponents(own.columns, own.couplings, own.every, y, z)
        exact = log(ratio(own, y))
        largest = log_product(z, own.prob)
        assert log_mean_field(z, own.couplings, own.prob) <= exact + 1e-12
        assert exact <= largest + 1e-12
        found = np.array([log_history(rng, z, own.couplings, own.prob, fields) for _ in range(4000)])
        assert found.max() <= largest + 1e-12
        spread = np.exp(found).std() / sqrt(found.size)
        assert abs(np.exp(found).mean() - exp(exact)) <= 6.2 * spread + 1e-9  # 6.2 sigma: about FAILURE


def test_the_mean_field_is_tight_where_participations_hardly_overlap() -> None:
    own, rng = columns_of(pair_of(8, 0.05, 6.0)), np.random.default_rng(2)
    z = np.empty(8)
    for _ in range(5):
        y = rng.normal(0.5, 1.0, 8)
        exponents(own.columns, own.couplings, 1, y, z)
        lost = log(ratio(own, y)) - log_mean_field(z, own.couplings, 0.05)
        second_order = 0.5 * np.square(own.couplings[:, 1:]).sum() * (0.05 * exp(z.max())) ** 2
        assert 0.0 <= lost <= 2.0 * second_order


@pytest.mark.parametrize("groups", [1, 2])
def test_filtered_rows_have_a_density(groups: int) -> None:
    own, rng = columns_of(pair_of(3, 0.3, 0.8, groups=groups)), np.random.default_rng(3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    total = sum(
        weights[i] * weights[j] * weights[k] * exp(filtered(rng, own.columns, groups, 0.4, False, nodes[[i, j, k]]))
        for i, j, k in product(range(20), repeat=3)
    )
    assert total == pytest.approx(1.0, abs=1e-6)
    y = np.empty(3)
    for _ in range(20):  # drawn and given rows have the same density
        drawn = filtered(rng, own.columns, groups, 0.4, True, y)
        assert drawn == pytest.approx(filtered(rng, own.columns, groups, 0.4, False, y), abs=1e-12)


def test_filtered_rows_are_drawn_from_their_density() -> None:
    own, rng = columns_of(pair_of(5, 0.3, 0.8)), np.random.default_rng(4)
    y, inverse = np.empty(5), np.empty(20000)
    for place in range(inverse.size):  # the mean of Q / R under R is one, also where it is cut off by y
        found = filtered(rng, own.columns, 1, 0.4, True, y)
        inverse[place] = exp(-found) if abs(y).max() < 2.0 else 0.0
    inside = (1.0 - 2.0 * 0.022750131948179195) ** 5
    assert abs(inverse.mean() - inside) <= 6.2 * inverse.std() / sqrt(inverse.size)


@pytest.mark.parametrize(("order", "decay"), [(2, 0.5), (2, 0.9), (3, 0.8)])
def test_the_chain_of_counts_dominates_the_weights_of_counts(order: int, decay: float) -> None:
    own = columns_of(pair_of(4, 0.2, 1.2))
    pulls, squares, nodes, table = _chain(own, order, decay)
    gram = whole_of(own).T @ whole_of(own)
    for u, v in product(range(4), repeat=2):
        assert u >= v or pulls[u] * decay ** (v - u) >= gram[u, v]
    total = 0.0
    for counts in product(range(order + 1), repeat=4):
        chances = [comb(order, j) * 0.2**j * 0.8 ** (order - j) for j in counts]
        plain = np.prod(chances) * exp(
            sum(gram[u, u] * j * (j - 1) / 2 for u, j in enumerate(counts))
            + sum(gram[u, v] * counts[u] * counts[v] for u in range(4) for v in range(u + 1, 4))
        )
        places = {0: 1.0}  # the weight of each field so far
        for u, j in enumerate(counts):
            following: dict[int, float] = {}
            for place, weight in places.items():
                factor = weight * chances[u] * exp(squares[u] * j * (j - 1) / 2 + j * nodes[place])
                below, share = split(decay * (nodes[place] + pulls[u] * j), nodes)
                assert (1 - share) * nodes[below] + share * nodes[below + 1] >= decay * (nodes[place] + pulls[u] * j)
                following[below] = following.get(below, 0.0) + factor * (1.0 - share)
                following[below + 1] = following.get(below + 1, 0.0) + factor * share
            places = following
        assert sum(places.values()) >= plain * (1.0 - 1e-12)
        total += sum(places.values())
    assert exp(table[0, 0]) == pytest.approx(total, rel=1e-10)


def test_no_field_leaves_the_nodes() -> None:
    own = columns_of(pair_of(40, 0.1, 1.0))
    for order, decay in ((2, 0.8), (4, 0.995)):
        pulls, _, nodes, _ = _chain(own, order, decay)
        assert decay * (nodes[-1] + order * pulls.max()) * (1.0 + 1e-11) < nodes[-1]


def interval(proposal: Proposal, epsilon: float, samples: int, seed: int) -> tuple[float, float]:
    """Bounds on the mean of Y that fail with probability FAILURE each; checks Y <= M."""
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.default_rng(seed), log_weights, losses)
    largest = proposal.drawn_bound(Side.UPPER, epsilon)
    values = -np.exp(log_weights) * np.expm1(np.minimum(epsilon - losses, 0.0))
    assert values.max() <= largest * (1.0 + 1e-9)
    spread = sqrt(max(float(np.square(values).mean()), 1e-300))
    up = min(0.9 / largest, sqrt(2.0 * 20.0 / samples) / spread)
    down = sqrt(2.0 * 20.0 / samples) / spread
    return (
        betting_lower(samples, float(np.log1p(down * values).sum()), down, FAILURE),
        betting_upper(samples, float(np.log1p(-up * values).sum()), up, FAILURE),
    )


@pytest.mark.parametrize(
    ("pair", "epsilon", "near"), [(CASES[0], 1.5, 0.5), (CASES[1], 0.4, 0.8), (CASES[2], 1.0, 0.6)]
)
def test_each_side_stays_on_its_side_of_the_truth(pair: SubsetMixture, epsilon: float, near: float) -> None:
    own, rng = columns_of(pair), np.random.default_rng(5)
    nodes = rng.standard_normal((4000, own.steps))  # Q, and the ratio of every sample by its sum over subsets
    whole = whole_of(own)
    chosen = np.array(list(product((0.0, 1.0), repeat=whole.shape[1])))
    taken = chosen.sum(axis=1)
    chances = own.prob**taken * (1.0 - own.prob) ** (whole.shape[1] - taken)
    means = chosen @ whole.T
    picked = rng.choice(chances.size, size=nodes.shape[0], p=chances)
    with_it = nodes + means[picked]

    def ratios(y: np.ndarray) -> np.ndarray:
        return np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ chances

    remove = np.maximum(1.0 - exp(epsilon) / ratios(with_it), 0.0)
    add = np.maximum(1.0 - exp(epsilon) * ratios(nodes), 0.0)
    rate = min(3.0 * own.prob, 0.8)
    below = ManyBandsBelow(direction=Direction.REMOVE, pair=pair, rate=rate)
    above = ManyBandsAbove(direction=Direction.REMOVE, pair=pair, order=2, decay=0.9, rate=rate)
    other = ManyBandsAdd(direction=Direction.ADD, pair=pair, beta=1.0)
    for values, lower, upper in ((remove, below, above), (add, None, other)):
        error = 6.2 * values.std() / sqrt(values.size)
        least, most = values.mean() - error, values.mean() + error
        assert interval(upper, epsilon, 20000, 6)[1] >= least
        if lower is not None:
            assert interval(lower, epsilon, 20000, 7)[0] <= most
            assert interval(lower, epsilon, 20000, 7)[1] >= near * interval(upper, epsilon, 20000, 6)[0]


def test_what_the_family_proposes_is_built_again_from_its_parameters() -> None:
    pair = pair_of(60, 0.02, 4.0)
    above = ManyBandsAbove(direction=Direction.REMOVE, pair=pair, order=2, decay=0.9, rate=rates(pair)[20])
    found = [*FAMILY.propose(pair, Direction.REMOVE, 1.0), *FAMILY.propose(pair, Direction.ADD, 1.0), above]
    assert {one.sides for one in found} == {(Side.LOWER,), (Side.UPPER,)}
    for one in found:
        again = FAMILY.build(pair, one.direction, one.name, one.parameters)
        for copy in (again, pickle.loads(pickle.dumps(one))):
            drawn = []
            for each in (one, copy):
                log_weights, losses = np.empty(16), np.empty(16)
                each.draw(np.random.default_rng(8), log_weights, losses)
                drawn.append(np.concatenate([log_weights, losses]))
            np.testing.assert_array_equal(*drawn)
            assert 0.0 < copy.loss_error < 1e-4
            assert copy.weight_bound(1.0) == one.weight_bound(1.0)


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (Direction.REMOVE, "many_bands_above", {"order": 1.0, "decay": 0.9, "rate": 0.1}),
        (Direction.REMOVE, "many_bands_above", {"order": 2.0, "decay": 0.91, "rate": 0.1}),
        (Direction.REMOVE, "many_bands_above", {"order": 2.0, "decay": 0.9, "rate": 0.101}),
        (Direction.REMOVE, "many_bands_above", {"order": 17.0, "decay": 0.9, "rate": 0.1}),
        (Direction.REMOVE, "many_bands_above", {"order": 2.0, "decay": 0.9, "rate": inf}),
        (Direction.REMOVE, "many_bands_below", {"rate": 1.0}),
        (Direction.ADD, "many_bands_add", {"beta": inf}),
        (Direction.REMOVE, "naive", {}),
        (Direction.ADD, "mean", {"beta": 1.0}),
    ],
)
def test_other_proposals_are_refused(direction: Direction, name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be"):
        FAMILY.build(pair_of(20, 0.1, 2.0), direction, name, parameters)


def test_parameters_come_from_short_lists() -> None:
    pair = pair_of(20, 0.1, 2.0)
    assert len(rates(pair)) <= 49
    assert FAMILY.build(pair, Direction.REMOVE, "many_bands_above", {"order": 2.0, "decay": 0.9, "rate": 0.1}).proved


def test_runs_that_are_too_long_are_refused() -> None:
    assert FAMILY.refusal(pair_of(2048, 0.01, 4.0), Side.LOWER) is None
    assert str(MAX_ENTRIES) in str(FAMILY.refusal(pair_of(2049, 0.01, 4.0), Side.LOWER))
    assert "without subsampling" in str(FAMILY.refusal(pair_of(20, 1.0, 4.0), Side.UPPER))


def test_no_upper_bound_is_proposed_where_the_chain_proves_nothing() -> None:
    flat = pair_of(200, 0.1, 2.0, slowness=0.0)
    assert [one.sides for one in proposals(flat, Direction.REMOVE, 1.0)] == [(Side.LOWER,)]


def test_a_whole_curve_has_both_sides() -> None:
    options = hs.MonteCarlo(seed=2, failure_probability=1e-9, ratio=1.0)
    curve = CurveEstimation(pair_of(13, 0.05, 3.0), hs.Question(delta=1e-2), options, hs.Deadline(), work=0.3)
    curve.sample()
    for level in {one.run.nodes[-1].epsilon for one in curve.tallies if one.run.direction is Direction.REMOVE}:
        assert curve.profiles(Side.UPPER)[Direction.REMOVE](level) < 1.0
        assert curve.profiles(Side.LOWER)[Direction.REMOVE](level) > 0.0
    spent = sum(node.failure for one in curve.tallies for node in one.run.nodes)  # all nodes have to hold
    assert spent <= 1e-9 * (1.0 + 1e-12)


def test_parameters_that_rounding_ruins_prove_nothing() -> None:
    flat = pair_of(200, 0.1, 0.5, slowness=0.0)
    above = ManyBandsAbove(direction=Direction.REMOVE, pair=flat, order=16, decay=0.8, rate=rates(flat)[0])
    assert above.loss_error > 1e3
    assert above.drawn_bound(Side.UPPER, 1.0) == inf


def test_a_certificate_has_both_sides_and_can_be_verified() -> None:
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=13),
        sampler=hs.Poisson(sampling_prob=0.02, steps=24),
        noise_multiplier=2.0,
    )
    options = hs.MonteCarlo(seed=1, failure_probability=1e-3, ratio=1.0)
    found = hs.certify(run, delta=1e-2, method="monte_carlo", budget=20.0, monte_carlo=options)
    assert found.method.upper == "monte_carlo"
    assert {one.run.proposal for one in found.monte_carlo.runs} >= {"many_bands_above", "many_bands_below"}
    hs.verify(found)
