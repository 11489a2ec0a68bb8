"""Enclosures of the normal law by whole numbers, against those of Arb; the error of the table, proved by segments."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from hockeystick.noise.exact.enclosure import upper_quantiles, upper_tail
from hockeystick.noise.exact.solvers import ERROR, FAR
from hockeystick.noise.normals import DEGREE, OCTAVES, SEGMENT_BITS, inverse_distribution_table
from hockeystick.strategies.matrix.dyadic import LARGEST_NORMAL

flint = pytest.importorskip("flint")
arb = flint.arb


def tail(x):
    """P(N(0, 1) > x), for a ball x."""
    return (x / arb(2).sqrt()).erfc() / 2


@pytest.fixture(autouse=True)
def _digits():
    flint.ctx.prec = 700
    yield
    flint.ctx.prec = 53


def test_tails_are_enclosed_to_the_last_place():
    draw = random.Random(1)
    for _ in range(400):
        places = draw.choice([64, 96, 160, 224])
        x = int(draw.random() ** 2 * draw.choice([1.0, 6.0, 13.0, 30.0]) * 2**places)
        low, high = upper_tail(x, places)
        truth = tail(arb(x) / arb(2) ** places) * arb(2) ** places
        assert low <= truth <= high
        assert high - low <= 1
    assert upper_tail(0, 64) == (2**63, 2**63)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_quantiles_are_enclosed_and_closely(levels):
    """For cells everywhere: near the middle, far in the tail, and the smallest that have an end."""
    draw, bits = random.Random(levels), 64 * levels
    cells = [draw.getrandbits(size) for size in (bits - 1, bits - 9, bits - 23, bits - 43, 20, 3) for _ in range(12)]
    for k in [*cells, 1, 2 ** (bits - 1) - 1]:
        if k:
            low, high, places = upper_quantiles(k, bits)
            u, step = arb(2) ** -bits, arb(2) ** -places
            assert tail(low * step) >= (k + 1) * u
            assert tail(high * step) <= k * u
            if k >> 20:  # at most thrice the cell, which is u over the density
                x = low * step
                assert (high - low) * step * (-x * x / 2).exp() <= 3 * u * (2 * arb.pi()).sqrt()
    assert upper_quantiles(0, bits) is None


@pytest.mark.parametrize("factor", [0.9997, 1.0003])
def test_a_quantile_is_proved_whatever_the_guess(factor, monkeypatch):
    """With a wrong slope Newton's method misses by some cells, on either side: the ends move until they are proved."""
    draw = random.Random(8)
    monkeypatch.setattr("hockeystick.noise.exact.enclosure.exp", lambda value: factor * math.exp(value))
    for _ in range(30):
        k = draw.getrandbits(62)
        low, high, places = upper_quantiles(k, 64)
        u, step = arb(2) ** -64, arb(2) ** -places
        assert tail(low * step) >= (k + 1) * u
        assert tail(high * step) <= k * u


def test_beyond_the_largest_size_there_is_an_error():
    with pytest.raises(OverflowError, match=r"beyond 36 standard deviations"):
        upper_quantiles(1, 64 * 40)
    assert tail(arb(LARGEST_NORMAL - 1.0)) < arb(2) ** -940


