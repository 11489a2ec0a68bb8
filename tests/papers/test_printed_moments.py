"""schuchardt-kalinin-2026: Algorithm 1 and Lemma 3.4 as printed, against sums over all tuples and quadrature."""

import sys
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hockeystick.reproduction.papers import figures_of, folder_of

PAPER = "schuchardt-kalinin-2026"


@pytest.fixture
def runs() -> ModuleType:
    """The module of the paper's mechanisms, which loads with its figures."""
    figures_of(folder_of(PAPER))
    return sys.modules["hockeystick_papers_schuchardt_kalinin_2026.runs"]


def banded_gram(bins: int, width: int, rng: np.random.Generator) -> Any:
    """A symmetric matrix whose entries at ring distance below ``width`` are random, and 0.1 elsewhere."""
    gap = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    entries = rng.uniform(0.2, 0.8, size=(bins, bins))
    return np.where(np.minimum(gap, bins - gap) < width, 0.5 * (entries + entries.T), 0.1)


@pytest.mark.parametrize(("bins", "width"), [(4, 1), (5, 2), (6, 3)])
def test_algorithm_1_is_the_sum_of_equation_5(runs: ModuleType, bins: int, width: int) -> None:
    """The sum over all tuples of bins, of the matrix that Algorithm 1 sees: the band, and the largest entry outside."""
    scaled = banded_gram(bins, width, np.random.default_rng(20261122))
    moments = runs.algorithm_1(scaled, width, 4)
    for order in (2, 3, 4):
        total = 0.0
        for drawn in product(range(bins), repeat=order):
            pairs = scaled[np.ix_(drawn, drawn)]
            total += np.exp((pairs.sum() - np.trace(pairs)) / 2.0)
        assert moments[order - 2] == pytest.approx(np.log(total) - order * np.log(bins), rel=1e-12)


def test_algorithm_1_is_above_the_moments_where_the_matrix_is_not_banded(runs: ModuleType) -> None:
    scaled = banded_gram(6, 3, np.random.default_rng(20261123))
    assert np.all(runs.algorithm_1(scaled, 1, 5) > runs.algorithm_1(scaled, 3, 5))


def test_add_divergence_is_above_that_of_two_bins(runs: ModuleType) -> None:
    """Lemma 3.4 against quadrature: C = I, two bins, sigma = 1; ``E_Q X^(1-a)`` over a grid of both outputs."""
    axis = np.linspace(-14.0, 14.0, 1401)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    log_ratio = np.logaddexp(first, second) - 0.5 - np.log(2.0)
    for order in (2.0, 3.0, 5.0):
        integrand = np.exp((1.0 - order) * log_ratio - (first**2 + second**2) / 2.0) / (2.0 * np.pi)
        exact = np.log(integrand.sum() * (axis[1] - axis[0]) ** 2) / (order - 1.0)
        bound = float(runs.add_divergence(np.eye(2), np.array([order]))[0])
        assert exact < bound < 1.5 * exact
