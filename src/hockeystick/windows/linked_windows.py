"""b-min-sep subsampling by windows of b steps that remember when an example may take part again.

After a window the ratio is known, and how much of it belongs to outcomes in which the example took part at step j: the
state is the share a of the ratio that is available at once, the rest being available from step j of the next window on.
Laws above the ratio of all windows to come are found backwards for some shares and for some steps j, the knots. Between
two shares the mixture of their laws is above both, and for a step between two knots a mixture of the laws of these is
(:func:`mixtures_above`).

Proof: docs/theory/separated-windows.md. Cost: the passes of :mod:`.participation_groups`, and for each window
O(b shares^2 knots ratios nodes) in matrix products.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, log1p, sqrt

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.deadline import Deadline
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array, Law
from hockeystick.types import Side
from hockeystick.windows.chains import LATTICE_ERROR, STEP, TAIL_SHARE, places_of_sums
from hockeystick.windows.linked_kernels import Kernels, States
from hockeystick.windows.participation_groups import EVERY, Numbers, cuts, lattice, whole

SPLITTING, MOST_ROOTS = 0.15, 8.0
"""Spacing of the logarithms of ratios, over their standard deviation in all windows over the root of their number."""
WIDEST = 0.03
"""Most of that spacing."""
CORE, GROWTH = 8.0, 0.12
"""Ratios of a window have all nodes within so many standard deviations of 1, and a share of the distance beyond."""
OUTSIDE = 1e-4
"""Share of the smallest delta that the grid of all ratios leaves outside."""
SMALLEST_OUTSIDE = 1e-16
BALANCED = 0.1
"""Where means are balanced, as a share of the reach of the grid."""
ROUNDED = 1e-11
"""More than what rounding makes of the balance of a law, and relative to its calls and puts."""
FINER = 1.5
"""States for each standard deviation of an innovation, over those of windows that are not linked."""


@dataclass(frozen=True)
class Detail:
    """How many laws are kept for each window.

    Attributes:
        knots: of the steps of a window, for which laws are kept.
        shares: of the ratio that is available at once, from 0 to 1.
    """

    knots: int
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Grid:
    """Ratios of all windows: ``exp(spacing k)`` for ``k = -below, ..., above``."""

    spacing: float
    below: int
    above: int

    @property
    def nodes(self) -> Array:
        """Shape (n,)."""
        nodes: Array = np.exp(self.spacing * np.arange(-self.below, self.above + 1.0))
        return nodes


@dataclass(frozen=True)
class Run:
    """The last steps of a first window, and whole windows after it.

    Attributes:
        first: steps of the first window that are in the run, from 1 to all.
        windows: whole windows after the first one.
        distance: b; None for a cold start, where the example is available at once. A warm one is stationary.
    """

    first: int
    windows: int
    distance: int | None

    def coefficients(self, prob: float, size: int) -> Array:
        """The coefficient of each step of a first window of ``size``; a warm run counts as begun long before."""
        if self.distance is not None:
            return np.full(size, prob / (1.0 + (self.distance - 1) * prob))
        return np.concatenate([np.zeros(size - self.first), prob * np.exp(np.arange(self.first) * log1p(-prob))])

    def absent(self, prob: float, size: int) -> float:
        """The chance to take no part in the first window."""
        if self.distance is not None:
            return (1.0 + (self.distance - 1 - size) * prob) / (1.0 + (self.distance - 1) * prob)
        return exp(self.first * log1p(-prob))


@dataclass(frozen=True)
class Laws:
    """Upper laws of products of windows.

    Attributes:
        masses: shape (laws, 1 + n), Q-masses at 0 and at the nodes of the grid.
        infinite: shape (laws,), P-masses at infinity.
    """

    masses: Array
    infinite: Array


def linked_law(
    scales: Array,
    correlation: float,
    prob: float,
    run: Run,
    above: Law,
    detail: Detail,
    resolution: Resolution,
    deadline: Deadline,
) -> Law:
    """An upper law of a run.

    Args:
        scales: shape (b,), standard deviations of the z_j, positive.
        correlation: rho in [0, 1) of neighbours.
        prob: q in (0, 1), the chance of an available step.
        run: how many steps and windows it has, and how an example comes to it.
        above: any upper law of the run; it affects only where nodes are.
        detail: affects only how tight the law is.
    """
    size, fine = scales.size, resolution.nodes_per_unit / 68.0
    tail = max(resolution.smallest_delta * TAIL_SHARE, 1e-38)
    chain = lattice(correlation, float(scales.max()), 2.2 * FINER * STEP * sqrt(fine), tail)
    weights = prob * np.exp(np.arange(size) * log1p(-prob))
    ratios = np.exp(np.multiply.outer(scales, chain.states) - 0.5 * chain.variance * scales[:, None] ** 2)
    absent, reach = exp(size * log1p(-prob)), float(-chain.states[0])
    sums, deviation = places_of_sums(scales, correlation, prob, absent, reach, chain.variance, fine)
    owners = owners_of(scales, correlation, prob, detail.knots)
    grid = _grid(above, deviation, run.windows + 1, resolution)
    shifts = _shifts(grid, absent, deviation)
    states = States(prob, size, sums, owners, np.array(detail.shares), grid.spacing, shifts)
    coefficients, present = run.coefficients(prob, size), np.arange(size)[:, None] >= size - run.first
    used = coefficients > 0.0
    terms = (coefficients[:, None] * np.where(present, ratios, 1.0))[used]
    begin = states.alone(*whole(chain, sums, terms, owners[used], deadline), run.absent(prob, size))
    laws = _nothing(grid, states.sources)
    lost = 8.0 * size * tail + UNDERFLOW
    if run.windows:
        kernels = states.kernels(cuts(chain, sums, weights[:, None] * ratios, owners, deadline))
        for _ in range(run.windows):
            deadline.tick()
            laws = _shared(_before(kernels, laws, grid, shifts, lost), owners, grid)
    law = _before(begin, laws, grid, shifts, lost)
    span, innovation = float(np.ptp(chain.states)), sqrt((1.0 - correlation) * (1.0 + correlation))
    exponent = float(scales.max()) * (span + float(scales.max())) + 2.0 * (span / innovation) ** 2 + 1.0
    terms_added = (sums.size / EVERY + 2.0) ** 2 + sums.size + states.sources * shifts.size + 16.0 * law.masses.shape[1]
    mass_error = size * (8.0 * LATTICE_ERROR + (2.0 * chain.states.size + 128.0 + 8.0 * exponent) * UNIT_ROUNDOFF)
    mass_error += terms_added * UNIT_ROUNDOFF + ROUNDED
    place_error = size * (6.0 * LATTICE_ERROR + 64.0 * UNIT_ROUNDOFF) + (32.0 * exponent + 1000.0) * UNIT_ROUNDOFF
    support, count = np.concatenate([[0.0], grid.nodes]), run.windows + 1.0
    infinite = float(law.infinite[0]) * (1.0 + 1e-9)
    return Law(support, law.masses[0], infinite, Side.UPPER, count * mass_error, count * place_error)


def _grid(above: Law, least: float, windows: int, resolution: Resolution) -> Grid:
    """Nodes between which all ratios are but for a negligible part, 1 well among them.

    ``least`` is about the standard deviation of one window.
    """
    outside, fine = max(OUTSIDE * resolution.smallest_delta, SMALLEST_OUTSIDE), resolution.nodes_per_unit / 68.0
    places, mass = above.support, above.mass
    p_above = np.cumsum((mass * places)[::-1])[::-1]
    highest = float(places[max(int(np.count_nonzero(p_above > outside)) - 1, 0)])
    lowest = max(float(places[min(int(np.count_nonzero(np.cumsum(mass) < outside)), places.size - 1)]), 1e-30)
    inside = (places > lowest) & (places < highest)
    deviation = max(sqrt(float(mass[inside] @ np.log(places[inside]) ** 2)), least)
    spacing = min(SPLITTING * deviation / min(sqrt(windows), MOST_ROOTS), WIDEST) / sqrt(fine)
    return Grid(spacing, int(max(-log(lowest) / spacing, 8.0)) + 2, int(max(log(highest) / spacing, 8.0)) + 2)


def _shifts(grid: Grid, absent: float, deviation: float) -> Numbers:
    """Logarithms of the ratios of one window, in units of the grid's spacing: from below ``absent`` up."""
    core, up = CORE * deviation / grid.spacing, [0]
    while up[-1] < grid.above + grid.below:
        up.append(up[-1] + max(1, int(GROWTH * (up[-1] - core))))
    down = [0]
    while grid.spacing * down[-1] > log(absent) - grid.spacing:
        down.append(down[-1] - max(1, int(GROWTH * (-down[-1] - core))))
    return np.array(down[:0:-1] + up)


