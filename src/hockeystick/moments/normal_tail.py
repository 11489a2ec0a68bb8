"""Tails of the standard normal law in pairs, and the probabilities of ranges that they give.

Proofs: ``docs/theory/moment-majorants/cells.md``.
"""

from fractions import Fraction
from math import isqrt

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.moments.double_double import RECIPROCALS, Pairs, add, add_positive, divide, multiply, pair_of, shift
from hockeystick.moments.exponential import exp_pair

TAIL_ERROR = 2.0**-90
"""Proved relative error of :func:`normal_tail`."""

EXPANDED_ERROR = 2.0**-87
"""Proved error of a tail from :func:`tail_coefficients`, relative to the tail at the centre of the expansion."""

FARTHEST = 35.0
"""Tails beyond this, all below 1e-267, are taken as 0."""

LEAST_CHANCE = 1e-260
"""Ranges of smaller probability are left out."""

LEFT_OUT = 1e-225
"""Added to the sizes for ranges that are left out: times an error of at least 2^-100 it exceeds what they hold."""

PLACES = 32
"""Expansions are about multiples of 1 / PLACES standard deviations."""

TERMS = 24
"""Number of terms of an expansion."""

_NODES = 24
"""Nodes of the midpoint rule with step 1/2; the first one that is left out weighs ``e^-75``."""

_PI = Fraction(31415926535897932384626433832795028841971, 10**40)
_OVER_TWO_PI = pair_of(1 / (2 * _PI))
_FOUR_PI = pair_of(4 * _PI)
_OVER_ROOT = pair_of(Fraction(isqrt(int(2**256 / (2 * _PI))), 2**128))
"""One over the root of 2 pi."""
_WEIGHTS = np.array([exp_pair(complex(-((n + 0.5) ** 2) / 8.0, 0.0)) for n in range(_NODES)])
"""``e^(-s^2 / 2)`` at the nodes ``s = (n + 1/2) / 2``."""


@kernel
def normal_tail(z: complex) -> complex:
    """``Pr(N(0, 1) > z)`` for ``0 <= z <= FARTHEST``, within :data:`TAIL_ERROR`.

    The midpoint rule with step 1/2 for ``z e^(-z^2 / 2) / (2 pi) int e^(-s^2 / 2) / (s^2 + z^2) ds``, and the residue
    at the pole ``s = i z`` (Chiarella and Reichel 1968), which no longer matters from ``z = 4 pi`` on.
    """
    total = complex(0.0, 0.0)
    if z.real > 0.0:
        square = multiply(z, z)
        for n in range(_NODES):
            s = 0.5 * n + 0.25
            total = add_positive(total, divide(_WEIGHTS[n], add_positive(square, complex(s * s, 0.0))))
        total = multiply(multiply(total, z), _OVER_TWO_PI)
        total = multiply(total, exp_pair(shift(square, -0.5)))
    if z.real < _FOUR_PI.real:
        pole = exp_pair(-multiply(z, _FOUR_PI))
        total = add_positive(total, divide(pole, add_positive(complex(1.0, 0.0), pole)))
    return total


@kernel(inline="always")
def tail_coefficients(z: complex, coefficients: Pairs) -> None:
    """``Pr(N(0, 1) > z + t) = sum_n coefficients[n] t^n`` for ``0 <= z <= FARTHEST``, ``|t| <= 1 / (2 PLACES)``.

    Args:
        coefficients: shape (TERMS,), overwritten: of the Taylor series, by the recursion of Hermite polynomials.
    """
    coefficients[0] = normal_tail(z)
    before, density = complex(0.0, 0.0), multiply(exp_pair(shift(multiply(z, z), -0.5)), _OVER_ROOT)
    for n in range(1, TERMS):
        coefficients[n] = -multiply(density, RECIPROCALS[n])
        before, density = density, multiply(add(multiply(density, z), before), -RECIPROCALS[n])


@kernel
def in_range(whole: complex, left: complex, left_above: bool, right: complex, right_above: bool) -> complex:
    """The part of ``whole`` in a range, from the parts on the far side of its two ends, as seen from the mean.

    Args:
        left_above, right_above: whether an end is at or above the mean.
    """
    if left_above:
        return add(left, -right)
    if not right_above:
        return add(right, -left)
    return add(add(whole, -left), -right)
