"""calibrate: the smallest noise multiplier that is certified for a target."""

from dataclasses import dataclass, replace
from math import sqrt

from hockeystick.accountants.registry import accountant
from hockeystick.bounds import Question, check_target
from hockeystick.calibration.estimate_verify_release import METHOD, verified_release
from hockeystick.calibration.first_guess import SLOPE
from hockeystick.calibration.noise_search import WIDTH, NoiseSearch
from hockeystick.calls import called
from hockeystick.certificate import Certificate, CutOff
from hockeystick.certification.description import check_floor, drawn_by
from hockeystick.certification.issue import certify, certify_with, prepared
from hockeystick.certification.schedule import check_sampling, planned
from hockeystick.claim import verification_target
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise.generators import floor, known
from hockeystick.plan import Plan, Target, split
from hockeystick.settings import MonteCarlo, SearchPolicy
from hockeystick.spec import LARGEST_NOISE
from hockeystick.types import Side

DETERMINISTIC_SHARE = 0.25
"""Of work and time, for the deterministic calibration that verification by sampling starts from."""
SMALL_PART = 1e-3
"""Of delta: where tests may err by no more than this, the noise that is found for delta probably pays for them too."""


@called("hs.calibrate(run, epsilon=2.0, delta=1e-5)")
def calibrate(
    mechanism: Mechanism | Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    method: str | None = None,
    budget: float | None = None,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
    generator: str | None = None,
) -> Mechanism:
    """The mechanism with the smallest noise multiplier certified for (epsilon, delta), to 0.1 percent from above.

    Called at its defaults, it returns a mechanism that ``certify`` at its defaults certifies for at most the
    target. By the last two bounds of the search, the same method would not certify a noise multiplier 0.1 percent
    smaller. When a deadline passes, the answer is the smallest noise multiplier that was certified so far, by the
    unamplified Gaussian at worst. Ignores the noise multiplier that ``mechanism`` may have.

    Args:
        mechanism: strategy and sampler; or a plan.
        epsilon, delta: the target, epsilon > 0 and delta in (0, 1); by default those of the plan.
        method: the accountant to trust; by default the best one near the solution.
        budget: seconds, not counting the one-time compilation of the kernels: how much work to plan, and the deadline.
            None plans about a minute of work and sets no deadline.
        deadline: progress and deadline of the caller, in place of the budget's.
        monte_carlo: allows estimate-verify-release: less noise, verified by sampling, with the failure probability
            of the verification as a part of delta.
        generator: whose normal numbers the noise will be made of, as for :func:`certify`: the answer has as much noise
            as it takes for them not to refute the target.

    Raises: InvalidInputError without a target; CannotCertifyError when no noise multiplier up to 1e6 is certified;
        BudgetExceededError when the deadline passes while the strategy matrix is optimised.

    >>> import hockeystick as hs
    >>> run = hs.calibrate(hs.Mechanism(sampler=hs.Deterministic(bins=10)), epsilon=2.0, delta=1e-5)
    >>> hs.certify(run, delta=1e-5).epsilon.upper <= 2.0
    True
    """
    task = _task(mechanism, epsilon, delta, method, budget, deadline, monte_carlo, generator)
    if monte_carlo is None and generator is None:
        return task.mechanism.with_noise(task.search().answer().noise)
    return task.certificate().mechanism


@called("hs.calibrate_and_certify(run, epsilon=2.0, delta=1e-5)")
def calibrate_and_certify(
    mechanism: Mechanism | Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    method: str | None = None,
    budget: float | None = None,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
    generator: str | None = None,
) -> Certificate:
    """The certificate, for at most the target epsilon, of the mechanism that :func:`calibrate` returns.

    What the deadline cut off is in ``certificate.cut_off``, with the seconds that it would have needed.
    """
    return _task(mechanism, epsilon, delta, method, budget, deadline, monte_carlo, generator).certificate()


