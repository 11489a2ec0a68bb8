"""The likelihood ratio of a window of Poisson sampling, when its columns form a Gauss-Markov chain.

Let ``z_i = scales[i] s_i``, s a stationary chain of unit variance and correlation rho between neighbours. It is as
likely the other way round, so the steps may be taken in either order; here the first one comes last. The ratio of
the steps up to i, as a function of the state and of what comes before it, satisfies

    V_i(s) = (1 - p) V_(i-1)(s') + p exp(z_i - var(z_i) / 2) V_(i-1)(s' - rho scales[i]),

s' the state before: *a participation only shifts the other states*. Given s the laws of both terms are known, and
their dependence is not; the sum of the two that are large together is above every dependence. So one law for each state
is enough, and on the way to the law of a whole window come those of shorter ones. States live on a lattice and values
on a grid as in :mod:`.chains`.

Proof: docs/theory/poisson-windows.md. Cost: O(w states points nodes) in matrix products; there are few points.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import ceil, exp, floor, log, log1p, sqrt
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from hockeystick.compiling import kernel
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNDERFLOW, UNIT_ROUNDOFF, Array, Law, merge_equal
from hockeystick.types import Side
from hockeystick.windows.chains import LARGEST_VALUE, LATTICE_ERROR, SPLIT, Spacing, nodes_around, sampled_normal

STEP = 10.0
"""Lattice points for each standard deviation of an innovation, for the 72 nodes per unit of usual grids."""
SPACING = Spacing(core=66.0, most=2000.0, near=0.011, far=0.04)
"""Of the nodes for what a participation adds."""
TAIL_SHARE = 1e-8
"""About the chance of a state that is left out, as a share of the smallest delta."""
LOWEST_FLOOR = 2.5e-3
"""A window without a participation has at least this chance, which is the least ratio that its grid holds."""
MOST_STATES = 4000
FARTHEST = 9.0
"""Standard deviations of a point between two states, beyond which it has a chance of 3e-19."""
MOST_EXCESS = 0.75
"""The largest share of a mean above the last state with which the rest of it is a bound."""


def longest_window(prob: float) -> int:
    """The largest window for p in (0, 1): one without a participation has the chance ``LOWEST_FLOOR`` at least.

    >>> longest_window(0.5), longest_window(0.01)
    (8, 596)
    """
    return int(log(LOWEST_FLOOR) / log1p(-prob))


def window_laws(
    scales: Array, correlation: float, prob: float, sizes: Collection[int], resolution: Resolution, deadline: Deadline
) -> dict[int, Law]:
    """Upper laws of the ratios of windows of the first steps of a chain, for each of some numbers of steps.

    Args:
        scales: shape (w,), standard deviations of the z_i, positive; ``w <= longest_window(prob)``.
        correlation: rho in [0, 1) of neighbours.
        prob: p in (0, 1), the chance of a participation at every step.
        sizes: numbers of steps, from 1 to w.

    Raises: UnsupportedError when the chain has too many states; BudgetExceededError when the deadline passes.
    """
    fine = resolution.nodes_per_unit / 72.0
    tail = max(resolution.smallest_delta * TAIL_SHARE, 1e-38)
    innovation = sqrt((1.0 - correlation) * (1.0 + correlation))
    spacing = innovation / (STEP * sqrt(fine))
    variance = 1.0 + (spacing / innovation) ** 2
    steps = np.arange(scales.size)
    nearness = correlation ** np.abs(np.subtract.outer(steps, steps))
    reach, shift = -float(ndtri(tail)) * sqrt(variance), variance * float((nearness @ scales).max())
    if (2.0 * reach + shift) / spacing > MOST_STATES:
        raise UnsupportedError("The noise is too low: a chain of columns has too many states.")
    states = spacing * np.arange(-ceil(reach / spacing), ceil((reach + shift) / spacing) + 1.0)
    second = np.expm1(np.minimum(np.multiply.outer(scales, scales) * nearness, 300.0))
    floor = exp(scales.size * log1p(-prob))
    top = scales.size * prob * exp(min(float(scales.max()) * (reach + 0.5 * shift), 130.0))
    deviation = prob * sqrt(float(second.sum()))
    grid = nodes_around(1.0 - floor, deviation, min(top, LARGEST_VALUE), fine, SPACING)
    span, largest = float(states[-1] - states[0]), float(scales.max())
    exponent = largest * (span + largest) + 2.0 * ((span + shift) / innovation) ** 2 + 1.0
    laws = dict[int, Law]()
    for size, masses, infinite in _in_turn(grid, states, spacing, scales, correlation, prob, deadline, sizes):
        count = float(size + 1)
        mass_error = (
            8.0 * LATTICE_ERROR + (2.0 * states.size + 4.0 * grid.size + 128.0 + 8.0 * exponent) * UNIT_ROUNDOFF
        )
        place_error = count * (6.0 * LATTICE_ERROR + 64.0 * UNIT_ROUNDOFF) + 16.0 * exponent * UNIT_ROUNDOFF
        support, mass = merge_equal(exp(size * log1p(-prob)) + grid, masses)
        mass[0] += UNDERFLOW
        far = infinite * (1.0 + 1e-12) + UNDERFLOW
        laws[size] = Law(support, mass, far, Side.UPPER, count * mass_error, place_error)
    return laws


def _in_turn(
    grid: Array,
    states: Array,
    spacing: float,
    scales: Array,
    correlation: float,
    prob: float,
    deadline: Deadline,
    sizes: Collection[int],
) -> Iterator[tuple[int, Array, float]]:
    """For each number of steps: it, masses of the ratio less its floor, and its P-mass at infinity."""
    innovation = (1.0 - correlation) * (1.0 + correlation) + spacing**2  # with the noise of the lattice
    variance = innovation / ((1.0 - correlation) * (1.0 + correlation))
    masses, infinite = np.zeros((states.size, grid.size)), np.zeros(states.size)
    masses[:, 0] = 1.0
    floor, reach = 1.0, 0.0  # of the steps before: the ratio of no participation, and the largest exponent of a state

    stays = correlation * states
    lowest = correlation * (float(states[0]) - variance * float(scales.max()))
    points = Points.between((lowest, float(stays[-1])), states, innovation)
    entering = points.entering(states, spacing)
    staying = points.leaving(stays)
    moves, moving, of_scale = stays, staying, 0.0  # those of the last step, as most scales are that of their neighbour
    for step in range(max(sizes)):
        deadline.tick()
        absent, beyond, present, far = masses, infinite, masses, infinite
        if step:
            if scales[step] != of_scale:
                of_scale = float(scales[step])
                moves = correlation * (states - variance * of_scale)
                moving = points.leaving(moves)
            values = grid + floor
            least = float(masses[0] @ values) + float(infinite[0])
            entered = entering @ masses, entering @ infinite
            absent, beyond = _averaged(entered, least, values, states, stays, staying, innovation, reach)
            present, far = _averaged(entered, least, values, states, moves, moving, innovation, reach)
        with np.errstate(over="ignore", invalid="ignore"):
            ratios = prob * np.exp(scales[step] * states - 0.5 * variance * scales[step] ** 2)
            masses, excess = large_together(grid, absent, present, 1.0 - prob, ratios, floor)
            infinite = (1.0 - prob) * beyond + ratios * far + excess
        if not np.isfinite(infinite).all():  # the next mean would weigh what is infinite with 0 and know nothing
            raise UnsupportedError("The noise is too low: a chain of columns has ratios beyond the range of doubles.")
        floor *= 1.0 - prob
        reach = float(scales[step]) + correlation * reach
        if step + 1 in sizes:
            values, alone = grid + floor, sampled_normal(states[None, :], 0.0, variance, spacing)
            least = float(masses[0] @ values) + float(infinite[0])
            mass, last = _averaged((masses, infinite), least, values, states, np.zeros(1), alone, variance, reach)
            yield step + 1, mass[0], float(last[0])


@dataclass(frozen=True)
class Points:
    """What lies on the way from a centre to a state: few points, through which the chances of all states go.

    A state is normal around a centre, with some variance. Given both, the point is normal too, with the deviation
    ``gap``, which is the distance of neighbouring points. The sum over all points of the chance to get there times the
    chance to go on to the state is the normal density, up to a factor ``1 +- LATTICE_ERROR``.

    Attributes:
        places: shape (points,).
        gap: between neighbours.
        variance: of a state around a centre.
    """

    places: Array
    gap: float
    variance: float

    @classmethod
    def between(cls, centres: tuple[float, float], states: Array, variance: float) -> Self:
        """Those of all centres from the first to the second number, and all states, which increase."""
        gap = sqrt(SPLIT * (1.0 - SPLIT) * variance)
        lowest, highest = (
            (1.0 - SPLIT) * centre + SPLIT * float(state)
            for centre, state in zip(centres, states[[0, -1]], strict=True)
        )
        return cls(gap * np.arange(floor(lowest / gap - FARTHEST), ceil(highest / gap + FARTHEST) + 1.0), gap, variance)

    def leaving(self, centres: Array) -> Array:
        """Chances of the points, shape (centres, points)."""
        return sampled_normal(self.places[None, :], centres[:, None], SPLIT * self.variance, self.gap)

    def entering(self, states: Array, spacing: float) -> Array:
        """Chances of the states, which are so far apart, from each point, shape (points, states)."""
        return sampled_normal(states[None, :], self.places[:, None], (1.0 - SPLIT) * self.variance, spacing)


def _averaged(
    laws: tuple[Array, Array],
    least: float,
    values: Array,
    states: Array,
    centres: Array,
    densities: Array,
    variance: float,
    reach: float,
) -> tuple[Array, Array]:
    """The laws of values whose state is normal around each of the centres, as mixtures with these densities.

    Args:
        laws: those that are mixed, of each state or of each point before one: masses, and P-mass at infinity.
        least: the mean of the first state's.

    What has a state beyond the last is put on the safe side: its Q-mass at the floor, its P-mass at infinity. Means
    grow with the state, so below the first state they are at most the first one's. Above the last they are at most
    ``share / (1 - share)`` of the rest: an exponent of at most ``reach`` moves the centre by ``reach variance``.
    """
    spread = sqrt(variance)
    averaged, beyond = (densities @ each for each in laws)
    below = np.minimum(2.0 * ndtr((states[0] - centres) / spread), 1.0)
    above = np.minimum(2.0 * ndtr((centres - states[-1]) / spread), 1.0)
    share = 2.0 * ndtr((centres + reach * variance - states[-1]) / spread)
    if float(share.max()) > MOST_EXCESS:
        raise UnsupportedError("The noise is too low: a chain of columns needs more states.")
    lowest = below * least
    beyond += lowest + share / (1.0 - share) * (averaged @ values + beyond + lowest) * (1.0 + 1e-6)
    averaged[:, 0] += below + above
    return averaged, beyond


def large_together(
    grid: Array, first: Array, second: Array, scale: float, ratios: Array, shift: float
) -> tuple[Array, Array]:
    """Split ``scale A + ratios[j] (shift + B)`` on the grid, for A and B that are increasing functions of one number.

    Args:
        first, second: masses of A and of B on the grid, for every j; some of each positive. What one law has more than
            the other is counted with the other's smallest value.

    Returns: masses of shape (j, nodes), and what is above the last node, as P-mass at infinity.
    """
    split, excess = np.empty(first.shape), np.empty(len(first))
    _join(grid, first, second, scale, ratios, shift, split, excess)
    return split, excess


@kernel
def _join(
    grid: Array,
    first: Array,
    second: Array,
    scale: float,
    ratios: Array,
    shift: float,
    split: Array,
    excess: Array,
) -> None:
    """:func:`large_together`, into ``split`` and ``excess``."""
    n = grid.size
    sums = np.zeros(n)  # shares no memory with what is read, which makes the loops faster
    for j in range(first.shape[0]):
        for k in range(n):
            sums[k] = 0.0
        above = 0.0
        end_a, end_b = 0, 0
        while first[j, end_a] <= 0.0:
            end_a += 1
        while second[j, end_b] <= 0.0:
            end_b += 1
        a, b, cell = n - 1, n - 1, n - 1
        of_a, of_b = first[j, a], second[j, b]
        while True:
            while of_a <= 0.0 and a > end_a:
                a -= 1
                of_a = first[j, a]
            while of_b <= 0.0 and b > end_b:
                b -= 1
                of_b = second[j, b]
            if of_a <= 0.0 and of_b <= 0.0:
                break
            taken = of_b if of_a <= 0.0 else of_a if of_b <= 0.0 else min(of_a, of_b)
            of_a -= taken
            of_b -= taken
            value = scale * grid[a] + ratios[j] * (shift + grid[b])
            while cell > 0 and grid[cell] > value:
                cell -= 1
            if cell == n - 1:
                sums[cell] += taken
                above += taken * (value - grid[cell])
                continue
            right = taken * min((value - grid[cell]) / (grid[cell + 1] - grid[cell]), 1.0)
            sums[cell + 1] += right
            sums[cell] += taken - right
        excess[j] = above
        for k in range(n):
            split[j, k] = sums[k]
