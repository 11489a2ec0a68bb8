"""Polynomials that are orthonormal under a law of which only moments are known.

From ``E Y^0, ..., E Y^a`` the Chebyshev algorithm finds, in rational arithmetic, the monic orthogonal polynomials

    pi_(k+1)(x) = (x - alpha_k) pi_k(x) - beta_k pi_(k-1)(x),    E pi_k^2 = h_k = beta_k h_(k-1),

up to the order ``n = a // 2``. With ``p_k = pi_k / sqrt(h_k)`` the products

    p_0 p_0, p_0 p_1, p_1 p_1, p_1 p_2, ..., p_n p_n,    and x p_n p_n / alpha_n where a is odd,

span all polynomials of degree a and have the expectations 1, 0, 1, 0, ..., 1, and 1. None of them exceeds, on [0, oo),
the sum S of those whose expectation is 1. Nothing here is part of a proof: any combination may be proposed.

Theory: ``docs/theory/moment-majorants/programme.md``.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import lcm

import numpy as np
from scipy.linalg import eigh_tridiagonal

from hockeystick.laws.law import Array
from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import Polynomial

Coefficients = tuple[Fraction, ...]

LARGEST = 1e250
"""Largest coefficient, so that combinations stay in the range of doubles."""
SAFETY = 4.0
"""How many times its uncertainty a squared norm h_k must be."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis:
    """The basis of one law and one degree.

    Attributes:
        degree: a >= 2.
        centre: a double near the mean; exact coefficients are about it.
        root_mass: ``sqrt(E 1)``, so ``p_0 = 1 / root_mass``.
        diagonal: alpha_0, ..., alpha_n; the last one is 0 where a is even, since it is unknown then.
        off_diagonal: ``sqrt(beta_1), ..., sqrt(beta_n)``, shape (n,).
        functions: exact coefficients of every basis function about ``centre``, a + 1 of them of length a + 1.
        repair: those of S.
    """

    degree: int
    centre: float
    root_mass: float
    diagonal: Array
    off_diagonal: Array
    functions: tuple[Coefficients, ...]
    repair: Coefficients

    @property
    def order(self) -> int:
        """n, the highest degree of an orthogonal polynomial."""
        return self.degree // 2

    @property
    def expectations(self) -> Array:
        """The expectations of the basis functions, shape (a + 1,)."""
        result = np.zeros(self.degree + 1)
        result[: 2 * self.order + 1 : 2] = 1.0
        result[-1] = 1.0
        return result

    @property
    def at_infinity(self) -> Array:
        """The limits of the basis functions over S, shape (a + 1,)."""
        result = np.zeros(self.degree + 1)
        result[-1] = 1.0
        return result

    def quadrature(self, start: float) -> tuple[Array, Array] | None:
        """a + 1 nodes above ``start`` and positive weights that reproduce E on polynomials of degree a.

        None where no law on [start, oo) has these moments, or doubles overflow. The Gauss rule of the recurrence,
        continued by any positive q and e in ``alpha_k - start = q_(k+1) + e_k``, ``beta_k = q_k e_k``.
        """
        pairs = [float(self.diagonal[0]) - start]  # q_1, e_1, q_2, ..., as many as there are moments
        for k in range(1, self.degree):
            if pairs[-1] <= 0.0:
                return None
            if k % 2:
                pairs.append(float(self.off_diagonal[k // 2]) ** 2 / pairs[-1])
            else:
                pairs.append(float(self.diagonal[k // 2]) - start - pairs[-1])
        if pairs[-1] <= 0.0:
            return None
        for _ in range(self.degree + 1):  # each of the two goes on as it began: geometrically under heavy tails
            growth = pairs[-2] / pairs[-4] if len(pairs) > 3 else 1.0
            pairs.append(pairs[-2] * max(growth, 1.0))
        q, e = np.array(pairs[0::2]), np.array(pairs[1::2])
        with np.errstate(over="ignore", invalid="ignore"):
            diagonal, beside = start + q + np.append(0.0, e), np.sqrt(q[:-1] * e)
        if not (np.isfinite(diagonal).all() and np.isfinite(beside).all()):  # very heavy tails
            return None
        nodes, vectors = eigh_tridiagonal(diagonal, beside)
        return np.asarray(nodes), (self.root_mass * np.asarray(vectors[0])) ** 2

    def orthonormal(self, x: Array) -> Array:
        """``p_0(x), ..., p_n(x)`` by the recurrence, shape (n + 1, x.size)."""
        values = np.empty((self.order + 1, x.size))
        values[0] = 1.0 / self.root_mass
        for k in range(self.order):
            term = (x - self.diagonal[k]) * values[k]
            if k > 0:
                term = term - self.off_diagonal[k - 1] * values[k - 1]
            values[k + 1] = term / self.off_diagonal[k]
        return values

    def scaled(self, x: Array) -> tuple[Array, Array]:
        """The basis functions over S, shape (x.size, a + 1), and S, shape (x.size,), at x >= 0."""
        values = self.orthonormal(x)
        products = np.empty((self.degree + 1, x.size))
        products[: 2 * self.order + 1 : 2] = values * values
        products[1 : 2 * self.order : 2] = values[:-1] * values[1:]
        if self.degree % 2:
            products[-1] = x * values[-1] ** 2 / self.diagonal[-1]
        scale = products[self.expectations > 0.0].sum(axis=0)
        rows: Array = np.ascontiguousarray((products / scale).T)
        return rows, scale

    def combination(self, weights: Array) -> Polynomial:
        """``sum_i weights[i] basis_i`` about ``centre``, rounded to pairs of doubles."""
        exact = [Fraction(float(weight)) for weight in weights]
        common = lcm(*(weight.denominator for weight in exact))
        factors = [weight.numerator * (common // weight.denominator) for weight in exact]
        columns, denominator = self._over_one_denominator
        sums = [sum(a * b for a, b in zip(factors, column, strict=True)) for column in columns]
        return Polynomial.rounded(self.centre, [Fraction(total, common * denominator) for total in sums])

    @cached_property
    def _over_one_denominator(self) -> tuple[tuple[tuple[int, ...], ...], int]:
        """``functions``, one tuple for each power of x - centre, as numerators over one denominator."""
        denominator = lcm(*(c.denominator for function in self.functions for c in function))
        columns = zip(*self.functions, strict=True)
        return tuple(
            tuple(c.numerator * (denominator // c.denominator) for c in column) for column in columns
        ), denominator


def times_x(polynomial: Polynomial) -> Polynomial:
    """``x p(x)``, rounded to pairs of doubles: ``x = centre + (x - centre)``."""
    raised = _product(polynomial.exact, [Fraction(polynomial.centre), Fraction(1)])
    return Polynomial.rounded(polynomial.centre, raised)


def orthonormal_basis(moments: ExactMoments, degree: int) -> Basis | None:
    """The basis of ``degree`` >= 2, at most ``moments.degree``.

    None where the numbers are not clearly the moments of a law on [0, oo) with more than n atoms. Very heavy tails and
    nearly degenerate laws end there too.

    Cost: O(n^2) operations on rational numbers of some hundred to some thousand bits: about 1 ms for degree 8.
    """
    try:
        return _basis(moments, degree)
    except ArithmeticError:  # a coefficient beyond the range of doubles
        return None


def _basis(moments: ExactMoments, degree: int) -> Basis | None:
    order, values = degree // 2, moments.values
    if values[0] <= 0:
        return None
    recurrence = _chebyshev(values[: degree + 1], order)
    if recurrence is None:
        return None
    alpha, beta, norms = recurrence
    if any(bound * SAFETY >= 1.0 for bound in _uncertainty(moments, alpha, beta, norms)):
        return None
    centre = float(values[1] / values[0])
    diagonal = np.array([float(a) for a in alpha] + ([] if degree % 2 else [0.0]))
    off_diagonal = np.array([float(b) ** 0.5 for b in beta[1:]])
    if not (np.isfinite(off_diagonal).all() and (off_diagonal > 0.0).all()):
        return None
    functions, repair = _functions(centre, degree, alpha, beta, norms)
    if max(abs(c) for function in (*functions, repair) for c in function) > LARGEST:
        return None
    return Basis(
        degree=degree,
        centre=centre,
        root_mass=float(values[0]) ** 0.5,
        diagonal=diagonal,
        off_diagonal=off_diagonal,
        functions=functions,
        repair=repair,
    )


def _chebyshev(values: Coefficients, order: int) -> tuple[list[Fraction], list[Fraction], list[Fraction]] | None:
    """alpha_0.., beta_0, ..., beta_n and h_0, ..., h_n (Gautschi 2004, *Orthogonal Polynomials*, section 2.1.7)."""
    highest = len(values) - 1
    before, row = [Fraction(0)] * (highest + 1), list(values)  # E pi_k x^l for k - 1 and k
    alpha, beta, norms = [values[1] / values[0]], [values[0]], [values[0]]
    for k in range(1, order + 1):
        shift, weight = alpha[k - 1], beta[k - 1] if k > 1 else Fraction(0)
        following = [Fraction(0)] * (highest + 1)
        for power in range(k, highest - k + 1):
            following[power] = row[power + 1] - shift * row[power] - weight * before[power]
        before, row = row, following
        if row[k] <= 0:
            return None
        norms.append(row[k])
        beta.append(row[k] / before[k - 1])
        if k + 1 <= highest - k:
            alpha.append(row[k + 1] / row[k] - before[k] / before[k - 1])
    return alpha, beta, norms


def _uncertainty(
    moments: ExactMoments, alpha: list[Fraction], beta: list[Fraction], norms: list[Fraction]
) -> list[float]:
    """How far, relatively, the errors of the moments can move each ``h_k = E pi_k^2``, about.

    The coefficients of pi_k alternate in sign, as its zeros are positive, so their sizes are those of
    ``(-1)^k pi_k(-x)``, and the errors add up to the expectation of its square.
    """
    values = [float(value) for value in moments.values]
    before, row, result = np.zeros(1), np.ones(1), []
    for k in range(1, len(norms)):
        raised = np.append(0.0, row) + np.append(float(alpha[k - 1]) * row, 0.0)
        raised[: before.size] -= float(beta[k - 1]) * before if k > 1 else 0.0
        before, row = row, raised
        square = np.convolve(np.abs(row), np.abs(row))
        size = sum(c * value for c, value in zip(square, values, strict=False))
        result.append(float(moments.error) * float(size) / float(norms[k]))
    return result


def _functions(
    centre: float, degree: int, alpha: list[Fraction], beta: list[Fraction], norms: list[Fraction]
) -> tuple[tuple[Coefficients, ...], Coefficients]:
    """Exact coefficients of the basis functions and of S about ``centre``; square roots are rounded to doubles."""
    order, origin = degree // 2, Fraction(centre)
    monic: list[list[Fraction]] = [[Fraction(1)]]
    for k in range(order):
        following = _product(monic[k], [origin - alpha[k], Fraction(1)])
        if k > 0:
            following = _sum(following, [-beta[k] * c for c in monic[k - 1]])
        monic.append(following)
    # a size is a dyadic number of about 160 bits from here on, as good as exact and much faster than a ratio
    polynomials = [
        [_shortened(c * Fraction(float(norm) ** -0.5)) for c in coefficients]
        for coefficients, norm in zip(monic, norms, strict=True)
    ]
    functions = [_product(polynomials[0], polynomials[0])]
    repair = [Fraction(0)] * (degree + 1)
    for before, polynomial in pairwise(polynomials):
        functions += [_product(before, polynomial), _product(polynomial, polynomial)]
    if degree % 2:
        raised = _product([origin, Fraction(1)], functions[-1])
        functions.append([c * _shortened(1 / alpha[order]) for c in raised])
    for k in [*range(0, 2 * order + 1, 2), *range(2 * order + 1, degree + 1)]:
        repair = _sum(repair, functions[k])
    padding = [Fraction(0)] * (degree + 1)
    return tuple(tuple(_sum(padding, function)) for function in functions), tuple(repair)


def _product(left: list[Fraction], right: list[Fraction]) -> list[Fraction]:
    result = [Fraction(0)] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            result[i + j] += a * b
    return result


def _sum(left: list[Fraction], right: list[Fraction]) -> list[Fraction]:
    """The sum of two polynomials' coefficients; ``left`` is at least as long."""
    return [c + (right[k] if k < len(right) else 0) for k, c in enumerate(left)]


def _shortened(number: Fraction) -> Fraction:
    """The first three doubles of a number."""
    first = Fraction(float(number))
    second = Fraction(float(number - first))
    return first + second + Fraction(float(number - first - second))
