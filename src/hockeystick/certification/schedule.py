"""certify: the best certified bounds of all applicable accountants, within a time budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from time import monotonic

from hockeystick._version import __version__
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.monte_carlo import claim_of, with_claim
from hockeystick.accountants.registry import ACCOUNTANTS, accountant
from hockeystick.accountants.warm_up import warm_up
from hockeystick.bounds import SMALLEST_UPPER, Bound, Question
from hockeystick.certificate import Accuracy, Certificate, Interval, Methods
from hockeystick.deadline import Deadline
from hockeystick.errors import (
    BudgetExceededError,
    CannotCertifyError,
    InvalidInputError,
    UnsupportedError,
    VerificationError,
)
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Executor, Ledger
from hockeystick.settings import DEFAULT_EFFORT, MonteCarlo, Settings
from hockeystick.types import Adjacency, Kind, Side

DEFAULT_BUDGET = 60.0
"""Seconds; what is not done by then is left out."""
GAP_GOAL = 1e-3
"""Relative two-sided gap at which certify stops looking for a better bound."""
HEAVY, HEAVY_GOAL = 2.0, 5e-3
"""Methods that cost more than so many seconds are run only while the gap is above this."""
EPSILON_NODES = 68
DELTA_NODES = 92
"""Nodes per unit of score when epsilon, or delta, is asked for: a gap in epsilon is a far larger one in delta."""
COARSE_NODES = 24
COARSE_GOAL = 0.2
COARSE_EFFORT = 0.1
COARSE_SHARE = 0.2
"""The same for a first look at coarse grids."""
RUNS = 5.0
"""How many heavy runs certify expects."""
VERIFY_TOLERANCE = 1e-6
"""Relative difference that another machine's mathematical library may make in a recomputed bound."""

STOPPED = "stopped: the time budget is over"
ONE_SEED = "Draw the seed of the samples once: one that was chosen among several proves nothing."
NOT_ALLOWED = "Monte Carlo bounds have to be allowed (--allow monte-carlo)"
HOPELESS = 5.0
"""A method is not even started when its rough cost is this many times what is left of the budget."""
CHEAP = 1e-2
"""Seconds; what costs less is run even when the budget is over."""


@dataclass(frozen=True)
class Outcome:
    """What one accountant said on one side. ``status`` is "ok" or why there is no value."""

    method: str
    side: Side
    kind: Kind
    confidence: float
    value: float | None
    seconds: float
    status: str


def bound(mechanism: Mechanism, method: str, *, side: Side = Side.UPPER, settings: Settings | None = None) -> Bound:
    """One accountant's bound on the whole profile of a mechanism.

    Raises: InvalidInputError for an unknown method, UnsupportedError where its proof does not cover the mechanism.
    """
    return accountant(method).bound(dominating_pair(mechanism), side, settings)


def certify(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    method: str | None = None,
    budget: float = DEFAULT_BUDGET,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
) -> Certificate:
    """The best certified upper bound and the best lower bound on epsilon at ``delta`` (or delta at ``epsilon``).

    Runs the applicable accountants, cheapest first, until the two sides meet within 0.1 percent or the budget is
    over. Always returns a valid upper bound: the unamplified Gaussian costs nothing.

    Args:
        mechanism: with its noise multiplier.
        delta, epsilon: exactly one of them.
        method: use this accountant alone for the upper bound (lower bounds come from all that apply and are cheap).
        budget: seconds, not counting the one-time compilation of the kernels.
        deadline: progress and deadline of the caller; overrides ``budget``.
        monte_carlo: allows Monte Carlo bounds too, which hold except with the failure probability that it says; None
            for deterministic bounds alone.

    Raises: UnsupportedError for a mechanism nobody has analysed, CannotCertifyError when no finite bound exists.
    """
    deadline = deadline or fresh_deadline(mechanism, budget)
    question, methods = Question(delta=delta, epsilon=epsilon), None if method is None else [method]
    return certify_with(mechanism, question, deadline, methods, monte_carlo)


def certify_with(
    mechanism: Mechanism,
    question: Question,
    deadline: Deadline,
    methods: Sequence[str] | None,
    monte_carlo: MonteCarlo | None = None,
) -> Certificate:
    """:func:`certify` with the accountants that are allowed for upper bounds; None for all."""
    mechanism = mechanism.pinned()
    pair = dominating_pair(mechanism)
    settings = settings_for(question, pair, deadline, monte_carlo)
    outcomes = run_accountants(pair, question, settings, methods=methods)
    return certificate_of(mechanism, pair, question, outcomes, settings)