@dataclass(frozen=True)
class _Task:
    """A calibration whose arguments are checked and whose work is planned; the fields are those of ``calibrate``."""

    mechanism: Mechanism
    question: Question
    epsilon: float
    method: str | None
    deadline: Deadline
    policy: SearchPolicy
    monte_carlo: MonteCarlo | None
    generator: str | None
    budget: float | None

    def search(self) -> NoiseSearch:
        """The search without samples."""
        return NoiseSearch(self.mechanism, self.question, self.epsilon, self.method, self.deadline, self.policy)

    def certificate(self) -> Certificate:
        """The certificate of the least noise, whoever draws it."""
        certificate = _calibrated(
            self.mechanism, self.question, self.epsilon, self.method, self.deadline, self.policy, self.monte_carlo
        )
        if self.generator is None:
            return certificate
        assert self.question.delta is not None
        mechanism = certificate.mechanism
        least = _least_noise(mechanism, self.generator, self.question.delta)
        if least > mechanism.sigma:
            louder = mechanism.with_noise(least)
            delta, method = self.question.delta, self.method
            certificate = certify(louder, delta=delta, method=method, budget=self.budget, deadline=self.deadline)
        return drawn_by(certificate, self.generator)


def _task(
    mechanism: Mechanism | Plan,
    epsilon: float | None,
    delta: float | None,
    method: str | None,
    budget: float | None,
    deadline: Deadline | None,
    monte_carlo: MonteCarlo | None,
    generator: str | None,
) -> _Task:
    """Raises InvalidInputError for a target that is missing or out of range, and for unknown names."""
    mechanism, wanted = split(mechanism)
    epsilon, delta = _given("epsilon", epsilon, wanted), _given("delta", delta, wanted)
    target, question = check_target(epsilon), Question(delta=delta)
    if method is not None:
        accountant(method)  # refuses unknown names before anything is computed
    check_sampling(monte_carlo)
    if monte_carlo is not None:
        monte_carlo.check_part_of(delta)
    if generator is not None:
        known(generator)  # refuses unknown names too
    policy, deadline = planned(mechanism, budget, deadline)
    mechanism = prepared(mechanism, deadline, monte_carlo)
    return _Task(mechanism, question, target, method, deadline, policy, monte_carlo, generator, budget)


def whole_certificate(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    deadline: Deadline,
    method: str | None = None,
    monte_carlo: MonteCarlo | None = None,
) -> Certificate:
    """What :func:`calibrate_and_certify` returns, within a deadline that includes the compilation of kernels.

    Args:
        method: as for :func:`calibrate`.
        monte_carlo: as for :func:`calibrate`; with a failure probability below delta.

    Raises: as :func:`calibrate`.
    """
    check_target(epsilon)
    question, policy = Question(delta=delta), SearchPolicy()
    return _calibrated(prepared(mechanism, deadline), question, epsilon, method, deadline, policy, monte_carlo)


def rough_certificate(
    mechanism: Mechanism, *, epsilon: float, delta: float, near: float, deadline: Deadline
) -> Certificate:
    """A certificate for at most the target, in a fraction of the time that :func:`calibrate_and_certify` takes.

    Its noise multiplier was certified on coarse grids, and is usually within a percent of the smallest one. When the
    deadline passes, it is the smallest that was certified so far, by the unamplified Gaussian at worst.

    Args:
        near: about where the noise multiplier is; affects speed, and which method is chosen.

    Raises: as :func:`calibrate`.
    """
    return _deterministic(mechanism, epsilon, delta, deadline).rough(near)


def refined_certificate(rough: Certificate, *, epsilon: float, delta: float, deadline: Deadline) -> Certificate:
    """A certificate of about the smallest noise multiplier that the method of a rough certificate certifies.

    The noise multiplier is that of :func:`calibrate`, to about twice its width, unless another method has less on fine
    grids. There is no search for the best lower bound, nor for the attack numbers of the whole profile, which may take
    longer than all the rest. A deadline is kept as for :func:`rough_certificate`.

    Args:
        rough: a certificate for the same mechanism and target.

    Raises: as :func:`calibrate`.
    """
    near = rough.mechanism.sigma * (rough.bounds.upper / epsilon) ** SLOPE
    return _deterministic(rough.mechanism, epsilon, delta, deadline).refined(rough.method.upper, near)


