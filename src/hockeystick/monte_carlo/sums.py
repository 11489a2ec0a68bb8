"""Sums that lose little, for compiled kernels."""

import numpy as np

from hockeystick.compiling import kernel


@kernel
def log_add(a: float, b: float) -> float:
    """``log(e^a + e^b)``; at most one of them is -inf."""
    return float(max(a, b) + np.log1p(np.exp(-abs(a - b))))


@kernel
def added(total: float, lost: float, term: float) -> tuple[float, float]:
    """A sum with one term more, and what it has lost to rounding so far.

    Kahan's summation: the error does not grow with the number of terms.
    """
    term -= lost
    grown = total + term
    return grown, (grown - total) - term
