"""Moments of a mixture of bins by going through all multisets of draws, to about 29 digits.

With ``E_ij = e^(S_ij)``, the moment of order a of ``X = (1/b) sum_i e^(u_i - S_ii / 2)``, ``u ~ N(0, S)``, is

    E X^a = b^-a sum over bins i_1, ..., i_a of prod_(s<t) E_(i_s i_t),

a sum of positive terms for any Gram matrix. Proofs: ``docs/theory/moment-majorants/moments.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, log

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.moments.double_double import pair_of, rational
from hockeystick.moments.enumeration_kernels import (
    LONGEST,
    MOST_BINS,
    STRIDE,
    draw,
    empty_rows,
    exact_products,
    multiset_sum,
)
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, exponential

LARGEST_LOG = 600.0
"""``a (a-1) / 2 max S + a ln b`` at most: no sum leaves the range of doubles, which ends at e^709."""

SECONDS_PER_TERM = 1.4e-9
SECONDS_PER_ROW = 4.5e-7
"""Beside its terms, of every choice of all draws but two; both measured."""

SECONDS_PER_PIECE = 0.08
"""What is done between two ticks of the deadline."""

_UNIT = Fraction(1, 2**106)  # u^2; the two below are those of double_double for its operations
_ADDITION = 3 * _UNIT
_PRODUCT = 5 * _UNIT


def enumeration_cost(gram: ExactGram, largest: int) -> float:
    """Rough seconds of :func:`enumerated_moments`; infinite where it would refuse."""
    if gram.bins > MOST_BINS or largest > highest_order(gram, largest):
        return float("inf")
    seconds = gram.bins**2 * 1e-6
    for order in range(2, largest + (not gram.is_circulant)):
        seconds += _seconds(gram.bins, order)
    return seconds


def highest_order(gram: ExactGram, largest: int) -> int:
    """The highest order up to ``largest`` whose sums stay in the range of doubles; orders up to 1 always do."""
    peak, log_bins = gram.scale * float(gram.entries.max()), log(gram.bins)
    order = min(largest, LONGEST)
    while order > 1 and 0.5 * order * (order - 1) * peak + order * log_bins > LARGEST_LOG:
        order -= 1
    return order


def enumerated_moments(gram: ExactGram, largest: int, *, deadline: Deadline) -> ExactMoments:
    """``E X^k`` for k = 0..largest of the whole mixture, common factor included.

    Formal guarantee: the values lie within the stated relative error (about 1e-29) of the moments of the mixture whose
    Gram matrix is exactly ``gram.scale * gram.entries``.

    Args:
        gram: S; where it is circulant, one of the draws is held at bin 0, which saves a factor of about b / largest.
        largest: highest order >= 0.
        deadline: told of every piece of work.

    Cost: ``C(b + a - 1, a)`` multiply-adds for the order a, see :func:`enumeration_cost`; about 33 kB for each bin.

    Raises: InvalidInputError for a negative order, UnsupportedError for too many bins or too large an order.

    Reference: the sum is that of schuchardt-kalinin-2026, Lemma 3.2.
    """
    _check(gram, largest)
    if largest < 2:
        return ExactMoments(values=(Fraction(1),) * (largest + 1), error=Fraction(0))
    walk = _Walk.through(gram, deadline)
    bins, sums = gram.bins, [Fraction(1), Fraction(1)]
    for order in range(2, largest + 1):
        if gram.is_circulant:  # every bin is like bin 0: the first draw is there, b times
            total = bins * factorial(order - 1) * walk.sum(order - 1, walk.factors[0])
        else:
            total = factorial(order) * walk.sum(order, walk.ones)
        sums.append(total / bins**order)
    return ExactMoments(values=tuple(rational(*pair_of(value)) for value in sums), error=_error(gram.bins, largest))


def _check(gram: ExactGram, largest: int) -> None:
    if largest < 0:
        raise InvalidInputError(f"The 'largest' argument must not be negative. Got {largest} instead.")
    if gram.bins > MOST_BINS:
        raise UnsupportedError(f"Moments are enumerated for at most {MOST_BINS} bins; this pair has {gram.bins}.")
    highest = highest_order(gram, largest)
    if largest > max(highest, 1):
        raise UnsupportedError(
            f"Moments of this pair can be enumerated up to the order {highest}; the order {largest} is too large."
        )


def _seconds(bins: int, order: int) -> float:
    """Of a sum of an order >= 2 over multisets of so many bins."""
    return comb(bins + order - 1, order) * SECONDS_PER_TERM + comb(bins + order - 3, order - 2) * SECONDS_PER_ROW


def _error(bins: int, largest: int) -> Fraction:
    """Of one term of the sums, and so of their total: all its factors, and every operation that it passes through."""
    padded = bins + -bins % 4
    exponentials = Fraction(largest * (largest - 1), 2) * Fraction(EXPONENTIAL_ERROR)
    products = (largest * (largest + 1) // 2 + 2 * largest) * _PRODUCT
    additions = (2 + padded // 4 + (largest - 1) * (padded - 1).bit_length()) * _ADDITION
    # second-order terms, the ratio of the computed to the true value, and the last rounding
    return (exponentials + products + additions) * (1 + Fraction(1, 2**60)) + 2 * _UNIT


@dataclass(frozen=True, kw_only=True, eq=False)
class _Walk:
    """Sums over multisets of bins, cut into pieces; the tables are those of the kernels."""

    bins: int
    factors: Array
    halves: Array
    deadline: Deadline

    @staticmethod
    def through(gram: ExactGram, deadline: Deadline) -> "_Walk":
        factors, halves = _tables(gram)
        return _Walk(bins=gram.bins, factors=factors, halves=halves, deadline=deadline)

    @property
    def ones(self) -> Array:
        """The field before the first draw."""
        field: Array = empty_rows(1)[0]
        field[: self.bins] = 1.0
        return field

    def sum(self, order: int, field: Array, first: int = 0, repeats: int = 0) -> Fraction:
        """``T_order`` of the kernels, for any order >= 0."""
        if order == 0:
            return Fraction(1)
        if order > 2 and _seconds(self.bins - first, order) > SECONDS_PER_PIECE:
            return self._each(lambda i, after, times: self.sum(order - 1, after, i, times), field, first, repeats)
        if order == 1:
            return self._each(lambda i, after, times: Fraction(1), field, first, repeats)
        self.deadline.tick()
        fields = empty_rows(order - 1)
        fields[0] = field
        high, low = multiset_sum(
            order, self.bins, first, repeats, self.factors, self.halves, fields, empty_rows(order - 1)
        )
        return rational(high, low)

    def _each(self, rest: Callable[[int, Array, int], Fraction], field: Array, first: int, repeats: int) -> Fraction:
        """The first draw of a sum, exactly but for what ``rest`` makes of the others."""
        total, after, stop = Fraction(0), empty_rows(1)[0], 4 * self.halves.shape[0]
        for i in range(first, self.bins):
            draw(after, field, self.factors, i, stop)
            times = repeats + 1 if i == first else 1
            total += rational(field[i], field[STRIDE + i]) / times * rest(i, after, times)
        return total


def _tables(gram: ExactGram) -> tuple[Array, Array]:
    """``factors`` and ``halves`` of the kernels."""
    bins = gram.bins
    padded = bins + -bins % 4
    above = np.triu_indices(bins)
    factors, halves = empty_rows(padded), empty_rows(padded)
    exponentials = exponential(*exact_products(gram.scale, gram.entries[above]))
    for start, part in zip((0, STRIDE), exponentials, strict=True):
        square = np.zeros((bins, bins))
        square[above] = part
        halves[:bins, start : start + bins] = square
        halves[np.arange(bins), start + np.arange(bins)] *= 0.5
        factors[:bins, start : start + bins] = np.triu(square, 1).T + square
    return factors, halves.reshape(-1, 8 * STRIDE)
