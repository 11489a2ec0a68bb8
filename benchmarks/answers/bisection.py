"""Calibration for libraries that only compute epsilon: the harness's own bisection, to 0.1 percent from above."""

from collections.abc import Callable

TOLERANCE = 1e-3


def smallest_noise(epsilon_at: Callable[[float], float], target: float, start: float) -> float:
    """The passing end of the final bracket; ``epsilon_at`` falls with the noise."""
    low = high = start
    while epsilon_at(high) > target:
        low, high = high, 1.5 * high
    while low == high or epsilon_at(low) <= target:
        high, low = min(low, high), min(low, high) / 1.5
    while high - low > TOLERANCE * high:
        middle = (low + high) / 2.0
        if epsilon_at(middle) > target:
            low = middle
        else:
            high = middle
    return high
