"""Whether a method proves a claimed number: the one that a certificate names, or another where that is retired."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.accountants.retired import RETIRED, Retired
from hockeystick.bounds import Bound
from hockeystick.certification.schedule import Outcome
from hockeystick.errors import BudgetExceededError, UnsupportedError, VerificationError
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.pairs.base import DominatingPair
from hockeystick.settings import Settings
from hockeystick.types import Kind, Side

NO_TIME = "The time budget is over before the certificate is recomputed; allow more seconds."


class StandIn(NamedTuple):
    """A method that proved one end of a claim in place of the retired one that the certificate names."""

    side: Side
    named: str
    method: str

    def __str__(self) -> str:
        since = RETIRED[self.named].since
        return (
            f"the {self.side.value} bound is proved by {self.method!r}, which stands in for {self.named!r}, retired in "
            f"{since}"
        )


def confirmed(
    name: str,
    accountants: Mapping[str, Accountant],
    pair: DominatingPair,
    side: Side,
    settings: Settings,
    claimed: float,
) -> Iterator[Outcome]:
    """The claimed number as an outcome, by every method that confirms it: the named one, others where it is retired.

    The first of them comes at once, or the reason why there is none as a VerificationError.
    """
    if name in accountants:
        yield _by_itself(accountants[name], pair, side, settings, claimed)
    elif name in RETIRED:
        yield from _by_others(RETIRED[name], pair, side, settings, claimed)
    else:
        raise VerificationError(f"The 'method.{side.value}' field names a method that is not known: {name!r}.")


def _by_itself(accountant: Accountant, pair: DominatingPair, side: Side, settings: Settings, claimed: float) -> Outcome:
    """The claimed number, if the bound of the accountant that it rests on confirms it."""
    if accountant.kind not in settings.kinds:
        raise VerificationError(f"The 'monte_carlo' field is missing, which the method {accountant.name!r} needs.")
    reason = accountant.why_not(pair, side)
    if reason is None:
        try:
            bound = accountant.bound(pair, side, settings)
            if _holds(bound, settings, claimed):
                return _outcome(bound, settings, claimed)
            raise VerificationError(
                f"The {_end(settings, side)} field claims {claimed!r}, but the recomputed bound is "
                f"{_answer(bound, settings, claimed)!r}."
            )
        except BudgetExceededError:
            raise BudgetExceededError(NO_TIME) from None
        except UnsupportedError as error:
            reason = str(error)
        except MemoryError:
            reason = "it needs more memory than there is"
    raise VerificationError(
        f"The 'method.{side.value}' field names {accountant.name!r}, which gives no {side.value} bound here: {reason}."
    )


def _by_others(
    retired: Retired, pair: DominatingPair, side: Side, settings: Settings, claimed: float
) -> Iterator[Outcome]:
    """The claimed number, by each method that confirms it, the cheapest first; raises VerificationError if none does.

    None of them samples or assumes anything about the run: the certificate would have to say so.
    """
    if side not in retired.sides:
        raise VerificationError(
            f"The 'method.{side.value}' field names {retired.name!r}, which never gave {side.value} bounds."
        )
    able = [
        accountant
        for accountant in ACCOUNTANTS.values()
        if accountant.kind is Kind.DETERMINISTIC
        and accountant.assumes is None
        and accountant.why_not(pair, side) is None
    ]
    confirmed, refuted = False, []
    for accountant in sorted(able, key=lambda accountant: accountant.seconds(pair)):
        try:
            bound = accountant.bound(pair, side, settings)
            if _holds(bound, settings, claimed):
                confirmed = True
                yield _outcome(bound, settings, claimed)
            else:
                refuted.append(_answer(bound, settings, claimed))
        except BudgetExceededError:
            raise BudgetExceededError(NO_TIME) from None
        except (UnsupportedError, MemoryError):
            continue
    if not confirmed:
        closest = (min if side is Side.UPPER else max)(refuted, default=None)
        raise VerificationError(
            f"The {_end(settings, side)} field claims {claimed!r} by {retired.name!r}, which was retired in "
            f"{retired.since}, but the best bound of the other methods is {closest!r}."
        )


def _outcome(bound: Bound, settings: Settings, claimed: float) -> Outcome:
    confidence = settings.confidence(bound.kind)
    return Outcome(bound.method, bound.side, bound.kind, confidence, claimed, 0.0, "ok", bound.claim, bound=bound)


def _end(settings: Settings, side: Side) -> str:
    """The field that holds the claimed number."""
    assert settings.question is not None
    return f"'{'epsilon' if settings.question.delta is not None else 'delta'}.{side.value}'"


def _answer(bound: Bound, settings: Settings, claimed: float) -> float:
    assert settings.question is not None
    return settings.question.answer(bound, near=claimed)


def _holds(bound: Bound, settings: Settings, claimed: float) -> bool:
    """Whether the bound proves the claimed number, which is read as it stands."""
    question, upper = settings.question, bound.side is Side.UPPER
    assert question is not None
    if question.epsilon is not None:
        delta = bound.delta(question.epsilon)
        return delta <= claimed if upper else delta >= claimed
    assert question.delta is not None
    if upper:
        return bound.delta(min(claimed, MAX_EPSILON)) <= question.delta
    return claimed <= 0.0 or (claimed <= MAX_EPSILON and bound.delta(claimed) > question.delta)
