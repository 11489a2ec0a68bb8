"""The normal distribution function and its inverse without SciPy, whose special functions take long to import.

Answers by contours and transforms need no more than is here.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCALE = 5.0
"""Where the fraction that stands for x, in the polynomial, is a half."""
POLYNOMIAL = (
    2.8383843787161206e-11,
    -1.568559272727184e-10,
    -2.644205925563388e-10,
    1.8537318074054237e-09,
    1.4136091307961813e-09,
    -1.3480322359544063e-08,
    -7.75066184487168e-09,
    8.669122038951507e-08,
    6.674120701671954e-08,
    -5.537723266745881e-07,
    -7.958914361584099e-07,
    3.3361687039280987e-06,
    9.95247293501536e-06,
    -1.1875117032688183e-05,
    -0.00010897979548908732,
    -0.00015957388568575725,
    0.000598675352069527,
    0.004159013360663894,
    0.013823727741391342,
    0.03300407323403794,
    0.06270663133425718,
    0.09906112319399613,
    0.13307650057801138,
    0.15383860995001258,
)
"""``Phi(-x) e^(x^2 / 2) / r``, ``r = SCALE / (SCALE + x)``, as a polynomial in ``2 r - 1``, the highest power first.

It interpolates at 24 Chebyshev nodes and is relatively off by less than 2^-54 for all x >= 0; that the coefficients are
rounded, whose sizes add up to a half, adds 2^-53 at 0 and less than 2^-50 where the value is least, far out. The method
is that of Shepherd and Laframboise (1981, Mathematics of Computation 36, 249-253).
"""
SMALLEST = 1e-307
"""Probabilities below it have a quantile that is only known to be nearer to 0 than what is returned."""
LARGEST = 1.0 - 2.0**-53


def log_ndtr(x: float | Array) -> Array:
    """``log Phi(x)`` elementwise; -inf where x is.

    It is off by at most ``(2 x^2 + 2 |log Phi(x)| + 24) 2^-53``, and relatively by ``(2 x^2 + 24) 2^-53`` above 0. Two
    roundings of the fraction change ``Phi(-x) e^(x^2 / 2)`` by at most 8 of them, as its logarithm has a slope of at
    most 4 in that of the fraction; that of its place, the polynomial and the product add less than 8 up to x = 2, and
    less than x^2 beyond; the square, the logarithm and the difference are rounded relatively.

    >>> log_ndtr(np.array([0.0, -40.0])).round(6).tolist()
    [-0.693147, -804.608442]
    """
    x = np.asarray(x, dtype=np.float64)
    fraction = SCALE / (SCALE + np.abs(x))
    places = 2.0 * fraction - 1.0
    place: float | Array = places.item() if places.size == 1 else places  # of a float, in a tenth of the time
    tails = place * POLYNOMIAL[0]
    for coefficient in POLYNOMIAL[1:-1]:
        tails += coefficient
        tails *= place
    with np.errstate(divide="ignore", over="ignore"):
        logs: Array = np.log(fraction * (tails + POLYNOMIAL[-1])) - 0.5 * x * x
    above = x > 0.0
    return np.where(above, np.log1p(-np.exp(logs)), logs) if above.any() else logs


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
