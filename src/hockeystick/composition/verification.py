"""verify: do a certificate, or a claim that follows from several, follow from what they say?"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from hockeystick.accountants.retired import RETIRED
from hockeystick.bounds import Question
from hockeystick.calls import called
from hockeystick.certificate import CertificateBase, Interval
from hockeystick.certification.confirmation import StandIn
from hockeystick.certification.verification import DEFAULT_BUDGET
from hockeystick.certification.verification import stand_ins as stand_ins_of
from hockeystick.composition.claims import DerivedClaim, check_comparable, reading
from hockeystick.composition.compose import accuracy_for
from hockeystick.composition.compose import recomputed as recomputed_composition
from hockeystick.composition.composition import Composition
from hockeystick.composition.runs import RunMethods
from hockeystick.composition.tuning import Tuning
from hockeystick.composition.tuning import recomputed as recomputed_tuning
from hockeystick.deadline import Deadline
from hockeystick.errors import (
    BudgetExceededError,
    CannotCertifyError,
    HockeystickError,
    InvalidInputError,
    VerificationError,
    shortened,
)
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.samples import Executor, Ledger
from hockeystick.spec import expect_kind
from hockeystick.types import Side

C = TypeVar("C", bound=CertificateBase | Composition | Tuning)
NUMBERS = {"epsilon", "delta", "digest", "format", "origin"}
"""Fields that are compared on their own, or tell how the claim was made and written."""


@called("hs.verify(certificate)")
def verify(
    claim: C,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> C:
    """Recompute a certificate, or a claim that follows from several and every certificate in it, and compare.

    The claimed numbers are tested as they stand, without any tolerance. Monte Carlo bounds are derived again from the
    stored ``evidence``, or from samples that are drawn again by ``executor``. ``origin`` tells how
    a claim was made and is not recomputed. Where a certificate names a retired method, any deterministic one that
    proves as much stands in for it.

    Args:
        deadline: progress, and the seconds allowed; ten minutes unless said otherwise.

    Returns the claim, for chaining.

    Raises: InvalidInputError for what is no claim; VerificationError, naming what does not follow, when a recomputed
        bound does not confirm a claimed one, or any other field differs; BudgetExceededError when the deadline
        passes before the verdict.
    """
    stand_ins(claim, deadline=deadline, evidence=evidence, executor=executor)
    return claim


def stand_ins(
    claim: CertificateBase | Composition | Tuning,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> tuple[StandIn, ...]:
    """As :func:`verify`, but returns the methods that stood in for retired ones."""
    if not isinstance(claim, CertificateBase | DerivedClaim):
        raise InvalidInputError(
            f"The 'claim' argument must be a certificate, a composition or a tuning claim. "
            f"Got {shortened(claim)} instead{reading(claim)}."
        )
    expect_kind("deadline", deadline, Deadline, "a Deadline, such as hs.Deadline(60.0)")
    deadline = deadline or Deadline(DEFAULT_BUDGET)
    if isinstance(claim, CertificateBase):
        return stand_ins_of(claim, deadline=deadline, evidence=evidence, executor=executor)
    claim.check_digests()
    substitutes: list[StandIn] = []
    for place, certificate in enumerate(claim.certificates):
        try:
            substitutes += stand_ins_of(certificate, deadline=deadline, evidence=evidence, executor=executor)
        except VerificationError as error:
            raise VerificationError(f"The 'certificates.{place}' field does not verify: {error}") from None
    check_derivation(claim, deadline)
    return tuple(substitutes)


def check_derivation(claim: Composition | Tuning, deadline: Deadline) -> None:
    """Raises VerificationError unless a claim follows from its certificates as they stand; these are not verified."""
    compare(claim, *_again(claim, deadline))


def _again(claim: Composition | Tuning, deadline: Deadline) -> tuple[DerivedClaim, Mapping[Side, float | None]]:
    try:
        check_comparable(claim.certificates)
        if isinstance(claim, Tuning):
            return recomputed_tuning(claim, deadline)
        return recomputed_composition(claim, deadline)
    except (BudgetExceededError, VerificationError):
        raise
    except CannotCertifyError:
        raise VerificationError("The claim has a finite upper bound, but recomputed there is none.") from None
    except HockeystickError as error:
        raise VerificationError(str(error)) from None


def asked_at(claim: Composition | Tuning, delta: float, deadline: Deadline) -> Composition | Tuning:
    """What follows for another delta from the certificates that a claim embeds, as the claim was derived.

    Raises: CannotCertifyError when no finite bound exists there; BudgetExceededError.
    """
    asked = {
        "delta": delta,
        "epsilon": Interval(upper=0.0, lower=None),  # says what is asked for
        "origin": claim.origin.model_copy(update={"accuracy": accuracy_for(Question(delta=delta), lambda at: delta)}),
    }
    other = claim.model_copy(update=asked)
    if isinstance(other, Tuning):
        return recomputed_tuning(other, deadline)[0]
    return recomputed_composition(other, deadline)[0]


def compare(claim: DerivedClaim, again: DerivedClaim, ends: Mapping[Side, float | None]) -> None:
    """Raises VerificationError unless what was recomputed confirms a claim.

    Args:
        again: the claim that was recomputed.
        ends: its two ends, before they were moved to their loose sides.
    """
    above, below = ends[Side.UPPER], ends[Side.LOWER]
    claimed = claim.bounds
    for side, value, confirmed in (
        (Side.UPPER, claimed.upper, above is not None and above <= claimed.upper),
        (Side.LOWER, claimed.lower, claimed.lower is None or (below is not None and claimed.lower <= below)),
    ):
        if not confirmed:
            what = "epsilon" if claim.question.delta is not None else "delta"
            raise VerificationError(
                f"The '{what}.{side.value}' field claims {value!r}, but the recomputed bound is {ends[side]!r}."
            )
    for name in type(claim).model_fields.keys() - NUMBERS:
        claims, now = getattr(claim, name), getattr(again, name)
        if claims != now and not (name == "methods" and _only_retired_differ(claims, now)):
            claims, now = (shortened(derived.model_dump(mode="json")[name]) for derived in (claim, again))
            raise VerificationError(f"The {name!r} field claims {claims}, but recomputed it is {now}.")


def _only_retired_differ(claimed: Sequence[RunMethods], now: Sequence[RunMethods]) -> bool:
    """Whether the runs entered by the same methods, but for those that named a retired one, for which others stand."""
    return len(claimed) == len(now) and all(
        before == after or not RETIRED.keys().isdisjoint((*before.upper, before.lower))
        for before, after in zip(claimed, now, strict=True)
    )
