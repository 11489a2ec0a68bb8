"""Random allocation with correlated noise: the kernels against enumeration, and bounds against the truth."""

import pickle
from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest
from history_oracle import assert_same, drawn_histories, interval, mean_field, whole_of

import hockeystick as hs
from hockeystick.bounds import Question
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.aims import CostlyBound
from hockeystick.monte_carlo.estimation import Estimation
from hockeystick.monte_carlo.far.chains import chain_of
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.family import FAMILY
from hockeystick.monte_carlo.far.kept_counts import draw_kept_counts, law_of
from hockeystick.monte_carlo.far.limits import Limits, greatest_field, longest
from hockeystick.monte_carlo.far.linked import Linked, caps_of, coins_of, law_of_coins, most_below, trees_of
from hockeystick.monte_carlo.far.linked_kernels import LinkedVisits, draw_linked_visits, work_of
from hockeystick.monte_carlo.far.proposals import Add, Below, Counted, rates
from hockeystick.monte_carlo.far.subjects import columns_for
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.settings import MonteCarlo
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side


def pair_of(matrix: StrategyMatrix, bins: int, sigma: float) -> FreshBins:
    return FreshBins(noise_multiplier=sigma, matrix=matrix, bins=bins)


def slow(steps: int) -> ToeplitzMatrix:
    return ToeplitzMatrix((1.0 + np.arange(steps)) ** -0.4, steps)


UNLIKE = np.tril(np.random.default_rng(1).uniform(0.1, 1.0, (6, 6)))
"""Columns that all differ."""
CASES = [
    pair_of(slow(6), 3, 2.0),
    pair_of(DenseMatrix(UNLIKE), 2, 1.5),
    pair_of(DenseMatrix(np.triu(UNLIKE, -1)), 3, 0.8),
    pair_of(slow(9), 3, 4.0),
]
TREES = [
    pair_of(TreeMatrix(8, 6), 3, 4.0),
    pair_of(TreeMatrix(2, 6), 3, 2.5),
    pair_of(TreeMatrix(8, 8), 2, 5.0),
]
"""Nodes and trees reach over the ends of epochs."""


def runs(pair: FreshBins) -> np.ndarray:
    """The visits of every run, shape (bins^epochs, steps); all have the same chance."""
    steps = pair.bins * pair.epochs
    epochs = [range(first, first + pair.bins) for first in range(0, steps, pair.bins)]
    rows = np.zeros((pair.bins**pair.epochs, steps))
    for row, visits in zip(rows, product(*epochs), strict=True):
        row[list(visits)] = 1.0
    return rows


def log_ratios(pair: FreshBins, own: Columns, y: np.ndarray) -> np.ndarray:
    """``log X`` of outputs in units of sigma, shape (samples,), by the sum over all runs."""
    means = runs(pair) @ whole_of(own).T
    exponents = y @ means.T - 0.5 * np.square(means).sum(axis=1)
    top = exponents.max(axis=1)
    logs: np.ndarray = top + np.log(np.exp(exponents - top[:, None]).mean(axis=1))
    return logs


def weights(pair: FreshBins, order: int) -> dict[tuple[float, ...], float]:
    """By counts: the chances of all tuples of runs times ``e^S``, S from the matrix itself."""
    whole = pair.matrix.materialize() / pair.noise_multiplier
    gram = whole.T @ whole
    by_counts: dict[tuple[float, ...], float] = {}
    for chosen in product(runs(pair), repeat=order):
        counts = np.sum(chosen, axis=0)
        common = 0.5 * (counts @ gram @ counts - counts @ np.diag(gram))
        by_counts[tuple(counts)] = by_counts.get(tuple(counts), 0.0) + exp(common) / len(runs(pair)) ** order
    return by_counts


def counted(pair: FreshBins, order: int = 2, decay: float = 0.9) -> Counted:
    rate = rates(columns_for(pair, Side.UPPER))[2]
    return Counted(direction=Direction.REMOVE, pair=pair, order=order, decay=decay, rate=rate, block=pair.bins, limit=1)


def linked(pair: FreshBins, order: int = 2) -> Linked:
    rate = rates(columns_for(pair, Side.UPPER))[2]
    return Linked(direction=Direction.REMOVE, pair=pair, order=order, rate=rate, block=pair.bins, limit=1)


