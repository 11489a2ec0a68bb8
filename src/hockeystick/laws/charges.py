"""What all triples add to a profile that is curved most around a ratio of 1: the opposite one, and charges for others.

Where the curvature is symmetric and falls on both sides of 1 it is a sum of intervals. For each interval the opposite
triple is compared with the corners of cells of triples, and what may be inside a cell beyond its corners is charged
(:mod:`.corners`). Errs upward.

Proof: docs/theory/fixed-size.md, "The run backwards".
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, pi, sinh
from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.bins import PARTS, ends_of_parts, means
from hockeystick.laws.corners import EVERYTHING, Cell, allowances
from hockeystick.laws.law import Array
from hockeystick.laws.triples import covered, deviation, log_places, mirrored, on_circle, opposite
from hockeystick.types import Side

LITTLE, MOST_REACH = 1e-4, 2000
"""Intervals are charged one by one until what the opposite triple adds at larger ratios is this share of what it adds
in all, but for at most so many places."""
WHOLE, MOST_CELLS = (0.05, 0.001), (1000, 3000)
"""A cell whose allowance is more than this share of what the opposite triple adds is divided before its corners are
looked at, and the most cells that are looked at: first, and once more where some are left."""
NARROW, WIDER, WIDEST = 0.025, 0.35, 0.15
"""Widths of boxes, in standard deviations: the least; so much for each radian between the angle at v and a right angle,
if that is more; and at most this over the distance of opposite gradients."""
SHORT = 4.0
"""Intervals up to so many standard deviations of a step may be charged more: curvature stays there for few steps."""
CLOSE = 1.1
"""A cell is divided only where it would be charged more than this many times what the corners so far are charged."""
SAME = 1e-9
"""Share that is added for the rounding of sums."""
NEARLY = 1e-3
"""Charges within this share of those at the longest intervals are raised to them."""
BEYOND = 1e-7
"""Far from a ratio of 1, the bound on all triples stands for each of them: it adds at most this share there."""


class Charges(NamedTuple):
    """What covers all triples where the curvature of V is symmetric and falls on both sides of 1.

    Attributes:
        base: means of o of the opposite triple over bins; shape (3 places + 1,), at i = -places, ..., 2 places.
        far: what other triples may add to that at ``i = -k``, for a curvature of 1 at all places from -r to r, r >= k.
        less: by how much less that is where ``r - k`` is 0, 1, ...; shape (m,).
        charged: by how much more it is, at [k, r]; shape (n, n), n <= MOST_REACH.
        most: o of all triples, at the same places as ``base``.
    """

    base: Array
    charged: Array
    far: float
    less: Array
    most: Array


class _Corner(NamedTuple):
    """By how much a triple exceeds the opposite one, with a curvature of 1 at all places of an interval.

    Attributes:
        left: at least that of the places -r, ..., 0, for r = 0, ..., reach - 1; does not fall.
        right: at most 0: at least that of the places 0, ..., r beyond it, for r = 0, 1, ...; does not rise.
        far: at least that of all intervals from ``k - r`` to ``k + r`` with r >= reach.
    """

    left: Array
    right: Array
    far: float


class _Corners:
    """Corners of cells, each looked at once."""

    def __init__(self, rate: float, distance: float, spacing: float, places: int) -> None:
        self.rate, self.distance, self.spacing = rate, distance, spacing
        self.deviation = deviation(rate, distance) / spacing
        """The standard deviation of the likelihood ratio of opposite gradients, in places."""
        fine = ends_of_parts(spacing, -places, 2 * places)
        self.base = means(opposite(rate, distance, fine, Side.UPPER), spacing, -places, 2 * places)
        logs = log_places(spacing, -places, places)
        alone = opposite(rate, distance, logs, Side.UPPER)
        self.most = np.maximum(alone, mirrored(alone, logs))  # that is so for every single call and put
        weights = np.exp(-0.5 * logs)
        self.total = float(weights @ self.base[: logs.size])
        self.reach = min(self._reach(), MOST_REACH, places)
        weighed = weights * self.most
        outside = np.cumsum(weighed[: places + 1]) + np.cumsum(weighed[: places - 1 : -1])
        inside = places - int(np.searchsorted(outside, BEYOND * self.total))
        self.near = min(max(inside + 1, 2 * self.reach), places)
        kept = slice(places - self.near, places + self.near + 1)
        self.weights, self.own = weights[kept], self.base[kept]
        # A mean over a bin is at most the value at the next place: o rises towards 1.
        self.rest = float(weights[: places - self.near] @ self.most[1 : places - self.near + 1])
        self.fine = ends_of_parts(spacing, -self.near, self.near)
        self.opposite = opposite(rate, distance, self.fine, Side.UPPER)
        self.most_fine = np.maximum(self.opposite, mirrored(self.opposite, self.fine))
        self.seen: dict[tuple[float, float], _Corner] = {}

    def _reach(self) -> int:
        """How many places, from 1 up, hold all but a little of what the opposite triple adds.

        A multiple of its deviation would not do: with little noise at small rates, rare ratios are far beyond it.
        """
        beyond = self.base[self.base.size // 3 :]
        added = np.exp(-0.5 * log_places(self.spacing, 0, beyond.size - 1)) * beyond
        return int(np.count_nonzero(np.cumsum(added[::-1]) > LITTLE * self.total))

    def of(self, cell: Cell) -> list[tuple[float, float]]:
        """Angles of the four corners."""
        return [(at_e, at_other) for at_e in cell.at_e for at_other in cell.at_other]

    def at(self, angles: tuple[float, float]) -> _Corner:
        if angles not in self.seen:
            self.seen[angles] = self._corner(self._values(*angles))
        return self.seen[angles]

    def _values(self, at_e: float, at_other: float) -> Array:
        """At least o at the ends of parts of bins; with v at e' it is that of opposite gradients at a distance."""
        if at_e == 0.0:
            return self.opposite
        if at_other == 0.0:
            return self.most_fine  # v is at e: the mirror image
        gram = on_circle(self.distance**2, at_e, at_other)
        width = min(max(NARROW, WIDER * abs(at_e + at_other - 0.5 * pi)), WIDEST / self.distance)
        places = self.fine.size // 2
        values: Array = np.minimum(covered(self.rate, gram, self.spacing / PARTS, places, width), self.most_fine)
        return values

    def _corner(self, values: Array) -> _Corner:
        beyond = self.weights * (means(values, self.spacing, -self.near, self.near) - self.own)
        middle = self.near
        left = np.cumsum(np.maximum(beyond[middle::-1], 0.0))
        right = np.cumsum(np.minimum(beyond[middle:], 0.0))
        far = float(left[-1] + right[min(self.reach, self.near)]) + self.rest
        return _Corner(left[: self.reach].copy(), right[: 2 * self.reach].copy(), far)


