"""Proposals of mixtures of bins against enumeration, numerical integration and exact laws.

Statistical tests have fixed seeds; each says with what probability a right implementation would fail another seed.
"""

import pickle
from itertools import product
from math import exp, inf, log, pi, sqrt

import numpy as np
import pytest

from hockeystick import BallsInBins, BandedSquareRoot, Mechanism
from hockeystick.errors import InvalidInputError
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.operations import average
from hockeystick.laws.profile import law_delta
from hockeystick.monte_carlo.bins.family import FAMILY, bin_space
from hockeystick.monte_carlo.bins.kernels import (
    concentrated_tuple,
    log_concentration,
    tuple_growth,
)
from hockeystick.monte_carlo.bins.proposals import AgainstMean, Balls, BinSpace, NaiveBins, best_beta, best_order
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.registry import dominating_pair
from hockeystick.strategies.matrix.base import Array, Indices, StrategyMatrix
from hockeystick.types import Direction, Side

FACTORS = {
    "one line": [[0.9], [0.4], [1.3]],
    "one line, a zero mean": [[0.8], [0.0], [1.1], [0.3]],
    "plane": [[0.9, 0.0], [0.5, 0.7], [0.2, 1.1]],
    "plane, one mean twice": [[0.6, 0.3], [0.6, 0.3], [1.0, 0.0], [0.1, 0.9]],
    "one bin": [[1.2]],
}
"""Rows are means in units of the noise; all Gram matrices but the last are singular."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


class AnyMatrix(StrategyMatrix):
    """Any entries, as they are."""

    def __init__(self, entries: Array) -> None:
        self.entries = np.asarray(entries, dtype=np.float64)
        self.steps = self.entries.shape[1]

    @property
    def rows(self) -> int:
        """Of the entries."""
        return self.entries.shape[0]

    @property
    def bands(self) -> int:
        """All."""
        return self.steps

    def columns(self, which: Indices) -> Array:
        return self.entries[:, which]

    def dot(self, x: Array) -> Array:
        return self.entries @ x

    def solve(self, z: Array) -> Array:
        return np.linalg.solve(self.entries, z)


def space_of(name: str) -> BinSpace:
    factor = np.array(FACTORS[name])
    return BinSpace(scaled=factor @ factor.T, factor=factor, rounding=1e-15)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def drawn(proposal: Proposal, seed: int, samples: int) -> tuple[Array, Array]:
    log_weights, losses = np.full(samples, np.nan), np.full(samples, np.nan)
    proposal.draw(generator(seed), log_weights, losses)
    return log_weights, losses


def values(log_weights: Array, losses: Array, epsilon: float) -> Array:
    return np.exp(log_weights) * np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)


def tuple_laws(gram: Array, order: int) -> dict[tuple[int, ...], tuple[float, float, float, float]]:
    """For every tuple: its probability ball after ball, V, its probability around a centre, and exp of sum of K."""
    bins = len(gram)
    laws = {}
    for chosen in product(range(bins), repeat=order):
        probability, growth, meetings = 1.0 / bins, 1.0, 0.0
        for k in range(1, order):
            numbers = [exp(sum(gram[i, j] for i in chosen[:k])) for j in range(bins)]
            growth *= sum(numbers) / bins
            probability *= numbers[chosen[k]] / sum(numbers)
            meetings += sum(gram[i, chosen[k]] for i in chosen[:k])
        around = 0.0
        for c in range(bins):
            numbers = [exp((order - 1) * gram[c, j]) for j in range(bins)]
            around += np.prod([numbers[i] / sum(numbers) for i in chosen]) / bins
        laws[chosen] = (probability, growth, around, exp(meetings))
    return laws


def ratio(factor: Array, z: Array) -> Array:
    """log X at the points z, shape (points, d)."""
    return np.log(np.exp(z @ factor.T - 0.5 * (factor**2).sum(axis=1)).mean(axis=1))


class Rule:
    """Points and weights for integrals over ``log X > level``, or below it.

    Gauss-Legendre from the kink along the first coordinate, in which log X increases; the trapezoidal rule over the
    second.
    """

    def __init__(self, factor: Array, level: float, above: bool, reach: float) -> None:
        step, ends = 0.2, (-reach, reach)
        lines = np.zeros((1, 0)) if factor.shape[1] == 1 else np.arange(*ends, step)[:, None]
        low, high = np.full(len(lines), -80.0), np.full(len(lines), 80.0)
        for _ in range(80):
            middle = 0.5 * (low + high)
            below = ratio(factor, np.column_stack([middle, lines])) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        first = np.clip(low if above else ends[0] + 0.0 * low, *ends)
        last = np.clip(ends[1] + 0.0 * low if above else low, *ends)
        edges = first + (last - first) * np.linspace(0.0, 1.0, 9)[:, None]
        centres, halves = 0.5 * (edges[1:] + edges[:-1]), 0.5 * (edges[1:] - edges[:-1])
        x = centres + halves * NODES[:, None, None]
        self.z = np.column_stack([x.ravel(), np.broadcast_to(lines, (*x.shape, lines.shape[1])).reshape(x.size, -1)])
        scale = step ** lines.shape[1] / (2.0 * pi) ** (0.5 * factor.shape[1])
        self.weights = scale * (halves * WEIGHTS[:, None, None]).ravel()
        self.log_x = ratio(factor, self.z)

    def expectation(self, centre: Array, of: Array) -> float:
        """Of values at the points, z normal around ``centre``."""
        return float((self.weights * np.exp(-0.5 * ((self.z - centre) ** 2).sum(axis=1))) @ of)


def true_delta(factor: Array, epsilon: float, direction: Direction) -> float:
    """Without weights: under Q."""
    if direction is Direction.ADD:
        rule = Rule(factor, -epsilon, False, 12.0)
        return rule.expectation(np.zeros(factor.shape[1]), -np.expm1(epsilon + rule.log_x))
    rule = Rule(factor, epsilon, True, 12.0)
    return sum(rule.expectation(mean, -np.expm1(epsilon - rule.log_x)) for mean in factor) / len(factor)


def exact_identity(bins: int, direction: Direction, epsilon: float, side: Side) -> float:
    resolution = Resolution(nodes_per_unit=60, smallest_delta=1e-13)
    return law_delta(average(gaussian_law(1.0, 1.0, side, resolution), bins, resolution), epsilon, direction=direction)


def betting(sample: Array, largest: float, log_failure: float) -> tuple[float, float]:
    """Bounds on the mean of a [0, largest] variable; each fails with probability at most e^log_failure."""
    size, pilot = sample.size - 2000, sample[:2000]
    rest, second = sample[2000:], float((pilot**2).mean()) + 1e-300
    fraction = sqrt(-2.0 * log_failure / (size * second))
    theta = 1.0 / (1.0 / fraction + largest)
    upper = -np.expm1((np.log1p(-theta * rest).sum() + log_failure) / size) / theta
    lower = np.expm1((np.log1p(fraction * rest).sum() + log_failure) / size) / fraction
    return float(lower), float(upper)


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_balls_average_to_delta_over_all_tuples_and_never_exceed_the_largest_value(name, order, share):
    space, epsilon = space_of(name), 0.7
    factor, gram, work = space.factor, space.scaled, np.empty(space.bins)
    proposal = Balls(direction=Direction.REMOVE, space=space, order=order, share=share)
    peak = -log(order) + (order - 1) * (log(order - 1) - log(order))  # of x^(a-1) (1 - x) in x = e^(eps - L), log
    rule = Rule(factor, epsilon, True, 16.0)
    unweighted = np.exp(-(order - 1) * rule.log_x) * -np.expm1(epsilon - rule.log_x)
    mean, total, highest = 0.0, 0.0, 0.0
    for chosen, (probability, growth, around, met) in tuple_laws(gram, order).items():
        balls = np.array(chosen)
        assert tuple_growth(generator(1), space.growth, False, balls, work) == pytest.approx(log(growth), abs=1e-12)
        likelier = log_concentration(proposal.focused, proposal.spread, balls, work)
        assert likelier == pytest.approx(log(around * space.bins**order), abs=1e-12)
        probability = (1.0 - share) * probability + share * around
        weight = 1.0 / ((1.0 - share) / growth + share * around * space.bins**order / met)
        total += probability
        highest = max(highest, weight * exp(peak - (order - 1) * epsilon))
        mean += probability * weight * rule.expectation(factor[balls].sum(axis=0), unweighted)
    assert total == pytest.approx(1.0, abs=1e-12)
    assert mean == pytest.approx(true_delta(factor, epsilon, Direction.REMOVE), rel=1e-8)
    assert highest <= proposal.weight_bound(epsilon)  # the supremum over y is attained: X takes all values
    if share == 0.0 and name == "one bin":
        assert proposal.weight_bound(epsilon) == pytest.approx(highest, rel=1e-6)


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("beta", [0.4, 1.7, 5.0])
def test_noise_against_the_mean_averages_to_delta_and_never_exceeds_the_largest_value(name, beta):
    space, epsilon = space_of(name), 0.5
    factor = space.factor
    middle = factor.mean(axis=0)

    def weighted(log_x: Array, z: Array) -> Array:
        weight = np.exp(beta * (z @ factor.T).mean(axis=1) + 0.5 * beta**2 * (middle @ middle))
        return weight * np.maximum(-np.expm1(epsilon + log_x), 0.0)

    rule = Rule(factor, -epsilon, False, 18.0)
    mean = rule.expectation(-beta * middle, weighted(rule.log_x, rule.z))
    assert mean == pytest.approx(true_delta(factor, epsilon, Direction.ADD), rel=1e-8)
    largest = AgainstMean(direction=Direction.ADD, space=space, beta=beta).weight_bound(epsilon)
    axes = (np.linspace(-60.0, 60.0, 301 if factor.shape[1] == 2 else 30001),) * factor.shape[1]
    z = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, factor.shape[1])
    highest = float(weighted(ratio(factor, z), z).max())
    assert highest <= largest
    if name == "one bin":
        assert largest == pytest.approx(highest, rel=1e-4)


def test_tuples_follow_their_laws():
    """27 tuples twice, five standard deviations: fails another seed with probability below 3e-5."""
    space, order, samples = space_of("one line"), 3, 20000
    proposal = Balls(direction=Direction.REMOVE, space=space, order=order, share=0.3)
    rng, work, balls = generator(5), np.empty(3), np.empty(order, np.int64)
    counts = np.zeros((2, 27))
    for _ in range(samples):
        tuple_growth(rng, space.growth, True, balls, work)
        counts[0, balls @ [9, 3, 1]] += 1
        concentrated_tuple(rng, proposal.focused, proposal.spread, balls)
        counts[1, balls @ [9, 3, 1]] += 1
    laws = np.array([(law[0], law[2]) for law in tuple_laws(space.scaled, order).values()]).T
    assert np.all(np.abs(counts - samples * laws) <= 5.0 * np.sqrt(samples * laws * (1.0 - laws)))


PROPOSALS = [
    lambda space: Balls(direction=Direction.REMOVE, space=space, order=2, share=0.0),
    lambda space: Balls(direction=Direction.REMOVE, space=space, order=4, share=0.4),
    lambda space: NaiveBins(direction=Direction.REMOVE, space=space),
    lambda space: NaiveBins(direction=Direction.ADD, space=space),
    lambda space: AgainstMean(direction=Direction.ADD, space=space, beta=1.3),
]


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("make", PROPOSALS)
def test_samples_of_the_kernels_average_to_delta(name, make):
    """Bounds with failure probability 1e-9 a side; their distance says that they can fail."""
    space = space_of(name)
    proposal = make(space)
    epsilon = {Direction.REMOVE: 1.2, Direction.ADD: 0.4}[proposal.direction]
    sample = values(*drawn(proposal, 11, 30000), epsilon)
    assert sample.max() <= proposal.weight_bound(epsilon)
    lower, upper = betting(sample, proposal.weight_bound(epsilon), log(1e-9))
    assert lower <= true_delta(space.factor, epsilon, proposal.direction) <= upper <= 2.0 * lower


def orthogonal(bins: int, sigma: float = 1.0) -> BinMixture:
    return BinMixture(noise_multiplier=sigma, matrix=AnyMatrix(np.eye(bins)), bins=bins)


@pytest.mark.parametrize(("epsilon", "samples", "widest"), [(1.6, 100000, 1.4), (2.8, 100000, 1.4)])
def test_identity_agrees_with_the_exact_law(epsilon, samples, widest):
    """20 orthogonal bins, delta about 1e-5 and 1e-8; failure probability 1e-9 a side."""
    proposal = FAMILY.propose(orthogonal(20), Direction.REMOVE, epsilon)[0]
    lower, upper = betting(values(*drawn(proposal, 3, samples), epsilon), proposal.weight_bound(epsilon), log(1e-9))
    assert lower <= exact_identity(20, Direction.REMOVE, epsilon, Side.UPPER)
    assert upper >= exact_identity(20, Direction.REMOVE, epsilon, Side.LOWER)
    assert upper <= widest * lower


@pytest.mark.parametrize("name", ["plane", "one bin"])
def test_the_largest_value_is_that_of_the_best_order_and_beta(name):
    """A scan finds nothing smaller than what is chosen in advance."""
    space, epsilon = space_of(name), 1.5
    order, beta = best_order(space, epsilon), best_beta(space, epsilon)
    orders = [
        Balls(direction=Direction.REMOVE, space=space, order=a, share=0.0).weight_bound(epsilon) for a in range(2, 17)
    ]
    assert orders[order - 2] == min(orders)
    bounds = [
        AgainstMean(direction=Direction.ADD, space=space, beta=b).weight_bound(epsilon)
        for b in np.linspace(0.1, 9.0, 90)
    ]
    chosen = AgainstMean(direction=Direction.ADD, space=space, beta=beta).weight_bound(epsilon)
    assert chosen <= min(bounds) * (1.0 + 1e-7)


def test_one_bin_is_the_gaussian_mechanism():
    pair = BinMixture(noise_multiplier=1.5, matrix=AnyMatrix([[1.0, 0.0], [0.5, 1.0]]), bins=1)
    for direction in Direction:
        proposal = FAMILY.propose(pair, direction, 2.0)[0]
        lower, upper = betting(values(*drawn(proposal, 1, 20000), 2.0), proposal.weight_bound(2.0), log(1e-9))
        exact = gaussian_delta(1.5, sqrt(1.5**2 + 1.0), 2.0, Side.UPPER)
        assert lower <= exact <= upper <= 1.3 * lower


SINGULAR = {
    "equal columns": [[1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.2, 0.7]],
    "a zero column": [[1.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.2, 0.0, 0.7]],
    "fewer rows than bins": [[1.0, 0.6, 0.3, 0.1, 0.8]],
    "nearly equal columns": [[1.0, 1.0, 0.3], [0.5, 0.5 + 1e-9, 0.2], [0.1, 0.1, 0.9]],
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_gram_matrices_are_factored_up_to_rounding(name):
    entries = np.array(SINGULAR[name])
    pair = BinMixture(noise_multiplier=0.8, matrix=AnyMatrix(entries), bins=entries.shape[1])
    space = bin_space(pair)
    product_ = space.factor @ space.factor.T
    exact = entries.T @ entries / 0.64
    assert np.abs(product_ - exact).max() <= space.tables_error + 1e-15
    assert space.tables_error <= 1e-13
    assert space.pair_error <= 1e-5
    for direction in Direction:
        for proposal in FAMILY.propose(pair, direction, 0.8):
            log_weights, losses = drawn(proposal, 2, 500)
            assert np.isfinite(log_weights).all()
            assert np.isfinite(losses).all()
            assert values(log_weights, losses, 0.8).max() <= proposal.weight_bound(0.8)


def test_a_false_factor_is_charged():
    """The bound of what the factor misses is seen in the error of the losses."""
    factor = np.array([[1.0, 0.0], [0.3, 0.9]])
    space = BinSpace(scaled=factor @ factor.T + [[0.0, 1e-6], [1e-6, 0.0]], factor=factor, rounding=0.0)
    assert space.tables_error >= 1e-6
    assert space.pair_error >= 1e-3  # in the order of the root: a shift of variance 1e-6 that is common to all bins
    assert BinSpace(scaled=space.scaled, factor=factor, rounding=1e-5).pair_error >= space.pair_error + 1e-5


@pytest.mark.parametrize("direction", Direction)
def test_proposals_are_what_their_names_say_and_draw_the_same_again(direction):
    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=6), sampler=BallsInBins(bins=10, epochs=3), noise_multiplier=2.0
    )
    pair = dominating_pair(mechanism)
    proposals = FAMILY.propose(pair, direction, 1.0)
    assert [proposal.name for proposal in proposals][-1] == "naive"
    assert proposals[-1].weight_bound(1.0) == 1.0
    for proposal in proposals:
        again = pickle.loads(pickle.dumps(FAMILY.build(pair, direction, proposal.name, proposal.parameters)))
        assert (again.direction, again.parameters) == (direction, proposal.parameters)
        assert again.weight_bound(1.0) == proposal.weight_bound(1.0)
        assert 0.0 < again.loss_error < 1e-6
        first, second, other = drawn(proposal, 4, 300), drawn(again, 4, 300), drawn(proposal, 5, 300)
        assert np.array_equal(first, second)
        assert not np.array_equal(first[1], other[1])


@pytest.mark.parametrize(
    ("direction", "name", "parameters", "message"),
    [
        (
            Direction.ADD,
            "balls",
            {"order": 3.0, "share": 0.3},
            "'naive' with nothing or 'against_mean' with beta",
        ),
        (Direction.REMOVE, "against_mean", {"beta": 1.0}, "must be 'naive' with nothing or 'balls' with order, share"),
        (Direction.REMOVE, "balls", {"order": 3.0}, "Got 'balls'"),
        (Direction.REMOVE, "naive", {"order": 3.0}, "Got 'naive'"),
        (Direction.REMOVE, "balls", {"order": 1.0, "share": 0.3}, "Got 'balls'"),
        (Direction.REMOVE, "balls", {"order": 2.5, "share": 0.3}, "Got 'balls'"),
        (Direction.REMOVE, "balls", {"order": 4000.0, "share": 0.3}, "Got 'balls'"),
        (Direction.REMOVE, "balls", {"order": 3.0, "share": 1.0}, "Got 'balls'"),
        (Direction.ADD, "against_mean", {"beta": 0.0}, "Got 'against_mean'"),
        (Direction.ADD, "against_mean", {"beta": inf}, "Got 'against_mean'"),
    ],
)
def test_proposals_that_are_never_proposed_are_refused(direction, name, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        FAMILY.build(orthogonal(3), direction, name, parameters)


def test_where_exponents_would_overflow_only_the_naive_proposal_is_left():
    (proposal,) = FAMILY.propose(orthogonal(3, 0.03), Direction.REMOVE, 1.0)
    log_weights, losses = drawn(proposal, 1, 200)
    assert not log_weights.any()
    assert np.all(losses > 300.0)


def test_many_bins_are_refused():
    few, many = (BinMixture(noise_multiplier=1.0, matrix=AnyMatrix(np.eye(2)), bins=bins) for bins in (2, 5000))
    assert FAMILY.refusal(few, Side.UPPER) is None
    assert FAMILY.refusal(many, Side.LOWER)


def test_the_add_direction_has_a_known_upper_bound():
    pair = orthogonal(4, 1.3)
    known = FAMILY.known_upper(pair, Direction.ADD)
    assert known is not None
    assert FAMILY.known_upper(pair, Direction.REMOVE) is None
    proposal = FAMILY.propose(pair, Direction.ADD, 0.3)[0]
    sample = values(*drawn(proposal, 8, 20000), 0.3)
    assert betting(sample, proposal.weight_bound(0.3), log(1e-9))[0] <= known(0.3)
