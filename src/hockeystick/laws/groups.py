"""Group privacy of a profile: what several neighbouring steps in a row cost, from the profile of one step.

A chain of data sets ``D_0, ..., D_k`` of which each differs from the next by one example. With ``a_i`` the chance of
an event under ``D_i`` and any real numbers ``e_1, ..., e_k`` of sum at most epsilon, every link has
``a_(i-1) <= e^(e_i) a_i + delta_i(e_i)``, so

    a_0 - e^epsilon a_k <= sum_i e^(e_1 + ... + e_(i-1)) delta_i(e_i).

The smallest right-hand side over all splits is the profile of the k-fold iteration of the trade-off function (Dong,
Roth and Su 2022, Theorem 2.14) up to mixing; every single split is an upper bound, so the search for a good one need
not be exact. Proof: docs/theory/units.md, "Chains".
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, expm1, log1p, sqrt

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
    return lambda epsilon: _chained_delta(profiles, read, [*links] * count, float(epsilon))


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


def _chained_delta(
    profiles: Mapping[Direction, Profile], read: Mapping[Direction, Profile], links: Sequence[Direction], epsilon: float
) -> float:
    part = epsilon / len(links)
    tried = {0.0: _split(profiles, links, epsilon, 0.0)}
    if tried[0.0] > 0.0:
        scale = _gaussian_step(_link(profiles, links[0], part), part)
        signs = (1.0, -1.0) if len(set(links)) > 1 else (1.0,)  # the first link may be the one that needs more
        steps = [sign * factor * scale for sign in signs for factor in FACTORS]
        read = _foreseen(read, links, epsilon, steps)
        tried |= {step: _split(read, links, epsilon, step) for step in steps}
        for _ in range(REFINEMENTS):
            step = _bottom_of_parabola(tried)
            if step is None or step in tried:
                break
            tried[step] = _split(read, links, epsilon, step)
    return min(*tried.values(), 1.0)


def _even_delta(profiles: Mapping[Direction, Profile], links: Sequence[Direction], count: int, epsilon: float) -> float:
    """The bound by equal parts, each link being charged for the worst kind."""
    part = epsilon / count * (1.0 - SUM_ROUNDING)
    shares = expm1(part * count) / expm1(part) if part > 0.0 else float(count)
    return min(shares * max(profiles[link](part) for link in set(links)) * (1.0 + ROUNDING), 1.0)


def _split(profiles: Mapping[Direction, Profile], links: Sequence[Direction], epsilon: float, step: float) -> float:
    """The bound by parts that grow by ``step`` from one link to the next; in total they are just below epsilon."""
    known: dict[tuple[float, Direction], float] = {}
    total, before = 0.0, 0.0
    for part, link in zip(_parts(len(links), epsilon, step), links, strict=True):
        if (part, link) not in known:
            known[part, link] = _link(profiles, link, part)
        if before > MAX_EPSILON:
            return 1.0
        total += exp(before) * known[part, link]
        before += part
    return total * (1.0 + ROUNDING)


def _parts(count: int, epsilon: float, step: float) -> Iterator[float]:
    """Parts that grow by ``step``; their sum is just below epsilon."""
    margin = SUM_ROUNDING * (epsilon + abs(step) * count)
    first = epsilon / count - 0.5 * step * (count - 1) - margin
    return (first + step * place for place in range(count))


def _foreseen(
    profiles: Mapping[Direction, Profile], links: Sequence[Direction], epsilon: float, steps: Sequence[float]
) -> dict[Direction, Profile]:
    """The same profiles; what the splits with these steps ask of them is read at once."""
    asked: dict[Direction, dict[float, None]] = {direction: {} for direction in profiles}
    for step in steps:
        for part, link in zip(_parts(len(links), epsilon, step), links, strict=True):
            direction, place = _read_at(link, part)
            asked[direction][place] = None
    return {direction: _remembering(profile, list(asked[direction])) for direction, profile in profiles.items()}


def _remembering(profile: Profile, places: Sequence[float]) -> Profile:
    known = dict(zip(places, each(profile, places), strict=True)) if places else {}
    return lambda epsilon: known[epsilon] if epsilon in known else profile(epsilon)


def _read_at(link: Direction, epsilon: float) -> tuple[Direction, float]:
    """The direction and the epsilon >= 0 at which a profile is read for a link at any real epsilon."""
    if epsilon >= 0.0:
        return link, min(epsilon, MAX_EPSILON)
    return Direction.ADD if link is Direction.REMOVE else Direction.REMOVE, min(-epsilon, MAX_EPSILON)


def _link(profiles: Mapping[Direction, Profile], link: Direction, epsilon: float) -> float:
    """The profile of one link at any real epsilon: below 0 it follows from the other direction at -epsilon."""
    direction, place = _read_at(link, epsilon)
    value = profiles[direction](place)
    return value if epsilon >= 0.0 else -expm1(epsilon) + exp(epsilon) * value


def _gaussian_step(delta: float, epsilon: float) -> float:
    """``mu^2`` of the Gaussian with this value of its profile: the best step between the parts, were the link one."""
    from scipy.special import ndtr

    low, high = 1e-6, 100.0
    for _ in range(40):
        middle = sqrt(low * high)
        tail = float(ndtr(0.5 * middle - epsilon / middle) - exp(epsilon) * ndtr(-0.5 * middle - epsilon / middle))
        low, high = (middle, high) if tail < delta else (low, middle)
    return high * high


def _bottom_of_parabola(tried: Mapping[float, float]) -> float | None:
    """Where the parabola through the three lowest neighbours has its bottom, or None at an end."""
    steps = sorted(tried)
    best = min(range(len(steps)), key=lambda place: tried[steps[place]])
    if not 0 < best < len(steps) - 1:
        return None
    (a, b, c), (fa, fb, fc) = steps[best - 1 : best + 2], (tried[step] for step in steps[best - 1 : best + 2])
    left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
    if left == right:
        return None
    return b - 0.5 * ((b - a) * left - (b - c) * right) / (left - right)
