"""Moments on strips against multisets one by one, against integrals, and against moments of the whole."""

from fractions import Fraction
from itertools import combinations_with_replacement
from math import exp, factorial, inf

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.moments.common_factor import without_common
from hockeystick.moments.exact import ExactGram
from hockeystick.moments.exact_gram import proved_semidefinite
from hockeystick.moments.ring import ring_moments
from hockeystick.moments.strip_kernels import add_draws, strip_sums, tails_of
from hockeystick.moments.strips import (
    StripMoments,
    proved_covariance,
    strip_cost,
    strip_edges,
    strip_moments,
    why_no_strips,
)

PAIR = ExactGram(entries=np.array([[1.0, 0.3], [0.3, 0.7]]), scale=0.5, common=0.25)
TRIPLE = ExactGram(entries=np.array([[1.0, 0.5, 0.1], [0.5, 1.2, 0.4], [0.1, 0.4, 0.8]]), scale=0.4, common=0.2)
EDGES = np.array([-2.0, -0.5, 0.3, 1.5, 3.0])


def band_gram(bins: int, bands: int, scale: float) -> ExactGram:
    """Not circulant: the first bins overlap with fewer others."""
    rows = np.array([[1.0 / (1 + j - i) if 0 <= j - i < bands else 0.0 for j in range(bins)] for i in range(bins)])
    entries = rows.T @ rows + 0.05
    entries = np.maximum(entries, entries.T)
    assert proved_semidefinite(entries - 0.04)
    return ExactGram(entries=entries, scale=scale, common=0.04)


def draws_and_weights(covariance: Array, nodes: int) -> tuple[Array, Array]:
    """A product rule for ``N(0, covariance)``: shapes (b, n) and (n,)."""
    values, vectors = np.linalg.eigh(covariance)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grids = np.stack([grid.ravel() for grid in np.meshgrid(*[x] * len(covariance))])
    weights = np.prod(np.stack([grid.ravel() for grid in np.meshgrid(*[w / w.sum()] * len(covariance))]), axis=0)
    return vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * grids), weights


def integrated(gram: ExactGram, strips: StripMoments, largest: int) -> Array:
    """``E[Y^k; zeta in I]`` by quadrature over zeta and, given it, over u; shape (strips, largest + 1)."""
    rest = gram.scale * gram.entries - strips.variance
    c = strips.covariances
    draws, weights = draws_and_weights(rest - np.outer(c, c), 30)
    x, w = np.polynomial.legendre.leggauss(40)
    ends = np.concatenate([[-9.0], strips.edges, [11.0]])
    result = np.zeros((ends.size - 1, largest + 1))
    for s in range(ends.size - 1):
        middle, half = (ends[s] + ends[s + 1]) / 2, (ends[s + 1] - ends[s]) / 2
        for z, weight in zip(middle + half * x, half * w, strict=True):
            y = np.exp(draws + (c * z - rest.diagonal() / 2)[:, None]).mean(axis=0)
            density = exp(-z * z / 2) / np.sqrt(2 * np.pi)
            result[s] += weight * density * (y ** np.arange(largest + 1)[:, None] @ weights)
    return result


@pytest.mark.parametrize("gram", [PAIR, TRIPLE])
def test_moments_on_strips_are_integrals(gram: ExactGram) -> None:
    strips = strip_moments(gram, 4, EDGES, deadline=Deadline())
    moments = np.array([[float(value) for value in part.values] for part in strips.moments])
    assert np.abs(strips.edges - EDGES).max() < 0.02
    assert moments == pytest.approx(integrated(gram, strips, 4), rel=1e-8)
    assert all(0 < part.error < Fraction(1, 10**20) for part in strips.moments)


@pytest.mark.parametrize(("bins", "largest"), [(7, 2), (9, 3), (12, 5)])
def test_all_strips_together_are_the_whole(bins: int, largest: int) -> None:
    gram = band_gram(bins, 4, 0.6)
    strips = strip_moments(gram, largest, EDGES, deadline=Deadline())
    split = ExactGram(entries=gram.entries, scale=1.0, common=strips.variance)
    whole = without_common(ring_moments(gram, largest, deadline=Deadline()), split)
    for k in range(largest + 1):
        total = sum((part.values[k] for part in strips.moments), Fraction(0))
        # the variance that is given is a rounded product: e^(v k (k-1) / 2) is not known to more digits from it
        assert abs(total / whole.values[k] - 1) < 1e-14
    assert sum((part.values[0] for part in strips.moments), Fraction(0)) == pytest.approx(1, abs=1e-24)
    assert abs(sum((part.values[0] for part in strips.moments), Fraction(0)) - 1) < Fraction(1, 10**24)
    assert abs(sum((part.values[1] for part in strips.moments), Fraction(0)) - 1) < Fraction(1, 10**22)


