"""The certificate of a moment bound: a polynomial lies above (or below) a hockey stick, and what its expectation is.

Nothing here knows how a polynomial was found. On a cell [l, r] a convex hockey stick F lies below the chord of two
upper bounds of F(l) and F(r), and above each of its tangents. A polynomial minus a line is >= 0 on the cell if its
Bernstein coefficients there are; on [x, oo) if its Taylor coefficients about x are. Every rounding is charged.

Proofs: ``docs/theory/moment-majorants/proof.md``.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from math import inf, isfinite, nextafter

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import HockeyStick, Polynomial
from hockeystick.moments.majorant.proof_kernels import (
    ERROR_ROUNDING,
    bernstein_coefficients,
    bernstein_weights,
    deficits,
    repairs_needed,
    taylor_coefficients,
)
from hockeystick.types import Side

QUARTERINGS = 10
"""How often a cell may be cut into four; the gap of chord or tangent shrinks by 16 each time."""
MOST_CELLS = 20_000
"""Cells examined in all; with more the certificate does not close."""
CAUTION = 2.5
"""Factor on bounds on rounding while a repair is sought; the proof itself uses them as they are."""
CLOSE_ENOUGH = 1.01
"""A cell is not cut for less than this factor of a repair that some point needs however cells are cut."""
FAR_OUT = 1e300
"""A place where the tangent of F is its asymptote."""
UNDERFLOW = 1e-300
"""More than a value of a line can lose at the end of the range of doubles."""


def repair_needed(
    polynomial: Polynomial, repair: Polynomial, hockey_stick: HockeyStick, side: Side, points: Array
) -> float:
    """How often ``repair`` has to be added (UPPER) or subtracted (LOWER) until the certificate closes; inf if never.

    With :func:`repaired` it passes :func:`proves` with the same points.

    Args:
        repair: should be positive on ``[points[0], oo)``.
        hockey_stick: F.
        side: UPPER for polynomial >= F, LOWER for polynomial <= F.
        points: shape (n,), n >= 1, increasing, finite, >= 0; the ends of the cells, the last one the start of the tail.

    Raises: InvalidInputError for points that are not like that.
    """
    return _Claim(polynomial, repair, hockey_stick, side, CAUTION).repair_needed(_checked(points))


def proves(polynomial: Polynomial, hockey_stick: HockeyStick, side: Side, points: Array) -> bool:
    """Whether it is proved that polynomial >= F (UPPER) or <= F (LOWER) on all of ``[points[0], oo)``.

    False says only that no proof was found. Cost: about 3 microseconds per cell at degree 12.
    Raises: InvalidInputError as :func:`repair_needed`.
    """
    return _Claim(polynomial, None, hockey_stick, side, 1.0).repair_needed(_checked(points)) == 0.0


def repaired(polynomial: Polynomial, repair: Polynomial, eta: float, side: Side) -> Polynomial:
    """``polynomial + eta repair`` (UPPER) or ``- eta repair`` (LOWER), with slightly more than eta, rounded to pairs.

    Raises: InvalidInputError for different centres.
    """
    if polynomial.centre != repair.centre:
        raise InvalidInputError(f"The repair has the centre {repair.centre!r}, but {polynomial.centre!r} is needed.")
    if eta == 0.0:
        return polynomial
    factor = Fraction(eta) * Fraction(1001, 1000) * (1 if side is Side.UPPER else -1)
    pairs = zip_longest(polynomial.exact, repair.exact, fillvalue=Fraction(0))
    return Polynomial.rounded(polynomial.centre, [first + factor * second for first, second in pairs])


def expectation(polynomial: Polynomial, moments: ExactMoments, side: Side) -> float:
    """``E p(Y)`` from the moments of Y, in rational arithmetic: at least (UPPER) or at most (LOWER) the exact value.

    With raw coefficients a_k it is ``sum_k a_k M_k``, up to ``error sum_k |a_k| M_k``; rounded once.

    Raises: InvalidInputError for fewer moments than the polynomial's degree, or coefficients that are not finite.
    """
    if moments.degree < polynomial.degree:
        raise InvalidInputError(f"Moments up to {polynomial.degree} are needed, but they end at {moments.degree}.")
    if not (isfinite(polynomial.centre) and np.isfinite(polynomial.coefficients).all()):
        raise InvalidInputError("The polynomial has coefficients that are not finite.")
    terms = [a * m for a, m in zip(_raw_coefficients(polynomial), moments.values, strict=False)]
    margin = moments.error * sum((abs(term) for term in terms), Fraction(0))
    total = sum(terms, Fraction(0))
    return _rounded(total + margin, inf) if side is Side.UPPER else _rounded(total - margin, -inf)


@dataclass(frozen=True, eq=False)
class _Claim:
    """What is to be proved; without a repair only the multiple 0 or inf comes out."""

    polynomial: Polynomial
    repair: Polynomial | None
    hockey_stick: HockeyStick
    side: Side
    caution: float

    def repair_needed(self, points: Array) -> float:
        """The smallest multiple found: cells above what is needed anyway are cut, those that need most first."""
        needed = self._beyond(float(points[-1]))
        edges = points[None, :]
        budget = MOST_CELLS
        for round_ in range(QUARTERINGS + 1):
            cells = edges.shape[0] * (edges.shape[1] - 1)
            if cells == 0 or not needed < inf:
                break
            budget -= cells
            needs, at_left = self._on_cells(edges)
            needed = max(needed, float(at_left.max()))
            too_much = np.flatnonzero(needs > CLOSE_ENOUGH * needed)
            if round_ == QUARTERINGS:
                too_much = too_much[:0]
            too_much = too_much[np.argsort(-needs[too_much], kind="stable")][: max(budget // 4, 0)]
            left_as_they_are = np.ones(cells, dtype=bool)
            left_as_they_are[too_much] = False
            needed = max(needed, float(needs[left_as_they_are].max(initial=0.0)))
            edges = _quartered(edges[:, :-1].ravel()[too_much], edges[:, 1:].ravel()[too_much])
        return needed

    def _on_cells(self, edges: Array) -> tuple[Array, Array]:
        """What each cell needs, and what its left end needs alone. ``edges``: rows of neighbouring cells' ends."""
        left = edges[:, :-1].ravel()
        width = edges[:, 1:].ravel() - left
        weights = bernstein_weights(self._degree)
        values, bounds = bernstein_coefficients(*_taylor(self.polynomial, left), width, weights)
        missing = deficits(values, bounds, self._targets(edges), self._sign, self.caution)
        short = np.flatnonzero(~(missing.max(axis=2).min(axis=1) <= 0.0))
        needed, at_left = np.zeros(left.size), np.zeros(left.size)
        if short.size:
            gain = np.zeros((2, short.size, weights.shape[0]))
            if self.repair is not None:
                gain[:] = bernstein_coefficients(*_taylor(self.repair, left[short]), width[short], weights)
            needed[short], at_left[short] = repairs_needed(missing[short], gain[0], gain[1], self.caution)
        return needed, at_left

    def _targets(self, edges: Array) -> Array:
        """Lines on each cell, as :func:`deficits` takes them: the chord above F, or tangents below it."""
        if self.side is Side.UPPER:
            heights = self.hockey_stick.above(edges.ravel()).reshape(edges.shape)
            left, right = heights[:, :-1].ravel(), heights[:, 1:].ravel()
            return np.array([[left, right, np.zeros(left.size)]])
        left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel()
        intercept, slope = self.hockey_stick.line_below(np.concatenate([left, 0.5 * (left + right), right]))
        intercept, slope = intercept.reshape(3, -1), slope.reshape(3, -1)
        lost = 4.0 * UNIT_ROUNDOFF * (np.abs(intercept) + np.abs(slope) * right)
        lost = lost + np.where(slope != 0.0, UNDERFLOW, 0.0)
        return np.stack([intercept + slope * left, intercept + slope * right, lost], axis=1)

    def _beyond(self, start: float) -> float:
        """What the tail needs: Taylor coefficients about its start of the difference to one line.

        Below F that is the tangent at the start or, but for rounding, the asymptote, whichever is better.
        """
        if self.side is Side.UPPER:
            lines = [self.hockey_stick.line_beyond(start)]
        else:
            lines = list(zip(*self.hockey_stick.line_below(np.array([start, FAR_OUT])), strict=True))
        place = np.array([start])
        size = self._degree + 1
        values, errors = _padded(_taylor(self.polynomial, place), size)
        gain, uncertain = np.zeros((1, size)), np.zeros((1, size))
        if self.repair is not None:
            gain, uncertain = _padded(_taylor(self.repair, place), size)
        missing = np.empty((1, len(lines), size))
        for i, (intercept, slope) in enumerate(lines):
            line, lost = np.zeros(size), np.zeros(size)
            line[:2] = intercept + slope * start, slope
            lost[0] = 4.0 * UNIT_ROUNDOFF * (abs(intercept) + abs(slope) * start) + (UNDERFLOW if slope else 0.0)
            with np.errstate(over="ignore", invalid="ignore"):  # what is not a number proves nothing
                missing[0, i] = ERROR_ROUNDING * self.caution * (errors[0] + lost) - self._sign * (values[0] - line)
        return float(repairs_needed(missing, gain, uncertain, self.caution)[0][0])

    @property
    def _sign(self) -> float:
        return 1.0 if self.side is Side.UPPER else -1.0

    @property
    def _degree(self) -> int:
        """The degree of the Bernstein form: that of the polynomials, and at least 1 for the line."""
        return max(1, self.polynomial.degree, self.repair.degree if self.repair is not None else 0)