def _nothing(grid: Grid, sources: int) -> Laws:
    """No window: the ratio is 1."""
    masses = np.zeros((sources, grid.below + grid.above + 2))
    masses[:, 1 + grid.below] = 1.0
    return Laws(masses, np.zeros(sources))


def _before(kernels: Kernels, laws: Laws, grid: Grid, shifts: Numbers, lost: float) -> Laws:
    """The laws of what one window makes of each of its states, and of the windows after it.

    What is above the last node stays on it, with its P-mass at infinity; what is below the first node goes to 0, with
    its P-mass to the first node.
    """
    nodes = grid.nodes
    n, moments = nodes.size, laws.masses[:, 1:] * nodes
    places = np.exp(grid.spacing * shifts)
    reach = int(max(shifts[-1], -shifts[0]))
    padded = np.zeros((laws.masses.shape[0], n + 2 * reach))
    padded[:, reach : reach + n] = laws.masses[:, 1:]
    moved = np.lib.stride_tricks.sliding_window_view(padded, n, axis=1)
    masses = np.zeros((kernels.masses.shape[0], 1 + n))
    infinite = kernels.infinite + lost
    masses[:, 0] = kernels.lost + lost
    high = np.clip(n - shifts, 0, n)  # from this node on a ratio leaves the grid upwards, below ``low`` downwards
    low = np.clip(-shifts, 0, n)
    sums_q, sums_p = (np.pad(np.cumsum(terms, axis=1), ((0, 0), (1, 0))) for terms in (laws.masses[:, 1:], moments))
    back_q, back_p = (
        np.pad(np.cumsum(terms[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1))) for terms in (laws.masses[:, 1:], moments)
    )
    for source, which in enumerate(kernels.used):
        chances = kernels.masses[:, source, which]
        # A ratio of the window moves the law after it by a whole number of nodes.
        masses[:, 1:] += chances @ moved[source, reach - shifts[which]]
        # Below the first node: the mass goes to 0, and the first node gets as much mass as keeps the mean.
        masses[:, 0] += chances @ (laws.masses[source, 0] + sums_q[source, low[which]])
        masses[:, 1] += chances @ (sums_p[source, low[which]] * places[which] / nodes[0])
        # Above the last node: the mass stays on it, and its mean is at infinity too, so calls only grow.
        masses[:, n] += chances @ back_q[source, high[which]]
        infinite = infinite + chances @ (places[which] * (laws.infinite[source] + back_p[source, high[which]]))
    return Laws(masses, infinite)


