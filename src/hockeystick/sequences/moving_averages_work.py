"""What the transform of a sum over moving averages costs, and what it loses: guides, on which no bound rests.

Proof of what they choose between: docs/theory/moving-averages.md.
"""

from math import inf, sqrt

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.inverse_transform import frequencies, scale_of, spread_of
from hockeystick.sequences.moving_averages import MovingAverages, windows_of
from hockeystick.types import Side

LOST_SHARE = 3e-3
"""About the chance of windows that are left out, under either law, as a share of delta."""
USED, STEPS, WINDOW_PACE, TABLE_PACE = 0.75, 20.0, 9e-10, 9e-9
"""About which share of the frequencies matters; how many steps a run takes; seconds for each window, and for each
place of a table, at one frequency."""
LEAST_RADIUS, MOST_WINDOWS = 6.0, 1e7
"""Windows go as far as this in all directions, roughly; more of them are too many for any effort."""
RADIUS, MOST_PLACES = 8.0, 2e7
"""The same for places where a window may have its older innovations: they are numbered all, kept or not."""
RING_STEPS = 80.0
"""How many more a ring takes."""


def loss_of(chain: MovingAverages, covariance: Array, side: Side, weights: Array) -> float:
    """About what the moving average loses of epsilon; arguments as in :func:`..banded_fits.fits`."""
    change = np.expm1(chain.products - covariance) * (1.0 if side is Side.UPPER else -1.0)
    place = np.arange(chain.bins)
    return float(sum(weights[lag] * change[place, place - lag].mean() for lag in range(chain.bins // 2)))


def uneven(chain: MovingAverages) -> bool:
    """Whether too many bins differ from the next for powers to be of use."""
    return _changes(chain) > chain.bins // 2


def _changes(chain: MovingAverages) -> int:
    """How often weights or white noise change from one bin to the next."""
    groups = np.column_stack([chain.weights, chain.whites])
    return int((np.abs(np.diff(groups, axis=0)).max(axis=1) > 0.0).sum())


def transform_work(chain: MovingAverages, delta: float, epsilon: float, deadline: Deadline) -> float:
    """Rough seconds of the transform that serves this epsilon, for which no other matters."""
    count = frequencies(*scale_of(epsilon, spread_of(chain.products), uneven(chain)))[2]
    spacing = chain.spacing
    if spacing * MOST_WINDOWS ** (1.0 / chain.depth) < LEAST_RADIUS:
        return inf
    if chain.period > 1 and (2.0 * RADIUS / spacing) ** (chain.depth - 1) > MOST_PLACES:
        return inf
    windows = windows_of(chain, LOST_SHARE * delta, deadline)
    kinds = 1 + _changes(chain)
    steps = min(float(chain.bins), STEPS * kinds) + (RING_STEPS if chain.ring else 0.0)
    reach = float(np.abs(windows.places).max()) * sqrt(float((chain.weights**2).sum(axis=1).max()))
    return USED * count * (WINDOW_PACE * steps * float(windows.counts.sum()) + TABLE_PACE * kinds * 2.0 * reach)
