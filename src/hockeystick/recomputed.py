"""What a report shows beside a claim: computed again from its mechanisms, as far as the budget goes."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import log

from hockeystick.calibration.noise_search import EVALUATIONS
from hockeystick.calibration.search import calibrate_and_certify
from hockeystick.certificate import AnyCertificate, Interval
from hockeystick.certification.issue import PORTABLE, compare
from hockeystick.certification.schedule import Outcome, best
from hockeystick.composition.claims import DerivedClaim
from hockeystick.composition.composition import Composition
from hockeystick.composition.tuning import Tuning
from hockeystick.composition.verification import asked_at, check_derivation, verify
from hockeystick.curve import Curve, curve
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError, VerificationError
from hockeystick.samples import Ledger
from hockeystick.types import Kind, Side

BUDGET = 60.0
TARGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
REACH = 5.0
"""Noise multipliers are found for those targets that are within this factor of the certificate's epsilon."""
SHARE = 0.5
"""Share of the remaining time that the curves may take, and then the methods."""
STEPS = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3, 1e-4, 1e4)
"""A claim about several runs is asked at its delta times these, in this order."""
FEWEST, MOST = 1e-30, 0.5
"""The deltas at which it is asked."""


_NO_CURVES = "There are no curves: those of Gaussian noise go below the floor that the generator {} sets for delta."


@dataclass(frozen=True)
class Recomputed:
    """What was computed again from a certificate's mechanism.

    Attributes:
        unverified: why the claim was not derived again, as a sentence; None where it was. One that does not follow
            raises an error instead.
        curve: deterministic bounds on the profile, and what follows from them; None where they were left out.
        outcomes: what every accountant that applies says of epsilon at the certificate's delta.
        noise: certified noise multipliers by epsilon, at the same delta.
        method: the accountant that certified them; None where there are none.
        left_out: what was not computed, and why: a sentence each.
    """

    unverified: str | None
    curve: Curve | None
    outcomes: tuple[Outcome, ...]
    noise: dict[float, float]
    method: str | None
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class RecomputedTogether:
    """What was computed again from a composition or a tuning claim.

    Attributes:
        unverified, left_out: as for one certificate.
        epsilons: bounds on epsilon by delta, the claim's own included.
    """

    unverified: str | None
    epsilons: dict[float, Interval]
    left_out: tuple[str, ...]


def recomputed(
    certificate: AnyCertificate,
    *,
    budget: float = BUDGET,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
) -> Recomputed:
    """Verify a certificate, and compute its curves, the methods side by side and the noise for other epsilons.

    Args:
        budget: seconds, for everything together.
        deadline: progress and deadline of the caller, in place of the budget's.
        evidence: from which Monte Carlo bounds are derived again; without it they are only held against the
            deterministic bounds.

    Raises: VerificationError when the claim does not follow, or contradicts a lower bound; what
        :func:`hockeystick.profile` raises.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> report = recomputed(hs.certify(run, delta=1e-5))
    >>> report.unverified, round(report.noise[1.0], 2), report.method, report.left_out
    (None, 3.73, 'gaussian', ())
    """
    deadline = Deadline(budget) if deadline is None else deadline
    epsilon, delta = certificate.question.claimed(certificate.bounds.upper)
    unverified = _unverified(certificate, [certificate], deadline, evidence)
    if not 1e-30 <= delta < 1.0:
        said = f"There are no curves and no other methods, as the claim is about delta = {delta:g}."
        return Recomputed(unverified, None, (), {}, None, (said,))
    whole_curve, left_out = None, []
    try:
        share = deadline.part(SHARE)
        if certificate.generator is None:
            whole_curve = curve(certificate.mechanism, delta=delta, budget=budget, deadline=share)
        else:
            left_out.append(_NO_CURVES.format(certificate.generator.name))
    except BudgetExceededError:
        left_out.append("There was no time for the curves; a larger --budget draws them.")
    share = deadline.part(SHARE)
    outcomes = [
        _issued(outcome) for outcome in compare(certificate.mechanism, delta=delta, budget=budget, deadline=share)
    ]
    least = best(outcomes, Side.LOWER)
    if least is not None and least.value is not None and least.value > epsilon:
        raise VerificationError(
            f"The certificate claims epsilon = {epsilon!r} at delta = {delta!r}, but epsilon is at least "
            f"{least.value!r} there, by the method {least.method!r}."
        )
    method = _method(certificate, outcomes)
    targets = sorted(
        (target for target in TARGETS if epsilon / REACH <= target <= epsilon * REACH), key=partial(_far, epsilon)
    )
    noise: dict[float, float] = {}
    if method is not None:
        seconds = EVALUATIONS * method.seconds
        for target in targets:
            sigma = _noise(certificate, target, delta, method, seconds, deadline)
            if sigma is not None:
                noise[target] = sigma
    missing = [target for target in targets if target not in noise]
    if missing:
        left_out.append(_missing("noise multipliers at epsilon", missing))
    name = method.method if method is not None and noise else None
    return Recomputed(unverified, whole_curve, tuple(outcomes), dict(sorted(noise.items())), name, tuple(left_out))


