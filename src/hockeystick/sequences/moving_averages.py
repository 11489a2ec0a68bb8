"""Gaussians that are white noise beside moving averages of innovations, whose covariance ends by itself.

``z_i = whites[i] e_i + unit sum_s weights[i, s] y_(i // period - s)``, e_i and y_m independent standard normal. White
noise lets the innovations live on a lattice without any error worth the name; whole weights make what is seen of them
take few different values. Proof: docs/theory/moving-averages.md.
"""

from dataclasses import dataclass
from math import log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array

LATTICE_ERROR = 1e-3
"""What a lattice may make densities differ by: a twentieth of a percent of epsilon at most."""
LARGEST_SPACING, SEARCHES = 0.7, 40
"""A lattice of this spacing has the mass and the tilted means of normal variables up to 1e-17."""
SAME_BALL = 0.1
"""Standard deviations by which the balls of kept windows may be apart to count as one."""


@dataclass(frozen=True)
class MovingAverages:
    """``z_i = whites[i] e_i + unit sum_s weights[i, s] y_(i // period - s)``.

    Attributes:
        period: q, how many bins there are for each innovation; y_m is new at bin q m.
        weights: shape (b, d), d at least 2, whole numbers, the first of each bin not negative. Innovations before the
            first bin exist as well.
        unit: of the weights, positive.
        whites: shape (b,), positive standard deviations of the white noise.
        ring: whether innovations before the first bin are those of the last bins; the period divides b.
        lattice_error: relative difference of densities that the lattice may make, in all.
    """

    period: int
    weights: NDArray[np.int64]
    unit: float
    whites: Array
    ring: bool = False
    lattice_error: float = LATTICE_ERROR

    @property
    def bins(self) -> int:
        """b, how many terms there are."""
        return len(self.weights)

    @property
    def depth(self) -> int:
        """d, how many innovations a bin sees."""
        return int(self.weights.shape[1])

    @property
    def groups(self) -> NDArray[np.int64]:
        """The newest innovation of each bin, shape (b,)."""
        return np.arange(self.bins) // self.period

    @property
    def loadings(self) -> Array:
        """The weight of each innovation in each bin, the oldest first; shape (b, groups) on a ring, else d - 1 more."""
        return self.unit * loaded(self.weights, self.groups, self.ring)

    @property
    def products(self) -> Array:
        """The covariance of z, shape (b, b)."""
        products: Array = self.loadings @ self.loadings.T + np.diag(self.whites**2)
        return products

    @property
    def spacing(self) -> float:
        """The spacing of a lattice for the innovations that changes the density of z by less than ``lattice_error``.

        The pivots of the precision of the innovations given z decide, not its largest eigenvalue.
        """
        seen = self.loadings / self.whites[:, None]
        precision = np.eye(seen.shape[1]) + seen.T @ seen
        # any order of the innovations will do; the newest first, as fewer bins see it
        pivots = 1.000001 * np.linalg.cholesky(precision[::-1, ::-1]).diagonal() ** 2
        low, high = 0.0, LARGEST_SPACING
        for _ in range(SEARCHES):
            middle = 0.5 * (low + high)
            # each factor is at most 1 + 2.01 q as long as q is below a hundredth
            q = np.exp(-2.0 * pi**2 / (middle**2 * pivots))
            if float(q.max()) <= 0.01 and float(np.log1p(2.01 * q).sum()) <= log1p(self.lattice_error):
                low = middle
            else:
                high = middle
        return low


def loaded(rows: Array | NDArray[np.int64], groups: NDArray[np.int64], ring: bool) -> Array:
    """The weight of each innovation in each bin, the oldest first, on a ring from the same rows.

    Args:
        rows: shape (b, d), the weights of each bin, the newest innovation first.
        groups: shape (b,), the newest innovation of each bin.
    """
    bins, depth = rows.shape
    count = int(groups[-1]) + 1 if ring else depth + int(groups[-1])
    weights = np.zeros((bins, count))
    for s in range(depth):
        weights[np.arange(bins), (depth - 1 + groups - s) % count] = rows[:, s]
    return weights


