"""What a report shows beside a certificate's claim: computed again from its mechanism, as far as the budget goes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log

from hockeystick.calibration.search import EVALUATIONS, calibrate_and_certify
from hockeystick.certificate import Certificate
from hockeystick.certification.issue import PORTABLE, compare
from hockeystick.certification.schedule import Outcome, best
from hockeystick.certification.verification import verify
from hockeystick.curve import Curve, curve
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError
from hockeystick.types import Kind, Side

BUDGET = 60.0
TARGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
REACH = 5.0
"""Noise multipliers are found for those targets that are within this factor of the certificate's epsilon."""
SHARE = 0.5
"""Of the time that is left, for the curves, and of what is left then, for the methods."""


@dataclass(frozen=True)
class Recomputed:
    """What was computed again from a certificate's mechanism.

    Attributes:
        verified: whether the claim was derived again; one that does not follow raises an error instead.
        curve: deterministic bounds on the profile, and what follows from them; None where they were left out.
        outcomes: what every accountant that applies says of epsilon at the certificate's delta.
        noise: certified noise multipliers by epsilon, at the same delta.
        method: the accountant that certified them; None where there are none.
        left_out: what was not computed, and why: a sentence each.
    """

    verified: bool
    curve: Curve | None
    outcomes: tuple[Outcome, ...]
    noise: dict[float, float]
    method: str | None
    left_out: tuple[str, ...]


def recomputed(certificate: Certificate, *, budget: float = BUDGET, deadline: Deadline | None = None) -> Recomputed:
    """Verify a certificate, and compute its curves, the methods side by side and the noise for other epsilons.

    Args:
        certificate: of the present format.
        budget: seconds, for everything together.
        deadline: progress and deadline of the caller, in place of the budget's.

    Raises: VerificationError when the claim does not follow; what :func:`hockeystick.profile` raises.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> found = recomputed(hs.certify(run, delta=1e-5))
    >>> found.verified, round(found.noise[1.0], 2), found.method, found.left_out
    (True, 3.73, 'gaussian', ())
    """
    deadline = Deadline(budget) if deadline is None else deadline
    epsilon, delta = certificate.question.claimed(certificate.bounds.upper)
    verified, left_out = _verified(certificate, deadline)
    if not 1e-30 <= delta < 1.0:
        said = f"There are no curves and no other methods, as the claim is about delta = {delta:g}."
        return Recomputed(verified, None, (), {}, None, (*left_out, said))
    found = None
    try:
        share = deadline.part(SHARE)
        found = curve(certificate.mechanism, delta=delta, budget=budget, deadline=share)
    except BudgetExceededError:
        left_out += ("There was no time for the curves; a larger --budget draws them.",)
    share = deadline.part(SHARE)
    outcomes = [_issued(one) for one in compare(certificate.mechanism, delta=delta, budget=budget, deadline=share)]
    method = _method(certificate, outcomes)
    targets = sorted((one for one in TARGETS if epsilon / REACH <= one <= epsilon * REACH), key=partial(_far, epsilon))
    noise: dict[float, float] = {}
    if method is not None:
        seconds = EVALUATIONS * method.seconds
        for one in targets:
            sigma = _noise(certificate, one, delta, method, seconds, deadline)
            if sigma is not None:
                noise[one] = sigma
    missing = [one for one in sorted(targets) if one not in noise]
    if missing:
        named = ", ".join(f"{one:g}" for one in missing)
        left_out += (f"There was no time for noise multipliers at epsilon {named}; a larger --budget finds them.",)
    name = method.method if method is not None and noise else None
    return Recomputed(verified, found, tuple(outcomes), dict(sorted(noise.items())), name, left_out)


def _far(epsilon: float, target: float) -> float:
    """How far a target is from the certificate's epsilon, which is above 0 where there are targets."""
    return abs(log(target / epsilon))


def _verified(certificate: Certificate, deadline: Deadline) -> tuple[bool, tuple[str, ...]]:
    if certificate.monte_carlo is not None:
        return False, ("The claim rests on samples and was not verified here; 'hockeystick verify' verifies it.",)
    try:
        verify(certificate, deadline=deadline)
    except BudgetExceededError:
        return False, ("There was no time to verify the claim; 'hockeystick verify' verifies it.",)
    return True, ()


def _issued(outcome: Outcome) -> Outcome:
    """The outcome moved to its loose side, as it is when a certificate is issued."""
    if outcome.value is None:
        return outcome
    return replace(outcome, value=outcome.value * (1.0 + (PORTABLE if outcome.side is Side.UPPER else -PORTABLE)))


def _method(certificate: Certificate, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The accountant to find noise with: the certificate's own, where it is one of the outcomes, or the best one."""
    usable = [
        one for one in outcomes if one.side is Side.UPPER and one.kind is Kind.DETERMINISTIC and one.value is not None
    ]
    return next((one for one in usable if one.method == certificate.method.upper), best(usable, Side.UPPER))


def _noise(
    certificate: Certificate, epsilon: float, delta: float, method: Outcome, seconds: float, deadline: Deadline
) -> float | None:
    """The smallest certified noise multiplier for a target; None where there is no time to search to the end."""
    if seconds > deadline.remaining():
        return None
    try:
        found = calibrate_and_certify(
            certificate.mechanism, epsilon=epsilon, delta=delta, method=method.method, deadline=deadline
        )
    except (BudgetExceededError, CannotCertifyError):
        return None
    return found.mechanism.sigma if deadline.remaining() > 0.0 else None
