"""The family of proposals for mixtures of bins: balls-in-bins with any strategy matrix."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.moments.geometric_mean import geometric_mean_profile
from hockeystick.monte_carlo.bins.proposals import (
    LARGEST_BETA,
    AgainstMean,
    Balls,
    BinSpace,
    NaiveBins,
    best_beta,
    best_order,
    highest_order,
)
from hockeystick.monte_carlo.proposals import Family, Proposal, rounded
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.types import Direction

MOST_BINS = 4096
"""More would need some gigabytes in every process."""
SHARE = 0.3
"""Of concentrated tuples: they cost 1 / (1 - share) in M and save most of the variance where bins hardly correlate."""
MORE_BALLS = (1.15, 1.3)
"""Orders above the one with the smallest M have less variance; M is flat there."""
MORE_BETA = 1.15


def bin_space(pair: BinMixture) -> BinSpace:
    """K of the pair and its factor. O(bins^3), once for each matrix: not by the pair, which compares by its noise."""
    return _bin_space(pair.matrix, pair.bins, pair.noise_multiplier)


@lru_cache(maxsize=4)
def _bin_space(matrix: StrategyMatrix, bins: int, sigma: float) -> BinSpace:
    pair = BinMixture(noise_multiplier=sigma, matrix=matrix, bins=bins)
    return BinSpace.of(np.asarray(pair.gram) / sigma / sigma, pair.rounding + 8 * UNIT_ROUNDOFF)


def propose_proposals(space: BinSpace, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """Proposals for one direction, the most promising first, the naive one last."""
    proposals = {Direction.REMOVE: _balls, Direction.ADD: _against_mean}[direction]
    return (*proposals(space, epsilon), NaiveBins(direction=direction, space=space))


def _balls(space: BinSpace, epsilon: float) -> Sequence[Proposal]:
    best = best_order(space, epsilon)
    if best is None:
        return ()
    orders = [max(best + 1 + place, round(factor * best)) for place, factor in enumerate(MORE_BALLS)]
    wanted = dict.fromkeys(min(order, highest_order(space)) for order in (orders[0], best, orders[1]))
    share = SHARE if space.bins > 1 else 0.0
    return [Balls(direction=Direction.REMOVE, space=space, order=order, share=share) for order in wanted]


def _against_mean(space: BinSpace, epsilon: float) -> Sequence[Proposal]:
    best = best_beta(space, epsilon)
    wanted = dict.fromkeys(rounded(min(beta, LARGEST_BETA)) for beta in (MORE_BETA * best, best))
    return [AgainstMean(direction=Direction.ADD, space=space, beta=beta) for beta in wanted]


def _known_upper(pair: BinMixture, direction: Direction) -> Profile | None:
    if direction is Direction.REMOVE:
        return None
    return geometric_mean_profile(pair.gram, pair.rounding, pair.noise_multiplier)


def _too_many(bins: int, most: int) -> str | None:
    return None if bins <= most else f"it needs tables of all pairs of more than {most} bins"


def fingerprint(pair: BinMixture) -> Sequence[Any]:
    """Bins and Gram matrix: different matrices may share it. Where a library multiplies, the matrix stands for it."""
    matrix = pair.matrix
    if type(matrix).bin_gram is StrategyMatrix.bin_gram and matrix.tree_sizes is None:  # of trees, sums of integers
        return (pair.bins, np.frombuffer(bytes.fromhex(matrix.digest), dtype=np.uint8))
    return (pair.bins, pair.gram)


FAMILY = Family(
    pair=BinMixture,
    kinds=(NaiveBins, Balls, AgainstMean),
    propose=lambda pair, direction, epsilon: propose_proposals(bin_space(pair), direction, epsilon),
    fingerprint=fingerprint,
    known_upper=_known_upper,
    refusal=lambda pair, side: _too_many(pair.bins, MOST_BINS),
    make=lambda pair, kind, **values: kind(space=bin_space(pair), **values),
)