def derivatives(x, order):
    """Of ``Phi^{-1}(u)`` at ``u = Phi(x)``: x, then polynomials in x over powers of the density."""
    polynomials, values = [[0, 1], [1]], [x]
    density = (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    for n in range(1, order + 1):
        p = polynomials[-1]
        values.append(sum((c * x**i for i, c in enumerate(p)), arb(0)) / density**n)
        slope = [*(i * c for i, c in enumerate(p) if i), 0, 0]
        moved = [0, *(n * c for c in p)]
        polynomials.append([a + b for a, b in zip(slope + [0] * (len(moved) - len(slope)), moved, strict=False)])
    return values


def test_derivatives_of_the_quantile_are_those_of_differences():
    x, step = arb("-1.3"), arb(2) ** -60
    u = 1 - tail(x)

    def quantile(at):
        return -(2 * at).erfcinv() * arb(2).sqrt()

    series = derivatives(x, 3)
    first = (quantile(u + step) - quantile(u - step)) / (2 * step)
    second = (quantile(u + step) - 2 * quantile(u) + quantile(u - step)) / step**2
    assert abs(series[1] - first) < arb(2) ** -80
    assert abs(series[2] - second) < arb(2) ** -80


@pytest.mark.slow
def test_the_error_of_the_table_is_proved_on_every_segment():
    """Within ``ERROR``, with half a cell of 63 bits, up to ``FAR``; and below 2e-14 without it, all over.

    On a segment of width w: the interpolating polynomial of f at 5 Chebyshev nodes is within max|f^(5)| w^5 / (5! 2^9)
    of f. The table's polynomial is within L e of that one, where e is its largest difference from f at a node and
    L < 2 is the Lebesgue constant of 5 Chebyshev nodes. Horner's rule in float64, with or without fused operations, is
    within 9 u times the sum of the absolute coefficients, u = 2^-53, for an argument in [0, 1]. The uniform itself is
    rounded twice to float64, which moves the function by 2 u times the uniform over the density.
    """
    flint.ctx.prec = 140
    table, most, worst = inverse_distribution_table(), arb(0), arb(0)
    nodes = [(1 + ((2 * arb(i) + 1) / (2 * DEGREE + 2)).cos_pi()) / 2 for i in range(DEGREE + 1)]
    for s in range(OCTAVES << SEGMENT_BITS):
        octave = arb(2) ** ((s >> SEGMENT_BITS) - OCTAVES - 1)
        width = octave / (1 << SEGMENT_BITS)
        low = octave + (s % (1 << SEGMENT_BITS)) * width
        ends = [-(2 * u).erfcinv() * arb(2).sqrt() for u in (low, low + width)]
        x = ends[0].union(ends[1])
        truncation = abs(derivatives(x, 5)[5]) * width**5 / (120 * 2**9)
        coefficients = [arb(float(value)) for value in table[s]]
        off = arb(0)
        for place in nodes:
            value = arb(0)
            for coefficient in coefficients:
                value = value * place + coefficient
            off = off.max(abs(value + (2 * (low + place * width)).erfcinv() * arb(2).sqrt()))
        rounding = 9 * arb(2) ** -53 * sum(abs(value) for value in coefficients)
        density = (-(ends[0] ** 2) / 2).exp() / (2 * arb.pi()).sqrt()
        error = truncation + 2 * off + rounding + arb(2) ** -52 * (low + width) / density
        most = most.max(error.upper())
        if abs(ends[1]) <= FAR + 0.05:  # a number that is computed to be below FAR is not far above
            worst = worst.max((error + arb(2) ** -65 / density).upper())
    assert most < 2e-14
    assert worst < ERROR


def test_the_table_is_that_of_the_inverse_of_scipy():
    """Where it comes from: polynomials through SciPy's values at Chebyshev nodes."""
    from scipy.special import ndtri

    table, places = inverse_distribution_table(), np.linspace(0.0, 1.0, 9)
    assert table.shape == ((OCTAVES << SEGMENT_BITS) + 1, DEGREE + 1)
    for s in range(0, len(table) - 1, 37):
        octave = 2.0 ** ((s >> SEGMENT_BITS) - OCTAVES - 1)
        u = octave * (1.0 + ((s % (1 << SEGMENT_BITS)) + places) / (1 << SEGMENT_BITS))
        np.testing.assert_allclose(np.polyval(table[s], places), ndtri(u), rtol=2e-15, atol=1e-14)
    np.testing.assert_array_equal(table[-1], 0.0)


def test_far_numbers_are_those_with_wide_cells():
    """``FAR`` is below the smallest size of a number whose k is below 2**41, so all of these are made sharper."""
    low, _, places = upper_quantiles(2**41, 64)
    assert FAR + 0.05 < Fraction(low, 2**places) < FAR + 0.1
