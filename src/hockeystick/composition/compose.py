"""compose: one claim from the certificates of several runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from hockeystick.accountants.direct import by_contours, by_phases
from hockeystick.bounds import Bound, Profile, Question
from hockeystick.calls import called
from hockeystick.certificate import Accuracy, AnyCertificate, Certificate, CertificateOfFormat1, Interval
from hockeystick.certification.description import origin
from hockeystick.certification.issue import PORTABLE, certify_with
from hockeystick.certification.schedule import DELTA_NODES, EPSILON_NODES, planned
from hockeystick.composition.claims import check_comparable, reading, shared_facts, unit_of
from hockeystick.composition.composition import Composition, check_together
from hockeystick.composition.expected import ExpectedEpsilons
from hockeystick.composition.runs import RunBounds, run_bounds
from hockeystick.deadline import Deadline
from hockeystick.errors import CannotCertifyError, InvalidInputError, shortened
from hockeystick.laws.allocated_phases import AllocatedPhases, Allocation
from hockeystick.laws.contours import Profiles
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.poisson_moments import PoissonMoments
from hockeystick.laws.powers import composed_powers
from hockeystick.laws.product_moments import Part, ProductMoments, near_by_moments
from hockeystick.laws.profile import MAX_EPSILON, law_profiles
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan
from hockeystick.types import Adjacency, Direction, Kind, Side

FRESH = "Draw the batches and the noise of every run afresh, independently of all other runs."
FIXED = (
    "Fix the mechanisms of all runs before any of them has started; everything else in a run may depend on what "
    "earlier runs have released."
)
OWN = "Keep the requirements of the certificate of each run."
PARTS = "Let the part of an example be a matter of that example alone, decided before any run has started."
PARTS_OF_USERS = (
    "Let all examples of a user be in one part, which is a matter of that user alone, decided before any run has "
    "started."
)
PARTS_STAY = "Let whatever comes in the place of an example, or of a user's examples, be in the same part."
REFERENCE = "docs/theory/composition.md; Zhu, Dong and Wang 2022, Theorem 10; Doroshenko et al. 2022"
COARSE_NODES = 24
FEW_ORDERS = 30
"""Orders of the contours of a composition, each of which costs a line for every different step."""
FEW_MECHANISMS = 20
"""Up to so many different mechanisms, certificates issued for a composition are those of ``certify``, to the last bit.

