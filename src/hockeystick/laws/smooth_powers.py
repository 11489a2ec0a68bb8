"""Sums over the law of a sum of many logarithms, from the few frequencies at which its transform is not next to 0.

A law of many independent logarithms on a lattice is smooth, so nearly all of its transform is negligible, and what is
left is known before it is computed: transforms of a few frequencies bound those in between. Sums over all places above
one, or below it, are geometric series of each frequency. So none of the places of a long window is looked at.
Proof: docs/theory/contours.md, "Smooth sums". Cost: O(frequencies * places of a factor), O(frequencies) for each sum.
"""

from collections.abc import Sequence
from math import ceil, exp, log, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.inner_products import inner_products
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.rotations import exponentials_less_one, rotations

Indices = NDArray[np.intp]

OF_TRANSFORMS = 10.0
"""Units of roundoff, for each doubling of the length, that a transform may be off by relative to its size.

Higham (2002, Theorem 24.2) proves 6.7 for the textbook's radix 2; that the library's is as good is an assumption.
"""
SMALLEST_POWER = -80.0
"""Logarithm of the size of a product of transforms that is not computed."""
BEND = 0.2
"""Share of what the logarithm of a transform has to fall to that is spent on not knowing it between frequencies."""
FEWEST, SPARSE = 64, 4
"""The least length of a coarse transform, and how many times as long the window is at least."""
MOST_CELLS, MOST_FREQUENCIES, MOST_PRODUCTS = 64, 512, 1 << 18
"""Cells of coarse frequencies that may matter, frequencies in them, and products of these and places of all factors."""
ROUNDING = 256.0
"""Units of roundoff of a term of a geometric series, its two factors, its rotation and their product included."""


class Part(NamedTuple):
    """Equal factors of a product, as their tilted law.

    Attributes:
        offsets: shape (n,), places as whole numbers, from the heaviest on.
        weights: shape (n,), masses, which add up to 1.
        copies: how many there are.
        error: bounds the relative error of each weight.
    """

    offsets: Indices
    weights: Array
    copies: float
    error: float


class Spectrum(NamedTuple):
    """The transform of a law of a sum where it is not negligible.

    Attributes:
        frequencies: shape (k,), whole numbers from 0 to half of the length.
        powers: shape (k,), complex: of the product of all factors.
        error: bounds the error of each mass of the law.
    """

    frequencies: Indices
    powers: NDArray[np.complex128]
    error: float


def spectrum(parts: Sequence[Part], length: int) -> Spectrum | None:
    """The transform of this length of the product of all parts; None where it is not known to be negligible nearly
    everywhere.
    """
    frequencies = _frequencies(parts, length)
    if frequencies is None:
        return None
    logs, angles, log_most, rounding, relative = np.zeros((5, frequencies.size))
    for offsets, weights, copies, error in parts:
        turns = _turned(np.multiply.outer(-frequencies, offsets), length)
        transform = inner_products(rotations(turns), weights[None, :])[:, 0]
        # Rotations are off by 16 units, their angles by 10, and a sum of n products by n + 2.
        off = error + UNIT_ROUNDOFF * (offsets.size + 32.0)
        sizes = np.abs(transform)
        most = np.minimum(sizes + off, 1.0 + off)
        log_sizes = np.log(np.maximum(sizes, 1e-300))
        logs += copies * log_sizes
        angles += copies * np.arctan2(transform.imag, transform.real)
        log_most += copies * np.log(most)
        rounding += copies * (1.0 + np.abs(log_sizes))
        relative += off * copies / most
    powers = np.exp(logs) * rotations(angles)
    errors = np.exp(log_most) * relative + UNIT_ROUNDOFF * (28.0 + 4.0 * len(parts)) * rounding * np.abs(powers)
    dropped = 0.5 * length * exp(SMALLEST_POWER)
    return Spectrum(frequencies, powers, 2.0 * (float(errors.sum()) + dropped) / length)


