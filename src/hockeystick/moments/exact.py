"""The data types that the parts of this package exchange.

A Gram matrix becomes an :class:`ExactGram`, and that the :class:`ExactMoments` of its mixture.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import Array


def ring_distances(bins: int) -> NDArray[np.int64]:
    """How far apart any two bins are on a ring, shape (bins, bins)."""
    place = np.arange(bins)
    distance = np.abs(place[:, None] - place[None, :])
    nearest: NDArray[np.int64] = np.minimum(distance, bins - distance)
    return nearest


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactGram:
    """``S = scale * entries``, a covariance matrix that is exactly what its doubles say.

    Attributes:
        entries: shape (b, b), symmetric to the bit, finite, >= 0, proved positive semidefinite. Not to be written.
        scale: > 0, about 1 / sigma^2.
        common: v_0 >= 0 such that ``entries - v_0 1 1^T`` is proved positive semidefinite. The log-normal factor that
            all bins share has the variance ``v = scale * v_0`` (the exact product of the two doubles).
    """

    entries: Array
    scale: float
    common: float

    @property
    def bins(self) -> int:
        return int(self.entries.shape[0])

    @property
    def variance(self) -> float:
        """v, rounded to the nearest double."""
        return float(Fraction(self.scale) * Fraction(self.common))

    @cached_property
    def is_circulant(self) -> bool:
        """Whether, to the bit, entry (i, j) depends on the ring distance of i and j alone."""
        return bool((self.entries == self.entries[0][ring_distances(self.bins)]).all())

    @cached_property
    def reach(self) -> int:
        """The largest ring distance at which there is an entry other than 0."""
        return int(ring_distances(self.bins)[self.entries != 0.0].max(initial=0))

    @cached_property
    def span(self) -> int:
        """The largest |i - j| of an entry other than 0: the reach along a line, where nothing passes the seam."""
        rows, columns = np.nonzero(self.entries)
        return int(np.abs(rows - columns).max(initial=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactMoments:
    """``E Y^k`` of a variable Y >= 0 for k = 0..degree (of a measure, whose mass is the entry 0, where it is said).

    Attributes:
        values: positive rational numbers.
        error: proved relative error of each: ``|values[k] - E Y^k| <= error * values[k]``.
    """

    values: tuple[Fraction, ...]
    error: Fraction

    @property
    def degree(self) -> int:
        """The highest order a."""
        return len(self.values) - 1
