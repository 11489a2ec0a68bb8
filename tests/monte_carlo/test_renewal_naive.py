"""The recursion against all participation vectors, and the samples against exact values of delta."""

import pickle
from math import exp, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from renewal_oracle import log_ratio, participations
from scipy.stats import norm

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.renewal.densities import recursion
from hockeystick.monte_carlo.renewal.family import FAMILY, NaiveRenewal, known_upper, refusal
from hockeystick.monte_carlo.renewal.kernels import log_ratio as recursive_log_ratio
from hockeystick.monte_carlo.renewal.kernels import participate, workspace
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side

Array = NDArray[np.float64]

FAILURE = 1e-9
"""Probability with which a correct sampler fails one statistical test of this file."""
GRID = 301
GRID_ERROR = 1e-4
"""Ten times the largest change seen when GRID is made four times finer."""


def dense(steps: int, bands: int, seed: int) -> Array:
    """Non-negative, lower triangular, with this many diagonals, and no other structure."""
    rng = np.random.default_rng(seed)
    entries = np.tril(rng.uniform(0.1, 1.0, (steps, steps)))
    return np.where(np.subtract.outer(range(steps), range(steps)) < bands, entries, 0.0)


def mixture(
    matrix: StrategyMatrix,
    min_sep: int,
    prob: float = 0.3,
    *,
    sigma: float = 0.7,
    warm: bool = False,
    examples: int = 1,
) -> RenewalMixture:
    return RenewalMixture(
        noise_multiplier=sigma,
        matrix=matrix,
        min_sep=min_sep,
        participation_prob=prob,
        warm_start=warm,
        examples_per_user=examples,
    )


def computed(outputs: Array, pair: RenewalMixture, direction: Direction = Direction.REMOVE) -> Array:
    law = recursion(pair, direction)
    padding = np.zeros(law.taps.shape[0])
    rows = outputs / pair.noise_multiplier
    return np.array([recursive_log_ratio(np.concatenate([row, padding]), law, workspace(law)) for row in rows])


def enumerated(outputs: Array, pair: RenewalMixture) -> Array:
    return log_ratio(outputs, pair.matrix.materialize(), *vectors_of(pair), pair.noise_multiplier)


def vectors_of(pair: RenewalMixture) -> tuple[Array, Array]:
    prob, warm = pair.participation_prob, pair.warm_start
    return participations(pair.matrix.steps, pair.min_sep, prob, warm, pair.examples_per_user)


def in_logarithms(outputs: Array, pair: RenewalMixture) -> Array:
    """The recursion for one example as it is written, without any care for speed or range beyond logarithms."""
    columns, steps, prob = pair.matrix.materialize(), pair.matrix.steps, pair.participation_prob
    ratios = (outputs @ columns - 0.5 * (columns**2).sum(axis=0)) / pair.noise_multiplier**2
    values = np.zeros((outputs.shape[0], steps + pair.min_sep))
    for i in range(steps - 1, -1, -1):
        taken = log(prob) + ratios[:, i] + values[:, i + pair.min_sep]
        values[:, i] = np.logaddexp(log(1.0 - prob) + values[:, i + 1], taken)
    first = pair.first_available
    return np.asarray(np.logaddexp.reduce(np.log(first) + values[:, : first.size], axis=1))


def losses_of(proposal: Proposal, count: int, seed: int) -> Array:
    log_weights, losses = np.full(count, np.nan), np.full(count, np.nan)
    proposal.draw(np.random.Generator(np.random.SFC64(seed)), log_weights, losses)
    assert np.all(log_weights == 0.0)
    return losses


def mean_and_radius(proposal: Proposal, epsilon: float, count: int, seed: int) -> tuple[float, float]:
    """Mean of Y, and the radius of Hoeffding's two-sided interval at FAILURE for a mean in [0, 1]."""
    losses = losses_of(proposal, count, seed)
    return float(np.maximum(-np.expm1(epsilon - losses), 0.0).mean()), sqrt(log(2.0 / FAILURE) / (2.0 * count))


def integrated(pair: RenewalMixture, direction: Direction, epsilon: float) -> float:
    """delta for two steps, by the midpoint rule on a square that holds the mass of P and Q, within GRID_ERROR."""
    sigma = pair.noise_multiplier
    points = np.linspace(-7.0, 14.0, GRID) * sigma
    mid = 0.5 * (points[1:] + points[:-1])
    outputs = np.stack([axis.ravel() for axis in np.meshgrid(mid, mid)], axis=1)
    mass = np.exp(norm.logpdf(outputs, scale=sigma).sum(axis=1)) * (mid[1] - mid[0]) ** 2
    ratio = np.exp(enumerated(outputs, pair))
    remove = direction is Direction.REMOVE
    return float(mass @ np.maximum(ratio - exp(epsilon) if remove else 1.0 - exp(epsilon) * ratio, 0.0))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("examples", [1, 2, 3])
