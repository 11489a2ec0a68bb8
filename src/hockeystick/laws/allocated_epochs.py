"""Both sides of the profile of many epochs of random allocation, or of one whose bins are replayed.

One epoch is asked for its profile on a lattice (:mod:`.mean_of_ratios`), and the epochs are composed by one transform
(:mod:`.tilted_powers`). Cost: some thousands of places and frequencies, whatever the numbers of steps and epochs are.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import ceil, erfc, expm1, floor, log, log1p, log2, sqrt
from typing import NamedTuple

import numpy as np

from hockeystick.laws.answers import Sides
from hockeystick.laws.lattice_laws import Indices, LatticeLaw, lattice_laws
from hockeystick.laws.law import Array
from hockeystick.laws.mean_moments import MeanMoments
from hockeystick.laws.mean_of_ratios import LOWEST, Lines, MeanOfRatios
from hockeystick.laws.one_large_ratio import OneLargeRatio
from hockeystick.laws.tilted_powers import MOST_USEFUL, Copies, Powers, useful_share
from hockeystick.types import Direction

CELLS = 90.0
"""Places of the lattice for each standard deviation of the logarithm of one epoch's ratio."""
TAIL = 1e-6
"""Share of the smallest delta that matters: beyond places where all epochs together have less, ratios are infinite."""
USEFUL = 4e-4
"""Sides that are farther apart, relative to epsilon, are left to the laws."""
NEGLIGIBLE = 1e-2
"""Nor does it matter, relative to the smallest delta that matters, what is below this."""
TOGETHER = 256
"""Places that are asked at once."""
DEVIATIONS, MOST_TOGETHER = 4.5, 3
"""One line serves so many standard deviations of an epoch's logarithm, up to 2 to this power."""
OCTAVES_TOGETHER = 3
"""How many octaves more are asked at once where one large ratio answers."""
STILL_MUCH, PLACES_BEYOND = 300.0, 40
"""Moments bound o beyond the last place at which lines know it if there it is so many times what is negligible.

They do at so many places, at most.
"""
COARSEST = 0.025
"""About by how much the logarithm of o may fall from a place to the next one, far out."""
FEWEST = 2
"""Places on either side of 1, without which there is no law."""
OCTAVES, FAR_OCTAVES = 12, 40
"""Places up to 2^11, or up to 2^39 where one large ratio answers, and down to the lowest of a line, are asked.

Farther ones count as infinite, or as 0.
"""
BEYOND = 0.01
"""Share of the smallest delta: where about so much is beyond all places, no law of them is close at that delta."""


class AllocatedEpochs:
    """The profile of ``epochs`` independent epochs, each of which hides one visit among ``bins`` steps.

    Args:
        noise_multiplier: of one visit, all replays of its batch together.
        smallest_delta: the smallest that matters; affects tightness only.
        lines: those of the same epoch that are known, as for :class:`~hockeystick.laws.mean_of_ratios.MeanOfRatios`.
    """

    def __init__(
        self, noise_multiplier: float, bins: int, epochs: int, smallest_delta: float, *, lines: Lines | None = None
    ) -> None:
        self.single = MeanOfRatios(noise_multiplier, bins, several=epochs > 1, lines=lines)
        self.epochs, self.smallest = epochs, smallest_delta
        self.moments = MeanMoments(1.0 / noise_multiplier, bins, epochs)
        self._asked: dict[tuple[float, Direction, bool], Sides | None] = {}

    def sides(self, epsilon: float, direction: Direction, *, compared: bool = False) -> Sides | None:
        """Both bounds on delta, or None where they are not close enough to be useful.

        Args:
            compared: whether they are only compared with the smallest delta: they are useful if both are well above it,
                or well below.
        """
        asked = (epsilon, direction, compared)
        if asked not in self._asked:
            self._asked[asked] = self._useful(epsilon, direction, compared)
        return self._asked[asked]

    def foresee(self, epsilons: Sequence[float], direction: Direction) -> None:
        """Find what :meth:`sides` will say of these epsilons, of a single epoch many of them at once."""
        if self.epochs == 1 and self.single.in_reach:
            self.single.foresee(epsilons, direction)

    def _useful(self, epsilon: float, direction: Direction, compared: bool) -> Sides | None:
        sides = self._sides(epsilon, direction, compared) if self.single.in_reach else None
        if sides is None or (compared and sides.miss(self.smallest)):
            return sides
        known = self._powers if self.epochs > 1 else None
        share = MOST_USEFUL if known is None else useful_share(USEFUL, epsilon, known[1].order(epsilon, direction))
        is_close = sides.upper - sides.lower <= max(share * sides.upper, NEGLIGIBLE * self.smallest)
        return sides if is_close else None

    @cached_property
    def _reaches(self) -> bool:
        """Whether places go far enough for the smallest delta: a guess, by the one visit with the example."""
        if self.single.reaches(OCTAVES - 1):
            return True
        mu = self.single.mu
        deviations = (log(self.single.bins * 2.0 ** (OCTAVES - 1)) - 0.5 * mu**2) / mu
        return self.epochs * 0.5 * erfc(deviations * sqrt(0.5)) <= BEYOND * self.smallest

    def _sides(self, epsilon: float, direction: Direction, compared: bool = False) -> Sides | None:
        if self.epochs == 1:
            return self.single.sides(epsilon, direction)
        if compared and not self._reaches:  # the law that is needed near this delta serves all comparisons
            return None
        if self._powers is None:
            return None
        lower, upper = (power.delta(epsilon, direction) for power in self._powers)
        if lower is None or upper is None:
            return Sides(0.0, self._powers[1].most(epsilon, direction))
        return Sides(lower, upper)

    @cached_property
    def _powers(self) -> tuple[Powers, Powers] | None:
        """A lower and an upper law of one epoch, composed; None where too little is known of it."""
        spacing = law_spread(self.single) / CELLS
        laws = laws_of_one_epoch(self.single, spacing, TAIL * self.smallest / self.epochs)
        if laws is None:
            return None
        below, above = (Powers(Copies(law, self.epochs), smallest_delta=self.smallest) for law in laws)
        return below, above


