"""Poisson sampling with binary trees: the ratio, the counts of copies and the proposals against sums over histories."""

import pickle
from itertools import product
from math import comb, exp, inf, log, sqrt

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.moments.copies.trees import Forest, costs_of, counts_of
from hockeystick.monte_carlo.confidence import betting_lower, betting_upper
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.subsets.family import FAMILY
from hockeystick.monte_carlo.subsets.trees import TreesAbove, TreesAdd, TreesBelow, forest_of, tree_proposals
from hockeystick.monte_carlo.tree_kernels import add_counts, add_participations, log_forest
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.visits import binomial
from hockeystick.types import Direction, Side

FAILURE = 1e-9
"""Of each interval; there are some twenty of them, so all tests together fail by chance with probability 1e-7."""


def pair_of(steps: int, prob: float, sigma: float, coins: int = 1, height: int | None = None) -> SubsetMixture:
    """A tree over all steps, or trees of a height; of a user with so many examples."""
    run = hs.Mechanism(
        strategy=hs.BinaryTree() if height is None else hs.TreeRestart(height=height),
        sampler=hs.Poisson(sampling_prob=prob, steps=steps),
        unit=hs.Unit(kind="user", examples_per_user=coins) if coins > 1 else hs.Unit(),
        noise_multiplier=sigma,
    )
    pair = dominating_pair(run).members[0]
    assert isinstance(pair, SubsetMixture)
    return pair


CASES = [
    pair_of(7, 0.2, 2.0),
    pair_of(8, 0.1, 1.3),
    pair_of(4, 0.15, 2.0, coins=2),
    pair_of(7, 0.2, 1.5, height=2),
    pair_of(5, 0.1, 2.5, coins=3, height=3),
]
"""Of seven steps the trees have four, two and one leaves."""


def forest(pair: SubsetMixture) -> Forest:
    grown = forest_of(pair)
    assert grown is not None
    return grown


def below_nodes(own: Forest) -> np.ndarray:
    """Which leaves are below each node, in the kernels' order; shape (nodes, leaves)."""
    rows, first = [], 0
    for level in own.levels.tolist():
        for height in range(level + 1):
            for node in range(1 << (level - height)):
                row = np.zeros(int(own.sizes.sum()))
                row[first + (node << height) : first + ((node + 1) << height)] = 1.0
                rows.append(row)
        first += 1 << level
    return np.array(rows)


def heights(own: Forest) -> np.ndarray:
    """The level of each node."""
    return np.log2(below_nodes(own).sum(axis=1)).astype(int)


