"""Normal numbers whose bits are drawn when they are needed, and sums of them that are rounded without any doubt."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import count
from math import floor

from hockeystick.noise.exact.enclosure import upper_quantiles
from hockeystick.noise.normals import MASK, NormalSource


class LazyNormal:
    """The number at a position of a source, which is a real number: enclosed ever closer, by ever more of its bits.

    Its uniform is 0.b1 b2 ... without end: the 63 bits of level 0 below the sign, then the 64 of level 1, and so on.
    They are those that ``NormalSource`` itself takes where it needs more than 63.
    """

    def __init__(self, source: NormalSource, position: int) -> None:
        word = int(source.words(position, 1)[0])
        self._source, self._position = source, position
        self._negative = bool(word >> 63)
        self._digits = [word & MASK]

    def enclosure(self, level: int) -> tuple[Fraction, Fraction] | None:
        """Two ends between which it lies, by the bits of the levels up to this one; None while one is infinite."""
        while len(self._digits) <= level:
            self._digits.append(int(self._source.words(self._position, 1, len(self._digits))[0]))
        k = 0
        for digits in self._digits[: level + 1]:
            k = (k << 64) + digits
        ends = upper_quantiles(k, 64 * (level + 1))
        if ends is None:
            return None
        low, high, places = ends
        if self._negative:
            low, high = -high, -low
        return Fraction(low, 1 << places), Fraction(high, 1 << places)

    def nearly(self) -> float:
        """A float64 within ``2^-52`` of itself."""
        for level in count(1):
            ends = self.enclosure(level)
            if ends is not None and (ends[1] - ends[0]) * 2**56 < abs(ends[0]):
                return float(ends[0])
        raise AssertionError  # count has no end


def rounded(terms: Iterable[tuple[Fraction, LazyNormal]], constant: Fraction) -> int:
    """``floor(sum of weights times numbers + constant)``, of the real numbers: more bits are drawn until it is certain.

    The sum is at a whole number with probability 0, so this ends with probability 1.
    """
    terms = list(terms)
    for level in count():
        low = high = constant
        for weight, number in terms:
            ends = number.enclosure(level)
            if ends is None:
                break
            products = weight * ends[0], weight * ends[1]
            low, high = low + min(products), high + max(products)
        else:
            if floor(low) == floor(high):
                return floor(low)
    raise AssertionError  # count has no end
