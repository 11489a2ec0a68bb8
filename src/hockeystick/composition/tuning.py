"""tuning: the privacy of releasing the best of several trials, each with the same certificate."""

from typing import ClassVar, Literal

from hockeystick.bounds import Bound, Profile, Question
from hockeystick.calls import called
from hockeystick.certificate import Accuracy, AnyCertificate, Certificate, CertificateOfFormat1
from hockeystick.certification.description import origin
from hockeystick.certification.schedule import planned
from hockeystick.composition.claims import DerivedClaim, check_comparable, reading, shared_facts
from hockeystick.composition.compose import FRESH, OWN, accuracy_for, as_certificates, interval_of
from hockeystick.composition.composition import described
from hockeystick.composition.runs import RunMethods, run_bounds
from hockeystick.composition.selection import best_of
from hockeystick.composition.trials import FixedTrials, NegativeBinomialTrials, PoissonTrials, Trials, trials_of
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.operations import power
from hockeystick.laws.profile import law_delta, law_profiles
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan
from hockeystick.types import Direction, Kind, Side

ALONE = "Release the output of the best trial alone: not the other trials, not their scores, not how many there were."
SCORES = (
    "Compute the score of a trial from what its run releases and from data that contains no protected person, and "
    "choose at random among equal scores."
)
SETTINGS = (
    "Draw the settings of every trial (learning rate, model, ...) independently from one distribution that is fixed "
    "beforehand, and run the certified mechanism with each."
)
SCORES_BEFORE = (
    "Compute the score of a trial from what its run releases and from data of nobody that the claim protects, and "
    "choose at random among equal scores."
)
"""The same requirement in the words of early versions, whose claims still verify."""
REFERENCE = "docs/theory/composition.md; Papernot and Steinke 2022; Liu and Talwar 2019"


class Tuning(DerivedClaim):
    """A certified (epsilon, delta) for the best of several trials.

    Attributes:
        certificates: one, of each single trial.
        trials: the law of the number of trials.
        methods: how the certificate entered.
    """

    what: ClassVar[str] = "tuning claim"

    format: Literal["hockeystick-tuning/2", "hockeystick-tuning/1"] = "hockeystick-tuning/2"
    trials: Trials
    methods: tuple[RunMethods, ...]

    @property
    def subject(self) -> str:
        """What is private, and the verb."""
        return f"The best of {self.trials} is"

    @property
    def about(self) -> str:
        """What is released."""
        return f"the best of {self.trials}"

    def __str__(self) -> str:
        methods = self.methods[0]
        lines = [
            *self.headline(),
            f"  released          {self.about}",
            f"  each trial        {described(self.certificates[0].mechanism)}",
            f"  method            private selection, from the {methods.route.value} of one trial by "
            f"{', '.join(methods.upper)}",
        ]
        return "\n".join(lines + self.foundations())


@called("hs.tuning(certificate, trials=10, delta=1e-5)")
def tuning(
    trial: AnyCertificate | Mechanism | Plan,
    *,
    trials: float,
    distribution: str = "geometric",
    delta: float | None = None,
    epsilon: float | None = None,
    budget: float | None = None,
    deadline: Deadline | None = None,
) -> Tuning:
    """The epsilon at ``delta``, or the delta at ``epsilon``, of releasing the best of several trials of one mechanism.

    Args:
        trial: the certificate of each single trial, or its mechanism or plan.
        trials: the number of trials, or its mean where it is random.
        distribution: "fixed", "poisson", "geometric" (Liu and Talwar 2019) or "logarithmic" (Papernot and Steinke
            2022). The number has to be drawn, from ``claim.trials.draw``, without a look at the data.
        delta, epsilon: exactly one of them.
        budget, deadline: as for :func:`hockeystick.compose`.

    Which side it errs on: the upper end upward: one bound holds for every distribution, and for a fixed number the
    composition of all trials is another. The lower end is that of scores that are all equal. Proofs:
    docs/theory/composition.md.

    Raises: InvalidInputError for a bad number or name; VerificationError for an altered certificate;
        BudgetExceededError; CannotCertifyError when no finite bound exists.

    >>> import hockeystick as hs
    >>> trial = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=2.0)
    >>> claim = hs.tuning(trial, trials=10, delta=1e-6)
    >>> claim.trials.kind, claim.epsilon.lower < claim.epsilon.upper
    ('negative_binomial', True)
    """
    question, law = Question(delta=delta, epsilon=epsilon), trials_of(trials, distribution)
    _, deadline = planned(None, budget, deadline)
    if not isinstance(trial, Certificate | CertificateOfFormat1 | Mechanism | Plan):
        raise InvalidInputError(
            f"The 'trial' argument must be a certificate or a mechanism. "
            f"Got {shortened(trial)} instead{reading(trial)}."
        )
    certificates = as_certificates([trial], question, deadline)
    check_comparable(certificates)

    def upper(at: Accuracy) -> float:
        return _answers(certificates[0], law, question, at, deadline)[0]

    accuracy = accuracy_for(question, upper)
    return _claim(certificates, law, question, accuracy, _answers(certificates[0], law, question, accuracy, deadline))


