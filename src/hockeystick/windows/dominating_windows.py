"""Gauss-Markov chains that reveal more than C does, longer in some windows of steps than in others.

As in :mod:`.dominating_chain` the columns get the inner products K, zero between windows, and K - G has to be positive
semidefinite. All windows share one chain, each at its own *level*: for strategies of many bands the inner products with
all other columns, which decide how long a window's columns must be, differ much from the first to the last step. Shapes
are compared by the largest eigenvalue of G relative to K, found approximately; the factorisation at the end decides.

Proof: docs/theory/poisson-windows.md. Cost: some sixty eigenvalues, each tens of products with G, a few factorisations.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import exp, inf, log, log1p, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError

from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.windows.dominating_chain import (
    DominatingChain,
    few_windows,
    freed,
    in_band,
    is_positive,
    scales_of,
)
from hockeystick.windows.relative_eigenvalue import largest_relative

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

TRIED = 60
"""Shapes that are tried."""
ACCURACY = 1e-3
"""Relative accuracy of the eigenvalues that compare shapes."""
LARGEST_CORRELATION = 0.98
"""Largest correlation of neighbours: closer ones take more states."""
FINEST_LEVELS = 0.03
MOST_LEVELS = 24
LOWEST_LEVEL = 1e-3
"""The lowest level, as a share of the highest."""
MOST_FREED = 64
"""Steps to which free scales are fitted at once, at most: more take seconds."""
RAISED, ROUGHLY_RAISED, MOST_RAISED = 1e-5, 1e-3, 1e3
"""The least share by which windows are made longer, or where that is slow to prove; doubled until it does, up to the
most."""
QUICK = 1e8
"""Entries of the factorisation of all steps, times its bandwidth, up to which it is done a few times more."""
EARLIEST = 1e-12
"""Stands for any smaller size of a shape that no factorisation can do anything with."""


@dataclass(frozen=True)
class DominatingWindows:
    """The columns of window k are those of the chain times ``sqrt(levels[k])``; the last window may be short.

    Attributes:
        chain: of as many steps as a window has.
        levels: shape (windows,), positive.
        steps: steps of all windows together.
    """

    chain: DominatingChain
    levels: Array
    steps: int

    @property
    def size(self) -> int:
        """Steps of every window but the last."""
        return self.chain.scales.size

    @property
    def lengths(self) -> list[int]:
        """Steps of each window."""
        return [min(self.size, self.steps - begin) for begin in range(0, self.steps, self.size)]

    @property
    def longest(self) -> float:
        """The length of the longest column."""
        return float(self.chain.scales.max()) * sqrt(float(self.levels.max()))

    def second_moment(self, sigma: float, prob: float) -> float:
        """About the logarithm of the ratio's second moment, for participations of chance ``prob``; only compares."""
        return _score(self.chain.products, self.levels, sigma, prob)


def dominating_windows(
    gram: "csr_matrix | Array", size: int, sigma: float, prob: float, rounding: float, deadline: Deadline
) -> list[DominatingWindows]:
    """Windows of ``size`` steps whose columns reveal at least as much as those of C, good at this noise.

    The first have the smallest second moment; each of the others has a shorter longest column than those before it, as
    small deltas are about the longest columns.

    Args:
        gram: shape (n, n), the inner products of the columns of C, non-negative, and not all zero.
        sigma: the noise for which the shape is chosen.
        rounding: proved relative error of the entries of ``gram``.

    Raises: LinAlgError when no multiple of the shape is large enough, which rounding alone can cause;
        BudgetExceededError when the deadline passes.
    """
    from scipy.optimize import minimize

    n = int(gram.shape[0])
    size = min(size, n)
    sums, starts = np.asarray(gram @ np.ones(n)).ravel(), np.arange(0, n, size)
    levels = _levels(np.add.reduceat(sums, starts) / np.diff(np.append(starts, n)))
    # Scales that are free leave no window room that its average does not need: levels are for its largest sum.
    peaks = _levels(np.maximum.reduceat(sums, starts))

    band = _band(gram, size)
    times = _product(gram, band)

    def relative(shape: Array) -> tuple[DominatingChain, float]:
        correlation = LARGEST_CORRELATION / (1.0 + exp(-float(np.clip(shape[0], -30.0, 30.0))))
        chain = DominatingChain(scales_of(shape[1:], size), correlation)
        return chain, _largest(times, n, chain, levels)

    def score(shape: Array) -> float:
        deadline.tick()
        chain, largest = relative(shape)
        return log(max(_score(chain.products, largest * levels, sigma, prob), EARLIEST))

    if not band[1:].any():
        chain, factor = DominatingChain(np.ones(size), 0.0), float((band[0] / np.repeat(levels, size)[:n]).max())
        return [_proved(DominatingWindows(chain, factor * levels, n), band, rounding, deadline)]
    start = np.array([0.0, 0.15, 0.15, 1.0])
    simplex = np.vstack([start, start + np.diag([1.0, 0.15, 0.15, -0.6])])
    parameters = minimize(score, start, method="Nelder-Mead", options={"maxfev": TRIED, "initial_simplex": simplex}).x
    formula = relative(parameters)[0]
    candidates = [(formula, levels), (formula, peaks)]
    own = sigma / sqrt(float(peaks.mean()))
    for few in few_windows(_levelled(band, peaks, size), size) if size <= MOST_FREED else ():
        if few.shape[-1] <= MOST_FREED:
            free = freed(formula, few, own, np.ones(size), deadline)
            candidates.append((replace(free, correlation=min(free.correlation, LARGEST_CORRELATION)), peaks))
    windows = [
        DominatingWindows(chain, _largest(times, n, chain, of_windows) * of_windows, n)
        for chain, of_windows in candidates
    ]
    dominating: list[DominatingWindows] = []
    shortest = inf
    for candidate in sorted(windows, key=lambda candidate: candidate.second_moment(sigma, prob)):
        if candidate.longest < (1.0 - ACCURACY) * shortest:
            with suppress(LinAlgError):  # scales of too many sizes leave no room for rounding
                dominating.append(_proved(candidate, band, rounding, deadline))
                shortest = candidate.longest
    if not dominating:
        raise LinAlgError("no chain dominates")
    return dominating


