"""Both sides of the profile of many Poisson steps in which an example takes part about once, or less.

One step has the ratio ``X = 1 - q + q Y``, ``Y = exp(mu z - mu^2 / 2)``, so its puts and calls are those of Y, in
closed form, and :mod:`.tilted_powers` composes the steps. Nearly always X is next to 1. What is there has the mean
``X_0``, which is one of the places, so that those factors of the product are their mean from below, and nearly so from
above.
Proofs: docs/theory/contours.md, "Rare steps". Cost: O(places log(places)) for each order, some 200,000 places.
"""

from functools import lru_cache
from math import erfc, expm1, log1p, sqrt
from typing import NamedTuple

import numpy as np

from hockeystick.laws.allocated_epochs import FEWEST
from hockeystick.laws.answers import Sides
from hockeystick.laws.contours import LEAST_NOISE, LEAST_RATE, MOST_RATE
from hockeystick.laws.gaussian import gaussian_deltas
from hockeystick.laws.lattice_laws import contraction, spread
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.tilted_powers import LONGEST, Copies, Powers, useful_share
from hockeystick.types import Direction, Side

MOST_VISITS = 4.0
"""Steps times rate; where an example takes part more often, contours answer."""
LEAST_STEPS, MANY_STEPS = 2, 64
"""A single step is a law without any product; few steps compose by laws in few products, which are close too."""
LEVELS = ((4e-4, 2e-3), (1e-4, 5e-4), (5e-5, 2.5e-4), (2e-5, 1e-4), (4e-6, 2e-5), (8e-7, 4e-6), (2e-7, 1e-6))
"""Spacings that are tried: the first number over the visits, and at most the second one.

What the places of nearly all steps add to delta is proportional to spacing and visits. Ratios of few visits with much
noise are so near to 1 that the finest spacing has a few thousand places.
"""
FEW_PLACES = 200
"""A spacing with fewer of them is too wide for any answer, unless it is the last one."""
MOST_PLACES = 20_000
"""A spacing with more places is not refined: that would take as long as the laws."""
HOPELESS = 1.2
"""A spacing is left out that is so many times the one that the gap of a wider one asks for."""
CELLS = 400.0
"""At least so many places for each standard deviation of log Y."""
TAIL = 1e-5
"""Share of the smallest delta that matters: beyond places where all steps together have less, ratios are infinite."""
USEFUL, USEFUL_FOR_FEW = 2e-4, 5e-5
"""Sides that are farther apart, relative to epsilon, are not close enough: for many steps, and for few ones."""
NEGLIGIBLE = 1e-5
"""Nor does it matter, relative to the smallest delta that matters, what is below this."""
ERROR_OF_MEANS = 1e-12
"""Far above the rounding of X_0, relative."""
TOGETHER = 4096
"""Places that are asked at once."""


class Start(NamedTuple):
    """Where the lattice lies: ``log X_0``, the place of index 0, and the spacing."""

    offset: float
    spacing: float


