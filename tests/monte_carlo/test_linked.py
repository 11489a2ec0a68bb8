"""Tuples of histories drawn by links in trees: chances against enumeration, and bounds against the truth."""

import pickle
from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest
from history_oracle import assert_same, chances_of, histories, interval, whole_of
from wide_cases import columns, pair_of

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.laws.coins import tails
from hockeystick.monte_carlo.far.limits import BLOCKS, TAILS, Limits, fewest
from hockeystick.monte_carlo.far.linked import (
    OUTSIDE,
    Linked,
    Trees,
    best_linked,
    caps_of,
    coins_of,
    law_of_coins,
    log_norm,
    most_below,
    served,
    trees_of,
)
from hockeystick.monte_carlo.far.linked_kernels import (
    LinkedHistories,
    draw_history,
    draw_linked_tuple,
    draw_owners,
    work_of,
)
from hockeystick.monte_carlo.far.proposals import rates
from hockeystick.monte_carlo.far.subjects import columns_for
from hockeystick.monte_carlo.renewal.family import FAMILY
from hockeystick.monte_carlo.weighing import OTHER_SHARE, TILTED_SHARE
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.pairs.renewal_kernels import availability
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side


def tree_pair(
    steps: int, min_sep: int, prob: float, sigma: float, leaves: int = 0, warm: bool = True
) -> RenewalMixture:
    return RenewalMixture(
        noise_multiplier=sigma,
        matrix=TreeMatrix(leaves or 1 << (steps - 1).bit_length(), steps),
        min_sep=min_sep,
        participation_prob=prob,
        warm_start=warm,
    )


SMALL = [
    tree_pair(6, 2, 0.3, 5.0),
    tree_pair(6, 2, 0.3, 5.0, warm=False),
    tree_pair(7, 3, 0.2, 4.0),
    tree_pair(6, 3, 0.3, 3.0, leaves=2),
    tree_pair(4, 6, 0.2, 2.5),
]
"""One with trees of two leaves; in the last one an example takes part once, and may wait beyond the end."""
ALONE = tree_pair(4, 2, 0.3, 1.3, leaves=1)
"""Only participations at one opportunity have something in common: links are between different copies."""
STRONG = [tree_pair(7, 2, 0.15, 1.8), tree_pair(7, 3, 0.15, 1.8)]
"""With many links."""


def of(pair: RenewalMixture, order: int, rate: float = 0.0) -> Linked:
    own = columns(pair)
    return Linked(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        rate=rate or rates(own)[0],
        block=BLOCKS[0],
        limit=fewest(own, BLOCKS[0], TAILS[4]),
    )


def trees(pair: RenewalMixture) -> Trees:
    forest = trees_of(pair)
    assert forest is not None
    return forest


def in_common(pair: RenewalMixture, counts: np.ndarray) -> np.ndarray:
    """From all pairs of participations, by the columns of the matrix."""
    whole = pair.matrix.materialize() / pair.noise_multiplier
    gram = whole.T @ whole
    off = gram - np.diag(np.diag(gram))
    return 0.5 * np.einsum("iu,uv,iv->i", counts, off, counts) + 0.5 * (counts * (counts - 1.0)) @ np.diag(gram)


def weights(pair: RenewalMixture, order: int, waiting: bool) -> dict[tuple[float, ...], float]:
    """By counts: the chances of all tuples, of histories that wait or of coins that do not, times ``e^S``."""
    own = columns(pair)
    chosen = histories(own)
    if waiting:
        chances = chances_of(own, chosen)
    else:
        chances = own.law.prob ** chosen.sum(axis=1) * (1.0 - own.law.prob) ** (own.steps - chosen.sum(axis=1))
    by_counts: dict[tuple[float, ...], float] = {(0.0,) * own.steps: 1.0}
    for _ in range(order):
        more: dict[tuple[float, ...], float] = {}
        for (counts, chance), (history, part) in product(by_counts.items(), zip(chosen, chances, strict=True)):
            if part > 0.0:
                key = tuple(np.add(counts, history))
                more[key] = more.get(key, 0.0) + chance * part
        by_counts = more
    common = in_common(pair, np.array(list(by_counts)))
    return {key: chance * exp(both) for (key, chance), both in zip(by_counts.items(), common, strict=True)}


