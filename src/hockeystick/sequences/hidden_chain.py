"""The law of a mean of exponentials of a Gaussian process that a Markov chain and white noise generate.

``X = sum_i w exp(z_i - var(z_i) / 2)``, ``z_i = gains[i] (o_i + whites[i] e_i)``, ``o_i = now x_i + before x_(i-1)``,
x a stationary autoregressive sequence of order two and unit variance, e_i independent standard normal. Given the state
``(x_i, x_(i-1))`` the rest of the sum has one law, found backwards. *The state lives on a lattice without any error
worth the name*: white noise makes the joint density of the z_i equal to that of the Gaussian process up to a factor
within 1e-4 of 1, by Poisson summation. On a ring, of order one only, the first state is kept beside the last.

Upper laws split values between nodes, lower laws move them to the means of cells. Proof: docs/theory/hidden-chains.md.
Cost: O(bins states nodes (edges of a state + nodes of the white noise)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array, Law, lower_law
from hockeystick.sequences.hidden_chain_kernels import (
    bands,
    chain_transforms,
    mixed,
    mixed_numbers,
    shifted_contraction,
    shifted_spread,
)
from hockeystick.types import Side

LATTICE_ERROR = 1e-4
"""Relative difference of densities that the lattice may make, in all."""
LOST_SHARE = 1e-3
"""Of delta: the chance, under either law, of a state that is left out."""
SKIP = 1e-10
"""Of delta: masses at the ends of a law that are not followed, given a state; larger where the state is rare."""
WHITE_NODES = 9
"""Nodes for each standard deviation of the white noise."""
CORE, LEAST_CORE = 1.0, 400
"""Nodes for each summand's mean, up to the mean of the sum, and least in all."""
TAIL, UPPER_TAIL = 0.025, 0.0125
"""Spacing of nodes above the mean, as a share of the distance from it; spreads lose more by it than contractions."""
PACE = 3e-9
"""Seconds for each edge and node, on one core of the machine of ``benchmarks/``."""
FEW, GROWTH = 8, 1.1
"""A bin adds one of the first whole numbers of steps, or of numbers that grow by this factor."""
MOST_STEPS = 2.0**60
"""More steps than this are not counted; they are near the end of the range of integers."""


@dataclass(frozen=True)
class HiddenChain:
    """``z_i = gains[i] (now x_i + before x_(i-1) + whites[i] e_i)``, ``x_i = first x_(i-1) + second x_(i-2) + noise``.

    Attributes:
        first, second: of a stationary sequence; x has unit variance.
        now, before: what is seen of the state.
        white: least standard deviation of the noise beside the state, positive.
        gains: shape (b,), non-negative.
        extra: shape (b,), variance of further white noise of each bin, in the unit of ``white``; none where it is None.
        ring: whether the sequence is closed, ``Cov(x_i, x_j)`` in proportion to ``first^d + first^(b-d)``; then
            ``second = before = 0``.
    """

    first: float
    second: float
    now: float
    before: float
    white: float
    gains: Array
    ring: bool = False
    extra: Array | None = None

    @property
    def bins(self) -> int:
        """b, how many terms there are."""
        return int(self.gains.size)

    def state_products(self, lags: int) -> Array:
        """``Cov(x_i, x_(i+d))`` for d < lags."""
        found = np.ones(max(lags, 2))
        found[1] = self.first / (1.0 - self.second)
        for d in range(2, lags):
            found[d] = self.first * found[d - 1] + self.second * found[d - 2]
        return found[:lags]

    @property
    def products(self) -> Array:
        """The covariance of z, shape (b, b)."""
        b = self.bins
        r = self.state_products(b + 1)
        if self.ring:
            lags = np.arange(b)
            seen = self.now**2 * (self.first**lags + self.first ** (b - lags)) / (1.0 - self.first**b)
        else:
            earlier = np.concatenate([[r[1]], r[: b - 1]])
            seen = (self.now**2 + self.before**2) * r[:b] + self.now * self.before * (earlier + r[1:])
        distance = np.abs(np.subtract.outer(np.arange(b), np.arange(b)))
        return np.multiply.outer(self.gains, self.gains) * (seen[distance] + np.diag(self.whites**2))

    @property
    def whites(self) -> Array:
        """Standard deviations of the white noise of the bins, nowhere below ``white``."""
        return np.sqrt(self.white**2 + (np.zeros(self.bins) if self.extra is None else self.extra))

    @property
    def seen_variance(self) -> float:
        """The variance of o_i."""
        if self.ring:
            return self.now**2 * (1.0 + self.first**self.bins) / (1.0 - self.first**self.bins)
        return self.now**2 + self.before**2 + 2.0 * self.now * self.before * self.first / (1.0 - self.second)

    @property
    def innovation(self) -> float:
        """The variance of x_i given all before."""
        a, c = self.first, self.second
        return (1.0 + c) * ((1.0 - c) ** 2 - a * a) / (1.0 - c)

    @property
    def spacing(self) -> float:
        """Of a lattice for x that changes the density of z by less than ``LATTICE_ERROR``, relative to it."""
        a, c, seen = self.first, self.second, 2.0 * self.now * self.before / self.white**2
        # the quadratic in cos w whose maximum bounds the eigenvalues
        square, linear = -4.0 * c / self.innovation, 2.0 * a * (c - 1.0) / self.innovation + seen
        constant = (1.0 + a * a + c * c + 2.0 * c) / self.innovation + (self.now**2 + self.before**2) / self.white**2
        places = [-1.0, 1.0]
        if abs(linear) < 2.0 * abs(square):
            places.append(-linear / (2.0 * square))
        sharpest = max(constant + linear * x + square * x * x for x in places)
        needed = log(3.0 * (self.bins + 1) / LATTICE_ERROR)
        return sqrt(2.0 * pi**2 / (sharpest * 1.000001 * needed))