@pytest.mark.parametrize(
    ("steps", "min_sep", "bands"), [(7, 3, 3), (7, 3, 1), (6, 2, 2), (5, 1, 1), (3, 5, 3), (8, 4, 2)]
)
def test_the_recursion_is_the_enumeration(steps: int, min_sep: int, bands: int, examples: int, warm: bool) -> None:
    entries = dense(steps, bands, seed=steps + bands)
    band = np.array([[entries[i + d, i] if i + d < steps else 0.0 for d in range(bands)] for i in range(steps)])
    outputs = np.random.default_rng(1).normal(0.0, 2.0, (60, steps))
    for matrix in (DenseMatrix(entries), BandedMatrix(band), ToeplitzMatrix(entries[:bands, 0], steps)):
        pair = mixture(matrix, min_sep, warm=warm, examples=examples)
        assert pair.banded
        truth = enumerated(outputs, pair)
        assert np.abs(computed(outputs, pair) - truth).max() < 1e-12 * max(1.0, np.abs(truth).max())


@pytest.mark.parametrize("sigma", [0.004, 0.02, 0.06])
def test_tiny_noise_neither_over_nor_underflows(sigma: float) -> None:
    """Both ways to run the recursion are met: in doubles, and in logarithms where an exponent passes 300."""
    pair = mixture(ToeplitzMatrix(np.array([1.0, 0.5]), 8), 3, sigma=sigma, warm=True, examples=2)
    rng = np.random.default_rng(2)
    shifts = np.concatenate([np.zeros((40, 8)), vectors_of(pair)[1] @ pair.matrix.materialize().T])
    outputs = shifts + rng.normal(0.0, sigma, shifts.shape)
    truth = enumerated(outputs, pair)
    assert np.abs(computed(outputs, pair) - truth).max() < 1e-12 * np.abs(truth).max()


def test_a_long_run_is_the_plain_recursion_in_logarithms() -> None:
    """log X is near 1500 here, so the doubles are rescaled many times."""
    column = np.array([1.0, 0.6, 0.2, 0.1, *(6 * [0.05])])
    pair = mixture(ToeplitzMatrix(column, 1000), 20, 0.2, sigma=0.15, warm=True)
    law = recursion(pair, Direction.REMOVE)
    outputs = np.random.default_rng(3).standard_normal((4, 1000 + column.size))
    outputs[:, 1000:] = 0.0
    for row in outputs:
        participate(np.random.default_rng(4), law, row)
    assert np.all(outputs[:, 1000:] == 0.0)
    truth = in_logarithms(outputs[:, :1000] * pair.noise_multiplier, pair)
    assert truth.min() > 800.0
    ratios = computed(outputs[:, :1000] * pair.noise_multiplier, pair)
    assert np.abs(ratios - truth).max() < min(NaiveRenewal(direction=Direction.REMOVE, pair=pair).loss_error, 1e-6)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize("toeplitz", [False, True])
def test_overlapping_columns_are_bounded_on_both_sides(toeplitz: bool, examples: int, warm: bool) -> None:
    entries = dense(6, 6, seed=4)
    matrix = ToeplitzMatrix(np.sort(entries[-1])[::-1].copy(), 6) if toeplitz else DenseMatrix(entries)
    pair = mixture(matrix, 2, sigma=1.5, warm=warm, examples=examples)
    outputs = np.random.default_rng(5).normal(1.0, 2.5, (400, 6))
    truth = enumerated(outputs, pair)
    above = computed(outputs, pair) - truth
    below = computed(outputs, pair, Direction.ADD) - truth
    assert above.min() > 0.0 > below.max()
    assert NaiveRenewal(direction=Direction.REMOVE, pair=pair).sides == (Side.UPPER,)
    assert (refusal(pair, Side.LOWER) is None) == (examples == 1)  # proposals for long columns bound it from below
    assert refusal(pair, Side.UPPER) is None
    assert np.exp(truth + below).min() > exp(NaiveRenewal(direction=Direction.ADD, pair=pair).log_smallest)


@pytest.mark.parametrize("toeplitz", [False, True])
def test_overlaps_are_the_largest_sums_of_later_products(toeplitz: bool) -> None:
    matrix = ToeplitzMatrix(np.array([1.0, 0.8, 0.9, 0.3, 0.2]), 9) if toeplitz else DenseMatrix(dense(9, 7, seed=6))
    pair = mixture(matrix, 3)
    products = matrix.materialize().T @ matrix.materialize()
    patterns = participations(9, 3, 0.5, False)[1]
    for i in range(9):
        allowed = [v for v in patterns if not v[: i + 3].any()]
        best = max(float(products[i] @ v) for v in allowed)
        assert best <= pair.overlaps[i] <= best * (1.0 + 1e-12)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("min_sep", "warm", "examples", "bands"), [(2, True, 1, 2), (2, False, 2, 2), (1, False, 1, 1)]
)
def test_the_mean_is_delta(direction: Direction, min_sep: int, warm: bool, examples: int, bands: int) -> None:
    pair = mixture(DenseMatrix(dense(2, bands, seed=7)), min_sep, 0.4, sigma=0.5, warm=warm, examples=examples)
    truth = integrated(pair, direction, 0.4)
    mean, radius = mean_and_radius(NaiveRenewal(direction=direction, pair=pair), 0.4, 1_000_000, seed=8)
    assert truth > 10.0 * radius
    assert abs(mean - truth) < radius + GRID_ERROR


