"""What the samples of an estimation are for, and what may take their place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hockeystick.bounds import Profile
from hockeystick.deadline import Deadline
from hockeystick.monte_carlo.pilots import Choice
from hockeystick.types import Direction


@dataclass(frozen=True)
class Aim:
    """Where a direction's samples have to be good, and what the proposals would cost there.

    ``goal`` is the delta that an upper bound has to come below to settle the matter; 0 where there is none.
    ``effective`` is the effective number of samples behind ``delta``, where somebody asks.
    """

    direction: Direction
    epsilon: float
    delta: float
    steepness: float
    choices: Sequence[Choice]
    goal: float = 0.0
    effective: float = 0.0


@dataclass(frozen=True)
class CostlyBound:
    """A deterministic upper bound on the add direction, which is computed where its samples would take longer.

    It counts only where it takes the place of the samples, so a claim with samples of add does not rest on it.

    Attributes:
        seconds: standard seconds that it takes.
        profile: computes it; None where it turns out not to apply.
    """

    seconds: float
    profile: Callable[[Deadline], Profile | None]
