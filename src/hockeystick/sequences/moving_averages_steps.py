"""Many successive steps that are alike: once values only turn and shrink by one factor, powers take their place.

Proof: docs/theory/moving-averages.md, section 4.
"""

from collections.abc import Callable

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.sequences.moving_averages_kernels import factor_of

Step = Callable[[Array], Array]


def stationary(
    step: Callable[[Array], Array], values: Array, weights: Array, length: int, tolerance: float
) -> tuple[Array, float]:
    """``length`` steps of a linear operator A of complex numbers that does not raise their norm.

    Args:
        values: shape (2, S), real parts and imaginary ones.
        weights: shape (S,), of the norm, the root of ``weights @ |v|^2``.
        tolerance: of the error.

    Returns:
        The values, and a bound on the norm of their error, but for rounding: when ``A v = c v + r``, ``A^n v`` is
        ``c^n v`` up to ``|r| sum_(k < n) |c|^k``.
    """
    for done in range(1, length + 1):
        after = step(values)
        left = length - done
        if left:
            real, imaginary, rest = factor_of(values, after, weights)
            size = abs(complex(real, imaginary)) * (1.0 + 1e-12)
            error = 1.000001 * rest * (left if size >= 1.0 else min(left, 1.0 / (1.0 - size))) * max(size, 1.0) ** left
            if error <= tolerance:
                power = complex(real, imaginary) ** left * (after[0] + 1j * after[1])
                return np.vstack([power.real, power.imag]), error
        values = after
    return values, 0.0
