"""Where a falling function passes a target, between two ends that were both evaluated."""

from collections.abc import Callable
from math import exp, log

from hockeystick.errors import CannotCertifyError
from hockeystick.spec import LARGEST_NOISE, SMALLEST_NOISE


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
    low, high = close_bracket(miss, (low, f_low), (high, f_high), width)
    return exp(low), exp(high)


def close_bracket(
    falling: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], width: float
) -> tuple[float, float]:
    """A bracket of at most ``width`` around the place where a function falls to 0 or below.

    Secants inside the bracket, halving it whenever they stall. Both ends that are returned were evaluated: the
    function is above 0 at the first and at most 0 at the second.

    Args:
        falling: the function; what it says beyond the bracket is never asked.
        low, high: place and value at both ends, above 0 at ``low``, at most 0 at ``high``.
        width: >= a few ulps of the places.
    """
    (x_low, f_low), (x_high, f_high) = low, high
    stalled, kept = 0, 0
    while x_high - x_low > width:
        guess = x_low + (x_high - x_low) * f_low / (f_low - f_high)
        if stalled >= 3 or not x_low <= guess <= x_high:
            guess, stalled = 0.5 * (x_low + x_high), 0
        # Aim at both sides of the root in turn, so that the bracket closes from both ends.
        guess = min(max(guess, x_low + 0.45 * width), x_high - 0.45 * width)
        value, before = falling(guess), x_high - x_low
        # An end that is kept twice in a row counts half (Illinois), or curvature would keep it for ever.
        if value <= 0.0:
            x_high, f_high, f_low = guess, value, f_low * (0.5 if kept < 0 else 1.0)
            kept = -1
        else:
            x_low, f_low, f_high = guess, value, f_high * (0.5 if kept > 0 else 1.0)
            kept = 1
        stalled = stalled + 1 if x_high - x_low > 0.5 * before else 0
    return x_low, x_high