def below(pair: FreshBins) -> Below:
    return Below(direction=Direction.REMOVE, pair=pair, rate=rates(columns_for(pair, Side.LOWER))[2])


@pytest.mark.parametrize("pair", [*CASES, *TREES])
def test_the_ratio_lies_between_its_bounds(pair: FreshBins) -> None:
    """Estimates have its mean: 4,000 of them within 6.2 standard errors, for each of 12 outputs."""
    own, rng = columns_for(pair, Side.UPPER), np.random.default_rng(2)
    for scale in np.linspace(0.5, 3.0, 12):
        y = scale * rng.standard_normal(own.steps) + whole_of(own) @ runs(pair)[-1]
        z = whole_of(own).T @ y - 0.5 * own.couplings[:, 0]
        exact = float(log_ratios(pair, own, y[None])[0])
        product_of_means, logs = drawn_histories(own, z, Limits(pair.bins, 1), rng, 4000)
        assert mean_field(own, z) <= exact + 1e-12
        assert exact <= product_of_means + 1e-12
        assert logs.max() <= 1e-12
        shares = np.exp(logs)
        assert abs(shares.mean() - exp(exact - product_of_means)) <= 6.2 * shares.std() / sqrt(shares.size) + 1e-12


def test_the_mean_field_is_the_ratio_where_columns_do_not_overlap() -> None:
    pair = pair_of(ToeplitzMatrix(np.ones(1), 6), 3, 1.0)
    own = columns_for(pair, Side.UPPER)
    y = np.random.default_rng(4).standard_normal((5, 6))
    for output, exact in zip(y, log_ratios(pair, own, y), strict=True):
        z = output - 0.5
        assert mean_field(own, z) == pytest.approx(exact, abs=1e-13)
        assert drawn_histories(own, z, Limits(3, 1), np.random.default_rng(1), 1)[0] == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize(
    ("order", "decay", "pair"),
    [
        pytest.param(*law, pair, marks=pytest.mark.weekly if (row + column) % 2 else ())
        for row, law in enumerate([(2, 0.7), (2, 0.95), (3, 0.9)])
        for column, pair in enumerate(CASES)
    ],
)
def test_counts_are_kept_with_their_weight(pair: FreshBins, order: int, decay: float) -> None:
    """Each within 6.2 standard errors; the norm of the chain is no less than the sum of all weights."""
    own, rng, drawn = columns_for(pair, Side.UPPER), np.random.default_rng(5), 30_000
    chain, exact = chain_of(own, order, decay, Limits(pair.bins, 1)), weights(pair, order)
    assert chain.tables is not None
    assert log(sum(exact.values())) <= chain.log_norm
    picked: dict[tuple[float, ...], int] = {}
    counts, law = np.empty(own.steps), law_of(own.steps, chain.tables)
    nobody, shares = np.empty(0), np.empty((0, 0))
    for _ in range(drawn):
        if draw_kept_counts(rng, chain.tables, own.couplings, 1, nobody, shares, law, counts):
            picked[tuple(counts)] = picked.get(tuple(counts), 0) + 1
    assert set(picked) <= set(exact)
    norm = exp(chain.log_norm)
    assert sum(picked.values()) > 100
    for counts_of_one, weight in exact.items():
        chance = weight / norm
        assert abs(picked.get(counts_of_one, 0) / drawn - chance) <= 6.2 * sqrt(chance / drawn) + 4.0 / drawn


@pytest.mark.parametrize("pair", CASES)
def test_the_two_largest_fields_of_a_copy(pair: FreshBins) -> None:
    """Of inner products, and of powers; reached by some run."""
    own = columns_for(pair, Side.UPPER)
    gram = whole_of(own).T @ whole_of(own)
    earlier = np.triu(gram, 1)
    most = (runs(pair) @ earlier).max()
    assert most <= greatest_field(own, Limits(pair.bins, 1)) <= most * (1.0 + 1e-8)
    lags = np.arange(own.steps)[None, :] - np.arange(own.steps)[:, None]
    for decay in (0.5, 0.9):
        powers = np.where(lags > 0, decay ** np.maximum(lags, 0), 0.0)
        reached = (runs(pair) @ powers).max()
        rest = decay ** (own.steps - pair.bins) / (1.0 - decay**pair.bins)  # of epochs before the first
        assert reached <= longest(own, decay, Limits(pair.bins, 1)) <= reached + rest + 1e-6


