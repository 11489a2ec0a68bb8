"""Windows with at most one participation against sums over all outputs, and the order of laws and of matrices."""

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.optimize import minimize

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction
from hockeystick.windows import chains
from hockeystick.windows.chains import least_upper_bound, window_law
from hockeystick.windows.dominating_chain import DominatingChain, dominating_chain, gram_band

EPSILONS = (0.0, 0.02, 0.1, 0.3, 0.7, 1.5)
FINE, COARSE = Resolution(68, 1e-5), Resolution(20, 1e-5)


def ratios_and_masses(scales: Array, correlation: float, prob: float, first: int) -> tuple[Array, Array]:
    """X_u for u = first on a grid of the chain's innovations, with the masses of its points."""
    axis = np.linspace(-7.0, 8.5, 156)
    weight = np.exp(-0.5 * axis**2) / np.sqrt(2.0 * np.pi) * (axis[1] - axis[0])
    later = scales[first:]
    grids = np.meshgrid(*[axis] * later.size, indexing="ij", sparse=True)
    ratio = np.full((1,) * later.size, (1.0 - prob) ** later.size)
    masses = np.ones((1,) * later.size)
    state = np.zeros((1,) * later.size)
    for place, scale in enumerate(later):
        state = grids[0] if place == 0 else correlation * state + np.sqrt(1.0 - correlation**2) * grids[place]
        ratio = ratio + prob * (1.0 - prob) ** place * np.exp(scale * state - 0.5 * scale**2)
        masses = masses * np.exp(-0.5 * grids[place] ** 2) / np.sqrt(2.0 * np.pi) * (axis[1] - axis[0])
    assert float(masses.sum()) == pytest.approx(1.0, abs=1e-9)
    assert weight.sum() == pytest.approx(1.0, abs=1e-9)
    return ratio, masses


def deltas(ratio: Array, masses: Array) -> Array:
    remove = [float((np.maximum(ratio - np.exp(eps), 0.0) * masses).sum()) for eps in EPSILONS]
    add = [float((np.maximum(1.0 - np.exp(eps) * ratio, 0.0) * masses).sum()) for eps in EPSILONS]
    return np.array([remove, add])


def of_law(law: Law) -> Array:
    return np.array([[law_delta(law, eps, direction) for eps in EPSILONS] for direction in Direction])


CASES = [
    (np.array([1.0]), 0.0, 0.2),
    (np.array([2.5]), 0.0, 0.02),
    (np.array([1.0, 1.0]), 0.0, 0.3),
    (np.array([0.4, 0.9]), 0.6, 0.5),
    (np.array([1.5, 0.5]), 0.9, 0.1),
    (np.array([0.8, 0.7, 0.9]), 0.4, 0.25),
    (np.array([0.3, 0.3, 2.0]), 0.7, 0.05),
    (np.array([1.2, 1.0, 1.1]), 0.95, 0.6),
]


@pytest.mark.parametrize("resolution", [COARSE, FINE])
@pytest.mark.parametrize(("scales", "correlation", "prob"), CASES)
def test_the_law_of_a_window(scales: Array, correlation: float, prob: float, resolution: Resolution) -> None:
    """At least the largest profile of the cases u, and on fine grids little above it, at every epsilon, both ways."""
    law = window_law(scales, correlation, prob, resolution, Deadline())
    truth = np.max([deltas(*ratios_and_masses(scales, correlation, prob, u)) for u in range(scales.size)], axis=0)
    computed = of_law(law)
    error = 2e-5  # of sums over the grid: the second derivative of the hockey stick's edge, times a cell
    assert (computed >= truth - error).all()
    assert (computed <= truth * (1.02 if resolution is FINE else 1.2) + 2e-4).all()
    assert law.mean() == pytest.approx(1.0, abs=1e-9)
    assert law.floor <= (1.0 - prob) ** scales.size * (1.0 + 1e-12)


