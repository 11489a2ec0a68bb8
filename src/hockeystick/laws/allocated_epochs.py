"""Both sides of the profile of many epochs of random allocation, or of one whose bins are replayed.

One epoch is asked for its profile on a lattice (:mod:`.mean_of_ratios`), and the epochs are composed by one transform
(:mod:`.tilted_powers`). Cost: some thousands of places and frequencies, whatever the numbers of steps and epochs are.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import ceil, erfc, expm1, floor, log, log1p, sqrt

import numpy as np

from hockeystick.laws.contours import Sides
from hockeystick.laws.law import Array
from hockeystick.laws.mean_moments import MARGIN, MeanMoments
from hockeystick.laws.mean_of_ratios import LOWEST, Lines, MeanOfRatios
from hockeystick.laws.tilted_powers import MOST_USEFUL, Copies, LatticeLaw, Powers, lattice_laws, useful_share
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
        # Several epochs need lines of all octaves, and laws take less time than the longest of them.
        self.single = MeanOfRatios(noise_multiplier, bins, narrow=epochs == 1, lines=lines)
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
        return Powers(Copies(laws[0], self.epochs)), Powers(Copies(laws[1], self.epochs))


def law_spread(single: MeanOfRatios) -> float:
    """About the standard deviation of the logarithm of one epoch's ratio."""
    return sqrt(log1p(expm1(single.mu**2) / single.bins))


def laws_of_one_epoch(
    single: MeanOfRatios, spacing: float, negligible: float, *, far: bool = False
) -> tuple[LatticeLaw, LatticeLaw] | None:
    """A lower and an upper law of one epoch on the places ``e^(i spacing)``; None where too little is known of it.

    Args:
        negligible: beyond places where o is below it, ratios are infinite, or 0.
        far: whether moments bound o from above at places beyond those at which it is known, which serves many epochs.
    """
    above = _known(single, spacing, negligible, upwards=True)
    below = _known(single, spacing, negligible, upwards=False)
    if min(len(above[0]), len(below[0])) < FEWEST:
        return None
    lower, upper = (np.concatenate([down[::-1], up]) for down, up in zip(below, above, strict=True))
    if far:
        beyond = _beyond(single, spacing, len(above[0]), float(upper[-1]), negligible)
        lower, upper = np.append(lower, np.zeros(len(beyond))), np.append(upper, beyond)
    return lattice_laws(spacing, -len(below[0]), lower, upper)


def _beyond(single: MeanOfRatios, spacing: float, first: int, last_known: float, negligible: float) -> Array:
    """Upper bounds on o at places from ``first`` on, by a moment; chords where that is above the last that is known."""
    logs = spacing * np.arange(first - 1, ceil(OCTAVES * log(2.0) / spacing), dtype=np.float64)
    bounds = MeanMoments(single.mu, single.bins, 1).tail(logs, negligible)
    lower = np.flatnonzero(bounds < 0.5 * last_known)
    if lower.size == 0:
        return np.zeros(0)
    # o is convex, so it is below the chord from the last place at which it is known.
    meets, places = int(lower[0]), np.exp(logs[: len(bounds)])
    chord = np.interp(places[:meets], places[[0, meets]], [last_known, bounds[meets]]) * (1.0 + MARGIN)
    return np.append(chord, bounds[meets:])[1:]


def _known(single: MeanOfRatios, spacing: float, negligible: float, *, upwards: bool) -> tuple[Array, Array]:
    """Bounds on o at the places from 1 on upwards, or below 1 on downwards, as far as they tell something."""
    octave, lowers, uppers = log(2.0) / spacing, [np.zeros(0)], [np.zeros(0)]
    for number in range(FAR_OCTAVES):
        if number >= OCTAVES and not single.reaches(number):
            break
        # The places of one line: above 2^(number - 1) and up to 2^number; or the same downwards.
        if upwards:
            indices = np.arange(floor((number - 1) * octave) + 1 if number else 0, floor(number * octave) + 1)
        else:
            indices = -np.arange(max(ceil(number * octave), 1), ceil((number + 1) * octave))
        edge = 2.0 ** (number if upwards else -number)
        line = single.line(edge) if edge >= LOWEST else None
        if line is None:
            break
        for part in np.array_split(indices, ceil(len(indices) / TOGETHER)):
            lower, upper = line.out_of_the_money(np.exp(spacing * part))
            vague = np.flatnonzero((lower <= 0.5 * upper) | (upper <= negligible))
            end = len(upper) if vague.size == 0 else int(vague[0]) + 1
            lowers.append(lower[:end])
            uppers.append(upper[:end])
            if end < len(upper):
                return np.concatenate(lowers), np.concatenate(uppers)
    return np.concatenate(lowers), np.concatenate(uppers)


@lru_cache(maxsize=64)
def allocated_epochs(noise_multiplier: float, bins: int, epochs: int, smallest_delta: float) -> AllocatedEpochs:
    """The profile of these epochs, which both sides and neighbouring questions share."""
    lines = _lines_of(noise_multiplier, bins, epochs == 1)
    return AllocatedEpochs(noise_multiplier, bins, epochs, smallest_delta, lines=lines)


@lru_cache(maxsize=16)
def _lines_of(noise_multiplier: float, bins: int, single: bool) -> Lines:
    """The lines of one epoch, which all numbers of epochs share; of a single one, narrow ones are among them."""
    return {}