def _frequencies(parts: Sequence[Part], length: int) -> Indices | None:
    """Those at which the product may not be negligible; None where that is not known, or they are too many."""
    total = sum(part.copies for part in parts)
    spreads = [_variance(part) for part in parts]
    # A share of the fall of the logarithm of one factor that makes the product negligible.
    tolerance = BEND * min(-SMALLEST_POWER / total, 1.0)
    size = 2 ** ceil(log(max(2.0 * pi * sqrt(max(spreads) / (8.0 * tolerance)), FEWEST), 2.0))
    if SPARSE * size > length:
        return None
    log_most = np.zeros(size // 2)
    for (offsets, weights, copies, error), variance in zip(parts, spreads, strict=True):
        folded = np.bincount(offsets % size, weights, size)
        sizes = np.abs(np.fft.rfft(folded))
        of_transform = OF_TRANSFORMS * log(size, 2.0) * sqrt(size * float(np.sum(folded**2)))
        off = error + UNIT_ROUNDOFF * (offsets.size + of_transform)  # many places may have one sum in common
        # Turned by its mean, a transform has a second derivative of at most the variance, so between two frequencies
        # it is off from its chord by at most an eighth of that times their squared distance.
        bend = variance * (2.0 * pi / size) ** 2 / 8.0 * (1.0 + 1e-9 + error)
        log_most += copies * np.log(np.minimum(np.maximum(sizes[1:], sizes[:-1]) + bend, 1.0) + off)
    cells = np.flatnonzero(log_most >= SMALLEST_POWER)
    if cells.size > MOST_CELLS:
        return None
    ends = [(cell * length // size, min(-(-(cell + 1) * length // size), length // 2)) for cell in cells.tolist()]
    kept = np.unique(np.concatenate([np.arange(first, last + 1) for first, last in ends]))
    products = kept.size * sum(part.offsets.size for part in parts)
    return kept if kept.size <= MOST_FREQUENCIES and products <= MOST_PRODUCTS else None


def _variance(part: Part) -> float:
    mean = float(np.sum(part.weights * part.offsets))
    return float(np.sum(part.weights * (part.offsets - mean) ** 2))


def _turned(products: Indices, length: int) -> Array:
    """``2 pi products / length`` less whole turns, from ``-pi`` to pi, relatively off by 3 units of roundoff."""
    half = length // 2
    within: Array = ((products + half) % length - half).astype(np.float64)
    return within * (2.0 * pi / length)


class Waves:
    """Sums of exponentials over the places of a window before one of them, or after it.

    Args:
        known: the transform of the masses.
        length, start: places of the window, and the whole number of the first of them.
        spacing, order: of the places, and of the tilt: above 1, or below 0.
    """

    def __init__(self, known: Spectrum, length: int, start: int, spacing: float, order: float) -> None:
        self.known, self.length, self.start = known, length, start
        self.spacing, self.order, self.sign = spacing, order, 1 if order > 1.0 else -1
        once = (known.frequencies == 0) | (2 * known.frequencies == length)
        self.terms = np.where(once, 1.0, 2.0) / length * known.powers
        self.rounding = known.frequencies.size + ROUNDING

    def __call__(self, count: int) -> tuple[Array, Array]:
        """The sums of masses times ``e^((1 - order) u)`` and ``e^(-order u)``, and of the sizes of what is added up.

        u is the distance of a place from the middle one. Shapes (2,) and (2,).

        Args:
            count: the last places so many of which are added up for orders above 1, and the first ones below 0.
        """
        if count == 0:
            return np.zeros(2), np.zeros(2)
        nearest = self.length - count if self.order > 1.0 else count - 1
        rates = np.abs(np.array([[1.0], [0.0]]) - self.order) * self.spacing
        frequencies = self.known.frequencies
        # From the nearest place on, each term is the one before it times the same number, whose logarithm this is.
        turn = 1j * self.sign * _turned(frequencies, self.length)
        whole = 1j * self.sign * _turned(frequencies * count, self.length)
        first, last = (np.asarray(logs, dtype=np.complex128) for logs in (turn - rates, whole - rates * count))
        series = exponentials_less_one(last) / exponentials_less_one(first)
        series *= np.exp(-self.sign * rates * (nearest - self.length // 2))
        terms = self.terms * rotations(_turned(frequencies * (nearest + self.start), self.length)) * series
        return terms.real.sum(axis=1), np.abs(terms).sum(axis=1)