def _deterministic(mechanism: Mechanism, epsilon: float, delta: float, deadline: Deadline) -> NoiseSearch:
    """A search with the default plan that compiles nothing ahead, as a deadline of seconds leaves no time for that."""
    check_target(epsilon)
    question, policy = Question(delta=delta), SearchPolicy()
    return NoiseSearch(prepared(mechanism, deadline), question, epsilon, None, deadline, policy)


def _least_noise(mechanism: Mechanism, generator: str, delta: float) -> float:
    """The smallest noise multiplier from the mechanism's on, to ``WIDTH`` from above, whose floor is at most delta.

    Raises: CannotCertifyError when there is none up to the largest.
    """
    low = high = mechanism.sigma
    while floor(mechanism.with_noise(high), generator) > delta:
        if high >= LARGEST_NOISE:
            check_floor(mechanism.with_noise(high), generator, delta)
        low, high = high, min(2.0 * high, LARGEST_NOISE)
    while high > low * (1.0 + WIDTH):
        middle = sqrt(low * high)
        if floor(mechanism.with_noise(middle), generator) > delta:
            low = middle
        else:
            high = middle
    return high


def _calibrated(
    mechanism: Mechanism,
    question: Question,
    epsilon: float,
    method: str | None,
    deadline: Deadline,
    policy: SearchPolicy,
    monte_carlo: MonteCarlo | None,
) -> Certificate:
    """The certificate of the least noise, whoever draws it."""
    delta = question.delta
    assert delta is not None
    own = None if monte_carlo is not None and method == METHOD else method
    exact = NoiseSearch(mechanism, question, epsilon, own, deadline, policy)
    if monte_carlo is None:
        return exact.certificate()
    share, less = deadline.part(DETERMINISTIC_SHARE), replace(policy, work=DETERMINISTIC_SHARE * policy.work)
    # Where a test is made it may err, and what is released in its place has to meet what the tested ones have to meet.
    target = Question(delta=verification_target(delta, monte_carlo.failure_probability))
    look = NoiseSearch(mechanism, target, epsilon, own, share, less)
    last = look.rough(1.0)
    near = min(look.from_below or last.mechanism.sigma, last.mechanism.sigma)
    release = verified_release(last, epsilon, delta, monte_carlo, deadline, policy, exact.methods, near)
    verified = release.certificate
    if verified is not None and not release.certain:
        return verified
    # The same noise as where no samples are allowed, wherever its bound leaves room for what the tests may err.
    certain = None
    if not release.tested or monte_carlo.failure_probability <= SMALL_PART * delta:
        certain = exact.certificate()
    if certain is None or (release.tested and not exact.answer_meets(target)):
        certain = NoiseSearch(mechanism, target, epsilon, own, deadline, policy).certificate()
    if verified is not None and verified.mechanism.sigma < certain.mechanism.sigma:
        return verified
    if last.mechanism.sigma < certain.mechanism.sigma:  # the deadline passed
        certain = last
    if certain.delta != delta:
        certain = _restated(certain, question, deadline, policy)
    return certain if release.budget is None else _would_take(certain, release.budget - policy.work)


def _restated(last: Certificate, question: Question, deadline: Deadline, policy: SearchPolicy) -> Certificate:
    """The same deterministic bound, for the delta that was asked for.

    Where that is looser, because less work may be planned, the certificate for the smaller delta stands: it says more.
    """
    restated = certify_with(last.mechanism, question, deadline, [last.method.upper], None, policy)
    return restated if restated.bounds.upper <= last.bounds.upper else last


def _would_take(certificate: Certificate, seconds: float) -> Certificate:
    """The certificate with Monte Carlo among what there was no time for."""
    left = CutOff(method=METHOD, side=Side.UPPER, seconds=max(seconds, 0.0))
    origin = certificate.origin.model_copy(update={"cut_off": (*certificate.cut_off, left)})
    return certificate.model_copy(update={"origin": origin}).sealed()


def _given(name: str, value: float | None, target: Target) -> float:
    """An argument, or what the target has in its place; raises InvalidInputError where it has nothing."""
    chosen: float | None = getattr(target, name) if value is None else value
    if chosen is None:
        raise InvalidInputError(f"The {name!r} argument has to be given, or a plan whose [target] has it.")
    return chosen
