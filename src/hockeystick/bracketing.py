"""The smallest noise multiplier that passes a test, between two ends that were both evaluated."""

from collections.abc import Callable
from math import exp, log

from hockeystick.errors import CannotCertifyError

SMALLEST_NOISE = 1e-2
LARGEST_NOISE = 1e6
"""The noise multipliers that a mechanism may have."""


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