def recomputed(claim: Tuning, deadline: Deadline) -> tuple[Tuning, dict[Side, float | None]]:
    """What follows from the certificate and the law of the trials that a claim names, and its exact ends."""
    if len(claim.certificates) != 1:
        raise InvalidInputError("The 'certificates' field must hold the one certificate of a trial.")
    question, accuracy = claim.question, claim.accuracy
    answers = _answers(claim.certificates[0], claim.trials, question, accuracy, deadline)
    again = _claim(claim.certificates, claim.trials, question, accuracy, answers)
    if claim.requirements == _requirements_before(claim.trials):
        again = again.model_copy(update={"requirements": claim.requirements})
    return again, {Side.UPPER: answers[0], Side.LOWER: answers[1]}


def _answers(
    certificate: AnyCertificate,
    trials: FixedTrials | PoissonTrials | NegativeBinomialTrials,
    question: Question,
    accuracy: Accuracy,
    deadline: Deadline,
) -> tuple[float, float | None, RunMethods]:
    """Both ends, and how the certificate entered."""
    nodes, smallest = accuracy.nodes_per_unit, accuracy.smallest_delta
    run = run_bounds(certificate, question, nodes, smallest, deadline, single=False)
    deadline.tick()
    chosen = best_of(run.upper, trials.mean, trials.survival)
    bounds = [_bound(Side.UPPER, chosen.profiles(), trials.mean * run.slack)]
    if isinstance(trials, FixedTrials):
        together = power(run.upper, trials.count, Resolution(nodes, smallest), tick=deadline.tick)
        bounds.append(_bound(Side.UPPER, law_profiles(together), trials.mean * run.slack))
    upper = min(question.answer(bound) for bound in bounds)
    some = 1.0 - trials.none
    lower = run.alone.get(Side.LOWER) if trials.none == 0.0 else None
    if run.lower is not None:
        end = question.answer(_bound(Side.LOWER, _scaled(run.lower, some), trials.mean * run.lower_slack))
        lower = end if lower is None else max(lower, end)
    return upper, lower, run.methods


def _scaled(law: Law, factor: float) -> dict[Direction, Profile]:
    def scaled(direction: Direction) -> Profile:
        return lambda epsilon: factor * law_delta(law, epsilon, direction)

    return {direction: scaled(direction) for direction in Direction}


def _bound(side: Side, profiles: dict[Direction, Profile], slack: float) -> Bound:
    return Bound(
        method="tuning",
        side=side,
        kind=Kind.DETERMINISTIC,
        confidence=1.0,
        reference=REFERENCE,
        profiles=profiles,
        slack=slack,
    )


def _claim(
    certificates: tuple[AnyCertificate, ...],
    trials: FixedTrials | PoissonTrials | NegativeBinomialTrials,
    question: Question,
    accuracy: Accuracy,
    answers: tuple[float, float | None, RunMethods],
) -> Tuning:
    upper, lower, methods = answers
    interval = interval_of(upper, lower, question, "the best of these trials")
    return Tuning(
        certificates=certificates,
        trials=trials,
        methods=(methods,),
        epsilon=interval if question.epsilon is None else question.epsilon,
        delta=interval if question.delta is None else question.delta,
        requirements=_requirements(trials),
        origin=origin(accuracy, ()),
        **shared_facts(certificates),
    ).sealed()


def _requirements(trials: FixedTrials | PoissonTrials | NegativeBinomialTrials) -> tuple[str, ...]:
    if isinstance(trials, FixedTrials):
        return (OWN, FRESH, ALONE, SCORES, SETTINGS)
    drawn = f"Before the search starts, draw the number of trials from {trials.law}, and keep it secret."
    return (OWN, FRESH, ALONE, drawn, SCORES, SETTINGS)


def _requirements_before(trials: FixedTrials | PoissonTrials | NegativeBinomialTrials) -> tuple[str, ...]:
    """The requirements in the words of early versions."""
    if isinstance(trials, FixedTrials):
        return (OWN, FRESH, ALONE, SCORES_BEFORE, SETTINGS)
    drawn = f"Draw the number of trials first, from {trials}, in secret."
    return (OWN, FRESH, ALONE, drawn, SCORES_BEFORE, SETTINGS)
