"""Monte Carlo with proofs: the profile as the mean of weighted samples, each bounded by a proved number.

delta(epsilon) is the mean of ``Y = w (1 - e^(epsilon - l))_+`` over samples of a tilted distribution, and
``0 <= Y <= M``. A betting bound on such a mean fails with a probability that is chosen beforehand, at whatever time the
sampling is stopped, so the claim is about the draws of the samples and never about a standard error. The cost is
governed by M / delta and the relative variance under the tilt, not by 1 / delta (docs/theory/monte-carlo).
"""

from collections.abc import Mapping
from dataclasses import replace

from hockeystick.accountants.base import Accountant, Settings
from hockeystick.accountants.monte_carlo.campaign import Campaign
from hockeystick.accountants.monte_carlo.claim import MonteCarloClaim
from hockeystick.accountants.monte_carlo.families import FAMILIES, family_of
from hockeystick.accountants.monte_carlo.ledger import Executor, Ledger
from hockeystick.accountants.monte_carlo.options import MonteCarlo
from hockeystick.accountants.monte_carlo.run import fingerprint
from hockeystick.accountants.monte_carlo.verification import rederived
from hockeystick.accountants.monte_carlo.whole_curve import Curve
from hockeystick.bounds import Profile, Question
from hockeystick.pairs.base import DominatingPair
from hockeystick.types import Direction, Kind, Side


def _campaign(pair: DominatingPair, settings: Settings) -> Campaign:
    """The campaign for these settings: sampled on the first call, the same one afterwards."""
    options, question = settings.monte_carlo, settings.question
    assert options is not None  # seen to by Accountant.bound
    key = fingerprint(family_of(pair), pair), question
    if key not in options.campaigns:
        if question is None:
            made: Campaign = Curve(pair, Question(delta=settings.resolution.smallest_delta), options, settings.watch)
        else:
            made = Campaign(pair, question, options, settings.watch)
        made.sample()
        options.campaigns[key] = made
    return options.campaigns[key]


def _analyse(pair: DominatingPair, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    return _campaign(pair, settings).profiles(side)


def claim_of(pair: DominatingPair, settings: Settings) -> MonteCarloClaim:
    """What a certificate says of the samples behind bounds that this accountant gave with these settings."""
    return _campaign(pair, settings).claim()


def with_claim(
    pair: DominatingPair, settings: Settings, claim: MonteCarloClaim, evidence: Ledger | None, executor: Executor
) -> Settings:
    """Settings whose campaign is the one that a certificate claims, checked and derived again.

    Raises: VerificationError naming what does not follow.
    """
    options = MonteCarlo(failure_probability=claim.failure_probability, executor=executor)
    assert settings.question is not None
    found = rederived(pair, settings.question, claim, options, settings.watch, evidence)
    options.campaigns[found.subject, settings.question] = found
    return replace(settings, monte_carlo=options)


ACCOUNTANT = Accountant(
    name="monte_carlo",
    summary="betting bounds on the mean of importance samples; holds except with a stated failure probability",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side, except with the failure probability",
    reference="Waudby-Smith and Ramdas 2024; docs/theory/monte-carlo",
    analyses=dict.fromkeys(FAMILIES, _analyse),
    refusal=lambda pair, side: family_of(pair).refusal(pair, side),
    cost=lambda pair: 3.0,
    kind=Kind.MONTE_CARLO,
)