def test_multisets_are_summed_by_label() -> None:
    generator = np.random.default_rng(5)
    bins, largest = 5, 5
    exponents = generator.uniform(0.0, 0.4, (bins, bins))
    exponents = exponents + exponents.T
    labels = np.array([3, 0, 3, 7, 1])
    expected = np.zeros((largest + 1, 7 * largest + 1))
    for n in range(1, largest + 1):
        for draws in combinations_with_replacement(range(bins), n):
            weight = np.exp(sum(exponents[draws[s], draws[t]] for t in range(n) for s in range(t)))
            expected[n, labels[list(draws)].sum()] += weight / np.prod([factorial(draws.count(i)) for i in range(bins)])
    table = np.zeros((largest + 1, 7 * largest + 1), dtype=np.complex128)
    factors = np.exp(exponents) + 0j
    for first in range(bins):
        for second in range(first, bins):  # cut as finely as can be
            add_draws(table, first, second, second + 1, factors, labels)
    assert table.real == pytest.approx(expected, rel=1e-13)
    whole = np.zeros_like(table)
    for first in range(bins):
        add_draws(whole, first, first, bins, factors, labels)
    assert whole.real == pytest.approx(table.real, rel=1e-15)


def test_probabilities_add_up_and_are_those_of_the_normal_law() -> None:
    edges, lowest = np.array([-10, 20, 80]), -15
    tails = np.zeros((3, 60), dtype=np.complex128)
    for edge, part in zip(edges.tolist(), tails, strict=True):
        tails_of(0.05 + 0j, edge - lowest, part)
    sums, sizes = np.zeros(4, dtype=np.complex128), np.zeros(4)
    row = np.zeros(31, dtype=np.complex128)
    row[30] = 1.0
    strip_sums(sums, sizes, row, -10, edges, lowest, tails)  # a normal law about 20 steps, which are 1
    assert sums.real == pytest.approx(
        [0.06680720126885807, 0.5 - 0.06680720126885807, 0.49865010196837, 0.00134989803163]
    )
    assert sums.real.sum() == pytest.approx(1.0, abs=1e-15)
    assert (sizes >= sums.real).all()


def test_wrong_covariances_are_refused() -> None:
    gram = band_gram(8, 3, 1.0)
    common = 0.9 * gram.common
    rest = gram.entries - common
    c = np.round(rest.mean(axis=1), 3)
    least = float(c @ np.linalg.solve(rest, c))
    assert proved_covariance(gram.entries, common, c, least * (1 + 1e-9))
    assert not proved_covariance(gram.entries, common, c, least * (1 - 1e-9))
    assert not proved_covariance(gram.entries, common, c * 1.001, least * (1 + 1e-9))
    shifted = c.copy()
    shifted[0] += 0.01
    assert not proved_covariance(gram.entries, common, shifted, least * (1 + 1e-9))
    # more than all that is common cannot be split off
    assert not proved_covariance(gram.entries, 2.0 * float(1 / np.linalg.inv(gram.entries).sum()), c, 100.0)


@pytest.mark.parametrize("gram", [PAIR, TRIPLE, band_gram(9, 4, 0.6)])
def test_floors_hold_and_are_near_what_occurs(gram: ExactGram) -> None:
    strips = strip_moments(gram, 2, EDGES, deadline=Deadline())
    rest = gram.scale * gram.entries - strips.variance
    c = strips.covariances
    joint = np.block([[np.ones((1, 1)), c[None]], [c[:, None], rest]])
    sample = np.random.default_rng(1).multivariate_normal(np.zeros(gram.bins + 1), joint, 200_000, method="eigh")
    y = np.exp(sample[:, 1:] - rest.diagonal() / 2).mean(axis=1)
    places = np.searchsorted(strips.edges, sample[:, 0])
    floors = np.array(strips.floors)
    assert floors[0] == 0.0
    assert (np.diff(floors) > 0.0).all()
    assert (y >= floors[places]).all()
    assert all(y[places == s].min() < 2.0 * floors[s] for s in range(1, floors.size - 1))


def test_edges_leave_little_outside() -> None:
    gram = band_gram(12, 4, 0.6)
    edges = strip_edges(gram, 1e-8, 20)
    strips = strip_moments(gram, 2, edges, deadline=Deadline())
    assert len(strips.moments) == 20
    assert strips.moments[0].values[0] < 1.1e-8
    assert strips.moments[-1].values[1] < 1.1e-8


def test_what_cannot_be_done_is_said() -> None:
    single = ExactGram(entries=np.ones((1, 1)), scale=1.0, common=0.5)
    assert why_no_strips(single) == "there is a single bin"
    alike = ExactGram(entries=np.ones((3, 3)), scale=1.0, common=1.0)
    assert why_no_strips(alike) is not None
    assert strip_cost(alike, 4, 20) == inf
    with pytest.raises(UnsupportedError, match="strips"):
        strip_moments(alike, 4, EDGES, deadline=Deadline())
    with pytest.raises(UnsupportedError, match="single bin"):
        strip_moments(single, 4, EDGES, deadline=Deadline())
    with pytest.raises(InvalidInputError, match="largest"):
        strip_moments(PAIR, 1, EDGES, deadline=Deadline())
    steep = ExactGram(entries=PAIR.entries, scale=500.0, common=0.25)
    assert why_no_strips(steep) is None
    assert strip_cost(steep, 4, 20) == inf
    with pytest.raises(UnsupportedError, match="range"):
        strip_moments(steep, 4, EDGES, deadline=Deadline())
    assert strip_cost(PAIR, 2, 20) < strip_cost(band_gram(12, 4, 0.6), 6, 20) < inf