def compare(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    budget: float = DEFAULT_BUDGET,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
) -> list[Outcome]:
    """Every accountant on every side it has, with its time and, where it gives no value, the reason."""
    question = Question(delta=delta, epsilon=epsilon)
    pair = dominating_pair(mechanism)
    settings = settings_for(question, pair, deadline or fresh_deadline(mechanism, budget), monte_carlo)
    return run_accountants(pair, question, settings, goal=None)


def verify(
    certificate: Certificate,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> Certificate:
    """Recompute a certificate's bounds from its mechanism, and compare.

    Monte Carlo bounds are derived again from the stored ``evidence``, some chunks of which are drawn again from their
    seeds; without evidence all of them are drawn again, by ``executor``.

    Returns the recomputed certificate; an epsilon in it is the claimed one where the two cannot be told apart.
    Raises VerificationError, naming what does not follow, when the recomputed upper bound exceeds the claimed one, the
    recomputed lower bound falls short of the claimed one, or anything else in the certificate differs.
    """
    if certificate.digest != certificate.content_digest():
        raise VerificationError("The certificate was altered: its digest does not match its content.")
    given_delta = None if isinstance(certificate.delta, Interval) else certificate.delta
    given_epsilon = None if isinstance(certificate.epsilon, Interval) else certificate.epsilon
    question = Question(delta=given_delta, epsilon=given_epsilon)
    pair = _pair_of(certificate)
    if certificate.mechanism.pinned() != certificate.mechanism:
        raise VerificationError("The 'mechanism.strategy' field does not say the digest of the file that it names.")
    accuracy = certificate.accuracy
    resolution = Resolution(accuracy.nodes_per_unit, accuracy.smallest_delta)
    settings = Settings(resolution, deadline or Deadline(), question, effort=accuracy.effort or DEFAULT_EFFORT)
    if certificate.monte_carlo is not None:
        settings = with_claim(pair, settings, certificate.monte_carlo, evidence, executor)
    claimed = certificate.bounds
    outcomes = [_run_again(certificate.method.upper, pair, Side.UPPER, question, settings, claimed.upper)]
    if certificate.method.lower is not None:
        outcomes.append(_run_again(certificate.method.lower, pair, Side.LOWER, question, settings, claimed.lower))
    again = certificate_of(certificate.mechanism, pair, question, outcomes, settings)
    found = again.bounds
    what = "epsilon" if given_delta is not None else "delta"
    if found.upper > claimed.upper * (1.0 + VERIFY_TOLERANCE):
        raise VerificationError(
            f"The '{what}.upper' field claims {claimed.upper!r}, but the recomputed bound is {found.upper!r}."
        )
    if claimed.lower is not None and (found.lower is None or found.lower < claimed.lower * (1.0 - VERIFY_TOLERANCE)):
        raise VerificationError(
            f"The '{what}.lower' field claims {claimed.lower!r}, but the recomputed bound is {found.lower!r}."
        )
    if abs(again.sensitivity - certificate.sensitivity) > VERIFY_TOLERANCE * again.sensitivity:
        raise VerificationError(
            f"The 'sensitivity' field claims {certificate.sensitivity!r}, but recomputed it is {again.sensitivity!r}."
        )
    for name in ("adjacency", "also_holds_for", "kind", "confidence", "monte_carlo", "requirements", "references"):
        if getattr(again, name) != getattr(certificate, name):
            raise VerificationError(f"The {name!r} field does not follow from the mechanism.")
    return again


def _pair_of(certificate: Certificate) -> DominatingPair:
    try:
        return dominating_pair(certificate.mechanism)
    except (InvalidInputError, UnsupportedError) as error:
        raise VerificationError(str(error)) from None


def _run_again(
    name: str, pair: DominatingPair, side: Side, question: Question, settings: Settings, claimed: float | None
) -> Outcome:
    """The bound that a certificate rests on; no other one may stand in for it."""
    if name not in ACCOUNTANTS:
        raise VerificationError(f"The 'method.{side.value}' field names a method that is not known: {name!r}.")
    if ACCOUNTANTS[name].kind not in settings.kinds:
        raise VerificationError(f"The 'monte_carlo' field is missing, which the method {name!r} needs.")
    outcome = _run(ACCOUNTANTS[name], pair, side, settings, partial(question.confirmed, claimed=claimed))
    if outcome.status == STOPPED:
        raise BudgetExceededError("The time budget is over before the certificate is recomputed; allow more seconds.")
    if outcome.value is None:
        raise VerificationError(
            f"The 'method.{side.value}' field names {name!r}, which gives no {side.value} bound here: {outcome.status}."
        )
    return outcome


def run_accountants(
    pair: DominatingPair,
    question: Question,
    settings: Settings,
    *,
    methods: Sequence[str] | None = None,
    goal: float | None = GAP_GOAL,
    sides: Sequence[Side] = (Side.UPPER, Side.LOWER),
    near: float | None = None,
) -> list[Outcome]:
    """Run the accountants that analyse this type of pair: those with both sides first, then the cheapest.

    Monte Carlo, where it is allowed, comes after them; what would take a good part of the time that is left comes last.

    Args:
        methods: the accountants allowed for upper bounds; None for all that assume nothing beyond the mechanism. Others
            give lower bounds where that is cheap.
        goal: leave out what is left once the two sides meet within this relative gap, and heavy methods before that;
            None to run all.
        sides: which sides are wanted.
        near: an epsilon that the caller expects; it saves time alone.
    """
    allowed = [one for one in ACCOUNTANTS.values() if one.kind in settings.kinds and one.assumes is None]
    chosen = allowed if methods is None else [accountant(name) for name in methods]
    if methods is not None:
        for one in chosen:
            reason = one.why_not(pair, Side.UPPER) if one.kind in settings.kinds else NOT_ALLOWED
            if reason is not None:
                raise UnsupportedError(f"The method {one.name!r} does not apply here: {reason}.")
    tasks = [(one, Side.UPPER) for one in chosen if Side.UPPER in sides]
    if Side.LOWER in sides:
        tasks += [(one, Side.LOWER) for one in allowed]
    tasks = [(one, side) for one, side in tasks if side in one.sides and one.covers(type(pair))]
    patience = settings.deadline.remaining() / 4.0

    def cost(one: Accountant, side: Side) -> float:
        return one.cost(pair) if one.why_not(pair, side) is None else 0.0

    def place(task: tuple[Accountant, Side]) -> tuple[bool, bool, bool, float]:
        one, seconds = task[0], cost(*task)
        return seconds > patience, one.kind is Kind.MONTE_CARLO, len(one.sides) == 1, seconds

    def wanted(task: tuple[Accountant, Side]) -> bool:
        one, side = task
        return one in chosen or one.kind is Kind.MONTE_CARLO or cost(one, side) <= HEAVY

    ordered = sorted(filter(wanted, tasks), key=place)
    outcomes: list[Outcome] = []
    for one, side in ordered:
        if goal is not None and _goal_reached(outcomes, goal):
            break
        if goal is not None and cost(one, side) > HEAVY and _goal_reached(outcomes, max(goal, HEAVY_GOAL)):
            continue
        settled = {outcome.method for outcome in outcomes if outcome.side is side and outcome.value is not None}
        if goal is not None and not settled.isdisjoint(one.no_better_than):
            continue
        answer = partial(question.answer, near=_expected(outcomes) or near)
        outcomes.append(_run(one, pair, side, settings, answer))
    return outcomes


def _expected(outcomes: Sequence[Outcome]) -> float | None:
    """About what the answer is, from what both sides say so far."""
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or lower is None or not upper.value or not lower.value:
        return None
    return sqrt(upper.value) * sqrt(lower.value)


def settings_for(
    question: Question,
    pair: DominatingPair,
    deadline: Deadline,
    monte_carlo: MonteCarlo | None = None,
    runs: float = RUNS,
) -> Settings:
    """Grids and effort for a question. For delta at an epsilon a coarse pass first finds out how small delta is.

    Args:
        runs: how many runs of the heaviest accountants the time that is left should allow.
    """
    effort = min(float(f"{deadline.remaining() / runs:.2g}"), DEFAULT_EFFORT) or CHEAP
    if question.delta is not None:
        return Settings(Resolution(EPSILON_NODES, question.delta), deadline, question, monte_carlo, effort)
    share = Deadline(COARSE_SHARE * deadline.remaining(), deadline.on_tick)
    coarse = Settings(Resolution(COARSE_NODES), share, effort=COARSE_EFFORT * effort)
    outcomes = run_accountants(pair, question, coarse, goal=COARSE_GOAL)
    upper = best(outcomes, Side.UPPER)
    value = 1e-30 if upper is None or upper.value is None else upper.value
    return Settings(Resolution(DELTA_NODES, min(max(value, 1e-30), 0.5)), deadline, question, monte_carlo, effort)


def best(outcomes: Sequence[Outcome], side: Side) -> Outcome | None:
    """The tightest value of a side, or None."""
    found = [outcome for outcome in outcomes if outcome.side is side and outcome.value is not None]
    if not found:
        return None
    return (min if side is Side.UPPER else max)(found, key=lambda outcome: outcome.value or 0.0)


def check_budget(budget: float) -> float:
    """A budget is a positive number of seconds."""
    if not 0.0 < budget <= 1e6:
        raise InvalidInputError(f"The 'budget' field must be above 0 and at most 1e6 seconds. Got {budget!r} instead.")
    return budget


def fresh_deadline(mechanism: Mechanism, budget: float) -> Deadline:
    """A deadline that starts when all kernels are compiled."""
    check_budget(budget)
    warm_up(mechanism)
    return Deadline(seconds=budget)


def _goal_reached(outcomes: Sequence[Outcome], goal: float) -> bool:
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or lower is None or not upper.value or not lower.value:
        return upper is not None and upper.value is not None and upper.value <= SMALLEST_UPPER
    return upper.value <= lower.value * (1.0 + goal)


def _run(
    one: Accountant, pair: DominatingPair, side: Side, settings: Settings, answer: Callable[[Bound], float]
) -> Outcome:
    started = monotonic()
    value, status = None, "ok"
    reason = one.why_not(pair, side)
    if reason is not None:
        status = f"not applicable: {reason}"
    elif one.kind is Kind.DETERMINISTIC and one.cost(pair) > max(HOPELESS * settings.deadline.remaining(), CHEAP):
        status = STOPPED
    else:
        try:
            value = answer(one.bound(pair, side, settings))
        except BudgetExceededError:
            status = STOPPED
        except UnsupportedError as error:
            status = f"not applicable: {error}"
        except MemoryError:
            status = "not applicable: it needs more memory than there is"
        if value == float("inf"):
            out_of_time = one.kind is Kind.MONTE_CARLO and settings.deadline.remaining() <= 0.0
            value, status = None, STOPPED if out_of_time else "no finite bound"
    confidence = settings.confidence(one.kind)
    return Outcome(one.name, side, one.kind, confidence, value, monotonic() - started, status)


def certificate_of(
    mechanism: Mechanism,
    pair: DominatingPair,
    question: Question,
    outcomes: Sequence[Outcome],
    settings: Settings,
) -> Certificate:
    """The certificate that states the best of these outcomes.

    Raises: BudgetExceededError or CannotCertifyError when there is no upper bound among them.
    """
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or upper.value is None:
        if any(outcome.status == STOPPED for outcome in outcomes):
            raise BudgetExceededError("The time budget is over before there is any bound; allow more seconds.")
        raise CannotCertifyError(
            f"No accountant gives a finite bound at noise_multiplier = {mechanism.sigma:g}; "
            f"use more noise or a larger delta."
        )
    interval = Interval(upper=upper.value, lower=None if lower is None or lower.value is None else lower.value)
    ends = [upper] if lower is None else [upper, lower]
    used = list(dict.fromkeys(end.method for end in ends))
    planned = any(ACCOUNTANTS[name].plans_effort for name in used)
    sampled = next((end for end in ends if end.kind is Kind.MONTE_CARLO), None)
    sampler, resolution = mechanism.sampler, settings.resolution
    return Certificate(
        hockeystick_version=__version__,
        mechanism=mechanism,
        adjacency=Adjacency.ZERO_OUT,
        also_holds_for=tuple(other for other in sampler.holds_for if other is not Adjacency.ZERO_OUT),
        epsilon=interval if question.epsilon is None else question.epsilon,
        delta=interval if question.delta is None else question.delta,
        method=Methods(upper=upper.method, lower=None if lower is None else lower.method),
        references=tuple(ACCOUNTANTS[name].reference for name in used),
        kind=Kind.DETERMINISTIC if sampled is None else Kind.MONTE_CARLO,
        confidence=1.0 if sampled is None else sampled.confidence,
        monte_carlo=None if sampled is None else claim_of(pair, settings),
        sensitivity=mechanism.matrix.max_column_norm,
        requirements=(
            sampler.requirement,
            mechanism.strategy.noise_requirement(mechanism.sigma),
            "Divide by a number fixed beforehand, such as the expected batch size, not by the size of the batch drawn.",
            "Keep the draws of batches and noise secret, and use them for this run only.",
            *(assumed for name in used if (assumed := ACCOUNTANTS[name].assumes) is not None),
            *(() if sampled is None else (ONE_SEED,)),
        ),
        accuracy=Accuracy(
            nodes_per_unit=resolution.nodes_per_unit,
            smallest_delta=resolution.smallest_delta,
            effort=settings.effort if planned and settings.effort != DEFAULT_EFFORT else None,
        ),
    ).sealed()
