"""What every accountant looks like: one algorithm in one file, the same exports.

An accountant's module ends with ``ACCOUNTANT = Accountant(...)``; its analyses map a type of pair to a function from
the pair to one profile for each direction. All modules are imported to choose among them, so their functions import
the engines that they call. ``docs/how-to/add-an-accountant.md`` has a skeleton and a checklist.

No accountant needs to know of users: a user with several examples is bounded by what it says of copies, and of a single
example. An upper bound is the smaller, at every epsilon and in each direction, of the accountant's bound on the pair of
all k examples and of k links of the chain of its bound on one example; it is never worse than group privacy makes it. A
lower bound is the largest of those on the pair of all k examples, on a pair that is proved to be below it, and on one
example. Where examples are replaced, two links of such bounds, removing these and adding those, make the upper bound.
Proofs: docs/theory/units.md.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from hockeystick.bounds import Bound, Profile, best_of
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.groups import chained
from hockeystick.laws.law import Law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.users import Users
from hockeystick.settings import Settings
from hockeystick.spec import expect_kind
from hockeystick.types import Direction, Kind, Side, as_side

Profiles = Mapping[Direction, Profile]
"""One profile for each direction."""
Analysis = Callable[[Any, Side, Settings], Profiles]
"""From a pair of the registered type to its profiles on one side; may raise UnsupportedError."""
JointAnalysis = Callable[[Any, Sequence[Side], Settings], tuple[Mapping[Side, Profiles], Any]]
"""The profiles of several sides from the same samples, and the claim that they rest on."""
LawAnalysis = Callable[[Any, Side, Settings], Sequence[Law]]
"""From a pair to laws of its likelihood ratio, each of which by itself bounds both directions on that side."""


def of_one_law(law: Callable[[Any, Settings], Law]) -> tuple[Analysis, LawAnalysis]:
    """The analysis of a method that is one law for both directions, and its laws: none where it has no law.

    Args:
        law: of a pair; may raise UnsupportedError.
    """

    def analyse(pair: Any, side: Side, settings: Settings) -> Profiles:
        return law_profiles(law(pair, settings))

    def laws(pair: Any, side: Side, settings: Settings) -> Sequence[Law]:
        try:
            return [law(pair, settings)]
        except UnsupportedError:
            return []

    return analyse, laws


@dataclass(frozen=True, kw_only=True)
class Accountant:
    """One algorithm that bounds privacy profiles.

    Attributes:
        name: how ``method=`` calls it.
        summary: one line for tables.
        sides: the sides it can bound.
        errs: which side it errs on and why, in a sentence.
        reference: paper and theorem, or the page of docs/theory with the proof.
        analyses: the algorithm for each type of pair (a base class stands for all its subclasses), one side at a time.
        joint_analyses: the same for algorithms that bound both sides by the same samples; users have a line of their
            own there.
        laws: likelihood-ratio laws for the types of pair where the bound is one; several runs compose through them.
        refusal: why the proof does not cover a pair of a registered type on a side, or None.
        cost: rough seconds for one side on one core of the machine of ``benchmarks/``; plans are made with it, so it
            must not depend on the clock.
        kind: deterministic or Monte Carlo.
        example: a small pair whose analysis, with ``example_effort``, compiles the kernels of its own.
        no_better_than: accountants that are at least as tight up to their discretisation wherever they give a
            value; certify then leaves this one out.
        looser_than: accountants that were tighter wherever both were measured on such pairs, though that is not proved;
            certify leaves this one out after them too.
        assumes: what the run has to satisfy beyond what its mechanism says, in a sentence. Such an accountant is left
            out unless it is named, and certificates by it say the sentence.
        plans_effort: whether the bound depends on ``Settings.effort``; certificates then state it.
        nearly_meets: whether the two sides of such pairs nearly meet where their epsilon is about this one, as far as
            that was measured. A calibration looks at such an accountant first, and at no other where they do.
        about: about the epsilon that it answers at a delta, where that has a closed form and may be far from what the
            others answer; affects the speed of a search alone.
    """

    name: str
    summary: str
    sides: tuple[Side, ...]
    errs: str
    reference: str
    analyses: Mapping[type, Analysis] = field(default_factory=dict)
    joint_analyses: Mapping[type, JointAnalysis] = field(default_factory=dict)
    laws: Mapping[type, LawAnalysis] = field(default_factory=dict)
    refusal: Callable[[Any, Side], str | None] = lambda pair, side: None
    cost: Callable[[Any], float] = lambda pair: 1e-3
    kind: Kind = Kind.DETERMINISTIC
    example: Callable[[], DominatingPair] | None = None
    example_effort: float = 1e-2
    no_better_than: tuple[str, ...] = ()
    looser_than: Callable[[Any], tuple[str, ...]] = lambda pair: ()
    assumes: str | None = None
    plans_effort: bool = False
    nearly_meets: Callable[[Any, float], bool] = lambda pair, epsilon: False
    about: Callable[[Any, float], float] | None = None

    def covers(self, pair_type: type[DominatingPair]) -> bool:
        """Whether there is an analysis for this type of pair."""
        return any(ancestor in self.analyses or ancestor in self.joint_analyses for ancestor in pair_type.__mro__)

    def analyses_some(self, pair: DominatingPair) -> bool:
        """Whether there is an analysis for this pair, or for a part of it where it is a user's."""
        if isinstance(pair, Users):
            return any(self.covers(type(part)) for side in Side for part in parts_of(pair, side))
        return self.covers(type(pair))

    def seconds(self, pair: DominatingPair) -> float:
        """``cost`` of the pair, or of the parts that are bounded where it is a user's.

        What a chain of a user's examples reads of a slow profile is not in it: moment majorants on cells take one to
        four times as long. With that counted calibrate would not try them, which alone bound users at low noise well.
        """
        if not self._by_parts(pair):
            return self.cost(pair)
        parts = {id(part): part for side in self.sides for part in self._bounded_parts(pair, side)}
        return sum(self.cost(part) for part in parts.values())

    def why_not(self, pair: DominatingPair, side: Side) -> str | None:
        """Why this accountant cannot bound the pair on this side, or None if it can."""
        if self._by_parts(pair):
            reasons = [self.why_not(part, side) for part in parts_of(pair, side)]
            return None if None in reasons else reasons[-1]
        if not self.covers(type(pair)):
            return "it has no analysis of this combination of strategy and sampler"
        if side not in self.sides:
            return f"it gives no {side.value} bounds"
        return (pair.why_not_from_below if side is Side.LOWER else None) or self.refusal(pair, side)

    def bound(self, pair: DominatingPair, side: Side, settings: Settings | None = None) -> Bound:
        """The bound of this accountant on one side of the pair's profile; raises as :meth:`bounds` does."""
        expect_kind("settings", settings, Settings, "hs.Settings, such as hs.Settings(deadline=hs.Deadline(60.0))")
        side = as_side(side)
        return self.bounds(pair, (side,), Settings() if settings is None else settings)[side]

    def bounds(self, pair: DominatingPair, sides: Sequence[Side], settings: Settings) -> dict[Side, Bound]:
        """The bounds of this accountant on these sides of the pair's profile, with the claim that they rest on.

        Raises: UnsupportedError when the proof does not cover the pair on one of the sides, or Monte Carlo is needed
            and not allowed; BudgetExceededError when the deadline passes.
        """
        for side in sides:
            reason = self.why_not(pair, side)
            if reason is not None:
                raise UnsupportedError(f"The method {self.name!r} does not apply here: {reason}.")
        if self.kind is Kind.MONTE_CARLO and settings.monte_carlo is None:
            raise UnsupportedError(f"The method {self.name!r} does not apply here: Monte Carlo has to be allowed.")
        by_side, claim = self._analyse(pair, sides, settings)
        confidence = settings.confidence(self.kind)
        return {
            side: Bound(
                method=self.name,
                side=side,
                kind=self.kind,
                confidence=confidence,
                reference=self.reference,
                profiles=dict(profiles),
                slack=pair.slack,
                claim=claim,
            )
            for side, profiles in by_side.items()
        }

    def profiles(self, pair: DominatingPair, side: Side, settings: Settings) -> Profiles:
        """The profiles of one side of a pair, without slack and not yet a bound; no refusal is looked at."""
        return self._analyse(pair, (side,), settings)[0][side]

    def laws_of(self, pair: DominatingPair, side: Side, settings: Settings) -> tuple[Law, ...]:
        """Laws of the pair's likelihood ratio, each of which by itself bounds both directions on this side.

        They are about the pair: its ``slack`` is not part of them. Empty where this accountant has none. Raises as
        :meth:`bounds` does when the deadline passes.
        """
        if isinstance(pair, Users):
            return tuple(law for part in _parts_with_laws(pair, side) for law in self.laws_of(part, side, settings))
        if self.why_not(pair, side) is not None:
            return ()
        laws_for = next((self.laws[ancestor] for ancestor in type(pair).__mro__ if ancestor in self.laws), None)
        return () if laws_for is None else tuple(laws_for(pair, side, settings))

    def is_beaten(self, pair: DominatingPair, settled: Collection[str]) -> bool:
        """Whether one of these accountants, which have bounded the pair on a side, should be at least as tight there.

        Never said of a user's examples: the other one may have bounded another part of the pair.
        """
        if isinstance(pair, Users):
            return False
        return not {*self.no_better_than, *self.looser_than(pair)}.isdisjoint(settled)

    def should_meet(self, pair: DominatingPair, epsilon: float) -> bool:
        """Whether its two sides should nearly meet with a noise at which the pair's epsilon is about this one."""
        return not isinstance(pair, Users) and self.covers(type(pair)) and self.nearly_meets(pair, epsilon)

    def warm_up(self) -> None:
        """Compile the kernels of its own, so that budgets need not pay for it."""
        if self.example is not None:
            for side in self.sides:
                self.bound(self.example(), side, Settings(Resolution(8, 1e-2), effort=self.example_effort)).delta(1.0)

    def _by_parts(self, pair: DominatingPair) -> TypeGuard[Users]:
        """Whether a user's examples are bounded by what this accountant says of copies and of single ones."""
        return isinstance(pair, Users) and Users not in self.joint_analyses

    def _analyse(
        self, pair: DominatingPair, sides: Sequence[Side], settings: Settings
    ) -> tuple[Mapping[Side, Profiles], Any]:
        if self._by_parts(pair):
            return {side: self._user_profiles(pair, side, settings) for side in sides}, None
        for ancestor in type(pair).__mro__:
            if ancestor in self.joint_analyses:
                return self.joint_analyses[ancestor](pair, sides, settings)
            if ancestor in self.analyses:
                return {side: self.analyses[ancestor](pair, side, settings) for side in sides}, None
        raise UnsupportedError(f"The method {self.name!r} has no analysis of a {type(pair).__name__}.")

    def _bounded_parts(self, pair: Users, side: Side) -> list[DominatingPair]:
        """The parts of a user's pair that it bounds on this side."""
        return [part for part in parts_of(pair, side) if self.why_not(part, side) is None]

    def _user_profiles(self, pair: Users, side: Side, settings: Settings) -> Profiles:
        """Both directions of the best bound on the user that bounds on the parts lead to.

        Raises: UnsupportedError when there is none.
        """
        of_parts: list[Profiles] = []
        refused: UnsupportedError | None = None
        for part in self._bounded_parts(pair, side):
            try:
                profiles = self.profiles(part, side, settings)
            except UnsupportedError as error:
                refused = error
                continue
            if side is Side.UPPER and part is pair.single:
                profiles = {
                    direction: chained(profiles, (direction,), pair.examples, slow=self.plans_effort)
                    for direction in Direction
                }
            of_parts.append(profiles)
        if not of_parts:
            raise refused or UnsupportedError(f"The method {self.name!r} bounds no part of a user's examples.")
        choose = min if side is Side.UPPER else max

        by_direction = {
            direction: [part[direction] for part in of_parts if direction in part] for direction in Direction
        }
        best = {
            direction: parts[0] if len(parts) == 1 else best_of(choose, *parts)
            for direction, parts in by_direction.items()
            if parts
        }
        if side is Side.UPPER and pair.replaced:
            replaced = chained(best, (Direction.REMOVE, Direction.ADD), slow=self.plans_effort)
            return dict.fromkeys(Direction, replaced)
        return best


def parts_of(pair: Users, side: Side) -> list[DominatingPair]:
    """The pairs whose bounds on this side lead to one on the user, that of one example last."""
    parts = (pair.copies, pair.single) if side is Side.UPPER else (pair.copies, pair.below, pair.single)
    return [part for part in parts if part is not None]


def _parts_with_laws(pair: Users, side: Side) -> list[DominatingPair]:
    """The parts whose laws are laws of the user: from above the copies, unless others come in their place."""
    if side is Side.LOWER:
        return parts_of(pair, side)
    return [] if pair.copies is None or pair.replaced else [pair.copies]
