"""Steps in which the example at stake may push another out of a batch that is full.

A step is *tight* where at least B - 1 others are drawn, B the largest batch: then the example, where it is in the
batch, took the last place. After what is known is subtracted, a tight step is

    P = m N(0) + f N(v) + p N(e)    against    Q = m N(0) + f N(v) + p N(0),

with v the gradient of the other that has the last place, e that of the example, both of norm at most 1, and m, f, p the
chances that the last place is empty, another's, or the example's.

* :func:`tight_step` bounds all of them at once, from distances alone.
* :func:`ray_step` is the step of one dataset: the others have one gradient, at an angle to the example's.

Proofs: docs/theory/truncated-steps.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, cos, exp, sin

import numpy as np
from scipy.special import ndtr, ndtri

from hockeystick.laws.dots import dots_of, law_from_dots
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import SMALLEST, UNIT_ROUNDOFF, Array, Law, lower_law
from hockeystick.types import Direction, Side

SAFE = 1e-12
"""Far above the relative rounding of the few operations behind one value, exponentials apart."""
ROOM = 1e-6
"""How far beyond the largest ratio a dot shows that nothing is left there."""
END = 40.0
"""No normal tail beyond so many standard deviations is a double."""
LARGEST_SCORE = 200.0
"""Logarithm of the largest ratio of Gaussians that has a dot of its own."""
CELLS = 16
"""Cells of a standard deviation of the outputs."""
CELL_ERROR = 1e-11
"""Far above the relative rounding of a difference of two normal tails a cell apart."""
GROUPS = 60
"""Groups of cells for each factor e of the ratio, or of its distance from 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Displacement:
    """How often a step is tight, and who has the last place then; chances of the whole step.

    Attributes:
        loose: that at most B - 2 others are drawn.
        empty, taken, placed: that the step is tight and the last place is empty, another's, or the example's; with
            ``loose`` they sum to 1.
        pushed: the part of ``placed`` in which another would have had the place.
        counts: shape (n,), that exactly B - 1, B - 2, ... others are drawn, down to the least that is not negligible.
        rate: that the example is drawn, exactly.
        error: proved bound on the relative error of each of these numbers.
    """

    loose: float
    empty: float
    taken: float
    placed: float
    pushed: float
    counts: Array
    rate: float
    error: float


def tight_step(step: Displacement, noise_multiplier: float, resolution: Resolution) -> Law:
    """An upper law of every tight step, given that it is tight.

    With ``p`` the chance of the last place, ``a' = 1 + p (a - 1)``, ``b = a' / a`` and the share k of empty places
    among the others, the profile at ``a' >= 1`` is p times the divergence at a of N(0) from a mixture: at distances 1
    and 2 with weights ``(1 - b) k + b`` and ``(1 - b) (1 - k)`` to remove, at 0 and 1 with weights ``(1 - b) k`` and
    ``(1 - b) (1 - k) + b`` to add.

    Args:
        noise_multiplier: sigma > 0.

    Cost: O(nodes) profiles of mixtures, by bisection, and a convex hull in rational arithmetic.
    """
    shift = 1.0 / noise_multiplier
    tight = step.empty + step.taken + step.placed
    placed, empty, taken = step.placed / tight, step.empty / tight, step.taken / tight
    slack = SAFE + 8.0 * step.error + 16.0 * UNIT_ROUNDOFF * (2.0 * END * shift + 4.0 * shift**2)

    def removed(excess: Array) -> Array:
        raised: Array = placed * (1.0 + slack) * revealed_removal(excess / placed, placed, empty, taken, shift, slack)
        return np.minimum(raised, 1.0)

    reach, unit = -float(ndtri(resolution.tail)), resolution.for_side(Side.UPPER)
    distance = 2.0 * shift
    scores = distance * np.linspace(shift, reach + distance, ceil((reach + shift) * unit) + 2) - 0.5 * distance**2
    far = np.expm1(np.clip(scores, 0.0, LARGEST_SCORE))
    return law_from_dots(
        {
            **added_dots(placed, empty, taken, shift, slack, resolution),
            **dots_of(np.unique(1.0 + placed * far), removed, Direction.REMOVE),
        },
        # The part of N(0) that both runs have is at most all that is in the first.
        floor=empty / (empty + placed) * (1.0 - slack),
    )


def revealed_removal(above: Array, placed: float, empty: float, taken: float, shift: float, slack: float) -> Array:
    """At least the profile to remove over ``placed``, at ratios ``1 + placed * above``; others are revealed.

    ``N(0)`` against ``b N(1) + (1 - b) (empty N(1) + taken N(2)) / (1 - placed)``, b as in :func:`tight_step`; chances
    that are missing from a sum of 1 hide nothing.
    """
    others, own = above / (1.0 + above), (1.0 + placed * above) / (1.0 + above)
    return _from_mixture(above, (0.0 * own, others * empty + own, others * taken), shift, slack)


