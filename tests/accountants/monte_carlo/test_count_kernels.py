"""The chain of counts against sums over all counts, a transfer matrix, and the recursion over subsets."""

from itertools import product
from math import comb, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.accountants.monte_carlo.count_kernels import (
    count_table,
    draw_counts,
    log_chances,
    log_sum,
)
from hockeystick.accountants.monte_carlo.participations import participations
from hockeystick.pairs.cyclic_subsets import CyclicSubsets
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

MANY = 10**6


def random_pair(steps: int, bands: int, groups: int, toeplitz: bool) -> SubsetMixture | CyclicSubsets:
    rng = np.random.default_rng(5)
    if groups > 1:
        matrix = ToeplitzMatrix(np.linspace(1.0, 0.2, bands), steps)
        return CyclicSubsets(noise_multiplier=1.3, matrix=matrix, groups=groups, sampling_prob=0.2)
    band = rng.random((steps, bands)) + 0.1
    band[np.arange(steps)[:, None] + np.arange(bands)[None, :] >= steps] = 0.0
    matrix = ToeplitzMatrix(np.linspace(1.0, 0.2, bands), steps) if toeplitz else BandedMatrix(band)
    return SubsetMixture(noise_multiplier=1.3, matrix=matrix, sampling_prob=0.2)


def gram_of(pair: SubsetMixture | CyclicSubsets) -> np.ndarray:
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
    turns, gram, p = participations(pair), gram_of(pair), pair.sampling_prob
    total = 0.0
    for one in product(range(cap + 1), repeat=turns.count):
        counts = np.array(one)
        weight = np.prod([comb(copies, j) * p**j * (1.0 - p) ** (copies - j) for j in one])
        total += weight * np.exp(0.5 * (counts @ gram @ counts - np.diag(gram) @ counts))
    table = count_table(turns.couplings, log_chances(p, copies, cap + 1), MANY)
    assert log_sum(table, turns.count) == pytest.approx(log(total), rel=1e-12)


@pytest.mark.parametrize(("copies", "cap"), [(2, 2), (5, 5), (12, 3)])
@pytest.mark.parametrize("prob", [0.01, 0.3])
def test_rows_that_settle_stand_for_all_others(copies: int, cap: int, prob: float) -> None:
    """2000 turns with two bands, by powers of the transfer matrix."""
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


def test_a_table_that_would_be_too_large_is_not_made() -> None:
    couplings = np.tile((0.3, 0.12), (100, 1))
    table = count_table(couplings, log_chances(0.1, 3, 4), 5)
    assert table.shape[0] == 0
    assert log_sum(table, 100) == inf


@settings(max_examples=40, deadline=None)
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
    """M rests on this. Without correlation between turns both are the same, and with cap = order so is F."""
    column = np.random.default_rng(seed).random(min(bands, steps)) + 0.05
    matrix = ToeplitzMatrix(column, steps)
    pair = CyclicSubsets(noise_multiplier=sigma, matrix=matrix, groups=groups, sampling_prob=prob)
    turns, chances = participations(pair), log_chances(prob, order, order + 1)
    chain = chances, count_table(turns.couplings, chances, MANY)
    drawn, rng = np.empty((50, 3)), np.random.Generator(np.random.SFC64(seed))
    draw_counts(rng, turns.scaled, turns.fresh, prob, turns.couplings, chain, chain, (0.4, 0.3), drawn)
    slack = 1e-10 * (1.0 + np.abs(drawn[:, 1]))
    assert (drawn[:, 1] >= drawn[:, 0] - slack).all()
    assert drawn[:, 2] == pytest.approx(order * drawn[:, 1], rel=1e-9, abs=1e-9)
    if bands <= groups:
        assert drawn[:, 1] == pytest.approx(drawn[:, 0], rel=1e-9, abs=1e-9)
