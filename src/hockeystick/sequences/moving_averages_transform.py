"""The Laplace transform of a sum over moving averages, from which its profile follows.

Backwards there is one complex number for each state and frequency. Where many successive groups of bins are alike,
the numbers soon only turn and shrink by one factor, and a measured residual bounds what powers of it leave out.
White noise enters by its own transform, a quadrature that is exact to rounding, so no side is favoured anywhere.

Proof: docs/theory/moving-averages.md. Cost: O(frequencies windows (10 to 20 + groups that differ from the next)),
on a ring up to four times as much.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, exp, floor

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.sequences.complex_dot import LANES
from hockeystick.sequences.inverse_transform import (
    AT_ONCE,
    BoundedTransform,
    Transform,
    TransformProfiles,
    frequencies,
    shares_of_delta,
    spread_of,
)
from hockeystick.sequences.moving_averages import InnovationWindows, MovingAverages, windows_of
from hockeystick.sequences.moving_averages_kernels import place_table, window_adjoints, window_sums
from hockeystick.sequences.moving_averages_ring import LARGEST, Factor, trace
from hockeystick.sequences.moving_averages_steps import means_before, stationary
from hockeystick.sequences.moving_averages_work import LOST_SHARE, uneven
from hockeystick.sequences.white_noise import Noise, noise_table
from hockeystick.types import Side

ERROR_SHARE = 1e-3
"""Share of delta that powers may change, about."""
CUT_SHARE = 1e-3
"""Share of delta that frequencies that are left out may change, about."""
LEAST_ERROR, MOST_ERROR = 1e-11, 1e-3
"""At one frequency."""
VAIN, PROBES = 0.3, 8
"""A ring whose traces have errors that add more than this share of delta, seen at so many frequencies, is given up."""
TOGETHER = 64
"""Frequencies whose tables follow from each other, at most."""
MOST_HELD = 1 << 24
"""Numbers that the tables of these frequencies may have together."""
NODES, CLOSE = 16, 0.12
"""How many nodes a place is interpolated between, and their distance in standard deviations of the white noise."""


@dataclass(frozen=True)
class Group:
    """The bins for which an innovation is the newest, the same for ``length`` groups one after the other.

    Attributes:
        kinds: shape (q,), the table of each bin.
        first: shape (q, S), the place in the table of the first window of each state; the others follow.
        length: how many groups there are.
    """

    kinds: NDArray[np.int64]
    first: NDArray[np.int64]
    length: int


@dataclass(frozen=True)
class Nodes:
    """Equidistant places on a log scale, between which the transform of white noise is interpolated.

    Attributes:
        noise: the white noise.
        deviation: its standard deviation.
        wide, stride: so many places of bins are as far apart as so many nodes; one of the two is 1.
        distance: of neighbouring nodes, on the log scale.
        scales: the mean of what a bin adds, at each node.
        lowest: the number of the first node, as node 0 is where ``log(bins scale)`` is 0.
    """

    noise: Noise
    deviation: float
    wide: int
    stride: int
    lowest: int
    distance: float
    scales: Array

    @classmethod
    def of(cls, deviation: float, step: float, low: float, high: float, bins: int) -> "Nodes":
        """Nodes for bins whose places are ``step`` apart, from ``low`` to ``high``, all on the log scale."""
        most = CLOSE * deviation / step
        wide, stride = (int(most), 1) if most >= 1.0 else (1, ceil(1.0 / most))
        distance = step * wide / stride
        lowest, highest = floor(low / distance) - NODES, ceil(high / distance) + NODES
        scales = np.exp(distance * np.arange(lowest, highest + 1)) / bins
        return cls(Noise.of(deviation), deviation, wide, stride, lowest, distance, scales)

    def between(self, first: float) -> tuple[NDArray[np.int64], Array]:
        """The first node that serves each of ``wide`` places of a bin from ``first`` on, and Lagrange's weights of all.

        Later places have the same weights again: ``wide`` of them further on the nodes lie alike.
        """
        at = first * self.stride / self.wide + np.arange(self.wide) * (self.stride / self.wide)
        below = np.floor(at).astype(np.int64)
        apart = np.arange(NODES) - (NODES // 2 - 1)
        factors = np.ones((self.wide, NODES))
        for j, k in product(range(NODES), repeat=2):
            if j != k:
                factors[:, j] *= (at - below - apart[k]) / (apart[j] - apart[k])
        return below - (NODES // 2 - 1) - self.lowest, factors

    @property
    def error(self) -> float:
        """The error of values between exact nodes: of polynomials through J nodes (section 3, tables)."""
        odd = float(np.prod(np.arange(1.0, NODES, 2.0)))
        return float((exp(1.0) / NODES) ** (NODES / 2) * odd**2 * (0.5 * self.distance / self.deviation) ** NODES)

    @property
    def rounding(self) -> float:
        """What rounding of places on the log scale changes: no more than it, in standard deviations."""
        farthest = self.distance * max(-self.lowest, self.lowest + self.scales.size)
        return UNIT_ROUNDOFF * (16.0 * farthest + 8.0) / self.deviation


@dataclass(frozen=True)
class Kind:
    """Bins with the same white noise, the same variance and the same weight of the newest innovation.

    Attributes:
        nodes: the number of the :class:`Nodes` for its white noise.
        newest: the weight of the newest innovation.
        columns: of its table: places that are ``newest`` apart follow each other in a row of so many.
        starts, factors: what :meth:`Nodes.between` says for its places.
    """

    nodes: int
    newest: int
    columns: int
    starts: NDArray[np.int64]
    factors: Array


@dataclass(frozen=True)
class Prepared:
    """A chain on its lattice, ready for transforms at any frequency.

    Attributes:
        windows: that are kept.
        groups: runs of groups of bins, the first bins first.
        scales: for each kind of bin the mean of what it adds at each place of its table, shape (kinds, K).
        nodes: for each level of white noise.
        kinds: of bins.
        places: how many different ones a bin may show.
        total, mean: mass and mean of what is kept; on a ring no more than the mean.
        total_error: of the total, rounding apart.
    """

    chain: MovingAverages
    windows: InnovationWindows
    groups: list[Group]
    scales: Array
    nodes: list[Nodes]
    kinds: list[Kind]
    places: int
    total: float
    mean: float
    total_error: float = 0.0

    @property
    def sum_error(self) -> float:
        """What rounding changes in a sum over the windows of all bins."""
        terms = 2.0 * float(self.windows.counts.max()) + 64.0
        return 2.0 * UNIT_ROUNDOFF * (self.chain.bins * terms + self.windows.start.size)


def prepared(chain: MovingAverages, delta: float, deadline: Deadline) -> Prepared:
    """The windows, the places of what they show, and the mass and the mean of what is kept."""
    windows = windows_of(chain, LOST_SHARE * delta, deadline)
    seen = (chain.weights**2).sum(axis=1)
    # What tells kinds of bins apart: white noise, variance and the weight of the newest innovation; shape (kinds, 3).
    traits, kind_of = np.unique(np.column_stack([chain.whites, seen, chain.weights[:, 0]]), axis=0, return_inverse=True)
    kind_of = kind_of.ravel().astype(np.int64)
    runs = _runs(chain)
    # A bin sees o_i = u <weights, window> (section 3): whole numbers from -reach to reach on the lattice of places.
    last = windows.newest + np.maximum(windows.counts - 1, 0)
    reach = 1 + max(
        int(np.abs(chain.weights[bins, 1:] @ windows.places.T + chain.weights[bins, :1] * newest).max())
        for bins, _ in runs
        for newest in (windows.newest, last)
    )
    # Windows of one state are as far apart as their newest weight: such places follow each other in tables.
    newest_weights = traits[:, 2].astype(np.int64)
    each = np.where(newest_weights > 0, newest_weights, 2 * reach + 1)
    columns = np.where(newest_weights > 0, 2 * reach // each + 1, int(windows.counts.max()))
    scales = np.zeros((len(traits), int((each * columns).max()) + LANES))
    for kind, (_, variance, _) in enumerate(traits):
        place = np.arange(each[kind])[:, None] + newest_weights[kind] * np.arange(columns[kind]) - reach
        logs = chain.unit * (windows.spacing * place.ravel() - 0.5 * chain.unit * variance)
        scales[kind, : place.size] = np.exp(logs) / chain.bins  # s_i of section 3
    groups = []
    for bins, length in runs:
        own = kind_of[bins]
        place = chain.weights[bins, 1:] @ windows.places.T + chain.weights[bins, :1] * windows.newest + reach
        first = place % each[own, None] * columns[own, None] + place // each[own, None]
        groups.append(Group(own, first, length))
    total, mean = _mass_and_mean(windows, groups, scales, deadline)
    nodes, kinds = _nodes_of(chain, windows, traits, columns, reach)
    given = Prepared(chain, windows, groups, scales, nodes, kinds, 2 * reach + 1, total, mean)
    if not chain.ring:
        return given
    # On a ring (section 8) the mass is the trace at z = 0; the mean is at least what windows keep under a bin's tilt.
    ones = np.zeros((len(kinds), 2, scales.shape[1]))
    ones[:, 0] = 1.0
    closed, error = _traced(given, ones, LEAST_ERROR, deadline)
    mean = min(total + _tilted_mass(given) - 1.0, 1.0)
    return replace(given, total=closed.real, mean=mean, total_error=error)


def _runs(chain: MovingAverages) -> list[tuple[slice, int]]:
    """The bins of a group, and how many successive groups are like it; on a ring the longest run comes last.

    Raises: ValueError for a ring on which the windows of a bin's innovations would meet themselves.
    """
    runs: list[tuple[slice, int]] = []
    for start in range(0, chain.bins, chain.period):
        bins = slice(start, start + chain.period)
        if runs and _alike(chain, runs[-1][0], bins):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((bins, 1))
    if chain.ring:  # which may begin anywhere
        if len(runs) > 1 and _alike(chain, runs[0][0], runs[-1][0]):
            runs[-1] = runs[-1][0], runs[-1][1] + runs[0][1]
            runs = runs[1:]
        longest = int(np.argmax([length for _, length in runs]))
        runs = runs[longest + 1 :] + runs[: longest + 1]
        if chain.bins < chain.period * (3 * chain.depth - 2) or chain.bins % chain.period:
            raise ValueError("A ring must have at least 3 d - 2 groups of bins, each of the period.")
    return runs


def _mass_and_mean(
    windows: InnovationWindows, groups: Sequence[Group], scales: Array, deadline: Deadline
) -> tuple[float, float]:
    """The mass and the mean of X of the windows that are kept, on a line: the recursion at z = 0 with its derivative.

    What is missing of 1 is the mass that is left out under Q and under P (section 3, windows that are left out).
    """
    values = np.vstack([np.ones(windows.start.size), np.zeros(windows.start.size)])
    for group in reversed(groups):
        for _ in range(group.length):
            deadline.tick()
            values = means_before(windows, values, scales, group.kinds, group.first)
    total, mean = (float(part) for part in values @ windows.start)
    return total, mean


def _nodes_of(
    chain: MovingAverages, windows: InnovationWindows, traits: Array, columns: NDArray[np.int64], reach: int
) -> tuple[list[Nodes], list[Kind]]:
    """Nodes for each level of white noise, which serve all places of its bins, and how each kind of bin reads them.

    Args:
        traits: white noise, variance and newest weight of each kind, shape (kinds, 3).
        columns: of its table, shape (kinds,).
        reach: a bin shows places from ``-reach`` to ``reach``, in spacings of the windows.
    """
    step = chain.unit * windows.spacing
    nodes, kinds = [], []
    levels, level_of = np.unique(traits[:, 0], return_inverse=True)
    for level, white in enumerate(levels):
        own = 0.5 * chain.unit**2 * traits[level_of == level, 1]
        low, high = -step * reach - float(own.max()), step * reach - float(own.min())
        nodes.append(Nodes.of(float(white), step, low, high, chain.bins))
    for kind, (_, variance, newest) in enumerate(traits):
        level = int(level_of.ravel()[kind])
        served = nodes[level].between(-reach - 0.5 * chain.unit * variance / windows.spacing)
        kinds.append(Kind(level, int(newest), int(columns[kind]), *served))
    return nodes, kinds


def _tilted_mass(given: Prepared) -> float:
    """The least chance, over all bins, that the windows which see an innovation of a bin are kept given its tilt."""
    windows, least = given.windows, 1.0
    for group in given.groups:
        for kind, first in zip(group.kinds, group.first, strict=True):
            values = np.vstack([np.ones(windows.start.size), np.zeros(windows.start.size)])
            # Of the 2 d - 1 successive windows that see one of the bin's innovations, the one in the middle is its own.
            for at in range(2 * given.chain.depth - 1):
                own = slice(0, 1 if at == given.chain.depth - 1 else 0)
                values = means_before(windows, values, given.scales, np.array([kind])[own], first[None][own])
                if own.stop:  # the derivative: the mean of s_i, which is the tilt over the number of bins
                    values = np.vstack([given.chain.bins * values[1], np.zeros(windows.start.size)])
            least = min(least, float(values[0] @ windows.start))
    return least


def _alike(chain: MovingAverages, group: slice, other: slice) -> bool:
    """Whether the bins of two groups have the same weights and white noise."""
    return np.array_equal(chain.weights[group], chain.weights[other]) and np.array_equal(
        chain.whites[group], chain.whites[other]
    )


def transform_of(
    given: Prepared, delta: float, smoothing: float, largest: float, deadline: Deadline
) -> BoundedTransform:
    """The transform that serves thresholds up to ``largest``, and what it leaves out."""
    chain, windows = given.chain, given.windows
    damping, pace, count = frequencies(smoothing, largest)
    theta = pace * np.arange(count)
    use = shares_of_delta(damping, pace, count, smoothing, largest)  # no more than this is needed of powers
    tolerance = np.clip(ERROR_SHARE * delta / (count * use), LEAST_ERROR, MOST_ERROR)

    def tables(first: int, many: int) -> Iterator[Array]:
        """The tables of all kinds at ``many`` frequencies from ``first`` on; each overwrites the one before it."""
        numbers = 2 * sum(nodes.scales.size for nodes in given.nodes)
        together = max(min(TOGETHER, MOST_HELD // numbers), 1)
        current = np.zeros((len(given.kinds), 2, given.scales.shape[1]))
        natural = np.empty((3, given.places))
        for begin in range(first, first + many, together):
            held = []
            for nodes in given.nodes:
                deadline.tick()
                paces = np.array([begin * pace, pace, min(together, first + many - begin)])
                held.append(noise_table(nodes.scales, nodes.noise.nodes, nodes.noise.weights, damping, paces))
            for f in range(min(together, first + many - begin)):
                for kind, table in zip(given.kinds, current, strict=True):
                    stride = given.nodes[kind.nodes].stride
                    served = (held[kind.nodes][f], stride, kind.starts, kind.factors, kind.newest, kind.columns)
                    place_table(*served, natural, table)
                yield current

    values, error = np.zeros(count, complex), np.zeros(count)
    summed = _traced if chain.ring else _summed

    def error_at(f: int) -> float:
        return summed(given, next(tables(f, 1)), float(tolerance[f]), deadline)[1]

    # Sizes of the transform fall with the frequency (Lemma 4), so the first from which all may be left out is found by
    # bisection: what all of them can change together is their size there times how much they count.
    beyond, used, least = np.cumsum(use[::-1])[::-1], count, 0
    while used - least > AT_ONCE:
        deadline.tick()
        middle = (used + least) // 2
        bound, more = _sizes(given, next(tables(middle, 1)), float(tolerance[middle]), deadline)
        if (bound + more) * beyond[middle] <= CUT_SHARE * delta:
            used, error[middle:] = middle, bound + more
        else:
            least = middle
    vain = chain.ring and _vain(error_at, use[:used], delta)
    if vain:
        error[:] = LARGEST
    for f, current in enumerate(tables(0, 0 if vain else used)):
        deadline.tick()
        values[f], error[f] = summed(given, current, float(tolerance[f]), deadline)
    sum_error = given.sum_error + given.total_error
    # What a bin's table is off by: nodes (quadrature, places, roundings), as often as the factors of the polynomial
    # say, and the polynomial (section 3, white noise and tables).
    places = 16.0 + float(chain.whites.max()) ** 2
    noise_error = max(nodes.noise.error + nodes.rounding for nodes in given.nodes) + 2.0 * UNIT_ROUNDOFF * (
        8.0 * TOGETHER + places * (1.0 + theta / damping) + 2.0 * NODES
    )
    noise_error *= max(float(np.abs(kind.factors).sum(axis=1).max()) for kind in given.kinds)
    noise_error += max(nodes.error for nodes in given.nodes)
    farthest = 0.5 * float(np.abs(windows.spacing * windows.places).max(initial=0.0)) ** 2
    exponent = float(np.abs(np.log(given.scales[given.scales > 0.0] * chain.bins)).max())
    transform = Transform(
        values=values,
        damping=damping,
        pace=pace,
        smoothing=smoothing,
        largest=largest,
        total=given.total,
        mean=given.mean,
        error=error + sum_error + chain.bins * noise_error,
        sum_error=sum_error,
    )
    # Masses are off by the lattice (section 2), and by roundings of the chances and of the exponents.
    mass_error = chain.lattice_error + (chain.bins + chain.depth) * (4.0 * farthest + 16.0) * UNIT_ROUNDOFF
    # Windows that are left out: the larger one of the Q-mass and the P-mass (section 3).
    lost = max(1.0 - given.total, 1.0 - given.mean, 0.0) + 4.0 * sum_error
    return BoundedTransform(transform, mass_error, (8.0 * exponent + 64.0) * UNIT_ROUNDOFF, lost, vain)


def _vain(error_at: Callable[[int], float], use: Array, delta: float) -> bool:
    """Whether errors of a ring are so large that its transform bounds nothing, by a few of the frequencies.

    Args:
        use: of :func:`..inverse_transform.shares_of_delta`, of the frequencies that are not cut off.
    """
    places = np.unique(((np.arange(PROBES) + 0.5) / PROBES * use.size).astype(np.int64))
    limit, added = VAIN * delta * places.size / use.size, 0.0
    for f in places[::-1]:  # errors are largest far out
        added += error_at(int(f)) * float(use[f])
        if added > limit:
            return True
    return False


def _summed(given: Prepared, tables: Array, tolerance: float, deadline: Deadline) -> tuple[complex, float]:
    """The transform at one frequency, and the error that powers make."""
    windows, groups = given.windows, given.groups
    values, error = np.zeros((2, windows.start.size)), 0.0
    values[0] = 1.0
    for group in reversed(groups):
        step = _step(given, group, tables, deadline)
        values, more = stationary(step, values, windows.start, group.length, tolerance / len(groups))
        error += more
    return complex(*(values @ windows.start)), error


def _traced(given: Prepared, tables: Array, tolerance: float, deadline: Deadline) -> tuple[complex, float]:
    """The transform at one frequency on a ring, and the bound on its error but for that of the tables."""
    factors = []
    for group in given.groups:
        squares = np.zeros((group.kinds.size, *tables.shape[1:]))
        squares[:, 0] = (tables[group.kinds] ** 2).sum(axis=1)
        own = replace(group, kinds=np.arange(group.kinds.size))
        square = _step(given, own, squares, deadline)
        step, adjoint = _step(given, group, tables, deadline), _adjoint(given, group, tables, deadline)
        factors.append(Factor(step, adjoint, square, group.length))
    return trace(given.windows, factors, given.sum_error, tolerance)


def _sizes(given: Prepared, tables: Array, tolerance: float, deadline: Deadline) -> tuple[float, float]:
    """The transform with sizes in place of what bins add, no less than it or any of higher frequencies, and its error.

    On a ring the factors of d - 1 groups, each at most 1, are left out: what remains is a line.
    """
    sizes = np.zeros_like(tables)
    sizes[:, 0] = np.hypot(tables[:, 0], tables[:, 1])
    if given.chain.ring:
        given = replace(given, groups=_shortened(given.groups, given.chain.depth - 1))
    bound, more = _summed(given, sizes, tolerance, deadline)
    return bound.real, more


def _shortened(groups: list[Group], count: int) -> list[Group]:
    """The groups without so many of the last ones."""
    kept = list(groups)
    while count:
        last = kept.pop()
        if last.length > count:
            return [*kept, replace(last, length=last.length - count)]
        count -= last.length
    return kept


def _step(given: Prepared, group: Group, tables: Array, deadline: Deadline) -> Callable[[Array], Array]:
    """What a group of bins makes of the numbers of the groups after it, backwards; shape (2, states)."""
    windows = given.windows
    chances, values, work = windows.chances, *_workspace(windows)
    served = windows.begins, windows.counts, values, tables, group.kinds, group.first, work

    def step(later: Array) -> Array:
        deadline.tick()
        np.multiply(chances, later, out=values[:, : chances.size])
        sums = np.empty_like(later)
        window_sums(*served, sums)
        return sums

    return step


def _workspace(windows: InnovationWindows) -> tuple[Array, Array]:
    """Arrays for the values of states and for those of the windows of one, as :func:`window_sums` takes them."""
    return np.zeros((2, windows.start.size + LANES)), np.zeros((2, int(windows.counts.max()) + LANES))


def _adjoint(given: Prepared, group: Group, tables: Array, deadline: Deadline) -> Callable[[Array], Array]:
    """The adjoint of :func:`_step` in the norm that the chances of states weigh."""
    windows, work = given.windows, _workspace(given.windows)[1]
    start, shares = windows.start, windows.chances / windows.start

    def adjoint(values: Array) -> Array:
        deadline.tick()
        sums = np.zeros_like(values)
        window_adjoints(windows.begins, windows.counts, start * values, tables, group.kinds, group.first, work, sums)
        return shares * sums

    return adjoint


def averages_profiles(
    chain: MovingAverages, side: Side, delta: float, epsilon: float, alone: bool, deadline: Deadline
) -> TransformProfiles:
    """The profiles of a chain; arguments as in :class:`..inverse_transform.TransformProfiles`."""
    given = prepared(chain, delta, deadline)

    def transformed(smoothing: float, largest: float) -> BoundedTransform:
        return transform_of(given, delta, smoothing, largest, deadline)

    return TransformProfiles(
        transformed, spread_of(chain.products), side, delta, epsilon, alone, alone and uneven(chain)
    )
