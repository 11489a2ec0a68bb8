"""Choice of the nodes of a law; a poor grid only makes a bound loose.

Nodes are equidistant in a *score*: the standard-normal quantile of the Q-mass below a node, so that cells are a fixed
fraction of a standard deviation, plus smaller shares of the same quantile under the measures ``|X - 1|^a dQ``, which is
where the large and rare ratios are that decide a small delta.
"""

from dataclasses import dataclass
from math import inf, log, sqrt
from numbers import Integral
from typing import Any

import numpy as np

from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.laws.law import FAR, ORDINARY, Array, Law, Units
from hockeystick.spec import real_number
from hockeystick.types import Side, as_side

COARSE_NODES = 80
"""Grids are chosen from a summary of each law with about this many nodes."""
JUMP_POWERS = (1.0, 2.0, 4.0, 8.0)
JUMP_SHARE = 0.3
JUMP_REACH = 5.0
"""Quantiles of each power beyond this are clipped."""
TOP_NODES = 64
"""Nodes between the end of the summary and the largest pair, where laws end at their largest ratio."""
GOLDEN = 0.6180339887498949


@made_by("hs.Resolution(nodes_per_unit=144)")
@dataclass(frozen=True)
class Resolution:
    """How fine the grids are: a performance setting, never part of a guarantee.

    Attributes:
        nodes_per_unit: nodes for each unit of score. The two-sided gap falls with its square, the time grows with
            its square. Lower laws take three quarters of it: a contraction loses half of what a spread adds.
        smallest_delta: deltas well below this are bounded loosely, which saves the nodes that they would need.
    """

    nodes_per_unit: int = 72
    smallest_delta: float = 1e-30

    def __post_init__(self) -> None:
        nodes: Any = self.nodes_per_unit
        if isinstance(nodes, bool) or not isinstance(nodes, Integral) or nodes < 1:
            raise InvalidInputError(
                f"The 'nodes_per_unit' field must be a whole number of at least 1. Got {shortened(nodes)} instead."
            )
        object.__setattr__(self, "smallest_delta", real_number("smallest_delta", self.smallest_delta))
        if not 0.0 < self.smallest_delta < inf:
            raise InvalidInputError(
                f"The 'smallest_delta' field must be positive and finite. Got {self.smallest_delta!r} instead."
            )

    def for_side(self, side: Side) -> int:
        """Nodes for each unit of score, by side."""
        return self.nodes_per_unit if as_side(side) is Side.UPPER else -(-3 * self.nodes_per_unit // 4)

    @property
    def tail(self) -> float:
        """Q-mass on the left and P-mass on the right that a grid may leave outside (repaired there, not lost)."""
        return max(self.smallest_delta * 1e-15, 1e-46)


def nodes_for_pairs(a: Law, b: Law, product: bool, resolution: Resolution) -> Array:
    """Nodes for the law of ``a.support * b.support`` (or of the sum), chosen from a coarse summary of it.

    Returns at least two strictly increasing nodes; the first is the floor of the new law. When there are few pairs,
    the nodes are the pairs themselves and the projection is exact. O(COARSE_NODES^2 log) time.
    """
    units = common_units(a, b)
    with np.errstate(over="ignore", invalid="ignore"):  # products that overflow get no node
        if a.size * b.size <= 4 * COARSE_NODES:
            nodes = (np.multiply if product else np.add).outer(a.support, b.support).ravel()
            nodes = np.sort(nodes[nodes <= units.max_ratio])
        else:
            pairs = _coarse_pairs(a, b, product, units)
            nodes = _equidistant_in_score(*pairs, resolution.for_side(a.side), resolution.tail, units)
            if units == FAR and nodes.size:  # the summary blurs the last cells, and laws may end where P still matters
                top = min((np.multiply if product else np.add)(a.support[-1], b.support[-1]), units.max_ratio)
                nodes = np.append(nodes, np.exp(np.linspace(np.log(nodes[-1]), np.log(top), TOP_NODES + 1)[1:]))
            elif nodes.size and _ends_in_atoms(a, b, resolution.tail):  # what is beyond the nodes goes to infinity
                top = float((np.multiply if product else np.add)(a.support[-1], b.support[-1]))
                nodes = np.append(nodes[nodes < top], top) if top <= units.max_ratio else nodes
    floor = a.floor * b.floor if product else a.floor + b.floor
    return _distinct(np.concatenate([[floor], nodes[nodes > floor]]))


def _ends_in_atoms(a: Law, b: Law, tail: float) -> bool:
    """Whether the largest pair has P-mass that matters, as of bounded ratios; laws of Gaussians end in next to none."""
    ends = [float(law.mass[-1] * law.support[-1]) / law.units.scale for law in (a, b)]
    return ends[0] * ends[1] > tail


def common_units(a: Law, b: Law) -> Units:
    """The units in which two laws are combined."""
    return FAR if FAR in (a.units, b.units) else ORDINARY


def shared_masses(law: Law, units: Units) -> Array:
    """The masses so scaled that a product of two such is in ``units``; half the scale each, so that none overflows."""
    return law.mass * (sqrt(units.scale) / law.units.scale)


def gaussian_nodes(
    smallest: float, largest: float, side: Side, resolution: Resolution, units: Units = ORDINARY
) -> Array:
    """Nodes, in standard deviations of Q, for a mixture whose shifts lie between ``smallest`` and ``largest``.

    They reach into both tails, but not to where every component's ratio leaves the range that laws can hold.
    """
    from scipy.special import ndtri

    reach = -float(ndtri(resolution.tail))
    low = max(-reach, 0.5 * smallest + log(units.smallest_ratio) / smallest)
    high = min(reach + largest, max(reach, 0.5 * largest + 1.5 * log(units.max_ratio) / largest))
    return np.linspace(low, high, int((high - low) * resolution.for_side(side)) + 2)


def _coarse_pairs(a: Law, b: Law, product: bool, units: Units) -> tuple[Array, Array]:
    """Ratios and masses, in these units, of the pairs of two coarsened laws.

    Pairs of lattices fall into clusters, and nodes must not: every pair is moved inside its coarse cell by a fixed
    low-discrepancy sequence.
    """
    ga, ma, wa = _coarsen(a, shared_masses(a, units))
    gb, mb, wb = _coarsen(b, shared_masses(b, units))
    if product:
        ratio = np.multiply.outer(ga, gb).ravel()
        width = np.maximum.outer(wa / ga, wb / gb).ravel() * ratio  # at most the ratio itself, see _coarsen
    else:
        ratio = np.add.outer(ga, gb).ravel()
        width = np.maximum.outer(wa, wb).ravel()
    offset = (np.arange(ratio.size) * GOLDEN) % 1.0 - 0.5
    held = ratio <= units.pair_limit
    return (ratio + offset * width)[held], np.multiply.outer(ma, mb).ravel()[held]


def _coarsen(law: Law, masses: Array) -> tuple[Array, Array, Array]:
    """Barycentres, masses and spacings of runs of nodes. Used only to choose grids."""
    starts = np.arange(0, law.size, -(-law.size // COARSE_NODES))
    mass = np.add.reduceat(masses, starts)
    first_moment = np.add.reduceat(masses * law.support, starts)
    used = (mass > 0.0) & (first_moment > 0.0)
    places = first_moment[used] / mass[used]
    if places.size < 2:
        return places, mass[used], np.zeros(places.size)
    return places, mass[used], np.minimum(np.gradient(places), places)


def _equidistant_in_score(ratio: Array, mass: Array, nodes_per_unit: int, tail: float, units: Units) -> Array:
    """Nodes at equal steps of the score of the atoms (ratio, mass), between the two tails."""
    usable = (ratio > units.smallest_ratio) & (mass > units.smallest_mass)
    tail *= units.scale
    ratio, mass = ratio[usable], mass[usable]
    order = np.argsort(ratio)
    ratio, mass = ratio[order], mass[order]
    if ratio.size == 0:
        return ratio
    log_ratio = np.log(ratio)
    distance = np.log(np.abs(ratio - 1.0) + 1e-300)
    log_mass = np.log(np.maximum(mass, 1e-300))
    score = _normal_quantiles(mass)
    for exponent in JUMP_POWERS:
        weight = log_mass + exponent * distance
        quantile = _normal_quantiles(np.exp(weight - weight.max()))
        score += JUMP_SHARE * np.clip(quantile, -JUMP_REACH, JUMP_REACH)
    first = min(int(np.count_nonzero(np.cumsum(mass) < tail)), ratio.size - 1)
    p_above = np.cumsum((ratio * mass)[::-1])[::-1]
    last = max(int(np.count_nonzero(p_above > tail)) - 1, first)
    # A smooth map from score to log ratio, so that steps of the coarse cdf do not become clusters of nodes.
    knots = np.linspace(score[first], score[last], 2 * COARSE_NODES)
    at_knots = np.interp(knots, score, log_ratio)
    count = int((knots[-1] - knots[0]) * nodes_per_unit) + 2
    log_nodes = np.interp(np.linspace(knots[0], knots[-1], count), knots, at_knots)
    beyond = log_nodes[-1] + np.arange(1, 6) * (log_nodes[-1] - log_nodes[-2])
    nodes: Array = np.exp(np.minimum(np.append(log_nodes, beyond), np.log(units.max_ratio)))
    return nodes


def _normal_quantiles(mass: Array) -> Array:
    """Standard-normal quantile of the mass below each atom, non-decreasing, accurate in both tails."""
    from scipy.special import ndtri, ndtri_exp

    total = mass.sum()
    below = np.cumsum(mass) - 0.5 * mass
    above = np.cumsum(mass[::-1])[::-1] - 0.5 * mass
    nearer = np.minimum(below, above)
    share = nearer / total
    tail = ndtri(np.clip(share, 1e-300, 0.5))
    rare = share < 1e-300  # far laws know masses that are no doubles as a share of the whole
    if rare.any():
        tail[rare] = ndtri_exp(np.log(np.maximum(nearer[rare], 1e-300)) - np.log(total))
    return np.maximum.accumulate(np.where(below < above, tail, -tail))


def _distinct(nodes: Array) -> Array:
    """Drop nodes closer to their left neighbour than doubles can work with; leave at least two."""
    keep = np.ones(nodes.size, dtype=bool)
    keep[1:] = np.diff(nodes) > 1e-14 * nodes[1:]
    nodes = nodes[keep]
    if nodes.size == 1:
        nodes = np.array([nodes[0], max(float(nodes[0]), 1e-300) * (1.0 + 1e-9)])
    return nodes
