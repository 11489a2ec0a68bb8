"""What moments on cells and on strips share: pieces of work, and exact moments from sums of pairs."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.moments.double_double import Pairs, rational
from hockeystick.moments.exact import ExactMoments


def pieces(work: Array, size: float) -> Iterator[tuple[int, int]]:
    """Ranges of places of about this much work each."""
    ends = np.searchsorted(np.cumsum(work), np.arange(size, float(work.sum()), size), side="right")
    borders = np.unique(np.concatenate([[0], ends, [work.size]]))
    yield from zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)


def moments_on_ranges(
    sums: Pairs, sizes: Array, factors: Sequence[Fraction], weights: Fraction, tails: Fraction
) -> tuple[ExactMoments, ...]:
    """The moments on each range, with all rounding charged.

    Args:
        sums: shape (ranges, orders), sums of weights times normal probabilities.
        sizes: of the same shape: with the sizes of the terms of every probability in its place.
        factors: exact, one for each order.
        weights: half the relative error of every weight.
        tails: half the error of a probability relative to its size.

    Raises: UnsupportedError where no draw reaches a range.
    """
    moments = []
    for row, size in zip(sums, sizes, strict=True):
        totals = [rational(pair) for pair in row]
        if min(totals) <= 0:
            raise UnsupportedError("Moments cannot be computed: a cell or strip is out of reach of all draws.")
        loss = max(Fraction(float(term_size)) / total for term_size, total in zip(size, totals, strict=True))
        values = tuple(total * factor for total, factor in zip(totals, factors, strict=True))
        moments.append(ExactMoments(values=values, error=2 * (weights + tails * loss)))
    return tuple(moments)
