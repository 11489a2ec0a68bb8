"""A whole profile by sampling: simultaneous bounds at many epsilons, each near a run that was aimed there."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hockeystick.bounds import Profile, Question
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.chords import lower_curve, upper_curve
from hockeystick.monte_carlo.aims import Aim
from hockeystick.monte_carlo.estimation import FRACTIONS, SPARED, Estimation
from hockeystick.monte_carlo.statistics import Tally, best_profile
from hockeystick.types import Direction, Side

LEVELS = 4
"""Runs for each direction, at deltas that are evenly spaced on a logarithmic scale down to the question's."""
NODES = 6
"""Epsilons of one run, from those of the run before it to where it is aimed."""


@dataclass
class CurveEstimation(Estimation):
    """Bounds that hold for all epsilons at once, good for deltas down to that of the question.

    The failure probability is shared by all nodes, both directions, both sides and all members of the pair. Between
    nodes, upper bounds are interpolated, as delta is convex in e^epsilon, and lower ones are those of the next node.
    """

    starts: dict[tuple[Direction, float], float] = field(default_factory=dict)
    """Where the nodes of a run begin, by direction and the epsilon that it is aimed at."""
    members: int = 1
    """How many estimations the failure probability is for: at each epsilon another one may attain the profile."""

    shares: ClassVar[Sequence[float]] = (1.0,)

    def failure(self, attempt: int) -> float:
        """The failure probability of one statistic."""
        return (
            0.5 * self.options.failure_probability / (self.members * len(Direction) * LEVELS * NODES * len(FRACTIONS))
        )

    def sample(self, sides: Sequence[Side] = tuple(Side)) -> None:
        """A run for both sides, or one each, a level and direction; when the time is over it ends with what it has.

        Both sides are drawn whatever ``sides`` says.
        """
        self.learn_known()
        smallest = self.question.delta
        assert smallest is not None
        questions = [Question(delta=smallest ** ((level + 1.0) / LEVELS)) for level in range(LEVELS)]
        tasks = [(direction, question) for direction in Direction for question in questions]
        for place, (direction, question) in enumerate(tasks):
            part = 1.0 / (len(tasks) - place)
            with suppress(BudgetExceededError):
                self._sample_level(direction, question, part)
        if not any(tally.chunks for tally in self.tallies):
            raise BudgetExceededError("The time budget is over before there is any bound; allow more seconds.")

    def _sample_level(self, direction: Direction, question: Question, part: float) -> None:
        self.question = question
        aim = self.aim(direction)
        known = self.known.get(direction)
        if aim.epsilon <= 0.0 or (known is not None and known(aim.epsilon) <= SPARED * (question.delta or 0.0)):
            return
        before = [epsilon for where, epsilon in self.starts if where is direction and epsilon < aim.epsilon]
        self.starts[direction, aim.epsilon] = max(before, default=0.0)
        self.pursue_each(aim, tuple(Side), part)

    def places(self, aim: Aim, side: Side) -> list[float]:
        """Evenly spaced from the aim of the run before to this one's."""
        start = self.starts[aim.direction, aim.epsilon]
        first = 0 if start == 0.0 else 1
        return [float(e) for e in np.linspace(start, aim.epsilon, NODES + first)[first:]]

    def verdict(self, aim: Aim, result: Tally, planned: float) -> bool | None:
        """Whether the run is tight where it is aimed."""
        return True if self.tight(aim, result) else None

    def profiles(self, side: Side) -> dict[Direction, Profile]:
        """Simultaneous bounds."""
        return {direction: self._profile(direction, side) for direction in Direction}

    def _profile(self, direction: Direction, side: Side) -> Profile:
        nodes: dict[float, float] = {}
        pick = min if side is Side.UPPER else max
        for tally in self.tallies:
            if tally.run.direction is direction:
                for epsilon, value in tally.bound(side).items():
                    nodes[epsilon] = pick(value, nodes.get(epsilon, value))
        curve = upper_curve if side is Side.UPPER else lower_curve
        parts = [curve(sorted(nodes), [nodes[epsilon] for epsilon in sorted(nodes)])] if nodes else []
        if side is Side.UPPER and direction in self.known:
            parts.append(self.known[direction])
        return best_profile(parts, side)
