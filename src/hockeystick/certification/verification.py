"""verify: does a certificate follow from what it says?"""

from collections.abc import Mapping

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.monte_carlo import as_claimed
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Bound, Question
from hockeystick.certificate import Certificate, Interval
from hockeystick.certification.issue import certificate_of, prepared
from hockeystick.certification.schedule import Outcome
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, UnsupportedError, VerificationError, shortened
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Executor, Ledger
from hockeystick.settings import DEFAULT_EFFORT, Settings
from hockeystick.types import Side

DEFAULT_BUDGET = 600.0
"""Seconds that the verification of a stranger's certificate may take unless said otherwise."""
NOT_RECOMPUTED = ("hockeystick_version", "cut_off")
"""What a certificate says about how it was made; its claim does not rest on it, and nobody can recompute it."""


def verify(
    certificate: Certificate,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> Certificate:
    """Recompute a certificate's bounds from its mechanism, and compare.

    The claim is tested at the claimed numbers, without any tolerance. Monte Carlo bounds are derived again from the
    stored ``evidence``, some chunks of which are drawn again from their seeds; without evidence all of them are drawn
    again, by ``executor``. ``hockeystick_version`` and ``cut_off`` tell how the certificate was made and are not
    recomputed.

    Args:
        deadline: progress, and the seconds allowed; ten minutes unless said otherwise.

    Returns the certificate, for chaining.
    Raises: VerificationError, naming what does not follow, when a recomputed bound does not confirm a claimed one, or
        any other field differs; BudgetExceededError when the deadline passes before the verdict.
    """
    if certificate.digest != certificate.content_digest():
        raise VerificationError("The certificate was altered: its digest does not match its content.")
    deadline = deadline or Deadline(DEFAULT_BUDGET)
    pair = _pair_of(certificate, deadline)
    question = Question(
        delta=None if isinstance(certificate.delta, Interval) else certificate.delta,
        epsilon=None if isinstance(certificate.epsilon, Interval) else certificate.epsilon,
    )
    accuracy = certificate.accuracy
    resolution = Resolution(accuracy.nodes_per_unit, accuracy.smallest_delta)
    settings = Settings(resolution, deadline, question, effort=accuracy.effort or DEFAULT_EFFORT)
    accountants: Mapping[str, Accountant] = ACCOUNTANTS
    if certificate.monte_carlo is not None:
        sampled, settings = as_claimed(pair, settings, certificate.monte_carlo, evidence, executor)
        accountants = {**ACCOUNTANTS, sampled.name: sampled}
    claimed = certificate.bounds
    outcomes = [_confirmed(certificate.method.upper, accountants, pair, Side.UPPER, settings, claimed.upper)]
    if (certificate.method.lower is None) != (claimed.lower is None):
        raise VerificationError("The 'method.lower' field must name a method exactly where there is a lower bound.")
    if certificate.method.lower is not None and claimed.lower is not None:
        outcomes.append(_confirmed(certificate.method.lower, accountants, pair, Side.LOWER, settings, claimed.lower))
    again = certificate_of(certificate.mechanism, pair, question, outcomes, settings)
    same = {"epsilon", "delta", "digest", "accuracy", "mechanism", "format", "method", *NOT_RECOMPUTED}
    for name in type(certificate).model_fields.keys() - same:
        if getattr(again, name) != getattr(certificate, name):
            claims, found = (shortened(one.model_dump(mode="json")[name]) for one in (certificate, again))
            raise VerificationError(f"The {name!r} field claims {claims}, but recomputed it is {found}.")
    return certificate


def _pair_of(certificate: Certificate, deadline: Deadline) -> DominatingPair:
    try:
        if prepared(certificate.mechanism, deadline) != certificate.mechanism:
            raise VerificationError("The 'mechanism.strategy' field does not say the digest of the file that it names.")
        _check_optimum(certificate)
        return dominating_pair(certificate.mechanism)
    except (InvalidInputError, UnsupportedError) as error:
        raise VerificationError(str(error)) from None
    except MemoryError:
        raise VerificationError("The certificate needs more memory than there is.") from None


def _check_optimum(certificate: Certificate) -> None:
    """The bounds are about one matrix, so an optimiser has to find it again to the last digit."""
    mechanism, digest = certificate.mechanism, certificate.strategy_digest
    if digest is not None and mechanism.strategy.optimised and mechanism.matrix.digest != digest:
        raise VerificationError(
            f"The 'strategy_digest' field is of another matrix than the one that the optimiser of "
            f"{mechanism.strategy.kind!r} finds on this machine; verify it where it was issued, or have it issued for "
            f"the matrix itself, as a 'custom' strategy."
        )


def _confirmed(
    name: str,
    accountants: Mapping[str, Accountant],
    pair: DominatingPair,
    side: Side,
    settings: Settings,
    claimed: float,
) -> Outcome:
    """The claimed number as an outcome, if the bound that it rests on confirms it; no other method may stand in."""
    if name not in accountants:
        raise VerificationError(f"The 'method.{side.value}' field names a method that is not known: {name!r}.")
    one, question = accountants[name], settings.question
    assert question is not None
    if one.kind not in settings.kinds:
        raise VerificationError(f"The 'monte_carlo' field is missing, which the method {name!r} needs.")
    reason = one.why_not(pair, side)
    if reason is None:
        try:
            bound = one.bound(pair, side, settings)
            if _holds(bound, question, claimed):
                return Outcome(name, side, one.kind, settings.confidence(one.kind), claimed, 0.0, "ok", bound.claim)
            what = f"'{'epsilon' if question.delta is not None else 'delta'}.{side.value}'"
            found = question.answer(bound, near=claimed)
            raise VerificationError(f"The {what} field claims {claimed!r}, but the recomputed bound is {found!r}.")
        except BudgetExceededError:
            raise BudgetExceededError(
                "The time budget is over before the certificate is recomputed; allow more seconds."
            ) from None
        except UnsupportedError as error:
            reason = str(error)
        except MemoryError:
            reason = "it needs more memory than there is"
    raise VerificationError(
        f"The 'method.{side.value}' field names {name!r}, which gives no {side.value} bound here: {reason}."
    )


def _holds(bound: Bound, question: Question, claimed: float) -> bool:
    """Whether the bound proves the claimed number, which is read as it stands."""
    upper = bound.side is Side.UPPER
    if question.epsilon is not None:
        found = bound.delta(question.epsilon)
        return found <= claimed if upper else found >= claimed
    assert question.delta is not None
    if upper:
        return bound.delta(min(claimed, MAX_EPSILON)) <= question.delta
    return claimed <= 0.0 or (claimed <= MAX_EPSILON and bound.delta(claimed) > question.delta)
