"""What one certified run brings into a composition: a law on either side, where it has one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT, accountant, every_accountant
from hockeystick.accountants.retired import RETIRED
from hockeystick.bounds import Bound, Profile, Question
from hockeystick.certificate import AnyCertificate, Interval
from hockeystick.certification.confirmation import confirmed
from hockeystick.certification.issue import prepared
from hockeystick.claim import Statement
from hockeystick.composition.profile_law import law_from_profiles
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.allocated_phases import Allocation
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.poisson_moments import PoissonMoments
from hockeystick.laws.product_moments import Part
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import DEFAULT_EFFORT, Settings
from hockeystick.spec import Spec
from hockeystick.types import Direction, Kind, Side

CHEAP = 2.0
"""Standard seconds; accountants that cost less help a run out that has no law by the method of its certificate."""


class Route(StrEnum):
    """How a run enters the upper bound of a composition."""

    LAW = "law"
    """The accountant's own law of the likelihood ratio."""
    PROFILE = "profile"
    """A law that dominates upper bounds on the whole profile."""
    CLAIM = "claim"
    """A law that dominates the one (epsilon, delta) of a Monte Carlo certificate, and the unamplified Gaussian."""


class RunMethods(Spec):
    """How one certificate entered a claim.

    Attributes:
        upper: the accountants behind its upper law.
        route: what that law was made of.
        lower: the accountant of its lower law, or None where the run counts by itself only.
    """

    upper: tuple[str, ...]
    route: Route
    lower: str | None


@dataclass(frozen=True, eq=False)
class RunBounds:
    """The bounds of one run.

    Attributes:
        make_upper: makes a law that dominates the run's pair.
        make_lower: makes one that is dominated by it; None where no accountant has such a law.
        steps: the Poisson steps that the run consists of, where contours are for them.
        epochs: the epochs of one visit that the run consists of, where transforms are for them, and their number.
        slack: total-variation distance between the run and what the laws bound.
        lower_slack: the same for the lower law.
        alone: for each side, the answer of the certificate's own method if this were the only run.
    """

    make_upper: Callable[[], Law]
    make_lower: Callable[[], Law] | None
    steps: Part | None
    epochs: tuple[Allocation, int] | None
    slack: float
    lower_slack: float
    methods: RunMethods
    alone: dict[Side, float]

    @cached_property
    def upper(self) -> Law:
        """The law that dominates the run's pair."""
        return self.make_upper()

    @cached_property
    def lower(self) -> Law | None:
        """The law that the run's pair dominates, if there is one."""
        return None if self.make_lower is None else self.make_lower()


