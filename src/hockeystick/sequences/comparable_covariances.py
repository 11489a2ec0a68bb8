"""Which covariances of bins reveal more, or less, than others, proved entry by entry, and how much each one matters.

What is compared may come from anywhere: :func:`shortfall` is the check, with room for rounding. How much epsilon
changes with a covariance is estimated by a small simulation with a fixed seed; no bound rests on it.

Proof: docs/theory/comparable-covariances.md.
"""

from dataclasses import dataclass

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.types import Side

SAMPLES, SAMPLED_AT_ONCE, SEED = 12_000, 2_000, 0
TILTS = (1.0, 1.5, 2.0)
"""How far the drawn bin's mean is moved, as multiples of what the mixture moves it."""
LOG_WIDTH = 0.1
"""Width of the window around the threshold in which the simulation looks at log X."""
SYMBOL_PLACES = 1 << 17
"""Where the symbol of a Toeplitz matrix is looked at."""
WRAP = 1e-3
"""Bins are on a ring where the entry of first and last one is a larger share of the largest on the diagonal."""
ROOM = 1e-9
"""Share of the diagonal that is added beyond what the errors of all entries need."""


@dataclass(frozen=True)
class Sensitivity:
    """How much epsilon changes with the covariance, near the delta that is asked for.

    Attributes:
        epsilon: an estimate.
        weights: shape (b,), the relative change of epsilon with all covariances at each lag, in first order.
    """

    epsilon: float
    weights: Array


def sensitivity(covariance: Array, delta: float, deadline: Deadline) -> Sensitivity:
    """Estimated by simulation; the derivative of ``E f(X)`` is that of the proof of Kahane's inequality."""
    bins = len(covariance)
    rng = np.random.default_rng(SEED)
    variances = covariance.diagonal()
    factor = np.linalg.cholesky(covariance + 1e-9 * float(variances.max()) * np.eye(bins))
    count = SAMPLES // len(TILTS)
    parts, tilted = [], []
    for tilt in TILTS:
        for _ in range(count // SAMPLED_AT_ONCE):
            deadline.tick()
            drawn = rng.integers(0, bins, SAMPLED_AT_ONCE)
            z = rng.standard_normal((SAMPLED_AT_ONCE, bins)) @ factor.T + tilt * covariance[drawn]
            parts.append(np.exp(np.minimum(z - 0.5 * variances, 300.0)) / bins)
            logs = np.minimum([t * z - 0.5 * t * t * variances for t in TILTS], 600.0)
            tilted.append(np.exp(logs).mean(axis=(0, 2)))
    terms, rarity = np.concatenate(parts), 1.0 / np.concatenate(tilted)
    ratios = terms.sum(axis=1)
    low, high = 0.0, 300.0
    for _ in range(40):
        epsilon = 0.5 * (low + high)
        if float((rarity * np.maximum(ratios - np.exp(epsilon), 0.0)).mean()) > delta:
            low = epsilon
        else:
            high = epsilon
    distance = (np.log(ratios) - high) / LOG_WIDTH
    near = np.abs(distance) < 4.0
    density = rarity[near] * np.exp(-0.5 * distance[near] ** 2) / ratios[near]
    terms = terms[near]
    weights = np.zeros(bins)
    for lag in range(bins):
        deadline.tick()
        weights[lag] = float(density @ np.einsum("ij,ij->i", terms[:, : bins - lag], terms[:, lag:]))
    weights[0] *= 0.5
    threshold = float(np.exp(high))
    slope = threshold * high * float(rarity[ratios > threshold].sum())
    if not slope > 0.0:
        return Sensitivity(high, np.full(bins, np.inf))
    return Sensitivity(high, weights / (slope * LOG_WIDTH * np.sqrt(2.0 * np.pi)))


def closed_ring(covariance: Array) -> Array | None:
    """The largest covariances of bins at each distance along a ring, no less than the given ones anywhere.

    Returns: shape (b, b) like the covariance, a circulant matrix that need not be a covariance itself; None where first
    and last bin do not touch.
    """
    bins, largest = len(covariance), float(covariance.diagonal().max())
    if not float(covariance[0, -1]) > WRAP * largest:
        return None
    place = np.arange(bins)
    near = np.array([float(covariance[place, place - lag].max()) for lag in range(bins // 2 + 1)])
    distance = np.abs(np.subtract.outer(place, place))
    closed: Array = near[np.minimum(distance, bins - distance)]
    return closed


def semidefinite(shared: Array) -> Array:
    """The entries at lags 0, 1, ..., the first raised until the Toeplitz matrix of any size is semidefinite.

    The symbol is looked at on a grid, and changes by no more than its derivative allows between two places.
    """
    lags: Array = np.arange(shared.size, dtype=np.float64)
    symbol = 2.0 * np.fft.rfft(shared, SYMBOL_PLACES).real - shared[0]
    between = 2.0 * float(lags @ np.abs(shared)) * np.pi / SYMBOL_PLACES + 1e-12 * float(np.abs(shared).sum())
    raised = shared.copy()
    raised[0] += max(between - float(symbol.min()), 0.0)
    return raised


def toeplitz(shared: Array, bins: int, ring: bool = False) -> Array:
    """The Toeplitz matrix with these entries at lags 0, 1, ..., shape (bins, bins): semidefinite as their symbol is.

    On a ring the circulant matrix, whose eigenvalues are values of the same symbol as long as the lags stay below half
    of the bins.
    """
    place = np.arange(bins)
    distance = np.abs(np.subtract.outer(place, place))
    if ring:
        distance = np.minimum(distance, bins - distance)
    entries = np.zeros(max(bins, shared.size))
    entries[: shared.size] = shared
    matrix: Array = entries[distance]
    return matrix


def shortfall(products: Array, covariance: Array, error: float, side: Side, shared: Array | float = 0.0) -> Array:
    """By how much each row lacks what proves ``products`` comparable; nowhere positive if it is proved.

    Upper: ``products - covariance`` is ``shared``, a semidefinite matrix, plus a diagonally dominant one plus one
    without negative entries, for any covariance within the relative error. Lower: the difference the other way round.
    """
    sign = 1.0 if side is Side.UPPER else -1.0
    off = error * np.abs(covariance) + 1e-12 * (np.abs(products) + np.abs(covariance) + np.abs(shared))
    difference = sign * (products - covariance) - off - shared
    diagonal = difference.diagonal().copy()
    np.fill_diagonal(difference, 0.0)
    below = np.maximum(-difference, 0.0).sum(axis=1)
    largest = max(float(covariance.diagonal().max()), float(products.diagonal().max()))
    lacking: Array = below - diagonal + ROOM * largest
    return lacking
