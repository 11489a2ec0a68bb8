"""Which accountants run, in which order, and how far: the work is planned, the deadline only cuts off."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import frexp, sqrt
from time import monotonic
from typing import Any, NoReturn

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant, warm_up
from hockeystick.accountants.registry import accountant as accountant_of
from hockeystick.bounds import SMALLEST_UPPER, Bound, Question
from hockeystick.calls import made_by
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError, InvalidInputError, UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair
from hockeystick.settings import DEFAULT_EFFORT, DEFAULT_WORK, MonteCarlo, SearchPolicy, Settings
from hockeystick.spec import expect_kind, real_number
from hockeystick.types import Kind, Side

EPSILON_NODES = 68
DELTA_NODES = 92
"""Nodes per unit of score when epsilon, or delta, is asked for: a gap in epsilon is a far larger one in delta."""
COARSE_NODES = 24
COARSE_GOAL = 0.2
COARSE_EFFORT = 0.1
COARSE_SHARE = 0.2
"""Nodes, gap goal, and shares of the effort and the work of a first look on coarse grids."""
RUNS = 5.0
"""How many heavy runs certify expects."""
CUT_OFF, LEFT_OUT = "cut off", "left out"
NOT_APPLICABLE = "not applicable: "
NOT_ALLOWED = "Monte Carlo bounds have to be allowed (--allow monte-carlo, or monte_carlo=hs.MonteCarlo() in Python)"
CHEAP = 1e-2
"""Standard seconds; what costs less runs even when the deadline has passed."""


@made_by("hs.compare(run, delta=1e-5)")
@dataclass(frozen=True)
class Outcome:
    """What one accountant said on one side.

    Attributes:
        value: the bound's answer to the question, or None.
        seconds: how long it took.
        status: "ok", or why there is no value.
        claim: for Monte Carlo, the samples that the value rests on.
        needs: where the plan or the deadline had no time for it, about how many seconds it takes on an idle machine.
        bound: from which the value was read; None where there is no value, and where no certificate is issued.
    """

    method: str
    side: Side
    kind: Kind
    confidence: float
    value: float | None
    seconds: float
    status: str
    claim: Any = None
    needs: float | None = None
    bound: Bound | None = field(default=None, repr=False, compare=False)


def run_accountants(
    pair: DominatingPair,
    question: Question,
    settings: Settings,
    *,
    policy: SearchPolicy,
    methods: Sequence[str] | None = None,
    run_all: bool = False,
    sides: Sequence[Side] = (Side.UPPER, Side.LOWER),
    near: float | None = None,
    known: Collection[Outcome] = (),
    looser: Collection[tuple[str, Side]] = (),
) -> list[Outcome]:
    """Run the accountants that analyse this type of pair: light ones first, then heavy ones in the order of their costs
    to a factor of two; of those alike, the ones with both sides before others, then the cheapest.

    Monte Carlo, where it is allowed, comes after them; what takes a good part of the planned work comes last. A method
    that would take more than the rest of the planned work is left out.

    Args:
        policy: the planned work, and the gap at which the search ends.
        methods: the accountants allowed for upper bounds; None for the default ones. Others give lower bounds where
            that is cheap.
        run_all: run every accountant, published methods too, whatever the gap (as ``compare`` does).
        sides: which sides are wanted.
        near: an epsilon that the caller expects; affects speed only.
        known: outcomes for this pair, with these settings, whose bounds are not computed again.
        looser: accountants that the caller knows to be looser on a side here than others that are allowed: they give
            no bound there, but use up their share of the planned work.
    """
    accountants = every_accountant() if run_all else ACCOUNTANTS
    allowed = [
        accountant
        for accountant in accountants.values()
        if accountant.kind in settings.kinds and accountant.assumes is None
    ]
    if methods is not None:
        chosen = chosen_accountants(methods, pair, settings)
        accountants = accountants | {accountant.name: accountant for accountant in chosen}
    else:
        chosen = allowed

    def cost(accountant: Accountant, side: Side) -> float:
        return accountant.seconds(pair) if accountant.why_not(pair, side) is None else 0.0

    def wanted(accountant: Accountant, side: Side) -> bool:
        if side is Side.UPPER:
            return accountant in chosen
        return accountant in chosen or (
            accountant in allowed and (accountant.kind is Kind.MONTE_CARLO or cost(accountant, side) <= policy.heavy)
        )

    def zero_is_cheap(accountant: Accountant, side: Side) -> bool:
        """An upper bound of 0 ends the search, but for a lower bound of 0 from a light accountant."""
        return side is Side.LOWER and best(outcomes, side) is None and cost(accountant, side) <= policy.heavy

    def place(accountant: Accountant, side: Side) -> tuple[bool, bool, int, bool, float]:
        seconds = cost(accountant, side)
        doublings = frexp(seconds / policy.heavy)[1] if seconds > policy.heavy else 0
        last = seconds > policy.work / 4.0
        return last, accountant.kind is Kind.MONTE_CARLO, doublings, len(accountant.sides) == 1, seconds

    tasks = [
        (accountant, side)
        for side in sides
        for accountant in accountants.values()
        if side in accountant.sides and accountant.analyses_some(pair) and wanted(accountant, side)
    ]
    outcomes: list[Outcome] = []
    work = policy.work
    bounds = {(outcome.method, outcome.side): outcome.bound for outcome in known if outcome.bound is not None}
    for accountant, side in sorted(tasks, key=lambda task: place(*task)):
        if not run_all:
            if gap_within(outcomes, policy.gap_goal) and not zero_is_cheap(accountant, side):
                continue
            if cost(accountant, side) > policy.heavy and gap_within(outcomes, max(policy.gap_goal, policy.heavy_goal)):
                continue
            settled = {outcome.method for outcome in outcomes if outcome.side is side and outcome.value is not None}
            if accountant.is_beaten(pair, settled):
                continue
        if (accountant.name, side) in {(outcome.method, outcome.side) for outcome in outcomes}:
            continue
        if (accountant.name, side) in looser:
            work = max(work - cost(accountant, side), 0.0)
            continue
        guess = _expected(outcomes, accountant.name) or near
        if near is not None and accountant.about is not None and question.delta is not None:
            guess = accountant.about(pair, question.delta)
        answer = partial(question.answer, near=guess)
        together = [other for other in sides if (accountant, other) in tasks] if accountant.joint_analyses else [side]
        ready = [other for other in together if accountant.why_not(pair, other) is None]
        outcomes += _run(accountant, pair, ready if side in ready else [side], settings, answer, work, bounds)
        if run_all:
            outcomes = [replace(outcome, bound=None) for outcome in outcomes]  # all of them together would take memory
        else:
            work = max(work - cost(accountant, side), 0.0)
    return outcomes


def chosen_accountants(methods: Sequence[str], pair: DominatingPair, settings: Settings) -> list[Accountant]:
    """The accountants of these names; raises UnsupportedError for one that gives no upper bound here."""
    chosen = [accountant_of(name) for name in methods]
    for accountant in chosen:
        reason = accountant.why_not(pair, Side.UPPER) if accountant.kind in settings.kinds else NOT_ALLOWED
        if reason is not None:
            raise _does_not_apply(accountant.name, reason)
    return chosen


def refuse_if_none_bounds(methods: Sequence[str], outcomes: Sequence[Outcome], noise_multiplier: float) -> None:
    """Raise why these accountants gave no upper bound: UnsupportedError if one turned out not to apply, else
    CannotCertifyError. One that was cut off, or for which there was no work, is no reason.
    """
    tried = [outcome for outcome in outcomes if outcome.side is Side.UPPER and outcome.method in methods]
    if any(outcome.value is not None or outcome.needs is not None for outcome in tried):
        return
    for outcome in tried:
        if outcome.status.startswith(NOT_APPLICABLE):
            reason = outcome.status.removeprefix(NOT_APPLICABLE).rstrip(".")
            raise _does_not_apply(outcome.method, reason[:1].lower() + reason[1:])
        raise CannotCertifyError(
            f"The method {outcome.method!r} proves no epsilon of at most {MAX_EPSILON:g} at noise_multiplier = "
            f"{noise_multiplier:g}, and larger ones leave the range of doubles; use more noise, a larger delta or "
            f"another method."
        )


def _does_not_apply(name: str, reason: str) -> UnsupportedError:
    return UnsupportedError(f"The method {name!r} does not apply here: {reason}.")


def run_named(
    accountant: Accountant,
    pair: DominatingPair,
    sides: Sequence[Side],
    settings: Settings,
    answer: Callable[[Bound], float],
) -> list[Outcome]:
    """One accountant on these sides, whatever it costs."""
    return _run(accountant, pair, sides, settings, answer, float("inf"))


def _run(
    accountant: Accountant,
    pair: DominatingPair,
    sides: Sequence[Side],
    settings: Settings,
    answer: Callable[[Bound], float],
    work: float,
    known: Mapping[tuple[str, Side], Bound] | None = None,
) -> list[Outcome]:
    """The outcomes of one accountant on sides that it bounds together, by the bounds that are known where there are."""
    started = monotonic()
    cost = next((accountant.seconds(pair) for side in sides if accountant.why_not(pair, side) is None), 0.0)
    values: dict[Side, float | None] = dict.fromkeys(sides)
    past = f"{CUT_OFF}: the deadline passed; it takes about {cost:.2g} s"
    status, claim, needs = "ok", None, None
    bounds: Mapping[Side, Bound] = {}
    reason = next((reason for side in sides if (reason := accountant.why_not(pair, side)) is not None), None)
    if reason is not None:
        status = f"{NOT_APPLICABLE}{reason}"
    elif accountant.kind is Kind.DETERMINISTIC and cost > max(work, CHEAP):
        status, needs = f"{LEFT_OUT}: it takes about {cost:.2g} s, more than is left of the planned work", cost
    elif cost > CHEAP and settings.deadline.remaining() <= 0.0:
        status, needs = past, cost
    else:
        try:
            bounds = {
                side: bound for side in sides if (bound := (known or {}).get((accountant.name, side))) is not None
            }
            if len(bounds) < len(sides):
                bounds = accountant.bounds(pair, sides, settings)
            values.update({side: answer(bound) for side, bound in bounds.items()})
            claim = next((bound.claim for bound in bounds.values()), None)
        except BudgetExceededError:
            status, needs = past, cost
        except UnsupportedError as error:
            status = f"{NOT_APPLICABLE}{error}"
        except MemoryError:
            status = f"{NOT_APPLICABLE}it needs more memory than there is"
    seconds = monotonic() - started
    outcome = Outcome(
        accountant.name,
        Side.UPPER,
        accountant.kind,
        settings.confidence(accountant.kind),
        None,
        seconds,
        status,
        claim,
        needs,
    )
    return [
        _with_value(replace(outcome, side=side, bound=None if value is None else bounds[side]), value, settings)
        for side, value in values.items()
    ]


def _with_value(outcome: Outcome, value: float | None, settings: Settings) -> Outcome:
    if value != float("inf"):
        return replace(outcome, value=value)
    outcome = replace(outcome, bound=None)
    if outcome.kind is Kind.MONTE_CARLO and settings.deadline.remaining() <= 0.0:
        needs = min(settings.work, DEFAULT_WORK)  # infinite where only the deadline ends the sampling
        return replace(outcome, status=f"{CUT_OFF}: the deadline passed", needs=needs)
    return replace(outcome, status=f"no bound up to {MAX_EPSILON:g}")


def _expected(outcomes: Sequence[Outcome], method: str) -> float | None:
    """About what this method will answer: between both sides so far, or what it has answered on the other side."""
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or lower is None or not upper.value or not lower.value:
        return next((outcome.value for outcome in outcomes if outcome.method == method and outcome.value), None)
    return sqrt(upper.value) * sqrt(lower.value)


def settings_for(
    question: Question,
    pair: DominatingPair,
    deadline: Deadline,
    monte_carlo: MonteCarlo | None = None,
    policy: SearchPolicy | None = None,
    runs: float = RUNS,
) -> Settings:
    """Grids and effort for a question. For delta at an epsilon a coarse pass first finds out how small delta is.

    Where Monte Carlo can give the upper bound, the other accountants get no more than the default effort: time spent on
    samples gains more.

    Args:
        runs: how many runs of the heaviest accountants the planned work should allow.
    """
    policy = policy or SearchPolicy()
    effort = policy.effort(runs)
    if monte_carlo is not None and _samples(pair):
        effort = min(effort, DEFAULT_EFFORT)
    if question.delta is not None:
        return Settings(
            Resolution(EPSILON_NODES, question.delta), deadline, question, monte_carlo, effort, policy.sampling
        )
    coarse = Settings(Resolution(COARSE_NODES), deadline.part(COARSE_SHARE), effort=COARSE_EFFORT * effort)
    look = replace(policy, work=COARSE_SHARE * policy.work, gap_goal=COARSE_GOAL, heavy_goal=COARSE_GOAL)
    upper = best(run_accountants(pair, question, coarse, policy=look), Side.UPPER)
    value = 1e-30 if upper is None or upper.value is None else upper.value
    resolution = Resolution(DELTA_NODES, min(max(value, 1e-30), 0.5))
    return Settings(resolution, deadline, question, monte_carlo, effort, policy.sampling)


def _samples(pair: DominatingPair) -> bool:
    """Whether Monte Carlo can bound this pair from above."""
    return any(
        accountant.kind is Kind.MONTE_CARLO and accountant.why_not(pair, Side.UPPER) is None
        for accountant in ACCOUNTANTS.values()
    )


def best(outcomes: Sequence[Outcome], side: Side) -> Outcome | None:
    """The tightest value of a side, or None."""
    candidates = [outcome for outcome in outcomes if outcome.side is side and outcome.value is not None]
    if not candidates:
        return None
    return (min if side is Side.UPPER else max)(candidates, key=lambda outcome: outcome.value or 0.0)


def refuse_without_bound(outcomes: Sequence[Outcome], where: str = "") -> NoReturn:
    """Raise why there is no upper bound: BudgetExceededError if the deadline is the reason, else CannotCertifyError."""
    needs = [outcome.needs for outcome in outcomes if outcome.side is Side.UPPER and outcome.needs is not None]
    if needs:
        raise BudgetExceededError(
            f"The time budget is over before there is any bound; allow more seconds, about {min(needs):.2g}."
        )
    raise CannotCertifyError(
        f"No accountant proves an epsilon of at most {MAX_EPSILON:g}{where}, and larger ones leave the range of "
        f"doubles; use more noise or a larger delta."
    )


def planned(
    mechanism: Mechanism | None, budget: float | None, deadline: Deadline | None
) -> tuple[SearchPolicy, Deadline]:
    """The policy and the deadline of a request: seconds come in here and nowhere else.

    Args:
        budget: seconds that were asked for: both what may be planned and when to stop; None for the default plan
            without a deadline.
        deadline: the caller's own, instead of one that starts when the kernels are compiled.

    Raises: InvalidInputError for what is no deadline, and for a budget that is not positive.
    """
    expect_kind("deadline", deadline, Deadline, "a Deadline, such as hs.Deadline(60.0); budget takes seconds")
    policy = SearchPolicy() if budget is None else SearchPolicy(work=check_budget(budget), sampling=float("inf"))
    if budget is not None or (deadline is not None and deadline.seconds < float("inf")):
        warm_up(mechanism)  # without a limit, what runs is compiled when it first runs, and nothing else
    return policy, deadline or Deadline(float("inf") if budget is None else budget)


def check_sampling(monte_carlo: object) -> None:
    """Raise InvalidInputError for a choice about Monte Carlo that is none; None for no samples."""
    expect_kind("monte_carlo", monte_carlo, MonteCarlo, "an hs.MonteCarlo, such as hs.MonteCarlo(), or None")


def check_budget(budget: float) -> float:
    """A budget is a positive number of seconds."""
    budget = real_number("budget", budget)
    if not 0.0 < budget <= 1e6:
        raise InvalidInputError(f"The 'budget' field must be above 0 and at most 1e6 seconds. Got {budget!r} instead.")
    return budget


def gap_within(outcomes: Sequence[Outcome], goal: float) -> bool:
    """Whether the best bounds are this close, relative to the lower one, or the upper one says that nothing is lost."""
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or lower is None or not upper.value or not lower.value:
        return upper is not None and upper.value is not None and upper.value <= SMALLEST_UPPER
    return upper.value <= lower.value * (1.0 + goal)
