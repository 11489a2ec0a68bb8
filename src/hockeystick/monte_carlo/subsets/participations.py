"""What Poisson and cyclic Poisson sampling have in common: opportunities, and what each of them adds to later rows.

An *opportunity* is a step in which the example may take part, with a coin of its own. The rows from one opportunity up
to the next are a block; with p bands and b rows in a block, a block depends on the last ``w = ceil(p / b)`` of them.
Poisson sampling has an opportunity in every step and blocks of one row. Under cyclic Poisson sampling with a Toeplitz
matrix the first group is the worst in both directions (docs/theory/subsets/mmcc.md), so the opportunities are its own.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hockeystick.monte_carlo.arrays import Array, Flags
from hockeystick.monte_carlo.subsets.kernels import Mixture
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of


@dataclass(frozen=True, eq=False)
class Participations:
    """The opportunities of one example.

    Attributes:
        scaled: ``scaled[u, r, d]``, what opportunity ``u - d`` adds to row r of block u, in units of sigma; 0 where
            there is no such opportunity or row. Shape (opportunities, rows of a block, w).
        fresh: whether block u of ``scaled`` differs from the block before, shape (opportunities,).
        prob: the chance of every opportunity.
    """

    scaled: Array
    fresh: Flags
    prob: float

    @property
    def count(self) -> int:
        """How many opportunities there are."""
        return int(self.scaled.shape[0])

    @property
    def window(self) -> int:
        """w: how many opportunities a block knows."""
        return int(self.scaled.shape[2])

    def largest_exponent(self, copies: float) -> float:
        """At least ``sum_r m_r |y_r|`` for the rows r of any block: means m, outputs y with so many means added up."""
        rows = self.scaled.sum(axis=2)
        return float((rows * (copies * rows + FARTHEST_NORMAL)).sum(axis=1).max())

    @property
    def mixture(self) -> Mixture:
        """What kernels need."""
        return Mixture(self.scaled, self.fresh, self.prob, self.couplings)

    @property
    def mean_shift(self) -> Array:
        """``C E x / sigma``, shape (opportunities, rows of a block)."""
        shift: Array = self.prob * self.scaled.sum(axis=2)
        return shift

    @property
    def moments(self) -> tuple[float, float]:
        """``|C E x|^2 / sigma^2`` and ``E |C x|^2 / sigma^2``; independence leaves the squares of C."""
        squared_mean = float(np.square(self.mean_shift).sum())
        return squared_mean, squared_mean + self.prob * (1.0 - self.prob) * float(np.square(self.scaled).sum())

    @cached_property
    def couplings(self) -> Array:
        """``<c_u, c_(u-e)>`` of what opportunities u and u - e add to all rows, shape (opportunities, w).

        Where there is no opportunity u - e it is that of the first opportunity that has one, and does not matter.
        """
        opportunities, _, window = self.scaled.shape
        products = np.zeros((opportunities, window))
        for e in range(window):
            for d in range(min(window - e, opportunities)):
                products[: opportunities - d, e] += (self.scaled[d:, :, d] * self.scaled[d:, :, d + e]).sum(axis=1)
            products[:e, e] = products[min(e, opportunities - 1), e]
        return products


MAX_WINDOW = 12
"""The recursion visits 2^window patterns for every block of every sample."""


def runs_recursion(pair: SubsetMixture) -> bool:
    """Whether there are few patterns to visit, and the rows of the worst group are known."""
    if pair.coins > 1 or pair.matrix.rows != pair.matrix.steps:
        return False
    if pair.groups > 1 and pair.matrix.toeplitz_column is None:
        return False
    return pair.matrix.bands <= MAX_WINDOW * pair.groups


def participations(pair: SubsetMixture) -> Participations:
    """Those of a pair of Poisson sampling, or of cyclic Poisson sampling with a Toeplitz matrix."""
    return _participations(pair.matrix, pair.groups, pair.noise_multiplier, pair.sampling_prob)


@lru_cache(maxsize=4)
def _participations(matrix: StrategyMatrix, groups: int, sigma: float, prob: float) -> Participations:
    """O(steps w)."""
    opportunities, window = -(-matrix.steps // groups), -(-matrix.bands // groups)
    scaled = np.zeros((opportunities, groups, window))
    column = matrix.toeplitz_column
    for back in range(window):
        lags = np.arange(back * groups, min((back + 1) * groups, matrix.bands))
        own = slice(0, (opportunities - back) * groups, groups)
        entries = band_of(matrix)[own][:, lags] if column is None else column[lags]
        scaled[back:, : lags.size, back] = entries / sigma
    scaled.reshape(opportunities * groups, window)[matrix.steps :] = 0.0  # the last block may be short
    fresh = np.concatenate([[True], (scaled[1:] != scaled[:-1]).any(axis=(1, 2))])
    return Participations(scaled, fresh, prob)