def work_of(chain: HiddenChain, delta: float, largest: float) -> float:
    """Rough seconds of :func:`hidden_chain_law`."""
    states, edges = size_of(chain, delta)
    nodes_used = 0.4 * (max(CORE * chain.bins, LEAST_CORE) + log(max(largest, 10.0) * TAIL * 400.0) / TAIL)
    return PACE * chain.bins * states * (edges + 60.0) * nodes_used


def size_of(chain: HiddenChain, delta: float) -> tuple[float, float]:
    """About how many states there are, and edges of each."""
    points = 2.0 * _reach(chain, LOST_SHARE * delta) / chain.spacing
    edges = points * sqrt(chain.innovation)
    if chain.second == 0.0 == chain.before:
        return (points * points if chain.ring else points), edges
    return points * points * sqrt(1.0 - (chain.first / (1.0 - chain.second)) ** 2), edges


def _reach(chain: HiddenChain, lost: float) -> float:
    """Standard deviations beyond which no state is kept."""
    width = sqrt(-2.0 * log(lost / (8.0 * (chain.bins + 1))))
    return width + float(chain.gains.max()) * sqrt(chain.seen_variance)


@dataclass(frozen=True)
class States:
    """States of a chain on a lattice and how it goes on from each.

    Attributes:
        seen: shape (S,), what is seen of each.
        start: shape (S,), chances of the state of the first bin.
        end: shape (S,), factor of the last one.
        starts, targets, chances: edges, as in :func:`..hidden_chain_kernels.mixed`.
        lost: more than the chance of any other state at any bin, under Q and given any one bin's tilt.
    """

    seen: Array
    start: Array
    end: Array
    starts: NDArray[np.int64]
    targets: NDArray[np.int64]
    chances: Array
    lost: float

    @property
    def terms(self) -> int:
        """How many terms are added up in a step, at most."""
        return int(np.diff(self.starts).max())

    def averaged(self, numbers: Array) -> Array:
        """The mean of ``numbers``, shape (S,), over the next state."""
        found: Array = mixed_numbers(self.starts, self.targets, self.chances, numbers)
        return found

    def transforms(
        self, steps: Array, kinds: NDArray[np.int64], tick: Callable[[], None]
    ) -> tuple[NDArray[np.complex128], float]:
        """The transform of the sum over all bins, and what is added to the rounding of all steps: nothing.

        ``steps`` and ``kinds`` as in :func:`..hidden_chain_kernels.chain_transforms`.
        """
        tick()
        edges = (self.starts, self.targets, self.chances)
        both = chain_transforms(*edges, self.start, self.end, steps, kinds)
        half = both.size // 2
        return both[:half] + 1j * both[half:], 0.0


def states_of(chain: HiddenChain, lost: float) -> States:
    """The states but for such of a chance below ``lost`` in all."""
    h, a, c = chain.spacing, chain.first, chain.second
    reach = _reach(chain, lost)
    deviation, innovation = 1.0, sqrt(chain.innovation)
    if chain.ring:
        deviation = sqrt((1.0 + a**chain.bins) / (1.0 - a**chain.bins))
    side = int(np.ceil(reach * deviation / h))
    line = np.arange(-side, side + 1)
    correlation = a / (1.0 - c)
    if chain.second == 0.0 == chain.before:
        return _single(chain, np.asarray(h * line, dtype=np.float64), h, reach * innovation, lost)
    x, y = (part.ravel() for part in np.meshgrid(line, line, indexing="ij"))
    residual = sqrt(1.0 - correlation**2)
    used = np.abs(h * (x - correlation * y)) <= reach * residual
    x, y = x[used], y[used]
    number = np.full((line.size, line.size), -1)
    number[x + side, y + side] = np.arange(x.size)
    start = h * h / (2.0 * pi * residual) * np.exp(-0.5 * h * h * (y**2 + ((x - correlation * y) / residual) ** 2))
    reached = int(np.ceil(reach * innovation / h)) + 1
    middle = np.rint(a * x + c * y).astype(np.int64)
    nexts = middle[:, None] + np.arange(-reached, reached + 1)
    error = h * (nexts - (a * x + c * y)[:, None])
    inside = (np.abs(nexts) <= side) & (np.abs(error) <= reach * innovation)
    target = np.where(inside, number[np.clip(nexts, -side, side) + side, (x + side)[:, None]], -1)
    kept = target >= 0
    chances = h / sqrt(2.0 * pi * chain.innovation) * np.exp(-0.5 * error[kept] ** 2 / chain.innovation)
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    seen = h * (chain.now * x + chain.before * y)
    return States(seen, start, np.ones(x.size), starts, target[kept], chances, lost)