@dataclass(frozen=True)
class InnovationWindows:
    """Windows of d innovations on a lattice that are kept; a state is what a window has beside its newest one.

    States with the same innovations but the newest follow each other, so the windows of a state lead to states
    ``begins[s]``, ``begins[s] + 1``, ...

    Attributes:
        spacing: h, of the lattice.
        places: shape (S, d - 1), the innovations of each state in steps of the lattice, the newest first.
        newest: shape (S,), the lowest newest innovation of the windows of each state.
        counts: shape (S,), how many windows each state has.
        begins: shape (S,), the state that the first of them leads to.
        chances: shape (S,), of the newest innovation of each state.
        start: shape (S,), of all innovations of each state.
    """

    spacing: float
    places: NDArray[np.int64]
    newest: NDArray[np.int64]
    counts: NDArray[np.int64]
    begins: NDArray[np.int64]
    chances: Array
    start: Array


def windows_of(chain: MovingAverages, lost: float, deadline: Deadline) -> InnovationWindows:
    """Windows but for such of a chance of about ``lost`` in all, under Q or given any one bin's tilt.

    Nothing rests on how much is left out: what is kept is summed exactly.
    """
    h, d = chain.spacing, chain.depth
    balls = _balls(chain, lost)
    side = int(max(np.abs(center).max() + radius for center, radius in balls) / h) + 1
    line = np.arange(-side, side + 1)
    n = line.size
    centers, squares = np.array([center for center, _ in balls]), np.array([radius**2 for _, radius in balls])
    places_of_line: Array = (h * line).astype(np.float64)
    first, last = np.full(n ** (d - 1), h * (side + 1)), np.full(n ** (d - 1), -h * (side + 1))
    for center, square in zip(centers, squares, strict=True):
        deadline.tick()
        _extend(places_of_line, center, square, first, last)
    low, high = np.ceil(first / h).astype(np.int64), np.floor(last / h).astype(np.int64)
    rows = (low <= high).reshape(-1, n)
    ends = np.where(rows, line, -side - 1).max(axis=1)
    firsts = np.where(rows, line, side + 1).min(axis=1)
    kept = ((line >= firsts[:, None]) & (line <= ends[:, None])).ravel()
    number = np.cumsum(kept) - 1
    row = np.arange(kept.size)[kept] % len(rows)
    low, high = np.maximum(low[kept], firsts[row]), np.minimum(high[kept], ends[row])
    counts = np.maximum(high - low + 1, 0)
    newest = np.where(counts > 0, low, 0)
    begins = np.where(counts > 0, number[row * n + np.clip(low, -side, side) + side], 0)
    index = np.flatnonzero(kept)
    places = np.stack([index // n**s % n - side for s in range(d - 1)], axis=1)
    masses = h / sqrt(2.0 * pi) * np.exp(-0.5 * (h * places) ** 2)
    return InnovationWindows(h, places, newest, counts, begins, masses[:, 0].copy(), masses.prod(axis=1))


def _extend(line: Array, center: Array, square: float, low: Array, high: Array) -> None:
    """Extend intervals of the first coordinate so that they reach through a ball, for every place of the others.

    Args:
        line: shape (n,), what each of the other coordinates may be.
        center: shape (d,), d at least 2.
        square: of the radius.
        low, high: shape (n ** (d - 1),), the intervals, which are changed; the second coordinate is the fastest.
    """
    left, box, radius = np.array(square), [], sqrt(square)  # what the other coordinates leave of the square
    for place in center[:0:-1]:
        near = slice(*np.searchsorted(line, [place - radius, place + radius]))
        left = left[..., None] - (line[near] - place) ** 2
        box.append(near)
    half = np.where(left >= 0.0, np.sqrt(np.maximum(left, 0.0)), -np.inf)
    for ends, end, further in ((low, center[0] - half, np.minimum), (high, center[0] + half, np.maximum)):
        inside = ends.reshape((line.size,) * len(box))[tuple(box)]  # a view
        further(inside, end, out=inside)


def _balls(chain: MovingAverages, lost: float) -> list[tuple[Array, float]]:
    """Centres and radii of balls that windows rarely leave: without a tilt, and where one bin tilts them."""
    from scipy.special import chdtri

    d, groups = chain.depth, int(chain.groups[-1]) + 1
    plain = sqrt(float(chdtri(d, 0.5 * lost / groups)))
    tilted = sqrt(float(chdtri(d, 0.5 * lost / (2 * d - 1))))
    centers = np.zeros((1, d))
    for row in chain.unit * np.unique(chain.weights, axis=0):
        padded = np.concatenate([np.zeros(d - 1), row, np.zeros(d - 1)])
        centers = np.vstack([centers, [padded[j : j + d] for j in range(2 * d - 1)]])
    merged = SAME_BALL * np.unique(np.rint(centers / SAME_BALL), axis=0)
    return [(np.zeros(d), plain)] + [(center, tilted) for center in merged if np.linalg.norm(center) + tilted > plain]
