"""Steps whose batches are cut, where it stays hidden how full a batch was.

Given the set of B - 1 others that are in the batch where the example is, the output relative to their sum is

    e           the example is in the batch,            placed
    x           another has its place,                  taken, x uniform among the others outside,
    -X_m        m more places are empty,                left[m], X_m the sum of m uniform ones of the set,

and with the ghost of the example 0 in place of e. The means of the set and of those outside, g and g', are nearly the
same. By Jensen each line of the second and third kind is at least a multiple of a Gaussian at ``g'`` or ``-m g``, so e
is hidden by points on a ray. All g, g' and e are covered by *cells*, each of which has one pair of Gaussian mixtures
that is worse than all in it.

Errs upward. Proofs: docs/theory/truncated-steps.md, "Hidden cuts".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, exp, log, log1p, pi, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from hockeystick.laws.displacement import SAFE, Displacement, added_dots, normal_masses, revealed_removal
from hockeystick.laws.dots import dots_of, law_from_dots
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import SMALLEST, UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.operations import Tick
from hockeystick.types import Direction

FEWEST = 100
"""In smaller batches the means of those inside and outside differ by too much to gain anything."""
REACH = 8.5
"""Standard deviations of the output along the ray beyond which all that is with the example counts as seen."""
WIDTH = 0.2
"""Of a cell of outputs along the ray, in standard deviations."""
CELL_SLACK = 1e-10
"""Above the relative error of a quotient of normal masses of cells, and of the end of a half-line."""
LONGEST_SHORT = 0.05
"""Means of at most this length are in cells of their own."""
LEAST_ACROSS = 1e-3
"""The example's gradient has at least this part across the ray, in units of the clipping norm."""
TILT = 0.5
"""How much of a cell of angles lengthens the example's gradient, relative to what lengthens the ray."""
RARE = (0.2, 0.005, 1e-12)
"""Chances that the two means are farther apart than cells of the first, the second and the third kind allow."""
RATIOS = 60
"""Places at which profiles are bounded."""
LARGEST = 60.0
"""Logarithm of the largest ratio that has a dot."""
NEGLIGIBLE = 1e-4
"""Share of the smallest delta that may come from all steps beyond the last dot."""
EVALUATIONS = (1300, 800, 300)
"""Cells of each kind that are tried."""
LEAST_WATCHED = 10.0
"""Cells are not halved for what they reveal at smaller ratios."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Chances of what is in the last place, given the label of the step; sum 1 or a little less.

    Attributes:
        placed: the example.
        taken: another, in a batch that is full.
        left: nobody, and m further places are empty, m = 0, 1, ...
    """

    placed: float
    taken: float
    left: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """How the steps of a run are labelled; the labels are released.

    Attributes:
        places: of steps *at the end*, given that label.
        end: the chance of that label. A step without the example whose batch lacks a few places of being full has it
            with the chance that is not ``kept``; tight steps always.
        near: the chance of those few steps that are not at the end.
        near_rate: an upper bound on the chance of the example in one of them.
        loose: the chance of all other steps.
    """

    places: Places
    end: float
    near: float
    near_rate: float
    loose: float


class Cell(NamedTuple):
    """Means g of norms in an interval, at an angle to the example's gradient in an interval; radians."""

    angles: tuple[float, float]
    lengths: tuple[float, float]


class Cover(NamedTuple):
    """The pair that is worse than all in a cell: points in units of the clipping norm.

    Attributes:
        ray: the norm of g.
        fresh: where another that has the example's place is, along g.
        along, across: of the example's gradient.
        lacking: what the squared norms of g and of g' lack of 1, at most.
    """

    ray: float
    fresh: float
    along: float
    across: float
    lacking: tuple[float, float]


def hiding(step: Displacement, noise_multiplier: float) -> Hiding:
    """Labels for a step: what is at the end has more to hide behind, what is near it less."""
    depth = min(2 + ceil(4.0 * noise_multiplier), 24, step.counts.size)
    counts, idle = step.counts[:depth], 1.0 - step.rate
    kept = min(0.5, 5.0 * sqrt(2.0 * depth) * step.rate * float(counts[0]) / step.placed)
    left = (step.empty, *((1.0 - kept) * idle * float(count) for count in counts[1:]))
    end = step.placed + step.taken + sum(left)
    drawn = step.rate + kept * idle
    return Hiding(
        places=Places(placed=step.placed / end, taken=step.taken / end, left=tuple(chance / end for chance in left)),
        end=end,
        near=drawn * float(counts[1:].sum()),
        near_rate=min(step.rate / drawn * (1.0 + 16.0 * UNIT_ROUNDOFF), 1.0),
        loose=float(step.counts[depth:].sum()),
    )


