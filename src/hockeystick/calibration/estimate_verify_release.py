"""Calibration by estimate-verify-release: Monte Carlo verification that is itself part of the guarantee.

1. Estimate: pilots, thrown away, find roughly the noise multiplier at which delta is met.
2. Candidates: a few noise multipliers around it, in increasing order, and last one that is certified without sampling.
   More noise is post-processing, so each candidate's guarantees hold for all after it.
3. Verify: from the noisiest down, each candidate has to show by an upper bound that its delta at epsilon is at most
   delta', with a test that wrongly accepts with probability at most q; the first refusal ends the scan.
4. Bound the last one accepted from below, by further samples that pay for the choice among the candidates.
5. Release it. All of it together is (epsilon, delta' + q (1 - delta'))-DP, and delta' is chosen so
   that this is the delta that was asked for (docs/theory/monte-carlo/release.md).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hockeystick.accountants.monte_carlo import known_upper, resting_on
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.bracketing import smallest_passing
from hockeystick.certificate import Certificate
from hockeystick.certification.issue import PORTABLE, certificate_of, certify_with
from hockeystick.certification.schedule import Outcome, best, run_accountants, run_named, settings_for
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.claim import Statement
from hockeystick.monte_carlo.release import scan, verification_target
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import MonteCarlo, SearchPolicy, Settings
from hockeystick.spec import LARGEST_NOISE, SMALLEST_NOISE
from hockeystick.types import Side

if TYPE_CHECKING:
    from hockeystick.monte_carlo.acceptance import Acceptance

GRID = (-0.015, -0.01, -0.006, -0.003, 0.0, 0.003, 0.006, 0.01, 0.015, 0.025, 0.04, 0.08, 0.16, 0.32, 0.64)
"""Candidates, relative to the estimate."""
ESTIMATE_WIDTH = 1e-2
"""Relative width of the bracket of the estimate."""
INSIDE = PORTABLE + 1e-8
"""The tests are made at an epsilon that is smaller by this fraction, more than reading it back and issuing it lose."""
GENTLE, STRIDE = 0.125, 2.0
"""delta falls about with a high power of the noise, and pilots may see nothing of it: no step is larger than this."""
TEST_SHARE = 0.25
"""Of the sampling that is planned, for each test of a candidate; most are refused or accepted long before."""
ROUGH_WIDTH = 0.2
"""The same where only the order of magnitude matters."""
PILOT_SEED = 0
"""Of samples that are looked at for a hint alone."""
METHOD = "monte_carlo"
SCAN_SHARE = 0.8
"""Of the budget that is left, for estimate and tests; the rest is for the certificate's lower bound."""
LOWER_GOAL = 2e-2
"""Relative two-sided gap above which deterministic lower bounds are tried too."""


def verified_release(
    last: Certificate, epsilon: float, delta: float, options: MonteCarlo, deadline: Deadline, policy: SearchPolicy
) -> Certificate:
    """The certificate of the least noisy candidate that sampling accepts.

    Args:
        last: deterministic certificate, for epsilon and delta', of the last candidate. It is what is released where
            there is no way to sample the pair, and where truncation moves delta by an amount that grows with epsilon.
        options: ``failure_probability`` is q.

    Raises: InvalidInputError when q is not below delta.
    """
    from hockeystick.monte_carlo.acceptance import MOST_CANDIDATES, Acceptance

    mechanism, most = last.mechanism, last.mechanism.sigma
    pair = dominating_pair(mechanism)
    if ACCOUNTANTS[METHOD].why_not(pair, Side.UPPER) is not None or pair.slack > 0.0:
        return _of_the_last(last, delta, deadline, policy)
    goal = verification_target(delta, options.failure_probability)
    question = Question(epsilon=epsilon * (1.0 - INSIDE))
    scanning = deadline.part(SCAN_SHARE)
    tested: dict[float, list[Acceptance]] = {}

    def tests(noise_multiplier: float) -> list[Acceptance]:
        """One for each member of the pair: all have to accept, and only the worst one can err."""
        pair = dominating_pair(mechanism.with_noise(min(noise_multiplier, LARGEST_NOISE)))
        statement = Statement.ESTIMATE_VERIFY_RELEASE
        return [
            Acceptance(
                one,
                question,
                options,
                scanning,
                statement,
                known_upper=known_upper(one, Settings(deadline=scanning)),
                work=TEST_SHARE * policy.sampling,
                goal=goal,
            )
            for one in pair.members
        ]

    def estimate(noise_multiplier: float) -> float:
        return _gentle(max(test.estimate() for test in tests(noise_multiplier)) / goal)

    try:
        _, near = smallest_passing(estimate, 1.0, most, ESTIMATE_WIDTH)
    except (CannotCertifyError, BudgetExceededError):  # pilots of a hopeless mechanism, or no time for them
        return _of_the_last(last, delta, deadline, policy)
    noises = [near * (1.0 + step) for step in GRID]
    candidates = [noise for noise in noises if SMALLEST_NOISE <= noise < most] + [most]
    assert len(candidates) <= MOST_CANDIDATES

    def accepts(which: int) -> bool:
        try:
            tested[candidates[which]] = tests(candidates[which])
            return all(test.accepts() for test in tested[candidates[which]])
        except BudgetExceededError:  # what is not shown in time is refused
            return False

    chosen = candidates[scan(len(candidates), accepts)]
    if chosen == most:
        return _of_the_last(last, delta, deadline, policy)
    return _certificate(mechanism.with_noise(chosen), delta, tested[chosen], options, deadline, policy)