Those of more have attack numbers from their claims alone, and searches begin where other noise has its epsilon.
"""
USUAL_DELTA = 1e-6
"""Where a mechanism without a certificate is certified when delta at an epsilon is asked for."""
Together = str | Sequence[Sequence[int]]


@called("hs.compose([first, second], delta=1e-5)")
def compose(
    runs: Sequence[AnyCertificate | Mechanism | Plan],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    data: Together = "same",
    budget: float | None = None,
    deadline: Deadline | None = None,
) -> Composition:
    """The epsilon of several runs together at ``delta``, or their delta at ``epsilon``, from both sides.

    Runs compose through laws of their likelihood ratios, both directions at once. A run without a law of its own
    enters with a law that dominates its upper profile; from below, what has no law is left out, and the best single
    run counts. Later runs may depend on what earlier ones released.

    Args:
        runs: certificates, or mechanisms and plans with their noise multipliers, which are certified first.
        delta, epsilon: exactly one of them.
        data: "same" if one example may take part in all runs; "disjoint" if every run has a part of the data of its
            own; else the sets of runs, by their numbers from 1 on, such that an example takes part in the runs of one
            set at most. Where the unit is a user, all examples of one user together do.
        budget: seconds; None for no deadline.
        deadline: progress and deadline of the caller, in place of the budget's.

    Which side it errs on: the upper end upward, the lower end downward (docs/theory/composition.md). With Monte Carlo
    certificates it fails with at most the sum of their failure probabilities, and their claimed numbers are used as
    they stand; verify recomputes these too.

    Raises: InvalidInputError when there is no run, or certificates are about different neighbours or units;
        VerificationError for an altered certificate; BudgetExceededError; CannotCertifyError when no finite bound
        exists.

    >>> import hockeystick as hs
    >>> first = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> second = hs.Mechanism(sampler=hs.BallsInBins(bins=100, epochs=2), noise_multiplier=2.0)
    >>> both = hs.compose([first, second], delta=1e-5)
    >>> 0.759 < both.epsilon.lower < both.epsilon.upper < 0.761
    True
    """
    question = Question(delta=delta, epsilon=epsilon)
    _, deadline = planned(None, budget, deadline)
    certificates = as_certificates(runs, question, deadline)
    together = _sets(data, len(certificates))
    check_comparable(certificates)
    distinct = list({certificate.digest: certificate for certificate in certificates}.values())
    places = {certificate.digest: place for place, certificate in enumerate(distinct)}
    used = tuple(places[certificate.digest] for certificate in certificates)
    accuracy = accuracy_for(question, lambda at: _answers(distinct, used, together, question, at, deadline).upper)
    answers = _answers(distinct, used, together, question, accuracy, deadline)
    return _claim(tuple(distinct), used, together, question, accuracy, answers)


def as_certificates(
    runs: Sequence[AnyCertificate | Mechanism | Plan], question: Question, deadline: Deadline
) -> tuple[AnyCertificate, ...]:
    """The certificates, those of mechanisms issued now; raises InvalidInputError for what is neither, or nothing."""
    if isinstance(runs, str | bytes | Mapping) or not isinstance(runs, Sequence) or not runs:
        raise InvalidInputError(
            f"The 'runs' argument must be a list of one or more certificates or mechanisms. Got {shortened(runs)} "
            f"instead."
        )
    described = [run.mechanism() if isinstance(run, Plan) else run for run in runs]
    certificates: list[AnyCertificate] = []
    issued: dict[Mechanism, AnyCertificate] = {}
    expected = ExpectedEpsilons()
    whole = len({run for run in described if isinstance(run, Mechanism)}) <= FEW_MECHANISMS
    for number, run in enumerate(described, start=1):
        if isinstance(run, Mechanism):
            if run not in issued:
                alone = Question(delta=question.delta or USUAL_DELTA)
                policy, deadline = planned(run, None, deadline)
                near = None if whole else expected.of(run)
                issued[run] = certify_with(run, alone, deadline, None, None, policy, whole=whole, near=near)
                expected.learn(run, issued[run].bounds.upper)
            certificates.append(issued[run])
        elif isinstance(run, Certificate | CertificateOfFormat1):
            certificates.append(run)
        else:
            raise InvalidInputError(
                f"Run {number} of the 'runs' argument must be a certificate or a mechanism. "
                f"Got {shortened(run)} instead{_instead_of(run)}."
            )
    return tuple(certificates)


def _instead_of(given: object) -> str:
    """Where laws compose, and what reads the file of a certificate, as the end of a message; nothing for the rest."""
    return "; docs/how-to/compose-runs.md composes laws" if isinstance(given, Law) else reading(given)


@dataclass(frozen=True)
class Answers:
    """The two ends for a question, not yet moved to the loose side, and what they rest on."""

    upper: float
    lower: float | None
    bounds: tuple[RunBounds, ...]


def accuracy_for(question: Question, delta_on: Callable[[Accuracy], float]) -> Accuracy:
    """Grids for a question; for delta at an epsilon a coarse look first finds out how small delta is."""
    if question.delta is not None:
        return Accuracy(nodes_per_unit=EPSILON_NODES, smallest_delta=question.delta)
    delta = delta_on(Accuracy(nodes_per_unit=COARSE_NODES, smallest_delta=1e-30))
    return Accuracy(nodes_per_unit=DELTA_NODES, smallest_delta=min(max(delta, 1e-30), 0.5))


def _answers(
    certificates: Sequence[AnyCertificate],
    runs: Sequence[int],
    together: Sequence[Sequence[int]],
    question: Question,
    accuracy: Accuracy,
    deadline: Deadline,
) -> Answers:
    nodes, smallest = accuracy.nodes_per_unit, accuracy.smallest_delta
    resolution = Resolution(nodes, smallest)
    singles = {runs[group[0] - 1] for group in together if len(group) == 1}
    each = tuple(
        run_bounds(certificate, question, nodes, smallest, deadline, single=place in singles)
        for place, certificate in enumerate(certificates)
    )
    upper, lowers = 0.0, [run.alone[Side.LOWER] for run in each if Side.LOWER in run.alone]
    for counts in {frozenset(Counter(runs[run - 1] for run in group).items()) for group in together}:
        parts = sorted(counts)
        used = [(each[place], count) for place, count in parts]
        transforms = _contours(used) or _phases(used, smallest)
        near = None if transforms is None else near_by_moments(transforms, smallest)
        slack = sum(bounds.slack * count for bounds, count in used)
        end = question.answer(_bound(used, slack, Side.UPPER, resolution, deadline, transforms), near)
        if sum(count for _, count in parts) == 1:
            end = min(end, each[parts[0][0]].alone.get(Side.UPPER, end))
        upper = max(upper, end)
        known = [(bounds, count) for bounds, count in used if bounds.make_lower is not None]
        if known:
            slack = sum(bounds.lower_slack * count for bounds, count in known)
            lowers.append(question.answer(_bound(known, slack, Side.LOWER, resolution, deadline, transforms), near))
    return Answers(upper, max(lowers, default=None), each)


def _contours(runs: Sequence[tuple[RunBounds, int]]) -> Profiles | None:
    """Contours for all steps of runs together, each with its number of copies, where all are Poisson steps."""
    parts: Counter[PoissonMoments] = Counter()
    for bounds, count in runs:
        if bounds.steps is None:
            return None
        parts[bounds.steps.moments] += bounds.steps.steps * count
    moments = ProductMoments([Part(*part) for part in parts.items()])
    return Profiles(moments, moments.steps, FEW_ORDERS)


def _phases(runs: Sequence[tuple[RunBounds, int]], smallest: float) -> AllocatedPhases | None:
    """All epochs of runs together, each with its number of copies, where all are epochs of one visit."""
    parts: Counter[Allocation] = Counter()
    for bounds, count in runs:
        if bounds.epochs is None:
            return None
        allocation, epochs = bounds.epochs
        parts[allocation] += epochs * count
    return AllocatedPhases(list(parts.items()), smallest)


def _bound(
    runs: Sequence[tuple[RunBounds, int]],
    slack: float,
    side: Side,
    resolution: Resolution,
    deadline: Deadline,
    transforms: Profiles | AllocatedPhases | None,
) -> Bound:
    """The bound of runs that compose, each with its number of copies, by transforms where there are some."""

    @cache
    def law() -> Law:
        laws = [(bounds.upper if side is Side.UPPER else bounds.lower, count) for bounds, count in runs]
        return composed_powers([(law, count) for law, count in laws if law is not None], resolution, deadline.tick)

    deadline.tick()
    profiles: Mapping[Direction, Profile]
    if transforms is None:
        profiles = law_profiles(law())
    elif isinstance(transforms, Profiles):
        profiles = by_contours(transforms, law, side, resolution.smallest_delta)
    else:
        profiles = by_phases(transforms, law, side, resolution.smallest_delta)
    return Bound(
        method="composition",
        side=side,
        kind=Kind.DETERMINISTIC,
        confidence=1.0,
        reference=REFERENCE,
        profiles=dict(profiles),
        slack=slack,
    )


def interval_of(upper: float, lower: float | None, question: Question, what: str) -> Interval:
    """Both ends moved to their loose sides; raises CannotCertifyError when the upper one is infinite."""
    if upper == float("inf"):
        raise CannotCertifyError(
            f"No epsilon of at most {MAX_EPSILON:g} is proved for {what}, and larger ones leave the range of doubles; "
            f"use more noise or a larger delta."
        )
    loosest = 1.0 if question.epsilon is not None else float("inf")
    above = min(upper * (1.0 + PORTABLE), loosest)
    return Interval(upper=above, lower=None if lower is None else min(lower * (1.0 - PORTABLE), above))


def _claim(
    certificates: tuple[AnyCertificate, ...],
    runs: tuple[int, ...],
    together: tuple[tuple[int, ...], ...],
    question: Question,
    accuracy: Accuracy,
    answers: Answers,
) -> Composition:
    interval = interval_of(answers.upper, answers.lower, question, "these runs together")
    one_set = len(together) == 1
    return Composition(
        certificates=certificates,
        runs=runs,
        together=together,
        methods=tuple(bounds.methods for bounds in answers.bounds),
        epsilon=interval if question.epsilon is None else question.epsilon,
        delta=interval if question.delta is None else question.delta,
        requirements=(OWN, FRESH, FIXED, *(() if one_set else _about_parts(certificates[0]))),
        origin=origin(accuracy, ()),
        **shared_facts(certificates),
    ).sealed()


def _about_parts(certificate: AnyCertificate) -> tuple[str, ...]:
    """What has to be true of the parts, for the unit and the neighbours that all certificates share."""
    parts = PARTS if unit_of(certificate) == "example" else PARTS_OF_USERS
    return (parts, PARTS_STAY) if certificate.adjacency is Adjacency.REPLACE else (parts,)


def recomputed(claim: Composition, deadline: Deadline) -> tuple[Composition, dict[Side, float | None]]:
    """What follows from the certificates and the relation that a claim names, at its accuracy, and its exact ends."""
    used = (claim.certificates, claim.runs, claim.together, claim.question, claim.accuracy)
    answers = _answers(*used, deadline)
    return _claim(*used, answers), {Side.UPPER: answers.upper, Side.LOWER: answers.lower}


def _sets(data: Together, runs: int) -> tuple[tuple[int, ...], ...]:
    """The sets of runs that one example may take part in."""
    if isinstance(data, str) and data == "same":
        return (tuple(range(1, runs + 1)),)
    if isinstance(data, str) and data == "disjoint":
        return tuple((run,) for run in range(1, runs + 1))
    if (
        isinstance(data, str)
        or not isinstance(data, Sequence)
        or not all(isinstance(group, Sequence) and all(type(run) is int for run in group) for group in data)
    ):
        raise InvalidInputError(
            f"The 'data' argument must be 'same', 'disjoint' or lists of numbers of runs. Got {shortened(data)} "
            f"instead."
        )
    together: tuple[tuple[int, ...], ...] = tuple(tuple(sorted(int(run) for run in group)) for group in data)
    check_together(together, runs)
    return together
