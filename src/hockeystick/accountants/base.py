"""What every accountant looks like: one algorithm in one file, the same exports.

An accountant's module ends with ``ACCOUNTANT = Accountant(...)``; its analyses map a type of pair to a function from
the pair to one profile for each direction. ``docs/how-to/add-an-accountant.md`` has a skeleton and a checklist.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hockeystick.bounds import Bound, Profile
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.pairs.base import DominatingPair
from hockeystick.settings import Settings
from hockeystick.types import Direction, Kind, Side

Analysis = Callable[[Any, Side, Settings], Mapping[Direction, Profile]]
"""From a pair of the registered type to its profiles on the asked side; may raise UnsupportedError."""


def _no_refusal(pair: Any, side: Side) -> str | None:
    return None


def _nothing() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Accountant:
    """One algorithm that bounds privacy profiles.

    Attributes:
        name: how ``method=`` calls it.
        summary: one line for tables.
        sides: the sides it can bound.
        errs: which side it errs on and why, in a sentence.
        reference: paper and theorem, or the page of docs/theory with the proof.
        analyses: the algorithm for each type of pair (a base class stands for all its subclasses).
        refusal: why the proof does not cover a pair of a registered type on a side, or None.
        cost: rough seconds for one side; certify runs the cheap ones first.
        kind: deterministic or Monte Carlo.
        warm_up: compiles the kernels of its own, so that budgets need not pay for it.
        no_better_than: accountants that are at least as tight up to their discretisation wherever they give a
            value; certify then leaves this one out.
        assumes: what the run has to satisfy beyond what its mechanism says, in a sentence. Such an accountant is left
            out unless it is named, and certificates by it say the sentence.
        plans_effort: whether the bound depends on ``Settings.effort``; certificates then say it.
    """

    name: str
    summary: str
    sides: tuple[Side, ...]
    errs: str
    reference: str
    analyses: Mapping[type, Analysis]
    refusal: Callable[[Any, Side], str | None] = _no_refusal
    cost: Callable[[Any], float] = lambda pair: 1e-3
    kind: Kind = Kind.DETERMINISTIC
    warm_up: Callable[[], None] = _nothing
    no_better_than: tuple[str, ...] = ()
    assumes: str | None = None
    plans_effort: bool = False

    def covers(self, pair_type: type[DominatingPair]) -> bool:
        """Whether there is an analysis for this type of pair."""
        return any(ancestor in self.analyses for ancestor in pair_type.__mro__)

    def analysis(self, pair: DominatingPair) -> Analysis | None:
        """The registered analysis for this type of pair, or None."""
        for ancestor in type(pair).__mro__:
            if ancestor in self.analyses:
                return self.analyses[ancestor]
        return None

    def why_not(self, pair: DominatingPair, side: Side) -> str | None:
        """Why this accountant cannot bound the pair on this side, or None if it can."""
        if self.analysis(pair) is None:
            return "it has no analysis of this combination of strategy and sampler"
        if side not in self.sides:
            return f"it gives no {side.value} bounds"
        return self.refusal(pair, side)

    def bound(self, pair: DominatingPair, side: Side, settings: Settings | None = None) -> Bound:
        """The bound of this accountant on the pair's profile.

        Raises: InvalidInputError for a side that there is not; UnsupportedError when the proof does not cover the
            pair; BudgetExceededError when time runs out.
        """
        if side not in tuple(Side):
            raise InvalidInputError(f"The 'side' argument must be one of {', '.join(Side)}. Got {side!r} instead.")
        side = Side(side)  # a caller's word is equal to its Side, but not the same
        reason = self.why_not(pair, side)
        analyse = self.analysis(pair)
        if reason is not None or analyse is None:
            raise UnsupportedError(f"The method {self.name!r} does not apply here: {reason}.")
        settings = settings or Settings()
        if self.kind is Kind.MONTE_CARLO and settings.monte_carlo is None:
            raise UnsupportedError(f"The method {self.name!r} does not apply here: Monte Carlo has to be allowed.")
        profiles = dict(analyse(pair, side, settings))
        return Bound(self.name, side, self.kind, settings.confidence(self.kind), self.reference, profiles, pair.slack)
