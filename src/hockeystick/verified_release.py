"""Calibration by estimate-verify-release: Monte Carlo verification that is itself part of the guarantee.

1. Estimate: pilots, thrown away, find roughly the noise multiplier at which delta is met.
2. Candidates: a few noise multipliers around it, in increasing order, and last one that is certified without sampling.
   More noise is post-processing, so each candidate's guarantees hold for all after it.
3. Verify: from the noisiest down, each candidate has to show by an upper bound that its delta at epsilon is at most
   delta', with a test that wrongly accepts with probability at most q; the first refusal ends the scan.
4. Release the last one accepted. All of it together is (epsilon, delta' + q (1 - delta'))-DP, and delta' is chosen so
   that this is the delta that was asked for (docs/theory/monte-carlo/release.md).
"""

from dataclasses import replace

from hockeystick.accountants.monte_carlo.acceptance import Acceptance
from hockeystick.accountants.monte_carlo.claim import Statement
from hockeystick.accountants.monte_carlo.options import MonteCarlo
from hockeystick.accountants.monte_carlo.release import scan, verification_target
from hockeystick.bounds import Question
from hockeystick.bracketing import LARGEST_NOISE, SMALLEST_NOISE, smallest_passing
from hockeystick.certificate import Certificate
from hockeystick.certification import certificate_of, run_accountants, settings_for
from hockeystick.errors import CannotCertifyError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import dominating_pair
from hockeystick.watch import Watch

GRID = (-0.006, -0.003, 0.0, 0.003, 0.006, 0.01, 0.015, 0.025, 0.04, 0.08, 0.16, 0.32, 0.64)
"""Candidates, relative to the estimate."""
ESTIMATE_WIDTH = 2e-3
"""Relative width of the bracket of the estimate."""
INSIDE = 1e-8
"""The tests are made at an epsilon that is smaller by this fraction, more than reading it back can lose."""
METHOD = "monte_carlo"


def verified_release(
    certified: Certificate, epsilon: float, delta: float, options: MonteCarlo, watch: Watch
) -> Certificate:
    """The certificate of the least noisy candidate that sampling accepts.

    Args:
        certified: deterministic certificate of a mechanism for the same target: the last candidate.
        options: ``failure_probability`` is q.

    Raises: InvalidInputError when q is not below delta.
    """
    goal = verification_target(delta, options.failure_probability)
    mechanism, most = certified.mechanism, certified.mechanism.sigma
    question = Question(epsilon=epsilon * (1.0 - INSIDE))
    tested: dict[float, Acceptance] = {}

    def estimate(noise_multiplier: float) -> float:
        pair = dominating_pair(mechanism.with_noise(min(noise_multiplier, LARGEST_NOISE)))
        return Acceptance(pair, question, options, watch, goal=goal).estimate() / goal

    try:
        _, near = smallest_passing(estimate, 1.0, most, ESTIMATE_WIDTH)
    except CannotCertifyError:  # pilots of a hopeless mechanism
        return certified
    noises = [near * (1.0 + step) for step in GRID]
    candidates = [noise for noise in noises if SMALLEST_NOISE <= noise < most] + [most]

    def accepts(which: int) -> bool:
        pair = dominating_pair(mechanism.with_noise(candidates[which]))
        test = Acceptance(pair, question, options, watch, Statement.ESTIMATE_VERIFY_RELEASE, goal=goal)
        tested[candidates[which]] = test
        return test.accepts()

    chosen = candidates[scan(len(candidates), accepts)]
    if chosen == most:
        return certified
    return _certificate(mechanism.with_noise(chosen), delta, tested[chosen], options, watch)


def _certificate(
    mechanism: Mechanism, delta: float, test: Acceptance, options: MonteCarlo, watch: Watch
) -> Certificate:
    """The certificate that rests on an accepted test; lower bounds are deterministic."""
    question = Question(delta=delta)
    pair = dominating_pair(mechanism)
    told = replace(options, campaigns={(test.subject, question): test})
    settings = settings_for(question, pair, watch, told)
    outcomes = run_accountants(pair, question, settings, methods=[METHOD], goal=None)
    return certificate_of(mechanism, pair, question, outcomes, settings)
