"""Monte Carlo with proofs: the profile as the mean of weighted samples, each bounded by a proved number.

delta(epsilon) is the mean of ``Y = w (1 - e^(epsilon - l))_+`` over samples of a tilted distribution, and
``0 <= Y <= M``. A betting bound on such a mean fails with a probability that is chosen beforehand, at whatever time the
sampling is stopped, so the claim is about the draws of the samples and never about a standard error. The cost is
governed by M / delta and the relative variance under the proposal, not by 1 / delta (docs/theory/monte-carlo).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile, Question
from hockeystick.deadline import Deadline
from hockeystick.errors import VerificationError
from hockeystick.monte_carlo.claim import MonteCarloClaim
from hockeystick.monte_carlo.estimation import Estimation
from hockeystick.monte_carlo.families import FAMILIES, family_of
from hockeystick.monte_carlo.runs import fingerprint
from hockeystick.monte_carlo.verification import rederived
from hockeystick.monte_carlo.whole_curve import Curve
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.worst_of import WorstOf
from hockeystick.samples import Executor, Ledger
from hockeystick.settings import MonteCarlo, Settings
from hockeystick.types import Direction, Kind, Side


def _estimation(pair: DominatingPair, settings: Settings, deadline: Deadline) -> Estimation:
    """The estimation for these settings: sampled on the first call, the same one afterwards."""
    options, question = settings.monte_carlo, settings.question
    assert options is not None  # seen to by Accountant.bound
    key = fingerprint(family_of(pair), pair), question
    if key not in options.estimations:
        if question is None:
            made: Estimation = Curve(pair, Question(delta=settings.resolution.smallest_delta), options, deadline)
        else:
            made = Estimation(pair, question, options, deadline)
        made.sample()
        options.estimations[key] = made
    found: Estimation = options.estimations[key]
    return found


def _estimations(pair: DominatingPair, settings: Settings) -> list[Estimation]:
    """One estimation for each member, with equal shares of the time that is left."""
    deadline, members = settings.deadline, pair.members
    return [
        _estimation(one, settings, Deadline(deadline.remaining() / (len(members) - place), deadline.on_tick))
        for place, one in enumerate(members)
    ]


def _analyse(pair: DominatingPair, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Upper bounds cover all members, and only the one with the largest delta can fail; lower ones are the last's."""
    found = [one.profiles(side) for one in _estimations(pair, settings)]
    if side is Side.LOWER:
        return found[-1]
    return {direction: _largest([profiles[direction] for profiles in found]) for direction in Direction}


def _largest(profiles: Sequence[Profile]) -> Profile:
    return lambda epsilon: max(profile(epsilon) for profile in profiles)


def claim_of(pair: DominatingPair, settings: Settings) -> MonteCarloClaim:
    """What a certificate says of the samples behind bounds that this accountant gave with these settings."""
    claims = [one.claim() for one in _estimations(pair, settings)]
    runs = tuple(run for claim in claims for run in claim.runs)
    return claims[0].model_copy(update={"closed": all(claim.closed for claim in claims), "runs": runs})


def with_claim(
    pair: DominatingPair, settings: Settings, claim: MonteCarloClaim, evidence: Ledger | None, executor: Executor
) -> Settings:
    """Settings whose estimation is the one that a certificate claims, checked and derived again.

    Raises: VerificationError naming what does not follow.
    """
    options = MonteCarlo(failure_probability=claim.failure_probability, executor=executor)
    assert settings.question is not None
    subjects = {fingerprint(family_of(one), one): one for one in pair.members}
    if any(one.run.subject not in subjects for one in claim.runs):
        raise VerificationError("The 'monte_carlo.runs.subject' field is not about this mechanism.")
    for subject, member in subjects.items():
        runs = tuple(one for one in claim.runs if one.run.subject == subject)
        own = claim.model_copy(update={"runs": runs})
        found = rederived(member, settings.question, own, options, settings.deadline, evidence)
        options.estimations[subject, settings.question] = found
    return replace(settings, monte_carlo=options)


def _refusal(pair: DominatingPair, side: Side) -> str | None:
    """Of any member for upper bounds, of the last one for lower bounds."""
    members = pair.members if side is Side.UPPER else pair.members[-1:]
    return next((reason for one in members if (reason := family_of(one).refusal(one, side))), None)


ACCOUNTANT = Accountant(
    name="monte_carlo",
    summary="betting bounds on the mean of importance samples; holds except with a stated failure probability",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side, except with the failure probability",
    reference="Waudby-Smith and Ramdas 2024; docs/theory/monte-carlo",
    analyses=dict.fromkeys((*FAMILIES, WorstOf), _analyse),
    refusal=_refusal,
    cost=lambda pair: 3.0,
    kind=Kind.MONTE_CARLO,
)