def run_bounds(
    certificate: AnyCertificate, question: Question, nodes: int, smallest: float, deadline: Deadline, *, single: bool
) -> RunBounds:
    """The laws of a certificate's mechanism, and what its own method answers for this run alone.

    Args:
        nodes, smallest: resolution of the laws.
        single: whether some example takes part in this run alone, once.

    Of a deterministic certificate nothing but the mechanism and the names of its methods is used; of a Monte Carlo
    certificate the claimed numbers are, which hold with its confidence. For a retired method the cheapest one stands in
    that proves as much.

    Raises: UnsupportedError when the methods that the certificate names give no bound here; VerificationError when none
        stands in for a retired one; BudgetExceededError.
    """
    pair = dominating_pair(prepared(certificate.mechanism, deadline))
    effort = certificate.accuracy.effort or DEFAULT_EFFORT
    settings = Settings(Resolution(nodes, smallest), deadline, question, effort=effort)
    alone: dict[Side, float] = {}
    names: tuple[str, ...]
    upper: Law | None
    steps, epochs = _poisson_steps(certificate, pair), _epochs(certificate, pair)
    needs_laws = steps is None and epochs is None  # transforms may do without
    above, below = _behind(certificate, pair, Side.UPPER, settings), _behind(certificate, pair, Side.LOWER, settings)
    assert above is not None
    if above.kind is Kind.MONTE_CARLO:
        profiles, place = _claimed_profiles(certificate, pair, settings), _claimed_point(certificate, Side.UPPER)[0]
        upper = law_from_profiles(profiles, smallest, tick=deadline.tick, drop=place)
        names, route, slack = (above.name, "gaussian"), Route.CLAIM, 0.0
    else:
        laws, slack = above.laws_of(pair, Side.UPPER, settings) if needs_laws else (), pair.slack
        if not needs_laws or len(laws) == 1:
            upper, names, route = laws[0] if laws else None, (above.name,), Route.LAW
            if single:
                alone[Side.UPPER] = question.answer(above.bound(pair, Side.UPPER, settings))
        else:
            bounds = _upper_bounds(above, pair, settings)
            alone[Side.UPPER] = question.answer(bounds[0])
            upper = law_from_profiles(_least(bounds), smallest, tick=deadline.tick)
            names, route = tuple(bound.method for bound in bounds), Route.PROFILE
    lower, by = _lower_law(below, pair, settings) if needs_laws else (None, certificate.method.lower)
    alone.update(_claimed_answers(certificate, question))
    if below is not None and (single or below.name != by) and below.kind is Kind.DETERMINISTIC:
        alone[Side.LOWER] = question.answer(below.bound(pair, Side.LOWER, settings))
    methods = RunMethods(upper=names, route=route, lower=by)
    if needs_laws:
        makers = [None if law is None else partial(_made, law) for law in (upper, lower)]
    else:
        makers = [partial(_law_of_steps, above, pair, side, settings) for side in (Side.UPPER, Side.LOWER)]
    assert makers[0] is not None
    return RunBounds(makers[0], makers[1], steps, epochs, slack, pair.slack, methods, alone)


def _behind(certificate: AnyCertificate, pair: DominatingPair, side: Side, settings: Settings) -> Accountant | None:
    """The accountant of one end of a certificate, or the one that stands in for it; None where there is no end."""
    method, bounds = certificate.method, certificate.bounds
    name, claimed = (method.upper, bounds.upper) if side is Side.UPPER else (method.lower, bounds.lower)
    if name is None or claimed is None:
        return None
    if name in RETIRED and name not in every_accountant():
        resolution = Resolution(certificate.accuracy.nodes_per_unit, certificate.accuracy.smallest_delta)
        own = replace(settings, resolution=resolution, question=certificate.question)
        name = next(confirmed(name, ACCOUNTANTS, pair, side, own, claimed)).method
    return accountant(name)


def _poisson_steps(certificate: AnyCertificate, pair: DominatingPair) -> Part | None:
    """The Poisson steps of a run whose bounds on both sides are those of its independent steps, if contours may do."""
    if not isinstance(pair, IndependentSteps) or {certificate.method.upper, certificate.method.lower} != {"direct"}:
        return None
    part = Part(PoissonMoments(pair.sampling_prob, pair.noise_multiplier), pair.steps)
    return part if part.in_reach else None


def _epochs(certificate: AnyCertificate, pair: DominatingPair) -> tuple[Allocation, int] | None:
    """The epochs of a run whose bounds on both sides are those of its epochs of one visit, if transforms may do."""
    if not isinstance(pair, AveragedSteps) or {certificate.method.upper, certificate.method.lower} != {"direct"}:
        return None
    allocation = Allocation(pair.visit_noise, pair.bins)
    return (allocation, pair.epochs) if pair.participations == 1 and allocation.in_reach else None


def _made(law: Law) -> Law:
    return law


def _law_of_steps(accountant: Accountant, pair: DominatingPair, side: Side, settings: Settings) -> Law:
    (law,) = accountant.laws_of(pair, side, settings)
    return law


def _upper_bounds(own: Accountant, pair: DominatingPair, settings: Settings) -> list[Bound]:
    """The bound of the certificate's method, and of the cheap ones: elsewhere in the profile they may be better."""
    bounds = [own.bound(pair, Side.UPPER, settings)]
    for other in (ACCOUNTANTS[name] for name in DEFAULT):
        if other is own or other.kind is Kind.MONTE_CARLO or not other.analyses_some(pair):
            continue
        if other.why_not(pair, Side.UPPER) is None and other.seconds(pair) <= CHEAP:
            try:
                bounds.append(other.bound(pair, Side.UPPER, settings))
            except UnsupportedError:
                continue
    return bounds


