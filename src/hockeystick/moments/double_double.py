"""Arithmetic with unevaluated sums of two doubles ("pairs"), for kernels that need 30 digits.

**Storage.** A pair is one complex number: the high part is its real part, the low part its imaginary part,
``|low| <= ulp(high) / 2``. Arrays of pairs have dtype complex128 and the shape of what they hold. Only the functions of
this module may combine pairs; numpy's own ``+`` and ``*`` would do complex arithmetic.

**Error.** With ``u = 2^-53``, the relative error of one operation is at most (Joldes, Muller and Popescu 2017, *Tight
and rigorous error bounds for basic building blocks of double-word arithmetic*): ``3 u^2 + 13 u^3`` for :func:`add`
(their Theorem 3.1), ``3 u^2`` for :func:`add_positive` of numbers of one sign (Theorem 2.1), ``5 u^2`` for
:func:`multiply` (Theorem 5.3). :data:`ROUNDING` = ``8 u^2`` covers each of them. The bounds hold while no product falls
below ``2^-960`` and no result overflows; callers see to that.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array

Pairs = NDArray[np.complex128]

ROUNDING, DIVISION_ROUNDING = 2.0**-103, 2.0**-102
"""Proved relative errors of one operation, and of :func:`divide`."""


def _fused_multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), code


fused_multiply_add: Callable[[float, float, float], float] = cast(Any, intrinsic(_fused_multiply_add))
"""``a b + c`` with one rounding, everywhere: an instruction where the processor has it, a slow call elsewhere."""


@kernel
def two_sum(a: float, b: float) -> tuple[float, float]:
    """``a + b`` exactly, as rounded sum and error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@kernel
def _quick_two_sum(a: float, b: float) -> complex:
    """``a + b`` exactly where ``|a| >= |b|`` or ``a = 0`` (Dekker)."""
    s = a + b
    return complex(s, b - (s - a))


@kernel
def product(a: float, b: float) -> complex:
    """``a b`` exactly."""
    p = a * b
    return complex(p, fused_multiply_add(a, b, -p))


@kernel
def add(a: complex, b: complex) -> complex:
    """The sum of two numbers of any signs."""
    s, s_low = two_sum(a.real, b.real)
    t, t_low = two_sum(a.imag, b.imag)
    v = _quick_two_sum(s, s_low + t)
    return _quick_two_sum(v.real, t_low + v.imag)


@kernel
def add_positive(a: complex, b: complex) -> complex:
    """The sum of two numbers of one sign; half the work of :func:`add`."""
    s, s_low = two_sum(a.real, b.real)
    return _quick_two_sum(s, s_low + (a.imag + b.imag))


@kernel
def multiply(a: complex, b: complex) -> complex:
    """The product."""
    p = product(a.real, b.real)
    cross = fused_multiply_add(a.real, b.imag, fused_multiply_add(a.imag, b.real, a.imag * b.imag))
    return _quick_two_sum(p.real, p.imag + cross)


@kernel
def divide(a: complex, b: complex) -> complex:
    """The quotient, as that of the high parts and what is left over it."""
    q = a.real / b.real
    rest = add(a, -multiply(b, complex(q, 0.0)))
    return _quick_two_sum(q, rest.real / b.real)


@kernel
def shift(a: complex, factor: float) -> complex:
    """``a`` times a power of two or its negative, exactly."""
    return complex(factor * a.real, factor * a.imag)


@kernel
def gather(total: Pairs, weight: complex, source: Pairs) -> None:
    """``total += weight source``, element by element, for numbers of one sign."""
    for k in range(total.size):
        total[k] = add_positive(total[k], multiply(source[k], weight))


@kernel
def accumulate(total: Pairs, source: Pairs) -> None:
    """``total += source``, element by element, for numbers of one sign."""
    for k in range(total.size):
        total[k] = add_positive(total[k], source[k])


def products(scale: float, numbers: Array) -> Pairs:
    """``scale * numbers`` exactly, for an array of any shape."""
    result = np.empty(numbers.size, dtype=np.complex128)
    _products(scale, np.ravel(numbers), result)
    return result.reshape(numbers.shape)


@kernel
def _products(scale: float, numbers: Array, result: Pairs) -> None:
    """:func:`products` of a row of numbers, into ``result``."""
    for i in range(numbers.size):
        result[i] = product(scale, numbers[i])


def rational(pair: complex) -> Fraction:
    """The pair as the rational number that it is."""
    return Fraction(float(pair.real)) + Fraction(float(pair.imag))


def pair_of(number: Fraction) -> complex:
    """The nearest double and the nearest double to the rest; relative error at most ``u^2``."""
    high = float(number)
    return complex(high, float(number - Fraction(high)))


RECIPROCALS = np.array([0j] + [pair_of(Fraction(1, n)) for n in range(1, 128)])
"""``1 / n`` at n = 1..127, each within ``u^2``; the entry 0 is not used."""