class RareSteps:
    """The profile of ``steps`` Poisson steps.

    Args:
        smallest_delta: the smallest that matters; affects tightness only.
        compared: whether other deltas matter only as far as they are above it or below.
    """

    def __init__(
        self,
        sampling_prob: float,
        noise_multiplier: float,
        steps: int,
        smallest_delta: float,
        *,
        compared: bool = False,
    ) -> None:
        self.rate, self.noise, self.steps, self.smallest = sampling_prob, noise_multiplier, steps, smallest_delta
        self.compared, self.mu = compared, 1.0 / noise_multiplier
        self._asked: dict[tuple[float, Direction], Sides | None] = {}
        self._levels: dict[int, tuple[Powers, Powers] | None] = {}

    def sides(self, epsilon: float, direction: Direction) -> Sides | None:
        """Both bounds on delta, or None where they are not close enough to be useful."""
        if (epsilon, direction) not in self._asked:
            self._asked[epsilon, direction] = self._useful(epsilon, direction)
        return self._asked[epsilon, direction]

    @property
    def in_reach(self) -> bool:
        """Whether the steps are many and rare, and their ratios within the range of doubles."""
        is_rare = self.steps >= LEAST_STEPS and self.rate * self.steps <= MOST_VISITS
        return is_rare and self.noise >= LEAST_NOISE and LEAST_RATE <= self.rate <= MOST_RATE

    def _useful(self, epsilon: float, direction: Direction) -> Sides | None:
        if not self.in_reach:
            return None
        if direction is Direction.ADD and epsilon > -self.steps * log1p(-self.rate) * (1.0 + ERROR_OF_MEANS):
            return Sides(0.0, 0.0)  # no product of ratios is below (1 - q)^steps
        other = self.sides(epsilon, Direction.REMOVE) if direction is Direction.ADD else None
        level, useful = (0, USEFUL) if self.steps >= MANY_STEPS else (1, USEFUL_FOR_FEW)
        while level < len(LEVELS):
            powers = self._powers(level)
            if powers is None:
                return None
            if powers[1].size < FEW_PLACES and level < len(LEVELS) - 1:
                level += 1
                continue
            lower, upper = (power.delta(epsilon, direction) for power in powers)
            if upper is None:
                lower, upper = 0.0, powers[1].most(epsilon, direction)
            sides = Sides(lower or 0.0, upper)
            if self.compared and sides.miss(self.smallest):
                return sides
            if other is not None and upper <= other.lower:  # what counts is the larger of both directions
                return sides
            share = useful_share(useful, epsilon, powers[1].order(epsilon, direction))
            enough, gap = max(share * upper, NEGLIGIBLE * self.smallest), upper - sides.lower
            if gap <= enough:
                return sides
            if powers[1].size > MOST_PLACES:
                return None
            level = self._following(level, enough / gap)
        return None

    def _following(self, level: int, share: float) -> int:
        """The next level, or the one after it if the next would hardly reduce the gap to this share.

        The gap is about proportional to the spacing.
        """
        following = level + 1
        if following < len(LEVELS) - 1 and self._pace(following) > HOPELESS * share * self._pace(level):
            following += 1
        return following

    def _powers(self, level: int) -> tuple[Powers, Powers] | None:
        """A lower and an upper law of one step, composed; None where too little is known of it."""
        if level not in self._levels:
            self._levels[level] = self._composed(self._pace(level))
        return self._levels[level]

    def _pace(self, level: int) -> float:
        """About the spacing of a level."""
        shift, most = LEVELS[level]
        return min(shift / (self.rate * self.steps), most, self.mu / CELLS)

    def _composed(self, pace: float) -> tuple[Powers, Powers] | None:
        joined = pace > 0.5 * self.rate
        offset, spacing = self._start(pace) if joined else (0.0, min(pace, 0.25 * self.rate))
        first = -max(int((offset - log1p(-self.rate)) / spacing) + 2, 2)
        bounds = None if offset > 0.0 else self._known(offset, spacing, first)
        # Places that do not tell the ratios apart, or would be too many.
        if bounds is None or len(bounds[0]) + first <= FEWEST:
            return None
        lower, upper = bounds
        indices, from_below = first + np.arange(len(lower)), -first if joined else 0
        below = contraction(
            spacing, indices[from_below:], lower[from_below:], upper[from_below:], offset, straight=joined
        )
        above = spread(spacing, indices, lower, upper, offset)
        if below is None or above is None:
            return None
        lower_powers, upper_powers = (
            Powers(Copies(law, self.steps), smallest_delta=self.smallest) for law in (below, above)
        )
        return lower_powers, upper_powers

    def _start(self, pace: float) -> Start:
        """A lattice with the places ``X_0 = E[X | X < e^pace]``, rounded up, and ``e^pace``, which follows it."""
        log_strike = log1p(expm1(pace) / self.rate)
        call = self.rate * float(gaussian_deltas(self.mu, np.array([log_strike]), Side.LOWER)[0])
        beyond = 0.5 * erfc((log_strike / self.mu + 0.5 * self.mu) * sqrt(0.5))
        offset = log1p(-(call + expm1(pace) * beyond) / (1.0 - beyond)) + ERROR_OF_MEANS
        return Start(offset, pace - offset)

    def _known(self, offset: float, spacing: float, first: int) -> tuple[Array, Array] | None:
        """Bounds on o at the places from ``first`` on, as far as it matters; None where that is too far."""
        lowers: list[Array] = []
        uppers: list[Array] = []
        while len(lowers) * TOGETHER < LONGEST:
            logs = offset + spacing * (first + np.arange(TOGETHER, dtype=np.float64))
            lower, upper = self._out_of_the_money(logs)
            vague = (logs > 0.0) & ((lower <= 0.5 * upper) | (upper <= TAIL * self.smallest / self.steps))
            end = int(np.argmax(vague)) + 1 if vague.any() else TOGETHER
            lowers.append(lower[:end])
            uppers.append(upper[:end])
            if end < TOGETHER:
                break
            first += TOGETHER
        else:
            return None
        return np.concatenate(lowers), np.concatenate(uppers)

    def _out_of_the_money(self, logs: Array) -> tuple[Array, Array]:
        """Bounds on ``E (x - X)_+`` for places up to 1, and on ``E (X - x)_+`` beyond: q times those of Y."""
        moved = np.expm1(logs) / self.rate  # the strike of Y, less 1
        bounds = []
        for side, sign in ((Side.LOWER, -1.0), (Side.UPPER, 1.0)):
            # A put grows with its strike, which cancels where it is small.
            strikes = np.where(logs <= 0.0, 1.0 + moved + sign * 8.0 * UNIT_ROUNDOFF, 1.0)
            puts = strikes > 0.0
            log_strikes = np.where(logs <= 0.0, -np.log(np.where(puts, strikes, 1.0)), np.log1p(np.maximum(moved, 0.0)))
            values = gaussian_deltas(self.mu, np.maximum(log_strikes, 0.0), side)
            bounds.append(self.rate * np.where(puts, values * np.minimum(strikes, 1.0), 0.0))
        return bounds[0], bounds[1]


@lru_cache(maxsize=64)
def rare_steps(
    sampling_prob: float, noise_multiplier: float, steps: int, smallest_delta: float, *, compared: bool
) -> RareSteps:
    """The profile of these steps, which both sides and neighbouring questions share."""
    return RareSteps(sampling_prob, noise_multiplier, steps, smallest_delta, compared=compared)
