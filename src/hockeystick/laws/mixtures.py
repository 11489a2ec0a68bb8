"""Mixtures of Gaussians at any shifts, and sums of independent two-point variables, brought on a lattice.

Sums are rounded up (upper laws) or down (lower laws) to the lattice of :mod:`hockeystick.laws.lattice`: a mixture whose
sensitivity is stochastically larger has the larger profile in both directions.

Proofs: docs/theory/subsets/mixtures.md.
"""

from dataclasses import dataclass, replace

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.laws.discretise import mixture_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.lattice import lattice_law
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.mixture_kernels import two_point_sum
from hockeystick.types import Side, as_side

FINEST = 1 << 16
"""No lattice divides the largest summand into more parts: time and memory grow with them."""
LARGEST_COUNT = 1e5
"""Lattices with more points than this are not worth it."""
SHARES = 2048.0
"""Sums of sensitivities are rounded to this part of a typical summand, and of a typical sum."""


@dataclass(frozen=True, eq=False)
class LatticeMasses:
    """A law of the sensitivity on the lattice ``0, spacing, 2 spacing, ...``, which is at least the true one (UPPER) or
    at most (LOWER) in the stochastic order.

    Attributes:
        masses: shape (K + 1,), non-negative.
        spacing: in the unit of the sensitivities.
        lost: mass at infinity; zero for lower laws.
        error: proved bound on the relative rounding error of each mass.
    """

    masses: Array
    spacing: float
    lost: float
    error: float


def sum_masses(
    probabilities: Array, sensitivities: Array, spacing: float, side: Side, *, prune: float = 1e-40
) -> LatticeMasses:
    """The law of ``sum_j sensitivities[j] * Bernoulli(probabilities[j])``, independent, on the lattice.

    Each sensitivity, shape (n,), non-negative, is rounded to a multiple of ``spacing``, up for UPPER and down for
    LOWER. End points that hold less than ``prune`` at any time are moved to infinity (UPPER) or to 0 (LOWER).

    Raises: InvalidInputError for probabilities outside [0, 1].
    Source: choquette-choo-2024, Appendix F.4. Cost: O(n K) with K lattice points in the end.
    """
    side = as_side(side)
    chances = np.asarray(probabilities, dtype=np.float64)
    if not np.all((chances >= 0.0) & (chances <= 1.0)):
        raise InvalidInputError("The 'probabilities' parameter must lie in [0, 1]. Got others instead.")
    upper = side is Side.UPPER
    exact = np.asarray(sensitivities, dtype=np.float64) / spacing
    # The quotient is off by one rounding; lattice_law allows for a shift that is wrong by a few.
    counts = np.ceil(exact * (1.0 - 4.0 * UNIT_ROUNDOFF)) if upper else np.floor(exact * (1.0 + 4.0 * UNIT_ROUNDOFF))
    order = np.argsort(counts, kind="stable")
    masses, off = two_point_sum(chances[order], counts[order].astype(np.int64), prune)
    error = (4.0 * chances.size + 16.0) * UNIT_ROUNDOFF
    if upper:
        return LatticeMasses(masses, spacing, off * (1.0 + 2.0 * error), error)
    masses[0] += off
    return LatticeMasses(masses, spacing, 0.0, error)


def coarsen(law: LatticeMasses, factor: int, side: Side) -> LatticeMasses:
    """A law on a lattice with ``factor`` times the spacing, rounded up for UPPER and down for LOWER."""
    side = as_side(side)
    if factor == 1:
        return law
    top = law.masses.size - 1
    padded = np.zeros((-(-top // factor) + 1) * factor)
    start = factor - 1 if side is Side.UPPER else 0
    padded[start : start + top + 1] = law.masses
    masses = padded.reshape(-1, factor).sum(axis=1)
    return replace(law, masses=masses, spacing=law.spacing * factor, error=law.error + (factor + 1) * UNIT_ROUNDOFF)


def product_mixture_law(
    probabilities: Array,
    sensitivities: Array,
    noise_multiplier: float,
    side: Side,
    resolution: Resolution,
    *,
    shares: float = SHARES,
) -> Law:
    """The law of ``E N(sum_j sensitivities[j] B_j, sigma^2)`` against ``N(0, sigma^2)``, B_j independent.

    Exact on the lattice when all sensitivities are equal; otherwise they are rounded to the asked side, by at most one
    part in ``shares`` of the typical summand and, in the end, of the typical sum; or in ``FINEST`` of the largest.

    Args:
        probabilities: shape (n,), in [0, 1].
        sensitivities: shape (n,), non-negative, in the unit of sigma = ``noise_multiplier``.
        shares: accuracy of the lattice; the time of the sum grows with it.
    """
    side = as_side(side)
    probabilities, sensitivities = np.asarray(probabilities, np.float64), np.asarray(sensitivities, np.float64)
    spacing, factor = _lattice(probabilities, sensitivities, shares)
    law = sum_masses(probabilities, sensitivities, spacing, side, prune=resolution.tail)
    law = coarsen(law, factor, side)
    return lattice_law(
        law.masses, law.spacing, noise_multiplier, side, resolution, lost=law.lost, weight_error=law.error
    )


def any_mixture_law(
    probabilities: Array,
    sensitivities: Array,
    noise_multiplier: float,
    side: Side,
    resolution: Resolution,
    *,
    probability_error: float = 0.0,
) -> Law:
    """The law of ``sum_k probabilities[k] N(sensitivities[k], sigma^2)`` against ``N(0, sigma^2)``, at any shifts.

    Multiples of the smallest positive sensitivity go by :func:`lattice_law`, all others one by one.

    Args:
        probabilities: shape (k,), non-negative, in any scale: they are divided by their sum.
        sensitivities: shape (k,), non-negative, in any order.
        probability_error: proved bound on the relative error of each probability.

    Cost: that of lattice_law, or O(nodes * k) exponentials.
    """
    side = as_side(side)
    places, inverse = np.unique(np.asarray(sensitivities, dtype=np.float64), return_inverse=True)
    weights: Array = np.zeros(places.size)
    np.add.at(weights, inverse, probabilities)
    weights /= weights.sum()
    places, weights = places[weights > 0.0], weights[weights > 0.0]
    error = probability_error + (len(probabilities) + 4) * UNIT_ROUNDOFF
    spacing = float(places[places > 0.0].min(initial=np.inf))
    counts = np.rint(places / spacing)
    if float(counts[-1]) <= LARGEST_COUNT and np.all(np.abs(places / spacing - counts) <= 4.0 * UNIT_ROUNDOFF * counts):
        masses: Array = np.zeros(int(counts[-1]) + 1)
        np.add.at(masses, counts.astype(np.int64), weights)
        return lattice_law(masses, spacing, noise_multiplier, side, resolution, weight_error=error)
    law = mixture_law(weights, places, noise_multiplier, side, resolution)
    return replace(law, place_error=law.place_error + error)


def _lattice(probabilities: Array, sensitivities: Array, shares: float) -> tuple[float, int]:
    """Spacing for the summands, and how much coarser the sum may be."""
    matter = (probabilities > 0.0) & (sensitivities > 0.0)
    p, c = probabilities[matter], sensitivities[matter]
    if c.size == 0:
        return 1.0, 1
    if c.min() == c.max():
        return float(c[0]), 1
    typical = float(p @ c) / float(p.sum())
    return max(typical / shares, float(c.max()) / FINEST), max(int(p.sum()), 1)