def owners_of(scales: Array, correlation: float, prob: float, count: int) -> Array:
    """How each step shares its mass between the knots around it, shape (b, knots); a knot has all of its own.

    Between two knots the variance of what a step and the steps after it add is interpolated; it affects only how tight
    a law is. Unless all steps are knots, the first step, whose law is that of all that is available, goes with the
    second.
    """
    size, places = scales.size, np.arange(scales.size)
    products = np.multiply.outer(scales, scales) * correlation ** np.abs(np.subtract.outer(places, places))
    excess = np.expm1(np.minimum(products, 50.0))
    weights = np.exp(places * log1p(-prob))
    variances = np.array([weights[: size - j] @ excess[j:, j:] @ weights[: size - j] for j in range(size)])
    # Decreasing, also where scales grow or weights vanish: a step between two knots belongs to no third one.
    variances = np.minimum.accumulate(variances) - 1e-9 * variances.max() * places
    begin = 0 if count >= size else 1
    knots = np.unique(np.rint(np.linspace(begin, size - 1, max(count, 2))).astype(int))
    owners = np.zeros((size, knots.size))
    owners[0, 0] = owners[knots[-1], -1] = 1.0
    for g, (begin, end) in enumerate(pairwise(knots.tolist())):
        apart = (variances[begin:end] - variances[end]) / (variances[begin] - variances[end])
        owners[begin:end, g] = np.clip(apart, 0.0, 1.0)
        owners[begin:end, g + 1] = 1.0 - owners[begin:end, g]
    return owners


def _shared(laws: Laws, owners: Array, grid: Grid) -> Laws:
    """Laws of the knots, for each share, of which the mixtures are above those of all steps; and of all available.

    ``laws`` has the states of each share from step 2 on, share by share, and last the one of all that is available,
    which at the first step is every share's.
    """
    size, count = owners.shape
    support = np.concatenate([[0.0], grid.nodes])
    masses, dear, cheap = balanced(support, laws.masses, laws.infinite)
    shares = (len(masses) - 1) // (size - 1)
    of_knots, infinite = np.zeros((shares * count + 1, support.size)), np.zeros(shares * count + 1)
    for share in range(shares):
        members = np.append(len(masses) - 1, share * (size - 1) + np.arange(size - 1))
        mine = slice(share * count, (share + 1) * count)
        of_knots[mine], infinite[mine] = mixtures_above(support, masses[members], laws.infinite[members], owners)
    off = np.abs(of_knots @ (support - 1.0) + infinite) + ROUNDED
    of_knots[:, dear] += off / (support[dear] - 1.0)
    of_knots[:, cheap] += off / (1.0 - support[cheap])
    of_knots[-1], infinite[-1] = laws.masses[-1], laws.infinite[-1]
    return Laws(of_knots, infinite)