def _single(chain: HiddenChain, line: Array, h: float, reach: float, lost: float) -> States:
    """States that are one number; on a ring each beside that of the first bin."""
    n = line.size
    apart = line[None, :] - chain.first * line[:, None]
    kernel = h / sqrt(2.0 * pi * chain.innovation) * np.exp(-0.5 * apart**2 / chain.innovation)
    kernel[np.abs(apart) > reach] = 0.0
    before, after = np.nonzero(kernel)
    counts, edges, seen = np.bincount(before, minlength=n), kernel[before, after], chain.now * line
    starts = np.concatenate([[0], np.cumsum(counts)])
    if not chain.ring:
        start = h / sqrt(2.0 * pi) * np.exp(-0.5 * line**2)
        return States(seen, start, np.ones(n), starts, after, edges, lost)
    targets = (np.arange(n)[:, None] * n + after[None, :]).ravel()
    starts = np.concatenate([[0], np.cumsum(np.tile(counts, n))])
    start = np.where(np.eye(n, dtype=bool), 1.0 - chain.first**chain.bins, 0.0).ravel()
    return States(np.tile(seen, n), start, kernel.T.ravel(), starts, targets, np.tile(edges, n), lost)


def nodes(bins: int, largest: float, tail: float = TAIL) -> tuple[Array, int]:
    """Nodes for the sum, and which of them is 1, its mean: equidistant so far, then in proportion to the distance."""
    core = max(round(CORE * bins), LEAST_CORE)
    above = [1.0]
    while above[-1] < largest:
        above.append(above[-1] + max(1.0 / core, tail * (above[-1] - 1.0)))
    return np.concatenate([np.arange(core) / core, above]), core


@dataclass(frozen=True)
class Shifts:
    """What one bin adds, given each state, in steps of the grid.

    Attributes:
        starts: shape (S + 1,): entries ``starts[s]`` to ``starts[s + 1] - 1`` are those of state s.
        counts, chances, means: whole steps, chances, and for lower laws the means of what is joined.
        rest: shape (S,), the mean of what is at infinity.
        error, place_error: relative, of chances and places.
    """

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    chances: Array
    means: Array
    rest: Array
    error: float
    place_error: float


def shifts_of(scales: Array, deviation: float, step: float, side: Side, delta: float) -> Shifts:
    """``scales[s] exp(deviation e - deviation^2 / 2)``, e standard normal: split between few whole numbers of steps, or
    joined between them."""
    if deviation == 0.0:
        noise = Law(np.array([1.0]), np.array([1.0]), 0.0, side, 0.0, 0.0)
    else:
        noise = gaussian_law(1.0 / deviation, 1.0, side, Resolution(WHITE_NODES, delta * 1e9))
    rows = scales.size
    places = np.multiply.outer(scales / step, noise.support)
    whole = [float(count) for count in range(FEW + 1)]
    while whole[-1] <= min(float(places.max()), MOST_STEPS):
        whole.append(float(np.ceil(whole[-1] * GROWTH)))
    points = np.array(whole)
    rest = scales * noise.p_inf
    if side is Side.UPPER:  # what is too far to be counted is at 0, and its mean at infinity
        far = places > MOST_STEPS
        rest += step * np.where(far, places, 0.0) @ noise.mass
        places[far] = 0.0
    cell = np.searchsorted(points, places, side="right") - 1
    masses = np.broadcast_to(noise.mass, places.shape)
    state = np.broadcast_to(np.arange(rows)[:, None], places.shape)
    key, size = (state * points.size + cell).ravel(), rows * points.size
    if side is Side.LOWER:
        found = np.bincount(key, masses.ravel(), size)
        first = np.bincount(key, (masses * places).ravel(), size)
        means = step * np.divide(first, found, out=np.zeros(size), where=found > 0.0)
    else:
        share = np.clip(
            (places - points[cell]) / (points[np.minimum(cell + 1, points.size - 1)] - points[cell]), 0.0, 1.0
        )
        right = masses * share
        found = np.bincount(key, (masses - right).ravel(), size) + np.bincount(key + 1, right.ravel(), size + 1)[:size]
        means = step * np.tile(points, rows)
    used = found > 0.0
    counts = np.rint(means / step - 0.5 if side is Side.LOWER else means / step)
    starts = np.concatenate([[0], np.cumsum(used.reshape(rows, -1).sum(axis=1))])
    error = noise.mass_error + (2.0 * noise.size + 8.0) * UNIT_ROUNDOFF
    place_error = noise.place_error + (4.0 * noise.size + 16.0) * UNIT_ROUNDOFF
    chances: Array = found[used].astype(np.float64)
    counted = np.clip(counts, 0.0, MOST_STEPS * GROWTH)[used].astype(np.int64)
    return Shifts(starts, counted, chances, means[used], rest, error, place_error)


