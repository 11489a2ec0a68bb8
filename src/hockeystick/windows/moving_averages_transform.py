"""The Laplace transform of a sum over moving averages, from which its profile follows.

Backwards there is one complex number for each state and frequency. Where many successive groups of bins are alike,
the numbers soon only turn and shrink by one factor, and a measured residual bounds what powers of it leave out.
White noise enters by its own transform, a quadrature that is exact to rounding, so no side is favoured anywhere.

Proof: docs/theory/moving-averages.md. Cost: O(frequencies windows (10 to 20 + groups that differ from the next)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.types import Side
from hockeystick.windows.inverse_transform import AT_ONCE, Found, Transform, TransformProfiles, frequencies, scale_of
from hockeystick.windows.moving_averages import LATTICE_ERROR, MovingAverages, Windows, windows_of
from hockeystick.windows.moving_averages_kernels import factor_of, noise_table, window_means, window_sums

LOST_SHARE = 3e-3
"""Of delta: about the chance, under either law, of windows that are left out."""
ERROR_SHARE = 1e-3
"""Of delta: about what powers may change."""
LEAST_ERROR, MOST_ERROR = 1e-11, 1e-3
"""At one frequency."""
TOGETHER = 64
"""Frequencies whose tables follow from each other."""
USED, STEPS, WINDOW_PACE, TABLE_PACE = 0.6, 20.0, 1.6e-9, 6e-4
"""About which share of the frequencies matters; how many steps a run takes; seconds for each window, and for each
table, at one frequency."""
QUADRATURE, FARTHEST, TURN = 1e-15, 8.2, 1.0
"""Error of the transform of white noise; where its density is cut off; by how much it is moved off the real axis."""


@dataclass(frozen=True)
class Group:
    """The bins for which an innovation is the newest, the same for ``length`` groups one after the other.

    Attributes:
        tables: shape (q,), the table of each bin.
        orders: shape (q, K), the places of that table in the order in which windows follow each other.
        first: shape (q, S), the place in that order of the first window of each state; the others follow.
        length: how many groups there are.
    """

    tables: NDArray[np.int64]
    orders: NDArray[np.int64]
    first: NDArray[np.int64]
    length: int

    def taken(self, tables: Array) -> Array:
        """The tables of the bins, from the last axis of all tables."""
        return np.stack([tables[table][..., order] for table, order in zip(self.tables, self.orders, strict=True)])


@dataclass(frozen=True)
class Noise:
    """Nodes and weights for means over ``exp(deviation e - deviation^2 / 2)``, e normal, on a line in the plane."""

    nodes: NDArray[np.complex128]
    weights: NDArray[np.complex128]
    error: float

    @classmethod
    def of(cls, deviation: float) -> "Noise":
        """For transforms at places with an argument from -pi / 2 to 0."""
        turn = min(0.25 * pi / deviation, TURN)
        step = 2.0 * pi * turn / (log(4.0 / QUADRATURE) + 2.0 * turn**2)
        count = int(FARTHEST / step) + 1
        e = step * np.arange(-count, count + 1) + 1j * turn
        nodes = np.exp(deviation * e - 0.5 * deviation**2)
        weights = step / sqrt(2.0 * pi) * np.exp(-0.5 * e**2)
        size = exp(0.5 * turn**2)
        return cls(nodes, weights, QUADRATURE * (1.0 + size) + size * UNIT_ROUNDOFF * (2.0 * e.size + 64.0))


@dataclass(frozen=True)
class Prepared:
    """A chain on its lattice, ready for transforms at any frequency.

    Attributes:
        windows: that are kept.
        groups: runs of groups of bins, the first bins first.
        scales: the mean of what a bin adds at each place of each table, shape (tables, K).
        noises: the white noise of each table.
        total, mean: mass and mean of what is kept.
    """

    chain: MovingAverages
    windows: Windows
    groups: list[Group]
    scales: Array
    noises: list[Noise]
    total: float
    mean: float


def prepared(chain: MovingAverages, delta: float, deadline: Deadline) -> Prepared:
    """The windows, the places of what they show, and the mass and the mean of what is kept."""
    windows = windows_of(chain, LOST_SHARE * delta)
    turn, squares = round(2.0 * windows.spacing / chain.unit), chain.squares
    shared, table_of = np.unique(np.column_stack([chain.whites, squares % turn]), axis=0, return_inverse=True)
    table_of = table_of.ravel().astype(np.int64)
    runs: list[tuple[slice, int]] = []
    for start in range(0, chain.bins, chain.period):
        bins = slice(start, start + chain.period)
        if runs and _alike(chain, runs[-1][0], bins):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((bins, 1))
    last = windows.newest + np.maximum(windows.counts - 1, 0)
    reach = 1 + max(
        int(np.abs(chain.weights[bins, 1:] @ windows.places.T + chain.weights[bins, :1] * newest).max())
        for bins, _ in runs
        for newest in (windows.newest, last)
    )
    newest = chain.weights[:, 0]
    # windows of one state are as far apart as their newest weight: such places follow each other in a bin's order
    each = np.where(newest > 0, newest, 2 * reach + 1)
    columns = np.where(newest > 0, 2 * reach // each + 1, int(windows.counts.max()))
    lowest, size = -reach - int((squares // turn).max()), int((each * columns).max())
    place = lowest + np.arange(2 * reach + 1 - lowest - reach - int((squares // turn).min()))
    logs = 0.5 * chain.unit**2 * (turn * place - shared[:, 1:])
    scales = np.exp(logs) / chain.bins
    groups = []
    for bins, length in runs:
        orders, first = np.zeros((chain.period, size), dtype=np.int64), []
        for row, i in zip(orders, range(chain.bins)[bins], strict=False):
            order = (
                np.arange(each[i])[:, None] + newest[i] * np.arange(columns[i]) - reach - squares[i] // turn - lowest
            )
            row[: order.size] = np.clip(order.ravel(), 0, place.size - 1)
            seen = chain.weights[i, 1:] @ windows.places.T + newest[i] * windows.newest + reach
            first.append(seen % each[i] * columns[i] + seen // each[i])
        own = table_of[bins]
        groups.append(Group(own, orders[: own.size], np.array(first), length))
    values = np.vstack([np.ones(last.size), np.zeros(last.size)])
    steps = (windows.begins, windows.counts, windows.chances)
    for group in reversed(groups):
        for _ in range(group.length):
            deadline.tick()
            values = window_means(*steps, values, group.taken(scales), group.first)
    total, mean = (float(one) for one in values @ windows.start)
    return Prepared(chain, windows, groups, scales, [Noise.of(float(white)) for white in shared[:, 0]], total, mean)


def _alike(chain: MovingAverages, one: slice, other: slice) -> bool:
    return np.array_equal(chain.weights[one], chain.weights[other]) and np.array_equal(
        chain.whites[one], chain.whites[other]
    )


def stationary(
    step: Callable[[Array], Array], values: Array, weights: Array, length: int, tolerance: float
) -> tuple[Array, float]:
    """``length`` steps of a linear operator A of complex numbers that does not raise the weighted mean of their sizes.

    Args:
        values: shape (2, S), real parts and imaginary ones.
        weights: shape (S,), of the mean: ``weights @ |A v| <= weights @ |v|`` for all v.
        tolerance: of the error.

    Returns:
        The values, and a bound on the weighted mean of the size of their error, but for rounding: when
        ``A v = c v + r``, ``A^n v`` is ``c^n v`` up to ``|r| sum_(k < n) |c|^k``.
    """
    for done in range(1, length + 1):
        after = step(values)
        left = length - done
        if left:
            real, imaginary, rest = factor_of(values, after, weights)
            size = abs(complex(real, imaginary)) * (1.0 + 1e-12)
            error = 1.000001 * rest * (left if size >= 1.0 else min(left, 1.0 / (1.0 - size))) * max(size, 1.0) ** left
            if error <= tolerance:
                found = complex(real, imaginary) ** left * (after[0] + 1j * after[1])
                return np.vstack([found.real, found.imag]), error
        values = after
    return values, 0.0


def transform_of(given: Prepared, delta: float, smoothing: float, largest: float, deadline: Deadline) -> Found:
    """The transform that serves thresholds up to ``largest``, and what it leaves out."""
    chain, windows = given.chain, given.windows
    damping, pace, count = frequencies(smoothing, largest)
    theta = pace * np.arange(count)
    # about what an error at each frequency adds to delta: no more than this is needed of powers
    use = 4.0 * exp(damping * largest) * pace / pi * (1.0 / (damping**2 + theta**2) + smoothing**2)
    use *= np.exp(0.5 * (damping**2 - theta**2) * smoothing**2)
    tolerance = np.clip(ERROR_SHARE * delta / (count * use), LEAST_ERROR, MOST_ERROR)

    def tables(first: float, apart: float, many: int) -> Array:
        paces = np.array([first, apart, many])
        parts = [
            noise_table(scales, noise.nodes, noise.weights, damping, paces)
            for scales, noise in zip(given.scales, given.noises, strict=True)
        ]
        return np.stack(parts, axis=1)

    found, error = np.zeros(count, complex), np.zeros(count)
    used, apart = count, count // AT_ONCE
    sizes = tables(0.0, apart * pace, AT_ONCE)
    sizes[:, :, 0], sizes[:, :, 1] = np.hypot(sizes[:, :, 0], sizes[:, :, 1]), 0.0
    for first in range(0, count, apart):
        deadline.tick()
        bound, more = _summed(given, sizes[first // apart], float(tolerance[first]), deadline)
        error[first:] = bound.real + more
        if error[first] <= tolerance[first]:
            used = first
            break
    for first in range(0, used, TOGETHER):
        deadline.tick()
        several = tables(first * pace, pace, min(TOGETHER, used - first))
        for f, one in enumerate(several, first):
            found[f], error[f] = _summed(given, one, float(tolerance[f]), deadline)
    terms = 2.0 * float(windows.counts.max()) + 64.0
    sum_error = 2.0 * UNIT_ROUNDOFF * (chain.bins * terms + windows.start.size)
    noise_error = max(noise.error for noise in given.noises) + 2.0 * UNIT_ROUNDOFF * (
        8.0 * AT_ONCE + 16.0 + 16.0 * theta / damping
    )
    farthest = 0.5 * float(np.abs(windows.spacing * windows.places).max(initial=0.0)) ** 2
    exponent = float(np.abs(np.log(given.scales[given.scales > 0.0] * chain.bins)).max())
    transform = Transform(
        values=found,
        damping=damping,
        pace=pace,
        smoothing=smoothing,
        largest=largest,
        total=given.total,
        mean=given.mean,
        error=error + sum_error + chain.bins * noise_error,
        sum_error=sum_error,
    )
    mass_error = LATTICE_ERROR + (chain.bins + chain.depth) * (4.0 * farthest + 16.0) * UNIT_ROUNDOFF
    lost = max(1.0 - given.total, 1.0 - given.mean, 0.0) + 4.0 * sum_error
    return Found(transform, mass_error, (8.0 * exponent + 64.0) * UNIT_ROUNDOFF, lost)


def _summed(given: Prepared, tables: Array, tolerance: float, deadline: Deadline) -> tuple[complex, float]:
    """The transform at one frequency, and the error that powers make."""
    windows, groups = given.windows, given.groups
    values, error = np.zeros((2, windows.start.size)), 0.0
    values[0] = 1.0
    for group in reversed(groups):
        own = group.taken(tables)

        def step(later: Array, own: Array = own, first: NDArray[np.int64] = group.first) -> Array:
            deadline.tick()
            return window_sums(windows.begins, windows.counts, windows.chances, later, own, first)

        values, more = stationary(step, values, windows.start, group.length, tolerance / len(groups))
        error += more
    return complex(*(values @ windows.start)), error


def spread_of(chain: MovingAverages) -> float:
    """The standard deviation of X, large exponents apart."""
    return sqrt(float(np.expm1(np.minimum(chain.products, 5.0)).mean()))


def loss_of(chain: MovingAverages, covariance: Array, side: Side, weights: Array) -> float:
    """About what the moving average loses of epsilon; arguments as in :func:`..banded_fits.fits`."""
    change = np.expm1(chain.products - covariance) * (1.0 if side is Side.UPPER else -1.0)
    return float(sum(weights[lag] * np.diagonal(change, lag).mean() for lag in range(chain.bins // 2)))


def transform_work(chain: MovingAverages, delta: float, epsilon: float) -> float:
    """Rough seconds of the transform that serves this epsilon."""
    smoothing, largest = scale_of(epsilon, spread_of(chain))
    count = frequencies(smoothing, largest)[2]
    windows = windows_of(chain, LOST_SHARE * delta)
    groups = np.column_stack([chain.weights, chain.whites])
    kinds = 1 + int((np.abs(np.diff(groups, axis=0)).max(axis=1) > 0.0).sum())
    steps = min(float(chain.bins), STEPS * kinds)
    turn = round(2.0 * windows.spacing / chain.unit)
    tables = len(np.unique(np.column_stack([chain.whites, chain.squares % turn]), axis=0))
    return USED * count * (WINDOW_PACE * steps * float(windows.counts.sum()) + TABLE_PACE * tables)


def averages_profiles(
    chain: MovingAverages, side: Side, delta: float, epsilon: float, alone: bool, deadline: Deadline
) -> TransformProfiles:
    """The profiles of a chain; arguments as in :class:`..inverse_transform.TransformProfiles`."""
    given = prepared(chain, delta, deadline)

    def transformed(smoothing: float, largest: float) -> Found:
        return transform_of(given, delta, smoothing, largest, deadline)

    return TransformProfiles(transformed, spread_of(chain), side, delta, epsilon, alone)