def _taylor(polynomial: Polynomial, places: Array) -> tuple[Array, Array]:
    return taylor_coefficients(polynomial.coefficients, polynomial.centre, np.ascontiguousarray(places))


def _padded(rows: tuple[Array, Array], size: int) -> tuple[Array, Array]:
    """One row of coefficients and of errors, with zeros up to ``size``."""
    missing = np.zeros((1, size - rows[0].shape[1]))
    return np.concatenate([rows[0], missing], axis=1), np.concatenate([rows[1], missing], axis=1)


def _quartered(left: Array, right: Array) -> Array:
    """The five ends of the quarters of each cell, shape (cells, 5)."""
    inner = left[:, None] + (right - left)[:, None] * np.array([0.25, 0.5, 0.75])
    inner = np.clip(inner, left[:, None], right[:, None])
    return np.concatenate([left[:, None], inner, right[:, None]], axis=1)


def _checked(points: Array) -> Array:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 1 or points.size == 0 or not np.isfinite(points).all() or points[0] < 0.0:
        raise InvalidInputError("The points must be a list of finite numbers >= 0, one at least.")
    if not (np.diff(points) > 0.0).all():
        raise InvalidInputError("The points must increase.")
    return points


def _raw_coefficients(polynomial: Polynomial) -> list[Fraction]:
    """a_k with ``p(x) = sum_k a_k x^k``, by synthetic division in whole numbers.

    With the centre ``m / 2^f`` and ``y = 2^f x`` the coefficients about m are whole numbers over one power of two.
    """
    centre, denominator = polynomial.centre.as_integer_ratio()
    coefficients = polynomial.exact
    degree = polynomial.degree
    common = max(c.denominator for c in coefficients) * denominator**degree
    whole = [c.numerator * (common // (c.denominator * denominator**k)) for k, c in enumerate(coefficients)]
    for first in range(degree):
        for k in range(degree - 1, first - 1, -1):
            whole[k] -= centre * whole[k + 1]
    return [Fraction(number * denominator**k, common) for k, number in enumerate(whole)]


def _rounded(number: Fraction, towards: float) -> float:
    """The number as a double that is not on the wrong side of it."""
    try:
        nearest = float(number)
    except OverflowError:
        nearest = inf if number > 0 else -inf
        return nearest if nearest == towards else -nextafter(towards, 0.0)
    wrong = nearest < number if towards > 0.0 else nearest > number
    return nextafter(nearest, towards) if wrong else nearest
