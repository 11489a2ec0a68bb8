"""The test of estimate-verify-release: accept a candidate only if samples show that it meets the target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hockeystick.monte_carlo.estimation import Aim, Estimation
from hockeystick.monte_carlo.statistics import Tally, profiles_of
from hockeystick.types import Side

ENOUGH = 0.5
"""An attempt is given up if its mean is above the goal after this part of its samples."""


@dataclass
class Acceptance(Estimation):
    """An estimation that asks only whether delta, at the question's epsilon, is at most ``goal``.

    One attempt for each direction, and all of the failure probability goes to the upper bounds: what is not
    (epsilon, goal)-private is accepted with at most that probability (only the direction that violates it can fail).
    """

    goal: float = 0.0

    shares: ClassVar[Sequence[float]] = (1.0,)
    upper_share: ClassVar[float] = 1.0

    def accepts(self) -> bool:
        """Draw until the upper bounds of both directions reach the goal, or are unlikely to."""
        epsilon = self.question.epsilon
        assert epsilon is not None
        self.learn_known()
        for aim in self.aims():
            known = self.known.get(aim.direction)
            if known is None or known(epsilon) > self.goal:
                self.pursue(replace(aim, goal=self.goal), (Side.UPPER,), self.deadline, self.work)
        bounds = profiles_of(self.tallies, self.known, Side.UPPER)
        return max(profile(epsilon) for profile in bounds.values()) <= self.goal

    def verdict(self, aim: Aim, result: Tally, planned: float) -> bool | None:
        """Accepted by the upper bound, or given up by the mean."""
        upper = result.bound(Side.UPPER)
        if upper[aim.epsilon] <= self.goal:
            return True
        given_up = result.samples >= ENOUGH * planned and result.mean(aim.epsilon) > self.goal
        return False if given_up else None
