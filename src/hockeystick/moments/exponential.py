"""``e^x`` of a pair of doubles and of a rational number.

``x = k ln 2 + r`` with a whole k and ``|r| < 0.3466``; ``e^r`` by its Taylor polynomial, ``e^x = 2^k e^r``. The proof
of :data:`EXPONENTIAL_ERROR` is in ``docs/theory/moment-majorants/moments.md``.
"""

from fractions import Fraction
from math import factorial, isqrt, ldexp

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.moments.double_double import Pairs, add, multiply, pair_of

EXPONENTIAL_ERROR = 18 * 2.0**-106
"""Proved relative error of :func:`exp_pair` where ``|x| <= LARGEST_EXPONENT``."""

LARGEST_EXPONENT = 650.0
"""Largest absolute value of an exponent; the caller checks it."""

_DEGREE = 27
"""Degree of the Taylor polynomial; the remainder is below 1e-41."""

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


@kernel
def exp_pair(x: complex) -> complex:
    """``e^x`` of a pair within :data:`EXPONENTIAL_ERROR`, for ``|x| <= LARGEST_EXPONENT``."""
    turns = np.floor(x.real * _PER_LOG_TWO + 0.5)
    rest = add(x, complex(-turns * _FIRST, 0.0))
    rest = add(rest, complex(-turns * _SECOND, 0.0))
    rest = add(rest, complex(-turns * _THIRD, 0.0))
    value = _COEFFICIENTS[_DEGREE]
    for n in range(_DEGREE - 1, -1, -1):
        value = add(_COEFFICIENTS[n], multiply(value, rest))
    power = int(turns)
    return complex(ldexp(value.real, power), ldexp(value.imag, power))


def exponential(exponents: Pairs) -> Pairs:
    """:func:`exp_pair` of each element of an array of pairs, of any shape."""
    result = np.empty(exponents.size, dtype=np.complex128)
    _exponential(np.ravel(exponents), result)
    return result.reshape(exponents.shape)


@kernel
def _exponential(exponents: Pairs, result: Pairs) -> None:
    """:func:`exponential` of a row of pairs, into ``result``."""
    for i in range(exponents.size):
        result[i] = exp_pair(exponents[i])


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


def rational_root(square: Fraction) -> Fraction:
    """The root of a positive number, relative error below ``2^-120``, a multiple of a power of two."""
    shift = 128 + max(square.denominator.bit_length() - square.numerator.bit_length(), 0)
    return Fraction(isqrt((square.numerator << 2 * shift) // square.denominator), 1 << shift)
