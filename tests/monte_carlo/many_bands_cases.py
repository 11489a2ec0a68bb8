"""Pairs of Poisson sampling with columns that never end, and the proposals that tests of many bands draw from."""

import numpy as np

from hockeystick.monte_carlo.far.limits import BLOCKS, TAILS, fewest
from hockeystick.monte_carlo.far.proposals import Counted, rates
from hockeystick.monte_carlo.far.subjects import columns_for
from hockeystick.pairs.repeated_columns import RepeatedSubsets, repeated
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side


def pair_of(
    steps: int, prob: float, sigma: float, groups: int = 1, slowness: float = 0.7, coins: int = 1
) -> SubsetMixture:
    """Columns that never end and fall slowly; of a user with so many examples."""
    matrix = ToeplitzMatrix((1.0 + np.arange(steps)) ** -slowness, steps)
    if coins > 1:
        return RepeatedSubsets(noise_multiplier=sigma, matrix=repeated(matrix, coins), sampling_prob=prob)
    return SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob, groups=groups)


def above_of(pair: SubsetMixture, order: int = 2, decay: float = 0.9, rate: float = 0.0) -> Counted:
    """With the limits of a rare tail."""
    limit = fewest(columns_for(pair, Side.UPPER), BLOCKS[0], TAILS[4])
    return Counted(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        decay=decay,
        rate=rate or rates(columns_for(pair, Side.UPPER))[0],
        block=BLOCKS[0],
        limit=limit,
    )


CASES = [
    pair_of(6, 0.3, 1.0),
    pair_of(7, 0.1, 2.0, slowness=0.2),
    pair_of(9, 0.4, 1.5, groups=2),
    pair_of(5, 0.2, 1.5, coins=2),
    pair_of(4, 0.15, 2.0, slowness=0.3, coins=3),
]
