"""e^x of an unevaluated sum of two doubles, and of a rational number.

``x = k ln 2 + r`` with a whole k and ``|r| < 0.3466``; ``e^r`` by its Taylor polynomial, ``e^x = 2^k e^r``. The proof
of :data:`EXPONENTIAL_ERROR` is in ``docs/theory/moment-majorants/moments.md``.
"""

from fractions import Fraction
from math import factorial, ldexp

import numpy as np
from numba import njit

from hockeystick.laws.law import Array
from hockeystick.moments.double_double import add, multiply, pair_of

EXPONENTIAL_ERROR = 18 * 2.0**-106
"""Proved relative error of :func:`exp_pair` where ``|x| <= LARGEST_EXPONENT``."""

LARGEST_EXPONENT = 650.0
"""Up to here in absolute value; it is the caller who checks."""

_DEGREE = 27
"""Of the Taylor polynomial: what follows is below 1e-41."""

RATIONAL_ERROR = Fraction(1, 2**160)
"""Proved relative error of :func:`rational_exponential`."""

_RATIONAL_BITS = 200
_LOG_TWO_BITS = 300


def _log_two() -> Fraction:
    """``ln 2 = 2 artanh(1/3)``, too small by less than ``2^-290``."""
    one = 2 << _LOG_TWO_BITS
    return Fraction(sum(one // (n * 3**n) for n in range(1, 2 * _LOG_TWO_BITS, 2)), 1 << _LOG_TWO_BITS)


def _three_parts(number: Fraction) -> tuple[float, float, float]:
    """A number in (1/2, 1) as two parts of 42 bits, whose multiples by less than ``2^11`` are exact, and the rest."""
    unit = 1 << 42
    first = Fraction(int(number * unit), unit)
    second = Fraction(int((number - first) * unit**2), unit**2)
    return float(first), float(second), float(number - first - second)


_LOG_TWO = _log_two()
_FIRST, _SECOND, _THIRD = _three_parts(_LOG_TWO)
_PER_LOG_TWO = float(1 / _LOG_TWO)
_COEFFICIENTS = np.array([pair_of(Fraction(1, factorial(n))) for n in range(_DEGREE + 1)])


@njit(cache=True)
def exp_pair(high: float, low: float) -> tuple[float, float]:
    """``e^(high + low)`` within :data:`EXPONENTIAL_ERROR`, for ``|high + low| <= LARGEST_EXPONENT``."""
    turns = np.floor(high * _PER_LOG_TWO + 0.5)
    rest, rest_low = add(high, low, -turns * _FIRST, 0.0)
    rest, rest_low = add(rest, rest_low, -turns * _SECOND, 0.0)
    rest, rest_low = add(rest, rest_low, -turns * _THIRD, 0.0)
    value, value_low = _COEFFICIENTS[_DEGREE, 0], _COEFFICIENTS[_DEGREE, 1]
    for n in range(_DEGREE - 1, -1, -1):
        value, value_low = multiply(value, value_low, rest, rest_low)
        value, value_low = add(_COEFFICIENTS[n, 0], _COEFFICIENTS[n, 1], value, value_low)
    power = int(turns)
    return ldexp(value, power), ldexp(value_low, power)


@njit(cache=True, nogil=True)
def exponential(high: Array, low: Array) -> tuple[Array, Array]:
    """:func:`exp_pair` of each element of two arrays of one shape."""
    result, result_low = np.empty(high.shape), np.empty(high.shape)
    from_high, from_low = high.ravel(), low.ravel()
    to_high, to_low = result.ravel(), result_low.ravel()
    for i in range(from_high.size):
        to_high[i], to_low[i] = exp_pair(from_high[i], from_low[i])
    return result, result_low


def rational_exponential(x: Fraction) -> Fraction:
    """``e^x`` within :data:`RATIONAL_ERROR`, a multiple of a power of two, for ``|x| < 2^60``; exact at 0."""
    turns = round(x / _LOG_TWO)
    one = 1 << _RATIONAL_BITS
    rest = int((x - turns * _LOG_TWO) * one)
    term, total, n = one, one, 0
    while term not in (0, -1):  # what a negative term is rounded down to in the end
        n += 1
        term = (term * rest >> _RATIONAL_BITS) // n
        total += term
    return Fraction(total, one) * Fraction(2) ** turns
