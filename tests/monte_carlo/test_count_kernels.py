"""The chain of counts against sums over all counts, a transfer matrix, and the recursion over subsets."""

from itertools import product
from math import comb, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.laws.coins import log_chances
from hockeystick.moments.copies.counts import count_table, log_sum
from hockeystick.monte_carlo.subsets.count_kernels import draw_counts, log_products
from hockeystick.monte_carlo.subsets.kernels import Mixture
from hockeystick.monte_carlo.subsets.participations import participations
from hockeystick.monte_carlo.subsets.proposals import NEAR, SHARE, CountSubsets, log_norm
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction

MANY = 10**6


def random_pair(steps: int, bands: int, groups: int, toeplitz: bool) -> SubsetMixture:
    rng = np.random.default_rng(5)
    if groups > 1:
        matrix = ToeplitzMatrix(np.linspace(1.0, 0.2, bands), steps)
        return SubsetMixture(noise_multiplier=1.3, matrix=matrix, groups=groups, sampling_prob=0.2)
    band = rng.random((steps, bands)) + 0.1
    band[np.arange(steps)[:, None] + np.arange(bands)[None, :] >= steps] = 0.0
    matrix = ToeplitzMatrix(np.linspace(1.0, 0.2, bands), steps) if toeplitz else BandedMatrix(band)
    return SubsetMixture(noise_multiplier=1.3, matrix=matrix, sampling_prob=0.2)


def gram_of(pair: SubsetMixture) -> np.ndarray:
    steps = np.arange(0, pair.matrix.steps, pair.groups)
    columns = pair.matrix.columns(steps) / pair.noise_multiplier
    return np.asarray(columns.T @ columns)


@pytest.mark.parametrize(
    ("steps", "bands", "groups", "toeplitz"),
    [
        (5, 1, 1, False),
        (5, 2, 1, False),
        (5, 3, 1, False),
        (5, 3, 1, True),
        (4, 4, 1, True),
        (9, 5, 2, True),
        (8, 3, 3, True),
    ],
)
@pytest.mark.parametrize(("copies", "cap"), [(2, 2), (3, 3), (6, 2), (9, 1)])
def test_norm_is_the_sum_over_all_counts(
    steps: int, bands: int, groups: int, toeplitz: bool, copies: int, cap: int
) -> None:
    pair = random_pair(steps, bands, groups, toeplitz)
    opportunities, gram, p = participations(pair), gram_of(pair), pair.sampling_prob
    chances = np.array([comb(copies, j) * p**j * (1.0 - p) ** (copies - j) for j in range(cap + 1)])
    chances /= chances.sum()
    total = 0.0
    for places in product(range(cap + 1), repeat=opportunities.count):
        counts = np.array(places)
        total += np.prod([chances[j] for j in places]) * np.exp(0.5 * (counts @ gram @ counts - np.diag(gram) @ counts))
    table = count_table(opportunities.couplings, log_chances(p, copies, cap + 1), MANY)
    assert log_sum(table, opportunities.count) == pytest.approx(log(total), rel=1e-12)


@pytest.mark.parametrize(("copies", "cap"), [(2, 2), (5, 5), (12, 3)])
@pytest.mark.parametrize("prob", [0.01, 0.3])
def test_rows_that_settle_stand_for_all_others(copies: int, cap: int, prob: float) -> None:
    """2000 opportunities with two bands, by powers of the transfer matrix."""
    steps, gram = 2000, (0.3, 0.12)
    couplings = np.tile(gram, (steps, 1))
    chances = log_chances(prob, copies, cap + 1)
    table = count_table(couplings, chances, MANY)
    assert 3 < table.shape[0] < 500
    count = np.arange(cap + 1)
    transfer = np.exp(chances + 0.5 * gram[0] * count * (count - 1) + gram[1] * np.outer(count, count))
    vector, expected = np.ones(cap + 1), 0.0
    for _ in range(steps):
        vector = transfer @ vector
        expected += log(vector[0])
        vector /= vector[0]
    assert log_sum(table, steps) == pytest.approx(expected, rel=1e-11, abs=1e-10)


def test_rows_do_not_settle_before_couplings_change() -> None:
    """One turn that is unlike the others, far from the end."""
    steps = 400
    couplings = np.tile((0.3, 0.12), (steps, 1))
    chances = log_chances(0.1, 3, 4)
    same = log_sum(count_table(couplings, chances, MANY), steps)
    couplings[2, 1] = 3.0
    table = count_table(couplings, chances, MANY)
    assert table.shape[0] == steps + 1
    assert log_sum(table, steps) > same + 0.01


