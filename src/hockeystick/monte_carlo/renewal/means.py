"""Proposals for b-min-sep in the direction add: the outputs of Q, moved away from the mean of P."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log, log1p
from typing import ClassVar

import numpy as np

from hockeystick.moments.copies.renewal import Renewal
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.moved import Moved
from hockeystick.monte_carlo.proposals import Proposal, rounded
from hockeystick.monte_carlo.renewal.densities import (
    ENTRY_SECONDS,
    STEP_SECONDS,
    PlainRenewal,
    covered,
    loss_error_of,
    renewal_of,
)
from hockeystick.pairs.renewal_kernels import availability
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.visits import first_available
from hockeystick.types import Direction

BETAS = np.concatenate([np.arange(0.25, 4.0, 0.25), np.arange(4.0, 16.0, 1.0), np.arange(16.0, 129.0, 8.0)])
"""Strengths that are tried."""
THINNINGS = np.arange(0.3, 1.01, 0.05)
"""Chances to take part that are tried, as parts of the pair's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanProposal(Moved, PlainRenewal):
    """``N(-beta C E[x], sigma^2 I)``, which :class:`..moved.Moved` draws and bounds."""

    name: ClassVar[str] = "renewal_mean"

    @property
    def proved(self) -> bool:
        return covered(self.pair) and super().proved

    @property
    def cost(self) -> float:
        """Normals and one exponential for each step, and the inner products."""
        return float(self.pair.matrix.steps * (STEP_SECONDS + ENTRY_SECONDS * self.pair.columns.shape[1]))

    @property
    def loss_error(self) -> float:
        """Of the recursion, and of the weight's inner product."""
        return (2.0 + self.beta) * loss_error_of(self.pair, self.pair.min_sep)

    @property
    def moments(self) -> tuple[float, float]:
        return self.mean[1:]


@dataclass(frozen=True, kw_only=True, eq=False)
class ThinnedProposal(MeanProposal):
    """The same with the mean of rarer participations, which Jensen's inequality for X costs less.

    Participations with chance ``thinning q`` have a relative entropy K to those of the pair, and M is that of
    :class:`MeanProposal` with their mean, and with their A plus 2 K (docs/theory/monte-carlo/renewal-proposals.md).

    Attributes:
        thinning: in (0, 1].
    """

    name: ClassVar[str] = "renewal_thinned"
    chosen: ClassVar[tuple[str, ...]] = ("beta", "thinning")

    thinning: float

    @property
    def proved(self) -> bool:
        return 0.0 < self.thinning <= 1.0 and super().proved

    @property
    def mean(self) -> tuple[Array, float, float]:
        """``C E[x] / sigma`` of the rarer participations, its square norm, and ``A + 2 K`` in place of A."""
        return _thinned(renewal_of(self.pair), self.thinning)


def propose_means(pair: RenewalMixture, epsilon: float) -> list[Proposal]:
    """The one with the smallest M, if that is below the naive one's."""
    tilts = [
        ThinnedProposal(direction=Direction.ADD, pair=pair, beta=float(beta), thinning=rounded(thinning))
        for thinning in THINNINGS
        for beta in BETAS
    ]
    best = min(tilts, key=lambda tilt: tilt.weight_bound(epsilon))
    return [best] if best.weight_bound(epsilon) < 1.0 else []


@lru_cache(maxsize=64)
def _thinned(renewal: Renewal, thinning: float) -> tuple[Array, float, float]:
    """``C E[x] / sigma``, its square norm and ``A + 2 K`` for participations of chance ``thinning q``. O(n p)."""
    rate = thinning * renewal.prob
    first = first_available(renewal.min_sep, renewal.prob, renewal.warm)
    available = availability(renewal.steps, renewal.min_sep, rate, first)
    mean, square, energy = replace(renewal, chances=rate * available).mean
    # By the chain rule: the entropy of each coin, for the steps at which it is flipped; first availabilities are equal.
    coin = rate * log(thinning) + (1.0 - rate) * (log1p(-rate) - log1p(-renewal.prob))
    return mean, square, energy + 2.0 * coin * float(available.sum())
