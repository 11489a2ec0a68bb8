"""verify: does a certificate follow from what it says?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from math import isclose
from typing import TypeVar

from pydantic_core import to_jsonable_python

from hockeystick.accountants.monte_carlo import as_claimed
from hockeystick.accountants.registry import every_accountant
from hockeystick.attacks.numbers import REGRET_ROUNDING, regret_of
from hockeystick.bounds import Bound, Profile
from hockeystick.certificate import FORMAT, FORMAT_2, NOT_RECOMPUTED, AttackNumbers, Certificate, CertificateBase
from hockeystick.certificate.base import FORMATS_WITHOUT_MATRICES
from hockeystick.certification.confirmation import NO_TIME, StandIn, confirmed
from hockeystick.certification.description import drawn_by, origin
from hockeystick.certification.issue import (
    PORTABLE,
    attack_numbers,
    attack_numbers_of,
    implied_bound,
    portable,
    prepared,
    stated,
    tighter,
    whole_profile,
)
from hockeystick.certification.schedule import Outcome
from hockeystick.deadline import Deadline
from hockeystick.errors import (
    BudgetExceededError,
    CannotCertifyError,
    InvalidInputError,
    UnsupportedError,
    VerificationError,
    shortened,
)
from hockeystick.laws.grid import Resolution
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Executor, Ledger
from hockeystick.settings import DEFAULT_EFFORT, Settings
from hockeystick.types import Side

DEFAULT_BUDGET = 600.0
"""Seconds that the verification of a stranger's certificate may take unless said otherwise."""
COMPUTED = ("generator", "without_amplification", "numbers", "sensitivity", "rates", "noise", "bits")
"""Numbers beside the bounds, which another machine may find with other last digits."""
ROUNDED = PORTABLE / 2.0
"""How far those may differ, relatively: less than upper bounds are moved by when they are issued, so they still are
upper bounds."""
C = TypeVar("C", bound=CertificateBase)