@pytest.mark.parametrize("pair", TREES)
@pytest.mark.parametrize("order", [2, 3])
def test_linked_visits_are_kept_with_their_weight(pair: FreshBins, order: int) -> None:
    """Of runs, over the sum of coins that know of no epochs; each within 6.2 standard errors."""
    own, trees, rng, drawn = columns_for(pair, Side.UPPER), trees_of(pair), np.random.default_rng(6), 30_000
    assert trees is not None
    law = law_of_coins(own, trees, order, most_below(own, trees, Limits(pair.bins, 1)))
    *_, splits, roots = law.arrays
    visits, counts = np.empty((order, pair.epochs), np.int64), np.empty(own.steps)
    source = LinkedVisits((trees.levels, splits, roots, trees.link), visits, work_of(own.steps, order))
    picked: dict[tuple[float, ...], int] = {}
    for _ in range(drawn):
        if draw_linked_visits(rng, own.overlaps, own.law.edges, source, counts):
            picked[tuple(counts)] = picked.get(tuple(counts), 0) + 1
    exact = weights(pair, order)
    assert set(picked) <= set(exact)
    norm = exp(law.log_norm)
    assert sum(picked.values()) > 100
    for counts_of_one, weight in exact.items():
        chance = weight / norm
        assert abs(picked.get(counts_of_one, 0) / drawn - chance) <= 6.2 * sqrt(chance / drawn) + 4.0 / drawn


