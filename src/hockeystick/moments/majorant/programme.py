"""Polynomials above or below a hockey stick whose expectation is as small or as large as moments allow.

The programme (UPPER) ``min { E p : p of degree a, p >= F on [start, oo) }`` is solved by exchange: the point where the
constraint is violated most replaces one of a + 1 points where p touches F, on grids that are refined around those.
What comes out is a candidate: ``p + eta S`` with a small eta is proved elsewhere, and costs ``eta E S``, about
``eta (n + 1)``.

Theory: ``docs/theory/moment-majorants/programme.md``.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import HockeyStick, Polynomial
from hockeystick.moments.majorant.basis import Basis, orthonormal_basis, times_x
from hockeystick.types import Side

Places = NDArray[np.int64]
"""Indices of points."""

TOLERANCE = 1e-11
"""How far, relative to S and to the size of the answer, a constraint may be violated on the grid."""
DUAL_TOLERANCE = 1e-6
"""How far the atoms' masses may be from positive ones with the right moments."""
MAX_EXCHANGES = 400
"""In one round."""
SMALLEST_PIVOT = 1e-11
ROUNDS = 3
"""Grids that are solved, each finer than the last around the atoms."""
FINER = 8
"""How many parts the cells beside an atom are cut into."""
COARSE_GAP = 1e-3
"""How far chords of F may lie above it on the first grid, relative to S and to the size of the answer."""
MAX_BENDS = 6
"""How often cells with a larger gap are cut into four."""
FARTHEST = 1e6
"""How far the grid goes, in units of the spread of the nodes."""
MARGIN = 1e-6
"""How much of S, relative to the answer, is added at once: a proof with some room needs far fewer cells."""
NEGLIGIBLE = 1e-40
"""A delta below any that is asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A polynomial that is nearly above F (UPPER) or below it (LOWER), for the proof to repair.

    Attributes:
        polynomial: P, near F: p itself, or ``x p(x)`` for a divided programme.
        repair: R > 0 on the domain: S, or ``x S(x)``; P + eta R (UPPER) or P - eta R (LOWER) is to be proved.
        points: increasing ends of cells for the proof; from the start of the domain to that of the tail.
        value: E p as well as doubles can; the optimum of the programme but for ``MARGIN``.
    """

    polynomial: Polynomial
    repair: Polynomial
    points: Array
    value: float


def propose(
    moments: ExactMoments,
    hockey_stick: HockeyStick,
    side: Side,
    *,
    degree: int,
    start: float = 0.0,
    divided: bool = False,
    target: float = NEGLIGIBLE,
) -> Candidate | None:
    """Solve the programme of ``degree`` for ``hockey_stick``.

    Args:
        moments: of a measure on ``[start, oo)``, orders 0..degree at least.
        side: UPPER asks for the least E p with p >= F on ``[start, oo)``, LOWER for the greatest with p <= F.
        degree: a >= 2.
        start: x0 >= 0; > 0 where ``divided``.
        divided: asks for ``x p(x) >= F(x)`` instead, with the same objective E p.
        target: an expectation too small to matter; nothing is resolved far below it.

    Returns: None where the moments do not determine a basis (see :func:`orthonormal_basis`) or the programme fails.
    Cost: some milliseconds.
    """
    basis = _cached_basis(moments, degree)
    rule = basis.quadrature(start) if basis is not None else None
    if basis is None or rule is None:
        return None
    with np.errstate(all="ignore"):  # what overflows is refused
        grid = _Grid(basis, hockey_stick, 1.0 if side is Side.UPPER else -1.0, divided, rule[0], start)
        grid.size = max(grid.size, target)
        grid.refine_bends()
        weights = _solution(grid)
        if weights is None:
            return None
        optimum = abs(float(weights @ basis.expectations))
        weights = weights + MARGIN * min(max(optimum, MARGIN), 1.0) * basis.expectations
        weights *= grid.sign * grid.size
        polynomial, repair = basis.combination(weights), Polynomial.rounded(basis.centre, basis.repair)
        if divided:
            polynomial, repair = times_x(polynomial), times_x(repair)
        return Candidate(
            polynomial=polynomial,
            repair=repair,
            points=_proof_points(grid, polynomial),
            value=float(weights @ basis.expectations),
        )


@lru_cache(maxsize=512)
def _cached_basis(moments: ExactMoments, degree: int) -> Basis | None:
    return orthonormal_basis(moments, degree)


