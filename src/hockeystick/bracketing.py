"""Where a falling function passes a target, between two ends that were both evaluated."""

from collections.abc import Callable, Mapping
from math import exp, inf, log, sqrt

from hockeystick.errors import CannotCertifyError
from hockeystick.spec import LARGEST_NOISE, SMALLEST_NOISE

APPROACHES = 8
"""Evaluations that may come close to a crossing before a bracket is put around it."""
TOO_CLOSE = 1e-4
"""Relative distance of two noise multipliers between which a secant says nothing."""
LEAST_SLOPE, MOST_SLOPE = 0.3, 30.0
"""Slopes of a secant that is believed, in logarithms of both."""
LEAST_EPSILON, MOST_EPSILON = 1e-12, 1e12
"""Smaller and larger epsilons count as these where logarithms are taken."""
MOST_BEND = 1.5
"""How many times as steep as a secant a parabola may be."""


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
        """The logarithm of epsilon over the target at noise ``e^x``: above 0 where it fails. An epsilon of 0 or of
        infinity has none, so it counts as one that is very small or very large."""
        return log(min(max(epsilon_at(exp(x)), LEAST_EPSILON), MOST_EPSILON) / target)

    bottom, top = log(SMALLEST_NOISE), log(LARGEST_NOISE)
    low = high = min(max(log(start), bottom), top)
    f_low = f_high = miss(high)
    step = 2.0 * width
    # Away from the crossing: a little farther than where a slope of -1 puts it, and in any case farther each time.
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


def nearly_smallest_passing(
    epsilon_at: Callable[[float], float],
    target: float,
    start: float,
    width: float,
    slope: float,
    seen: Mapping[float, float],
) -> float:
    """A noise multiplier with ``epsilon_at <= target``, about within ``width`` of the smallest, in few evaluations.

    For functions that take seconds: where :func:`smallest_passing` evaluates both ends of its bracket, this one stops
    at the first evaluation that passes so little below the target that a secant puts the crossing within ``width``.
    What is returned was evaluated. Where secants do not come close in ``APPROACHES`` evaluations, or the function is
    0, a bracket is put around the crossing.

    Args:
        slope: about by how many percent ``epsilon_at`` falls where the noise grows by one.
        seen: values of ``epsilon_at`` that are known already, by noise multiplier; they give better secants.

    Raises: as :func:`smallest_passing`.
    """
    values = {noise: value for noise, value in seen.items() if value > 0.0}
    noise = start
    for _ in range(APPROACHES):
        noise = min(max(noise, SMALLEST_NOISE), LARGEST_NOISE)
        value = epsilon_at(noise)
        if value <= 0.0:
            break
        values[noise] = value
        low = max((other for other, value in values.items() if value > target), default=0.0)
        high = min((other for other, value in values.items() if value <= target), default=inf)
        if value == inf:  # nothing is proved for so little noise
            noise = sqrt(noise * high) if high < inf else 2.0 * noise
            continue
        others = [other for other in values if abs(log(other / noise)) > TOO_CLOSE and values[other] < inf]
        if others:
            slope = steepness(values, noise, min(others, key=lambda other: abs(log(other / noise)))) or slope
        above = log(target / value) / slope  # how far this noise is above the crossing, by the secant
        if value <= target and above <= 0.75 * width:
            return noise
        # Half of what may be given away: what tests may err by fits into it, where samples are allowed.
        noise *= exp(0.375 * width - above)
        if not low < noise < high:  # the function is no straight line, or does not fall
            if low == 0.0 or high == inf or low > high:
                break
            noise = sqrt(low * high)
    return smallest_passing(epsilon_at, target, noise, width)[1]


def steepness(values: Mapping[float, float], first: float, second: float) -> float | None:
    """How many percent a function falls where its argument grows by one percent; None where two values make no sense.

    >>> steepness({1.0: 8.0, 2.0: 2.0}, 1.0, 2.0)
    2.0

    Args:
        values: of the function, by argument; only positive and finite ones make sense.
    """
    before, after = values[first], values[second]
    if not (0.0 < before < inf and 0.0 < after < inf and first != second):
        return None
    slope = log(before / after) / log(second / first)
    return slope if LEAST_SLOPE <= slope <= MOST_SLOPE else None


def steepness_at(values: Mapping[float, float], place: float) -> float | None:
    """:func:`steepness` at a place: of the parabola, in logarithms, through the three values that are nearest to it.

    The secant of the nearest two where there are no three that make sense, or where the parabola says something else
    altogether; None where the secant makes no sense.

    >>> parabola = {noise: exp(-(log(noise) ** 2)) for noise in (2.0, 4.0, 8.0)}
    >>> round(steepness_at(parabola, exp(1.5)), 9)
    3.0
    """
    near = sorted(values, key=lambda other: abs(log(other / place)))[:3]
    if len(near) < 2:
        return None
    secant = steepness(values, near[0], near[1])
    farther = steepness(values, near[1], near[2]) if len(near) == 3 else None
    if secant is None or farther is None:
        return secant
    first, second, third = (log(other) for other in near)
    bend = (farther - secant) / (third - first)
    slope = secant + bend * (2.0 * log(place) - first - second)
    return slope if 1.0 / MOST_BEND <= slope / secant <= MOST_BEND else secant


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
