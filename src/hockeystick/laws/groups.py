"""Group privacy of a profile: what several neighbouring steps in a row cost, from the profile of one step.

A chain of data sets ``D_0, ..., D_k`` of which each differs from the next by one example. With ``a_i`` the chance of
an event under ``D_i`` and any real numbers ``e_1, ..., e_k`` of sum at most epsilon, every link has
``a_(i-1) <= e^(e_i) a_i + delta_i(e_i)``, so

    a_0 - e^epsilon a_k <= sum_i e^(e_1 + ... + e_(i-1)) delta_i(e_i).

The smallest right-hand side over all splits is the profile of the k-fold iteration of the trade-off function (Dong,
Roth and Su 2022, Theorem 2.14) up to mixing; every single split is an upper bound, so the search for a good one need
not be exact. Proof: docs/theory/units.md, "Chains".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, expm1, inf, log1p

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.laws.profile import MAX_EPSILON, Profile, each
from hockeystick.types import Direction

FACTORS = (0.05, 0.15, 0.35, 0.6, 0.8, 1.0, 1.25, 1.6, 2.2, 3.2, 4.5, 6.5, 10.0, 16.0)
"""Steps between the parts of a split that are tried, in units of the step that is best for a Gaussian."""
REFINEMENTS = 3
"""Further steps that are tried around the best, by parabolas."""
MOST_PARTS = 64
"""Longer chains are split evenly: every part of another split needs a value of the profile."""
ROUNDING = 1e-12
"""Far above the relative rounding of an exponential of at most 700 and of a sum of ``MOST_PARTS`` positive products."""
LOST = 2.0**-1072
"""More than a profile rounds away where it is below all normal doubles, or 0; a chain multiplies it by up to e^700."""
KNOT_SCALE, KNOT_WIDTH = 0.25, 0.04
"""Slow profiles are read at ``scale (e^(width j) - 1)``: every 0.01 near 0, every 4 percent far from it."""
SUM_ROUNDING = 1e-12
"""Relative; what the parts are short of epsilon covers the rounding of their sum."""


def chained(
    profiles: Mapping[Direction, Profile], links: Sequence[Direction], count: int = 1, *, slow: bool = False
) -> Profile:
    """An upper bound on the profile of ``D_0`` against ``D_k``, from upper bounds on those of one link.

    Never above the even split, ``sum_i e^(i epsilon / k) delta(epsilon / k)``. For the profiles of a Gaussian it is
    that of the Gaussian with k times the sensitivity, up to rounding.

    Args:
        profiles: upper bounds on both directions of every single link, for epsilon >= 0.
        links: for each link ``REMOVE`` where an example goes from ``D_(i-1)`` to ``D_i``, ``ADD`` where one comes.
        count: how often all of these come one after the other.
        slow: whether a value of a profile takes long, so that uneven splits read it at few places.
    """
    if len(links) * count == 1:
        return profiles[links[0]]
    if len(links) * count > MOST_PARTS:
        return lambda epsilon: _even_delta(profiles, links, len(links) * count, float(epsilon))
    read = {direction: chords(profile) for direction, profile in profiles.items()} if slow else profiles
    return _Chained(profiles, read, [*links] * count)


@dataclass(frozen=True, eq=False)
class _Chained:
    """The profile of a chain: even splits read ``profiles``, and others ``read``, for many epsilons together."""

    profiles: Mapping[Direction, Profile]
    read: Mapping[Direction, Profile]
    links: Sequence[Direction]

    def __call__(self, epsilon: float) -> float:
        return self.each([epsilon])[0]

    def each(self, epsilons: Sequence[float]) -> list[float]:
        deltas: list[float] = _chained_deltas(self.profiles, self.read, self.links, epsilons).tolist()
        return deltas


def chords(profile: Profile) -> Profile:
    """An upper bound that reads the profile at fixed places only, each of them once.

    Between two of them it is the chord over ``e^epsilon``, in which profiles are convex.
    """
    known: dict[int, float] = {}

    def place(knot: int) -> float:
        return min(KNOT_SCALE * expm1(KNOT_WIDTH * knot), MAX_EPSILON)

    def value(knot: int) -> float:
        if knot not in known:
            known[knot] = profile(place(knot))
        return known[knot]

    def chord(epsilon: float) -> float:
        knot = int(log1p(epsilon / KNOT_SCALE) / KNOT_WIDTH)
        while place(knot) > epsilon:  # by rounding
            knot -= 1
        left, right = place(knot), place(knot + 1)
        if right <= epsilon:  # at the end of the range, or by rounding
            return value(knot + 1)
        share = expm1(epsilon - left) / expm1(right - left)
        return ((1.0 - share) * value(knot) + share * value(knot + 1)) * (1.0 + ROUNDING)

    return chord


def _chained_deltas(
    profiles: Mapping[Direction, Profile],
    read: Mapping[Direction, Profile],
    links: Sequence[Direction],
    epsilons: Sequence[float],
) -> Array:
    """The least over the splits that are tried, for each epsilon; shape (n,)."""
    count = len(links)
    ends = np.array(epsilons, dtype=np.float64)
    known: list[tuple[Array, Array]] = [(np.zeros(ends.size), _split(profiles, links, ends, np.zeros(ends.size)))]
    least = known[0][1]
    left = np.flatnonzero(least > 0.0)
    if left.size:
        ends = ends[left]
        scale = _gaussian_step(_links(profiles, links[:1], [ends / count])[0], ends / count)
        signs = (1.0, -1.0) if len(set(links)) > 1 else (1.0,)  # the first link may be the one that needs more
        steps = np.multiply.outer([0.0, *(sign * factor for sign in signs for factor in FACTORS)], scale)
        if read is profiles:
            splits = np.concatenate([least[None, left], _split(read, links, ends, steps[1:])])
        else:
            tried = [_promising(read, links, *asked) for asked in zip(ends, steps.T, least[left], strict=True)]
            splits = np.stack(tried, axis=1)
        for _ in range(REFINEMENTS):
            order = np.argsort(steps, axis=0)
            steps, splits = np.take_along_axis(steps, order, 0), np.take_along_axis(splits, order, 0)
            bottom = _bottoms_of_parabolas(steps, splits)
            steps = np.concatenate([steps, bottom[None]])
            splits = np.concatenate([splits, _split(read, links, ends, bottom)[None]])
        least = least.copy()
        least[left] = splits.min(axis=0)
    return np.minimum(least, 1.0)


def _promising(
    read: Mapping[Direction, Profile], links: Sequence[Direction], epsilon: float, steps: Array, even: float
) -> Array:
    """The bounds by these steps, of which the first is 0 and has ``even``; infinite where one cannot be the best.

    As a profile falls with epsilon, the first of parts that grow is charged the more the larger the step; so is the
    last of parts that fall, and what stands before it is larger. Once it alone is above the best, all larger steps are.

    Args:
        steps: shape (m,), of each sign in ascending order of their sizes.
    """
    splits = np.full(steps.size, inf)
    splits[0] = even

    def split(step: float) -> float:
        return float(_split(read, links, np.array([epsilon]), np.array([step]))[0])

    for sign in (1.0, -1.0):
        charged = slice(0, 1) if sign > 0.0 else slice(-1, None)
        for row in np.flatnonzero(sign * steps > 0.0):
            parts = _parts(len(links), np.array([epsilon]), steps[row : row + 1])
            before = 0.0 if sign > 0.0 else float(np.sum(parts[:-1]))
            if before > MAX_EPSILON:
                break
            if exp(before) * float(_links(read, links[charged], parts[charged])[0][0]) > splits.min():
                break
            splits[row] = split(steps[row])
    order = np.argsort(steps)
    best_at = int(np.clip(np.flatnonzero(order == splits.argmin())[0], 1, steps.size - 2))
    for row in order[best_at - 1 : best_at + 2]:  # what parabolas are drawn through
        if splits[row] == inf:
            splits[row] = split(steps[row])
    return splits


def _even_delta(profiles: Mapping[Direction, Profile], links: Sequence[Direction], count: int, epsilon: float) -> float:
    """The bound by equal parts, each link being charged for the worst kind."""
    part = epsilon / count * (1.0 - SUM_ROUNDING)
    shares = expm1(part * count) / expm1(part) if part > 0.0 else float(count)
    largest = max(profiles[link](part) for link in set(links)) + LOST
    return min(shares * largest * (1.0 + ROUNDING), 1.0)


def _split(profiles: Mapping[Direction, Profile], links: Sequence[Direction], epsilon: Array, step: Array) -> Array:
    """The bound by parts that grow by ``step`` from one link to the next; in total they are just below epsilon.

    Shapes: epsilon (n,), step (n,) or (m, n), as the result.
    """
    parts = _parts(len(links), epsilon, step)
    total, before, largest = np.zeros(step.shape), np.zeros(step.shape), np.zeros(step.shape)
    for part, value in zip(parts, _links(profiles, links, parts), strict=True):
        largest = np.maximum(largest, before)
        total += np.exp(np.minimum(before, MAX_EPSILON)) * (value + LOST)
        before += part
    return np.where(largest > MAX_EPSILON, 1.0, total * (1.0 + ROUNDING))


def _parts(count: int, epsilon: Array, step: Array) -> list[Array]:
    """So many parts that grow by ``step``; in total they are just below epsilon."""
    margin = SUM_ROUNDING * (epsilon + np.abs(step) * count)
    first = epsilon / count - 0.5 * step * (count - 1) - margin
    return [first + step * place for place in range(count)]


def _links(profiles: Mapping[Direction, Profile], links: Sequence[Direction], parts: Sequence[Array]) -> list[Array]:
    """The profile of each link at any real epsilons: below 0 it follows from the other direction at -epsilon.

    Each profile is read once at every place.
    """
    removes = [np.equal(part >= 0.0, link is Direction.REMOVE) for link, part in zip(links, parts, strict=True)]
    places = np.minimum(np.abs(np.stack(parts)), MAX_EPSILON)
    values = np.empty(places.shape)
    for direction, asked in ((Direction.REMOVE, np.stack(removes)), (Direction.ADD, ~np.stack(removes))):
        if asked.any():
            different, where = np.unique(places[asked], return_inverse=True)
            values[asked] = np.array(each(profiles[direction], different.tolist()))[where]
    return [
        np.where(part >= 0.0, value, -np.expm1(np.minimum(part, 0.0)) + np.exp(np.minimum(part, 0.0)) * value)
        for part, value in zip(parts, values, strict=True)
    ]


def _gaussian_step(delta: Array, epsilon: Array) -> Array:
    """``mu^2`` of the Gaussian with this value of its profile: the best step between the parts, were the link one."""
    from scipy.special import ndtr

    low, high = np.full(delta.shape, 1e-6), np.full(delta.shape, 100.0)
    for _ in range(40):
        middle = np.sqrt(low * high)
        tail = ndtr(0.5 * middle - epsilon / middle) - np.exp(epsilon) * ndtr(-0.5 * middle - epsilon / middle)
        low, high = np.where(tail < delta, middle, low), np.where(tail < delta, high, middle)
    squared: Array = high * high
    return squared


def _bottoms_of_parabolas(steps: Array, splits: Array) -> Array:
    """Where the parabola through the three lowest neighbours has its bottom; at an end, the best step again.

    Args:
        steps: ascending along the first axis, shape (m, n).
        splits: their bounds.
    """
    best = splits.argmin(axis=0)
    places, inner = np.arange(best.size), np.clip(best, 1, len(steps) - 2)
    a, b, c = (steps[inner + move, places] for move in (-1, 0, 1))
    fa, fb, fc = (splits[inner + move, places] for move in (-1, 0, 1))
    left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
    flat = (left == right) | (inner != best)
    shift = 0.5 * ((b - a) * left - (b - c) * right) / np.where(flat, 1.0, left - right)
    bottoms: Array = np.where(flat, steps[best, places], b - shift)
    return bottoms
