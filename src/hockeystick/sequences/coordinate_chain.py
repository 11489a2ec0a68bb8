"""Gaussians that white noise and a state of a few numbers add up to, the numbers drawn anew one after the other.

``z_i = gains[i] (seen . x_i + whites[i] e_i)``. Between two bins each number of the state x gets a new value in turn,
with a mean that is linear in the numbers as they then are. So a state of n numbers has n innovations for each bin and
its lattice may be as coarse as they are wide, where an autoregressive sequence of order n has one innovation only and
a state that is known far better than it matters; and a step costs one sum over a line of the lattice for each number.

Proof: docs/theory/hidden-chains.md, section 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, gamma, inf, log, log1p, pi, sqrt
from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cholesky_banded

from hockeystick.laws.law import Array
from hockeystick.sequences.hidden_chain import HiddenChain
from hockeystick.sequences.independent_sequences import IndependentSequences, ProductStates, Vectors
from hockeystick.sequences.repeated_steps import SMALL

Counts = NDArray[np.int64]

COARSE_ERROR = 1e-3
"""Relative difference of densities that the lattice may make, in all."""
INSIDE, FARTHEST = 4.5, 9.5
"""Distances in standard deviations: states nearer than the first are kept, those beyond the second are not listed."""
NEAR = 0.02
"""Shifts that are shorter than this, in standard deviations, are not followed one by one."""
MOST_LOG = 700.0
"""Of a crowding: beyond it nothing can be bounded."""
TOGETHER = 4
"""Frequencies for which the vectors of a basis are held together."""
USUAL_REACH = 7.3
"""About the radius, in standard deviations, of the states that are kept."""


@dataclass(frozen=True)
class CoordinateChain:
    """White noise beside what is seen of a stationary state.

    Attributes:
        coefficients: shape (n, n): number k is drawn with the mean ``coefficients[k] @ x``, in which the numbers before
            it are new already and those from it on are old.
        variances: shape (n,), positive, of these draws.
        seen: shape (n,).
        white, gains, extra: as for :class:`..hidden_chain.HiddenChain`.
    """

    coefficients: Array
    variances: Array
    seen: Array
    white: float
    gains: Array
    extra: Array | None = None
    ring = False

    @property
    def bins(self) -> int:
        """b, how many terms there are."""
        return int(self.gains.size)

    @property
    def numbers(self) -> int:
        """n, of the state."""
        return int(self.seen.size)

    @property
    def whites(self) -> Array:
        """Standard deviations of the white noise of the bins, nowhere below ``white``."""
        return np.sqrt(self.white**2 + (np.zeros(self.bins) if self.extra is None else self.extra))

    def draw(self, number: int) -> Array:
        """The matrix of the mean of the state after this number is drawn."""
        found = np.eye(self.numbers)
        found[number] = self.coefficients[number]
        return found

    @cached_property
    def covariances(self) -> list[Array]:
        """Of the state of a bin, and after each of the draws; the last is the first again."""
        n = self.numbers
        step, noise = np.eye(n), np.zeros((n, n))
        for number in range(n):
            one = self.draw(number)
            step, noise = one @ step, one @ noise @ one.T
            noise[number, number] += self.variances[number]
        found = noise
        while float(np.abs(step).max()) > 1e-20:
            found, step = found + step @ found @ step.T, step @ step
        several = [0.5 * (found + found.T)]
        for number in range(n):
            one = self.draw(number)
            after = one @ several[-1] @ one.T
            after[number, number] += self.variances[number]
            several.append(after)
        return several

    @cached_property
    def step(self) -> Array:
        """The matrix of the mean of the next bin's state."""
        found = np.eye(self.numbers)
        for number in range(self.numbers):
            found = self.draw(number) @ found
        return found

    @property
    def seen_variance(self) -> float:
        """The variance of what is seen of the state."""
        return float(self.seen @ self.covariances[0] @ self.seen)

    @property
    def products(self) -> Array:
        """The covariance of z, shape (b, b)."""
        lags = np.arange(self.bins)
        shared = np.empty(self.bins)
        ahead = self.covariances[0] @ self.seen
        for lag in lags:
            shared[lag] = self.seen @ ahead
            ahead = self.step @ ahead
        distance = np.abs(np.subtract.outer(lags, lags))
        return np.multiply.outer(self.gains, self.gains) * (shared[distance] + np.diag(self.whites**2))

    @cached_property
    def spacings(self) -> Array:
        """Of lattices for the numbers that change the density of z by less than ``COARSE_ERROR``, relative to it."""
        n, count = self.numbers, self.numbers * self.bins
        form = np.zeros((n + 1, count))  # the precision of all states given z, its lower diagonals, later ones first

        def add(matrix: Array, first: int) -> None:
            for i in range(len(matrix)):
                for j in range(len(matrix)):
                    row, column = count - 1 - first - i, count - 1 - first - j
                    if row >= column:
                        form[row - column, column] += matrix[i, j]

        add(np.asarray(np.linalg.inv(self.covariances[0]), dtype=np.float64), 0)
        shown = np.outer(self.seen, self.seen) / self.white**2
        drawn = []
        for number in range(n):
            row = np.concatenate([-self.coefficients[number, number:], -self.coefficients[number, :number], [1.0]])
            drawn.append(np.outer(row, row) / self.variances[number])
        for bin_ in range(self.bins):
            add(shown, bin_ * n)
            if bin_ + 1 < self.bins:
                for number in range(n):
                    add(drawn[number], bin_ * n + number)
        pivots = np.asarray(cholesky_banded(form, lower=True)[0][::-1] ** 2)
        largest = pivots.reshape(self.bins, n).max(axis=0) * 1.000001
        needed = largest * log(3.0 * n * (self.bins + 1) / COARSE_ERROR)
        return np.asarray(np.sqrt(2.0 * pi**2 / needed), dtype=np.float64)

    @cached_property
    def crowding(self) -> float:
        """By which factor chances of a state on the lattice may exceed those of its density, after all bins."""
        found = log1p(COARSE_ERROR)
        for number in range(self.numbers):
            own = float(np.linalg.inv(self.covariances[number])[number, number])
            own += float(self.coefficients[number, number]) ** 2 / float(self.variances[number])
            apart = 2.0 * pi**2 / (own * float(self.spacings[number]) ** 2)
            found += self.bins * log1p(2.0 * exp(-apart) / -expm1(-apart))
        return exp(found) if found < MOST_LOG else inf

    @property
    def volume(self) -> float:
        """About how many states are kept."""
        n = self.numbers
        ball = pi ** (0.5 * n) / gamma(0.5 * n + 1.0) * USUAL_REACH**n
        return float(ball * sqrt(np.linalg.det(self.covariances[0])) / np.prod(self.spacings))

    @property
    def edges(self) -> float:
        """About how many edges a state has in all draws together."""
        return float((2.0 * USUAL_REACH * np.sqrt(self.variances) / self.spacings).sum())

    def shifts(self, phase: int) -> Array:
        """Means of the state after so many draws, at each lag before and after a bin, given the tilt of that bin."""
        n, found = self.numbers, []
        ahead = self.covariances[0] @ self.seen
        for _ in range(self.bins):
            now = ahead
            for number in range(phase):
                now = self.draw(number) @ now
            found.append(now)
            ahead = self.step @ ahead
        rest = np.eye(n)
        for number in range(phase, n):
            rest = self.draw(number) @ rest
        after = self.seen.copy()
        for _ in range(self.bins):
            found.append(self.covariances[phase] @ (after @ rest))
            after = after @ self.step
        return float(self.gains.max()) * np.array(found)

    def states(self, lost: float) -> "CoordinateStates":
        """The states but for such of a chance below ``lost`` in all, under Q and given any one bin's tilt."""
        n, h = self.numbers, self.spacings
        found = [_listed(self, phase, 0.5 * lost / n) for phase in range(n)]
        listed = [points for points, _ in [*found, found[0]]]
        reach = _reach(self, 0.5 * lost)
        draws = []
        for number in range(n):
            row, variance = self.coefficients[number], float(self.variances[number])
            draws.append(_draw(listed[number], listed[number + 1], row, variance, h, number, reach))
        places = listed[0] * h
        whole = self.covariances[0]
        distance = np.einsum("si,ij,sj->s", places, np.linalg.inv(whole), places)
        start = float(np.prod(h)) / sqrt((2.0 * pi) ** n * float(np.linalg.det(whole))) * np.exp(-0.5 * distance)
        return CoordinateStates(places @ self.seen, start, (), lost + sum(far for _, far in found), tuple(draws))


