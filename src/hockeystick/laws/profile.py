"""The privacy profile of a law, and its inverse, both on the law's safe side."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, isnan, log

import numpy as np

from hockeystick.bracketing import close_bracket
from hockeystick.laws.law import ORDINARY, UNDERFLOW, UNIT_ROUNDOFF, Array, Law
from hockeystick.spec import LARGEST_EPSILON
from hockeystick.types import Direction, Side, as_direction

MAX_EPSILON = LARGEST_EPSILON
Profile = Callable[[float], float]
"""delta as a function of epsilon >= 0, for one direction, on the side of its bound."""
NEARBY, FARTHER = 1.03, 1.15
"""Factors by which the expected epsilon is trusted, at first and once more."""
COMMON, HALVINGS = 1.0, 4
"""Where a search begins that expects nothing, and how often it halves that before it asks at 0."""
OVERSHOOT, LEAST_STEP = 1.5, 1e-3
"""How far beyond the end of a secant a search goes that has not reached its target, and at least, as a share."""
SMALLEST_EPSILON = 1e-300
SMALLEST_RATIO = 1e-12
"""Relative to delta; the search for an epsilon treats smaller values alike, because only the sign matters there."""


def each(profile: Profile, epsilons: Sequence[float]) -> list[float]:
    """What a profile says of each of these epsilons; one that has a method of this name may find them together."""
    together: Callable[[Sequence[float]], list[float]] | None = getattr(profile, "each", None)
    return [profile(epsilon) for epsilon in epsilons] if together is None else together(epsilons)


def law_delta(law: Law, epsilon: float, direction: Direction) -> float:
    """delta(epsilon) of the pair that the law bounds: at least the truth for upper laws, at most for lower ones.

    The law says that E f(X') <= E_law f / (1 - mass_error) (upper) for an X' within the factor ``1 +- place_error``
    of the true X; so the profile is read at a threshold moved by ``place_error`` and scaled by both errors.
    Relative accuracy also far in the tail: only non-negative terms are added. O(nodes).
    """
    epsilon, direction = float(epsilon), as_direction(direction)  # exp of a single would be rounded like one
    upper = law.side is Side.UPPER
    moved = law.place_error + 8 * UNIT_ROUNDOFF
    slack = law.mass_error + moved + (law.size + 8) * UNIT_ROUNDOFF
    if not (slack < 1.0 and law.is_finite):  # rounding or an overflow has eaten the bound: only the trivial one is left
        return 1.0 if upper else 0.0
    # Ratios this small, or this large, may have lost digits to underflow.
    if not upper and epsilon > log(law.units.max_ratio):
        return 0.0
    threshold = float(np.exp(min(epsilon, MAX_EPSILON)))
    threshold = threshold * (1.0 - moved) if upper else threshold / (1.0 - moved)
    if direction is Direction.REMOVE:
        first = int(law.support.searchsorted(threshold, side="right"))
        value = float(law.mass[first:] @ (law.support[first:] - threshold)) / law.units.scale
        # Of P-mass that is only known to be above the horizon, a lower law counts the least (x - threshold) / x.
        value += law.p_inf if upper else law.p_inf * max(1.0 - threshold / law.horizon, 0.0)
    else:
        last = int(law.support.searchsorted(1.0 / threshold, side="left"))
        value = float(law.mass[:last] @ (1.0 - threshold * law.support[:last])) / law.units.scale
    if not upper and value < law.units.smallest_lower:
        return 0.0
    factor = 1.0 / (1.0 - slack) if upper else 1.0 - slack
    return min(max(value * factor, 0.0), 1.0)


def law_deltas(law: Law, epsilons: Sequence[float], direction: Direction) -> list[float]:
    """:func:`law_delta` of an upper law at many epsilons, from sums over its nodes that are made once.

    The same but for rounding, for which twice as many additions are charged. O(nodes + epsilons log nodes).
    """
    assert law.side is Side.UPPER
    direction = as_direction(direction)
    moved = law.place_error + 8 * UNIT_ROUNDOFF
    error = law.mass_error + moved + (2 * law.size + 16) * UNIT_ROUNDOFF
    if not (error < 1.0 and law.is_finite):
        return [1.0] * len(epsilons)
    thresholds = np.exp(np.minimum(epsilons, MAX_EPSILON)) * (1.0 - moved)
    if direction is Direction.REMOVE:
        values = _calls(law, thresholds) / law.units.scale + law.p_inf
    else:
        values = thresholds * _puts(law, 1.0 / thresholds) / law.units.scale
    deltas: list[float] = np.clip(values / (1.0 - error), 0.0, 1.0).tolist()
    return deltas


def product_delta(first: Law, second: Law, epsilon: float, direction: Direction) -> float:
    """delta(epsilon) of two independent mechanisms, from an upper law of each, without a law of both.

    At most what the law that :func:`~hockeystick.laws.operations.compose` makes of them says, but for rounding: all
    pairs of nodes count as they are. At each node of the first law stands a call, or put, of the second, which is
    linear between its nodes; only non-negative terms are added, so it is relatively accurate far in the tail. O(nodes).

    Args:
        first, second: upper laws in ordinary units.
    """
    assert first.side is second.side is Side.UPPER
    assert first.units == second.units == ORDINARY
    direction = as_direction(direction)
    size = first.size + 2 * second.size
    place_error = (first.place_error + second.place_error) * (1.0 + first.place_error) + 16 * UNIT_ROUNDOFF
    mass_error = (first.mass_error + second.mass_error) * (1.0 + first.mass_error) + (size + 64) * UNIT_ROUNDOFF
    slack = mass_error + place_error
    if not (slack < 1.0 and first.is_finite and second.is_finite):
        return 1.0
    threshold = exp(min(epsilon, MAX_EPSILON)) * (1.0 - place_error)
    with np.errstate(divide="ignore", over="ignore"):
        places = 1.0 / (threshold * first.support) if direction is Direction.ADD else threshold / first.support
    if direction is Direction.REMOVE:
        value = float((first.mass * first.support) @ _calls(second, places)) + first.p_inf + second.p_inf
    else:
        seen = first.support > 0.0
        puts = (threshold * first.support[seen]) * _puts(second, places[seen])
        value = float(first.mass[seen] @ puts) + float(first.mass[~seen].sum() * second.mass.sum())
    return min((value + UNDERFLOW) / (1.0 - slack) ** 2, 1.0)


def _calls(law: Law, places: Array) -> Array:
    """``E (X - k)_+`` of the finite part of a law at places k."""
    above = np.append(np.cumsum(law.mass[::-1])[::-1], 0.0)  # the mass of each node and those after it
    at_nodes = np.append(np.cumsum((np.diff(law.support) * above[1:-1])[::-1])[::-1], [0.0, 0.0])
    node = law.support.searchsorted(places, side="right")  # the first above the place
    nodes = np.append(law.support, 0.0)
    return np.asarray(at_nodes[node] + above[node] * np.where(node < law.size, nodes[node] - places, 0.0))


def _puts(law: Law, places: Array) -> Array:
    """``E (k - X)_+`` of a law at places k."""
    # Nodes above all places do not count; in far units their sums would overflow.
    used = max(int(law.support.searchsorted(places.max(initial=0.0), side="right")), 1)
    support, below = law.support[:used], np.cumsum(law.mass[:used])
    at_nodes = np.append(0.0, np.cumsum(np.diff(support) * below[:-1]))
    node = support.searchsorted(places, side="right") - 1  # the last that is not above the place
    return np.asarray(np.where(node >= 0, at_nodes[node] + below[node] * (places - support[node]), 0.0))


def law_profiles(
    *laws: Law, choose: Callable[[Iterable[float]], float] = max
) -> dict[Direction, Callable[[float], float]]:
    """Both directions of the largest (``choose=max``) or smallest profile of some laws."""

    return {direction: _OfLaws(laws, choose, direction) for direction in Direction}


@dataclass(frozen=True, eq=False)
class _OfLaws:
    """The profile of some laws in one direction; of upper laws, many epsilons are read together."""

    laws: Sequence[Law]
    choose: Callable[[Iterable[float]], float]
    direction: Direction

    def __call__(self, epsilon: float) -> float:
        return self.choose(law_delta(law, epsilon, self.direction) for law in self.laws)

    def each(self, epsilons: Sequence[float]) -> list[float]:
        if any(law.side is Side.LOWER for law in self.laws):
            return [self(epsilon) for epsilon in epsilons]
        columns = [law_deltas(law, epsilons, self.direction) for law in self.laws]
        return [self.choose(values) for values in zip(*columns, strict=True)]


def smallest_epsilon(
    delta_at: Callable[[float], float],
    delta: float,
    side: Side,
    *,
    tolerance: float = 1e-9,
    near: float | None = None,
) -> float:
    """Invert a non-increasing profile bound at ``delta``, returning the safe end of the bracket.

    Args:
        delta_at: the bound, non-increasing in epsilon >= 0.
        side: UPPER returns an epsilon at which the bound is at most ``delta`` (infinity if there is none below 700);
            LOWER returns one at which the lower bound still exceeds ``delta`` (0 if there is none).
        tolerance: relative width of the final bracket.
        near: where the answer is expected; affects speed only.
    """

    delta = float(delta)

    def excess(epsilon: float) -> float:
        """The excess over delta on a log scale, on which profiles are nearly straight."""
        value = delta_at(epsilon)
        if isnan(value):  # bounds nothing
            value = 1.0 if side is Side.UPPER else 0.0
        size = log(max(value, SMALLEST_RATIO * delta) / delta)
        return min(size, 0.0) if value <= delta else max(size, UNIT_ROUNDOFF)

    if near is not None and not SMALLEST_EPSILON < near < 0.5 * MAX_EPSILON:
        near = None
    low = high = COMMON if near is None else near
    at_low = at_high = excess(low)
    if near is not None and at_low != 0.0:
        # The profile falls by at least about as many percent as epsilon grows by: so far off is the guess at most.
        factor = min(exp(abs(at_low)) * (1.0 + tolerance), NEARBY)
        if at_low > 0.0:
            high = near * factor
            at_high = excess(high)
        else:
            low = near / factor
            at_low = excess(low)
    for _ in range(HALVINGS):  # near 0, some profiles are slow to evaluate
        if at_low > 0.0:
            break
        wider = 0.5 if near is None or low < near / NEARBY else 1.0 / FARTHER
        step = (1.0 - wider) * low
        if near is not None:
            step = min(step, _overshoot(low, at_low, high, at_high))
        low, high, at_high = low - step, low, at_low
        at_low = excess(low)
    if at_low <= 0.0:
        low, high, at_high, at_low = 0.0, low, at_low, excess(0.0)
    if at_low <= 0.0:
        return 0.0
    while at_high > 0.0:
        if high >= MAX_EPSILON:
            return float("inf") if side is Side.UPPER else high
        wider = 4.0 if near is None else 1.5 if high > near * NEARBY else FARTHER
        step = (wider - 1.0) * high
        if near is not None:
            step = min(step, _overshoot(high, at_high, low, at_low))
        low, at_low, high = high, at_high, min(high + step, MAX_EPSILON)
        at_high = excess(high)
    while low == 0.0 and high > SMALLEST_EPSILON:
        at_place = excess(1e-3 * high)
        if at_place > 0.0:
            low, at_low = 1e-3 * high, at_place
        else:
            high, at_high = 1e-3 * high, at_place
    low, high = close_bracket(excess, (low, at_low), (high, at_high), tolerance * max(low, 0.1 * high))
    return high if side is Side.UPPER else low


def _overshoot(place: float, value: float, before: float, value_before: float) -> float:
    """One and a half times as far from a place as the secant through an earlier one says that the target is.

    Infinite where the secant says nothing, and no less than a share of the place: profiles have flat parts.
    """
    if not abs(value_before) > abs(value) > 0.0:
        return inf
    return max(OVERSHOOT * abs(place - before) * abs(value) / (abs(value_before) - abs(value)), LEAST_STEP * place)
