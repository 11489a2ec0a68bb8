"""calibrate: the smallest noise multiplier that is certified for a target."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt

from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT, accountant
from hockeystick.bounds import Question, check_target
from hockeystick.bracketing import smallest_passing
from hockeystick.calibration.estimate_verify_release import METHOD, verified_release
from hockeystick.certificate import Certificate, CutOff
from hockeystick.certification.description import check_floor, drawn_by
from hockeystick.certification.issue import PORTABLE, certificate_of, certify, certify_with, prepared
from hockeystick.certification.schedule import (
    COARSE_EFFORT,
    COARSE_NODES,
    CUT_OFF,
    Outcome,
    best,
    chosen_accountants,
    planned,
    run_accountants,
    settings_for,
)
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.release import verification_target
from hockeystick.noise.generators import floor, known
from hockeystick.pairs.registry import dominating_pair
from hockeystick.plan import Plan, Target, split
from hockeystick.settings import MonteCarlo, SearchPolicy, Settings
from hockeystick.spec import LARGEST_NOISE
from hockeystick.types import Kind, Side

WIDTH = 4e-4
"""Relative width of the final bracket: the answer is within this of the smallest certified noise multiplier."""
COARSE_WIDTH = 5e-3
LOOSE_WIDTH = 1e-3
"""The same where every evaluation takes all the effort that certify has."""
EVALUATIONS = 20.0
"""About how many times the chosen method is run; a heavy one that is too slow for that is not chosen."""
SLOPE = 0.6
"""About how many percent of noise go with one percent of epsilon; a guess from which brackets start."""
QUICK = 0.6
"""Standard seconds; where others take longer, the methods below give a first answer before the search for the best."""
HEAVY = 3.0
"""Standard seconds; a lighter method is tried however little work may be planned."""
DETERMINISTIC_SHARE = 0.25
"""Of work and time, for the deterministic calibration that verification by sampling starts from."""
APPROACHES = 4
"""Evaluations that may come close to a solution that is about known, before a bracket is put around it."""
METHOD_GOAL = 5e-3
"""Relative gap on coarse grids at which the search for the best method stops."""


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
    target. A noise multiplier 0.1 percent smaller was not certified by the same method. When a deadline passes, the
    answer is the smallest noise multiplier that was certified so far, by the unamplified Gaussian at worst. Ignores the
    noise multiplier that ``mechanism`` may have.

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
    return calibrate_and_certify(
        mechanism,
        epsilon=epsilon,
        delta=delta,
        method=method,
        budget=budget,
        deadline=deadline,
        monte_carlo=monte_carlo,
        generator=generator,
    ).mechanism


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
    mechanism, wanted = split(mechanism)
    epsilon, delta = _given("epsilon", epsilon, wanted), _given("delta", delta, wanted)
    check_target(epsilon)
    question = Question(delta=delta)
    if method is not None:
        accountant(method)  # refuses unknown names before anything is computed
    if monte_carlo is not None and not monte_carlo.failure_probability < delta:
        raise InvalidInputError(
            f"The 'failure_probability' field must be below delta = {delta!r}, of which it becomes a part. "
            f"Got {monte_carlo.failure_probability!r} instead."
        )
    if generator is not None:
        known(generator)  # refuses unknown names too
    policy, deadline = planned(mechanism, budget, deadline)
    mechanism = prepared(mechanism, deadline, monte_carlo)
    certificate = _calibrated(mechanism, question, epsilon, method, deadline, policy, monte_carlo)
    if generator is None:
        return certificate
    found = certificate.mechanism
    least = _least_noise(found, generator, delta)
    if least > found.sigma:
        certificate = certify(found.with_noise(least), delta=delta, method=method, budget=budget, deadline=deadline)
    return drawn_by(certificate, generator)


def whole_certificate(
    mechanism: Mechanism, *, epsilon: float, delta: float, deadline: Deadline, monte_carlo: MonteCarlo | None = None
) -> Certificate:
    """What :func:`calibrate_and_certify` returns, within a deadline that includes the compilation of kernels.

    Args:
        monte_carlo: as for :func:`calibrate`; with a failure probability below delta.

    Raises: as :func:`calibrate`.
    """
    check_target(epsilon)
    question, policy = Question(delta=delta), SearchPolicy()
    return _calibrated(prepared(mechanism, deadline), question, epsilon, None, deadline, policy, monte_carlo)


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


def _deterministic(mechanism: Mechanism, epsilon: float, delta: float, deadline: Deadline) -> "_Search":
    """A search with the default plan that compiles nothing ahead, as a deadline of seconds leaves no time for that."""
    check_target(epsilon)
    question, policy = Question(delta=delta), SearchPolicy()
    return _Search(prepared(mechanism, deadline), question, epsilon, None, deadline, policy)


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
    exact = _Search(mechanism, question, epsilon, own, deadline, policy)
    if monte_carlo is None:
        return exact.certificate()
    share, less = deadline.part(DETERMINISTIC_SHARE), replace(policy, work=DETERMINISTIC_SHARE * policy.work)
    # Where a test is made it may err, and what is released in its place has to meet what the tested ones have to meet.
    target = Question(delta=verification_target(delta, monte_carlo.failure_probability))
    last = _Search(mechanism, target, epsilon, own, share, less).rough(1.0)
    release = verified_release(last, epsilon, delta, monte_carlo, deadline, policy, exact.methods)
    verified = release.certificate
    if verified is not None and not release.certain:
        return verified
    if release.tested:
        exact = _Search(mechanism, target, epsilon, own, deadline, policy)
    certain = exact.certificate()
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


class _Search:
    """The search for the smallest certified noise multiplier; it remembers the best that is certified so far.

    Args:
        epsilon: the target; the search aims below it by what issuing a certificate gives away.
        method: the accountant to use; None to find the best.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        question: Question,
        epsilon: float,
        method: str | None,
        deadline: Deadline,
        policy: SearchPolicy,
    ) -> None:
        assert question.delta is not None
        self.mechanism, self.question, self.epsilon = mechanism, question, epsilon * (1.0 - 2.0 * PORTABLE)
        self.methods, self.policy = None if method is None else [method], policy
        pair = dominating_pair(mechanism.with_noise(1.0))
        self.full = settings_for(question, pair, deadline, policy=policy)
        if self.methods:
            chosen_accountants(self.methods, dominating_pair(mechanism.with_noise(LARGEST_NOISE)), self.full)
        self.fine = replace(self.full, effort=policy.effort(EVALUATIONS))
        coarse = Resolution(COARSE_NODES, question.delta)
        self.coarse = Settings(coarse, deadline, effort=COARSE_EFFORT * self.fine.effort)
        self.best: tuple[float, Sequence[Outcome], Settings] | None = None
        self.cut: list[Outcome] = []
        self.last: tuple[float, Sequence[Outcome], Settings] | None = None

    def certificate(self) -> Certificate:
        """The certificate of the answer, or of the best so far when the deadline passes."""
        answer = self.smallest(["gaussian"], self.coarse, 1.0, COARSE_WIDTH)
        try:
            self._first_answer(answer)
            final = self._searched(answer)
        except BudgetExceededError:
            final = None
        if final is None or not self._meets(final):  # certify may skip a heavy method where a cheap one nearly suffices
            return self._so_far()
        assert self.last is not None  # the search ends with what was asked last
        return self._issued(*self.last)

    def rough(self, near: float) -> Certificate:
        """The certificate of the least noise on coarse grids, or of the best so far when the deadline passes."""
        near = min(near, self.smallest(["gaussian"], self.coarse, near, COARSE_WIDTH))
        try:
            affordable = self.methods or self._affordable(near)
            found = best(self.run(near, affordable, self.coarse, (Side.UPPER, Side.LOWER), METHOD_GOAL), Side.UPPER)
            if found is not None and found.value is not None and found.method != "gaussian":
                near *= (found.value / self.epsilon) ** SLOPE
                self.smallest([found.method], self.coarse, near, COARSE_WIDTH)
        except BudgetExceededError:
            pass
        return self._so_far(whole=False)

    def refined(self, method: str, near: float) -> Certificate:
        """The certificate of the least noise on fine grids by one method, or of the best so far."""
        self.smallest(["gaussian"], self.coarse, near, COARSE_WIDTH)
        try:
            self._approach(method, near)
            assert self.best is not None
            noise, outcomes, settings = self.best
            self.best = noise, [*outcomes, *self.run(noise, [method], self.fine, (Side.LOWER,))], settings
        except BudgetExceededError:
            pass
        return self._so_far(whole=False)

    def _approach(self, method: str, noise: float) -> None:
        """Evaluate on fine grids until a noise multiplier passes that is within ``WIDTH`` of where it would just pass.

        That place is extrapolated by ``SLOPE``, which is enough close to it: each evaluation takes seconds, and a
        bracket would need one more to fail.
        """
        for _ in range(APPROACHES):
            value = self.upper(noise, [method], self.fine)
            if not 0.0 < value < inf:
                break
            just = noise * (value / self.epsilon) ** SLOPE
            if value <= self.epsilon and noise <= just * (1.0 + 0.5 * WIDTH):
                return
            noise = just * (1.0 + 0.25 * WIDTH)
        self.smallest([method], self.fine, noise, WIDTH)

    def _so_far(self, *, whole: bool = True) -> Certificate:
        """The certificate of the least noise that has passed."""
        assert self.best is not None  # the Gaussian has passed
        noise, outcomes, settings = self.best
        return self._issued(noise, [*outcomes, *self.cut], settings, whole=whole)

    def smallest(self, methods: Sequence[str] | None, settings: Settings, start: float, width: float) -> float:
        """The smallest noise multiplier that passes with these methods, to a relative ``width``."""
        _, passes = smallest_passing(lambda noise: self.upper(noise, methods, settings), self.epsilon, start, width)
        return passes

    def upper(self, noise: float, methods: Sequence[str] | None, settings: Settings) -> float:
        """The certified epsilon; raises BudgetExceededError when the deadline cuts a method off."""
        both = methods is None  # as certify, which stops when the two sides meet
        sides = (Side.UPPER, Side.LOWER) if both else (Side.UPPER,)
        found = best(self.run(noise, methods, settings, sides), Side.UPPER)
        return inf if found is None or found.value is None else found.value

    def run(
        self, noise: float, methods: Sequence[str] | None, settings: Settings, sides: Sequence[Side], goal: float = 0.0
    ) -> list[Outcome]:
        """The outcomes at a noise multiplier; those that pass with the least noise are remembered."""
        pair = dominating_pair(self.mechanism.with_noise(noise))
        if methods is not None:  # some of them need more noise than others
            methods = [name for name in methods if ACCOUNTANTS[name].why_not(pair, Side.UPPER) is None]
        policy = replace(self.policy, gap_goal=goal) if goal else self.policy
        near = None if settings is self.full else self.epsilon  # at its defaults, exactly as certify does
        outcomes = run_accountants(
            pair, self.question, settings, policy=policy, methods=methods, sides=sides, near=near
        )
        found = best(outcomes, Side.UPPER)
        passes = found is not None and found.value is not None and found.value <= self.epsilon
        if passes and (self.best is None or noise <= self.best[0]):
            self.best = noise, outcomes, settings
        self.cut = [
            replace(outcome, needs=EVALUATIONS * outcome.needs)
            for outcome in outcomes
            if outcome.needs is not None and outcome.status.startswith(CUT_OFF)
        ]
        if self.cut and methods != ["gaussian"]:
            raise BudgetExceededError("The deadline passed during the calibration.")
        return outcomes

    def _first_answer(self, start: float) -> None:
        """Remember and report what the methods that compile and run quickly certify; the search does not use it."""
        affordable = self._affordable(start)
        pair = dominating_pair(self.mechanism.with_noise(start))
        quick = [name for name in affordable if ACCOUNTANTS[name].seconds(pair) <= QUICK]
        if self.methods is None and {"gaussian"} < set(quick) < set(affordable):
            self.smallest(quick, self.coarse, start, COARSE_WIDTH)
            self._report()

    def _report(self) -> None:
        """Report the smallest noise multiplier that is certified so far."""
        assert self.best is not None  # the Gaussian has passed
        noise, outcomes, _ = self.best
        found = best(outcomes, Side.UPPER)
        assert found is not None
        self.full.deadline.report(
            f"noise_multiplier = {noise!r} is certified so far ({found.method}); looking for less"
        )

    def _searched(self, start: float) -> Certificate | None:
        chosen, near = self._best_method(start)
        if chosen != "gaussian" or self.methods:
            near = self.smallest([chosen], self.coarse, near, COARSE_WIDTH)
            self._report()
        answer = self.smallest([chosen], self.fine, near, WIDTH)
        final = self._final(answer)
        settled = final.method.upper
        if settled != chosen:  # certify found a better one, or one that is almost as good
            answer = self.smallest([settled], self.fine, answer, WIDTH)
            final = self._final(answer)
        if self._meets(final) and final.bounds.upper >= self.epsilon * (1.0 - METHOD_GOAL):
            return final
        if self._meets(final):  # with more effort the same method gives less
            answer = self.smallest([final.method.upper], self.full, answer, LOOSE_WIDTH)
            return self._final(answer)
        answer = self.smallest(self.methods, self.full, answer, WIDTH)
        return self._final(answer)

    def _meets(self, certificate: Certificate) -> bool:
        """Whether what the certificate states is at most the target that was asked for."""
        return certificate.bounds.upper <= self.epsilon * (1.0 + 2.0 * PORTABLE)

    def _final(self, noise: float) -> Certificate:
        """What certify says at its defaults."""
        self.last = noise, self.run(noise, self.methods, self.full, (Side.UPPER, Side.LOWER)), self.full
        return self._issued(*self.last, whole=False)

    def _issued(
        self, noise: float, outcomes: Sequence[Outcome], settings: Settings, *, whole: bool = True
    ) -> Certificate:
        found = self.mechanism.with_noise(noise)
        return certificate_of(found, dominating_pair(found), self.question, outcomes, settings, whole=whole)

    def _affordable(self, noise: float) -> list[str]:
        """The default accountants that the planned work allows to run again and again."""
        pair = dominating_pair(self.mechanism.with_noise(noise))
        longest = max(HEAVY, self.policy.work / EVALUATIONS)
        return [
            name
            for name in DEFAULT
            if (one := ACCOUNTANTS[name]).kind is Kind.DETERMINISTIC
            and one.why_not(pair, Side.UPPER) is None
            and one.seconds(pair) <= longest
        ]

    def _best_method(self, start: float) -> tuple[str, float]:
        """The accountant with the smallest upper bound near the solution, and about where that is; two looks."""
        allowed = self.methods or self._affordable(start)
        if len(allowed) == 1:
            return allowed[0], start
        noise, name = start, "gaussian"
        for _ in range(2):
            found = best(self.run(noise, allowed, self.coarse, (Side.UPPER, Side.LOWER), METHOD_GOAL), Side.UPPER)
            if found is None or found.method == name:
                break
            name = found.method
            noise = self.smallest([name], self.coarse, noise, 0.1)
        return name, noise
