"""Steps over windows: of means, and many successive ones that are alike, for which powers stand once values settle.

Proof: docs/theory/moving-averages.md, section 4.
"""

from collections.abc import Callable

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.sequences.moving_averages import InnovationWindows
from hockeystick.sequences.moving_averages_kernels import Counts, factor_of, window_means

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


def means_before(windows: InnovationWindows, values: Array, scales: Array, kinds: Counts, first: Counts) -> Array:
    """Mass and mean of a sum, shape (2, S), one group of bins before those of which ``values`` has them.

    The other arguments are those of :func:`..moving_averages_kernels.window_means`.
    """
    means = np.empty_like(values)
    window_means(windows.begins, windows.counts, windows.chances * values, scales, kinds, first, means)
    return means