def verify(
    certificate: C,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> C:
    """Recompute a certificate's bounds from its mechanism, and compare.

    The claim is tested at the claimed numbers, without any tolerance. Monte Carlo bounds are derived again from the
    stored ``evidence``, some chunks of which are drawn again from their seeds; without evidence all of them are drawn
    again, by ``executor``. Every other field has to be what follows from these numbers and the mechanism, except for
    ``numbers``, which may be larger, as larger upper bounds are true too; ``statements``, which are the user's and only
    have to suit the mechanism; and ``origin``, which tells how the certificate was made.

    Where a certificate names a retired method, any deterministic one that proves the claim stands in for it.
    Certificates of formats 1 and 2 verify too; those about an optimised strategy do where the optimiser finds the same
    matrix, which they do not hold.

    Args:
        deadline: progress, and the seconds allowed; ten minutes unless said otherwise.

    Returns the certificate, for chaining.
    Raises: VerificationError, naming what does not follow, when a recomputed bound does not confirm a claimed one, or
        any other field differs; BudgetExceededError when the deadline passes before the verdict.
    """
    stand_ins(certificate, deadline=deadline, evidence=evidence, executor=executor)
    return certificate


def stand_ins(
    certificate: CertificateBase,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> tuple[StandIn, ...]:
    """As :func:`verify`, but returns the methods that stood in for retired ones."""
    pair, uppers, lower, settings = _recomputed(certificate, deadline, evidence, executor)
    upper = next(uppers)
    numbers = _checked_numbers(certificate, pair, upper, uppers, settings)
    method = certificate.method
    named = replace(upper, method=method.upper), lower and replace(lower, method=method.lower or lower.method)
    again = _restated(certificate, pair, named, numbers, settings)
    for name in _claims(certificate):
        claims, derived = (_plain(getattr(source, name)) for source in (certificate, again))
        if not _same(claims, derived, ROUNDED if name in COMPUTED else 0.0):
            raise VerificationError(
                f"The {name!r} field claims {shortened(claims)}, but recomputed it is {shortened(derived)}."
            )
    both = zip(named, (upper, lower), strict=True)
    return tuple(StandIn(by.side, end.method, by.method) for end, by in both if end and by and end.method != by.method)


def issued_again(
    certificate: CertificateBase,
    *,
    deadline: Deadline | None = None,
    evidence: Ledger | None = None,
    executor: Executor = in_this_process,
) -> Certificate:
    """The same interval as a certificate of the present format, for the matrix that is found here if it holds none.

    Its bounds are confirmed as by :func:`verify`; all that follows from them is derived anew. The statements are kept.

    Raises: as :func:`verify`, where the stated interval is not confirmed.
    """
    pair, uppers, lower, settings = _recomputed(certificate, deadline, evidence, executor, any_optimum=True)
    upper = next(uppers)
    numbers = attack_numbers_of(pair, certificate.question, upper, certificate.bounds.upper, settings)
    return _restated(certificate, pair, (upper, lower), numbers, settings, form=FORMAT)


def _recomputed(
    certificate: CertificateBase,
    deadline: Deadline | None,
    evidence: Ledger | None,
    executor: Executor,
    *,
    any_optimum: bool = False,
) -> tuple[DominatingPair, Iterator[Outcome], Outcome | None, Settings]:
    """The pair of a certificate, the two ends of its interval, confirmed, and the settings of the recomputation.

    The upper end comes as what each method that may confirm it says, of which there is one at least.

    Args:
        any_optimum: where it holds no matrix, take what the optimiser finds, whatever its digest.
    """
    if certificate.digest != certificate.content_digest():
        raise VerificationError("The certificate was altered: its digest does not match its content.")
    deadline = deadline or Deadline(DEFAULT_BUDGET)
    try:
        accuracy, question = certificate.accuracy, certificate.question
    except InvalidInputError as error:  # a delta or an epsilon that nobody is answered about
        raise VerificationError(str(error)) from None
    pair = _pair_of(certificate, deadline, any_optimum=any_optimum)
    resolution = Resolution(accuracy.nodes_per_unit, accuracy.smallest_delta)
    settings = Settings(
        resolution,
        deadline,
        question,
        effort=accuracy.effort or DEFAULT_EFFORT,
        claimed=None if question.delta is None else certificate.bounds.upper,
    )
    accountants = every_accountant()
    if certificate.monte_carlo is not None:
        sampled, settings = as_claimed(pair, settings, certificate.monte_carlo, evidence, executor)
        accountants[sampled.name] = sampled
    claimed = certificate.bounds
    uppers = confirmed(certificate.method.upper, accountants, pair, Side.UPPER, settings, claimed.upper)
    upper, lower = next(uppers), None
    if (certificate.method.lower is None) != (claimed.lower is None):
        raise VerificationError("The 'method.lower' field must name a method exactly where there is a lower bound.")
    if certificate.method.lower is not None and claimed.lower is not None:
        lower = next(confirmed(certificate.method.lower, accountants, pair, Side.LOWER, settings, claimed.lower))
    return pair, chain([upper], uppers), lower, settings


def _checked_numbers(
    certificate: CertificateBase, pair: DominatingPair, end: Outcome, others: Iterable[Outcome], settings: Settings
) -> AttackNumbers:
    """What attackers gain at most: as the certificate states it, where that follows from its bounds.

    Stated numbers may be larger than those that are derived here. Certificates that state what follows from epsilon and
    delta alone are accepted without computing a profile, and one of format 3 has to say which of the two its numbers
    are. Format 1 states no numbers, and gets those that follow from epsilon and delta.

    Args:
        end: what the method said that confirmed the upper end.
        others: further methods that confirm it, whose profiles help where that of the first is too large.

    Raises: VerificationError where a stated number is too small, BudgetExceededError when the deadline passes.
    """
    question, upper = certificate.question, certificate.bounds.upper
    delta, implied = question.claimed(upper)[1], implied_bound(pair, question, end, upper, settings)
    bound, derived = implied, portable(attack_numbers(implied, delta))
    if not isinstance(certificate, Certificate):
        return derived
    stated = certificate.numbers
    if stated.basis != "profile" and _covers(stated, derived, bound, delta):
        return stated
    try:
        for candidate in () if stated.basis == "claim" else chain([end], others):
            whole = whole_profile(pair, question, candidate, upper, settings)
            if whole is not None:
                bound = tighter(bound, whole)
                derived = portable(attack_numbers(bound, delta))
                if _covers(stated, derived, bound, delta, implied):
                    return stated
            elif stated.basis == "profile":
                raise VerificationError(
                    f"The 'numbers.basis' field claims 'profile', but the method {candidate.method!r} gives no bound "
                    "on a whole profile."
                )
    except BudgetExceededError:
        raise BudgetExceededError(NO_TIME) from None
    except MemoryError:
        raise VerificationError("The 'numbers' field needs more memory than there is to be recomputed.") from None
    raise VerificationError(
        f"The 'numbers' field claims {shortened(_plain(stated))}, but recomputed it is {shortened(_plain(derived))}."
    )


def _covers(
    stated: AttackNumbers, derived: AttackNumbers, bound: Bound, delta: float, implied: Bound | None = None
) -> bool:
    """Whether no stated number is below the derived one, up to the rounding of another machine.

    The regret is that of the stated mu, and a tenth of what was added to it may be missing. A certificate may leave out
    both mu and its regret.

    Args:
        implied: the bound that needs no profile, where the numbers may be those of a profile which was looser than
            ``bound``. Their regret is about that profile: see :func:`_loosest`.
    """
    least = dict(derived)
    if stated.gdp_mu is not None and derived.gdp_mu is not None:
        mu = stated.gdp_mu / (1.0 + PORTABLE)
        regret = regret_of(bound, delta, mu)
        if implied is not None and regret is not None:
            regret = min(regret, regret_of(_loosest(implied, stated.advantage), delta, mu) or regret)
        least["gdp_regret"] = None if regret is None else max(regret - 0.1 * REGRET_ROUNDING, 0.0)
    if stated.gdp_mu is None and stated.gdp_regret is None:
        least |= {"gdp_mu": None, "gdp_regret": None}
    return all(
        (value is None) == (least[name] is None) and (value is None or value >= least[name] * (1.0 - ROUNDED))
        for name, value in stated
        if name != "basis"
    )


def _loosest(implied: Bound, advantage: float) -> Bound:
    """The largest profile that a certificate with this advantage can have rested on: no regret of its own is smaller.

    A profile falls from the advantage at epsilon 0, and where it is above what the certified pair of numbers implies,
    the certificate takes what they imply.
    """

    def capped(profile: Profile) -> Profile:
        return lambda epsilon: min(profile(epsilon), advantage)

    return replace(implied, profiles={direction: capped(profile) for direction, profile in implied.profiles.items()})


def _restated(
    certificate: CertificateBase,
    pair: DominatingPair,
    ends: tuple[Outcome, Outcome | None],
    numbers: AttackNumbers,
    settings: Settings,
    form: str | None = None,
) -> Certificate:
    """The certificate that states the same interval, after the user's own statements; in format 2 for one of 1.

    Args:
        form: another format, which holds matrices.
    """
    present = certificate if isinstance(certificate, Certificate) else None
    try:
        again = stated(
            certificate.mechanism if form is None else certificate.mechanism.pinned(),
            pair,
            certificate.question,
            certificate.bounds,
            ends,
            numbers,
            settings,
            origin(certificate.accuracy, certificate.cut_off) if form or present is None else present.origin,
            statements=None if present is None else present.statements,
            form=form or (FORMAT_2 if present is None else present.format),
        )
        return again if certificate.generator is None else drawn_by(again, certificate.generator.name)
    except (InvalidInputError, CannotCertifyError) as error:
        raise VerificationError(str(error)) from None


def _claims(certificate: CertificateBase) -> list[str]:
    """The fields that have to be those of the certificate that is derived again: what words follow from first."""
    beside = {*NOT_RECOMPUTED, "digest"}
    if not isinstance(certificate, Certificate):
        beside |= {"format", "accuracy", "hockeystick_version", "cut_off"}
    return [name for name in type(certificate).model_fields if name not in beside]


def _plain(value: object) -> object:
    """A field as plain data."""
    return to_jsonable_python(value)


def _same(claimed: object, recomputed: object, tolerance: float) -> bool:
    """Whether two fields say the same, numbers up to a relative tolerance."""
    if isinstance(claimed, dict) and isinstance(recomputed, dict):
        return claimed.keys() == recomputed.keys() and all(
            _same(claimed[key], recomputed[key], tolerance) for key in recomputed
        )
    if isinstance(claimed, list) and isinstance(recomputed, list):
        return len(claimed) == len(recomputed) and all(
            _same(claim, other, tolerance) for claim, other in zip(claimed, recomputed, strict=True)
        )
    if isinstance(claimed, float) and isinstance(recomputed, float):
        return isclose(claimed, recomputed, rel_tol=tolerance)
    return claimed == recomputed


def _pair_of(certificate: CertificateBase, deadline: Deadline, *, any_optimum: bool) -> DominatingPair:
    try:
        if certificate.mechanism.strategy.pinned() != certificate.mechanism.strategy:
            raise VerificationError("The 'mechanism.strategy' field does not say the digest of the file that it names.")
        prepared(certificate.mechanism, deadline)
        if not any_optimum:
            _check_optimum(certificate)
        return dominating_pair(certificate.mechanism)
    except (InvalidInputError, UnsupportedError) as error:
        raise VerificationError(str(error)) from None
    except MemoryError:
        raise VerificationError("The certificate needs more memory than there is.") from None


def _check_optimum(certificate: CertificateBase) -> None:
    """The bounds are about one matrix: that of the held numbers, or, in former formats, of the optimiser's result."""
    mechanism, digest = certificate.mechanism, certificate.strategy_digest
    if digest is None or not mechanism.strategy.optimised or mechanism.matrix.digest == digest:
        return
    if certificate.format in FORMATS_WITHOUT_MATRICES:
        raise VerificationError(
            f"The 'strategy_digest' field is of another matrix than the one that the optimiser of "
            f"{mechanism.strategy.kind!r} finds on this machine, and certificates before format 3 do not hold the "
            f"matrix; verify it where it was issued, or issue it again."
        )
    raise VerificationError(
        "The 'strategy_digest' field is of another matrix than the 'mechanism.strategy.held' field."
    )