def law_spread(single: MeanOfRatios) -> float:
    """About the standard deviation of the logarithm of one epoch's ratio."""
    return sqrt(log1p(expm1(single.mu**2) / single.bins))


def laws_of_one_epoch(single: MeanOfRatios, spacing: float, negligible: float) -> tuple[LatticeLaw, LatticeLaw] | None:
    """A lower and an upper law of one epoch on the places ``e^(i spacing)``; None where too little is known of it.

    Args:
        negligible: beyond places where o is below it, ratios are infinite, or 0.
    """
    above = _known(single, spacing, negligible, upwards=True)
    below = _known(single, spacing, negligible, upwards=False)
    if min(len(above.indices), len(below.indices)) < FEWEST:
        return None
    above = _joined([above, _beyond(single, spacing, above, negligible, Direction.REMOVE)])
    below = _joined([below, _beyond(single, spacing, below, negligible, Direction.ADD)])
    indices, lower, upper = (np.concatenate([down[::-1], up]) for down, up in zip(below, above, strict=True))
    return lattice_laws(spacing, indices, lower, upper)


class Known(NamedTuple):
    """Bounds on o at the places ``e^(i spacing)`` of some indices i: arrays of the same shape."""

    indices: Indices
    lower: Array
    upper: Array


NOTHING = Known(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))


def _beyond(single: MeanOfRatios, spacing: float, known: Known, negligible: float, direction: Direction) -> Known:
    """Upper bounds at a few places beyond the last that is known, by a moment, where what is left there matters."""
    last, last_known = abs(int(known.indices[-1])), float(known.upper[-1])
    if last_known <= STILL_MUCH * negligible:
        return NOTHING
    logs = spacing * np.arange(last, ceil(OCTAVES * log(2.0) / spacing), dtype=np.float64)
    bounds = MeanMoments(single.mu, single.bins, 1).tail(logs, negligible, direction)
    lower = np.flatnonzero(bounds < 0.5 * last_known)
    if lower.size == 0:
        return NOTHING
    # o is convex, as these bounds are, so it is below all chords, the one from the last known place included.
    few = np.unique(np.linspace(int(lower[0]), len(bounds) - 1, PLACES_BEYOND).astype(np.intp))
    sign = 1 if direction is Direction.REMOVE else -1
    return Known(sign * (last + few), np.zeros(len(few)), bounds[few])


def _known(single: MeanOfRatios, spacing: float, negligible: float, *, upwards: bool) -> Known:
    """Bounds from 1 on upwards, or below 1 on downwards, as far as they tell something; fewer and fewer far out."""
    octave, sign = log(2.0) / spacing, 1 if upwards else -1
    number = min(max(ceil(DEVIATIONS * law_spread(single) / log(2.0)), 1), MOST_TOGETHER)
    index, stride = (0 if upwards else 1), 1
    parts: list[Known] = []
    while number < OCTAVES or (number < FAR_OCTAVES and single.reaches(number)):
        # One line from the lowest place to that power of 2, and then one for each octave.
        line = single.line(2.0**number)
        if line is None:
            break
        if isinstance(line, OneLargeRatio):
            number = min(number + OCTAVES_TOGETHER, FAR_OCTAVES)
        end = number * octave if upwards else -log2(LOWEST) * octave
        indices = np.arange(index, floor(end) + 1, stride)
        for part in np.array_split(indices, ceil(len(indices) / TOGETHER)):
            lower, upper = line.out_of_the_money(np.exp(sign * spacing * part))
            vague = np.flatnonzero((lower <= 0.5 * upper) | (upper <= negligible))
            count = len(upper) if vague.size == 0 else int(vague[0]) + 1
            parts.append(Known(sign * part[:count], lower[:count], upper[:count]))
            if count < len(upper):
                return _joined(parts)
        if not upwards:
            break
        stride = _stride(parts[-1])
        index, number = int(indices[-1]) + stride, number + 1
    return _joined(parts)


def _joined(parts: Sequence[Known]) -> Known:
    return Known(*(np.concatenate(values) for values in zip(*parts, strict=True))) if parts else NOTHING


def _stride(last: Known) -> int:
    """The distance of the next places, in indices: 1, 2, 4, or 8, which o falls little over."""
    first = max(len(last.upper) - 9, 0)
    fall = log(float(last.upper[first] / last.upper[-1])) / max(int(last.indices[-1] - last.indices[first]), 1)
    return int(2.0 ** min(max(floor(log2(COARSEST / max(fall, 1e-9))), 0), 3))


@lru_cache(maxsize=64)
def allocated_epochs(noise_multiplier: float, bins: int, epochs: int, smallest_delta: float) -> AllocatedEpochs:
    """The profile of these epochs, which both sides and neighbouring questions share."""
    lines = _lines_of(noise_multiplier, bins, epochs == 1)
    return AllocatedEpochs(noise_multiplier, bins, epochs, smallest_delta, lines=lines)


@lru_cache(maxsize=16)
def _lines_of(noise_multiplier: float, bins: int, single: bool) -> Lines:
    """The lines of one epoch, which all numbers of epochs share; of a single one, narrow ones are among them."""
    return {}