@pytest.mark.parametrize("direction", list(Direction))
def test_the_mean_bounds_delta_from_above_where_columns_overlap(direction: Direction) -> None:
    pair = mixture(DenseMatrix(dense(2, 2, seed=7)), 1, 0.4, sigma=0.8)
    truth = integrated(pair, direction, 0.4)
    mean, radius = mean_and_radius(NaiveRenewal(direction=direction, pair=pair), 0.4, 1_000_000, seed=9)
    assert truth - radius - GRID_ERROR < mean < 1.4 * truth


@pytest.mark.parametrize("direction", list(Direction))
def test_without_waiting_and_correlation_it_is_poisson_subsampling(direction: Direction) -> None:
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=30), noise_multiplier=0.8)
    pair = mixture(run.matrix, 1, 0.1, sigma=0.8)
    upper = hs.bound(run, "direct").profiles[direction](0.5)
    lower = hs.bound(run, "direct", side=Side.LOWER).profiles[direction](0.5)
    mean, radius = mean_and_radius(NaiveRenewal(direction=direction, pair=pair), 0.5, 400_000, seed=10)
    assert lower > 10.0 * radius
    assert lower - radius < mean < upper + radius


@pytest.mark.parametrize("warm", [False, True])
def test_participations_have_their_probabilities(warm: bool) -> None:
    """Without noise y is C x, so the draws can be counted. Hoeffding for each of the vectors, and a union bound."""
    pair = mixture(ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 6), 3, 0.35, sigma=1.0, warm=warm, examples=2)
    law, rng, count = recursion(pair, Direction.REMOVE), np.random.default_rng(11), 40_000
    weights, vectors = vectors_of(pair)
    seen = {tuple(pair.matrix.dot(vector)): 0 for vector in vectors}
    for _ in range(count):
        row = np.zeros(9)
        participate(rng, law, row)
        seen[tuple(row[:6])] += 1
    frequencies = np.array(list(seen.values())) / count
    assert np.abs(frequencies - weights).max() < sqrt(log(2.0 * weights.size / FAILURE) / (2.0 * count))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize("min_sep", [1, 3, 9])
def test_the_smallest_ratio_is_that_of_no_participation(min_sep: int, examples: int, warm: bool) -> None:
    pair = mixture(ToeplitzMatrix(np.array([1.0]), 6), min_sep, sigma=0.5, warm=warm, examples=examples)
    proposal = NaiveRenewal(direction=Direction.ADD, pair=pair)
    weights, vectors = vectors_of(pair)
    smallest = float(weights[~vectors.any(axis=1)].sum())
    assert exp(proposal.log_smallest) == pytest.approx(smallest, rel=1e-10)
    assert exp(proposal.log_smallest) < smallest
    outputs = np.random.default_rng(12).normal(-2.0, 4.0, (2000, 6))
    outputs[0] = -60.0
    ratios = np.exp(computed(outputs, pair))
    assert ratios.min() == pytest.approx(smallest, rel=1e-12)
    end = -proposal.log_smallest
    assert proposal.weight_bound(end + 1e-6) == 0.0 < proposal.weight_bound(end - 1e-3) < 1e-3
    assert proposal.weight_bound(0.5 * end) >= 1.0 - exp(0.5 * end) * smallest
    values = -np.expm1(np.minimum(0.5 * end - losses_of(proposal, 5000, seed=13), 0.0))
    assert values.max() <= proposal.weight_bound(0.5 * end)
    assert NaiveRenewal(direction=Direction.REMOVE, pair=pair).weight_bound(3.0) == 1.0


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize(("bands", "min_sep", "examples"), [(2, 2, 1), (2, 1, 1), (2, 2, 2), (1, 2, 1)])
def test_the_deterministic_bound_is_above_delta(
    bands: int, min_sep: int, examples: int, sigma: float, warm: bool
) -> None:
    pair = mixture(DenseMatrix(dense(2, bands, seed=14)), min_sep, 0.4, sigma=sigma, warm=warm, examples=examples)
    profile = known_upper(pair, Direction.ADD)
    assert profile is not None
    for epsilon in (0.0, 0.05, 0.3, 0.6):
        assert profile(epsilon) >= integrated(pair, Direction.ADD, epsilon) - GRID_ERROR
    smallest = NaiveRenewal(direction=Direction.ADD, pair=pair).log_smallest
    assert profile(-smallest - 1e-3) < 1e-3
    assert profile(-smallest + 1e-6) == 1e-300


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.25])
def test_the_deterministic_bound_is_exact_for_one_step(epsilon: float) -> None:
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.25, steps=1), noise_multiplier=0.7)
    profile = known_upper(mixture(run.matrix, 1, 0.25, sigma=0.7), Direction.ADD)
    assert profile is not None
    lower = hs.bound(run, "direct", side=Side.LOWER).profiles[Direction.ADD](epsilon)
    upper = hs.bound(run, "direct").profiles[Direction.ADD](epsilon)
    assert lower <= profile(epsilon) <= upper * (1.0 + 1e-6)


