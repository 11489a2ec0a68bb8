"""Rows of a moving average beside white noise that change epsilon least, for overlaps that differ from bin to bin.

All rows are moved together by gradients. They are a proposal: nothing here has to be right.

Proof of what they are used for: docs/theory/moving-averages.md, section 9.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cholesky_banded

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.types import Side

FIRST_SHIFT, SHIFTS = 0.05, 40
"""Added to the variances, as a share of them, where the search begins; how often it may grow by half."""
FIRST_SHARED, SEED = 0.1, 0
"""Size of the first guess at what is shared, in standard deviations of a bin."""
WIDTHS = (3e-3, 3e-4, 5e-5)
"""Widths of the bends that stand for the kinks of the loss, one after the other, as shares of the variance."""
PENALTY = 3.0
"""What white noise that is missing from below counts, in multiples of what the variance does."""
EVEN = 0.05
"""What squared differences of successive rows count: a bin that is unlike its neighbours needs a finer lattice."""
MEMORY, EXACT = 30, 1e-9
"""Gradients that a search remembers, and the gain below which it ends."""
MOST_CHANGE = 20.0
"""The largest change of a covariance: beyond it exponentials are of no use."""


@dataclass(frozen=True)
class Rows:
    """A proposal: the covariance of ``rows``, with white noise, is that of the bins up to ``shared`` and what is free.

    Attributes:
        rows: shape (b, d), weights of each bin, the newest first; there is one innovation for each period.
        shared: shape (b, L), such rows of a moving average whose covariance is a part of the difference; it has an
            innovation for each bin.
    """

    rows: Array
    shared: Array


@dataclass(frozen=True)
class Programme:
    """What rows are looked for.

    Attributes:
        entries: shape (L, b), of the covariance: of bin i with bin i - l, 0 where there is none; L is at least d q.
        weights: of :func:`..comparable_covariances.sensitivity`, at least L of them.
        white: variance of the white noise that there has to be.
        period: q, bins for each innovation; on a ring it divides b.
        depth: d, innovations that a bin sees.
    """

    entries: Array
    weights: Array
    white: float
    side: Side
    ring: bool
    period: int
    depth: int

    def first(self) -> Rows | None:
        """Rows to begin with: those of a banded Cholesky factor, on a ring of its second lap."""
        lags, bins = self.entries.shape
        laps = 3 if self.ring else 1
        largest = self.largest
        packed = np.zeros((lags, laps * bins))
        for lag in range(lags):
            packed[lag, : laps * bins - lag] = np.tile(self.entries[lag], laps)[lag:]
        shift = FIRST_SHIFT * largest
        for _ in range(SHIFTS):
            shifted = packed.copy()
            shifted[0] += shift
            try:
                columns = cholesky_banded(shifted, lower=True)
                break
            except LinAlgError:
                shift *= 1.5
        else:
            return None
        first = np.zeros((laps * bins, lags))
        for lag in range(lags):
            first[lag:, lag] = columns[lag, : laps * bins - lag]
        guess = FIRST_SHARED * np.sqrt(largest) * np.random.default_rng(SEED).standard_normal((bins, lags))
        return Rows(self._merged(first[bins : 2 * bins] if self.ring else first), guess)

    def _merged(self, rows: Array) -> Array:
        """Rows with an innovation for each bin, those of a period replaced by the one that explains most of them."""
        if self.period == 1:
            return rows[:, : self.depth]
        bins, lags = rows.shape
        merged = np.zeros((bins, self.depth))
        for begin in range(0, bins, self.period):
            seers = np.arange(begin, begin + self.period * self.depth)
            seers = seers % bins if self.ring else seers[seers < bins]
            lag = np.arange(len(seers))[:, None] - np.arange(self.period)
            inside = (lag >= 0) & (lag < lags)
            seen = np.where(inside, rows[seers[:, None], np.clip(lag, 0, lags - 1)], 0.0)
            left, sizes, _ = np.linalg.svd(seen, full_matrices=False)
            column = left[:, 0] * sizes[0]
            column = column if column[: self.period].sum() >= 0.0 else -column
            column[: self.period] = np.maximum(column[: self.period], 0.0)
            merged[seers, np.arange(len(seers)) // self.period] = column
        return merged

    def spread(self, rows: Array) -> Array:
        """Rows with an innovation for each bin, most of which nobody sees; shape (..., b, L)."""
        spread = np.zeros((*rows.shape[:-2], *self.entries.shape[::-1]))
        place = np.arange(rows.shape[-2])
        for s in range(self.depth):
            spread[..., place, place % self.period + self.period * s] = rows[..., s]
        return spread

    def _gathered(self, slopes: Array) -> Array:
        """The entries of what ``spread`` makes that are not 0 by themselves."""
        place = np.arange(len(slopes))[:, None]
        gathered: Array = slopes[place, place % self.period + self.period * np.arange(self.depth)]
        return gathered

    def improved(self, begin: Rows, steps: int, deadline: Deadline) -> Rows:
        """After at most so many steps for each width."""
        from scipy.optimize import Bounds, minimize

        own = begin.rows.size

        def rows_at(place: Array) -> Rows:
            return Rows(place[:own].reshape(begin.rows.shape), place[own:].reshape(begin.shared.shape))

        def loss(place: Array, width: float) -> tuple[float, Array]:
            deadline.tick()
            value, slope = self._loss(rows_at(place), width)
            return value, np.concatenate([slope.rows.ravel(), slope.shared.ravel()])

        place = np.concatenate([begin.rows.ravel(), begin.shared.ravel()])
        lowest = np.full(place.size, -np.inf)
        lowest[: own : self.depth] = 0.0  # the newest weight
        bounds = Bounds(lowest, np.inf)
        for width in WIDTHS:
            place = minimize(
                loss,
                place,
                args=(width * self.largest,),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": MEMORY, "ftol": EXACT},
            ).x
        return rows_at(place)

    @property
    def largest(self) -> float:
        """The largest variance."""
        return float(self.entries[0].max())

    def loss(self, at: Rows) -> float:
        """About what epsilon loses, relatively, in first order."""
        return self._loss(at, WIDTHS[-1] * self.largest)[0]

    def _loss(self, at: Rows, width: float) -> tuple[float, Rows]:
        """The loss in first order, with bends for kinks, and its derivatives."""
        sign = 1.0 if self.side is Side.UPPER else -1.0
        weights = self.weights / self.entries.shape[1]
        rows = self.spread(at.rows)
        own, shared = self.products(rows), self.products(at.shared)
        change = np.minimum(own - self.entries, MOST_CHANGE)
        gained, growth = _gained(change, self.side)
        # what is missing beside the diagonal is added to the diagonal of both bins, or taken away
        missing, share = _bent(shared[1:] - sign * change[1:], width)
        for lag in range(1, len(own)):
            if not self.ring:
                missing[lag - 1, :lag] = share[lag - 1, :lag] = 0.0
        needed = self.entries[0] + sign * shared[0]
        for lag, row in enumerate(missing, start=1):
            needed = needed + sign * (row + np.roll(row, -lag))
        lacking, part = _bent(own[0] + self.white - needed, width)
        slope_own = sign * weights[: len(own), None] * growth
        value = float(sign * (weights[1 : len(own), None] * gained[1:]).sum())
        diagonal = needed + lacking if sign > 0.0 else needed
        gained, growth = _gained(np.minimum(diagonal - self.entries[0], MOST_CHANGE), self.side)
        value += float(sign * weights[0] * gained.sum())
        slope_needed = sign * weights[0] * growth
        if sign > 0.0:
            slope_own[0] = slope_needed * part
            slope_needed = slope_needed * (1.0 - part)
        else:
            value += PENALTY * weights[0] * float(lacking.sum())
            slope_own[0] = PENALTY * weights[0] * part
            slope_needed = slope_needed - slope_own[0]
        slope_shared = np.zeros_like(own)
        slope_shared[0] = sign * slope_needed
        for lag in range(1, len(own)):
            slope = sign * (slope_needed + np.roll(slope_needed, lag)) * share[lag - 1]
            slope_own[lag] -= sign * slope
            slope_shared[lag] = slope
        steps = at.rows - np.roll(at.rows, self.period, axis=0)
        if not self.ring:
            steps[: self.period] = 0.0
        value += EVEN * weights[0] * float((steps**2).sum())
        slope = self._gathered(self._slopes(rows, slope_own))
        slope += 2.0 * EVEN * weights[0] * (steps - np.roll(steps, -self.period, axis=0))
        return value, Rows(slope, self._slopes(at.shared, slope_shared))

    def products(self, rows: Array) -> Array:
        """The covariance of moving averages with an innovation for each bin, as ``entries``."""
        products = np.zeros(self.entries.shape)
        for lag in range(rows.shape[1]):
            products[lag] = (rows[:, lag:] * np.roll(rows, lag, axis=0)[:, : rows.shape[1] - lag]).sum(axis=1)
            if not self.ring:
                products[lag, :lag] = 0.0
        return products

    def _slopes(self, rows: Array, outer: Array) -> Array:
        """Derivatives with respect to the rows of the sum of ``outer`` times their products."""
        slopes, depth = np.zeros_like(rows), rows.shape[1]
        for lag in range(depth):
            factor = outer[lag, :, None].copy()
            if not self.ring:
                factor[:lag] = 0.0
            slopes[:, lag:] += factor * np.roll(rows, lag, axis=0)[:, : depth - lag]
            slopes[:, : depth - lag] += np.roll(factor * rows[:, lag:], -lag, axis=0)
        return slopes

    def with_white(self, white: float) -> "Programme":
        """The programme with another variance of the white noise."""
        return replace(self, white=white)


def _gained(change: Array, side: Side) -> tuple[Array, Array]:
    """What covariances that change so add to moments of second order, and its derivative.

    From below no faster than in proportion: nothing may be gained by variances without end.
    """
    if side is Side.UPPER:
        return np.expm1(change), np.exp(change)
    below = np.minimum(change, 0.0)
    return np.expm1(below) + change - below, np.exp(below)


def _bent(values: Array, width: float) -> tuple[Array, Array]:
    """``max(values, 0)`` with a bend of this width, and its derivative."""
    scaled = np.clip(values / width, -40.0, 40.0)
    return np.where(scaled < 40.0, width * np.log1p(np.exp(scaled)), values), 1.0 / (1.0 + np.exp(-scaled))
