"""Moving averages with weights of their own for every bin, for overlaps that differ from bin to bin.

Weights are found by gradients and rounded to whole numbers, one bin after the other. As much white noise is split off
as makes the sum affordable. Where there are many bands, several bins share an innovation. Nothing of this has to be
right: the order is checked.

Proof: docs/theory/moving-averages.md, section 9.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.banded_fits import MOST_BANDS, bands_of
from hockeystick.sequences.banded_rows import Programme, Rows
from hockeystick.sequences.comparable_covariances import ROOM, shortfall
from hockeystick.sequences.moving_averages import MovingAverages, loaded
from hockeystick.types import Side

WHITES = {
    False: tuple(0.012 * 1.12**power for power in range(21)),
    True: tuple(0.03 * 1.12**power for power in range(24)),
}
"""White noise that is tried, as shares of the variance: with an innovation for each bin, and for several."""
MOST_SHARED_BANDS, DEPTHS, MOST_PERIOD = 20, (4, 5, 6), 6
"""Where several bins share an innovation: bands, innovations that a bin sees, bins that share one."""
MOST_BINS = 400
"""More take longer to fit, and their sums longer, than they are worth."""
ROUGH, STEPS = 60, {False: 150, True: 400}
"""Steps of the search for rows, while white noise is looked for and afterwards."""
IN_SPACING, LATTICE = 100.0, 1e-2
"""Units of weights in the spacing of the lattice, and what the lattice may change."""
FINE = 1e-4
"""Unit of weights, as a share of the deviation, that is as good as none."""
BESIDE, MOST_BESIDE = 2, 1000
"""Whole numbers this far from a weight are tried; one only where there would be more choices than this for a bin."""
SLIGHT = 0.1
"""What a change of the white noise by rounding counts, in multiples of a change of the variance."""
STEP, LEAST_KEPT = 5e-4, 0.5
"""White noise is rounded to multiples of this share of the variance; how much of it has to be kept."""

Affordable = Callable[[MovingAverages], bool]


def local_fit(
    covariance: Array,
    error: float,
    side: Side,
    weights: Array,
    affordable: Affordable,
    deadline: Deadline,
    ring: bool = False,
) -> MovingAverages | None:
    """A moving average that is comparable on this side, with as little white noise as is affordable, or None.

    Args:
        covariance, error, weights: as in :func:`..banded_fits.fits`.
        ring: whether the bins are on a ring.
    """
    bins = len(covariance)
    bands = bands_of(covariance, side, ring, MOST_SHARED_BANDS)
    if bands is None or bins > MOST_BINS or not float(covariance.diagonal().min()) > 0.0:
        return None
    rough = []
    for period, depth in _shapes(bands, bins, ring):
        lags = max(bands, period * depth)
        if not np.isfinite(weights[:lags]).all():
            return None
        place = np.arange(bins)
        entries = np.array([covariance[place, place - lag] for lag in range(lags)])
        for lag in range(1, lags):
            if not ring:
                entries[lag, :lag] = 0.0
        programme = Programme(entries, weights[:lags], 0.0, side, ring, period, depth)
        trial = _rough(programme, affordable, deadline)
        rough += [] if trial is None else [trial]
    for first in sorted(rough, key=lambda trial: trial.loss):
        programme = first.programme
        shared = programme.period > 1
        for share in WHITES[shared][first.white :]:
            tried = programme.with_white(share * programme.largest)
            chain = _proved(tried, tried.improved(first.rows, STEPS[shared], deadline), covariance, error, deadline)
            if chain is not None and affordable(chain):
                return chain
    return None


def _shapes(bands: int, bins: int, ring: bool) -> Iterator[tuple[int, int]]:
    """How many bins share an innovation, and how many innovations a bin sees, so that all bands are reached."""
    if bands <= MOST_BANDS:
        if 12 * bands <= bins:
            yield 1, bands
        return
    last = MOST_PERIOD + 1
    for depth in DEPTHS:
        period = -(-(bands - 1) // (depth - 1))
        while period < last and ring and bins % period:
            period += 1
        if 1 < period < last and 3 * depth * period <= bins:
            yield period, depth
            last = period


@dataclass(frozen=True)
class _Rough:
    """Rows with the least white noise, by its index, that is affordable; what they lose about."""

    programme: Programme
    rows: Rows
    white: int
    loss: float


def _rough(programme: Programme, affordable: Affordable, deadline: Deadline) -> _Rough | None:
    whites = WHITES[programme.period > 1]
    begin = programme.first()
    if begin is None:
        return None
    low, high, best = -1, len(whites), None
    while high - low > 1:
        middle = (low + high) // 2
        tried = programme.with_white(whites[middle] * programme.largest)
        rows = tried.improved(begin, ROUGH, deadline)
        chain = _chain(tried, rows.rows, _unit(tried, rows.rows), np.full(len(rows.rows), tried.white))
        if affordable(chain):
            high, best = middle, _Rough(programme, rows, middle, tried.loss(rows))
        else:
            low = middle
    return best


def _chain(programme: Programme, rows: Array, unit: float, whites: Array) -> MovingAverages:
    """The chain with these rows, rounded to the unit, and variances of the white noise."""
    whole = np.rint(rows / unit).astype(np.int64)
    return MovingAverages(programme.period, whole, unit, np.sqrt(whites), programme.ring, LATTICE)


def _unit(programme: Programme, rows: Array) -> float:
    """The unit of whole weights that are near these rows."""
    fine = FINE * float(np.sqrt(programme.largest))
    return _chain(programme, rows, fine, np.full(len(rows), programme.white)).spacing / IN_SPACING


def _whole(programme: Programme, rows: Array, unit: float, deadline: Deadline) -> Array:
    """Rows of whole numbers of units near these: one bin after the other misses its covariances least.

    What covariances are missing costs the variances of both bins; what is too much of the variance is taken off the
    white noise.
    """
    bins, depth = rows.shape
    wanted, weights = programme.products(programme.spread(rows)), programme.weights
    sign = 1.0 if programme.side is Side.UPPER else -1.0
    beside = BESIDE if (2 * BESIDE + 1) ** depth <= MOST_BESIDE else 1
    near = np.array(list(product(range(-beside, beside + 1), repeat=depth)), dtype=np.float64)
    lags, chosen, fixed = len(weights), np.zeros((bins, len(weights))), np.zeros(bins, dtype=bool)
    for bin_ in range(bins):
        deadline.tick()
        whole = np.rint(rows[bin_] / unit) + near
        whole = unit * whole[whole[:, 0] >= 0.0]
        own = slice(bin_ % programme.period, programme.period * depth, programme.period)
        tried = np.zeros((len(whole), lags))
        tried[:, own] = whole
        missed = SLIGHT * weights[0] * np.abs((tried**2).sum(axis=1) - wanted[0, bin_])
        for lag in range(1, lags):
            for newer in (bin_, bin_ + lag):
                if not programme.ring and not lag <= newer < bins:
                    continue
                newer, other = newer % bins, (2 * newer - lag - bin_) % bins
                if not fixed[other]:
                    continue
                if newer == bin_:
                    products = tried[:, lag:] @ chosen[other, : lags - lag]
                else:
                    products = tried[:, : lags - lag] @ chosen[other, lag:]
                more = sign * (products - wanted[lag, newer])
                less = max(2.0 * weights[0] - weights[lag], 0.0)
                missed += np.where(more > 0.0, weights[lag], -less) * more
        chosen[bin_], fixed[bin_] = tried[missed.argmin()], True
    place = np.arange(bins)[:, None]
    weights_of: Array = chosen[place, place % programme.period + programme.period * np.arange(depth)]
    return weights_of


def _proved(
    programme: Programme, proposal: Rows, covariance: Array, error: float, deadline: Deadline
) -> MovingAverages | None:
    """The moving average with whole weights, with the white noise that makes it comparable."""
    bins, largest = len(covariance), programme.largest
    ring, side, white = programme.ring, programme.side, np.full(len(covariance), programme.white)
    unit = _unit(programme, proposal.rows)
    rows = _whole(programme, proposal.rows, unit, deadline)
    factor = loaded(proposal.shared, np.arange(bins), ring)
    shared = factor @ factor.T
    missing = shortfall(_chain(programme, rows, unit, white).products, covariance, error, side, shared)
    step = STEP * largest
    changed = step * np.ceil((missing + ROOM * largest) / step)
    whites = white + (changed if side is Side.UPPER else -changed)
    if float(whites.min()) < LEAST_KEPT * programme.white:
        return None
    chain = _chain(programme, rows, unit, whites)
    return chain if float(shortfall(chain.products, covariance, error, side, shared).max()) <= 0.0 else None
