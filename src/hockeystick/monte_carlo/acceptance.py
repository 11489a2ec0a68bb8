"""The samples of estimate-verify-release: the test of a candidate, and a lower bound for the one that is released."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from hockeystick.bounds import Profile
from hockeystick.errors import BudgetExceededError
from hockeystick.monte_carlo.aims import Aim
from hockeystick.monte_carlo.estimation import ATTEMPT_SHARES, Estimation
from hockeystick.monte_carlo.pilots import SEEN, Pilot
from hockeystick.monte_carlo.statistics import Tally, profiles_of
from hockeystick.types import Direction, Side

HALF = 0.5
"""The share of the failure probability for the tests; the other one is for lower bounds."""
CANDIDATE_SHARES = ATTEMPT_SHARES
"""Of that half, for the test of each candidate, and of the other one for its lower bound: samples choose among them."""
LONGER = 10
"""Size of a pilot for an estimate that limits the noise, in pilots."""
ENOUGH = 0.5
"""An attempt is given up if its mean is above the goal after this part of its samples."""


@dataclass
class Acceptance(Estimation):
    """An estimation that asks only whether delta, at the question's epsilon, is at most ``goal``.

    One attempt for each direction, with a share of half of the failure probability: what is not (epsilon,
    goal)-private is accepted with at most that probability (only the direction that violates it can fail).
    """

    goal: float = 0.0

    shares: ClassVar[Sequence[float]] = (1.0,)
    upper_share: ClassVar[float] = HALF

    @cached_property
    def directions(self) -> list[Aim]:
        """What has to be sampled: the directions that are not known to be below the goal, by pilots."""
        self.learn_known()
        return [self._aimed(direction) for direction in Direction if not self._is_known(direction)]

    def _is_known(self, direction: Direction) -> bool:
        """Whether a deterministic bound is below the goal."""
        assert self.question.epsilon is not None
        return direction in self.known and self.known[direction](self.question.epsilon) <= self.goal

    def spare(self, known_upper: Mapping[Direction, Profile]) -> None:
        """Take deterministic upper bounds that were not there before: directions that they show need no samples."""
        self.known_upper = known_upper
        self.learn_known()
        self.directions = [aim for aim in self.directions if not self._is_known(aim.direction)]

    def _aimed(self, direction: Direction) -> Aim:
        assert self.question.epsilon is not None
        aim = self.aim_at(direction, self.question.epsilon)
        return _seen(replace(aim, goal=self.goal), clearest(aim))

    def look_longer(self) -> None:
        """Estimate the larger delta again, by a pilot of several times the size."""
        place = max(range(len(self.directions)), key=lambda place: self.directions[place].delta)
        aim = self.directions[place]
        self.directions[place] = _seen(aim, self.pilots.draw(clearest(aim).proposal, "longer", LONGER))

    def seconds(self, times: float = 1.0) -> float:
        """Standard seconds that the test will probably take, were delta so many times what the pilots say.

        Weights and their largest value are taken to be as many times theirs, as both fall with the noise: a smaller
        goal says the same.
        """
        return sum(self._seconds(replace(aim, goal=aim.goal / times)) for aim in self.directions)

    def accepts(self) -> bool:
        """Draw until the upper bound of each direction in turn reaches the goal, or is unlikely to."""
        for aim in self.directions:
            self.pursue(aim, (Side.UPPER,), self.deadline, self.work)
            if not profiles_of(self.tallies, self.known, Side.UPPER)[aim.direction](aim.epsilon) <= self.goal:
                return False
        return True

    def verdict(self, aim: Aim, result: Tally, planned: float) -> bool | None:
        """Accepted by the upper bound, or given up by the mean."""
        upper = result.bound(Side.UPPER)
        if upper[aim.epsilon] <= self.goal:
            return True
        given_up = result.samples >= ENOUGH * planned and result.mean(aim.epsilon) > self.goal
        return False if given_up else None


def _seen(aim: Aim, pilot: Pilot) -> Aim:
    return replace(aim, delta=pilot.mean(aim.epsilon), effective=pilot.effective(aim.epsilon))


def clearest(aim: Aim) -> Pilot:
    """The pilot that tells delta best; where none has seen enough of it, that of the proposal with the smallest M."""
    pilots = [choice.pilot for choice in aim.choices]
    kept = [pilot for pilot in pilots if not pilot.missed(aim.epsilon, pilots)]
    best = max(kept, key=lambda pilot: pilot.effective(aim.epsilon))
    if best.effective(aim.epsilon) >= SEEN:
        return best
    return min(kept, key=lambda pilot: pilot.proposal.weight_bound(aim.epsilon))


@dataclass
class LowerBound(Estimation):
    """A lower bound on the profile of the candidate that was chosen.

    The choice rests on the same streams of samples, so the bound has to hold for all candidates together: each of them
    has a share of the failure probability (docs/theory/monte-carlo/release.md).
    """

    shares: ClassVar[Sequence[float]] = ATTEMPT_SHARES
    upper_share: ClassVar[float] = HALF

    def sample(self, sides: Sequence[Side] = (Side.LOWER,)) -> None:
        """Draw for the direction with the larger delta; where time runs out, what was drawn is a bound all the same."""
        try:
            self.learn_known()
            self.pursue(self.aims()[0], sides, self.deadline, self.work)
        except BudgetExceededError:
            return
