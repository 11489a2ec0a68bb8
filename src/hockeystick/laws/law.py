"""The law of a likelihood ratio: the one number through which every privacy profile is computed.

For a pair (P, Q) let ``X = dP/dQ(y)`` with ``y ~ Q``. Both hockey-stick divergences are expectations of convex
functions of X,

    H(P || Q) at e^eps = E (X - e^eps)_+ + p_inf        (remove)
    H(Q || P) at e^eps = E (1 - e^eps X)_+              (add)

so a mean-preserving spread of X is an upper bound on both profiles for every eps, and a mean-preserving contraction
is a lower bound on both. See docs/theory/laws.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hockeystick.types import Side

Array = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
MAX_RATIO = 1e120
"""Largest likelihood ratio a law keeps finite; the rest counts as infinite.

A pair of nodes then has a ratio of at most 1e240, so a pair whose Q-mass underflows has a P-mass below 1e-67: see
``UNDERFLOW``.
"""
SMALLEST = 1e-280
"""Masses and ratios below this are not computed with: they are near the end of the range of doubles."""
UNDERFLOW = 1e-60
"""More than all the mass that one operation can lose to underflow; upper laws add it on the safe side."""


@dataclass(frozen=True, eq=False)
class Law:
    """A discrete law of the likelihood ratio, in doubles, with a bound on its own rounding.

    Attributes:
        support: shape (n,), strictly increasing, non-negative. ``support[0]`` is a proved lower bound of X ("floor").
        mass: shape (n,), Q-masses of the nodes, non-negative, sum 1. The P-mass of node j is ``mass[j] * support[j]``.
        p_inf: P-mass at X = +inf (its Q-mass is zero). Zero for lower laws.
        side: UPPER if the law is a spread of the true X, LOWER if it is a contraction.
        mass_error: eta, proved bound on the relative rounding error of masses.
        place_error: lambda, proved bound on the relative rounding error of places.

    Which side it errs on: there is an X' = X (1 + xi), |xi| <= place_error, such that for every non-negative convex f
    an UPPER law has ``E_law f >= (1 - mass_error) E f(X')`` and a LOWER law ``E_law f <= (1 + mass_error) E f(X')``.
    Every operation of :mod:`hockeystick.laws.operations` keeps this statement.
    """

    support: Array
    mass: Array
    p_inf: float
    side: Side
    mass_error: float
    place_error: float

    @property
    def floor(self) -> float:
        """A proved lower bound of X."""
        return float(self.support[0])

    @property
    def size(self) -> int:
        return int(self.support.size)

    def mean(self) -> float:
        """P-mass of the law, the part at infinity included: 1 up to ``mass_error + place_error``."""
        return float(self.mass @ self.support) + self.p_inf


def lower_law(masses: Array, moments: Array, mass_error: float, place_error: float) -> Law:
    """A lower law from the Q-mass and the P-mass of each cell, at the barycentres.

    Cells without representable mass, and those above MAX_RATIO, are left out: leaving mass out only lowers the
    expectation of a non-negative function. If nothing is left, the law bounds every delta by 0.
    """
    used = (masses > SMALLEST) & (moments <= masses * MAX_RATIO)
    if not used.any():
        return Law(np.array([1.0]), np.array([0.0]), 0.0, Side.LOWER, mass_error, place_error)
    support, mass = merge_equal(moments[used] / masses[used], masses[used])
    return Law(support, mass, 0.0, Side.LOWER, mass_error, place_error)


def merge_equal(support: Array, mass: Array) -> tuple[Array, Array]:
    """Join nodes of a non-decreasing support that rounding has made equal."""
    if support.size < 2 or bool(np.all(np.diff(support) > 0.0)):
        return support, mass
    starts = np.flatnonzero(np.concatenate([[True], np.diff(support) > 0.0]))
    return support[starts], np.add.reduceat(mass, starts)


def point_mass_at_one(side: Side) -> Law:
    """The law of X when P = Q: nothing can be told apart. Exact."""
    return Law(support=np.array([1.0]), mass=np.array([1.0]), p_inf=0.0, side=side, mass_error=0.0, place_error=0.0)
