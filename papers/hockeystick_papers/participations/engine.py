"""Profiles from blocks of C: bound the posterior, dominate each block by a scalar mixture, compose the laws.

    delta(eps) <= delta_1 + H(composition of the blocks' mixtures),

with the failure probability delta_1 under P for remove and under Q for add, chosen by a coarse look at some of the
blocks for each delta at which the bound should be good; any choice is valid. Where no block is informed by earlier ones
nothing is spent, and the result is exact up to discretisation.

Proof: docs/theory/subsets/mmcc.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import expm1, log1p

import numpy as np

from hockeystick.bounds import Profile, best_of
from hockeystick.deadline import Deadline
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF, Law, point_mass_at_one
from hockeystick.laws.mixtures import product_mixture_law
from hockeystick.laws.powers import composed_powers
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.types import Direction, Side
from hockeystick_papers.participations.rows import Mixture, dominating_mixtures
from hockeystick_papers.participations.tails import Blocks, participation_bounds

CANDIDATES = (1e-3, 0.01, 0.03, 0.1, 0.25, 0.5)
"""Shares of delta that may be spent on failures; the best is kept."""
SEARCH_NODES = 16
SEARCH_BLOCKS = 48
SEARCH_LAWS = 8
SEARCH_ACCURACY = 1e-4
FINE_SHARES, SHARES, SEARCH_SHARES = 2048, 512, 64
FEW = 32
"""At most this many participations are summed on the finest lattice."""
SECONDS_PER_LAW = 0.08
"""Time to make one mixture's law and to compose it, on the machine that defines efforts."""
FEWEST_LAWS, MOST_LAWS = 8, 400

Tick = Callable[[], None]


def blocks_profiles(
    blocks: Blocks,
    noise_multiplier: float,
    prob: float,
    sensitivity: float,
    laws: int,
    deltas: Sequence[float],
    resolution: Resolution,
    deadline: Deadline,
) -> Mapping[Direction, Profile]:
    """Upper bounds on both directions of the profile of one group of participations.

    Args:
        prob: chance of each participation.
        sensitivity: at least the norm of the sum of all columns: what an adversary who knows the batches can see.
        laws: about how many different laws to compose for each direction and delta.
        deltas: where the profiles should be good; each has a failure probability of its own.

    Each profile is the smallest of these bounds: the compositions and what is spent; the Gaussian that knows the
    batches; and for add ``1 - e^eps (1-p)^n``, because the empty set has that probability.
    """
    profiles: dict[Direction, Profile] = {}
    absent = float(blocks.steps * log1p(-prob)) if prob < 1.0 else -np.inf
    for direction in Direction:
        choices = []
        for delta in deltas:
            spent = best_spending(blocks, noise_multiplier, prob, direction, delta, deadline.tick)
            own = replace(resolution, smallest_delta=delta)
            law = composed_law(blocks, noise_multiplier, prob, spent, direction, laws, own, deadline.tick)
            choices.append(_profile(law, direction, spent, noise_multiplier, sensitivity, absent))
            if spent == 0.0:  # no event, so that the law of the smallest delta is the best one
                break
        profiles[direction] = best_of(min, *choices)
    return profiles


def worst_profiles(parts: Sequence[Mapping[Direction, Profile]]) -> Mapping[Direction, Profile]:
    """The largest of several profiles, for each epsilon and direction: the example may be in any group."""
    if len(parts) == 1:
        return parts[0]

    def worst(direction: Direction) -> Profile:
        return lambda epsilon: max(part[direction](epsilon) for part in parts)

    return {direction: worst(direction) for direction in Direction}


def planned_laws(effort: float, groups: int) -> int:
    """How many different laws each direction of each group may have, for a given effort in seconds."""
    return int(min(max(effort / (2.0 * groups * SECONDS_PER_LAW), FEWEST_LAWS), MOST_LAWS))