def _levelled(band: Array, levels: Array, size: int) -> Array:
    """The inner products, each divided by the roots of the levels of both its columns."""
    n = band.shape[1]
    lengths = np.sqrt(np.repeat(levels, size)[:n])
    levelled = band / lengths
    for lag in range(band.shape[0]):
        levelled[lag, : n - lag] /= lengths[lag:]
    return levelled


def _proved(windows: DominatingWindows, band: Array, rounding: float, deadline: Deadline) -> DominatingWindows:
    """The windows, hardly longer, proved to dominate; raises LinAlgError when none are."""
    shape = in_band(windows.chain, windows.levels, band.shape)

    def dominates(raised: float) -> bool:
        deadline.tick()
        return is_positive((1.0 + raised) * shape - band, (1.0 + raised) * shape, rounding)

    least = RAISED if band.shape[1] * band.shape[0] ** 2 <= QUICK else ROUGHLY_RAISED
    low, high = 0.0, least
    while not dominates(high):
        low, high = high, 2.0 * high
        if high > MOST_RAISED:
            raise LinAlgError("no chain dominates")
    while high - low > least:
        middle = 0.5 * (low + high)
        if dominates(middle):
            high = middle
        else:
            low = middle
    return replace(windows, levels=windows.levels * (1.0 + high) * (1.0 + 8.0 * UNIT_ROUNDOFF))


def _levels(sums: Array) -> Array:
    """Row sums of G, one for each window, in few steps: constant vectors then need no more than they have in G."""
    highest = float(sums.max())
    sums = np.maximum(sums, LOWEST_LEVEL * highest)
    step = max(log1p(FINEST_LEVELS), log(highest / float(sums.min())) / MOST_LEVELS)
    levels: Array = np.exp(-step * np.floor(np.log(highest / sums) / step * (1.0 + 1e-9)))
    return levels


def _score(products: Array, levels: Array, sigma: float, prob: float) -> float:
    values, counts = np.unique(levels, return_counts=True)
    moments = [np.expm1(np.minimum(level * products / sigma**2, 300.0)).sum() for level in values]
    return float(prob**2 * counts @ np.asarray(moments))


def _largest(product: Callable[[Array], Array], n: int, chain: DominatingChain, levels: Array) -> float:
    """About the largest eigenvalue of G relative to the chain's products at these levels.

    Args:
        product: G times a vector, of shape (n,).
    """
    scales = np.multiply.outer(np.sqrt(levels), chain.scales).ravel()[:n]
    first, start = np.arange(0, n, chain.scales.size), np.ones(n)
    return largest_relative(product, scales, chain.correlation, first, start, tolerance=ACCURACY)[0]


def _product(gram: "csr_matrix | Array", band: Array) -> Callable[[Array], Array]:
    """G times a vector, by its diagonals where few of their entries are 0."""
    from scipy.linalg.blas import dsbmv

    if isinstance(gram, np.ndarray):
        return gram.__matmul__
    lags = int(np.flatnonzero(band.any(axis=1))[-1])
    if gram.nnz < lags * gram.shape[0]:
        return gram.__matmul__
    diagonals = np.asfortranarray(band[: lags + 1])
    return lambda vector: np.asarray(dsbmv(lags, 1.0, diagonals, vector, lower=1))


def _band(gram: "csr_matrix | Array", size: int) -> Array:
    """``G[i + l, i]`` at ``[l, i]``, for as many diagonals as G or a window has."""
    n = int(gram.shape[0])
    if isinstance(gram, np.ndarray):
        band = np.zeros((n, n))
        for lag in range(n):
            band[lag, : n - lag] = np.diagonal(gram, -lag)
        return band
    entries = gram.tocoo()
    below = entries.row >= entries.col
    lags = entries.row[below] - entries.col[below]
    band = np.zeros((max(int(lags.max()) + 1, min(size, n)), n))
    band[lags, entries.col[below]] = entries.data[below]
    return band