@pytest.mark.parametrize("most", [5, 0])
def test_a_table_that_would_be_too_large_is_not_made(most: int) -> None:
    couplings = np.tile((0.3, 0.12), (100, 1))
    table = count_table(couplings, log_chances(0.1, 3, 4), most)
    assert table.shape[0] == 0
    assert log_sum(table, 100) == inf


def test_one_row_of_too_many_states_is_not_made_either() -> None:
    """Rows that settle at once, each of 25^11 numbers."""
    column = np.zeros(12)
    column[[0, -1]] = 1.0, 1e-10
    pair = SubsetMixture(noise_multiplier=100.0, matrix=ToeplitzMatrix(column, 300), sampling_prob=1e-5)
    assert log_norm(participations(pair), 24, 24) == inf


@pytest.mark.parametrize(
    ("column", "steps", "prob", "sigma", "order", "reach", "cap"),
    [
        ((1.0, 0.5), 20_000, 0.9, 200.0, 4, 96, 4),
        ((1.0, 0.1), 20_000, 0.95, 8.0, 2, 96, 2),
        ((1.0,), 100_000, 0.9, 100.0, 2, 96, 2),
        ((1.0, 0.5, 0.3), 20_000, 0.01, 2.0, 5, 12, 4),
    ],
)
def test_rounding_of_long_runs_is_within_what_is_promised(
    column: tuple[float, ...], steps: int, prob: float, sigma: float, order: int, reach: int, cap: int
) -> None:
    """Products against numbers with 64 bits of mantissa; log Z against a chain in them that does not settle."""
    pair = SubsetMixture(noise_multiplier=sigma, matrix=ToeplitzMatrix(np.array(column), steps), sampling_prob=prob)
    opportunities = participations(pair)
    proposal = CountSubsets(direction=Direction.REMOVE, pair=pair, order=order, reach=reach, cap=cap)
    chances = np.array([comb(reach, j) * prob**j * (1.0 - prob) ** (reach - j) for j in range(cap + 1)], np.longdouble)
    chances /= chances.sum()
    y = np.random.default_rng(3).normal(0.1, 1.0, (steps, 1))
    logs = np.empty(2)
    log_products(
        opportunities.scaled, prob, opportunities.couplings, np.exp(log_chances(prob, reach, cap + 1)), y, logs
    )
    z = -0.5 * opportunities.couplings[:, 0].astype(np.longdouble)
    for d in range(len(column)):
        z[: steps - d] += np.longdouble(column[d] / sigma) * y[d:, 0]
    product_of_all = np.log1p(prob * np.expm1(z)).sum()
    far = np.log(sum(chances[j] * np.exp(j * z) for j in range(cap + 1))).sum()
    assert abs(float(order * (logs[0] - product_of_all))) < 0.2 * proposal.loss_error
    assert abs(float(logs[1] - far)) < 0.2 * proposal.loss_error
    if len(column) <= 2:
        coupling = opportunities.couplings.astype(np.longdouble)
        count = np.arange(cap + 1)
        values, total = np.ones(cap + 1, np.longdouble), np.longdouble(0.0)
        for u in range(steps - 1, -1, -1):
            own = chances * np.exp(0.5 * coupling[u, 0] * count * (count - 1))
            pull = np.exp(coupling[u, 1] * np.outer(count, count)) if len(column) == 2 else np.ones((cap + 1, cap + 1))
            values = pull @ (own * values)
            total += np.log(values[0])
            values /= values[0]
        assert abs(float(log_norm(opportunities, reach, cap) - total)) < 0.2 * proposal.loss_error


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("order", "reach", "cap"), [(2, 2, 2), (3, 5, 2), (2, 9, 1), (4, 4, 4)])
def test_weights_are_those_of_the_law_that_is_drawn(groups: int, order: int, reach: int, cap: int) -> None:
    """P / R and Q / R have the mean 1 under R, up to a false-failure probability of 1e-9 each (Maurer and Pontil)."""
    matrix, prob, samples = ToeplitzMatrix(np.array([1.0, 0.6, 0.5]), 5 * groups), 0.2, 400_000
    pair: SubsetMixture = SubsetMixture(noise_multiplier=1.5, matrix=matrix, sampling_prob=prob)
    if groups > 1:
        pair = SubsetMixture(noise_multiplier=1.5, matrix=matrix, sampling_prob=prob, groups=groups)
    proposal = CountSubsets(direction=Direction.REMOVE, pair=pair, order=order, reach=reach, cap=cap)
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.Generator(np.random.SFC64(11)), log_weights, losses)
    largest = 1.0 / (1.0 - SHARE)
    for ratio, most in ((np.exp(log_weights), largest), (np.exp(log_weights - losses), largest * (1.0 - prob) ** -5)):
        assert ratio.max() <= most * (1.0 + 1e-9)
        width = np.sqrt(2.0 * ratio.var() * log(4e9) / samples) + 7.0 * most * log(4e9) / (3.0 * (samples - 1))
        assert abs(ratio.mean() - 1.0) < width < 0.05


