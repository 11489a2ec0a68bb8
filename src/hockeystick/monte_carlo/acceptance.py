"""The samples of estimate-verify-release: the test of a candidate, and a lower bound for the one that is released."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hockeystick.errors import BudgetExceededError
from hockeystick.monte_carlo.estimation import ATTEMPT_SHARES, Aim, Estimation
from hockeystick.monte_carlo.statistics import Tally, profiles_of
from hockeystick.types import Side

HALF = 0.5
"""The share of the failure probability for the tests; the other one is for lower bounds."""
MOST_CANDIDATES = 16
"""Candidates that may be released; each pays for a lower bound of its own, as the samples choose among them."""
ENOUGH = 0.5
"""An attempt is given up if its mean is above the goal after this part of its samples."""


@dataclass
class Acceptance(Estimation):
    """An estimation that asks only whether delta, at the question's epsilon, is at most ``goal``.

    One attempt for each direction, and half of the failure probability goes to the upper bounds: what is not
    (epsilon, goal)-private is accepted with at most that probability (only the direction that violates it can fail).
    """

    goal: float = 0.0

    shares: ClassVar[Sequence[float]] = (1.0,)
    upper_share: ClassVar[float] = HALF

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


@dataclass
class LowerBound(Estimation):
    """A lower bound on the profile of the candidate that was chosen.

    The choice rests on the same streams of samples, so the bound has to hold for all candidates together: each of them
    has a share of the failure probability (docs/theory/monte-carlo/release.md).
    """

    shares: ClassVar[Sequence[float]] = tuple(share / MOST_CANDIDATES for share in ATTEMPT_SHARES)
    upper_share: ClassVar[float] = HALF

    def sample(self, sides: Sequence[Side] = (Side.LOWER,)) -> None:
        """Draw for the direction with the larger delta; where time runs out, what was drawn is a bound all the same."""
        try:
            self.learn_known()
            self.pursue(self.aims()[0], sides, self.deadline, self.work)
        except BudgetExceededError:
            return
