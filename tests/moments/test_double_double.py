"""Arithmetic with pairs of doubles against rational numbers."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from hockeystick.moments.double_double import (
    DIVISION_ROUNDING,
    RECIPROCALS,
    ROUNDING,
    accumulate,
    add,
    add_positive,
    divide,
    gather,
    multiply,
    pair_of,
    product,
    products,
    rational,
    shift,
)


def random_pairs(count: int, seed: int, *, signed: bool) -> list[complex]:
    random = np.random.default_rng(seed)
    high = np.exp(random.uniform(-40.0, 40.0, count)) * (random.choice([-1.0, 1.0], count) if signed else 1.0)
    return (high + 1j * np.spacing(high) * random.uniform(-0.5, 0.5, count)).tolist()


OPERATIONS: dict[str, tuple[Callable[..., complex], Callable[..., Fraction], bool, float]] = {
    "add": (add, lambda a, b: a + b, True, ROUNDING),
    "add_positive": (add_positive, lambda a, b: a + b, False, ROUNDING),
    "multiply": (multiply, lambda a, b: a * b, True, ROUNDING),
    "divide": (divide, lambda a, b: a / b, False, DIVISION_ROUNDING),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_as_close_as_they_say_and_normalised(name: str) -> None:
    operation, truth, signed, error = OPERATIONS[name]
    for a, b in zip(random_pairs(300, 1, signed=signed), random_pairs(300, 2, signed=signed), strict=True):
        result, expected = operation(a, b), truth(rational(a), rational(b))
        assert abs(rational(result) / expected - 1) <= error
        assert abs(result.imag) <= np.spacing(abs(result.real)) / 2


def test_sums_that_cancel_keep_their_relative_error() -> None:
    for a, change in zip(random_pairs(200, 3, signed=True), random_pairs(200, 4, signed=True), strict=True):
        b = pair_of(-rational(a) * (1 + Fraction(change.real) / 2**130))
        expected = rational(a) + rational(b)
        assert abs(rational(add(a, b)) - expected) <= abs(expected) * Fraction(ROUNDING)


def test_exact_operations() -> None:
    for a, b in zip(random_pairs(100, 5, signed=True), random_pairs(100, 6, signed=True), strict=True):
        assert rational(product(a.real, b.real)) == Fraction(a.real) * Fraction(b.real)
        assert rational(shift(a, -0.25)) == rational(a) * Fraction(-1, 4)
    numbers = np.random.default_rng(7).random((3, 4))
    for pair, number in zip(products(0.3, numbers).ravel(), numbers.ravel(), strict=True):
        assert rational(pair) == Fraction(0.3) * Fraction(number)


def test_rational_numbers_become_pairs_within_their_last_bit() -> None:
    for n, pair in enumerate(RECIPROCALS.tolist()[1:], start=1):
        assert abs(rational(pair) * n - 1) <= Fraction(1, 2**106)
    assert rational(pair_of(Fraction(3, 4) + Fraction(1, 2**70))) == Fraction(3, 4) + Fraction(1, 2**70)


def test_rows_are_the_single_numbers() -> None:
    total, source = np.array(random_pairs(9, 8, signed=False)), np.array(random_pairs(9, 9, signed=False))
    weight, gathered, accumulated = 1.5 + 1e-17j, total.copy(), total.copy()
    gather(gathered, weight, source)
    accumulate(accumulated, source)
    for i in range(9):
        assert gathered[i] == add_positive(total[i], multiply(source[i], weight))
        assert accumulated[i] == add_positive(total[i], source[i])
