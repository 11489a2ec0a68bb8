"""calibrate: the smallest noise multiplier that a method certifies for a target."""

from collections.abc import Callable, Sequence

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.calibration.bracketing import smallest_passing
from hockeystick.calibration.estimate_verify_release import METHOD, verified_release
from hockeystick.certificate import Certificate
from hockeystick.certification.schedule import (
    COARSE_EFFORT,
    COARSE_NODES,
    DEFAULT_BUDGET,
    STOPPED,
    Outcome,
    best,
    certificate_of,
    fresh_deadline,
    run_accountants,
    settings_for,
)
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.release import verification_target
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import MonteCarlo, Settings
from hockeystick.types import Kind, Side

WIDTH = 4e-4
"""Relative width of the final bracket: the answer is within this of the smallest certified noise multiplier."""
COARSE_WIDTH = 5e-3
EVALUATIONS = 20.0
"""About how many times the chosen method is run; a heavy one that is too slow for that is not chosen."""
HEAVY = 3.0
"""Seconds; a lighter method is tried whatever the budget, and asks for more seconds if it has to."""
DETERMINISTIC_SHARE = 0.25
"""Of the budget, for the deterministic calibration that verification by sampling starts from."""
METHOD_GOAL = 5e-3
"""Relative gap on coarse grids at which the search for the best method stops."""


def calibrate(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: str | None = None,
    budget: float = DEFAULT_BUDGET,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
) -> Mechanism:
    """The mechanism with the smallest noise multiplier certified for (epsilon, delta), to 0.1 percent from above.

    The returned noise multiplier is the safe end of the final bracket: its certified epsilon was computed at the
    same grids as ``certify`` uses and is at most the target, and one that is 0.04 percent smaller was not certified
    by the same method. Ignores the noise multiplier that ``mechanism`` may have.

    Args:
        mechanism: strategy and sampler.
        epsilon, delta: the target, epsilon > 0 and delta in (0, 1).
        method: the accountant to trust; by default the best one near the solution.
        budget: seconds, not counting the one-time compilation of the kernels.
        deadline: progress and deadline of the caller; overrides ``budget``.
        monte_carlo: allows estimate-verify-release: less noise, verified by sampling, with the failure probability
            of the verification as a part of delta.

    Raises: CannotCertifyError when no noise multiplier up to 1e6 is certified, BudgetExceededError when the budget
    is over before the answer is found.
    """
    return calibrate_and_certify(
        mechanism,
        epsilon=epsilon,
        delta=delta,
        method=method,
        budget=budget,
        deadline=deadline,
        monte_carlo=monte_carlo,
    ).mechanism


def calibrate_and_certify(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: str | None = None,
    budget: float = DEFAULT_BUDGET,
    deadline: Deadline | None = None,
    monte_carlo: MonteCarlo | None = None,
) -> Certificate:
    """The certificate, for at most the target epsilon, of the mechanism that :func:`calibrate` returns."""
    check_target(epsilon)
    deadline = deadline or fresh_deadline(mechanism, budget)
    question = Question(delta=delta)
    if monte_carlo is None:
        return _deterministic(mechanism.pinned(), question, epsilon, method, deadline)
    # The last candidate is accepted without a test, so it has to meet what the tested ones have to meet.
    if not monte_carlo.failure_probability < delta:
        raise InvalidInputError(
            f"The 'failure_probability' field must be below delta = {delta!r}, of which it becomes a part. "
            f"Got {monte_carlo.failure_probability!r} instead."
        )
    target = Question(delta=verification_target(delta, monte_carlo.failure_probability))
    share = Deadline(DETERMINISTIC_SHARE * deadline.remaining(), deadline.on_tick)
    try:
        last = _deterministic(mechanism.pinned(), target, epsilon, None if method == METHOD else method, share)
    except BudgetExceededError:  # any candidate will do, and this one costs nothing
        last = _deterministic(mechanism.pinned(), target, epsilon, "gaussian", deadline)
    return verified_release(last, epsilon, delta, monte_carlo, deadline)