def hidden_chain_law(chain: HiddenChain, side: Side, delta: float, largest: float, deadline: Deadline) -> Law:
    """The law of ``(1/b) sum_i exp(z_i - var(z_i) / 2)``.

    Args:
        side: UPPER gives a spread, LOWER a contraction, of the law for the covariance ``chain.products``.
        delta: what is far below it is bounded loosely.
        largest: ratios beyond it are bounded loosely.
    """
    states = states_of(chain, LOST_SHARE * delta)
    grid, core = nodes(chain.bins, largest, UPPER_TAIL if side is Side.UPPER else TAIL)
    known: dict[tuple[float, float], Shifts] = {}
    rows = states.seen.size
    gain = float(chain.gains.max())
    # how often a state is met, with and without a tilt; on a ring only those of the first bin are known
    met = states.start * (1.0 + np.exp(gain * states.seen - 0.5 * gain**2 * chain.seen_variance))
    skip = SKIP * delta / np.clip(rows * met, 1e-12, 1.0) if not chain.ring else np.full(rows, SKIP * delta)
    masses, moments = np.zeros((rows, grid.size)), np.zeros((rows, grid.size))
    masses[:, 0] = states.end
    beyond, floor = np.zeros(rows), np.zeros(rows)
    edges = (states.starts, states.targets, states.chances)
    for place in range(chain.bins - 1, -1, -1):
        deadline.tick()
        gain, white = float(chain.gains[place]), float(chain.whites[place])
        scales = np.exp(gain * states.seen - 0.5 * gain**2 * chain.seen_variance) / chain.bins
        if (gain, white) not in known:
            known[gain, white] = shifts_of(scales, gain * white, 1.0 / core, side, delta)
        shifts = known[gain, white]
        low, high = bands(masses, np.zeros(rows))
        if place < chain.bins - 1:
            masses = mixed(*edges, masses, low, high)
            if side is Side.LOWER:
                moments = mixed(*edges, moments, low, high)
            else:
                beyond, floor = mixed_numbers(*edges, beyond), mixed_numbers(*edges, floor)
        low, high = bands(masses, skip)
        law = (shifts.starts, shifts.counts, shifts.chances)
        if side is Side.LOWER:
            masses, moments = shifted_contraction(grid, core, masses, moments, low, high, *law, shifts.means)
            continue
        outside = np.arange(grid.size) < low[:, None]
        outside |= np.arange(grid.size) >= high[:, None]
        left_out = np.where(outside, masses, 0.0)
        floor += left_out.sum(axis=1)
        whole = masses.sum(axis=1) - left_out.sum(axis=1) + floor
        beyond += left_out @ grid + floor * scales + whole * shifts.rest
        masses = shifted_spread(grid, core, masses, low, high, *law, beyond)
    most = max(float(np.diff(one.starts).max()) for one in known.values())
    exponent = float(np.max(np.abs(states.seen))) * float(chain.gains.max()) + chain.seen_variance + 64.0
    each = max(one.error for one in known.values())
    each += (states.terms + grid.size * most + 64.0 * exponent) * UNIT_ROUNDOFF
    error = LATTICE_ERROR + chain.bins * each + rows * UNIT_ROUNDOFF
    places = max(one.place_error for one in known.values()) + (16.0 * exponent + 8.0 * chain.bins) * UNIT_ROUNDOFF
    total = states.start @ masses
    if side is Side.LOWER:
        first = states.start @ moments
        order = np.argsort(first / np.maximum(total, 1e-300))  # groups that were joined by counts may overlap
        return lower_law(total[order], first[order], error, places + 2.0 * chain.bins * each)
    lost = states.lost + UNDERFLOW
    total[0] += float(states.start @ floor) + lost
    return Law(grid, total, float(states.start @ beyond) * (1.0 + 1e-12) + lost, Side.UPPER, error, places)