def end_step(
    step: Displacement,
    places: Places,
    others: tuple[int, int],
    noise_multiplier: float,
    least: float,
    resolution: Resolution,
    tick: Tick,
) -> Law:
    """An upper law of every step at the end, given that label.

    Args:
        places: the chances of that label, of which ``step.error`` is a bound on the relative error.
        others: B - 1 and N - 1: the others in a batch with the example, and all.
        noise_multiplier: sigma > 0.
        least: a delta of one step that does not matter.
        tick: called before every cell; may raise.

    Cost: EVALUATIONS * RATIOS cells of outputs along the ray, twice.
    """
    shift = 1.0 / noise_multiplier
    slack = SAFE + 8.0 * step.error + 16.0 * UNIT_ROUNDOFF * (80.0 * shift + 4.0 * shift**2)
    top = _largest(places, shift, least)
    above = np.append(0.0, np.geomspace(1e-2, top, RATIOS))

    def removed(excess: Array) -> Array:
        ratios = excess / places.placed * (1.0 - slack)
        revealed = revealed_removal(ratios, places.placed, places.left[0], places.taken, shift, slack)
        total, likelier, found = np.zeros(ratios.size), 1.0, np.zeros(ratios.size)
        for rare, tried in zip(RARE, EVALUATIONS, strict=True):
            # A likelier kind may have more weight than it should, so no bound is below that of one before.
            worst = _worst(ratios, places, Apart(others, rare), noise_multiplier, tried, tick)
            found = np.minimum(np.maximum(found, worst), revealed)
            total += (likelier - rare) * found
            likelier = rare
        total += likelier * revealed
        raised: Array = places.placed * (1.0 + slack) * total
        return np.minimum(raised, 1.0)

    floor = places.left[0] / (places.left[0] + places.placed) * (1.0 - slack)
    return law_from_dots(
        {
            **added_dots(places.placed, places.left[0], places.taken, shift, slack, resolution),
            **dots_of(np.unique(1.0 + places.placed * above), removed, Direction.REMOVE),
        },
        floor=floor,
    )


def _largest(places: Places, shift: float, least: float) -> float:
    """A ratio beyond which what is left does not matter, from what all others reveal."""
    above = np.expm1(np.linspace(0.1, LARGEST, 600))
    rest = places.placed * revealed_removal(above, places.placed, places.left[0], places.taken, shift, SAFE)
    return float(above[min(int(np.count_nonzero(rest > least)), above.size - 1)])


class Apart:
    """How far the means of those inside and outside may be apart, but for a rare chance.

    Bennett's inequality in the unit ball for draws without replacement, for the variance that a mean of the length in
    question leaves.
    """

    def __init__(self, others: tuple[int, int], rare: float) -> None:
        self.inside, everybody = others
        self.scale = everybody / (everybody - self.inside)
        self.needed = log(2.0 / rare) * (1.0 + SAFE)
        self.known: dict[float, float] = {}

    def of(self, length: float) -> float:
        """The distance for means of at least this length; at most 2."""
        if length not in self.known:
            self.known[length] = self._computed(length)
        return self.known[length]

    def _computed(self, length: float) -> float:
        distance = 2.0
        for _ in range(64):
            shorter = max(length - distance, 0.0)
            closer = self._of_variance(1.0 - shorter**2)
            if closer >= 0.999 * distance:
                break
            distance = closer
        return min(self.scale * distance * (1.0 + SAFE), 2.0)

    def _of_variance(self, variance: float) -> float:
        """The largest distance that is not that rare, from above; gradients are within 2 of their mean."""
        low, high = 0.0, 2.0
        for _ in range(50):
            middle = 0.5 * (low + high)
            jumps = 2.0 * middle / variance
            rarer = 0.25 * self.inside * variance * ((1.0 + jumps) * log1p(jumps) - jumps) >= self.needed
            low, high = (low, middle) if rarer else (middle, high)
        return high


def cover(cell: Cell, apart: float) -> Cover:
    """A pair that is worse than all means and gradients of a cell, with ``|g - g'| <= apart``.

    Entries of the Gram matrix of all points relative to the one in the numerator are raised (a longer part across does
    so to all at once), and what is left of the cell is covered by longer vectors of which those in it are projections.
    """
    (first, last), (short, long) = cell.angles, cell.lengths
    low, high = cos(last), cos(first)
    if short < LONGEST_SHORT:
        short, long = 0.0, LONGEST_SHORT
        reversal = 1.0 + apart / long
    else:
        reversal = apart / short
    low *= short if low >= 0.0 else long
    high *= long if high >= 0.0 else short
    # g* = (1 - reversal) g, so <g*, g> <= <g', g>.
    by_example = apart - reversal * low
    if short == 0.0:
        gap = (long + apart) ** 2 - apart**2
    elif reversal > 1.0:
        gap = min(1.0, (long + apart) ** 2)
    else:
        # It rises with |g| until g' may be on the sphere, and falls from there.
        ends = (short, min(max(1.0 - apart, short), long))
        gap = max(min(1.0, (length + apart) ** 2) - ((1.0 - reversal) * length) ** 2 for length in ends)
    raised = max(0.0, by_example, 2.0 * by_example + gap)
    half = 0.5 * (high - low)
    ray = sqrt(long**2 + half / TILT)
    along = 0.5 * (low + high) / ray
    across = sqrt(max(1.0 + raised + half * TILT - along**2, 0.0) * (1.0 + SAFE) + LEAST_ACROSS**2)
    outside = max(short - apart, 0.0) if short else 0.0
    return Cover(ray, (1.0 - reversal) * ray, along, across, (1.0 - short**2, 1.0 - outside**2))