def _least(bounds: Sequence[Bound]) -> dict[Direction, Profile]:
    def least(direction: Direction) -> Profile:
        return lambda epsilon: min(bound.profiles[direction](epsilon) for bound in bounds)

    return {direction: least(direction) for direction in Direction}


def _claimed_profiles(
    certificate: AnyCertificate, pair: DominatingPair, settings: Settings
) -> dict[Direction, Profile]:
    """What is known of a run from one claimed (epsilon, delta), and from the unamplified Gaussian."""
    place, delta = _claimed_point(certificate, Side.UPPER)
    claim = certificate.monte_carlo
    by_procedure = claim is not None and claim.statement is Statement.ESTIMATE_VERIFY_RELEASE
    gaussian = None if by_procedure else ACCOUNTANTS["gaussian"].bound(pair, Side.UPPER, settings)

    def profile(epsilon: float) -> float:
        known = 1.0 if gaussian is None else float(gaussian.delta(epsilon))
        return min(known, delta) if epsilon >= place else known

    return dict.fromkeys(Direction, profile)


def _claimed_point(certificate: AnyCertificate, side: Side) -> tuple[float, float]:
    """The claimed (epsilon, delta) of one side; (0, 0) where there is no lower bound."""
    bounds = certificate.bounds
    end = bounds.upper if side is Side.UPPER else bounds.lower
    if end is None:
        return 0.0, 0.0
    if isinstance(certificate.epsilon, Interval):
        assert not isinstance(certificate.delta, Interval)
        return end, certificate.delta
    return certificate.epsilon, end


def _claimed_answers(certificate: AnyCertificate, question: Question) -> dict[Side, float]:
    """What the Monte Carlo ends of a certificate say about the question, for this run alone."""
    answers: dict[Side, float] = {}
    of_epsilon = isinstance(certificate.epsilon, Interval)
    epsilon, delta = _claimed_point(certificate, Side.UPPER)
    if _samples(certificate.method.upper):
        if question.delta is not None and delta <= question.delta:
            answers[Side.UPPER] = epsilon
        if question.epsilon is not None and epsilon <= question.epsilon:
            answers[Side.UPPER] = delta
    epsilon, delta = _claimed_point(certificate, Side.LOWER)
    if _samples(certificate.method.lower):
        # A bound on epsilon says that delta is exceeded below it; one on delta that it is reached there.
        if question.delta is not None and (delta >= question.delta if of_epsilon else delta > question.delta):
            answers[Side.LOWER] = epsilon
        if question.epsilon is not None and (question.epsilon < epsilon if of_epsilon else question.epsilon <= epsilon):
            answers[Side.LOWER] = delta
    return answers


def _samples(name: str | None) -> bool:
    return name is not None and name not in RETIRED and accountant(name).kind is Kind.MONTE_CARLO


def _lower_law(by: Accountant | None, pair: DominatingPair, settings: Settings) -> tuple[Law | None, str | None]:
    """The lower law of this accountant, or else of a cheap one, and whose it is."""
    named = [] if by is None else [by]
    others = [other for other in ACCOUNTANTS.values() if other.assumes is None and other not in named and other.laws]
    for method in named + others:
        if method.analyses_some(pair) and (method in named or method.seconds(pair) <= CHEAP):
            laws = method.laws_of(pair, Side.LOWER, settings)
            if laws:
                return _best(laws, Side.LOWER, settings.resolution.smallest_delta), method.name
    return None, None


def _best(laws: Sequence[Law], side: Side, delta: float) -> Law:
    """The tightest of several laws at this delta, by its larger direction."""
    if len(laws) == 1:
        return laws[0]

    def epsilon(law: Law) -> float:
        at: list[Callable[[float], float]] = [partial(law_delta, law, direction=direction) for direction in Direction]
        return max(smallest_epsilon(profile, delta, side, tolerance=1e-4) for profile in at)

    return (min if side is Side.UPPER else max)(laws, key=epsilon)
