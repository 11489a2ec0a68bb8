"""Proved enclosures of the normal law, in whole numbers: no floating point, and no library that has to be believed.

A number of B binary places is a pair (low, high) of integers with ``low <= 2^B value <= high``. Every division rounds
the low end down and the high end up, so each step keeps the enclosure (docs/theory/exact-noise.md, Section 3).
"""

from functools import lru_cache
from math import exp, frexp, isqrt, pi, sqrt

from hockeystick.noise.normals import size_of_cell
from hockeystick.strategies.matrix.dyadic import LARGEST_NORMAL

Interval = tuple[int, int]
GUARD = 32
"""Places beyond those of the uniform, so that what is proved is nearly as narrow as what is true."""


def upper_tail(x: int, places: int) -> Interval:
    """``Q = P(N(0, 1) > x / 2^places)`` for ``x >= 0``, with as many places.

    ``Q(x) = 1/2 - (2 pi)^{-1/2} sum_n (-1)^n x^{2n+1} / (2^n n! (2n+1))``. From ``2 n >= x^2`` on the terms fall, and
    what is left of an alternating series is at most its first term.

    Cost: about ``places + x^2`` terms, numbers of that many bits.
    """
    square, double = x * x, 2 * places
    guard = 16 + places.bit_length() + (square >> double)  # terms reach e^(x^2 / 2) < 2^(x^2)
    low = high = x << guard  # of x^{2n+1} / (2^n n!), with places + guard places, as the sums are
    sum_low = sum_high = n = 0
    while high > 1 or 2 * n << double < square:
        term_low, term_high = low // (2 * n + 1), -(-high // (2 * n + 1))
        if n % 2:
            term_low, term_high = -term_high, -term_low
        sum_low, sum_high, n = sum_low + term_low, sum_high + term_high, n + 1
        low, high = low * square // (2 * n << double), -(-high * square // (2 * n << double))
    root_low, root_high = _root_of_two_pi(places + guard)
    inside_low, inside_high = ((sum_low - high) << places) // root_high, -(-((sum_high + high) << places) // root_low)
    half = 1 << (places - 1)
    return max(half - inside_high, 0), min(half - inside_low, half)


def upper_quantiles(k: int, bits: int) -> tuple[int, int, int] | None:
    """An interval that holds ``Q^{-1}(u)`` for every u in the cell from ``k / 2^bits`` to ``(k + 1) / 2^bits``.

    A guess in floating point is improved by Newton's method, which proves nothing. Then ``Q >= (k + 1) / 2^bits`` at
    the low end and ``Q <= k / 2^bits`` at the high one are proved by :func:`upper_tail`; Q falls.

    Args:
        k: from 0 to ``2^(bits - 1) - 1``.

    Returns: low, high and their places; None where the interval has no end (k = 0).

    Raises: OverflowError beyond ``LARGEST_NORMAL``, less 1.
    """
    if k == 0:
        return None
    guess = size_of_cell(k, bits)
    if guess > LARGEST_NORMAL - 1.0:
        raise OverflowError(
            f"A normal number beyond {LARGEST_NORMAL - 1.0:g} standard deviations, which no run ever meets."
        )
    places = bits + GUARD
    x, cell = int(guess * 2.0**64) << (places - 64), 1 << GUARD
    mantissa, exponent = frexp(exp(-guess * guess / 2.0) / sqrt(2.0 * pi))  # the slope of Q
    slope, shift = int(mantissa * 2.0**53), 53 - exponent
    for _ in range(2 * bits // 64 - 1):  # each step gains 12 digits; the guess has 12
        below, above = upper_tail(x, places)
        x = max(x + ((below + above - (2 * k + 1) * cell << shift) // (2 * slope)), 0)
    step = (3 * cell << shift) // (4 * slope) + 1
    low, high = max(x - step, 0), x + step
    while upper_tail(low, places)[0] < (k + 1) * cell and low > 0:
        low = max(low - step, 0)
    while upper_tail(high, places)[1] > k * cell:
        high += step
    return low, high, places


@lru_cache(maxsize=64)
def _root_of_two_pi(places: int) -> Interval:
    low, high = _pi(2 * places)
    return isqrt(2 * low), isqrt(2 * high) + 1


def _pi(places: int) -> Interval:
    """``pi = 16 arctan(1/5) - 4 arctan(1/239)`` (Machin)."""
    fifth, other = _arctangent(5, places + 8), _arctangent(239, places + 8)
    return (16 * fifth[0] - 4 * other[1]) >> 8, -((4 * other[0] - 16 * fifth[1]) >> 8)


def _arctangent(inverse: int, places: int) -> Interval:
    """``arctan(1 / inverse)`` by its alternating series; a term and the rest are wrong by less than 3 units each."""
    total, power, n = 0, (1 << places) // inverse, 0
    while power:
        term = power // (2 * n + 1)
        total, power, n = total + (-term if n % 2 else term), power // (inverse * inverse), n + 1
    return total - 3 * (n + 1), total + 3 * (n + 1)
