"""The test of estimate-verify-release: accept a candidate only if samples show that it meets the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hockeystick.accountants.monte_carlo.campaign import FRACTIONS, Aim, Campaign
from hockeystick.accountants.monte_carlo.confidence import samples_needed
from hockeystick.accountants.monte_carlo.pilot import Choice
from hockeystick.accountants.monte_carlo.statistics import Tally, profiles_of
from hockeystick.types import Side

NARROWEST, WIDEST = 0.01, 1.0
"""Relative distance between the target and an estimate that a test tries to resolve."""
SPARE = 1.5
"""The distance is resolved with this much to spare."""
ENOUGH = 0.5
"""An attempt whose mean is above the goal after this part of its samples is given up."""


@dataclass
class Acceptance(Campaign):
    """A campaign that asks only whether delta, at the question's epsilon, is at most ``goal``.

    One attempt for each direction, and all of the failure probability goes to the upper bounds: what is not
    (epsilon, goal)-private is accepted with at most that probability (only the direction that violates it can fail).
    """

    goal: float = 0.0

    shares: ClassVar[Sequence[float]] = (1.0,)
    upper_share: ClassVar[float] = 1.0

    def accepts(self) -> bool:
        """Draw until the upper bounds of both directions reach the goal, or are not likely to."""
        epsilon = self.question.epsilon
        assert epsilon is not None
        for aim in self.aims():
            known = self.known.get(aim.direction)
            if known is None or known(epsilon) > self.goal:
                self.pursue(aim, (Side.UPPER,), self.watch)
        bounds = profiles_of(self.tallies, self.known, Side.UPPER)
        return max(profile(epsilon) for profile in bounds.values()) <= self.goal

    def plan(self, aim: Aim, choice: Choice) -> float:
        """The samples that tell the estimate from the goal."""
        distance = min(max((self.goal / aim.delta - 1.0) / SPARE, NARROWEST), WIDEST) if aim.delta > 0.0 else WIDEST
        mean = max(aim.delta, 1e-300)
        variance, over = choice.pilot.relative_variance(aim.epsilon), max(choice.tilt.largest(aim.epsilon) / mean, 1.0)
        failure = self.options.failure_probability / len(FRACTIONS)
        return float(samples_needed(min(variance, over), over, distance, failure))

    def verdict(self, aim: Aim, result: Tally, planned: float) -> bool | None:
        """Accepted by the upper bound, or given up by the mean."""
        upper = result.bound(Side.UPPER)
        if upper[aim.epsilon] <= self.goal:
            return True
        given_up = result.samples >= ENOUGH * planned and result.mean(aim.epsilon) > self.goal
        return False if given_up else None
