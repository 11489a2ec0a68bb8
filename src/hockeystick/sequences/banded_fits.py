"""Moving averages whose covariance is comparable with one of few bands: next to nothing is lost where bins are alike.

White noise is split off what all bins share at each lag, and the rest is the covariance of a moving average, by its
spectral factor. Where there is little white noise a linear programme trades lags for more of it. Which moving average
is chosen only decides how good the bound is; whether it is on its side is checked for the one that is used.

Proof: docs/theory/moving-averages.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.comparable_covariances import ROOM, semidefinite, shortfall, toeplitz
from hockeystick.sequences.moving_averages import MovingAverages
from hockeystick.types import Side

MOST_BANDS = 4
"""Innovations that a bin may see: windows of more of them are too many."""
NEGLIGIBLE = 1e-12
"""Share of the diagonal: bands whose entries are smaller have ended."""
LEAST = 0.02
"""Share of the variance: with less white noise there are too many windows."""
WHITES = (0.03, 0.05, 0.08, 0.12)
"""White noise that is tried, as shares of the variance, beside nearly all that there is."""
NATURAL = 0.95
"""Share of all the white noise that there is, which is tried first."""
QUANTILES = {Side.UPPER: (1.0, 0.9, 0.5), Side.LOWER: (0.0, 0.1, 0.5)}
"""Which of the entries at a lag are followed."""
PLACES = 401
"""Where symbols are kept non-negative; a factor needs no more than that, as it is only a proposal."""
LONG = 400
"""Rows after which a Cholesky factor has become stationary."""
FIRST, SETTLED = 60, 1.0
"""First bins that may have weights of their own, up to where these are within so many units of all others'."""
SIZES = np.arange(150.0, 400.0, 0.5)
"""Lengths of the whole weights that are tried."""
ROUNDS, ADJUSTMENTS = 3, 80
STEP, SHRINK = 5e-4, 0.97
"""White noise is rounded to multiples of this share of the variance; by how much weights that are too large shrink."""
LEAST_KEPT = 0.9
"""Share of the white noise that is kept; then weights shrink instead."""


def fits(
    covariance: Array, error: float, side: Side, weights: Array, deadline: Deadline, ring: bool = False
) -> Iterator[MovingAverages]:
    """Moving averages that are comparable on this side, proved with room for errors.

    The first bins may be unlike all others.

    Args:
        covariance: of the bins, shape (b, b), non-negative.
        error: relative error of its entries.
        weights: of :func:`..comparable_covariances.sensitivity`.
        ring: whether the bins are on a ring.
    """
    bands = bands_of(covariance, side, ring)
    if bands is None:
        return
    largest = float(covariance.diagonal().max())
    seen: list[Array] = []
    for quantile in QUANTILES[side]:
        typical = np.array([float(np.quantile(np.diagonal(covariance, lag), quantile)) for lag in range(bands)])
        if any(np.abs(typical - earlier).max() < STEP * largest for earlier in seen):
            continue
        seen.append(typical)
        natural = NATURAL * float(_symbol(typical).min())
        for white in (natural, *(share * largest for share in WHITES if share * largest > natural)):
            fit = None if white < LEAST * largest else fitted(typical, white, weights[:bands], side)
            if fit is None:
                continue
            for ends in (False,) if ring else (True, False):
                chain = _adjusted(fit, ends, ring, covariance, error, side, deadline)
                if chain is not None:
                    yield chain