def seen(above: Array, places: Places, points: Cover, noise_multiplier: float) -> Array:
    """At least what a cell reveals of the example, at ratios ``1 + above``: a divergence over ``places.placed``.

    Across the ray only the example has anything: given the output along it, what is seen is the profile of Gaussians
    at a distance, a decreasing convex function of the ratio K of what hides to what shows. In a cell of outputs along
    the ray, K is between the values at its ends, term by term, and has a known mean.
    """
    unit = 1.0 / noise_multiplier
    own, across = points.along * unit, points.across * unit
    inside, outside = (exp(-0.5 * lacking * unit**2) for lacking in points.lacking)
    centres = np.array([0.0, points.fresh * unit, *(-m * points.ray * unit for m in range(len(places.left)))])
    weights = np.array(
        [places.placed, places.taken * outside, *(chance * inside**m for m, chance in enumerate(places.left))]
    )
    ends = np.linspace(own - REACH, own + REACH, int(2.0 * REACH / WIDTH) + 2)
    shown = normal_masses(ends, own)
    masses = np.array([normal_masses(ends, centre) for centre in centres])
    exponents = np.outer(centres - own, ends) - 0.5 * (centres**2 - own**2)[:, None]
    slack = CELL_SLACK + 16.0 * UNIT_ROUNDOFF * float(max(np.abs(centres).max(), np.abs(ends).max())) ** 2
    ratios = np.exp(np.maximum(exponents, -700.0))
    least = np.minimum(ratios[:, 1:], ratios[:, :-1])
    hides, column = weights @ ratios, above[:, None]
    low = (least[0] + column * (weights @ least)) * (1.0 - slack)
    at_ends = ratios[0] + column * hides
    high = np.maximum(at_ends[:, 1:], at_ends[:, :-1])
    mean = np.clip((masses[0] + column * (weights @ masses)) / shown * (1.0 - slack), low, high)
    share = (mean - low) / np.maximum(high - low, SMALLEST)
    values = (1.0 - share) * _across(low, across) + share * _across(high, across)
    total: Array = (values @ shown) * (1.0 + slack) + 2.0 * float(ndtr(-REACH)) + SMALLEST
    return total


def _across(ratio: Array, distance: float) -> Array:
    """At least the divergence at a ratio of two Gaussians at a distance, from above."""
    middle = -np.log(ratio) / distance
    values: Array = np.maximum(
        ndtr(middle + 0.5 * distance) * (1.0 + SAFE) - ratio * (1.0 - CELL_SLACK) * ndtr(middle - 0.5 * distance), 0.0
    )
    return values


def _worst(above: Array, places: Places, apart: Apart, noise_multiplier: float, most: int, tick: Tick) -> Array:
    """At least the largest of all cells at each ratio; cells that have the largest bound are halved, about so many."""

    def of(cell: Cell) -> Array:
        tick()
        return seen(above, places, cover(cell, apart.of(cell.lengths[0])), noise_multiplier)

    watched = np.flatnonzero(above >= min(LEAST_WATCHED, 0.1 * above[-1]))[::2]
    cells = list(_coarse())
    values = [of(cell) for cell in cells]
    tried = len(cells)
    while tried < most:
        worst = set(np.argmax([value[watched] for value in values], axis=0).tolist())
        kept = [place for place in range(len(cells)) if place not in worst]
        fresh = [half for place in sorted(worst) for half in _halves(cells[place], apart, noise_multiplier)]
        cells = [*(cells[place] for place in kept), *fresh]
        values = [*(values[place] for place in kept), *(of(cell) for cell in fresh)]
        tried += len(fresh)
    largest: Array = np.max(values, axis=0)
    return largest


def _coarse() -> Sequence[Cell]:
    """All means and gradients, in a few cells."""
    lengths = (0.0, LONGEST_SHORT, 0.15, 0.4, 0.6, 0.8, 1.0)
    return [
        Cell((pi * turn / 8, pi * (turn + 1) / 8), (lengths[i], lengths[i + 1]))
        for turn in range(8)
        for i in range(len(lengths) - 1)
    ]


def _halves(cell: Cell, apart: Apart, noise_multiplier: float) -> Sequence[Cell]:
    """Of the angles or of the lengths: whichever makes the covers smaller."""

    def size(half: Cell) -> float:
        points = cover(half, apart.of(half.lengths[0]))
        lost = 0.15 * noise_multiplier**-2 * (half.lengths[1] ** 2 - half.lengths[0] ** 2)
        return points.along**2 + points.across**2 + 0.5 * (points.ray**2 - half.lengths[0] ** 2) + lost

    (first, last), (short, long) = cell
    choices = [[Cell((first, 0.5 * (first + last)), cell.lengths), Cell((0.5 * (first + last), last), cell.lengths)]]
    if short >= LONGEST_SHORT:
        middle = 0.5 * (short + long)
        choices.append([Cell(cell.angles, (short, middle)), Cell(cell.angles, (middle, long))])
    return min(choices, key=lambda halves: sum(size(half) for half in halves))
