"""Arithmetic with unevaluated sums of two doubles, for kernels that need 30 digits.

A number is a pair ``(high, low)`` with ``|low| <= ulp(high) / 2``. With ``u = 2^-53``, the relative error of one
operation is at most (Joldes, Muller and Popescu 2017, *Tight and rigorous error bounds for basic building blocks of
double-word arithmetic*): ``3 u^2 + 13 u^3`` for :func:`add` (their Theorem 3.1), ``3 u^2`` for :func:`add_positive` of
numbers of one sign (Theorem 2.1), ``5 u^2`` for :func:`multiply` (Theorem 5.3). :data:`ROUNDING` = ``8 u^2`` covers
each of them. All hold while no product falls below ``2^-960`` and no result overflows; callers see to that.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

from numba import njit, types
from numba.extending import intrinsic

ROUNDING = 2.0**-103
"""Proved relative error of one operation."""


def _fused_multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), code


fused_multiply_add: Callable[[float, float, float], float] = cast(Any, intrinsic(_fused_multiply_add))
"""``a b + c`` with one rounding, everywhere: an instruction where the processor has it, a slow call elsewhere."""


@njit(cache=True)
def two_sum(a: float, b: float) -> tuple[float, float]:
    """``a + b`` exactly, as rounded sum and error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@njit(cache=True)
def quick_two_sum(a: float, b: float) -> tuple[float, float]:
    """:func:`two_sum` where ``|a| >= |b|`` or ``a = 0`` (Dekker)."""
    s = a + b
    return s, b - (s - a)


@njit(cache=True)
def two_product(a: float, b: float) -> tuple[float, float]:
    """``a b`` exactly, as rounded product and error."""
    p = a * b
    return p, fused_multiply_add(a, b, -p)


@njit(cache=True)
def add(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    """The sum of two numbers of any signs."""
    s, s_low = two_sum(a, b)
    t, t_low = two_sum(a_low, b_low)
    v, v_low = quick_two_sum(s, s_low + t)
    return quick_two_sum(v, t_low + v_low)


@njit(cache=True)
def add_positive(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    """The sum of two numbers of one sign; half the work of :func:`add`."""
    s, s_low = two_sum(a, b)
    return quick_two_sum(s, s_low + (a_low + b_low))


@njit(cache=True)
def multiply(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    """The product."""
    p, p_low = two_product(a, b)
    cross = fused_multiply_add(a, b_low, fused_multiply_add(a_low, b, a_low * b_low))
    return quick_two_sum(p, p_low + cross)


def rational(high: float, low: float) -> Fraction:
    """The pair as the rational number that it is."""
    return Fraction(high) + Fraction(low)


def pair_of(number: Fraction) -> tuple[float, float]:
    """The nearest double and the nearest double to the rest; relative error at most ``u^2``."""
    high = float(number)
    return high, float(number - Fraction(high))