def bands_of(covariance: Array, side: Side, ring: bool = False, most: int = MOST_BANDS) -> int | None:
    """How many bands there are, or None for too many; entries far from the diagonal may be given away from below."""
    bins, largest = len(covariance), float(covariance.diagonal().max())
    lags = [lag for lag in range(bins) if float(np.diagonal(covariance, lag).max()) > NEGLIGIBLE * largest]
    if ring or side is Side.LOWER:
        lags = [lag for lag in lags if lag < bins // 2]
    return max(lags[-1] + 1, 2) if lags[-1] < min(most, bins // 2) else None


def _symbol(entries: Array, places: int = PLACES) -> Array:
    lags = np.arange(entries.size)
    symbol: Array = np.cos(np.outer(np.linspace(0.0, np.pi, places), lags)) @ np.where(
        lags == 0, entries, 2.0 * entries
    )
    return symbol


class Fit(NamedTuple):
    """White noise, what is left of the entries at each lag, and a semidefinite part of the difference."""

    white: float
    left: Array
    shared: Array


def fitted(typical: Array, white: float, weights: Array, side: Side) -> Fit | None:
    """What these entries are compared with.

    With at least this much white noise, and as little loss as a linear programme can reach.
    """
    from scipy.optimize import linprog

    bands, sign = typical.size, 1.0 if side is Side.UPPER else -1.0
    if white > 0.0 and float(_symbol(typical).min()) > white:
        left = typical.copy()
        left[0] -= white
        return Fit(white, left, np.zeros(1))
    if not white > 0.0:
        return None
    eye, nothing = np.eye(bands), np.zeros((PLACES, bands))
    symbol = np.column_stack([_symbol(unit) for unit in eye])
    growth = np.ones(bands)
    fit: Fit | None = None
    for _ in range(ROUNDS):
        result = linprog(
            np.concatenate([sign * weights * growth, np.zeros(bands)]),
            A_ub=np.vstack(
                [np.hstack([-sign * eye, eye]), np.hstack([-symbol, nothing]), np.hstack([nothing, -symbol])]
            ),
            b_ub=np.concatenate([-sign * typical, np.full(PLACES, -1.001 * white), np.zeros(PLACES)]),
            bounds=[(None, None)] * (2 * bands),
        )
        if result.status != 0:
            break
        entries = np.asarray(result.x, dtype=np.float64)
        change = entries[:bands] - typical
        change = np.where(np.abs(change) > 1e-6, change, 1e-6)
        growth = np.expm1(np.minimum(change, 50.0)) / change
        left = entries[:bands].copy()
        left[0] -= white
        fit = Fit(white, left, semidefinite(entries[bands:]))
    return fit


def _factor(entries: Array) -> Array | None:
    """Weights of a moving average with these covariances, the newest first."""
    lag = np.abs(np.subtract.outer(np.arange(LONG), np.arange(LONG)))
    matrix = np.append(entries, 0.0)[np.minimum(lag, entries.size)]
    try:
        weights: Array = np.linalg.cholesky(matrix + 1e-9 * entries[0] * np.eye(LONG))[-1, ::-1][: entries.size]
    except np.linalg.LinAlgError:
        return None
    return weights


def _whole(factor: Array, entries: Array) -> tuple[NDArray[np.int64], float]:
    """Whole weights in proportion to the factor, and their unit, that nearly keep covariances beside the diagonal."""
    best, least = None, np.inf
    length = float(np.linalg.norm(factor))
    for size in SIZES:
        whole = np.rint(factor * size / length).astype(np.int64)
        own = np.correlate(whole, whole, "full")[whole.size - 1 :].astype(np.float64)
        unit = float(np.sqrt(entries[0] / own[0]))
        off = float(np.abs(unit**2 * own[1:] - entries[1:]).sum())
        if off < least:
            best, least = (whole, unit), off
    if best is None:
        raise ValueError("The factor must have finite entries.")
    return best


def _first_rows(covariance: Array, white: float, bands: int) -> Array | None:
    """Weights of the first bins alone, which become those of all others: the rows of a Cholesky factor."""
    few = min(FIRST, len(covariance))
    try:
        factor = np.linalg.cholesky(covariance[:few, :few] - white * np.eye(few))
    except np.linalg.LinAlgError:
        return None
    rows = np.zeros((few, bands))
    for s in range(bands):
        rows[s:, s] = np.diagonal(factor, -s)
    return rows


def _adjusted(
    fit: Fit,
    ends: bool,
    ring: bool,
    covariance: Array,
    error: float,
    side: Side,
    deadline: Deadline,
) -> MovingAverages | None:
    """The moving average with white noise, and from below smaller weights of some bins, that make it comparable.

    The first bins have weights of their own where ``ends`` says so.
    """
    white, left, shared = fit
    factor = _factor(left)
    if factor is None:
        return None
    whole, unit = _whole(factor, left)
    bins, largest = len(covariance), float(covariance.diagonal().max())
    whites, step = np.full(bins, white), STEP * largest
    part, gains = toeplitz(shared, bins, ring), np.ones(bins)
    rows = np.tile(whole.astype(np.float64), (bins, 1))
    if ends:
        first = _first_rows(covariance, white, whole.size)
        if first is None:
            return None
        settled = np.abs(first / unit - whole).max(axis=1) < SETTLED
        own = len(first) if not settled.any() else int(np.argmax(settled))
        rows[:own] = first[:own] / unit
    for _ in range(ADJUSTMENTS):
        deadline.tick()
        weights = np.rint(gains[:, None] * rows).astype(np.int64)
        chain = MovingAverages(1, weights, unit, np.sqrt(whites), ring)
        missing = shortfall(chain.products, covariance, error, side, part)
        # what each bin's white noise may be, rounded to few different values
        if side is Side.UPPER:
            if float(missing.max()) <= 0.0:
                return chain
            whites = whites + step * np.ceil(np.maximum(missing, 0.0) / step)
            continue
        most = whites - missing - ROOM * largest
        most = white + step * np.floor((most - white) / step)
        short = most < LEAST_KEPT * white
        if not short.any():
            chain = MovingAverages(1, weights, unit, np.sqrt(most), ring)
            return chain if float(shortfall(chain.products, covariance, error, side, part).max()) <= 0.0 else None
        gains = np.where(short, SHRINK * gains, gains)
    return None
