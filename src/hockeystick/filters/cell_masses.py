"""Normal masses of cells, with their measured relative error."""

import numpy as np
from scipy.special import ndtr

from hockeystick.laws.law import UNIT_ROUNDOFF, Array

NDTR_ERROR = 1e-12
"""Well above the relative error of the normal distribution function, which grows to 2.4e-13 far in its tail."""


def cell_masses(edges: Array, shift: float) -> tuple[Array, float]:
    """Masses of N(shift, 1) in the cells between the edges, the outer ones open, and their relative error.

    The error is infinite where a cell is so far away that its mass is 0 in doubles.
    """
    below = np.concatenate([[0.0], ndtr(edges - shift), [1.0]])
    above = np.concatenate([[1.0], ndtr(shift - edges), [0.0]])
    left = below[1:] <= 0.5
    masses = np.where(left, np.diff(below), -np.diff(above))
    larger = np.where(left, below[1:], above[:-1])
    # The differences of edges and shift are rounded too, which is as much as a wrong mass next to an edge.
    narrow = 8.0 * UNIT_ROUNDOFF * (1.0 + float(np.abs(edges).max()) + shift) / float(np.diff(edges).min())
    shares = np.divide(larger, masses, out=np.full_like(masses, np.inf), where=masses > 0.0)
    return masses, float(NDTR_ERROR * np.max(shares)) + 4.0 * narrow
