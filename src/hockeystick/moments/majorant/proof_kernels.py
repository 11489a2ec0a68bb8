"""Kernels of the certificate: polynomials on many cells at once, each number with a bound on its rounding.

Proofs of every bound: ``docs/theory/moment-majorants/proof.md``.
"""

from functools import lru_cache
from math import comb, inf

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.double_double import ROUNDING, Pairs, add, multiply, two_sum

UNDERFLOW = 2.0**-950
"""Added to coefficients where rounding is bounded: ``ROUNDING`` times this is more than one operation can lose."""
ERROR_ROUNDING = 1.01
"""Bounds on rounding are themselves computed in doubles, with fewer than 2^40 operations on numbers of one sign."""


def taylor_coefficients(coefficients: Pairs, centre: float, places: Array) -> tuple[Array, Array]:
    """Taylor coefficients of ``sum_k coefficients[k] (x - centre)^k`` about each place, and bounds on their errors.

    Synthetic division with pairs, then rounded to doubles.

    Args:
        coefficients: shape (size,); the two parts may be any doubles.
        places: shape (cells,).

    Returns: two arrays of shape (cells, size). Where numbers overflow, entries are infinite or not numbers.
    """
    values, errors = np.empty((places.size, coefficients.size)), np.empty((places.size, coefficients.size))
    work, magnitude = np.empty((2, coefficients.size), dtype=np.complex128), np.empty(coefficients.size)
    _taylor_coefficients(coefficients, centre, places, work, magnitude, values, errors)
    return values, errors


@kernel
def _taylor_coefficients(
    coefficients: Pairs, centre: float, places: Array, work: Pairs, magnitude: Array, values: Array, errors: Array
) -> None:
    """:func:`taylor_coefficients`, into ``values`` and ``errors``."""
    size = coefficients.size
    given, a = work[0], work[1]
    used = 0
    for k in range(size):
        high, low = two_sum(coefficients[k].real, coefficients[k].imag)
        given[k] = complex(high, low)
        if high != 0.0:
            used = k + 1
    factor = 4.0 * size * ROUNDING * ERROR_ROUNDING
    for cell in range(places.size):
        high, low = two_sum(places[cell], -centre)
        step, exact = complex(high, low), high == 0.0
        length = abs(high) * (1.0 + 4.0 * UNIT_ROUNDOFF)
        for k in range(size):
            a[k] = given[k]
            magnitude[k] = abs(given[k].real) + (UNDERFLOW if k < used else 0.0)
        if not exact:
            for first in range(size - 1):
                for k in range(size - 2, first - 1, -1):
                    a[k] = add(a[k], multiply(step, a[k + 1]))
                    magnitude[k] += length * magnitude[k + 1]
        for k in range(size):
            values[cell, k] = a[k].real
            errors[cell, k] = abs(a[k].imag)
            if not exact and k + 1 < used:  # the leading coefficient stays what it is
                errors[cell, k] += factor * magnitude[k]


@lru_cache(maxsize=64)
def bernstein_weights(degree: int) -> Array:
    """``C(j, k) / C(degree, k)`` for k <= j <= degree, each rounded to a double; else 0."""
    size = range(degree + 1)
    weights = np.array([[comb(j, k) / comb(degree, k) for k in size] for j in size])
    weights.flags.writeable = False
    return weights


def bernstein_coefficients(coefficients: Array, errors: Array, widths: Array, weights: Array) -> tuple[Array, Array]:
    """Bernstein coefficients of polynomials on cells, from their Taylor coefficients about the left ends, with errors.

    Args:
        coefficients, errors: shape (cells, at most degree + 1), as :func:`taylor_coefficients` returns them.
        widths: shape (cells,), each within one rounding of the cell's true width.
        weights: shape (degree + 1, degree + 1), :func:`bernstein_weights`.

    Returns: two arrays of shape (cells, degree + 1).
    """
    values, bounds = np.zeros((len(coefficients), len(weights))), np.zeros((len(coefficients), len(weights)))
    _bernstein_coefficients(coefficients, errors, widths, weights, values, bounds)
    return values, bounds


@kernel
def _bernstein_coefficients(
    coefficients: Array, errors: Array, widths: Array, weights: Array, values: Array, bounds: Array
) -> None:
    """:func:`bernstein_coefficients`, into ``values`` and ``bounds``, which are zeros."""
    cells, given = coefficients.shape
    size = weights.shape[0]
    rounding = (4.0 * size + 8.0) * UNIT_ROUNDOFF
    for cell in range(cells):
        power = 1.0
        for k in range(given):
            coefficient, error = coefficients[cell, k], errors[cell, k]
            term, bound = coefficient * power, error * power
            if k == 0:  # exact at the left end, where a polynomial and its bound may both vanish
                values[cell, 0] = term
                bounds[cell, 0] = bound
            elif coefficient != 0.0 or error != 0.0:
                bound += UNDERFLOW * ROUNDING * (1.0 + abs(coefficient) + error)
            bound = (bound + rounding * abs(term)) * ERROR_ROUNDING
            for j in range(max(k, 1), size):
                values[cell, j] += weights[j, k] * term
                bounds[cell, j] += weights[j, k] * bound
            power *= widths[cell]


def deficits(values: Array, bounds: Array, targets: Array, sign: float, caution: float) -> Array:
    """How far ``sign (polynomial - line)`` may be from having Bernstein coefficients >= 0, for several lines per cell.

    Args:
        values, bounds: shape (cells, size), the polynomial's.
        targets: shape (lines, 3, cells): the line's value at the left end, at the right end, and a bound on the errors
            of each of the two.
        sign: 1 where the polynomial should be above.
        caution: by how much to multiply the bounds on rounding; at least 1.

    Returns: shape (cells, lines, size). Entries <= 0 prove that the exact coefficient is >= 0.
    """
    size = values.shape[1]
    places = np.arange(size) / (size - 1)
    left, right, error = (targets[:, part].T[:, :, None] for part in range(3))
    with np.errstate(over="ignore", invalid="ignore"):  # what is not a number proves nothing
        on_left, on_right = places[::-1] * left, places * right
        rounding = 4.0 * UNIT_ROUNDOFF * (np.abs(on_left) + np.abs(on_right)) + UNDERFLOW * ROUNDING
        rounding[:, :, [0, -1]] = 0.0  # exact at the ends
        rounding *= (left != 0.0) | (right != 0.0)
        uncertain = caution * ERROR_ROUNDING * (bounds[:, None] + error + rounding)
        result: Array = uncertain - sign * (values[:, None] - (on_left + on_right))
    return result


def repairs_needed(missing: Array, values: Array, bounds: Array, caution: float) -> tuple[Array, Array]:
    """Per cell, how many times the repair polynomial has to be added: by the best line, and at the left end at least.

    Args:
        missing: shape (cells, lines, size), :func:`deficits`.
        values, bounds: shape (cells, size), the repair's Bernstein coefficients.
        caution: as in :func:`deficits`.

    Returns: two arrays of shape (cells,), infinite where no multiple will do. The second is about the left end alone,
        with the first line, which no subdivision can improve on.
    """
    with np.errstate(all="ignore"):
        gain = (values - caution * ERROR_ROUNDING * bounds)[:, None]
        needs = np.where(gain > 0.0, missing / gain, inf)
        needs = np.where(needs < inf, needs, inf)  # also where it is not a number
    needs = np.where(missing <= 0.0, 0.0, needs)
    return needs.max(axis=2).min(axis=1), needs[:, 0, 0]