@pytest.mark.parametrize("pair", SMALL)
@pytest.mark.parametrize("order", [2, 3])
def test_the_norm_is_the_sum_over_all_coins(pair: RenewalMixture, order: int) -> None:
    exact = log(sum(weights(pair, order, waiting=False).values()))
    limit = Limits(BLOCKS[0], fewest(columns(pair), BLOCKS[0], TAILS[4]))
    norm = log_norm(columns(pair), trees(pair), order, most_below(columns(pair), trees(pair), limit))
    assert exact <= norm <= exact + 1e-6


@pytest.mark.parametrize("pair", SMALL)
def test_what_two_steps_have_in_common_is_no_less_in_the_forest(pair: RenewalMixture) -> None:
    own, steps = columns(pair), pair.matrix.steps
    shared = np.zeros((steps, steps))
    start = 0
    for size in trees(pair).sizes:
        for height in range(size.bit_length()):
            node = (np.arange(start, start + size) - start) >> height
            shared[start : start + size, start : start + size] += node[:, None] == node[None, :]
        start += size
    gram = whole_of(own).T @ whole_of(own)
    assert start == steps
    assert (trees(pair).link * shared >= gram).all()
    np.testing.assert_allclose(trees(pair).link * shared, gram, atol=1e-7)


@pytest.mark.parametrize(
    ("pair", "order"),
    [
        *product([*SMALL, ALONE, *STRONG], [2]),
        *(
            pytest.param(pair, 3, marks=() if place % 2 else pytest.mark.weekly)
            for place, pair in enumerate([*SMALL, ALONE])
        ),
    ],
)
def test_tuples_are_kept_with_their_weight(pair: RenewalMixture, order: int) -> None:
    """Of those that wait, over the sum of those that do not; each within 6.2 standard errors."""
    own, rng, drawn = columns(pair), np.random.default_rng(3), 40_000
    *_, splits, roots = law_of_coins(own, trees(pair), order, most_below(own, trees(pair), Limits(1, 1))).arrays
    free = [availability(own.steps, own.law.min_sep, own.law.prob, at) for at in (own.law.start, np.ones(1))]
    forest = trees(pair).levels, splits, roots, trees(pair).link
    law = own.law.prob, own.law.min_sep, own.law.start, *free
    source, counts = LinkedHistories(law, forest, order, work_of(own.steps, order)), np.empty(own.steps)
    picked: dict[tuple[float, ...], int] = {}
    for _ in range(drawn):
        if draw_linked_tuple(rng, own.overlaps, own.law.edges, source, counts):
            picked[tuple(counts)] = picked.get(tuple(counts), 0) + 1
    exact = weights(pair, order, waiting=True)
    norm = sum(weights(pair, order, waiting=False).values())
    assert set(picked) <= set(exact)
    kept = sum(exact.values()) / norm
    assert kept >= 0.02
    assert abs(sum(picked.values()) / drawn - kept) <= 6.2 * sqrt(kept * (1.0 - kept) / drawn)
    for counts_of_one, weight in exact.items():
        chance = weight / norm
        assert abs(picked.get(counts_of_one, 0) / drawn - chance) <= 6.2 * sqrt(chance / drawn) + 4.0 / drawn