@pytest.mark.parametrize(("order", "reach", "cap"), [(2, 2, 2), (3, 5, 2), (2, 9, 1), (3, 3, 3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_no_output_has_more_than_the_largest_value(order: int, reach: int, cap: int, epsilon: float) -> None:
    """Y as a function of the two outputs of two steps, on a grid, without the kernels."""
    matrix, prob, sigma = np.array([[1.0, 0.0], [0.6, 1.0]]), 0.2, 1.1
    pair = SubsetMixture(noise_multiplier=sigma, matrix=ToeplitzMatrix(matrix[:, 0], 2), sampling_prob=prob)
    axis = np.linspace(-6.0, 14.0, 401)
    y = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    columns = matrix / sigma
    gram = columns.T @ columns
    ratios = np.exp(y @ columns - 0.5 * np.diag(gram))
    first, second = ratios[..., 0], ratios[..., 1]
    p, q = prob, 1.0 - prob
    ratio = q * q + p * q * (first + second) + p * p * first * second * np.exp(-gram[0, 1])
    near = ((q + p * first) * (q + p * second)) ** order
    chances = np.array([comb(reach, j) * p**j * q ** (reach - j) for j in range(cap + 1)])
    chances /= chances.sum()
    far = sum(chances[j] * first**j for j in range(cap + 1)) * sum(chances[j] * second**j for j in range(cap + 1))

    def norm(weights: np.ndarray) -> float:
        j = np.arange(weights.size)
        both = 0.5 * gram[0, 0] * (j * (j - 1))[:, None] + 0.5 * gram[1, 1] * j * (j - 1) + gram[0, 1] * np.outer(j, j)
        return float(weights @ np.exp(both) @ weights)

    powers = np.array([comb(order, j) * p**j * q ** (order - j) for j in range(order + 1)])
    share = SHARE if reach == order == cap else NEAR
    density = (1.0 - SHARE) * ratio + share * near / norm(powers) + (SHARE - share) * far / norm(chances)
    values = ratio / density * np.maximum(1.0 - np.exp(epsilon) / ratio, 0.0)
    proposal = CountSubsets(direction=Direction.REMOVE, pair=pair, order=order, reach=reach, cap=cap)
    assert 0.2 < values.max() / proposal.weight_bound(epsilon) <= 1.0


@settings(max_examples=40)
@given(
    steps=st.integers(1, 12),
    bands=st.integers(1, 4),
    groups=st.integers(1, 3),
    order=st.integers(2, 6),
    prob=st.floats(0.001, 0.9),
    sigma=st.floats(0.4, 5.0),
    seed=st.integers(0, 2**31),
)
def test_the_product_over_turns_is_at_least_the_ratio(
    steps: int, bands: int, groups: int, order: int, prob: float, sigma: float, seed: int
) -> None:
    """M rests on this. Without correlation between opportunities both are the same, and with cap = order so is F."""
    column = np.random.default_rng(seed).random(min(bands, steps)) + 0.05
    matrix = ToeplitzMatrix(column, steps)
    pair = SubsetMixture(noise_multiplier=sigma, matrix=matrix, groups=groups, sampling_prob=prob)
    opportunities, chances = participations(pair), log_chances(prob, order, order + 1)
    chain = chances, count_table(opportunities.couplings, chances, MANY)
    drawn, rng = np.empty((50, 3)), np.random.Generator(np.random.SFC64(seed))
    mixture = Mixture(opportunities.scaled, opportunities.fresh, prob, opportunities.couplings)
    draw_counts(rng, mixture, chain, chain, (0.4, 0.3), drawn)
    slack = 1e-10 * (1.0 + np.abs(drawn[:, 1]))
    assert (drawn[:, 1] >= drawn[:, 0] - slack).all()
    assert drawn[:, 2] == pytest.approx(order * drawn[:, 1], rel=1e-9, abs=1e-9)
    if bands <= groups:
        assert drawn[:, 1] == pytest.approx(drawn[:, 0], rel=1e-9, abs=1e-9)