@kernel
def charge(charged: Array, left: Array, right: Array) -> None:
    """Raise [k, r] to the sum over the places from ``k - r`` to ``k + r``, for k <= r."""
    last = right.shape[0] - 1
    for k in range(charged.shape[0]):
        for r in range(k, charged.shape[0]):
            charged[k, r] = max(charged[k, r], left[r - k] + right[min(r + k, last)])


def charges(
    rate: float, distance: float, spacing: float, places: int, share: float, tick: Callable[[], None]
) -> Charges:
    """Bounds on all triples of a step. Cost: O(boxes + places) for each corner of a cell.

    Args:
        rate: q in (0, 1).
        distance: of opposite gradients, in standard deviations of the noise.
        spacing, places: the lattice ``e^(i spacing)``, i = -places, ..., places.
        share: of what the opposite triple adds, which may be charged for what is inside cells at long intervals.
    """
    corners = _Corners(rate, distance, spacing, places)
    reach = corners.reach
    charged, beyond, far = np.zeros((reach, reach)), np.zeros(reach), 0.0
    for angles, allowance in _allowed(corners, _cells(corners, share, tick)).items():
        left, right, farthest = corners.at(angles)
        far = max(far, farthest + allowance)
        np.maximum(beyond, left + right[min(reach, right.size - 1)] + allowance, out=beyond)
        if np.max(left + right[:reach]) + allowance > 0.0:
            charge(charged, left + allowance, right)
    # No triple has an o above the most, which is that of the opposite one from 1 on.
    logs = log_places(spacing, -reach + 1, -1)
    own = slice(places - reach + 1, places)
    calls = (np.exp(-0.5 * logs) * np.maximum(corners.most[own] - corners.base[own], 0.0))[::-1]
    limits = np.append(0.0, np.cumsum(calls))
    beyond = np.minimum(beyond, limits)
    charge(least := np.zeros_like(charged), beyond, np.zeros(1))
    charge(limit := np.zeros_like(charged), limits, np.zeros(1))
    most = np.append(corners.most, corners.base[corners.most.size :])  # the opposite triple has the most beyond 1
    less = far - beyond[beyond < (1.0 - NEARLY) * far]
    return Charges(corners.base, np.maximum(np.minimum(charged, limit) - least, 0.0), far, less, most)


