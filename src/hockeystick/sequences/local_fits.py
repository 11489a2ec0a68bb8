"""Moving averages with weights of their own for every bin, for overlaps that differ from bin to bin.

Weights are found by gradients and rounded to whole numbers, one bin after the other. As much white noise is split off
as makes the sum affordable. Nothing of this has to be right: the order is checked.

Proof: docs/theory/moving-averages.md, section 9.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.banded_fits import bands_of
from hockeystick.sequences.banded_rows import Programme, Rows
from hockeystick.sequences.comparable_chain import ROOM, shortfall
from hockeystick.sequences.moving_averages import MovingAverages, loaded
from hockeystick.types import Side

WHITES = tuple(0.012 * 1.12**power for power in range(21))
"""White noise that is tried, as shares of the variance."""
MOST_BINS = 400
"""More take longer to fit, and their sums longer, than they are worth."""
ROUGH, STEPS = 60, 150
"""Steps of the search for rows, while white noise is looked for and afterwards."""
IN_SPACING, LATTICE = 100.0, 1e-2
"""Units of weights in the spacing of the lattice, and what the lattice may change."""
FINE = 1e-4
"""Unit of weights, as a share of the deviation, that is as good as none."""
BESIDE = 2
"""Whole numbers this far from a weight are tried."""
SLIGHT = 0.1
"""What a change of the white noise by rounding counts, in multiples of a change of the variance."""
STEP, LEAST_KEPT = 5e-4, 0.5
"""White noise is rounded to multiples of this share of the variance; how much of it has to be kept."""


def local_fit(
    covariance: Array,
    error: float,
    side: Side,
    weights: Array,
    affordable: Callable[[MovingAverages], bool],
    deadline: Deadline,
    ring: bool = False,
) -> MovingAverages | None:
    """A moving average that is comparable on this side, with as little white noise as is affordable, or None.

    Args:
        covariance, error, weights: as in :func:`..banded_fits.fits`.
        ring: whether the bins are on a ring.
    """
    bins, largest = len(covariance), float(covariance.diagonal().max())
    bands = bands_of(covariance, side, ring)
    if bands is None or not 12 * bands <= bins <= MOST_BINS or not float(covariance.diagonal().min()) > 0.0:
        return None
    if not np.isfinite(weights[:bands]).all():
        return None
    place = np.arange(bins)
    entries = np.array([covariance[place, place - lag] for lag in range(bands)])
    for lag in range(1, bands):
        if not ring:
            entries[lag, :lag] = 0.0
    programme = Programme(entries, weights[:bands], WHITES[-1] * largest, side, ring)
    begin = programme.first()
    if begin is None:
        return None
    # the least index whose moving average is affordable, by rough ones
    low, high, best = -1, len(WHITES), begin
    while high - low > 1:
        middle = (low + high) // 2
        tried = programme.with_white(WHITES[middle] * largest)
        rows = tried.improved(begin, ROUGH, deadline)
        if affordable(_chain(rows.rows, _unit(tried, rows.rows), np.full(bins, tried.white), ring)):
            high, best = middle, rows
        else:
            low = middle
    for share in WHITES[high:]:
        tried = programme.with_white(share * largest)
        chain = _proved(tried, tried.improved(best, STEPS, deadline), covariance, error, deadline)
        if chain is not None and affordable(chain):
            return chain
    return None


def _chain(rows: Array, unit: float, whites: Array, ring: bool) -> MovingAverages:
    """With these rows, rounded to the unit, and variances of the white noise."""
    return MovingAverages(1, np.rint(rows / unit).astype(np.int64), unit, np.sqrt(whites), ring, LATTICE)


def _unit(programme: Programme, rows: Array) -> float:
    """Of whole weights that are near these rows."""
    fine = FINE * float(np.sqrt(programme.entries[0].max()))
    return _chain(rows, fine, np.full(len(rows), programme.white), programme.ring).spacing / IN_SPACING


def _whole(programme: Programme, rows: Array, unit: float, deadline: Deadline) -> Array:
    """Rows of whole numbers of units near these: one bin after the other misses its covariances least.

    What covariances are missing costs the variances of both bins; what is too much of the variance is taken off the
    white noise.
    """
    bins, depth = rows.shape
    wanted, weights = programme.products(rows), programme.weights
    sign = 1.0 if programme.side is Side.UPPER else -1.0
    near = np.array(list(product(range(-BESIDE, BESIDE + 1), repeat=depth)), dtype=np.float64)
    found, fixed = np.zeros((bins, depth)), np.zeros(bins, dtype=bool)
    for bin_ in range(bins):
        deadline.tick()
        tried = np.rint(rows[bin_] / unit) + near
        tried = unit * tried[tried[:, 0] >= 0.0]
        missed = SLIGHT * weights[0] * np.abs((tried**2).sum(axis=1) - wanted[0, bin_])
        for lag in range(1, depth):
            for newer in (bin_, bin_ + lag):
                if not programme.ring and not lag <= newer < bins:
                    continue
                newer, other = newer % bins, (2 * newer - lag - bin_) % bins
                if not fixed[other]:
                    continue
                if newer == bin_:
                    products = tried[:, lag:] @ found[other, : depth - lag]
                else:
                    products = tried[:, : depth - lag] @ found[other, lag:]
                more = sign * (products - wanted[lag, newer])
                less = max(2.0 * weights[0] - weights[lag], 0.0)
                missed += np.where(more > 0.0, weights[lag], -less) * more
        found[bin_], fixed[bin_] = tried[missed.argmin()], True
    return found


def _proved(
    programme: Programme, proposal: Rows, covariance: Array, error: float, deadline: Deadline
) -> MovingAverages | None:
    """The moving average with whole weights, with the white noise that makes it comparable."""
    bins, largest = len(covariance), float(covariance.diagonal().max())
    ring, side, white = programme.ring, programme.side, np.full(len(covariance), programme.white)
    unit = _unit(programme, proposal.rows)
    rows = _whole(programme, proposal.rows, unit, deadline)
    factor = loaded(proposal.shared, np.arange(bins), ring)
    shared = factor @ factor.T
    missing = shortfall(_chain(rows, unit, white, ring).products, covariance, error, side, shared)
    step = STEP * largest
    changed = step * np.ceil((missing + ROOM * largest) / step)
    whites = white + (changed if side is Side.UPPER else -changed)
    if float(whites.min()) < LEAST_KEPT * programme.white:
        return None
    chain = _chain(rows, unit, whites, ring)
    return chain if float(shortfall(chain.products, covariance, error, side, shared).max()) <= 0.0 else None