def test_the_deterministic_bound_uses_conditional_moments() -> None:
    """Mean and second moment given that the examples take part at all, from the enumeration."""
    pair = mixture(ToeplitzMatrix(np.array([1.0, 0.7]), 6), 3, 0.2, sigma=1.3, warm=True, examples=2)
    weights, vectors = vectors_of(pair)
    assert np.allclose(pair.availability * 2 * 0.2, weights @ vectors, rtol=1e-13)
    active = vectors.any(axis=1)
    chance = float(weights[active].sum())
    means = vectors[active] @ pair.matrix.materialize().T
    first = weights[active] @ means / chance
    second = float(weights[active] @ (means**2).sum(axis=1)) / chance
    outputs = np.random.default_rng(15).normal(0.0, 1.3, (400_000, 6))
    conditional = np.exp((outputs @ first - 0.5 * second) / 1.3**2)
    values = np.maximum(1.0 - exp(0.1) * ((1.0 - chance) + chance * conditional), 0.0)
    profile = known_upper(pair, Direction.ADD)
    assert profile is not None
    assert abs(values.mean() - profile(0.1)) < sqrt(log(2.0 / FAILURE) / (2.0 * values.size))
    assert values.mean() > 0.05


@pytest.mark.parametrize("direction", list(Direction))
def test_the_same_seed_gives_the_same_bits_anywhere(direction: Direction) -> None:
    pair = mixture(ToeplitzMatrix(np.array([1.0, 0.5]), 40), 3, warm=True)
    proposal = FAMILY.build(pair, direction, "naive", {})
    assert proposal.parameters == {}
    first, again = losses_of(proposal, 500, seed=16), losses_of(proposal, 500, seed=16)
    assert np.array_equal(first, again)
    assert np.array_equal(first, losses_of(pickle.loads(pickle.dumps(proposal)), 500, seed=16))
    assert not np.array_equal(first, losses_of(proposal, 500, seed=17))
    assert 0.0 < proposal.loss_error < 1e-6
    assert proposal.cost > 0.0
    last = FAMILY.propose(pair, direction, 1.0)[-1]
    assert (last.name, last.direction) == ("naive", direction)


def test_the_family_refuses_what_it_cannot_sample() -> None:
    pair = mixture(ToeplitzMatrix(np.array([1.0, 0.5]), 6), 3)
    with pytest.raises(InvalidInputError, match="Got 'no such proposal'"):
        FAMILY.build(pair, Direction.ADD, "no such proposal", {})
    with pytest.raises(InvalidInputError):
        FAMILY.build(pair, Direction.ADD, "naive", {"beta": 1.0})
    assert refusal(pair, Side.LOWER) is None
    assert refusal(mixture(TreeMatrix(4, 6), 4), Side.UPPER) is None
    tree = mixture(TreeMatrix(4, 6), 4, examples=2)
    assert refusal(tree, Side.UPPER) == f"it needs a square strategy matrix, not one of {tree.matrix.rows} rows"
    assert known_upper(pair, Direction.REMOVE) is None


def test_the_fingerprint_tells_pairs_apart() -> None:
    matrix = ToeplitzMatrix(np.array([1.0, 0.5]), 6)
    others = [
        mixture(ToeplitzMatrix(np.array([1.0, 0.5]), 7), 3),
        mixture(ToeplitzMatrix(np.array([1.0, 0.4]), 6), 3),
        mixture(DenseMatrix(dense(6, 2, seed=18)), 3),
        mixture(matrix, 2),
        mixture(matrix, 3, 0.31),
        mixture(matrix, 3, warm=True),
        mixture(matrix, 3, examples=2),
    ]
    prints = {repr([np.asarray(part).tolist() for part in FAMILY.fingerprint(pair)]) for pair in others}
    prints.add(repr([np.asarray(part).tolist() for part in FAMILY.fingerprint(mixture(matrix, 3))]))
    assert len(prints) == 8