@pytest.mark.parametrize(("scales", "correlation", "prob"), CASES[:5])
def test_what_is_out_of_reach_is_charged(
    scales: Array, correlation: float, prob: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that are rarer than a hundredth are left out here, and the law is still above the truth, both ways."""
    monkeypatch.setattr(chains, "TAIL_SHARE", 1e-2 / COARSE.smallest_delta)
    law = window_law(scales, correlation, prob, COARSE, Deadline())
    truth = np.max([deltas(*ratios_and_masses(scales, correlation, prob, u)) for u in range(scales.size)], axis=0)
    assert (of_law(law) >= truth - 2e-5).all()


def test_what_is_above_the_grid_keeps_its_mean() -> None:
    """Three steps of one state each, so that W_i is a number: what the short grid does not hold is at infinity."""
    grid, prob, mean = np.array([0.0, 0.1, 0.2]), 0.3, 0.0
    ratios = np.array([[2.0], [0.5], [3.0]])
    masses, infinite = chains._backwards(grid, np.ones((1, 1)), np.ones(1), ratios, np.full(3, prob), 3, Deadline())
    for step in (2, 1, 0):
        mean = prob * float(ratios[step, 0]) + (1.0 - prob) * mean
        assert float(masses[step] @ grid) + infinite[step] == pytest.approx(mean, rel=1e-14)


def test_every_step_samples_the_lattice_once_more() -> None:
    short, long = (window_law(np.full(steps, 0.5), 0.5, 0.1, COARSE, Deadline()) for steps in (3, 12))
    assert long.place_error > 3.9 * short.place_error
    assert long.mass_error > 3.9 * short.mass_error


def test_finer_grids_are_tighter() -> None:
    scales = np.full(12, 0.8)
    fine, coarse = (of_law(window_law(scales, 0.5, 0.05, resolution, Deadline())) for resolution in (FINE, COARSE))
    assert (fine <= coarse * (1.0 + 1e-6) + 1e-12).all()


def test_independent_columns_are_a_weighted_average() -> None:
    """Without correlation the second moment of X_1 is a sum over the steps."""
    scales, prob = np.linspace(1.0, 0.5, 10), 0.1
    law = window_law(scales, 0.0, prob, FINE, Deadline())
    weights = prob * (1.0 - prob) ** np.arange(10)
    exact = float(weights**2 @ np.expm1(scales**2))
    variance = float(law.mass @ (law.support - 1.0) ** 2)
    assert exact < variance < 1.05 * exact


@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(0.0, 1.0), min_size=9, max_size=9), min_size=1, max_size=4), st.floats(0.05, 0.95))
def test_the_least_upper_bound_is_above_all_and_least(raw: list[list[float]], least: float) -> None:
    grid = np.array([0.1, 0.3, 0.6, 0.9, 1.0, 1.2, 1.7, 2.5, 4.0])
    masses = np.array(raw)
    masses = masses / np.maximum(masses.sum(axis=1, keepdims=True), 1e-9) * (1.0 - least)
    masses[masses.sum(axis=1) < 1e-3, 4] = 1.0 - least
    for row in masses:  # the mean becomes 1 by mass at both ends
        row /= row.sum() / (1.0 - least)
        target = 1.0 - float(row @ grid)
        share = (target / least - grid[0]) / (grid[-1] - grid[0]) if least else 0.0
        if not 0.0 <= share <= 1.0:
            row[:] = 0.0
            row[4] = 1.0 - least
            share = (1.0 - grid[0]) / (grid[-1] - grid[0])
        row[0] += least * (1.0 - share)
        row[-1] += least * share
    support, mass, p_inf = least_upper_bound(grid, masses, np.zeros(len(masses)))
    assert mass.sum() == pytest.approx(1.0, abs=1e-9)
    assert float(mass @ support) + p_inf == pytest.approx(1.0, abs=1e-9)
    for c in np.linspace(0.05, 4.5, 90):
        calls = np.maximum(grid - c, 0.0)
        puts = np.maximum(c - grid, 0.0)
        most, own = float((masses @ calls).max()), float(mass @ np.maximum(support - c, 0.0)) + p_inf
        assert own >= most - 1e-13
        assert float(mass @ np.maximum(c - support, 0.0)) >= float((masses @ puts).max()) - 1e-13
        if np.abs(grid - c).min() < 1e-12:
            assert own <= most + 1e-9


# Matrices


@pytest.mark.parametrize("seed", range(8))
def test_chains_dominate_by_eigenvalues(seed: int) -> None:
    """K - G has no negative eigenvalue, K being zero between windows, and half of K does not do."""
    rng = np.random.default_rng([3, seed])
    n, bands, size = int(rng.integers(5, 40)), int(rng.integers(1, 6)), int(rng.integers(2, 9))
    matrix = np.zeros((n + bands, n))
    for j in range(n):
        matrix[j : j + bands, j] = rng.uniform(0.1, 1.0, bands)
    matrix = matrix[:n]
    columns = np.array([[matrix[j + d, j] if j + d < n else 0.0 for d in range(bands)] for j in range(n)])
    gram = matrix.T @ matrix
    band = gram_band(columns, max(bands, size))
    for lag in range(min(bands, n)):
        np.testing.assert_allclose(band[lag, : n - lag], np.diagonal(gram, lag), rtol=1e-12)
    chain = dominating_chain(band, size, 1.5, 0.1, 1e-15, Deadline())
    blocks = np.zeros((n, n))
    for last in range(n, 0, -size):
        steps = min(size, last)
        blocks[last - steps : last, last - steps : last] = chain.products[size - steps :, size - steps :]
    assert np.linalg.eigvalsh(blocks - gram)[0] >= 0.0
    assert np.linalg.eigvalsh(0.98 * blocks - gram)[0] < 0.0


def test_a_chain_dominates_every_matrix_that_the_known_one_may_be() -> None:
    """One that is larger by the rounding, in every entry; where nothing is rounded, so much room is not taken."""
    n, size, rounding = 20, 4, 0.01
    columns = np.array([[entry if j + d < n else 0.0 for d, entry in enumerate((1.0, 0.6, 0.3))] for j in range(n)])
    matrix = sum(np.diag(columns[: n - d, d], -d) for d in range(3))
    gram, band = matrix.T @ matrix, gram_band(columns, size)
    for known, dominates in ((rounding, True), (0.0, False)):
        products = dominating_chain(band, size, 1.0, 0.1, known, Deadline()).products
        blocks = np.kron(np.eye(n // size), products)
        assert bool(np.linalg.eigvalsh(blocks - (1.0 + rounding) * gram)[0] >= 0.0) is dominates


@pytest.mark.parametrize(("bands", "size", "sigma"), [(3, 3, 6.0), (2, 4, 2.0)])
def test_free_scales_have_the_smallest_variance(bands: int, size: int, sigma: float) -> None:
    """Another search, over all scales and by eigenvalues of all windows, finds none that is smaller by 1e-4."""
    n, prob = 8 * size - 1, 0.1
    column = np.array([1.0, 0.5, 0.375, 0.3125])[:bands]
    columns = np.tile(column, (n, 1)) * (np.arange(n)[:, None] + np.arange(bands) < n)
    band = gram_band(columns, max(bands, size))
    matrix = sum(np.diag(columns[: n - lag, lag], -lag) for lag in range(bands))
    gram = np.pad(matrix.T @ matrix, (1, 0))  # a first window that lacks a step

    def variance(shape: Array) -> float:
        chain = DominatingChain(np.exp(np.append(0.0, shape[1:])), 1.0 / (1.0 + np.exp(-shape[0])))
        largest = eigh(gram, np.kron(np.eye(8), chain.products), eigvals_only=True)[-1]
        return log(DominatingChain(chain.scales * sqrt(largest), chain.correlation).second_moment(sigma, prob))

    shape, options = np.append(-1.0, np.zeros(size - 1)), {"maxfev": 2000, "xatol": 1e-7, "fatol": 1e-9}
    for _ in range(3):
        shape = minimize(variance, shape, method="Nelder-Mead", options=options).x
    chain = dominating_chain(band, size, sigma, prob, 1e-15, Deadline())
    assert log(chain.second_moment(sigma, prob)) <= variance(shape) + 1e-4


@pytest.mark.parametrize("seed", [310, 322])
def test_a_search_that_goes_far_overflows_nowhere(seed: int) -> None:
    """Columns of such lengths and hardly any correlation, for which the search would go on to a correlation of 0."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    own, next_row = rng.uniform(0.01, 1.0, 12), rng.uniform(0.0, 1.0, 11) ** 3
    gram = gram_band(np.column_stack([own, np.append(next_row, 0.0)]), size)
    chain = dominating_chain(gram, size, 0.7 * float(np.sqrt(gram[0].max())), 0.34, 1e-15, Deadline())
    assert 0.0 <= chain.correlation < 1.0


def test_scales_of_too_many_sizes_leave_those_of_the_formula() -> None:
    """Three of four columns are short: no multiple of the free scales is proved to be large enough."""
    own, next_row = np.tile([1e-5, 1e-5, 1e-5, 1.0], 6), np.tile([1e-5, 1e-5, 0.0, 0.0], 6)
    chain = dominating_chain(gram_band(np.column_stack([own, next_row]), 4), 4, 4.0, 0.2, 1e-15, Deadline())
    assert chain.scales[3] >= 1.0


def test_columns_that_share_no_row_are_kept() -> None:
    chain = dominating_chain(gram_band(np.ones((20, 1)), 5), 5, 1.0, 0.1, 0.0, Deadline())
    assert chain.correlation == 0.0
    np.testing.assert_allclose(chain.scales, 1.0, rtol=3e-4)
    assert (chain.scales >= 1.0).all()


def test_a_deadline_ends_the_search_for_a_chain() -> None:
    band = gram_band(np.array([[1.0, 0.5]] * 20), 4)
    ticks: list[int] = []
    dominating_chain(band, 4, 1.0, 0.1, 0.0, Deadline(on_tick=ticks.append))
    assert len(ticks) > 10
    with pytest.raises(BudgetExceededError):
        dominating_chain(band, 4, 1.0, 0.1, 0.0, Deadline(0.0))


def test_a_chain_is_a_gaussian_with_these_products() -> None:
    chain = DominatingChain(np.array([1.0, 2.0]), 0.5)
    assert chain.products.tolist() == [[1.0, 1.0], [1.0, 4.0]]
    moment = chain.second_moment(1.0, 0.2)
    exact = 0.04 * np.expm1(1.0) + 2 * 0.032 * np.expm1(1.0) + 0.0256 * np.expm1(4.0)
    assert moment == pytest.approx(exact)
