"""certify, compare and bound: from a mechanism and a question to outcomes and a certificate with what it implies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from hockeystick.accountants.registry import ACCOUNTANTS, accountant, every_accountant, warm_up
from hockeystick.attacks.numbers import certified_numbers
from hockeystick.bounds import Bound, Profile, Question, best_of
from hockeystick.calls import called
from hockeystick.certificate import (
    FORMAT,
    Accuracy,
    AttackNumbers,
    Certificate,
    CutOff,
    Interval,
    Methods,
    Origin,
    Statements,
)
from hockeystick.certification.chords import tabulated
from hockeystick.certification.description import check_floor, described, drawn_by, origin
from hockeystick.certification.schedule import (
    Outcome,
    best,
    check_sampling,
    chosen_accountants,
    planned,
    refuse_if_none_bounds,
    refuse_without_bound,
    run_accountants,
    settings_for,
)
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.plan import Plan, Target, split
from hockeystick.settings import DEFAULT_EFFORT, MonteCarlo, SearchPolicy, Settings
from hockeystick.types import Direction, Kind, Side

PORTABLE = 1e-7
"""Relative part of a bound that is given away when it is issued, to its loose side: more than the mathematical library
of another machine changes, so that a certificate verifies there without any tolerance."""
KNOTS = 17
"""Epsilons at which a profile that is slow to evaluate is read; the bound between them is their chords."""
SMALL_DELTA = 1e-4
"""The knots go at least to where the profile is this small."""
MOST_REACH = 100.0
"""But to no larger epsilon than this."""


@called('hs.bound(run, "direct")')
def bound(
    mechanism: Mechanism | Plan, method: str, *, side: Side = Side.UPPER, settings: Settings | None = None
) -> Bound:
    """One accountant's bound on the whole profile of a mechanism, or of a plan's.

    Raises: InvalidInputError for an unknown method, UnsupportedError where its proof does not cover the mechanism.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> 1.9 < hs.bound(run, "gaussian").epsilon(1e-5) < 2.0
    True
    """
    return accountant(method).bound(dominating_pair(split(mechanism)[0]), side, settings)


@called("hs.certify(run, delta=1e-5)")
def certify(
    mechanism: Mechanism | Plan,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    method: str | None = None,
    budget: float | None = None,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
    generator: str | None = None,
) -> Certificate:
    """The best certified upper bound and the best lower bound on epsilon at ``delta`` (or delta at ``epsilon``).

    Runs the applicable accountants, cheapest first, until the two sides meet within 0.1 percent or the planned work is
    done. The unamplified Gaussian costs nothing, so there is an upper bound however short the time is; only truncated
    batches may leave it infinite, which raises BudgetExceededError. Without a budget the result depends on neither the
    machine nor its load. What a deadline cuts off is named in ``certificate.cut_off``.

    Args:
        mechanism: with its noise multiplier; or a plan with one.
        delta, epsilon: exactly one of them; or none of them for a plan with a target, which is certified at its delta,
            or at its epsilon where that is all it has.
        method: use this accountant alone for the upper bound (lower bounds come from all that apply and are cheap);
            the Gaussian stands in for it when the deadline cuts it off.
        budget: seconds, not counting the one-time compilation of the kernels (but for those of Monte Carlo): how much
            work to plan, and the deadline. None plans about a minute of work and sets no deadline.
        deadline: progress and deadline of the caller, in place of the budget's.
        monte_carlo: allows Monte Carlo bounds too, which hold except with the failure probability that it says; None
            for deterministic bounds alone.
        generator: whose normal numbers the noise is made of, by a name of ``hockeystick.noise.GENERATORS``: a delta
            that they refute is refused, and the certificate names them. None for hockeystick's own noise.

    Raises: UnsupportedError for a mechanism nobody has analysed, and for a method that does not apply to this one,
        CannotCertifyError when no finite bound exists or the generator refutes the claim, BudgetExceededError when the
        deadline passes while the strategy matrix is optimised.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> hs.certify(run, delta=1e-5).method.upper
    'direct'
    """
    mechanism, target = split(mechanism)
    question, methods = _asked(target, delta, epsilon), None if method is None else [accountant(method).name]
    check_sampling(monte_carlo)
    policy, deadline = planned(mechanism, budget, deadline)
    if generator is not None and question.delta is not None:  # before anything else is computed
        check_floor(prepared(mechanism, deadline), generator, question.delta)
    certificate = certify_with(mechanism, question, deadline, methods, monte_carlo, policy)
    return certificate if generator is None else drawn_by(certificate, generator)


def _asked(target: Target, delta: float | None, epsilon: float | None) -> Question:
    """What the arguments ask, or the target where they ask nothing."""
    if delta is None and epsilon is None:
        delta, epsilon = target.delta, target.epsilon if target.delta is None else None
    return Question(delta=delta, epsilon=epsilon)


def certify_with(
    mechanism: Mechanism,
    question: Question,
    deadline: Deadline,
    methods: Sequence[str] | None,
    monte_carlo: MonteCarlo | None,
    policy: SearchPolicy,
    *,
    whole: bool = True,
    near: float | None = None,
) -> Certificate:
    """:func:`certify` with the accountants that are allowed for upper bounds; None for the default ones.

    Args:
        whole: as for :func:`certificate_of`.
        near: an epsilon that the caller expects; affects speed only.
    """
    mechanism = prepared(mechanism, deadline, monte_carlo)
    pair = dominating_pair(mechanism)
    if methods is not None:
        chosen_accountants(methods, pair, Settings(monte_carlo=monte_carlo))  # refused before any other is looked at
    settings = settings_for(question, pair, deadline, monte_carlo, policy)
    outcomes = run_accountants(pair, question, settings, policy=policy, methods=methods, near=near)
    if best(outcomes, Side.UPPER) is None:
        if methods is not None:
            refuse_if_none_bounds(methods, outcomes, mechanism.sigma)
        outcomes += run_accountants(pair, question, settings, policy=policy, methods=["gaussian"], sides=(Side.UPPER,))
    return certificate_of(mechanism, pair, question, outcomes, settings, whole=whole)


def prepared(mechanism: Mechanism, deadline: Deadline, monte_carlo: MonteCarlo | None = None) -> Mechanism:
    """The mechanism with its files pinned and its strategy matrix found, which may take time and ticks the deadline.

    Args:
        monte_carlo: whose ledger may be about a matrix that another machine found.
    """
    with deadline.covering():
        try:
            mechanism = mechanism.pinned() if monte_carlo is None else monte_carlo.ledger.pinned(mechanism)
            mechanism.matrix.max_column_norm  # noqa: B018
        except BudgetExceededError:
            raise BudgetExceededError(
                f"The budget of {deadline.seconds:g} s is over before the strategy {mechanism.strategy.kind!r} is "
                f"optimised; allow more seconds, fewer steps or fewer bands."
            ) from None
    return mechanism


@called("hs.compare(run, delta=1e-5)")
def compare(
    mechanism: Mechanism | Plan,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    budget: float | None = None,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
) -> list[Outcome]:
    """Every accountant on every side it has, with its time and, where it gives no value, the reason.

    Published methods that certify leaves out run too. Arguments are those of :func:`certify`.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> sorted({outcome.method for outcome in hs.compare(run, delta=1e-5) if outcome.status == "ok"})[:2]
    ['direct', 'gaussian']
    """
    mechanism, target = split(mechanism)
    question = _asked(target, delta, epsilon)
    check_sampling(monte_carlo)
    policy, deadline = planned(mechanism, budget, deadline)
    warm_up(mechanism, every_accountant())  # no method's seconds include a compilation
    pair = dominating_pair(prepared(mechanism, deadline, monte_carlo))
    settings = settings_for(question, pair, deadline, monte_carlo, policy)
    return run_accountants(pair, question, settings, policy=policy, run_all=True)


def certificate_of(
    mechanism: Mechanism,
    pair: DominatingPair,
    question: Question,
    outcomes: Sequence[Outcome],
    settings: Settings,
    *,
    whole: bool = True,
) -> Certificate:
    """The certificate that states the best of these outcomes, each moved to its loose side by ``PORTABLE``.

    Args:
        whole: read the attack numbers off the whole profile, which takes seconds for some methods.

    Raises: BudgetExceededError or CannotCertifyError when there is no upper bound among them.
    """
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or upper.value is None:
        refuse_without_bound(outcomes, f" at noise_multiplier = {mechanism.sigma:g}")
    loosest = 1.0 if question.epsilon is not None else float("inf")
    interval = Interval(
        upper=min(upper.value * (1.0 + PORTABLE), loosest),
        lower=None if lower is None or lower.value is None else lower.value * (1.0 - PORTABLE),
    )
    plans = any(accountant(outcome.method).plans_effort for outcome in (upper, lower) if outcome is not None)
    resolution = settings.resolution
    accuracy = Accuracy(
        nodes_per_unit=resolution.nodes_per_unit,
        smallest_delta=resolution.smallest_delta,
        effort=settings.effort if plans and settings.effort != DEFAULT_EFFORT else None,
    )
    cut_off = tuple(
        CutOff(method=outcome.method, side=outcome.side, seconds=outcome.needs)
        for outcome in outcomes
        if outcome.needs is not None
    )
    numbers = attack_numbers_of(pair, question, upper, interval.upper, settings, whole=whole)
    made, ends = origin(accuracy, cut_off), (upper, lower)
    unamplified = best([outcome for outcome in outcomes if outcome.method == "gaussian"], Side.UPPER)
    known = None if unamplified is None else unamplified.value
    return stated(mechanism, pair, question, interval, ends, numbers, settings, made, unamplified=known)


def stated(
    mechanism: Mechanism,
    pair: DominatingPair,
    question: Question,
    interval: Interval,
    ends: tuple[Outcome, Outcome | None],
    numbers: AttackNumbers,
    settings: Settings,
    made: Origin,
    *,
    statements: Statements | None = None,
    form: str = FORMAT,
    unamplified: float | None = None,
) -> Certificate:
    """The certificate that states this interval as it stands, with all that follows from it.

    Args:
        ends: the outcomes that the two ends of the interval rest on.
        numbers: what attackers gain at most.
        made: how the certificate was made.
        form: the format whose fields and words it has.
        unamplified: the Gaussian's answer for known batches; None to compute it.
    """
    upper, lower = ends
    sampled = next((end for end in ends if end is not None and end.kind is Kind.MONTE_CARLO), None)
    return described(
        statements or Statements(),
        format=form,
        mechanism=mechanism,
        epsilon=interval if question.epsilon is None else question.epsilon,
        delta=interval if question.delta is None else question.delta,
        method=Methods(upper=upper.method, lower=None if lower is None else lower.method),
        kind=Kind.DETERMINISTIC if sampled is None else Kind.MONTE_CARLO,
        confidence=1.0 if sampled is None else sampled.confidence,
        monte_carlo=None if sampled is None else sampled.claim,
        without_amplification=_without_amplification(pair, question, settings, unamplified),
        numbers=numbers,
        generator=None,
        origin=made,
    )


def attack_numbers_of(
    pair: DominatingPair, question: Question, end: Outcome, upper: float, settings: Settings, *, whole: bool = True
) -> AttackNumbers:
    """What attackers gain at most, by the profile of the method that certified, where the whole of it is wanted.

    Where there is no time or memory for that profile, and under Monte Carlo, from the certified pair of numbers. The
    numbers say which of the two it is.
    """
    bound, (epsilon, delta) = implied_bound(pair, question, end, upper, settings), question.claimed(upper)
    try:
        profile = whole_profile(pair, question, end, upper, settings) if whole else None
        if profile is not None:
            numbers = attack_numbers(tighter(bound, profile), delta, near=epsilon)
            return portable(numbers).model_copy(update={"basis": "profile"})
    except (BudgetExceededError, MemoryError):
        pass
    return portable(attack_numbers(bound, delta, near=epsilon)).model_copy(update={"basis": "claim"})


def _without_amplification(
    pair: DominatingPair, question: Question, settings: Settings, known: float | None
) -> float | None:
    """The answer of the Gaussian for known batches, moved up as every bound is; None where it is not finite."""
    gaussian = ACCOUNTANTS["gaussian"]
    if gaussian.why_not(pair, Side.UPPER) is not None:
        return None
    value = known
    if value is None:
        value = question.answer(gaussian.bound(pair, Side.UPPER, Settings(settings.resolution)))
    loosest = 1.0 if question.epsilon is not None else float("inf")
    return None if value == float("inf") else min(value * (1.0 + PORTABLE), loosest)


def attack_numbers(bound: Bound, delta: float, near: float | None = None) -> AttackNumbers:
    """What any attack gains at most, from an upper bound that certifies this delta, near this epsilon."""
    return AttackNumbers(**certified_numbers(bound, delta, near))


def portable(numbers: AttackNumbers) -> AttackNumbers:
    """The same, each moved up as every bound is."""
    moved = {name: value * (1.0 + PORTABLE) for name, value in numbers if isinstance(value, float)}
    return numbers.model_copy(
        update={name: value if name == "gdp_mu" else min(value, 1.0) for name, value in moved.items()}
    )


def implied_delta(epsilon: float, delta: float, at: float) -> float:
    """The delta at the epsilon ``at`` that (epsilon, delta) implies for every mechanism, rounded up.

    ``delta + (1 - delta) (e^epsilon - e^at) / (1 + e^epsilon)`` below epsilon and ``delta`` above: the profile of the
    worst mechanism (docs/theory/certificates.md; Kairouz, Oh and Viswanath 2017, Theorem 3.1).

    >>> implied_delta(0.0, 1e-5, 0.0)
    1e-05
    """
    if at >= epsilon:
        return delta
    share = (1.0 - exp(at - epsilon)) / (1.0 + exp(-epsilon))  # both between 0 and 1, no overflow
    return min(delta + (1.0 - delta) * share * (1.0 + 32.0 * UNIT_ROUNDOFF) + 8.0 * UNIT_ROUNDOFF, 1.0)


@dataclass(frozen=True, eq=False)
class _Implied:
    """:func:`implied_delta` of one pair of numbers, at one epsilon or at many."""

    epsilon: float
    delta: float

    def __call__(self, at: float) -> float:
        return implied_delta(self.epsilon, self.delta, at)

    def each(self, epsilons: Sequence[float]) -> list[float]:
        below = np.array([at for at in epsilons if at < self.epsilon])
        shares = (1.0 - np.exp(below - self.epsilon)) / (1.0 + exp(-self.epsilon))
        deltas = self.delta + (1.0 - self.delta) * shares * (1.0 + 32.0 * UNIT_ROUNDOFF) + 8.0 * UNIT_ROUNDOFF
        values = iter(np.minimum(deltas, 1.0).tolist())
        return [next(values) if at < self.epsilon else self.delta for at in epsilons]


def implied_bound(pair: DominatingPair, question: Question, end: Outcome, upper: float, settings: Settings) -> Bound:
    """The smaller of what a certified pair of numbers implies and the unamplified Gaussian, at every epsilon.

    It has the confidence of the certified pair of numbers.

    Args:
        end: what the method that certified them said.
        upper: the certified epsilon, or delta, that answers the question.
    """
    gaussian = ACCOUNTANTS["gaussian"]
    profiles: dict[Direction, Profile] = dict.fromkeys(Direction, _Implied(*question.claimed(upper)))
    bound = Bound(end.method, Side.UPPER, end.kind, end.confidence, "docs/theory/certificates.md", profiles)
    if gaussian.why_not(pair, Side.UPPER) is not None:
        return bound
    return tighter(bound, gaussian.bound(pair, Side.UPPER, Settings(settings.resolution)))


def tighter(bound: Bound, other: Bound) -> Bound:
    """At every epsilon the smaller of two upper bounds; the first one says what is claimed and may have no slack.

    The second one is read once at each epsilon: attack numbers and their regret are of the same epsilons.
    """
    paying = {profile: _Paying(other, profile) for profile in dict.fromkeys(other.profiles.values())}
    pairs = {direction: (bound.profiles[direction], paying[profile]) for direction, profile in other.profiles.items()}
    # Directions that have both profiles in common share one, which is read once.
    smaller = {pair: best_of(min, *pair) for pair in dict.fromkeys(pairs.values())}
    return replace(bound, profiles={direction: smaller[pair] for direction, pair in pairs.items()})


def whole_profile(
    pair: DominatingPair, question: Question, end: Outcome, upper: float, settings: Settings
) -> Bound | None:
    """The upper bound on the whole profile by the method that certified, with its slack; None where it has none.

    Monte Carlo has none: the failure probability of a certificate is that of one epsilon at one delta, and covers no
    curve. A profile that is slow to evaluate is read at ``KNOTS`` epsilons, between which its chords are a bound.

    Args:
        end: what the method said, which holds its bound.
        upper: the certified epsilon, or delta.
        settings: those of the certificate; their question is left out, with which a bound may be good there alone.

    Raises: BudgetExceededError when the deadline passes, MemoryError.
    """
    certifier = every_accountant()[end.method]
    if certifier.kind is Kind.MONTE_CARLO:
        return None
    if not certifier.plans_effort:
        return end.bound
    deadline = settings.deadline
    try:
        alone = Settings(settings.resolution, deadline, effort=settings.effort, claimed=settings.claimed)
        bound = certifier.bound(pair, Side.UPPER, alone)
    except UnsupportedError:
        return None
    epsilon, delta = question.claimed(upper)
    reach = epsilon if delta <= SMALL_DELTA else bound.epsilon(SMALL_DELTA)
    reach = min(max(reach, 1e-3), MOST_REACH)
    return tabulated(bound, bound, [reach * (knot / (KNOTS - 1.0)) for knot in range(KNOTS)], deadline)


class _Paying:
    """A profile of a bound with the slack of the bound in it."""

    def __init__(self, bound: Bound, profile: Profile) -> None:
        self.alone = replace(bound, profiles=dict.fromkeys(Direction, profile))
        self.known: dict[float, float] = {}

    def __call__(self, epsilon: float) -> float:
        if epsilon not in self.known:
            self.known[epsilon] = self.alone.delta(epsilon)
        return self.known[epsilon]

    def each(self, epsilons: Sequence[float]) -> list[float]:
        fresh = [at for at in epsilons if at not in self.known]
        self.known |= zip(fresh, self.alone.delta(fresh).tolist(), strict=True)
        return [self.known[at] for at in epsilons]
