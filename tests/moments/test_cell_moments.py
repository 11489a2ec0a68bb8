"""Moments on cells against the sum over all draws, against integrals, and against moments of the whole."""

from fractions import Fraction
from itertools import combinations_with_replacement
from math import factorial, inf

import mpmath
import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.moments.bands import banded_moments
from hockeystick.moments.cells import cell_cost, cell_moments, standard_edges, whole_moments, why_no_cells
from hockeystick.moments.exact import ExactGram
from hockeystick.moments.normal_tail import EXPANDED_ERROR
from hockeystick.moments.recheck import recheck


def ring_gram(rings: tuple[float, ...], bins: int, scale: float, common: float) -> ExactGram:
    place = np.arange(bins)
    distance = np.abs(place[:, None] - place[None, :])
    row = np.zeros(bins)
    row[: len(rings)] = rings
    return ExactGram(entries=row[np.minimum(distance, bins - distance)], scale=scale, common=common)


def number(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def summed(gram: ExactGram, largest: int, edges: list[float]) -> list[list[mpmath.mpf]]:
    """The sum over all drawn bins and all draws as the note of the module has it, one multiset after the other."""
    bins = gram.bins
    rest = [
        [
            mpmath.mpf(gram.scale) * (mpmath.mpf(float(gram.entries[i, j])) - mpmath.mpf(gram.common))
            for j in range(bins)
        ]
        for i in range(bins)
    ]
    ends = [-mpmath.inf, *map(mpmath.mpf, edges), mpmath.inf]
    result = [[mpmath.mpf(0)] * (largest + 1) for _ in range(len(ends) - 1)]
    for drawn in range(1 if gram.is_circulant else bins):
        root = mpmath.sqrt(rest[drawn][drawn])
        for k in range(largest + 1):
            for draws in combinations_with_replacement(range(bins), k):
                counts = [draws.count(i) + (i == drawn) for i in range(bins)]
                exponent = sum(rest[i][i] * counts[i] * (counts[i] - 1) / 2 for i in range(bins))
                exponent += sum(rest[i][j] * counts[i] * counts[j] for i in range(bins) for j in range(i + 1, bins))
                ways = mpmath.mpf(factorial(k)) / mpmath.mpf(bins) ** k / (1 if gram.is_circulant else bins)
                for i in range(bins):
                    ways /= factorial(draws.count(i))
                mean = sum(rest[drawn][j] * counts[j] for j in range(bins))
                tails = [mpmath.erfc((end - mean) / root / mpmath.sqrt(2)) / 2 for end in ends]
                for c in range(len(ends) - 1):
                    result[c][k] += ways * mpmath.exp(exponent) * (tails[c] - tails[c + 1])
    return result


def uneven_gram(bins: int, reach: int, scale: float) -> ExactGram:
    """Every entry near the diagonal is different, but for each third one away from it."""
    random = np.random.default_rng(bins)
    entries = np.zeros((bins, bins))
    for i in range(bins):
        for d in range(reach + 1):
            value = random.uniform(1.5, 2.0) if d == 0 else 0.25 if i % 3 == 0 else random.uniform(0.0, 0.6)
            entries[i, (i + d) % bins] = entries[(i + d) % bins, i] = value
    return ExactGram(entries=entries, scale=scale, common=0.05)


@pytest.mark.parametrize(
    ("gram", "largest"),
    [
        (ring_gram((1.5, 0.7, 0.2), 7, 0.8, 0.1), 3),  # windows on both sides, with room between
        (ring_gram((1.5, 0.7, 0.4), 5, 2.3, 0.3), 4),  # the smallest ring for its reach: no bin is independent of bin 0
        (ring_gram((2.0, 0.5), 4, 1.7, 0.2), 4),
        (ring_gram((1.0,), 3, 3.0, 0.1), 3),
        (uneven_gram(8, 2, 0.8), 3),  # the smallest ring for its reach where bins differ
        (uneven_gram(5, 1, 1.3), 3),
        (uneven_gram(3, 0, 2.0), 4),
    ],
)
def test_cells_agree_with_the_sum_over_all_draws(gram: ExactGram, largest: int) -> None:
    edges = standard_edges(gram, np.array([-3.0, -0.4, 0.1, 3.0]))
    cells = cell_moments(gram, largest, edges, deadline=Deadline())
    assert len(cells.moments) == edges.size + 1
    with mpmath.workdps(40):
        for known, expected in zip(cells.moments, summed(gram, largest, edges.tolist()), strict=True):
            assert known.error <= Fraction(10) ** -23
            for value, true in zip(known.values, expected, strict=True):
                assert abs(number(value) - true) <= number(known.error) * number(value)


def test_the_error_of_tails_is_charged_where_little_of_them_is_left() -> None:
    """The mass of a thin cell is a difference of two tails, each with its own error relative to itself."""
    gram = ring_gram((1.5, 0.7, 0.2), 7, 0.8, 0.1)
    width = 1e-5
    cells = cell_moments(gram, 2, standard_edges(gram, np.array([1.0, 1.0 + width])), deadline=Deadline())
    tail, thin = sum(float(part.values[0]) for part in cells.moments[1:]), cells.moments[1]
    assert thin.error >= Fraction(EXPANDED_ERROR) * Fraction(tail) / thin.values[0]
    assert thin.error >= 1000 * cells.moments[0].error


def test_uneven_rings_of_more_bins_agree_with_a_second_computation() -> None:
    """Windows of reach 3 before, after and across both places where the ring is cut open."""
    gram = uneven_gram(14, 3, 0.6)
    cells = cell_moments(gram, 4, standard_edges(gram, np.array([-2.0, 0.5, 3.0])), deadline=Deadline())
    recheck(gram, whole_moments(cells, gram), deadline=Deadline())


def test_cells_are_integrals_of_the_mixture() -> None:
    """b = 3 under the law of the drawn bin: u_0 by Gauss and Legendre on the cell, the others by Gauss and Hermite."""
    gram = ring_gram((1.4, 0.5), 3, 0.5, 0.2)
    rest = gram.scale * (gram.entries - gram.common)
    edges = standard_edges(gram, np.array([-0.7, 0.9]))
    cells = cell_moments(gram, 3, edges, deadline=Deadline())
    place, weight = np.polynomial.legendre.leggauss(40)
    w = 0.5 * (edges[0] + edges[1]) + 0.5 * (edges[1] - edges[0]) * place
    weight = weight * 0.5 * (edges[1] - edges[0])
    density = weight * np.exp(-0.5 * (w - rest[0, 0]) ** 2 / rest[0, 0]) / np.sqrt(2 * np.pi * rest[0, 0])
    slope = rest[1:, 0] / rest[0, 0]
    root = np.linalg.cholesky(rest[1:, 1:] - np.outer(slope, rest[0, 1:]))
    nodes, masses = np.polynomial.hermite_e.hermegauss(40)
    masses = masses / masses.sum()
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    # under the proposal the mean of u is rest[:, 0], so given u_0 = w it is slope * w: the same as without
    u = (
        slope[:, None, None, None] * w[:, None, None]
        + np.einsum("ij,jxy->ixy", root, np.stack([first, second]))[:, None]
    )
    terms = np.exp(u - 0.5 * rest[0, 0]).sum(axis=0) + np.exp(w - 0.5 * rest[0, 0])[:, None, None]
    for k in range(4):
        integral = np.einsum("w,x,y,wxy->", density, masses, masses, (terms / 3.0) ** k)
        assert float(cells.moments[1].values[k]) == pytest.approx(integral, rel=1e-10)


def test_all_cells_together_are_the_moments_of_the_whole() -> None:
    gram = ring_gram((1.5, 0.8, 0.3), 40, 0.7, 0.06)
    cells = cell_moments(gram, 5, standard_edges(gram, np.linspace(-4.0, 5.0, 9)), deadline=Deadline())
    whole = whole_moments(cells, gram)
    assert whole.values[0] == 1
    assert abs(whole.values[1] - 1) <= whole.error
    logs = banded_moments(gram.scale * gram.entries, 3, 6).values
    for k in range(2, 7):
        assert float(whole.values[k]) == pytest.approx(np.exp(logs[k - 2]), rel=1e-9)


def test_what_is_not_covered_is_refused() -> None:
    refused = [
        (uneven_gram(7, 2, 1.0), 3),
        (ring_gram((1.5, 0.7, 0.3), 4, 1.0, 0.1), 3),
        (ring_gram((1.5, 0.7), 9, 50.0, 0.1), 6),
        (ring_gram((1.0,), 1, 1.0, 0.0), 3),
    ]
    for gram, largest in refused:
        assert why_no_cells(gram, largest) is not None
        assert cell_cost(gram, largest, 10) == inf
        with pytest.raises(UnsupportedError):
            cell_moments(gram, largest, np.array([0.0]), deadline=Deadline())