Chain = HiddenChain | IndependentSequences | CoordinateChain


def _listed(chain: CoordinateChain, phase: int, lost: float) -> tuple[Counts, float]:
    """The lattice points that are kept after so many draws, in unbroken lines along the number that was drawn last.

    Others have less than the chance ``lost`` in all bins together, but for the number that is returned too.
    """
    n, h = chain.numbers, chain.spacings
    covariance = chain.covariances[phase]
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    shifts = chain.shifts(phase) @ root.T
    lengths = np.sqrt((shifts**2).sum(axis=1))
    near = shifts[lengths > NEAR]
    longest = float(lengths.max())
    sides = [int((FARTHEST + longest) * sqrt(covariance[i, i]) / h[i]) + 1 for i in range(n)]
    order = [(phase + i) % n for i in range(n)]  # slowest first; the last is the number drawn last
    grids = np.meshgrid(*[np.arange(-sides[i], sides[i] + 1) for i in order], indexing="ij")
    points = np.empty((grids[0].size, n), dtype=np.int64)
    for i, grid in zip(order, grids, strict=True):
        points[:, i] = grid.ravel()
    white = (points * h) @ root.T
    square = (white**2).sum(axis=1)
    used = square <= (FARTHEST + longest) ** 2
    points, white, square = points[used], white[used], square[used]
    outer = square > INSIDE**2
    distance, weight = np.zeros(square.size), np.zeros(square.size)
    least, total = (
        square[outer].copy(),
        (2 * chain.bins - len(near)) * np.exp(-0.5 * np.maximum(np.sqrt(square[outer]) - NEAR, 0.0) ** 2),
    )
    for shift in near:
        along, length = white[outer] @ shift, float(shift @ shift)
        part = np.clip(along / length, 0.0, 1.0)
        apart = square[outer] - part * (2.0 * along - part * length)
        least = np.minimum(least, apart)
        total += np.exp(-0.5 * apart)
    distance[outer], weight[outer] = least, total
    weight *= chain.crowding * float(np.prod(h)) / sqrt((2.0 * pi) ** n * float(np.linalg.det(covariance)))
    ranks = np.argsort(-distance)
    gone = ranks[: int(np.searchsorted(np.cumsum(weight[ranks]), lost))]
    kept = np.ones(square.size, dtype=bool)
    kept[gone] = False
    kept |= ~outer
    place, own = np.arange(len(points)), points[:, order[:-1]]
    changes = np.flatnonzero((own[1:] != own[:-1]).any(axis=1)) + 1
    begins = np.concatenate([[0], changes])
    line = np.repeat(np.arange(begins.size), np.diff(np.concatenate([begins, [len(points)]])))
    first = np.minimum.reduceat(np.where(kept, place, len(points)), begins)[line]
    last = np.maximum.reduceat(np.where(kept, place, -1), begins)[line]
    far = chain.crowding * 4.0 * chain.bins * exp(0.05 * longest**2 - 0.45 * FARTHEST**2) * 20.0 ** (0.5 * n)
    return points[(place >= first) & (place <= last)], far


