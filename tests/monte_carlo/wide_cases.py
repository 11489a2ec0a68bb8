"""Pairs of b-min-sep subsampling with columns beyond the separation, and the proposals that tests draw from."""

import numpy as np

from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.limits import BLOCKS, TAILS, fewest
from hockeystick.monte_carlo.far.proposals import Counted, rates
from hockeystick.monte_carlo.far.subjects import columns_for
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side


def pair_of(
    steps: int, min_sep: int, prob: float, sigma: float, slowness: float = 0.7, warm: bool = True
) -> RenewalMixture:
    """Columns that never end and fall slowly."""
    return RenewalMixture(
        noise_multiplier=sigma,
        matrix=ToeplitzMatrix((1.0 + np.arange(steps)) ** -slowness, steps),
        min_sep=min_sep,
        participation_prob=prob,
        warm_start=warm,
    )


CASES = [
    pair_of(6, 2, 0.3, 1.0),
    pair_of(6, 2, 0.3, 1.0, warm=False),
    pair_of(8, 3, 0.25, 1.5, slowness=0.2),
    pair_of(7, 5, 0.4, 1.2),
    pair_of(4, 6, 0.4, 1.0),
]
"""In the last one an example takes part once, and may wait beyond the end."""


def above_of(pair: RenewalMixture, order: int = 2, decay: float = 0.9, rate: float = 0.0) -> Counted:
    """With the limits of a rare tail."""
    own = columns_for(pair, Side.UPPER)
    return Counted(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        decay=decay,
        rate=rate or rates(own)[0],
        block=BLOCKS[0],
        limit=fewest(own, BLOCKS[0], TAILS[4]),
    )


def columns(pair: RenewalMixture) -> Columns:
    return columns_for(pair, Side.UPPER)
