"""Several examples of one user under b-min-sep subsampling, each of which keeps its own distance."""

from dataclasses import dataclass

from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies import StrategyMatrix


@dataclass(frozen=True, kw_only=True, eq=False)
class WaitingCopies(DominatingPair):
    """``P = E N(C (x_1 + ... + x_k), sigma^2 I)`` against ``Q = N(0, sigma^2 I)``: k independent renewal processes.

    Exactly the mechanism for k examples with the same constant gradient, which are the worst (docs/theory/units.md,
    Theorem 1), so whatever is below this pair is below the mechanism for a user. Accountants bound it from below;
    from above they take the coins of Poisson sampling, as no upper bound of this pair itself is computed.

    Attributes:
        one: the pair of a single example, attained and with ``examples_per_user`` = 1.
        examples: k.
    """

    one: RenewalMixture
    examples: int

    @property
    def matrix(self) -> StrategyMatrix:
        """C."""
        return self.one.matrix

    @property
    def why_not_from_below(self) -> str | None:
        """The reason that holds for a single example, or None."""
        return self.one.why_not_from_below

    @property
    def full_sensitivity(self) -> float:
        """k times that of one example."""
        return self.examples * self.one.full_sensitivity


def copies_of(pair: RenewalMixture | WaitingCopies) -> tuple[RenewalMixture, int]:
    """The pair of one example, and how many there are."""
    return (pair.one, pair.examples) if isinstance(pair, WaitingCopies) else (pair, 1)
