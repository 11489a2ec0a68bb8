"""The law of a likelihood ratio: the one number through which every privacy profile is computed.

For a pair (P, Q) let ``X = dP/dQ(y)`` with ``y ~ Q``. Both hockey-stick divergences are expectations of convex
functions of X,

    H(P || Q) at e^eps = E (X - e^eps)_+ + p_inf        (remove)
    H(Q || P) at e^eps = E (1 - e^eps X)_+              (add)

so a mean-preserving spread of X is an upper bound on both profiles for every eps, and a mean-preserving contraction
is a lower bound on both. See docs/theory/laws.md.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.types import Side, as_side

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


class Units(NamedTuple):
    """How a law keeps its numbers, and what it can therefore hold.

    Attributes:
        scale: masses are kept as so many times the Q-mass. A power of 2, so that changing it costs no rounding.
        max_ratio: the largest ratio that is kept finite.
        pair_limit: products of two ratios above this are not computed, as they may overflow.
        smallest_ratio: smaller ratios are not computed with.
        smallest_mass: smaller masses, in these units, are not computed with.
        smallest_lower: no lower bound on delta below this is claimed; see :func:`hockeystick.laws.profile.law_delta`.
    """

    scale: float
    max_ratio: float
    pair_limit: float
    smallest_ratio: float
    smallest_mass: float
    smallest_lower: float


ORDINARY = Units(
    scale=1.0,
    max_ratio=MAX_RATIO,
    pair_limit=inf,
    smallest_ratio=SMALLEST,
    smallest_mass=SMALLEST,
    smallest_lower=1e-150,
)
FAR = Units(
    scale=2.0**600,
    max_ratio=2.0**1022,
    pair_limit=2.0**1022,
    smallest_ratio=2.0**-1022,
    smallest_mass=2.0**-630,
    smallest_lower=UNDERFLOW,
)
"""For epsilons up to 700: where ratios reach e^708, Q-masses would be subnormal numbers at a P-mass of 1e-5.

Two laws are combined with masses of 2^300 times the Q-mass. What underflows there is a node with a Q-mass below
2^-1322, or a pair with one below 2^-1622. Their ratios are at most 2^1022, so their P-mass is below 2^-300: see
``UNDERFLOW``.
"""


@dataclass(frozen=True, eq=False)
class Law:
    """A discrete law of the likelihood ratio, in doubles, with a bound on its own rounding.

    Attributes:
        support: shape (n,), strictly increasing, non-negative. ``support[0]`` is a proved lower bound of X ("floor").
        mass: shape (n,), ``units.scale`` times the Q-masses of the nodes, non-negative, which sum to 1. The P-mass of a
            node is its Q-mass times its ratio.
        p_inf: P-mass at X = +inf (its Q-mass is zero). For lower laws P-mass somewhere above the ``horizon``.
        side: UPPER if the law is a spread of the true X, LOWER if it is a contraction.
        mass_error: eta, proved bound on the relative rounding error of masses.
        place_error: lambda, proved bound on the relative rounding error of places.
        units: how the masses are kept.
        horizon: for lower laws, a ratio that all of ``p_inf`` is known to have at least.

    Which side it errs on: there is an X' = X (1 + xi), |xi| <= place_error, such that for every non-negative convex f
    an UPPER law has ``E_law f >= (1 - mass_error) E f(X')`` and a LOWER law ``E_law f <= (1 + mass_error) E f(X')``.
    Here ``E_law f`` counts p_inf with the slope of f at infinity for an UPPER law, and with the smallest ``f(x) / x``
    beyond the horizon for a LOWER one. Every operation of :mod:`hockeystick.laws.operations` keeps this statement.
    """

    support: Array
    mass: Array
    p_inf: float
    side: Side
    mass_error: float
    place_error: float
    units: Units = ORDINARY
    horizon: float = inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "side", as_side(self.side))

    @property
    def floor(self) -> float:
        """A proved lower bound of X."""
        return float(self.support[0])

    @property
    def size(self) -> int:
        return int(self.support.size)

    @cached_property
    def is_finite(self) -> bool:
        """Whether nothing has overflowed; read once for every value of a profile, so it is kept."""
        return isfinite(float(self.mass.sum()) + float(self.support.max()) + self.p_inf)

    def mean(self) -> float:
        """P-mass of the law, the part at infinity included: 1 up to ``mass_error + place_error``."""
        return float(self.mass @ self.support) / self.units.scale + self.p_inf


def lower_law(
    masses: Array, moments: Array, mass_error: float, place_error: float, units: Units = ORDINARY, beyond: float = 0.0
) -> Law:
    """A lower law from the Q-mass and the P-mass of each cell, in these units, at the barycentres.

    Cells without representable mass, and in ordinary units those above the largest ratio, are left out: leaving mass
    out only lowers the expectation of a non-negative function. In far units the P-mass of the latter joins ``beyond``,
    P-mass whose ratios are above the largest. If nothing is left, the law bounds every delta by 0.
    """
    within = moments / units.max_ratio <= masses
    used = (masses > units.smallest_mass) & within
    infinite = 0.0
    if units == FAR:  # the factor is for the rounding of a sum of so many non-negative numbers
        infinite = (float(moments[~within].sum()) / FAR.scale + beyond) * (1.0 - (masses.size + 8) * UNIT_ROUNDOFF)
    support, mass = np.array([1.0]), np.array([0.0])
    if used.any():
        support, mass = merge_equal(moments[used] / masses[used], masses[used])
    return Law(support, mass, infinite, Side.LOWER, mass_error, place_error, units, units.max_ratio)


def in_units(law: Law, units: Units) -> Law:
    """The same law with its masses kept in other units; from far to ordinary ones, what they cannot hold is cut off.

    Of an upper law the Q-mass above the largest ratio stays at the last node below it and the excess of P goes to
    infinity; of a lower law it is left out.
    """
    if law.units == units:
        return law
    if units == FAR:
        return replace(law, mass=law.mass * FAR.scale, units=FAR)
    mass = law.mass / FAR.scale
    if law.side is Side.LOWER:
        return lower_law(mass, mass * law.support, law.mass_error, law.place_error + 4 * UNIT_ROUNDOFF)
    kept = int(np.searchsorted(law.support, MAX_RATIO, side="right"))
    excess = float(law.mass[kept:] @ law.support[kept:]) / FAR.scale * (1.0 + (law.size + 8) * UNIT_ROUNDOFF)
    mass[kept - 1] += mass[kept:].sum()  # the floor is at most 1, so something is kept
    return replace(
        law, support=law.support[:kept], mass=mass[:kept], p_inf=law.p_inf + excess + UNDERFLOW, units=ORDINARY
    )


def merge_equal(support: Array, mass: Array) -> tuple[Array, Array]:
    """Join nodes of a non-decreasing support that rounding has made equal."""
    if support.size < 2 or bool(np.all(np.diff(support) > 0.0)):
        return support, mass
    starts = np.flatnonzero(np.concatenate([[True], np.diff(support) > 0.0]))
    return support[starts], np.add.reduceat(mass, starts)


def point_mass_at_one(side: Side) -> Law:
    """The law of X when P = Q: nothing can be told apart. Exact."""
    return Law(support=np.array([1.0]), mass=np.array([1.0]), p_inf=0.0, side=side, mass_error=0.0, place_error=0.0)
