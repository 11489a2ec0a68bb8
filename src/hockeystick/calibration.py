"""calibrate: the smallest noise multiplier that a method certifies for a target."""

from collections.abc import Callable, Sequence
from math import exp, log

from hockeystick.accountants.base import Settings
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.certificate import Certificate
from hockeystick.certification import (
    COARSE_NODES,
    DEFAULT_BUDGET,
    STOPPED,
    Outcome,
    best,
    certify_with,
    check_budget,
    run_accountants,
    settings_for,
)
from hockeystick.errors import BudgetExceededError, CannotCertifyError, InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import dominating_pair
from hockeystick.types import Kind, Side
from hockeystick.watch import Watch

SMALLEST_NOISE = 1e-2
LARGEST_NOISE = 1e6
WIDTH = 4e-4
"""Relative width of the final bracket: the answer is within this of the smallest certified noise multiplier."""
COARSE_WIDTH = 5e-3
EVALUATIONS = 20.0
"""About how many times the chosen method is run; a heavy one that is too slow for that is not chosen."""
HEAVY = 3.0
"""Seconds; a lighter method is tried whatever the budget, and asks for more seconds if it has to."""
METHOD_GOAL = 5e-3
"""Relative gap on coarse grids at which the search for the best method stops."""


def calibrate(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: str | None = None,
    budget: float = DEFAULT_BUDGET,
    watch: Watch | None = None,
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
        watch: progress and deadline of the caller; overrides ``budget``.

    Raises: CannotCertifyError when no noise multiplier up to 1e6 is certified, BudgetExceededError when the budget
    is over before the answer is found.
    """
    return calibrate_and_certify(
        mechanism, epsilon=epsilon, delta=delta, method=method, budget=budget, watch=watch
    ).mechanism


def calibrate_and_certify(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: str | None = None,
    budget: float = DEFAULT_BUDGET,
    watch: Watch | None = None,
) -> Certificate:
    """The certificate, for at most the target epsilon, of the mechanism that :func:`calibrate` returns."""
    check_target(epsilon)
    question = Question(delta=delta)
    mechanism = mechanism.pinned()
    watch = watch or Watch(seconds=check_budget(budget))
    fine = settings_for(question, dominating_pair(mechanism.with_noise(1.0)), watch)
    coarse = Settings(Resolution(COARSE_NODES, delta), watch)

    def certified(methods: list[str] | None, settings: Settings) -> Callable[[float], float]:
        def at(noise_multiplier: float) -> float:
            pair = dominating_pair(mechanism.with_noise(noise_multiplier))
            outcomes = run_accountants(pair, question, settings, methods=methods, sides=(Side.UPPER,))
            found = best(outcomes, Side.UPPER)
            _check_time(outcomes)
            return float("inf") if found is None or found.value is None else found.value

        return at

    _, start = smallest_passing(certified(["gaussian"], coarse), epsilon, 1.0, COARSE_WIDTH)
    allowed = _affordable(mechanism.with_noise(start), watch) if method is None else [method]
    chosen = _best_method(mechanism, question, coarse, start, epsilon, allowed)
    _, near = smallest_passing(certified([chosen], coarse), epsilon, start, COARSE_WIDTH)
    _, answer = smallest_passing(certified([chosen], fine), epsilon, near, WIDTH)
    certificate = _certified(mechanism, answer, question, watch, allowed)
    settled = certificate.method.upper
    if settled != chosen:  # certify found a better one, or one that is almost as good
        _, answer = smallest_passing(certified([settled], fine), epsilon, answer, WIDTH)
        certificate = _certified(mechanism, answer, question, watch, allowed)
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


def _affordable(mechanism: Mechanism, watch: Watch) -> list[str]:
    """The accountants that the time that is left allows to run again and again."""
    pair = dominating_pair(mechanism)
    longest = max(HEAVY, watch.remaining() / EVALUATIONS)
    return [
        name
        for name, one in ACCOUNTANTS.items()
        if one.kind is Kind.DETERMINISTIC and one.why_not(pair, Side.UPPER) is None and one.cost(pair) <= longest
    ]


def _certified(
    mechanism: Mechanism, noise_multiplier: float, question: Question, watch: Watch, allowed: list[str]
) -> Certificate:
    """The certificate by those of the allowed accountants that apply at this noise multiplier."""
    found = mechanism.with_noise(noise_multiplier)
    pair = dominating_pair(found)
    applicable = [one for one in allowed if ACCOUNTANTS[one].why_not(pair, Side.UPPER) is None]
    return certify_with(found, question, watch, applicable)


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
            outcomes = run_accountants(pair, question, coarse, methods=[chosen], sides=(Side.UPPER,))
            _check_time(outcomes)
            outcome = best(outcomes, Side.UPPER)
            return float("inf") if outcome is None or outcome.value is None else outcome.value

        _, noise = smallest_passing(at, epsilon, noise, 0.1)
    return name


def smallest_passing(
    epsilon_at: Callable[[float], float], target: float, start: float, width: float
) -> tuple[float, float]:
    """A bracket (fails, passes) of relative width ``width`` around the smallest noise with ``epsilon_at <= target``.

    ``epsilon_at`` falls with the noise multiplier. Steps by secants in log-log coordinates inside a bracket, halving
    it whenever they stall; the passing end was evaluated, never extrapolated. When even the smallest noise multiplier
    allowed passes, both ends are that one.

    Raises: CannotCertifyError when the largest noise multiplier allowed does not pass.
    """

    def miss(x: float) -> float:
        value = epsilon_at(exp(x))
        return log(min(max(value, 1e-12), 1e12) / target)

    bottom, top = log(SMALLEST_NOISE), log(LARGEST_NOISE)
    x = min(max(log(start), bottom), top)
    fx = miss(x)
    step = 2.0 * width
    low = high = x
    f_low = f_high = fx
    while f_high > 0.0:
        if high >= top:
            raise CannotCertifyError(
                f"No noise_multiplier up to {LARGEST_NOISE:g} is certified for epsilon = {target:g}; "
                f"ask for a larger epsilon or delta, or train for fewer steps."
            )
        low, f_low = high, f_high
        high = min(high + max(step, 1.1 * f_high), top)
        step *= 3.0
        f_high = miss(high)
    while f_low <= 0.0:
        if low <= bottom:
            return exp(bottom), exp(bottom)
        high, f_high = low, f_low
        low = max(low - max(step, -1.1 * f_low), bottom)
        step *= 3.0
        f_low = miss(low)
    stalled = 0
    while high - low > width:
        guess = low + (high - low) * f_low / (f_low - f_high)
        if stalled >= 2:
            guess = 0.5 * (low + high)
        # Aim at both sides of the root in turn, so that the bracket closes from both ends.
        guess = min(max(guess, low + 0.45 * width), high - 0.45 * width)
        f_guess = miss(guess)
        shrunk = high - low
        if f_guess <= 0.0:
            high, f_high = guess, f_guess
        else:
            low, f_low = guess, f_guess
        stalled = stalled + 1 if high - low > 0.5 * shrunk else 0
    return exp(low), exp(high)