@pytest.mark.parametrize(("bins", "epochs"), [(1, 4), (2, 4), (3, 3), (5, 2), (100, 10)])
def test_a_copy_has_at_most_so_many_visits_below_a_node(bins: int, epochs: int) -> None:
    steps = bins * epochs
    pair = pair_of(TreeMatrix(1 << (steps - 1).bit_length(), steps), bins, 1.0)
    own, trees = columns_for(pair, Side.UPPER), trees_of(pair)
    assert trees is not None
    for height, most in enumerate(most_below(own, trees, Limits(bins, 1))):
        leaves = range(1 << height)
        reached = max(len({(first + leaf) // bins for leaf in leaves}) for first in range(bins))
        assert most == min(reached, epochs)


def test_tables_have_room_for_the_visits_of_every_copy() -> None:
    pair = pair_of(TreeMatrix(16, 16), 2, 3.0)
    own, trees = columns_for(pair, Side.UPPER), trees_of(pair)
    assert trees is not None
    each = most_below(own, trees, Limits(2, 1))
    caps = caps_of(own, trees, 3, each)
    assert caps is not None
    for cap, visits, height in zip(caps, each, range(coins_of(own, trees).nodes_at.size), strict=True):
        assert min(3 * visits, 3 << height) <= cap


@pytest.mark.parametrize("pair", [*CASES, *TREES])
def test_moments_are_those_of_all_runs(pair: FreshBins) -> None:
    own = columns_for(pair, Side.UPPER)
    means = runs(pair) @ whole_of(own).T
    squared_mean, mean_square = own.moments
    assert squared_mean == pytest.approx(float(np.square(means.mean(axis=0)).sum()), rel=1e-12)
    assert mean_square == pytest.approx(float(np.square(means).sum(axis=1).mean()), rel=1e-8)
    assert mean_square >= float(np.square(means).sum(axis=1).mean())


@pytest.mark.parametrize(
    ("pair", "epsilon"),
    [
        pytest.param(pair, epsilon, marks=pytest.mark.weekly if (row + column) % 2 == 0 else ())
        for row, pair in enumerate([*CASES, *TREES])
        for column, epsilon in enumerate((0.2, 1.0))
    ],
)
def test_each_side_stays_on_its_side_of_the_truth(pair: FreshBins, epsilon: float) -> None:
    """The truth from 200,000 runs and the sum over all runs, within 6.2 standard errors."""
    own, rng, samples = columns_for(pair, Side.UPPER), np.random.default_rng(9), 200_000
    means = runs(pair) @ whole_of(own).T
    noise = rng.standard_normal((samples, own.steps))
    of_remove = log_ratios(pair, own, noise + means[rng.integers(len(means), size=samples)])
    values = {
        Direction.REMOVE: -np.expm1(np.minimum(epsilon - of_remove, 0.0)),
        Direction.ADD: -np.expm1(np.minimum(epsilon + log_ratios(pair, own, noise), 0.0)),
    }
    truth = {
        direction: (each.mean() - 6.2 * each.std() / sqrt(samples), each.mean() + 6.2 * each.std() / sqrt(samples))
        for direction, each in values.items()
    }
    above = [linked(pair) if pair in TREES else counted(pair), counted(pair, 3)]
    add = FAMILY.propose(pair, Direction.ADD, epsilon)[0]
    for proposal in (*above, add):
        low, high = interval(proposal, epsilon, 60_000, 3)
        assert high >= truth[proposal.direction][0]
        assert low <= 1.2 * truth[proposal.direction][1]
    low, high = interval(below(pair), epsilon, 60_000, 3)
    assert low <= truth[Direction.REMOVE][1]
    assert high >= 0.8 * truth[Direction.REMOVE][0]


def test_only_what_is_listed_is_proved() -> None:
    pair, tree = CASES[0], TREES[0]
    rate = rates(columns_for(pair, Side.UPPER))[2]
    of_links = {"order": 3.0, "rate": rate, "block": 3.0, "limit": 1.0}
    whole = {**of_links, "decay": 0.9}
    assert FAMILY.build(pair, Direction.REMOVE, "far_counted", whole).proved
    wrong = [{"order": 1.0}, {"order": 17.0}, {"order": 2.5}, {"decay": 0.91}, {"rate": 1.01 * rate}, {"block": 2.0}]
    for changed in wrong:
        with pytest.raises(InvalidInputError, match="'proposal' field"):
            FAMILY.build(pair, Direction.REMOVE, "far_counted", {**whole, **changed})
    with pytest.raises(InvalidInputError, match="'proposal' field"):
        FAMILY.build(pair, Direction.REMOVE, "far_linked", of_links)
    assert FAMILY.build(tree, Direction.REMOVE, "far_linked", of_links).proved
    with pytest.raises(InvalidInputError, match="'proposal' field"):
        FAMILY.build(tree, Direction.REMOVE, "far_linked", {**of_links, "order": 41.0})
    for kind, sides in ((counted(pair), (Side.UPPER,)), (linked(tree), (Side.UPPER,)), (below(pair), (Side.LOWER,))):
        assert kind.sides == sides


@pytest.mark.parametrize(
    "one",
    [counted(CASES[0]), linked(TREES[0]), below(CASES[0]), Add(direction=Direction.ADD, pair=CASES[0], beta=1.0)],
)
def test_another_machine_draws_the_same(one: Counted | Linked | Below | Add) -> None:
    assert_same(one, pickle.loads(pickle.dumps(one)))


@pytest.mark.parametrize(
    ("strategy", "noise_multiplier"),
    [(hs.BinaryTree(), 8.0), (hs.BandedSquareRoot(bands=4), 2.0)],
)
def test_a_certificate_is_close_on_both_sides_and_can_be_verified(
    strategy: hs.BinaryTree | hs.BandedSquareRoot, noise_multiplier: float
) -> None:
    """The bounds of epochs by themselves are 20 percent apart and more."""
    sampler = hs.RandomAllocation(bins=20, epochs=3)
    run = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=noise_multiplier)
    close = hs.certify(run, delta=1e-3, monte_carlo=MonteCarlo(seed=3, ratio=0.2))
    assert close.bounds.lower is not None
    assert close.bounds.lower < close.bounds.upper <= 1.1 * close.bounds.lower
    assert close.method.upper == close.method.lower == "monte_carlo"
    hs.verify(close)


@pytest.mark.parametrize("work", [1e-5, 1e9])
def test_a_costly_bound_takes_the_place_of_samples_that_would_not_show_as_much(work: float) -> None:
    """It is above what add has to be below, so samples are preferred where there is work for them."""
    pair = CASES[0]
    costly = CostlyBound(0.0, lambda deadline: lambda epsilon: 0.5)
    estimation = Estimation(pair, Question(delta=1e-4), MonteCarlo(seed=1), Deadline(), costly=costly, work=work)
    directions = [aim.direction for aim in estimation.aims()]
    if work < 1.0:
        assert directions == [Direction.REMOVE]
        assert estimation.known[Direction.ADD](1.0) == 0.5
    else:
        assert directions == [Direction.REMOVE, Direction.ADD]
        assert Direction.ADD not in estimation.known
