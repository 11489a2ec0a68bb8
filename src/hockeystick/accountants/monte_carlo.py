"""Monte Carlo with proofs: the profile as the mean of weighted samples, each bounded by a proved number.

delta(epsilon) is the mean of ``Y = w (1 - e^(epsilon - l))_+`` over samples of a proposal distribution, and
``0 <= Y <= M``. A betting bound on such a mean fails with a probability that is chosen beforehand, at whatever time the
sampling is stopped (docs/theory/monte-carlo).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hockeystick.accountants import direct, fresh_epochs, participation_windows, separated_windows, split_noise
from hockeystick.accountants.base import Accountant, Profiles
from hockeystick.bounds import Profile, Question, best_of
from hockeystick.claim import MonteCarloClaim, Statement
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError, VerificationError
from hockeystick.monte_carlo.families import FAMILIES, family_of, has_family
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.users import Users
from hockeystick.pairs.worst_of import WorstOf
from hockeystick.samples import Executor, Ledger
from hockeystick.settings import MonteCarlo, Settings
from hockeystick.types import Direction, Kind, Side

if TYPE_CHECKING:
    from hockeystick.monte_carlo.aims import CostlyBound
    from hockeystick.monte_carlo.estimation import Estimation

ADD_FROM = (direct.ACCOUNTANT, split_noise.ACCOUNTANT, separated_windows.ACCOUNTANT)
COSTLY_FROM = (participation_windows.ACCOUNTANT, fresh_epochs.ACCOUNTANT)


def known_upper(pair: DominatingPair, settings: Settings) -> dict[Direction, Profile]:
    """Deterministic upper bounds that come cheap and may spare the sampling of a direction: those of the add direction.

    Raises: BudgetExceededError when the deadline passes.
    """
    profiles = [
        _add_of(accountant, pair, settings.deadline)
        for accountant in ADD_FROM
        if accountant.why_not(pair, Side.UPPER) is None
    ]
    parts = [profile for profile in profiles if profile is not None]
    return {Direction.ADD: best_of(min, *parts)} if parts else {}


def costly_upper(pair: DominatingPair) -> "CostlyBound | None":
    """Upper bounds of add that take some ten seconds and more, where there are no separated windows.

    Those of windows of participations, and of epochs that are made independent.
    """
    from hockeystick.monte_carlo.aims import CostlyBound

    if separated_windows.ACCOUNTANT.why_not(pair, Side.UPPER) is None:
        return None
    for accountant in COSTLY_FROM:
        if accountant.why_not(pair, Side.UPPER) is None:
            return CostlyBound(accountant.seconds(pair), partial(_add_of, accountant, pair))
    return None


def _add_of(accountant: Accountant, pair: DominatingPair, deadline: Deadline) -> Profile | None:
    with suppress(UnsupportedError):
        return accountant.bound(pair, Side.UPPER, Settings(deadline=deadline)).profiles[Direction.ADD]
    return None


def _sampled(pair: DominatingPair, sides: Sequence[Side], settings: Settings) -> tuple[Mapping[Side, Profiles], object]:
    """One estimation for each member of the pair, with equal shares of the time and work that are left."""
    from hockeystick.monte_carlo.estimation import Estimation
    from hockeystick.monte_carlo.whole_curve import CurveEstimation

    options, question = settings.monte_carlo, settings.question
    assert options is not None  # Accountant.bounds has checked it
    estimations, members = [], pair.members
    for place, member in enumerate(members):
        share = replace(
            settings, deadline=settings.deadline.part(1.0 / (len(members) - place)), work=settings.work / len(members)
        )
        known = known_upper(member, share)
        if question is None:
            smallest = Question(delta=settings.resolution.smallest_delta)
            made: Estimation = CurveEstimation(
                member,
                smallest,
                options,
                share.deadline,
                known_upper=known,
                work=share.work,
                members=len(members),
            )
        else:
            made = Estimation(
                member,
                question,
                options,
                share.deadline,
                known_upper=known,
                costly=costly_upper(member),
                work=share.work,
            )
        made.sample(sides)
        estimations.append(made)
    return _analysed(estimations, sides)


def _analysed(estimations: "Sequence[Estimation]", sides: Sequence[Side]) -> tuple[Mapping[Side, Profiles], object]:
    """Upper bounds cover all members, and only the one with the largest delta can fail; lower ones are the last's."""
    by_side: dict[Side, Profiles] = {}
    for side in sides:
        each = [estimation.profiles(side) for estimation in estimations]
        if side is Side.LOWER:
            by_side[side] = each[-1]
        else:
            by_side[side] = {
                direction: best_of(max, *(profiles[direction] for profiles in each)) for direction in Direction
            }
    claims = [estimation.claim() for estimation in estimations]
    runs = tuple(run for claim in claims for run in claim.runs)
    return by_side, claims[0].model_copy(update={"runs": runs})


