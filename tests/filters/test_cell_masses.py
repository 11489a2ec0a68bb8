"""Normal masses of cells against their values in 40 digits."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

from hockeystick.filters.cell_masses import NDTR_ERROR, cell_masses


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
            worst = max(abs(mp.mpf(mass) / truth - 1) for mass, truth in zip(masses.tolist(), exact, strict=True))
        assert 2 * worst < error < 1e-8


@pytest.mark.filterwarnings("error")
def test_cells_that_are_out_of_reach_are_charged_without_end() -> None:
    _, error = cell_masses(np.array([-3.5, 0.0, 40.0]), 45.0)
    assert error == np.inf