def estimated_noise(mechanism: Mechanism, epsilon: float, delta: float, deadline: Deadline) -> float:
    """About the noise multiplier that verification by sampling would release: an estimate by pilots, and no bound.

    Raises: BudgetExceededError when the deadline passes before there is one; CannotCertifyError when the pilots see no
        noise multiplier that is enough; UnsupportedError where the pair cannot be sampled.
    """
    from hockeystick.monte_carlo.acceptance import Acceptance

    question, options = Question(epsilon=epsilon), MonteCarlo(seed=PILOT_SEED)

    def ratio(noise_multiplier: float) -> float:
        pair = dominating_pair(mechanism.with_noise(min(noise_multiplier, LARGEST_NOISE)))
        looks = (Acceptance(one, question, options, deadline, goal=delta) for one in pair.members)
        return _gentle(max(look.estimate() for look in looks) / delta)

    return smallest_passing(ratio, 1.0, 1.0, ROUGH_WIDTH)[1]


def _gentle(ratio: float) -> float:
    return min(max(float(ratio**GENTLE), 1.0 / STRIDE), STRIDE)


def _of_the_last(last: Certificate, delta: float, deadline: Deadline, policy: SearchPolicy) -> Certificate:
    """The same deterministic bound, stated for the delta that was asked for.

    Where that is looser, because less work may be planned, the one for the smaller delta stands: it says more.
    """
    found = certify_with(last.mechanism, Question(delta=delta), deadline, [last.method.upper], None, policy)
    return found if found.bounds.upper <= last.bounds.upper else last


def _certificate(
    mechanism: Mechanism,
    delta: float,
    tests: "Sequence[Acceptance]",
    options: MonteCarlo,
    deadline: Deadline,
    policy: SearchPolicy,
) -> Certificate:
    """The certificate that rests on accepted tests, and on more samples for the lower bound."""
    question = Question(delta=delta)
    pair = dominating_pair(mechanism)
    settings = settings_for(question, pair, deadline, options, policy)
    sides = (
        (Side.UPPER, Side.LOWER)
        if _bound_below(pair, tests[-1], question, options, deadline, policy)
        else (Side.UPPER,)
    )
    outcomes = run_named(resting_on(tests, pair), pair, sides, settings, question.answer)
    if not _close(outcomes):
        lower = settings_for(question, pair, deadline, policy=policy)
        outcomes = outcomes + run_accountants(pair, question, lower, policy=policy, sides=(Side.LOWER,))
    return certificate_of(mechanism, pair, question, outcomes, settings)


def _bound_below(
    pair: DominatingPair,
    test: "Acceptance",
    question: Question,
    options: MonteCarlo,
    deadline: Deadline,
    policy: SearchPolicy,
) -> bool:
    """Add samples for a lower bound to the test of the pair's last member, which is the one that attains the pair."""
    from hockeystick.monte_carlo.acceptance import LowerBound

    if ACCOUNTANTS[METHOD].why_not(pair, Side.LOWER) is not None:
        return False
    below = LowerBound(
        pair.members[-1],
        question,
        options,
        deadline,
        Statement.ESTIMATE_VERIFY_RELEASE,
        known_upper=test.known_upper,
        work=TEST_SHARE * policy.sampling,
    )
    below.sample()
    test.tallies += below.tallies
    return any(one.chunks for one in below.tallies)


def _close(outcomes: Sequence[Outcome]) -> bool:
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or lower is None or not upper.value or not lower.value:
        return False
    return upper.value <= lower.value * (1.0 + LOWER_GOAL)