def recomputed_together(
    claim: Composition | Tuning, *, deadline: Deadline, evidence: Ledger | None = None
) -> RecomputedTogether:
    """Verify a claim that follows from several certificates, and each of them, and ask it at other deltas.

    Without evidence the sampled certificates are taken as they stand, and only what follows from them is checked.

    Raises: VerificationError when the claim does not follow; CannotCertifyError.
    """
    epsilon, delta = claim.question.claimed(claim.bounds.upper)
    unverified = _unverified(claim, claim.certificates, deadline, evidence)
    epsilons = {delta: claim.epsilon if isinstance(claim.epsilon, Interval) else Interval(upper=epsilon, lower=None)}
    asked = [delta * step for step in STEPS if FEWEST <= delta * step <= MOST]
    for other in asked:
        try:
            interval = asked_at(claim, other, deadline).epsilon
        except BudgetExceededError:
            break
        except CannotCertifyError:
            continue
        assert isinstance(interval, Interval)
        epsilons[other] = interval
    missing = [other for other in asked if other not in epsilons]
    left_out = (_missing("bounds at delta", missing),) if missing else ()
    return RecomputedTogether(unverified, dict(sorted(epsilons.items())), left_out)


def _missing(what: str, places: Iterable[float]) -> str:
    named = ", ".join(f"{place:g}" for place in sorted(places))
    return f"There was no time for {what} {named}; a larger --budget finds them."


def _far(epsilon: float, target: float) -> float:
    """How far a target is from the certificate's epsilon, which is above 0 where there are targets."""
    return abs(log(target / epsilon))


def _unverified(
    claim: AnyCertificate | Composition | Tuning,
    certificates: Sequence[AnyCertificate],
    deadline: Deadline,
    evidence: Ledger | None,
) -> str | None:
    """Why a claim was not derived again; None where it was."""
    samples = sum(
        certificate.monte_carlo.samples for certificate in certificates if certificate.monte_carlo is not None
    )
    if samples and evidence is None:
        if isinstance(claim, DerivedClaim):
            with suppress(BudgetExceededError):
                check_derivation(claim, deadline)
        return (
            f"Not verified here: the claim rests on {samples} random samples. The option --evidence derives it again "
            f"from their file; 'hockeystick verify' draws them again."
        )
    try:
        verify(claim, deadline=deadline, evidence=evidence)
    except BudgetExceededError:
        return "Not verified here, because there was no time: give a larger --budget, or run 'hockeystick verify'."
    return None


def _issued(outcome: Outcome) -> Outcome:
    """The outcome moved to its loose side, as it is when a certificate is issued."""
    if outcome.value is None:
        return outcome
    return replace(outcome, value=outcome.value * (1.0 + (PORTABLE if outcome.side is Side.UPPER else -PORTABLE)))


def _method(certificate: AnyCertificate, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The accountant to find noise with: the certificate's own, where it is one of the outcomes, or the best one."""
    usable = [
        outcome
        for outcome in outcomes
        if outcome.side is Side.UPPER and outcome.kind is Kind.DETERMINISTIC and outcome.value is not None
    ]
    return next((outcome for outcome in usable if outcome.method == certificate.method.upper), best(usable, Side.UPPER))


def _noise(
    certificate: AnyCertificate, epsilon: float, delta: float, method: Outcome, seconds: float, deadline: Deadline
) -> float | None:
    """The smallest certified noise multiplier for a target; None where there is no time to search to the end."""
    if seconds > deadline.remaining():
        return None
    try:
        calibrated = calibrate_and_certify(
            certificate.mechanism,
            epsilon=epsilon,
            delta=delta,
            method=method.method,
            deadline=Deadline(deadline.remaining(), deadline.on_tick),  # whose reports are of another target
            generator=None if certificate.generator is None else certificate.generator.name,
        )
    except (BudgetExceededError, CannotCertifyError):
        return None
    return calibrated.mechanism.sigma if deadline.remaining() > 0.0 else None