def _deterministic(
    mechanism: Mechanism, question: Question, epsilon: float, method: str | None, deadline: Deadline
) -> Certificate:
    delta = question.delta
    assert delta is not None
    fine = settings_for(question, dominating_pair(mechanism.with_noise(1.0)), deadline, runs=EVALUATIONS)
    coarse = Settings(Resolution(COARSE_NODES, delta), deadline, effort=COARSE_EFFORT * fine.effort)

    def certified(methods: list[str] | None, settings: Settings) -> Callable[[float], float]:
        def at(noise_multiplier: float) -> float:
            pair = dominating_pair(mechanism.with_noise(noise_multiplier))
            outcomes = run_accountants(pair, question, settings, methods=methods, sides=(Side.UPPER,), near=epsilon)
            found = best(outcomes, Side.UPPER)
            _check_time(outcomes)
            return float("inf") if found is None or found.value is None else found.value

        return at

    _, start = smallest_passing(certified(["gaussian"], coarse), epsilon, 1.0, COARSE_WIDTH)
    allowed = _affordable(mechanism.with_noise(start), deadline) if method is None else [method]
    chosen = _best_method(mechanism, question, coarse, start, epsilon, allowed)
    _, near = smallest_passing(certified([chosen], coarse), epsilon, start, COARSE_WIDTH)
    _, answer = smallest_passing(certified([chosen], fine), epsilon, near, WIDTH)
    certificate = _certified(mechanism, answer, question, fine, allowed)
    settled = certificate.method.upper
    if settled != chosen:  # certify found a better one, or one that is almost as good
        _, answer = smallest_passing(certified([settled], fine), epsilon, answer, WIDTH)
        certificate = _certified(mechanism, answer, question, fine, allowed)
    if certificate.bounds.upper > epsilon:
        raise BudgetExceededError(_OUT_OF_TIME)
    return certificate


def check_target(epsilon: float) -> None:
    """An epsilon that can be asked for."""
    if not 0.0 < epsilon <= 500.0:
        raise InvalidInputError(f"The 'epsilon' field must be above 0 and at most 500. Got {epsilon!r} instead.")


_OUT_OF_TIME = "The time budget is over before the calibration is done; allow more seconds."


def _check_time(outcomes: Sequence[Outcome]) -> None:
    if any(outcome.status == STOPPED for outcome in outcomes):
        raise BudgetExceededError(_OUT_OF_TIME)


def _affordable(mechanism: Mechanism, deadline: Deadline) -> list[str]:
    """The accountants that the time that is left allows to run again and again."""
    pair = dominating_pair(mechanism)
    longest = max(HEAVY, deadline.remaining() / EVALUATIONS)
    return [
        name
        for name, one in ACCOUNTANTS.items()
        if one.kind is Kind.DETERMINISTIC
        and one.assumes is None
        and one.why_not(pair, Side.UPPER) is None
        and one.cost(pair) <= longest
    ]


def _certified(
    mechanism: Mechanism, noise_multiplier: float, question: Question, settings: Settings, allowed: list[str]
) -> Certificate:
    """The certificate by those of the allowed accountants that apply at this noise multiplier."""
    found = mechanism.with_noise(noise_multiplier)
    pair = dominating_pair(found)
    applicable = [one for one in allowed if ACCOUNTANTS[one].why_not(pair, Side.UPPER) is None]
    outcomes = run_accountants(pair, question, settings, methods=applicable)
    return certificate_of(found, pair, question, outcomes, settings)


def _best_method(
    mechanism: Mechanism, question: Question, coarse: Settings, start: float, epsilon: float, allowed: list[str]
) -> str:
    """The allowed accountant with the smallest upper bound near the solution; two looks, from the Gaussian's answer."""
    if len(allowed) == 1:
        return allowed[0]
    noise, name = start, "gaussian"
    for _ in range(2):
        pair = dominating_pair(mechanism.with_noise(noise))
        applicable = [one for one in allowed if ACCOUNTANTS[one].why_not(pair, Side.UPPER) is None]
        outcomes = run_accountants(pair, question, coarse, methods=applicable, goal=METHOD_GOAL)
        _check_time(outcomes)
        found = best(outcomes, Side.UPPER)
        if found is None or found.method == name:
            return name
        name = found.method

        def at(trial: float, chosen: str = name) -> float:
            pair = dominating_pair(mechanism.with_noise(trial))
            outcomes = run_accountants(pair, question, coarse, methods=[chosen], sides=(Side.UPPER,), near=epsilon)
            _check_time(outcomes)
            outcome = best(outcomes, Side.UPPER)
            return float("inf") if outcome is None or outcome.value is None else outcome.value

        _, noise = smallest_passing(at, epsilon, noise, 0.1)
    return name