def _reach(chain: CoordinateChain, lost: float) -> float:
    """How many standard deviations a draw may be off its mean."""
    n, tilts = chain.numbers, []
    for number in range(n):
        rest = np.eye(n)
        for later in range(number + 1, n):
            rest = chain.draw(later) @ rest
        after = chain.seen.copy()
        for _ in range(chain.bins):
            tilts.append(abs(float((after @ rest)[number])) * sqrt(chain.variances[number]) * float(chain.gains.max()))
            after = after @ chain.step
    size, reach = np.array(tilts), 5.0
    while 4.0 * float(np.exp(-0.5 * np.maximum(reach - size, 0.0) ** 2).sum()) * (1.0 + 2.0 * COARSE_ERROR) > lost:
        reach += 0.05
    return reach


def _draw(
    before: Counts, after: Counts, coefficients: Array, variance: float, h: Array, number: int, reach: float
) -> "Draw":
    others = [i for i in range(h.size) if i != number]
    low = np.minimum(before.min(axis=0), after.min(axis=0))
    size = np.maximum(before.max(axis=0), after.max(axis=0)) - low + 1

    def key(points: Counts) -> Counts:
        found = np.zeros(len(points), dtype=np.int64)
        for i in others:
            found = found * size[i] + points[:, i] - low[i]
        return found

    columns = int(np.prod(size[others])) if others else 1
    first, count, bottom = np.zeros(columns, np.int64), np.zeros(columns, np.int64), np.zeros(columns, np.int64)
    keys = key(after)
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    first[keys[begins]] = begins
    count[keys[begins]] = np.diff(np.concatenate([begins, [len(keys)]]))
    bottom[keys[begins]] = after[begins, number]
    own = key(before)
    mean = (before * h) @ coefficients
    cut = reach * sqrt(variance)
    lowest = np.maximum(np.ceil((mean - cut) / h[number]).astype(np.int64), bottom[own])
    highest = np.minimum(np.floor((mean + cut) / h[number]).astype(np.int64), bottom[own] + count[own] - 1)
    counts = np.maximum(highest - lowest + 1, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    which = np.repeat(np.arange(len(before)), counts)
    place = (lowest[which] + np.arange(offsets[-1]) - offsets[which]) * h[number]
    chances = h[number] / sqrt(2.0 * pi * variance) * np.exp(-0.5 * (place - mean[which]) ** 2 / variance)
    return Draw(first[own] + lowest - bottom[own], offsets, chances)


@dataclass(frozen=True)
class Draw:
    """A new value of one number: for each state the first of the states that follow, one after the other.

    Attributes:
        first: shape (S,).
        offsets: shape (S + 1,), of the chances of each state.
        chances: of the states that follow.
    """

    first: Counts
    offsets: Counts
    chances: Array


@dataclass(frozen=True)
class CoordinateStates(ProductStates):
    """States on their lattice, and how they go on.

    Attributes:
        draws: of the numbers, one after the other.
        plain, fewest: single steps before a basis, and its vectors at first.
    """

    draws: tuple[Draw, ...] = ()
    plain: ClassVar[int] = 24
    fewest: ClassVar[int | None] = 12

    @property
    def terms(self) -> int:
        """How many terms are added up in a step, for each state."""
        return sum(int(np.diff(draw.offsets).max()) for draw in self.draws)

    @property
    def heaviest(self) -> float:
        """The largest sum of the chances of what follows a state."""
        found = 1.0
        for draw in self.draws:
            sums = np.concatenate([[0.0], np.cumsum(draw.chances)])
            found *= float((sums[draw.offsets[1:]] - sums[draw.offsets[:-1]]).max()) + 1e-9
        return found

    def averaged(self, numbers: Array) -> Array:
        """The mean of each row of ``numbers``, shape (..., S), over the next state."""
        rows = np.ascontiguousarray(numbers.reshape(-1, numbers.shape[-1]).T)
        for draw in reversed(self.draws):
            rows = means(draw.first, draw.offsets, draw.chances, rows)
        return np.ascontiguousarray(rows.T).reshape(*numbers.shape[:-1], self.seen.size)

    def transforms(
        self, steps: Array, kinds: NDArray[np.int64], tick: Callable[[], None], small: float = SMALL
    ) -> tuple[Vectors, float]:
        """As for :class:`..independent_sequences.ProductStates`, a few frequencies at a time."""
        half = steps.shape[2] // 2
        found, error = [], 0.0
        for first in range(0, half, TOGETHER):
            some = np.arange(first, min(first + TOGETHER, half))
            part, more = super().transforms(steps[:, :, np.concatenate([some, half + some])], kinds, tick, small)
            found.append(part)
            error = float(np.maximum(error, more))
        return np.concatenate(found), error


@njit(cache=True, nogil=True, fastmath={"contract"})
def means(first: Counts, offsets: Counts, chances: Array, later: Array) -> Array:
    """For each state the means of the columns of ``later`` over the states that follow, eight columns at a time."""
    rows, width = first.size, later.shape[1]
    found, sums = np.empty((rows, width)), np.zeros(8)
    whole = width - width % 8
    for begin in range(0, whole, 8):
        for s in range(rows):
            place = first[s] - offsets[s]
            for f in range(8):
                sums[f] = 0.0
            for edge in range(offsets[s], offsets[s + 1]):
                chance, values = chances[edge], later[place + edge]
                for f in range(8):
                    sums[f] += chance * values[begin + f]
            for f in range(8):
                found[s, begin + f] = sums[f]
    for column in range(whole, width):
        for s in range(rows):
            one, place = 0.0, first[s] - offsets[s]
            for edge in range(offsets[s], offsets[s + 1]):
                one += chances[edge] * later[place + edge, column]
            found[s, column] = one
    return found
