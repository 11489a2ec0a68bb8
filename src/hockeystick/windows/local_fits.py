"""Moving averages with weights of their own for every bin, for overlaps that differ from bin to bin.

A linear programme changes the covariances near some bins so that white noise may be split off; what lies between is
interpolated, and weights are the rows of a banded Cholesky factor. They are rounded to whole numbers whose squares have
sums of one residue, which lets few tables serve all bins. Nothing of this has to be right: the order is checked.

Proof: docs/theory/moving-averages.md.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky_banded, eigh

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.types import Side
from hockeystick.windows.banded_fits import bands_of, fitted
from hockeystick.windows.comparable_chain import shortfall
from hockeystick.windows.moving_averages import MovingAverages

WHITES = (0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12)
"""White noise that is tried, as shares of the variance."""
ANCHORS = 9
"""Bins at which the linear programme is solved."""
DEFINITE, BUMPS, REACH, BEYOND = 2e-3, 60, 3.0, 1.2
"""Least eigenvalue, as a share of the variance, of what moving averages follow; how often, how widely and by how much
more than what is missing bins are changed until it is reached."""
PHASES, RESIDUE = 32, 13
"""How many tables there are; sums of squares of weights are multiples of the residue."""
NEARBY = np.array(list(product(range(-2, 3), repeat=4)), dtype=np.int64)
"""How far from the nearest whole weights is looked."""
FINE = 1e-4
"""Unit of weights, as a share of the deviation, that is as good as none."""
ADJUSTMENTS, BITS = 30, 0.5
"""Rounds in which weights are changed until the order holds; by how many squared units more than what is missing."""


def local_fits(
    covariance: Array, error: float, side: Side, weights: Array, deadline: Deadline
) -> Iterator[MovingAverages]:
    """Moving averages that are comparable on this side; arguments as in :func:`..banded_fits.fits`."""
    bands, largest = bands_of(covariance, side), float(covariance.diagonal().max())
    if bands is None or len(covariance) < 6 * bands:
        return
    for share in WHITES:
        target = _target(covariance, share * largest, bands, side, weights, deadline)
        chain = None if target is None else _proved(*target, share * largest, bands, covariance, error, side, deadline)
        if chain is not None:
            yield chain


def _target(
    covariance: Array, white: float, bands: int, side: Side, weights: Array, deadline: Deadline
) -> tuple[Array, Array] | None:
    """A covariance that has this much white noise, and a semidefinite part of its difference."""
    bins, sign = len(covariance), 1.0 if side is Side.UPPER else -1.0
    anchors = np.unique(np.linspace(2 * bands, bins - 2 * bands - 1, ANCHORS).astype(np.int64))
    changes, parts = np.zeros((anchors.size, bands)), np.zeros((anchors.size, bands))
    for k, bin_ in enumerate(anchors):
        deadline.tick()
        entries = covariance[bin_, bin_ - np.arange(bands)]
        found = fitted(entries, white, weights[:bands], side)
        if found is None:
            return None
        changes[k] = found[1] - entries
        changes[k, 0] += white
        parts[k, : found[2].size] = found[2]
    target, shared = covariance.copy(), np.zeros_like(covariance)
    inner = np.arange(bins) < bins - 2 * bands
    for lag in range(bands):
        rows = np.arange(lag, bins)
        ends = (white if lag == 0 else 0.0) if sign > 0.0 else 0.0 if lag == 0 else -covariance[rows, rows - lag]
        ends = ends if sign > 0.0 or lag == 0 else 1.1 * white / covariance[rows, rows] * ends
        for matrix, values, last in ((target, changes, ends), (shared, parts, 0.0)):
            added = np.where(inner[rows], np.interp(rows, anchors, values[:, lag]), last)
            matrix[rows, rows - lag] += added
            matrix[rows - lag, rows] = matrix[rows, rows - lag]
    values, vectors = np.linalg.eigh(shared)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    least = white + DEFINITE * float(covariance.diagonal().max())
    if sign < 0.0:
        target = np.maximum(target, 0.0)
    for _ in range(BUMPS):
        deadline.tick()
        values, vectors = eigh(target, subset_by_index=[0, 2])
        if values[0] >= least:
            return target, factor @ factor.T
        for value, vector in zip(values, vectors.T, strict=True):
            bump = BEYOND * max(least - value, 0.0) * np.minimum(REACH * vector**2 / np.max(vector**2), 1.0)
            diagonal = target.diagonal().copy()
            if sign > 0.0:
                diagonal += bump
            else:
                gains = np.sqrt(np.maximum(1.0 - bump / diagonal, 0.0))
                target = target * np.multiply.outer(gains, gains)
            np.fill_diagonal(target, diagonal)
    return None


def _rows(matrix: Array, bands: int) -> Array | None:
    """The rows of a banded Cholesky factor, the diagonal first."""
    bins = len(matrix)
    packed = np.zeros((bands, bins))
    for lag in range(bands):
        packed[lag, : bins - lag] = np.diagonal(matrix, -lag)
    try:
        columns = cholesky_banded(packed, lower=True)
    except LinAlgError:
        return None
    found = np.zeros((bins, bands))
    for lag in range(bands):
        found[lag:, lag] = columns[lag, : bins - lag]
    return found


def _whole(rows: Array, beside: Array, unit: float) -> NDArray[np.int64]:
    """Whole weights near these rows, the sums of whose squares are multiples of ``RESIDUE``.

    One bin after the other takes the weights that miss its entries in ``beside`` least, given those before.
    """
    bins, bands = rows.shape
    nearby = np.unique(NEARBY[:, :bands], axis=0)
    found = np.zeros((bins, bands), dtype=np.int64)
    for i, row in enumerate(rows):
        last = min(i, bands - 1)
        tried = np.rint(row).astype(np.int64) + nearby
        squares = (tried**2).sum(axis=1)
        tried = tried[(squares % RESIDUE == 0) & (tried[:, 0] >= 0)]
        if not len(tried):
            raise ValueError("The residue must have sums of squares near those of the weights.")
        missed = np.abs(unit**2 * (tried**2).sum(axis=1) - beside[i, i])
        for lag in range(1, last + 1):
            missed += np.abs(unit**2 * (tried[:, lag:] @ found[i - lag, : bands - lag]) - beside[i, i - lag])
        found[i] = tried[missed.argmin()]
    return found


def _proved(
    target: Array,
    shared: Array,
    white: float,
    bands: int,
    covariance: Array,
    error: float,
    side: Side,
    deadline: Deadline,
) -> MovingAverages | None:
    """The target's moving average with whole weights, changed until it is comparable."""
    bins, sign = len(covariance), 1.0 if side is Side.UPPER else -1.0
    beside, whites, unit = target - white * np.eye(bins), np.full(bins, np.sqrt(white)), 0.0
    for _ in range(ADJUSTMENTS):
        deadline.tick()
        rows = _rows(beside, bands)
        if rows is None:
            return None
        if not unit:
            fine = FINE * float(np.sqrt(covariance.diagonal().max()))
            unit = 1.98 / (PHASES * RESIDUE) * (
                MovingAverages(1, np.rint(rows / fine).astype(np.int64), fine, whites).spacing
            )
        chain = MovingAverages(1, _whole(rows / unit, beside, unit), unit, whites)
        missing = np.maximum(shortfall(chain.products, covariance, error, side, shared), 0.0)
        if not missing.any():
            return chain
        beside += sign * np.diag(np.where(missing > 0.0, missing + BITS * unit**2, 0.0))
    return None
