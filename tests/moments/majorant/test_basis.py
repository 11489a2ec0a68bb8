"""The orthonormal basis against atoms that are known, in rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from hockeystick.moments.exact import ExactMoments
from hockeystick.moments.majorant.base import Polynomial
from hockeystick.moments.majorant.basis import Basis, orthonormal_basis, times_x

ATOMS = [Fraction(k, 8) for k in (1, 3, 6, 7, 9, 12, 20, 40)]
MASSES = [Fraction(k, 100) for k in (9, 20, 11, 25, 15, 10, 9, 1)]


def moments_of(
    atoms: list[Fraction], masses: list[Fraction], degree: int, error: Fraction = Fraction(0)
) -> ExactMoments:
    values = tuple(sum((w * x**k for w, x in zip(masses, atoms, strict=True)), Fraction(0)) for k in range(degree + 1))
    return ExactMoments(values=values, error=error)


def basis_of(degree: int, scale: Fraction = Fraction(1)) -> Basis:
    basis = orthonormal_basis(moments_of(ATOMS, [scale * w for w in MASSES], degree), degree)
    assert basis is not None
    return basis


def exact_value(polynomial: Polynomial, x: Fraction) -> Fraction:
    offset = x - Fraction(polynomial.centre)
    return sum((coefficient * offset**k for k, coefficient in enumerate(polynomial.exact)), Fraction(0))


@pytest.mark.parametrize("degree", range(2, 14))
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(1, 10**4)])
def test_orthonormal_under_the_law(degree: int, scale: Fraction) -> None:
    basis = basis_of(degree, scale)
    values = basis.orthonormal(np.array([float(x) for x in ATOMS]))
    masses = np.array([float(scale * w) for w in MASSES])
    assert (values * masses) @ values.T == pytest.approx(np.eye(degree // 2 + 1), abs=1e-10)


@pytest.mark.parametrize("degree", range(2, 14))
def test_expectations_of_the_basis(degree: int) -> None:
    basis = basis_of(degree)
    for i, expected in enumerate(basis.expectations):
        unit = basis.combination(np.eye(degree + 1)[i])
        mean = sum((w * exact_value(unit, x) for w, x in zip(MASSES, ATOMS, strict=True)), Fraction(0))
        assert float(mean) == pytest.approx(expected, abs=1e-13)
        assert unit.degree == degree
        assert np.flatnonzero(unit.coefficients)[-1] == i


@pytest.mark.parametrize("degree", [2, 3, 6, 7, 12])
def test_rows_are_the_exact_polynomials_over_the_repair(degree: int) -> None:
    basis, repair = basis_of(degree), Polynomial.rounded(basis_of(degree).centre, basis_of(degree).repair)
    places = [Fraction(0), Fraction(1, 100), Fraction(1), Fraction(33, 10), Fraction(1000)]
    rows, scale = basis.scaled(np.array([float(x) for x in places]))
    assert (np.abs(rows) <= 1.0 + 1e-12).all()
    weights = np.random.default_rng(3).standard_normal(degree + 1)
    polynomial = basis.combination(weights)
    for row, size, x in zip(rows, scale, places, strict=True):
        x = Fraction(float(x))
        assert size == pytest.approx(float(exact_value(repair, x)), rel=1e-9)
        assert row @ weights == pytest.approx(float(exact_value(polynomial, x) / exact_value(repair, x)), abs=1e-9)


@pytest.mark.parametrize("degree", range(2, 13))
def test_limits_at_infinity(degree: int) -> None:
    basis = basis_of(degree)
    rows, _ = basis.scaled(np.array([1e9]))
    assert rows[0] == pytest.approx(basis.at_infinity, abs=1e-3)


@pytest.mark.parametrize("degree", range(2, 13))
@pytest.mark.parametrize("start", [0.0, 0.12])
def test_quadrature_reproduces_the_moments(degree: int, start: float) -> None:
    rule = basis_of(degree).quadrature(start)
    assert rule is not None
    nodes, weights = rule
    assert nodes.size == degree + 1
    assert nodes.min() > start
    assert weights.min() > 0.0
    for k, value in enumerate(moments_of(ATOMS, MASSES, degree).values):
        assert weights @ nodes**k == pytest.approx(float(value), rel=1e-10)


def test_no_quadrature_where_no_law_has_the_moments() -> None:
    assert basis_of(2).quadrature(2.0) is None  # the mean is below 2
    assert basis_of(8).quadrature(0.5) is None  # the atoms at 1/8 and 3/8 show
    negative = orthonormal_basis(moments_of([x - 1 for x in ATOMS], MASSES, 8), 8)
    assert negative is not None
    assert negative.quadrature(0.0) is None
    odd = orthonormal_basis(moments_of([x - Fraction(1, 2) for x in ATOMS], MASSES, 9), 9)
    assert odd is not None
    assert odd.quadrature(0.0) is None


def test_refuses_laws_with_too_few_atoms() -> None:
    two = moments_of(ATOMS[:2], [Fraction(1, 2)] * 2, 6)
    assert orthonormal_basis(two, 3) is not None
    assert orthonormal_basis(two, 4) is None
    assert orthonormal_basis(two, 6) is None


def test_refuses_moments_whose_errors_matter() -> None:
    narrow = [1 + (x - 1) / 1000 for x in ATOMS]
    exact = moments_of(narrow, MASSES, 8)
    assert orthonormal_basis(exact, 8) is not None
    assert orthonormal_basis(moments_of(narrow, MASSES, 8, Fraction(1, 10**30)), 8) is not None
    assert orthonormal_basis(moments_of(narrow, MASSES, 8, Fraction(1, 10**18)), 8) is None
    moved = tuple(m * (1 + Fraction((-1) ** k, 10**6)) for k, m in enumerate(exact.values))
    basis = orthonormal_basis(ExactMoments(values=moved, error=Fraction(0)), 8)
    assert basis is None or basis.quadrature(0.0) is None


def test_refuses_what_doubles_cannot_hold() -> None:
    huge = moments_of([Fraction(1), Fraction(10) ** 60, Fraction(10) ** 61, Fraction(10) ** 62], MASSES[:4], 6)
    assert orthonormal_basis(huge, 6) is None
    tiny = moments_of([1 + (x - 1) / 10**50 for x in ATOMS], MASSES, 6)
    assert orthonormal_basis(tiny, 6) is None
    empty = ExactMoments(values=(Fraction(0),) * 5, error=Fraction(0))
    assert orthonormal_basis(empty, 4) is None


def test_times_x() -> None:
    polynomial = Polynomial.rounded(1.5, [Fraction(1, 3), Fraction(-2), Fraction(1, 7)])
    raised = times_x(polynomial)
    for x in (Fraction(0), Fraction(1), Fraction(22, 7)):
        assert float(exact_value(raised, x)) == pytest.approx(float(x * exact_value(polynomial, x)), rel=1e-15)