class _Grid:
    """Points at which constraints are asked for, the last of them at infinity, and the atoms of a vertex.

    Attributes:
        sign: the constraints are those for p (1) or -p (-1): both are to lie above something.
        points: shape (N,), in any order.
        rows, values: of the constraints at the points; F over S there.
        atoms: places of the atoms, shape (a + 1,); N stands for infinity.
        size: of the answer: at most E F for some law with these moments, and at least 1 / (n + 1) of it for each.
    """

    def __init__(
        self, basis: Basis, hockey_stick: HockeyStick, sign: float, divided: bool, nodes: Array, start: float
    ) -> None:
        self.basis, self.hockey_stick, self.sign, self.divided = basis, hockey_stick, sign, divided
        self.points = _first_points(nodes, start)
        self.rows, self.values = self._at(self.points)
        self.atoms: Places = np.searchsorted(self.points, nodes)
        self.size = float(self.values.max())

    def _at(self, x: Array) -> tuple[Array, Array]:
        """The basis over S, shape (x.size, a + 1), and F (or F / x) over S."""
        rows, scale = self.basis.scaled(x)
        value = self.hockey_stick.value(x)
        return rows, (value / x if self.divided else value) / scale

    def refine_bends(self) -> None:
        """Cut cells where chords of F may lie above it by more than ``COARSE_GAP``."""
        for _ in range(MAX_BENDS):
            order = np.argsort(self.points)
            cells = _bent(self.points[order], self.values[order], self.rows[order, 0], self.size)
            if not cells.size:
                break
            self.join(_cuts(self.points[order], cells, 4))

    def join(self, points: Array) -> None:
        new = np.setdiff1d(points, self.points)
        rows, values = self._at(new)
        self.atoms[self.atoms == self.points.size] += new.size
        self.points = np.concatenate([self.points, new])
        self.rows = np.concatenate([self.rows, rows])
        self.values = np.concatenate([self.values, values])

    def points_around_atoms(self) -> Array:
        """Cuts of the cells on both sides of every atom."""
        order = np.argsort(self.points)
        place = np.empty(order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        own = place[self.atoms[self.atoms < self.points.size]]
        cells = np.unique(np.clip(np.concatenate([own - 1, own]), 0, order.size - 2))
        return _cuts(self.points[order], cells, FINER)


def _cuts(increasing: Array, cells: Places, parts: int) -> Array:
    """The points that cut the named cells into equal parts."""
    left, right = increasing[cells], increasing[cells + 1]
    return (left[:, None] + (right - left)[:, None] * (np.arange(1, parts) / parts)).ravel()


def _first_points(nodes: Array, start: float) -> Array:
    """Geometric below the nodes, Chebyshev and geometric between them, geometric above them; the nodes among them."""
    spread = nodes[-1] - nodes[0]
    waves = 0.5 - 0.5 * np.cos(np.pi * (np.arange(14) + 0.5) / 14)
    left, right = nodes[:-1, None], nodes[1:, None]
    between = left + (right - left) * waves
    stretched = left * (right / left) ** (np.arange(1, 6) / 6)
    below = start + (nodes[0] - start) * np.geomspace(1e-6, 1.0, 24, endpoint=False)
    beside = nodes[0] - np.minimum(spread * np.geomspace(1e-3, 1e3, 24), nodes[0] - start)
    above = nodes[-1] + spread * np.geomspace(1e-3, FARTHEST, 72)
    parts = [np.array([start]), nodes, between.ravel(), stretched.ravel(), below, beside, above]
    return np.unique(np.concatenate(parts))


def _bent(x: Array, values: Array, flat: Array, size: float) -> Places:
    """Cells where chords of F may lie above it by more than ``COARSE_GAP``: ``h (s_after - s_before) / 8`` at most.

    ``flat`` is ``p_0 / S``, so that values over it are those of F in a fixed unit.
    """
    width = np.diff(x)
    slopes = np.diff(values / flat) / width
    change = np.abs(np.diff(slopes))
    around = np.maximum(np.append(change, 0.0), np.append(0.0, change))
    gap = around * width * np.minimum(flat[1:], flat[:-1]) / 8.0
    return np.flatnonzero(gap > COARSE_GAP * size)


def _solution(grid: _Grid) -> Array | None:
    """Weights of the basis functions in p (or -p), in units of ``grid.size``: of the finest grid that was solved."""
    basis, sign = grid.basis, grid.sign
    solved, weights = None, np.zeros(basis.degree + 1)
    for k in range(ROUNDS):
        if k > 0:
            grid.join(grid.points_around_atoms())
        rows = np.concatenate([grid.rows, basis.at_infinity[None]])
        values = np.append(sign * grid.values / grid.size, 0.0)
        if not (np.isfinite(rows).all() and np.isfinite(values).all()):
            return solved
        if not exchange(rows, values, basis.expectations, grid.atoms, weights):
            return solved
        solved = weights.copy()
    return solved


@kernel(inline="always")
def _inverse(rows: Array, atoms: Places, work: Array) -> bool:
    """Gauss and Jordan with row pivots on the rows at the atoms; False where they are dependent.

    The inverse becomes the right half of ``work``, shape (size, 2 size). Both halves are one array, as every entry that
    is read or written takes milliseconds to compile.
    """
    size = work.shape[0]
    for i in range(size):
        for j in range(size):
            work[i, j] = rows[atoms[i], j]
            work[i, size + j] = 0.0
        work[i, size + i] = 1.0
    for k in range(size):
        pivot = k
        for i in range(k + 1, size):
            if abs(work[i, k]) > abs(work[pivot, k]):
                pivot = i
        largest = work[pivot, k]
        if not abs(largest) > 1e-300:
            return False
        factor = 1.0 / largest
        for j in range(2 * size):
            entry = work[pivot, j]
            work[pivot, j] = work[k, j]
            work[k, j] = factor * entry
        for i in range(size):
            factor = work[i, k]
            if i != k and factor != 0.0:
                for j in range(2 * size):
                    work[i, j] -= factor * work[k, j]
    return True


def exchange(rows: Array, values: Array, expectations: Array, atoms: Places, weights: Array) -> bool:
    """``min expectations @ weights`` subject to ``rows @ weights >= values``, by exchanges from a vertex of the dual.

    Args:
        rows, values: shapes (N, d) and (N,).
        expectations: shape (d,); a non-negative combination of the rows at ``atoms``.
        atoms: shape (d,), places of the rows that are equalities; overwritten by those at the end.
        weights: shape (d,), overwritten by the solution.

    Returns: False where no optimum is reached: within ``MAX_EXCHANGES``, or because the rows at the atoms are
        dependent. Violations up to ``TOLERANCE`` are none.
    Cost: commonly 2 d to 8 d exchanges, of O(N d + d^3) each.
    """
    size = rows.shape[1]
    mass = np.empty(size)
    if not _exchange(rows, values, expectations, atoms, weights, np.empty((size, 2 * size)), mass):
        return False
    # Where the masses at the atoms are what they should be, by duality, the weights are optimal.
    rest = expectations - mass @ rows[atoms]
    return bool((np.abs(rest) <= DUAL_TOLERANCE).all() and (mass >= -DUAL_TOLERANCE).all())


@kernel
def _exchange(
    rows: Array, values: Array, expectations: Array, atoms: Places, weights: Array, work: Array, mass: Array
) -> bool:
    """:func:`exchange` but for its last check, on the masses at the atoms that this leaves in ``mass``, shape (size,).

    ``work``, shape (size, 2 size), is to work in.
    """
    size = rows.shape[1]
    for _ in range(MAX_EXCHANGES):
        if not _inverse(rows, atoms, work):
            return False
        for i in range(size):
            weight, own = 0.0, 0.0
            for j in range(size):
                weight += work[i, size + j] * values[atoms[j]]  # the constraints at the atoms are equalities
                own += work[j, size + i] * expectations[j]  # the atoms' law has the moments: the vertex of the dual
            weights[i] = weight
            mass[i] = own
        worst, entering = -TOLERANCE, -1  # the constraint that is violated most becomes an atom
        for k in range(rows.shape[0]):
            excess = -values[k]
            for j in range(size):
                excess += rows[k, j] * weights[j]
            if excess < worst:
                worst, entering = excess, k
        if entering < 0:
            return True
        leaving, step = -1, np.inf  # and the atom goes whose mass is the first to be used up
        for i in range(size):
            change = 0.0
            for j in range(size):
                change += work[j, size + i] * rows[entering, j]
            if change > SMALLEST_PIVOT:
                ratio = max(mass[i], 0.0) / change
                if ratio < step:
                    leaving, step = i, ratio
        if leaving < 0:
            return False
        atoms[leaving] = entering
    return False


def _proof_points(grid: _Grid, candidate: Polynomial) -> Array:
    """The grid up to a point where ``P - line`` (UPPER) or ``line - P`` has no negative derivative, as it seems.

    The line has F's height at the point, and the largest slope of F (UPPER) or about the slope of F there (LOWER).
    """
    points = np.sort(grid.points)
    sign, hockey_stick = grid.sign, grid.hockey_stick
    atoms = grid.points[grid.atoms[grid.atoms < grid.points.size]]
    tails = points[points > atoms.max()]
    heights = hockey_stick.value(points[points >= atoms.max()])
    derivatives = sign * _taylor(candidate, tails)
    derivatives[0] -= sign * heights[1:]
    if sign > 0.0:
        derivatives[1] -= hockey_stick.line_beyond(float(points[-1]))[1]
    else:
        derivatives[1] += np.diff(heights) / np.diff(points[points >= atoms.max()])
    good = (derivatives >= 0.0).all(axis=0)
    last = tails[np.argmax(good)] if good.any() else points[-1]
    cells: Array = points[points <= last]
    return cells


def _taylor(polynomial: Polynomial, x: Array) -> Array:
    """Taylor coefficients about every x in doubles, shape (degree + 1, x.size)."""
    size = polynomial.degree + 1
    binomials = np.array([[comb(k, j) for k in range(size)] for j in range(size)], dtype=np.float64)
    powers = (x - polynomial.centre)[:, None] ** np.arange(size)
    result = np.zeros((size, x.size))
    for j in range(size):
        result[j] = powers[:, : size - j] @ (binomials[j, j:] * polynomial.coefficients.real[j:])
    return result