@pytest.mark.parametrize("pair", SMALL)
def test_histories_are_drawn_given_that_they_contain_some_participations(pair: RenewalMixture) -> None:
    own, rng, drawn = columns(pair), np.random.default_rng(7), 10_000
    chosen = histories(own)
    chances = chances_of(own, chosen)
    free = [availability(own.steps, own.law.min_sep, own.law.prob, at) for at in (own.law.start, np.ones(1))]
    law = own.law.prob, own.law.min_sep, own.law.start, *free
    for times in ([], [0], [own.steps // 2], [own.steps - 1], [1, own.steps - 1], [0, 2, 5]):
        linked = np.array([participation for participation in times if participation < own.steps], dtype=np.int64)
        within = np.where((chosen[:, linked] == 1.0).all(axis=1), chances, 0.0)
        owners = np.zeros(linked.size, dtype=np.int64)
        kept = draw_owners(rng, linked, 1, law, owners)
        assert kept * own.law.prob**linked.size == pytest.approx(within.sum(), rel=1e-12, abs=1e-300)
        if kept == 0.0:
            continue
        observed = np.zeros(chances.size)
        for _ in range(drawn):
            counts = np.zeros(own.steps)
            draw_history(rng, linked, owners, 0, law, counts)
            observed[int((chosen == counts).all(axis=1).argmax())] += 1.0
        expected = within / within.sum()
        assert (np.abs(observed / drawn - expected) <= 6.2 * np.sqrt(expected / drawn) + 4.0 / drawn).all()


@pytest.mark.parametrize("pair", SMALL)
def test_tables_have_room_for_coins_beside_those_of_any_tuple(pair: RenewalMixture) -> None:
    own, order, limit = columns(pair), 3, Limits(2, 1)
    caps = caps_of(own, trees(pair), order, most_below(own, trees(pair), limit))
    assert caps is not None
    forest, outside = coins_of(own, trees(pair)), 0.0
    for height, (cap, nodes) in enumerate(zip(caps, forest.nodes_at.tolist(), strict=True)):
        leaves = 1 << height
        within = histories(own)[:, :leaves]
        within = within[chances_of(own, histories(own)) > 0.0]
        pairs = np.add.reduceat(within, np.arange(0, within.shape[1], 2), axis=1)
        most = order * int(within[(pairs <= 1).all(axis=1)].sum(axis=1).max())
        room = min(cap, order * leaves) - most
        assert room >= 0 or cap == order * leaves
        outside += nodes * float(tails(own.law.prob, order * leaves)[room]) if cap < order * leaves else 0.0
        assert height == 0 or cap <= 2 * caps[height - 1]
    assert outside <= OUTSIDE


def test_room_that_is_left_out_is_that_of_rare_coins() -> None:
    pair = tree_pair(1000, 16, 0.0143, 50.0)
    own, limit = columns(pair), Limits(16, 1)
    each = most_below(own, trees(pair), limit)
    caps = caps_of(own, trees(pair), 8, each)
    assert caps is not None
    outside = 0.0
    for height, cap in enumerate(caps):
        leaves, nodes = 1 << height, int(coins_of(own, trees(pair)).nodes_at[height])
        beside = cap - 8 * -(-leaves // 16)
        assert beside > 0 or cap == 8 * leaves
        if cap < 8 * leaves and cap < 2 * caps[height - 1]:
            outside += nodes * float(tails(own.law.prob, 8 * leaves)[beside])
    assert 0.0 < outside <= OUTSIDE
    assert caps_of(own, trees(pair), 40, each) is None


@pytest.mark.parametrize("pair", SMALL)
@pytest.mark.parametrize("order", [2, 4])
def test_the_upper_bound_stays_above_the_truth(pair: RenewalMixture, order: int) -> None:
    """The truth is a mean of exact ratios, within 6.2 standard errors."""
    own, rng, epsilon = columns(pair), np.random.default_rng(5), 0.3
    chosen = histories(own)
    chances, means = chances_of(own, chosen), chosen @ whole_of(own).T
    picked = rng.choice(chances.size, size=4000, p=chances / chances.sum())
    y = rng.standard_normal((4000, own.steps)) + means[picked]
    ratios = np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ chances
    truth = np.maximum(1.0 - exp(epsilon) / ratios, 0.0)
    error = 6.2 * truth.std() / sqrt(truth.size)
    low, high = interval(of(pair, order, rate=min(rates(own), key=lambda rate: abs(rate - 0.6))), epsilon, 40000, 6)
    assert high >= truth.mean() - error
    assert low <= truth.mean() + error  # nothing is missing from the density


def test_tuples_are_given_up_as_often_as_coins_weigh_more() -> None:
    pair = SMALL[0]
    kept = sum(weights(pair, 3, waiting=True).values()) / sum(weights(pair, 3, waiting=False).values())
    assert 0.02 < kept < 0.9
    log_weights, losses = np.empty(40000), np.empty(40000)
    of(pair, 3).draw(np.random.default_rng(12), log_weights, losses)
    given_up, chance = (losses == -ENDLESS).mean(), TILTED_SHARE * (1.0 - OTHER_SHARE) * (1.0 - kept)
    assert abs(given_up - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / losses.size)


def test_both_sides_are_close() -> None:
    pair, epsilon = tree_pair(100, 4, 0.05, 20.0), 0.3
    proposals = {proposal.name: proposal for proposal in FAMILY.propose(pair, Direction.REMOVE, epsilon)}
    assert set(proposals) == {"far_below", "far_linked"}
    low = interval(proposals["far_below"], epsilon, 60_000, 3)
    high = interval(proposals["far_linked"], epsilon, 60_000, 4)
    assert high[1] >= low[0]
    assert high[0] <= 1.05 * low[1]


def test_it_is_built_again_from_its_parameters_and_nothing_else_is() -> None:
    pair = tree_pair(100, 4, 0.05, 20.0)
    proposal = next(
        candidate for candidate in FAMILY.propose(pair, Direction.REMOVE, 0.3) if candidate.name == "far_linked"
    )
    again = FAMILY.build(pair, proposal.direction, proposal.name, proposal.parameters)
    for copy in (again, pickle.loads(pickle.dumps(proposal))):
        assert_same(proposal, copy)
    for change in ({"order": 1.0}, {"order": 41.0}, {"rate": 0.123}, {"limit": 99.0}, {"block": 17.0}):
        with pytest.raises(InvalidInputError):
            FAMILY.build(pair, proposal.direction, proposal.name, {**proposal.parameters, **change})
    other = pair_of(100, 4, 0.05, 20.0)
    with pytest.raises(InvalidInputError):
        FAMILY.build(other, proposal.direction, proposal.name, proposal.parameters)


def test_what_random_numbers_are_too_coarse_for_is_left_to_others() -> None:
    for pair in (tree_pair(32, 4, 1e-7, 5.0), tree_pair(32, 4, 0.05, 1e5)):
        own = columns_for(pair, Side.UPPER)
        assert not served(own, trees(pair))
        assert best_linked(own, trees(pair), 0.3) is None
        assert not of(pair, 2).proved


@pytest.mark.parametrize("pair", SMALL[:4])
def test_columns_that_have_more_in_common_than_the_trees_are_left_to_others(pair: RenewalMixture) -> None:
    own, sizes, sigma = columns(pair), trees(pair).sizes, trees(pair).sigma
    assert served(own, trees(pair))
    for other in (Trees(sizes, sigma * (1.0 + 1e-8)), Trees((1,) * own.steps, sigma), Trees(sizes[:-1], sigma)):
        assert not served(own, other)
    assert served(own, Trees(sizes, sigma * (1.0 - 1e-8)))


def test_a_certificate_that_rests_on_links_can_be_verified() -> None:
    sampler = hs.BMinSep(min_sep=4, sampling_prob=0.04, steps=60)
    run = hs.Mechanism(strategy=hs.BinaryTree(), sampler=sampler, noise_multiplier=10.0)
    options = hs.MonteCarlo(seed=1, failure_probability=1e-6, ratio=0.1)
    certificate = hs.certify(run, delta=1e-4, method="monte_carlo", monte_carlo=options)
    assert certificate.monte_carlo is not None
    assert "far_linked" in {claimed.run.proposal for claimed in certificate.monte_carlo.runs}
    assert certificate.bounds.lower is not None
    assert certificate.bounds.lower <= certificate.bounds.upper <= 1.05 * certificate.bounds.lower
    hs.verify(certificate)
