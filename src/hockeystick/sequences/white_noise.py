"""The transform of log-normal white noise, by a quadrature that is exact to rounding.

Proof: docs/theory/moving-averages.md, section 3.
"""

from dataclasses import dataclass
from math import exp, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNIT_ROUNDOFF, Array

QUADRATURE, FARTHEST, TURN = 1e-15, 8.2, 1.0
"""Error of the transform of white noise; where its density is cut off; by how much it is moved off the real axis."""
MOST_DAMPED = 60.0
"""Terms that are damped by more than exp(this) are left out."""
AT_ONCE = 256
"""Scales whose terms are held at a time: few enough for a processor's cache."""


def noise_table(
    scales: Array, nodes: NDArray[np.complex128], weights: NDArray[np.complex128], damping: float, paces: Array
) -> Array:
    """``sum_j weights[j] exp(-(damping - i g) scales[k] nodes[j])`` at the frequencies ``g = paces[0] + f paces[1]``.

    Shape (paces[2], 2, K): real parts, then imaginary ones.
    """
    table = np.empty((int(paces[2]), 2, scales.size))
    for begin in range(0, scales.size, AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        places = np.multiply.outer(scales[some], nodes)
        exponents = (1j * paces[0] - damping) * places
        terms = np.where(exponents.real < -MOST_DAMPED, 0.0, weights * np.exp(exponents))
        factors = np.exp(1j * paces[1] * places)  # at most 1 in size, as no place has an imaginary part below 0
        for f in range(len(table)):
            sums = terms.sum(axis=1)
            table[f, 0, some], table[f, 1, some] = sums.real, sums.imag
            terms *= factors
    return table


@dataclass(frozen=True)
class Noise:
    """Nodes and weights for means over ``exp(deviation e - deviation^2 / 2)``, e normal, on a line in the plane."""

    nodes: NDArray[np.complex128]
    weights: NDArray[np.complex128]
    error: float

    @classmethod
    def of(cls, deviation: float) -> "Noise":
        """Nodes for transforms at places with an argument from -pi / 2 to 0."""
        turn = min(0.25 * pi / deviation, TURN)
        step = 2.0 * pi * turn / (log(4.0 / QUADRATURE) + 2.0 * turn**2)
        count = int(FARTHEST / step) + 1
        e = step * np.arange(-count, count + 1) + 1j * turn
        nodes = np.exp(deviation * e - 0.5 * deviation**2)
        weights = step / sqrt(2.0 * pi) * np.exp(-0.5 * e**2)
        size = exp(0.5 * turn**2)
        return cls(nodes, weights, QUADRATURE * (1.0 + size) + size * UNIT_ROUNDOFF * (2.0 * e.size + 64.0))
