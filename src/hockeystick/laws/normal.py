"""The normal distribution function and its inverse without SciPy, whose special functions take long to import.

Answers by contours and transforms need no more than is here. Where laws are made, SciPy's own functions are there
anyway, and are faster.
"""

from math import erfc, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAR = 30.0
"""Beyond it an asymptotic series is exact; the complementary error function leaves the range of doubles at 37.5."""
TERMS = (-135135.0, 10395.0, -945.0, 105.0, -15.0, 3.0, -1.0, 1.0)
"""Of ``1 - 1 / x^2 + 3 / x^4 - ...``, the last one first; what is left out is below the next term, 5e-18 at FAR."""
SMALLEST = 1e-307
"""Probabilities below it have a quantile that is only known to be nearer to 0 than what is returned."""
LARGEST = 1.0 - 2.0**-53
_erfc = np.frompyfunc(erfc, 1, 1)


def log_ndtr(x: float | Array) -> Array:
    """``log Phi(x)`` elementwise; -inf where x is.

    It is off by at most ``(2 x^2 + 2 |log Phi(x)| + 16) 2^-53`` where the C library's ``erfc`` is within five units in
    the last place, which glibc documents: ``erfc(t)`` changes relatively by at most ``2 t^2 + 1`` times what t does,
    and ``t = |x| / sqrt(2)`` is rounded twice. Beyond ``-FAR`` it is the logarithm of the asymptotic series,
    ``-x^2 / 2 - log(-x sqrt(2 pi)) + log(1 - 1 / x^2 + 3 / x^4 - ...)``.

    >>> log_ndtr(np.array([0.0, -40.0])).round(6).tolist()
    [-0.693147, -804.608442]
    """
    x = np.asarray(x, dtype=np.float64)
    tails = 0.5 * np.asarray(_erfc(np.minimum(np.abs(x), FAR) * sqrt(0.5)), dtype=np.float64)
    logs = np.where(x > 0.0, np.log1p(-tails), np.log(tails))
    far = x < -FAR
    if not far.any():
        return logs
    with np.errstate(over="ignore"):
        squares = np.where(far, x, -FAR) ** 2
        series = np.log(np.polyval(TERMS, 1.0 / squares))
        return np.where(far, series - 0.5 * squares - 0.5 * np.log(2.0 * pi * squares), logs)


def ndtri(p: float | Array) -> Array:
    """The quantile of each probability: -inf at 0, infinity at 1.

    Wichura's algorithm AS 241 (Applied Statistics 37, 1988, 477-484), which is good to about 1e-16 of the quantile.
    Below ``SMALLEST`` it is ``-sqrt(-2 log p)``, which is farther from 0 than the truth, by less than a hundredth.

    >>> ndtri(np.array([0.5, 0.975])).round(6).tolist()
    [0.0, 1.959964]
    """
    from statistics import NormalDist

    p = np.asarray(p, dtype=np.float64)
    known = np.frompyfunc(NormalDist().inv_cdf, 1, 1)(np.clip(p, SMALLEST, LARGEST))
    with np.errstate(divide="ignore", invalid="ignore"):
        rare = -np.sqrt(-2.0 * np.log(p))
    return np.where(p < SMALLEST, rare, np.where(p > LARGEST, np.inf, np.asarray(known, dtype=np.float64)))
