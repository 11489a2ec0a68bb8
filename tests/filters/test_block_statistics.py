"""The law of a sum of functions of blocks against a sum over all participations, block by block."""

from dataclasses import replace
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from renewal_runs import runs
from scipy.special import ndtr
from scipy.stats import norm

from hockeystick.filters.block_statistics import NDTR_ERROR, Blocks, blocks_of, cell_masses, sum_laws


def expected(blocks: Blocks, column: np.ndarray, sigma: float, taken: tuple[int, ...]) -> np.ndarray:
    """The law of the sum given the participations: means of the blocks from the matrix itself."""
    length = blocks.size * blocks.count
    rows = np.zeros(length)
    for step in taken:
        end = min(step + column.size, length)
        rows[step:end] += column[: end - step]
    means = rows.reshape(blocks.count, blocks.size).sum(axis=1) / np.sqrt(blocks.size) / sigma
    law = np.ones(1)
    for mean in means:
        cdf = norm.cdf(np.concatenate([[-np.inf], blocks.edges, [np.inf]]), loc=mean)
        law = np.convolve(law, np.diff(cdf))
    whole = np.zeros(blocks.most + 1)
    whole[: min(law.size, blocks.most + 1)] = law[: blocks.most + 1]
    whole[-1] += law[blocks.most + 1 :].sum()
    return whole


@pytest.mark.parametrize("first", [(1.0,), (0.4, 0.3, 0.2, 0.1), (0.1,) * 10])
@pytest.mark.parametrize(
    ("column", "size", "gap", "steps"),
    [((1.0,), 1, 2, 6), ((1.0, 0.5), 2, 3, 7), ((1.0, 0.5, 0.2), 1, 4, 7), ((1.0,), 3, 3, 9), ((1.0, 0.7), 2, 5, 8)],
)
def test_all_runs(column: tuple[float, ...], size: int, gap: int, steps: int, first: tuple[float, ...]) -> None:
    prob, sigma = 0.3, 0.9
    taps = np.array(column)
    blocks = blocks_of(taps, steps, size, sigma, prob, gap)
    assert blocks.count == steps // size
    assert (np.diff(blocks.edges) > 0.0).all()
    without, taking_part, error = sum_laws(blocks, prob, gap, np.array(first), 1e-15)
    assert 0.0 < error < 1e-6
    np.testing.assert_allclose(without, expected(blocks, taps, sigma, ()), rtol=1e-8, atol=1e-14)
    found = np.zeros(blocks.most + 1)
    length = size * blocks.count
    for start, chance in enumerate(first):
        for taken, weight in runs(start, length, gap, prob):
            found += chance * weight * expected(blocks, taps, sigma, taken)
    np.testing.assert_allclose(taking_part, found, rtol=1e-8, atol=1e-14)


def test_the_error_covers_a_matrix_that_differs_by_its_rounding() -> None:
    prob, gap, rounding = 0.3, 3, 1e-6
    blocks = blocks_of(np.array([1.0, 0.5]), 8, 2, 0.9, prob, gap)
    _, found, error = sum_laws(blocks, prob, gap, np.ones(1), rounding)
    for factor in (1.0 - rounding, 1.0 + rounding):
        _, other, _ = sum_laws(replace(blocks, shifts=factor * blocks.shifts), prob, gap, np.ones(1), rounding)
        kept = found > 1e-250
        assert 1e-7 < np.abs(other[kept] / found[kept] - 1.0).max() <= error < 1e-3


def test_a_low_ceiling_joins_the_largest_sums() -> None:
    """Sums above the largest that is told apart are one value, as any function of the output may do."""
    blocks = blocks_of(np.array([1.0, 0.5]), 12, 2, 1.0, 0.2, 3)
    low = Blocks(blocks.size, blocks.count, blocks.shifts, blocks.edges, blocks.most // 3, 0.0, 0.0)
    for law, cut in zip(
        sum_laws(blocks, 0.2, 3, np.ones(1), 0.0)[:2], sum_laws(low, 0.2, 3, np.ones(1), 0.0)[:2], strict=True
    ):
        np.testing.assert_allclose(cut[:-1], law[: low.most], rtol=1e-10, atol=1e-300)
        assert cut.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_waits_beyond_the_end_take_no_memory(size: int) -> None:
    taps, first, prob = np.array([1.0, 0.5]), np.array([0.5, 0.25, 0.25]), 0.3
    blocks = blocks_of(taps, 6, size, 0.9, prob, 6)
    longest = blocks_of(taps, 6, size, 0.9, prob, 10**15)
    assert longest.cost <= 6 * (longest.most + 1.0) * (longest.edges.size + 1) * (6 // size + 1)
    for found, expected in zip(
        sum_laws(blocks, prob, 10**15, first, 0.0), sum_laws(blocks, prob, 6, first, 0.0), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def exact_cdf(x: mp.mpf) -> mp.mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def test_the_distribution_function_is_as_exact_as_is_charged() -> None:
    """The difference of two of its values errs by both of them; a factor 2 is left for other versions of scipy."""
    with mp.workdps(40):
        points = np.random.default_rng(79).uniform(-37.0, 1.0, 1000).tolist()
        worst = max(abs(mp.mpf(float(ndtr(x))) / exact_cdf(mp.mpf(x)) - 1) for x in points)
    assert 4 * worst < NDTR_ERROR


@pytest.mark.parametrize("shift", [0.0, 1.7, 8.3, 16.1, 30.7])
def test_masses_of_cells_err_by_less_than_is_charged(shift: float) -> None:
    for count in (2, 5, 23):
        edges = np.linspace(-3.5, min(shift, 20.0) + 2.5, count)
        masses, error = cell_masses(edges, shift)
        with mp.workdps(40):
            places = [mp.mpf(edge) - mp.mpf(shift) for edge in edges.tolist()]
            inner = [
                exact_cdf(b) - exact_cdf(a) if b <= 0 else exact_cdf(-a) - exact_cdf(-b) for a, b in pairwise(places)
            ]
            exact = [exact_cdf(places[0]), *inner, exact_cdf(-places[-1])]
            worst = max(abs(mp.mpf(mass) / one - 1) for mass, one in zip(masses.tolist(), exact, strict=True))
        assert 2 * worst < error < 1e-8


@pytest.mark.filterwarnings("error")
def test_cells_that_are_out_of_reach_are_charged_without_end() -> None:
    _, error = cell_masses(np.array([-3.5, 0.0, 40.0]), 45.0)
    assert error == np.inf
