"""Both sides of the profile of many epochs of random allocation with noise and bins of their own.

Each kind of epoch is a law on one lattice that all of them share (:mod:`.allocated_epochs`), and one transform composes
them (:mod:`.tilted_powers`). Proof: docs/theory/contours.md, "Epochs that differ".
Cost: some thousand places and one transform for each kind, for each order.
"""

from collections.abc import Sequence
from functools import cached_property
from math import sqrt
from typing import NamedTuple

from hockeystick.laws.allocated_epochs import CELLS, NEGLIGIBLE, TAIL, USEFUL, law_spread, laws_of_one_epoch
from hockeystick.laws.answers import Sides
from hockeystick.laws.mean_of_ratios import MeanOfRatios
from hockeystick.laws.tilted_powers import Copies, Powers, useful_share
from hockeystick.types import Direction

LEAST_CELLS = 8.0
"""Places of the lattice for each standard deviation of the logarithm of the ratio of any epoch, at least."""


class Allocation(NamedTuple):
    """Epochs that hide one visit each.

    Attributes:
        noise_multiplier: of one visit, all replays of its batch together.
        bins: steps of an epoch, from 2 on.
    """

    noise_multiplier: float
    bins: int

    @property
    def in_reach(self) -> bool:
        """Whether the ratio of an epoch is known on a lattice."""
        return self._single.in_reach

    @property
    def _single(self) -> MeanOfRatios:
        return MeanOfRatios(self.noise_multiplier, self.bins, several=True)


class AllocatedPhases:
    """The profile of independent epochs of several kinds.

    Args:
        parts: kinds of epochs and how many of each, at least one; all in reach.
        smallest_delta: the smallest that matters; affects tightness only.

    >>> phases = AllocatedPhases([(Allocation(1.0, 100), 1), (Allocation(2.0, 50), 3)], 1e-6)
    >>> lower, upper = phases.sides(1.0, Direction.REMOVE)
    >>> upper / lower - 1.0 < 2e-3
    True
    """

    def __init__(self, parts: Sequence[tuple[Allocation, int]], smallest_delta: float) -> None:
        self.parts, self.smallest = tuple(parts), smallest_delta
        self._answers: dict[tuple[float, Direction], Sides | None] = {}

    def sides(self, epsilon: float, direction: Direction, compared: float | None = None) -> Sides | None:
        """Both bounds on delta, or None where they are not close enough to be useful.

        Args:
            compared: a delta that is all that the bounds are compared with: they are useful if both are well above it,
                or well below.
        """
        sides = self._sides(epsilon, direction)
        if sides is None or self._powers is None or (compared is not None and sides.miss(compared)):
            return sides
        share = useful_share(USEFUL, epsilon, self._powers[1].order(epsilon, direction))
        is_close = sides.upper - sides.lower <= max(share * sides.upper, NEGLIGIBLE * self.smallest)
        return sides if is_close else None

    def by_moments(self, epsilon: float, direction: Direction) -> float:
        """An upper bound on delta by a moment of the upper laws; 1 where these are not known."""
        return 1.0 if self._powers is None else self._powers[1].most(epsilon, direction)

    def _sides(self, epsilon: float, direction: Direction) -> Sides | None:
        if self._powers is None:
            return None
        if (epsilon, direction) not in self._answers:
            lower, upper = (power.delta(epsilon, direction) for power in self._powers)
            sides = Sides(0.0, self.by_moments(epsilon, direction)) if upper is None else Sides(lower or 0.0, upper)
            self._answers[epsilon, direction] = sides
        return self._answers[epsilon, direction]

    @cached_property
    def _powers(self) -> tuple[Powers, Powers] | None:
        """The lower laws and the upper ones, composed; None where too little is known of an epoch."""
        singles = [MeanOfRatios(*part, several=True) for part, _ in self.parts]
        counts = [count for _, count in self.parts]
        spreads = [law_spread(single) for single in singles]
        # What the places add to the variance of all is proportional to their squared distance, and to the epochs.
        whole = sum(count * spread**2 for count, spread in zip(counts, spreads, strict=True)) / sum(counts)
        spacing = min(sqrt(whole) / CELLS, min(spreads) / LEAST_CELLS)
        below, above = [], []
        for single, count in zip(singles, counts, strict=True):
            laws = laws_of_one_epoch(single, spacing, TAIL * self.smallest / sum(counts))
            if laws is None:
                return None
            below.append(Copies(laws[0], count))
            above.append(Copies(laws[1], count))
        return Powers(*below, smallest_delta=self.smallest), Powers(*above, smallest_delta=self.smallest)