def added_dots(
    placed: float, empty: float, taken: float, shift: float, slack: float, resolution: Resolution
) -> dict[float, Fraction]:
    """Dots of the profile to add: N(0) against ``b N(1) + (1 - b) (empty N(0) + taken N(1)) / (1 - placed)``."""

    def added(excess: Array) -> Array:
        above = excess / placed
        others, own = above / (1.0 + above), (1.0 + placed * above) / (1.0 + above)
        raised: Array = (
            placed * (1.0 + slack) * _from_mixture(above, (others * empty, others * taken + own), shift, slack)
        )
        return np.minimum(raised, 1.0)

    # The end of the half-line solves a linear equation in a, and beyond the last ratio nothing is left.
    reach, unit = -float(ndtri(resolution.tail)), resolution.for_side(Side.UPPER)
    z = np.linspace(-reach, 0.5 * shift, ceil((reach + 0.5 * shift) * unit) + 2)
    density = np.append(0.0, np.exp(shift * z - 0.5 * shift**2))
    bounded = (1.0 - density) / np.maximum(empty + (taken + placed) * density, exp(-LARGEST_SCORE))
    bounded[0] *= 1.0 + ROOM
    return dots_of(np.unique(1.0 + placed * np.maximum(bounded, 0.0)), added, Direction.ADD)


def _from_mixture(above: Array, weights: Sequence[Array], shift: float, slack: float) -> Array:
    """At least the hockey-stick divergence of N(0) from ``sum_k weights[k] N(-k shift)``, at ratios ``1 + above``.

    The ratio of their densities at y is ``1 / D(y)``, D increasing, so the divergence is that of a half-line. A smaller
    ratio than the one asked for has more, and with ``slack`` the end that is found is that of a ratio in between.
    """
    ratio = (1.0 + above) * (1.0 - slack)
    low, high = np.full(above.shape, -END), np.full(above.shape, END)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(64):
            middle = 0.5 * (low + high)
            density = sum(
                np.where(weight > 0.0, weight * np.exp(k * shift * middle - 0.5 * (k * shift) ** 2), 0.0)
                for k, weight in enumerate(weights)
            )
            inside = ratio * density < 1.0
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    mass = sum(weight * ndtr(high - k * shift) for k, weight in enumerate(weights))
    values: Array = np.maximum(ndtr(high) * (1.0 + SAFE) - ratio * mass * (1.0 - slack), 0.0) + SMALLEST
    return values


def ray_step(step: Displacement, noise_multiplier: float, angle: float, resolution: Resolution) -> Law:
    """A lower law of the step of a dataset: the others have one gradient g, the example one at an angle to ``-g``.

    Relative to B g, and in the plane of both, j places that are empty give ``-j g``, and the example adds its gradient.
    Whoever sees the cell of an output alone, or a group of cells, sees less: so the probabilities of groups are a
    contraction, whatever the groups are.

    Args:
        noise_multiplier: sigma > 0.
        angle: from 0 (opposite to the others) to pi / 2.

    Cost: O(cells * counts + cells^2).
    """
    shift, reach = 1.0 / noise_multiplier, -float(ndtri(resolution.tail))
    first = reach + 2.0 * shift
    along, across = _ends(-first, reach), _ends(-reach, reach + shift)
    back, aside = -cos(angle) * shift, sin(angle) * shift
    near = min(step.counts.size, ceil((first + END) * noise_multiplier))
    rest = float(step.counts[near:].sum())
    places = -(1.0 + np.arange(near)) * shift

    def roomy(moved: float) -> Array:
        """Of batches with room; those of ``rest`` are END standard deviations beyond the end of the first cell."""
        masses = np.zeros(along.size - 1)
        for place, chance in zip(places, step.counts, strict=False):
            masses += chance * normal_masses(along, place + moved)
        masses[0] += rest
        return masses

    at_rest, moved = roomy(0.0), roomy(back)
    full, ahead, behind = (normal_masses(along, place) for place in (0.0, back - shift, -shift))
    still, beside = normal_masses(across, 0.0), normal_masses(across, aside)
    unmoved = np.outer((1.0 - step.rate) * at_rest + step.taken * full, still)
    of_p = unmoved + np.outer(step.rate * moved + step.pushed * ahead, beside)
    of_q = unmoved + np.outer(step.rate * at_rest + step.pushed * behind, still)
    return _grouped(of_p.ravel(), of_q.ravel(), step)


def _ends(low: float, high: float) -> Array:
    inner = np.linspace(low, high, ceil((high - low) * CELLS) + 1)
    return np.concatenate([[-np.inf], inner, [np.inf]])


def normal_masses(ends: Array, centre: float) -> Array:
    """Normal probabilities between ends, from the tail on their own side; shape (ends - 1,)."""
    masses: Array = np.where(ends[1:] <= centre, np.diff(ndtr(ends - centre)), -np.diff(ndtr(centre - ends)))
    return masses


def _grouped(of_p: Array, of_q: Array, step: Displacement) -> Law:
    """The lower law of groups of cells with nearly the same ratio."""
    seen = of_q > SMALLEST
    of_p, of_q = of_p[seen], of_q[seen]
    ratio = of_p / of_q
    order = np.argsort(ratio, kind="stable")
    of_p, of_q, ratio = of_p[order], of_q[order], ratio[order]
    group = np.floor(GROUPS * np.arcsinh((ratio - 1.0) / (0.01 * step.rate)))
    starts = np.flatnonzero(np.concatenate([[True], np.diff(group) > 0.0]))
    error = CELL_ERROR + step.error
    return lower_law(np.add.reduceat(of_q, starts), np.add.reduceat(of_p, starts), error, 2.0 * error)
