"""Correlated noise under b-min-sep subsampling: a mixture of Gaussians over participations that renew themselves."""

from dataclasses import dataclass

from hockeystick.pairs.base import DominatingPair
from hockeystick.strategies import StrategyMatrix


@dataclass(frozen=True, kw_only=True, eq=False)
class RenewalMixture(DominatingPair):
    """``P = E N(C x, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``, x the random participations; add swaps them.

    An example that is available at a step is taken with probability q; once taken it is unavailable for the next
    ``min_sep - 1`` steps.

    Attributes:
        matrix: C, with n columns.
        min_sep: b.
        participation_prob: q, the chance of an available example to be taken at a step.
        warm_start: whether the first steps are in the stationary state; otherwise all examples start available.
        examples_per_user: k_u; with 1 the unit of privacy is an example.
    """

    matrix: StrategyMatrix
    min_sep: int
    participation_prob: float
    warm_start: bool
    examples_per_user: int = 1

    @property
    def full_sensitivity(self) -> float:
        """TO BE WRITTEN."""
        raise NotImplementedError