def best_spending(
    blocks: Blocks, noise_multiplier: float, prob: float, direction: Direction, delta: float, tick: Tick
) -> float:
    """The delta_1 with the smallest epsilon at ``delta`` when some blocks stand for all; 0 if none need be spent."""
    if blocks.informed == 0 or prob == 1.0:
        return 0.0
    some = _sample(blocks)
    coarse = Resolution(SEARCH_NODES, delta)
    tried: list[tuple[float, float]] = []
    for spent in (delta * share for share in CANDIDATES):
        law = composed_law(
            some, noise_multiplier, prob, spent, direction, SEARCH_LAWS, coarse, tick, shares=SEARCH_SHARES
        )

        def at(epsilon: float, law: Law = law, spent: float = spent) -> float:
            return law_delta(law, epsilon, direction) + spent

        near = tried[-1][0] if tried and np.isfinite(tried[-1][0]) else None
        tried.append((smallest_epsilon(at, delta, Side.UPPER, tolerance=SEARCH_ACCURACY, near=near), spent))
    return min(tried)[1]


def composed_law(
    blocks: Blocks,
    noise_multiplier: float,
    prob: float,
    spent: float,
    direction: Direction,
    laws: int,
    resolution: Resolution,
    tick: Tick,
    *,
    shares: int = SHARES,
) -> Law:
    """An upper law of the composition of all blocks, outside an event of at most the probability ``spent``.

    Args:
        laws: about how many different blocks to tell apart.
        shares: sensitivities are rounded up to this part of a typical one.
    """
    bounds = participation_bounds(blocks, noise_multiplier, prob, spent, direction)
    steps: list[tuple[Law, int]] = []
    for mixture in dominating_mixtures(blocks, bounds, noise_multiplier, laws, tick):
        tick()
        steps.append((mixture_law(mixture, noise_multiplier, shares, resolution), mixture.copies))
    return composed_powers(steps, resolution, tick)


def mixture_law(mixture: Mixture, noise_multiplier: float, shares: int, resolution: Resolution) -> Law:
    """An upper law of one block's mixture; exact but for the grid where all sensitivities are equal.

    Steps in which the example takes part for certain are one step; ``shares`` as for :func:`product_mixture_law`.
    """
    certain = mixture.probabilities >= 1.0
    matter = ~certain & (mixture.probabilities > 0.0) & (mixture.sensitivities > 0.0)
    chances, reaches = mixture.probabilities[matter], mixture.sensitivities[matter]
    shift = float(mixture.sensitivities[certain].sum()) * (1.0 + certain.size * UNIT_ROUNDOFF)
    if shift > 0.0:
        chances, reaches = np.append(chances, 1.0), np.append(reaches, shift)
    if reaches.size == 0:
        return point_mass_at_one(Side.UPPER)
    shares = FINE_SHARES if reaches.size <= FEW else shares
    return product_mixture_law(chances, reaches, noise_multiplier, Side.UPPER, resolution, shares=shares)


def _sample(blocks: Blocks) -> Blocks:
    """A sample of the blocks: each stands for the run of blocks of similar size that it ends."""
    if blocks.count <= SEARCH_BLOCKS:
        return blocks
    squares = np.add.reduceat(blocks.norm**2, blocks.starts[:-1])
    order = np.lexsort((np.add.reduceat(blocks.total + blocks.own, blocks.starts[:-1]), squares))
    cuts = np.linspace(0, blocks.count, SEARCH_BLOCKS + 1).astype(np.int64)
    copies = np.add.reduceat(blocks.copies[order], cuts[:-1])
    return blocks.restricted(order[cuts[1:] - 1], copies)


def _profile(
    law: Law, direction: Direction, spent: float, noise_multiplier: float, sensitivity: float, absent: float
) -> Profile:
    def profile(epsilon: float) -> float:
        delta = (law_delta(law, epsilon, direction) + spent) * (1.0 + 1e-15)
        known = gaussian_delta(noise_multiplier, sensitivity, epsilon, side=Side.UPPER)
        return min(delta, known, _empty_set(absent, epsilon) if direction is Direction.ADD else 1.0)

    return profile


def _empty_set(absent: float, epsilon: float) -> float:
    """``1 - e^eps (1-p)^n``, or 0, rounded upward; ``absent`` is the log of ``(1-p)^n``."""
    exponent = epsilon + absent - 1e-15 * (epsilon + abs(absent))
    return -expm1(exponent) * (1.0 + 1e-15) if exponent < 0.0 else 0.0