def mixtures_above(support: Array, masses: Array, infinite: Array, owners: Array) -> tuple[Array, Array]:
    """Laws of the knots whose mixtures have at least the masses, calls above 1 and puts below 1 of every step's law.

    They begin as the laws of the last steps that are theirs alone. What mixtures lack, for the steps between two knots,
    is added to both.

    Args:
        masses: shape (b, n).
        infinite: shape (b,), P-masses at infinity.
        owners: shape (b, knots). Steps after the last one that belongs to a knot alone, up to the last one that belongs
            to the next knot alone, belong to these two knots only.
    """
    middle = int(np.searchsorted(support, 1.0))
    above, below = np.diff(support[middle:]), np.diff(support[: middle + 1])
    # Calls E (X - c)_+ at the nodes c above 1, and puts E (c - X)_+ at those below, of each step's law.
    survival = np.cumsum(masses[:, :middle:-1], axis=1)[:, ::-1]  # above each cell
    calls = np.cumsum((above * survival)[:, ::-1], axis=1)[:, ::-1]
    calls = np.column_stack([calls, np.zeros(len(masses))]) + infinite[:, None]
    puts = np.cumsum(below * np.cumsum(masses[:, :middle], axis=1), axis=1)[:, ::-1]
    puts = np.column_stack([puts, np.zeros(len(masses))])
    whole = masses.sum(axis=1)
    knots = np.array([int(np.flatnonzero(column == 1.0)[-1]) for column in owners.T])
    raised, far = masses[knots].copy(), infinite[knots].copy()
    # What a mixture of the laws of the knots lacks of the law of each step: of calls, of puts and of mass.
    lack = [of_steps - owners @ of_steps[knots] for of_steps in (calls, puts, whole)]
    pairs = [(slice(0, int(knots[0]) + 1), [0])]
    pairs += [(slice(begin, end + 1), [g, g + 1]) for g, (begin, end) in enumerate(pairwise(knots.tolist()))]
    for steps, which in pairs:
        # The least convex functions above all that these steps lack are the calls and puts of masses to add.
        dearer = convex_above(above, np.maximum(lack[0][steps].max(axis=0), 0.0))
        cheaper = convex_above(np.ascontiguousarray(below[::-1]), np.maximum(lack[1][steps].max(axis=0), 0.0))
        raised[which, middle + 1 :] += dearer[:-1]
        raised[which, :middle] += cheaper[-2::-1]
        raised[which, middle] += max(float(lack[2][steps].max()), 0.0)
        far[which] += dearer[-1]
    return raised, far


def convex_above(widths: Array, values: Array) -> Array:
    """Masses at the ends of cells, whose calls are at least these values, and last what is at infinity.

    Args:
        widths: shape (n,), of cells one after the other.
        values: shape (n + 1,), at the ends of cells.
    """
    rises = np.zeros(values.size)
    _rise(widths, values, rises)
    return rises


@kernel
def _rise(widths: Array, values: Array, rises: Array) -> None:
    """:func:`convex_above`, into ``rises``."""
    n = widths.size
    rises[n] = values[n]
    height, slope = values[n], 0.0
    for i in range(n - 1, -1, -1):
        steeper = max(slope, (values[i] - height) / widths[i])
        rises[i] = steeper - slope
        height += steeper * widths[i]
        slope = steeper


def balanced(support: Array, masses: Array, infinite: Array) -> tuple[Array, int, int]:
    """The laws with more mass on one of two nodes around 1, so that the mean of each is its mass; and these nodes.

    The least upper bound of laws compares what is above 1 and what is below, which is only right for such laws.
    """
    logs = np.log(np.maximum(support, 1e-300))
    middle = int(np.searchsorted(support, 1.0))
    dear = max(int(np.searchsorted(logs, BALANCED * logs[-1])), middle + 1)
    cheap = min(int(np.searchsorted(logs, BALANCED * logs[1])), middle - 1)
    off = masses @ (support - 1.0) + infinite
    raised = masses.copy()
    raised[:, dear] += np.maximum(-off, 0.0) / (support[dear] - 1.0)
    raised[:, cheap] += np.maximum(off, 0.0) / (1.0 - support[cheap])
    return raised, dear, cheap
