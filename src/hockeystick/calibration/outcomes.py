"""What methods said at a noise multiplier, and what a search expects from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from hockeystick.certification.issue import PORTABLE
from hockeystick.certification.schedule import Outcome, best, refuse_without_bound
from hockeystick.settings import Settings
from hockeystick.types import Side

APART = 2.5
"""Where light methods' two sides are no farther apart, epsilon is expected in their middle."""


@dataclass(frozen=True)
class Answer:
    """A noise multiplier, and what was said there with some settings."""

    noise: float
    outcomes: Sequence[Outcome]
    settings: Settings

    @property
    def upper(self) -> Outcome:
        """The least upper bound; raises BudgetExceededError or CannotCertifyError where there is none."""
        least = best(self.outcomes, Side.UPPER)
        if least is None or least.value is None:
            refuse_without_bound(self.outcomes, f" at noise_multiplier = {self.noise:g}")
        return least

    @property
    def stated(self) -> float:
        """The epsilon that a certificate states."""
        assert self.upper.value is not None
        return self.upper.value * (1.0 + PORTABLE)


def middle(outcomes: Sequence[Outcome]) -> float:
    """About what tighter methods will say: between both sides of those so far, or the upper one if they are far apart.

    The upper one has to be above 0.
    """
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    assert upper is not None
    assert upper.value
    if lower is None or not lower.value or upper.value > APART * lower.value:
        return upper.value
    return sqrt(upper.value * lower.value)


def settled(outcomes: Sequence[Outcome]) -> set[str]:
    """The methods that gave an upper bound."""
    return {method for method, value in uppers(outcomes).items() if value is not None}


def uppers(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """The upper bounds by method, None for one that gave none; of several, the last."""
    return {outcome.method: outcome.value for outcome in outcomes if outcome.side is Side.UPPER}
