"""Largest values that several proposals share (docs/theory/monte-carlo/subsets.md)."""

from collections.abc import Callable, Iterable, Iterator
from math import exp, inf, log, log1p

FARTHEST_NORMAL = 14.0
"""No standard normal of numpy's or numba's generators is beyond this: their tail ends at 3.66 + 53 ln(2) / 3.65."""
LARGEST_EXPONENT = 690.0
ENDLESS = 1e4
"""A loss above, or minus it below, every epsilon that is asked for."""


def log_factor(slope: float) -> float:
    """The largest ``-s d + log(1 - e^-d)`` over d > 0, for a slope s >= 0: ``s log s - (s + 1) log(s + 1)``."""
    return slope * log(slope) - (slope + 1.0) * log1p(slope) if slope > 0.0 else 0.0


def log_power_bound(order: float, log_norm: float, epsilon: float) -> float:
    """log of the largest ``(x - e^epsilon)_+ Z / x^order``: ``log Z - (a-1) epsilon + log((a-1)^(a-1) / a^a)``."""
    return log_norm - (order - 1.0) * epsilon + log_factor(order - 1.0)


def bounded_exp(exponent: float) -> float:
    """``e^exponent``, rounded up to a positive number or to infinity where doubles end."""
    return exp(max(exponent, -LARGEST_EXPONENT)) if exponent < LARGEST_EXPONENT else inf


def falling(log_bound: Callable[[int], float], orders: Iterable[int]) -> Iterator[tuple[float, int]]:
    """log M of one order after the other, and the order, as long as log M falls: it is convex in the order, or nearly.

    The last one has the smallest M.
    """
    least = inf
    for order in orders:
        largest = log_bound(order)
        if not largest < least:
            return
        least = largest
        yield largest, order


def largest_of_power(epsilon: float, power: float, log_norm: float, share: float, copies: int = 1) -> float:
    """M of a product of ``copies`` mixtures, each with a weight of at most h(l) at its own loss l.

    ``h(l) = 1 / (1 - share + share e^(power l - log_norm))``. As log h is concave and falls, the weight at total loss
    l is at most ``h(l / copies)^copies``, and the logarithm of that lies below its tangent at epsilon. O(1).

    Args:
        power: > 0.
        log_norm: such that e^(power l - log_norm) bounds the density of the tilted component from below, relative to
            that of the untilted one.
        share: weight of the tilted component, in (0, 1].
    """
    far = log(share) + power * epsilon / copies - log_norm
    rest = log1p(-share) if share < 1.0 else -inf
    both = max(far, rest) + log1p(exp(-abs(far - rest)))
    return bounded_exp(log_factor(power * exp(far - both)) - copies * both)