def histories(own: Forest, copies: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of participations below the nodes, of so many copies together, and their chances."""
    coins = copies * own.coins
    chosen = np.array(list(product(range(coins + 1), repeat=int(own.sizes.sum()))))
    ways = np.array([comb(coins, number) for number in range(coins + 1)], dtype=float)
    taken = chosen.sum(axis=1)
    chances = ways[chosen].prod(axis=1) * own.prob**taken * (1.0 - own.prob) ** (coins * chosen.shape[1] - taken)
    return chosen @ below_nodes(own).T, chances


def ratio(own: Forest, y: np.ndarray, caps: np.ndarray) -> float:
    """X_A by the sum over all histories of A."""
    counts, chances = histories(own)
    inside = (counts <= caps[heights(own)]).all(axis=1)
    exponents = own.scale * counts[inside] @ y - 0.5 * own.scale**2 * np.square(counts[inside]).sum(axis=1)
    return float(np.exp(exponents) @ chances[inside])


def found_ratio(own: Forest, y: np.ndarray, caps: np.ndarray) -> float:
    work = np.empty((2, int(own.sizes.max()), int(caps.max()) + 1))
    costs = costs_of(own, 1, int(caps.max()))
    return log_forest(y, own.levels, own.scale, binomial(own.coins, own.prob), costs, caps, work)


def all_caps(own: Forest) -> np.ndarray:
    return own.coins << np.arange(own.nodes_at.size)


@pytest.mark.parametrize("pair", CASES)
def test_a_forest_has_the_inner_products_of_the_matrix(pair: SubsetMixture) -> None:
    own, whole = forest(pair), pair.step_matrix.materialize()
    nodes = below_nodes(own)
    np.testing.assert_allclose(own.scale**2 * nodes.T @ nodes, whole.T @ whole / pair.noise_multiplier**2, rtol=1e-14)
    assert own.nodes == len(nodes)
    np.testing.assert_array_equal(own.nodes_at, np.bincount(heights(own)))
    np.testing.assert_allclose(own.mean, own.scale * own.coins * own.prob * nodes.sum(axis=1))
    counts, chances = histories(own)
    squared_mean, mean_square = own.moments
    assert squared_mean == pytest.approx(own.scale**2 * float(np.square(chances @ counts).sum()))
    assert mean_square == pytest.approx(own.scale**2 * float(chances @ np.square(counts).sum(axis=1)))


@pytest.mark.parametrize("pair", CASES)
def test_the_ratio_is_the_sum_over_all_histories(pair: SubsetMixture) -> None:
    own, rng = forest(pair), np.random.default_rng(1)
    every = all_caps(own)
    for caps in (every, np.minimum(every, 2), np.minimum(every, 1)):
        for shift in (0.0, 1.0, 3.0, -2.0):
            y = rng.normal(shift, 1.0, own.nodes)
            assert found_ratio(own, y, caps) == pytest.approx(log(ratio(own, y, caps)), abs=1e-12)


@pytest.mark.parametrize("pair", CASES)
@pytest.mark.parametrize("tail", [0.3, 1e-2, 1e-5])
def test_other_histories_have_at_most_the_chance_that_is_charged(pair: SubsetMixture, tail: float) -> None:
    own = forest(pair)
    caps = own.caps(tail)
    counts, chances = histories(own)
    others = chances[(counts > caps[heights(own)]).any(axis=1)].sum()
    assert others <= own.chance_of_others(caps) + 1e-14
    assert own.chance_of_others(caps) <= tail
    assert (caps >= 1).all()
    assert (caps[1:] <= 2 * caps[:-1]).all()


@pytest.mark.parametrize("pair", [*CASES[:1], *CASES[2:4]])
@pytest.mark.parametrize("most", [1, 2])
def test_counts_of_copies_weigh_no_less_than_their_tuples(pair: SubsetMixture, most: int) -> None:
    """For two copies, history by history, and the sum of all weights."""
    own = forest(pair)
    caps = np.minimum(all_caps(own), most)
    law = counts_of(own, 2, tuple((2 * caps).tolist()))
    counts, chances = histories(own)
    inside = (counts <= caps[heights(own)]).all(axis=1)
    counts, chances = counts[inside], chances[inside]
    wanted: dict[tuple[float, ...], float] = {}
    for first, other in product(range(len(counts)), repeat=2):
        weight = chances[first] * chances[other] * exp(own.scale**2 * float(counts[first] @ counts[other]))
        both = tuple(counts[first] + counts[other])
        wanted[both] = wanted.get(both, 0.0) + weight
    both, total = histories(own, 2), 0.0
    for numbers, chance in zip(*both, strict=True):
        if (numbers <= 2 * caps[heights(own)]).all():
            weight = chance * exp(
                0.5 * own.scale**2 * float((numbers**2 - np.maximum(numbers, numbers**2 / 2.0)).sum())
            )
            assert weight >= wanted.get(tuple(numbers), 0.0) * (1.0 - 1e-12)
            total += weight
    assert exp(law.log_norm) == pytest.approx(total, rel=1e-12)
    # and the density of outputs, relative to Q, is at least the square of the ratio over that sum
    leaf, costs, limits, _, _ = law.arrays
    work = np.empty((2, int(own.sizes.max()), costs.size))
    rng = np.random.default_rng(2)
    for _ in range(20):
        y = rng.normal(1.0, 1.5, own.nodes)
        density = log_forest(y, own.levels, own.scale, leaf, costs, limits, work)
        assert density >= 2.0 * found_ratio(own, y, caps) - 1e-12
        numbers, weights = both
        kept = (numbers <= 2 * caps[heights(own)]).all(axis=1)
        numbers, weights = numbers[kept], weights[kept]
        exponents = own.scale * numbers @ y - 0.5 * own.scale**2 * np.maximum(numbers, numbers**2 / 2.0).sum(axis=1)
        assert density == pytest.approx(log(float(np.exp(exponents) @ weights)), abs=1e-12)


def test_counts_are_drawn_with_their_chances() -> None:
    own, drawn = forest(pair_of(3, 0.3, 1.0)), 40000
    law = counts_of(own, 2, (2, 3))
    numbers, chances = histories(own, 2)
    kept = (numbers <= np.array([2, 3])[heights(own)]).all(axis=1)
    numbers, chances = numbers[kept], chances[kept]
    boosts = numbers**2 - np.maximum(numbers, numbers**2 / 2.0)
    weights = chances * np.exp(0.5 * own.scale**2 * boosts.sum(axis=1))
    picked: dict[tuple[float, ...], int] = {}
    rng, counts = np.random.default_rng(3), np.zeros(4, dtype=np.int64)
    for _ in range(drawn):
        y = np.zeros(own.nodes)
        add_counts(rng, own.levels, 1.0, law.arrays[3], law.arrays[4], y, counts)
        picked[tuple(y)] = picked.get(tuple(y), 0) + 1
    assert set(picked) <= set(map(tuple, numbers))
    for vector, chance in zip(numbers, weights / weights.sum(), strict=True):
        error = 6.2 * sqrt(chance * (1.0 - chance) / drawn) + 1e-9
        assert abs(picked.get(tuple(vector), 0) / drawn - chance) <= error


def test_participations_are_drawn_given_the_caps() -> None:
    own, drawn = forest(pair_of(4, 0.4, 1.0)), 20000
    caps = np.array([1, 1, 2])
    rng, counts, y = np.random.default_rng(4), np.zeros(8, dtype=np.int64), np.zeros(own.nodes)
    roots = np.zeros(3)
    for _ in range(drawn):
        y[:] = 0.0
        add_participations(rng, own.levels, 1.0, binomial(own.coins, own.prob), caps, y, counts)
        assert (y <= caps[heights(own)]).all()
        roots[int(y[-1])] += 1.0
    numbers, chances = histories(own)
    inside = (numbers <= caps[heights(own)]).all(axis=1)
    for number in range(3):
        chance = chances[inside & (numbers[:, -1] == number)].sum() / chances[inside].sum()
        assert abs(roots[number] / drawn - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / drawn)


def test_what_leaves_the_range_of_doubles_is_not_a_number() -> None:
    own = forest(pair_of(8, 0.1, 0.5))
    caps = all_caps(own)
    assert np.isnan(found_ratio(own, np.full(own.nodes, -200.0), caps))
    leaf = forest(pair_of(1, 1.0 - 2.0**-53, 1.0 / 38.58))  # the factor of a participation loses digits, not its term
    assert np.isnan(found_ratio(leaf, np.array([18.39]), all_caps(leaf)))
    assert np.isnan(found_ratio(own, np.full(own.nodes, 400.0), caps))
    assert np.isfinite(found_ratio(own, np.full(own.nodes, 5.0), caps))


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


@pytest.mark.parametrize("pair", CASES)
def test_each_side_holds_the_truth_and_is_close_to_it(pair: SubsetMixture) -> None:
    """The truth is a mean of exact ratios, within 6.2 standard errors."""
    own, rng, epsilon = forest(pair), np.random.default_rng(5), 0.7
    counts, chances = histories(own)
    means = own.scale * counts
    noise = rng.standard_normal((4000, own.nodes))
    shifted = noise + means[rng.choice(chances.size, size=len(noise), p=chances / chances.sum())]

    def ratios(y: np.ndarray) -> np.ndarray:
        return np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ chances

    remove = np.maximum(1.0 - exp(epsilon) / ratios(shifted), 0.0)
    add = np.maximum(1.0 - exp(epsilon) * ratios(noise), 0.0)
    tail = 1e-6
    below = TreesBelow(direction=Direction.REMOVE, pair=pair, reach=2, tail=tail)
    above = TreesAbove(direction=Direction.REMOVE, pair=pair, order=2, reach=2, tail=tail)
    other = TreesAdd(direction=Direction.ADD, pair=pair, beta=1.0, tail=tail)
    for values, lower, upper in ((remove, below, above), (add, None, other)):
        error = 6.2 * values.std() / sqrt(values.size)
        least, most = values.mean() - error, values.mean() + error
        low, high = interval(upper, epsilon, 20000, 6)
        assert low <= most
        assert high >= least
        if lower is not None:
            low, high = interval(lower, epsilon, 20000, 7)
            assert low <= most
            assert high >= least  # nothing but rare histories is left out


def test_the_samples_that_stand_for_other_histories_have_their_chance() -> None:
    pair = pair_of(20, 0.1, 2.0)
    above = TreesAbove(direction=Direction.REMOVE, pair=pair, order=2, reach=2, tail=1e-4)
    log_weights, losses = np.empty(40000), np.empty(40000)
    above.draw(np.random.default_rng(10), log_weights, losses)
    values = -np.exp(log_weights) * np.expm1(np.minimum(60.0 - losses, 0.0))  # no other sample has such a loss
    charged = forest(pair).chance_of_others(above.caps)
    assert abs(values.mean() - charged) <= 6.2 * values.std() / sqrt(values.size)
    assert values.max() <= above.weight_bound(60.0)


@pytest.mark.parametrize("coins", [1, 2])
def test_what_the_family_proposes_is_built_again_from_its_parameters(coins: int) -> None:
    pair = pair_of(60, 0.02 / coins, 8.0, coins=coins)
    proposals = [*FAMILY.propose(pair, Direction.REMOVE, 1.0), *FAMILY.propose(pair, Direction.ADD, 1.0)]
    assert [proposal.name for proposal in proposals] == ["trees_below", "trees_above", "trees_add"]
    assert [proposal.sides for proposal in proposals] == [(Side.LOWER,), (Side.UPPER,), (Side.UPPER,)]
    for proposal in proposals:
        again = FAMILY.build(pair, proposal.direction, proposal.name, proposal.parameters)
        for copy in (again, pickle.loads(pickle.dumps(proposal))):
            drawn = []
            for each in (proposal, copy):
                log_weights, losses = np.empty(16), np.empty(16)
                each.draw(np.random.default_rng(8), log_weights, losses)
                drawn.append(np.concatenate([log_weights, losses]))
            np.testing.assert_array_equal(*drawn)
            assert 0.0 < copy.loss_error < 1e-6
            assert copy.weight_bound(1.0) == proposal.weight_bound(1.0)


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (Direction.REMOVE, "trees_above", {"order": 1.0, "reach": 3.0, "tail": 1e-6}),
        (Direction.REMOVE, "trees_above", {"order": 41.0, "reach": 3.0, "tail": 1e-6}),
        (Direction.REMOVE, "trees_above", {"order": 2.0, "reach": 1.0, "tail": 1e-6}),
        (Direction.REMOVE, "trees_above", {"order": 2.0, "reach": 3.0, "tail": 2e-6}),
        (Direction.REMOVE, "trees_below", {"reach": 41.0, "tail": 1e-6}),
        (Direction.ADD, "trees_add", {"beta": inf, "tail": 1e-6}),
        (Direction.REMOVE, "far_below", {"rate": 1.0}),
    ],
)
def test_other_proposals_are_refused(direction: Direction, name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be"):
        FAMILY.build(pair_of(20, 0.1, 2.0), direction, name, parameters)


def test_groups_and_full_sampling_have_no_forest() -> None:
    tree = hs.BinaryTree()
    groups = hs.Mechanism(
        strategy=tree, sampler=hs.CyclicPoisson(groups=2, sampling_prob=0.1, steps=8), noise_multiplier=2.0
    )
    pair = dominating_pair(groups)
    assert isinstance(pair, SubsetMixture)
    assert forest_of(pair) is None
    assert forest_of(pair_of(8, 1.0, 2.0)) is None
    assert "without subsampling" in str(FAMILY.refusal(pair_of(8, 1.0, 2.0), Side.UPPER))
    banded = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.1, steps=8), noise_multiplier=2.0
    )
    pair = dominating_pair(banded)
    assert isinstance(pair, SubsetMixture)
    assert forest_of(pair) is None


def test_a_tree_over_a_thousand_steps_has_an_m_of_a_few_deltas() -> None:
    """At the epsilon at which the mean of Y is near 1e-5, M is about ten times as much."""
    pair = pair_of(1000, 0.01, 21.5)
    below, above = tree_proposals(pair, Direction.REMOVE, 1.67)
    log_weights, losses = np.empty(4000), np.empty(4000)
    below.draw(np.random.default_rng(1), log_weights, losses)
    mean = float((-np.exp(log_weights) * np.expm1(np.minimum(1.67 - losses, 0.0))).mean())
    assert 5e-6 < mean < 5e-5
    assert above.weight_bound(1.67) <= 30.0 * mean


def test_a_certificate_has_both_sides_and_can_be_verified() -> None:
    run = hs.Mechanism(strategy=hs.BinaryTree(), sampler=hs.Poisson(sampling_prob=0.02, steps=40), noise_multiplier=8.0)
    options = hs.MonteCarlo(seed=1, failure_probability=1e-6, ratio=0.3)
    certificate = hs.certify(run, delta=1e-4, method="monte_carlo", monte_carlo=options)
    assert certificate.method.upper == "monte_carlo"
    assert certificate.bounds.lower is not None
    assert certificate.bounds.upper <= 1.05 * certificate.bounds.lower
    assert {claimed.run.proposal for claimed in certificate.monte_carlo.runs} >= {"trees_above", "trees_below"}
    hs.verify(certificate, evidence=options.ledger)


def test_many_participations_are_left_to_many_bands() -> None:
    """Tables have the square of the counts; nothing of the size of the first is even begun."""
    for many in (pair_of(2048, 0.5, 300.0, coins=6), pair_of(600, 0.4, 100.0)):
        assert forest_of(many) is None
        assert not any(kind.name.startswith("trees") for kind in FAMILY.propose(many, Direction.ADD, 1.0))
    some = pair_of(500, 0.2, 80.0)  # some 100 participations
    below, *_ = tree_proposals(some, Direction.REMOVE, 4.0)
    log_weights, losses = np.empty(2000), np.empty(2000)
    below.draw(np.random.default_rng(1), log_weights, losses)
    values = -np.exp(log_weights) * np.expm1(np.minimum(4.0 - losses, 0.0))
    assert (values > 0.0).mean() > 0.2


def test_outputs_that_are_no_numbers_choose_no_far_counts() -> None:
    for noisy in (pair_of(64, 0.05, 0.5), pair_of(256, 0.3, 3.0)):
        for proposal in tree_proposals(noisy, Direction.REMOVE, 1.0):
            assert proposal.proved


def test_a_leaf_may_have_no_other_histories() -> None:
    """The samples that stand for them then have values near the end of the doubles, and nothing may come of that."""
    run = hs.Mechanism(
        strategy=hs.TreeRestart(height=1),
        sampler=hs.Poisson(sampling_prob=0.01, steps=3),
        unit=hs.Unit(kind="user", examples_per_user=3),
        noise_multiplier=4.074337634341656,
    )
    options = hs.MonteCarlo(seed=21, failure_probability=1e-6, ratio=1.0)
    certificate = hs.certify(run, delta=0.00295, method="monte_carlo", budget=15.0, monte_carlo=options)
    assert certificate.bounds.upper < 1.0