def _sides(corners: _Corners, cell: Cell) -> tuple[float, float]:
    """What a cell is allowed for each of its sides."""
    scale = 1.0 / (4.0 * sinh(0.25 * corners.spacing))
    at_e, at_other = allowances(corners.rate, corners.distance**2, cell)
    return scale * at_e, scale * at_other


def _cells(corners: _Corners, share: float, tick: Callable[[], None]) -> list[Cell]:
    """Cells that make up all triples: rather large ones first, and where these are too many, smaller ones."""
    settled, left = list[Cell](), list[Cell]()
    for whole, most in zip(WHOLE, MOST_CELLS, strict=True):
        settled, left = _divided(corners, share, whole, most, tick)
        if not left:
            break
    return settled + left


def _divided(
    corners: _Corners, share: float, whole: float, most_cells: int, tick: Callable[[], None]
) -> tuple[list[Cell], list[Cell]]:
    """Cells that make up all triples: those that exceed by what is allowed, and those that are left to divide.

    Those that exceed by most are divided first.

    Args:
        share: as for :func:`charges`.
        whole, most_cells: one of ``WHOLE`` and of ``MOST_CELLS``.
    """
    with np.errstate(divide="ignore"):
        allowed = share * corners.total * (1.0 + (SHORT * corners.deviation / np.arange(corners.reach)) ** 2)
    charged = np.zeros(corners.reach)

    def exceeded(cell: Cell, allowance: float) -> float:
        """How many times what is allowed a cell exceeds the opposite triple by, beside what is charged anyway."""
        most = 0.0
        found = [corners.at(angles) for angles in corners.of(cell)]
        sums = [corner.left + corner.right[: corners.reach] for corner in found]
        for one in sums:
            np.maximum(charged, one, out=charged)
        for corner, one in zip(found, sums, strict=True):
            short = float(np.max((one + allowance - CLOSE * charged) / allowed))
            most = max(most, short, (corner.far + allowance) / (share * corners.total))
        return most

    waiting = [(-inf, 0, EVERYTHING)]
    settled = list[Cell]()
    count = 0
    while waiting and count < most_cells:
        cell = heappop(waiting)[2]
        at_e, at_other = _sides(corners, cell)
        for half in cell.halves(0 if at_e > at_other else 1):
            tick()
            count += 1
            allowance = sum(_sides(corners, half))
            if allowance > whole * corners.total:
                heappush(waiting, (-inf, count, half))
            elif (excess := exceeded(half, allowance)) <= 1.0 or allowance <= share * corners.total:
                settled.append(half)
            else:
                heappush(waiting, (-excess, count, half))
    return settled, [cell for _, _, cell in waiting]


def _allowed(corners: _Corners, cells: list[Cell]) -> dict[tuple[float, float], float]:
    """What is added to each corner for what is inside the cells around it."""
    added: dict[tuple[float, float], float] = {}
    for cell in cells:
        allowance = sum(_sides(corners, cell)) * (1.0 + SAME) + SAME * corners.total
        for angles in corners.of(cell):
            added[angles] = max(added.get(angles, 0.0), allowance)
    return added
