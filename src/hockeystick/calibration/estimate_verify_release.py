"""Calibration by estimate-verify-release: Monte Carlo verification that is itself part of the guarantee.

1. Estimate: pilots, thrown away, find roughly the noise multiplier at which delta is met, and what a test would take
   at others: the closer delta is to the target, the more samples tell them apart.
2. Candidates: the least noise whose test fits into the planned work, and two with more noise, should it be refused.
   Where no test fits, nothing is sampled, and the answer says what it would have taken.
3. Verify: in that order, a candidate has to show by an upper bound that its delta at epsilon is at most delta'. All
   tests together accept what they should refuse with probability at most q / 2. The first one accepted is released;
   where there is none, what is certified without sampling.
4. Bound it from below, by further samples that pay for the choice among the candidates.
5. All of it together is (epsilon, delta' + q (1 - delta'))-DP, and delta' is chosen so that this is the delta that was
   asked for (docs/theory/monte-carlo/release.md).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from hockeystick.accountants.monte_carlo import known_upper, resting_on
from hockeystick.accountants.registry import ACCOUNTANTS, accountant
from hockeystick.bounds import Question
from hockeystick.bracketing import smallest_passing
from hockeystick.certificate import Certificate
from hockeystick.certification.issue import PORTABLE, certificate_of
from hockeystick.certification.schedule import (
    COARSE_EFFORT,
    COARSE_NODES,
    RUNS,
    Outcome,
    best,
    run_accountants,
    run_named,
    settings_for,
)
from hockeystick.claim import Statement, verification_target
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import MonteCarlo, SearchPolicy, Settings
from hockeystick.spec import LARGEST_NOISE, SMALLEST_NOISE
from hockeystick.types import Side

if TYPE_CHECKING:
    from hockeystick.monte_carlo.acceptance import Acceptance
    from hockeystick.monte_carlo.aims import Aim

PARTS = (0.98, 0.96, 0.93, 0.9, 0.86, 0.81, 0.75, 0.68, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Of the target, for what delta may be at a candidate: the smaller the easier to tell, and the more noise."""
SAFE = 2.0
"""Standard errors of a pilot by which a candidate's delta is below the target."""
WIDER = 3.0
"""The next candidate is as many times as far below the target, in logarithms."""
LEAST_GAIN = 2e-3
"""Relative; what would not lower the noise by this is not sampled."""
SEARCH_WIDTH = 0.1
"""Relative width of the bracket of the estimate."""
SETTLED, LOOKS = 5e-3, 3
"""Pilots look again, so often at most, while less noise by more than this part may be in reach of the planned work."""
AIM = 0.75
"""Of the work for a test, for where they look next: the next pilots may say that it takes a little more."""
STEP = 1.1
"""The largest step to where they look next: how delta falls is known about here alone."""
ABOVE = 1.02
"""Pilots look first at this multiple of where delta is met."""
FAR = 10.0
"""Deterministic bounds on the add direction that are so many times the goal are not computed for the next look."""
INSIDE = PORTABLE + 1e-8
"""The tests are made at an epsilon that is smaller by this fraction, more than reading it back and issuing it lose."""
GENTLE, STRIDE = 0.05, 3.0
"""delta falls about with a high power of the noise, and pilots may see nothing of it: no step is larger than this."""
GENTLEST, USUAL_SLOPE = 0.5, 10.0
"""delta falls at least with this power of the noise; and the one that is taken where pilots see too little of it."""
TEST_SHARE, RETRY_SHARE, BELOW_SHARE = 0.5, 0.2, 0.12
"""Of the planned work: for the first test, for what it may take beyond that and the next ones, for the lower bound."""
ROUGH_WIDTH = 0.2
"""Relative width of the bracket where only the order of magnitude matters."""
PILOT_SEED = 0
"""Of samples that are looked at for a hint alone."""
METHOD = "monte_carlo"
LOWER_GOAL = 2e-2
"""Relative two-sided gap above which deterministic lower bounds are tried too."""
CHECK_SHARE = 0.15
"""Of the work of deterministic accountants, to see whether one of them certifies what samples have verified."""
COARSE_GOAL = 0.05
"""By more than this, relatively, no coarse grid loosens a bound that is worth another search."""
SCAN_SHARE = 0.8
"""Of the budget that is left, for estimate and tests; the rest is for the certificate's lower bound."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """What verification by sampling came to.

    Attributes:
        certificate: of the candidate that was accepted; None where there is none.
        certain: whether that candidate may be certified without sampling too, so that less noise may be.
        tested: whether there was a test. If so, delta pays for what it may err, whatever is released.
        budget: where no test fits into the planned work: a budget, in seconds, into which one would.
    """

    certificate: Certificate | None = None
    certain: bool = False
    tested: bool = False
    budget: float | None = None


@dataclass(frozen=True)
class _Trial:
    """One noise multiplier, with a test for each member of its pair: all have to accept, and only the worst can err."""

    noise: float
    slope: float
    """``-d log delta / d log noise``, about."""
    tests: "Sequence[Acceptance]"

    @property
    def worst(self) -> "Aim | None":
        """The member and direction with the largest delta, by pilots; None where nothing has to be sampled."""
        aims = [aim for test in self.tests for aim in test.directions]
        return max(aims, key=lambda aim: aim.delta, default=None)

    @property
    def part(self) -> float:
        """The part of the target that delta is, by pilots."""
        return 0.0 if self.worst is None else self.worst.delta / self.worst.goal

    @property
    def sure(self) -> float:
        """The largest part of the target that pilots can tell from all of it."""
        effective = 0.0 if self.worst is None else self.worst.effective
        return exp(-SAFE / sqrt(effective)) if effective > 0.0 else 0.0

    def seconds(self, times: float = 1.0) -> float:
        """Standard seconds that the tests will probably take, where delta is so many times what it is here."""
        return sum(test.seconds(times) for test in self.tests)

    def noise_at(self, part: float) -> float:
        """About the noise multiplier at which delta is this part of the target."""
        return float(self.noise * (self.part / part) ** (1.0 / self.slope))

    def accepted(self, work: float) -> bool:
        """Whether all tests accept, each with an equal share of this work."""
        for test in self.tests:
            test.work = work / len(self.tests)
        return all(test.accepts() for test in self.tests)

    @property
    def spent(self) -> float:
        """Standard seconds of sampling so far."""
        return sum(test.spent for test in self.tests)


def verified_release(
    last: Certificate,
    epsilon: float,
    delta: float,
    options: MonteCarlo,
    deadline: Deadline,
    policy: SearchPolicy,
    methods: Sequence[str] | None = None,
    start: float | None = None,
) -> Release:
    """The certificate of the least noisy candidate that sampling accepts in the planned work, if that is a gain.

    Nothing is sampled where the pair cannot be, and where truncation moves delta by an amount that grows with epsilon.

    Args:
        last: deterministic certificate for epsilon; only less noise than it has is worth a test.
        options: ``failure_probability`` is q.
        methods: the accountants that may certify without sampling; None for the default ones.
        start: the noise multiplier where pilots look first. They see more at too little noise than at too much.

    Raises: InvalidInputError when q is not below delta.
    """
    from hockeystick.monte_carlo.acceptance import CANDIDATE_SHARES

    goal = verification_target(delta, options.failure_probability)
    mechanism, most = last.mechanism, last.mechanism.sigma * (1.0 - LEAST_GAIN)
    pair = dominating_pair(mechanism)
    if ACCOUNTANTS[METHOD].why_not(pair, Side.UPPER) is not None or pair.slack > 0.0:
        return Release()
    question = Question(epsilon=epsilon * (1.0 - INSIDE))
    scanning, work = deadline.part(SCAN_SHARE), min(policy.sampling, policy.work)

    unhelpful: set[int] = set()

    def trial(noise: float, share: float = CANDIDATE_SHARES[0]) -> _Trial:
        noise = min(max(noise, SMALLEST_NOISE), LARGEST_NOISE)
        tests = []
        for place, member in enumerate(dominating_pair(mechanism.with_noise(noise)).members):
            test = _test(member, question, options, scanning, goal=goal, share=share)
            # They only spare samples. Looks and candidates are close to each other, as are their bounds.
            if place not in unhelpful:
                _compare(test, scanning)
            if any(profile(epsilon) > FAR * goal for profile in test.known_upper.values()):
                unhelpful.add(place)
            tests.append(test)
        return _Trial(noise, slope, tests)

    try:
        near, slope = _near(mechanism, question, goal, options, scanning, start or last.mechanism.sigma, SEARCH_WIDTH)
        first, needed = _planned(trial, min(ABOVE * near, most), most, TEST_SHARE * work)
    except (CannotCertifyError, BudgetExceededError):  # pilots of a hopeless mechanism, or no time for them
        return Release()
    if first is None:
        return Release(budget=None if needed is None else needed / TEST_SHARE)
    # Fixed before the first test. Each has a share of the failure probability: whichever is released, and in whatever
    # order they are tested, one that is not private is accepted with probability at most the sum of the shares.
    part = min(first.part, PARTS[0])
    wider = [first.noise_at(part ** (WIDER**place)) for place in range(1, len(CANDIDATE_SHARES))]
    left = (TEST_SHARE + RETRY_SHARE) * work
    for noise, share in zip((first.noise, *wider), CANDIDATE_SHARES, strict=True):
        if noise > most:
            break
        try:
            candidate = first if share == CANDIDATE_SHARES[0] else trial(noise, share)
            if candidate.accepted(left):
                released = mechanism.with_noise(noise)
                return _released(released, delta, candidate.tests, options, deadline, policy, methods)
        except BudgetExceededError:  # what is not shown in time is refused
            break
        left -= candidate.spent
    return Release(tested=True)


def _test(
    member: DominatingPair, question: Question, options: MonteCarlo, deadline: Deadline, *, goal: float, share: float
) -> "Acceptance":
    from hockeystick.monte_carlo.acceptance import Acceptance

    return Acceptance(member, question, options, deadline, Statement.ESTIMATE_VERIFY_RELEASE, share=share, goal=goal)


def _compare(test: "Acceptance", deadline: Deadline) -> None:
    """Let deterministic bounds spare directions; where there are threads, they are computed while pilots are drawn."""
    settings = Settings(deadline=deadline)
    if test.options.threads == 1:
        test.known_upper = known_upper(test.pair, settings)
        return
    with ThreadPoolExecutor(1) as pool:
        known = pool.submit(known_upper, test.pair, settings)
        _ = test.directions
        test.spare(known.result())


def _planned(
    trial: Callable[[float], _Trial], near: float, most: float, work: float
) -> tuple[_Trial | None, float | None]:
    """The first candidate: the least noise that pilots are sure of and whose test probably takes no more than ``work``.

    None where that is no less noise than ``most``, and then the least work of a test where pilots looked, if any test
    would be a gain.

    Args:
        near: where pilots look first.
        work: standard seconds.
    """
    best: _Trial | None = None
    low: _Trial | None = None
    needed: list[float] = []
    for _ in range(LOOKS):
        here = trial(near)
        if here.part == 0.0:  # pilots see nothing, or nothing is left to sample
            return best, None
        if here.part <= 1.0 and here.seconds(here.sure / here.part) <= work:  # pilots limit the noise, not samples
            for test in here.tests:
                test.look_longer()
        if here.part <= here.sure and here.seconds() <= work:
            best = here
        else:
            low = here
        near = _next(low, best, most, AIM * work)
        if best is not None and near >= best.noise * (1.0 - SETTLED):
            return best, None
        if any(part <= here.sure and here.noise_at(part) <= most for part in PARTS):
            needed.append(here.seconds())  # where nobody looked, it would be no more than a guess
        if near > most:
            break
    return best, min(needed) / AIM if needed else None


def _next(low: _Trial | None, best: _Trial | None, most: float, work: float) -> float:
    """Where pilots look next: between what is out of reach and what is not, or else by how delta falls."""
    here = low or best
    assert here is not None
    fits = [part for part in PARTS if part <= here.sure and here.seconds(part / here.part) <= work]
    model = here.noise_at(fits[0]) if fits else min(sqrt(here.noise * most), here.noise * STEP)
    if low is None:
        return max(model, here.noise / STEP)
    if best is None:
        return min(model, here.noise * STEP) if fits else model
    if low.seconds() <= work:  # pilots could not tell its delta from the target
        return min(low.noise_at(low.sure), best.noise)
    if low.seconds() <= best.seconds():
        return best.noise
    share = log(low.seconds() / work) / log(low.seconds() / best.seconds())
    return float(low.noise * (best.noise / low.noise) ** min(share, 1.0))


def estimated_noise(mechanism: Mechanism, epsilon: float, delta: float, deadline: Deadline) -> float:
    """About the noise multiplier that verification by sampling would release: an estimate by pilots, and no bound.

    Raises: BudgetExceededError when the deadline passes before there is one; CannotCertifyError when the pilots see no
        noise multiplier that is enough; UnsupportedError where the pair cannot be sampled.
    """
    options = MonteCarlo(seed=PILOT_SEED)
    return _near(mechanism, Question(epsilon=epsilon), delta, options, deadline, 1.0, ROUGH_WIDTH)[0]


def _near(
    mechanism: Mechanism,
    question: Question,
    goal: float,
    options: MonteCarlo,
    deadline: Deadline,
    start: float,
    width: float,
) -> tuple[float, float]:
    """About the noise multiplier at which delta is the goal, and ``-d log delta / d log noise`` there."""
    from hockeystick.monte_carlo.acceptance import Acceptance

    ratios: dict[float, float] = {}

    def ratio(noise_multiplier: float) -> float:
        pair = dominating_pair(mechanism.with_noise(min(noise_multiplier, LARGEST_NOISE)))
        looks = (Acceptance(member, question, options, deadline, goal=goal) for member in pair.members)
        ratios[noise_multiplier] = max(look.estimate() for look in looks) / goal
        return float(min(max(ratios[noise_multiplier] ** GENTLE, 1.0 / STRIDE), STRIDE))

    fails, passes = smallest_passing(ratio, 1.0, start, width)
    if not 0.0 < ratios.get(passes, 0.0) < ratios.get(fails, 0.0):
        return passes, USUAL_SLOPE
    slope = max(log(ratios[fails] / ratios[passes]) / log(passes / fails), GENTLEST)
    return float(passes * ratios[passes] ** (1.0 / slope)), slope


def _released(
    mechanism: Mechanism,
    delta: float,
    tests: "Sequence[Acceptance]",
    options: MonteCarlo,
    deadline: Deadline,
    policy: SearchPolicy,
    methods: Sequence[str] | None,
) -> Release:
    """What rests on accepted tests, and on more samples for the lower bound, beside what is known without them."""
    question = Question(delta=delta)
    pair = dominating_pair(mechanism)
    settings = settings_for(question, pair, deadline, options, policy)
    sides = (
        (Side.UPPER, Side.LOWER)
        if _bound_below(pair, tests[-1], question, options, deadline, policy)
        else (Side.UPPER,)
    )
    sampled = run_named(resting_on(tests, pair), pair, sides, settings, question.answer)
    released, lowest = best(sampled, Side.UPPER), best(sampled, Side.LOWER)
    assert released is not None  # the tests have accepted
    assert released.value is not None
    whole = settings_for(question, pair, deadline, policy=policy)
    coarse = Settings(Resolution(COARSE_NODES, delta), deadline, effort=COARSE_EFFORT * policy.effort(RUNS))
    less, above = replace(policy, work=CHECK_SHARE * policy.work), (Side.UPPER,)
    certain = run_accountants(pair, question, coarse, policy=less, methods=methods, sides=above)
    most = released.value * (1.0 + COARSE_GOAL)
    if not _is_at_most(certain, most):
        # With little effort some methods say nothing, and are the best with more.
        silent = [
            outcome.method for outcome in certain if outcome.value is None and _may_say_more(outcome.method, pair)
        ]
        certain += run_accountants(pair, question, whole, policy=policy, methods=silent, sides=above) if silent else []
    below = []
    if lowest is None or not lowest.value or released.value > lowest.value * (1.0 + LOWER_GOAL):
        below = run_accountants(pair, question, whole, policy=policy, sides=(Side.LOWER,))
    # An upper bound without samples is none for what the tests may err beside it, and so no part of the certificate.
    return Release(
        certificate=certificate_of(mechanism, pair, question, [*sampled, *below], settings),
        certain=_is_at_most(certain, most),
        tested=True,
    )


def _may_say_more(method: str, pair: DominatingPair) -> bool:
    """Whether a method bounds this pair from above, and more effort helps it."""
    candidate = accountant(method)
    return candidate.plans_effort and candidate.why_not(pair, Side.UPPER) is None


def _is_at_most(outcomes: Sequence[Outcome], most: float) -> bool:
    """Whether the least upper bound is at most this."""
    least = best(outcomes, Side.UPPER)
    return least is not None and least.value is not None and least.value <= most


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
        work=BELOW_SHARE * policy.sampling,
        share=test.share,
    )
    below.sample()
    test.tallies += below.tallies
    return any(tally.chunks for tally in below.tallies)
