"""Moving averages with weights of their own for every bin, for overlaps that differ from bin to bin.

A linear programme changes the covariances near some bins so that white noise may be split off; what lies between is
interpolated, and weights are the rows of a banded Cholesky factor, rounded to whole numbers. Nothing of this has to be
right: the order is checked.

Proof: docs/theory/moving-averages.md, section 9.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky_banded, eigh

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.banded_fits import bands_of, fitted
from hockeystick.sequences.comparable_chain import ROOM, shortfall
from hockeystick.sequences.moving_averages import MovingAverages
from hockeystick.types import Side

WHITES = (0.03, 0.04, 0.05, 0.06, 0.075, 0.09, 0.12)
"""White noise that is tried, as shares of the variance."""
MOST_BINS = 400
"""More take longer to fit, and their sums longer, than they are worth."""
ANCHORS = 9
"""Bins at which the linear programme is solved."""
DEFINITE, BUMPS, REACH, BEYOND = 5e-4, 60, 3.0, 1.2
"""Least eigenvalue, as a share of the variance, of what moving averages follow; how often, how widely and by how much
more than what is missing bins are changed until it is reached."""
IN_SPACING, LATTICE = 100.0, 1e-2
"""Units of weights in the spacing of the lattice, and what the lattice may change."""
FINE = 1e-4
"""Unit of weights, as a share of the deviation, that is as good as none."""
STEP, LEAST_KEPT = 1e-3, 0.5
"""White noise is rounded to multiples of this share of the variance; how much of it has to be kept from below."""


def local_fits(
    covariance: Array, error: float, side: Side, weights: Array, deadline: Deadline
) -> Iterator[MovingAverages]:
    """Moving averages that are comparable on this side; arguments as in :func:`..banded_fits.fits`."""
    bands, largest = bands_of(covariance, side), float(covariance.diagonal().max())
    if bands is None or not 12 * bands <= len(covariance) <= MOST_BINS or not float(covariance.diagonal().min()) > 0.0:
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
    anchors = np.unique(np.linspace(2 * bands, bins - 6 * bands, ANCHORS).astype(np.int64))
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
            bump = BEYOND * max(least - float(value), 0.0) * np.minimum(REACH * vector**2 / np.max(vector**2), 1.0)
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


def _whole(rows: Array, beside: Array, unit: float, deadline: Deadline) -> NDArray[np.int64]:
    """Whole weights near these rows: one bin after the other misses its entries least, given those before."""
    bins, bands = rows.shape
    near = np.array(list(product((-1, 0, 1), repeat=bands)), dtype=np.int64)
    found = np.zeros((bins, bands), dtype=np.int64)
    for i, row in enumerate(rows):
        deadline.tick()
        tried = np.rint(row).astype(np.int64) + near
        tried = tried[tried[:, 0] >= 0]
        missed = np.abs(unit**2 * (tried**2).sum(axis=1) - beside[i, i])
        for lag in range(1, min(i, bands - 1) + 1):
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
    """The target's moving average with whole weights, with the white noise that makes it comparable."""
    bins, largest = len(covariance), float(covariance.diagonal().max())
    beside = target - white * np.eye(bins)
    rows = _rows(beside, bands)
    if rows is None:
        return None
    whites, fine = np.full(bins, np.sqrt(white)), FINE * np.sqrt(largest)
    rough = MovingAverages(1, np.rint(rows / fine).astype(np.int64), fine, whites, lattice_error=LATTICE)
    unit = rough.spacing / IN_SPACING
    whole = _whole(rows / unit, beside, unit, deadline)
    missing = shortfall(MovingAverages(1, whole, unit, whites).products, covariance, error, side, shared)
    step = STEP * largest
    changed = step * np.ceil(np.maximum(missing + ROOM * largest, 0.0) / step)
    whites = white + (changed if side is Side.UPPER else -changed)
    if float(whites.min()) < LEAST_KEPT * white:
        return None
    chain = MovingAverages(1, whole, unit, np.sqrt(whites), lattice_error=LATTICE)
    return chain if float(shortfall(chain.products, covariance, error, side, shared).max()) <= 0.0 else None