def resting_on(estimations: "Sequence[Estimation]", pair: DominatingPair) -> Accountant:
    """The accountant that says of this pair what these estimations, one for each member, have found."""
    analyses = {type(pair): lambda pair, sides, settings: _analysed(estimations, sides)}
    return replace(ACCOUNTANT, joint_analyses=analyses, cost=lambda pair: 0.0)  # sampled already: no deadline matters


def as_claimed(
    pair: DominatingPair, settings: Settings, claim: MonteCarloClaim, evidence: Ledger | None, executor: Executor
) -> tuple[Accountant, Settings]:
    """The accountant and settings whose estimations are those that a certificate claims, checked and derived again.

    Raises: VerificationError naming what does not follow.
    """
    from hockeystick.monte_carlo.runs import fingerprint
    from hockeystick.monte_carlo.verification import rederived

    options = MonteCarlo(failure_probability=claim.failure_probability, executor=executor)
    assert settings.question is not None
    subjects = {fingerprint(family_of(member), member): member for member in pair.members}
    if any(claimed.run.subject not in subjects for claimed in claim.runs):
        raise VerificationError("The 'monte_carlo.runs.subject' field is not about this mechanism.")
    estimations = []
    for subject, member in subjects.items():
        own = claim.model_copy(
            update={"runs": tuple(claimed for claimed in claim.runs if claimed.run.subject == subject)}
        )
        known = known_upper(member, settings)
        costly = costly_upper(member) if _may_rest_on_costly(own, known, settings.question) else None
        if costly is not None and (windows := costly.profile(settings.deadline)) is not None:
            known[Direction.ADD] = best_of(min, windows, *known.values())
        again = rederived(member, settings.question, own, options, settings.deadline, evidence, known_upper=known)
        estimations.append(again)
    return resting_on(estimations, pair), replace(settings, monte_carlo=options)


def _may_rest_on_costly(claim: MonteCarloClaim, known: Mapping[Direction, Profile], question: Question) -> bool:
    """Whether the costly bound may have spared add: not if that was sampled, or something cheap spares it."""
    nodes = [node.epsilon for claimed in claim.runs for node in claimed.run.nodes if node.side is Side.UPPER]
    sampled = any(claimed.run.direction is Direction.ADD for claimed in claim.runs)
    if sampled or not nodes or claim.statement is not Statement.CONFIDENCE:
        return False
    cheap = known.get(Direction.ADD)
    return cheap is None or question.delta is None or cheap(min(nodes)) > question.delta


def _refusal(pair: DominatingPair, side: Side) -> str | None:
    """The refusal of any member for upper bounds, and of the last member for lower bounds."""
    members = pair.members if side is Side.UPPER else pair.members[-1:]
    if isinstance(pair, Users) and not all(has_family(member) for member in members):
        return (
            "it has no analysis of examples that are replaced"
            if pair.replaced
            else "it has no analysis of several examples of one user here"
        )
    return next((reason for member in members if (reason := family_of(member).refusal(member, side))), None)


ACCOUNTANT = Accountant(
    name="monte_carlo",
    summary="betting bounds on the mean of importance samples; holds except with a stated failure probability",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side, except with the failure probability",
    reference="Waudby-Smith and Ramdas 2024; docs/theory/monte-carlo",
    joint_analyses=dict.fromkeys((*FAMILIES, WorstOf, Users), _sampled),
    refusal=_refusal,
    cost=lambda pair: 3.0,
    kind=Kind.MONTE_CARLO,
)
