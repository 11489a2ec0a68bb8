"""Proposals that bound the ratio of every sample from one side (docs/theory/monte-carlo/many-bands.md).

Where the columns of many opportunities overlap, no recursion computes the ratio. Here it is bounded, from below by a
mean field and from above by histories that are drawn, so every proposal gives bounds of one side. The pairs are those
of :mod:`.subjects`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.far.chains import DECAYS, MAX_ORDER, Chain, chain_of, kept_shares
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.draws import Chained, Draws, draw_above, draw_add, draw_below
from hockeystick.monte_carlo.far.kept_counts import law_of
from hockeystick.monte_carlo.far.limits import Limits, chance_of_others, is_listed
from hockeystick.monte_carlo.far.subjects import columns_for, why_not
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.moved import MovedBelow
from hockeystick.monte_carlo.proposals import Proposal, rounded
from hockeystick.monte_carlo.weighing import BELOW_SHARE, TILTED_SHARE, LowerBounds, UpperBounds
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.visits import binomial
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF

SECONDS_PER_ENTRY, SECONDS_PER_WAITED_ENTRY = 8e-10, 1.1e-9
SECONDS_PER_ENTRY_ABOVE = 1.5e-10
"""Of an upper bound: most counts are given up before anything is multiplied."""
HISTORIES = 2
"""Estimates of the ratio whose mean is taken."""
RATES = np.geomspace(1.0, 64.0, 17)
"""Rates of the filtered outputs, in units of the sampling rate. They, and what :mod:`.limits` and :mod:`.chains` list,
are all that there are: whoever wants another bound from the same seed finds few designs to try."""
MAX_RATE = 0.9
LARGEST_BOUND = 1.0
"""Upper bounds whose M is larger than this take more samples than anybody draws."""
TRIED = 48
"""Outputs by which rates are compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Far(Proposal):
    """What the proposals share.

    Attributes:
        pair: one that :func:`.subjects.why_not` does not refuse.
    """

    seconds: ClassVar[tuple[float, float]] = (1.2e-7, 5e-8)
    """Of an opportunity; and where there is one visit in each epoch."""

    pair: DominatingPair

    @property
    def own(self) -> Columns:
        """The columns of the opportunities, on the side that is bounded."""
        return columns_for(self.pair, self.sides[0])

    @property
    def proved(self) -> bool:
        return why_not(self.pair) is None

    @property
    def cost(self) -> float:
        """Filtered outputs, products with the columns, and a mean field: passes over columns and inner products."""
        each = SECONDS_PER_ENTRY if self.own.law.min_sep == 1 else SECONDS_PER_WAITED_ENTRY
        return self._cost(each)

    def _cost(self, per_entry: float) -> float:
        """Seconds for the opportunities, and for the pairs of one and a later one that its column reaches."""
        own, (opportunities, reach) = self.own, self.own.couplings.shape
        entries = float(reach * (opportunities - 0.5 * reach))
        return own.steps * self.seconds[bool(own.law.bins)] + entries * per_entry


@dataclass(frozen=True, kw_only=True, eq=False)
class Above(UpperBounds, Far):
    """Outputs whose density is at least a power of ``X'_A``, mixed with filtered outputs; the ratio is estimated.

    Histories with many participations in a block are left out.

    Attributes:
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
        block: opportunities of a block.
        limit: the most participations in a block; both are those of :func:`.limits.is_listed`.
    """

    rate: float
    block: int
    limit: int

    @property
    @abstractmethod
    def source(self) -> Any:
        """What counts are drawn from, one of :data:`.draws.SOURCES`."""

    @property
    def left_out(self) -> float:
        return chance_of_others(self.own, self.limits)

    @property
    def proved(self) -> bool:
        return super().proved and self.rate in rates(self.own) and is_listed(self.own, self.limits)

    @property
    def limits(self) -> Limits:
        """On participations."""
        return Limits(self.block, self.limit)

    def drawn(self, rng: np.random.Generator, samples: int) -> Array:
        own, drawn = self.own, np.empty((samples, 3))
        draws = Draws(self.block, self.limit, binomial(own.law.coins, self.rate), TILTED_SHARE, HISTORIES)
        draw_above(rng, own.overlaps, own.law.edges, self.source, draws, drawn)
        drawn[:, 1] = self.order * drawn[:, 1] - self.log_norm
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted(Above):
    """Outputs of a chain of counts.

    Attributes:
        decay: of the chain's field, one of DECAYS.
    """

    name: ClassVar[str] = "far_counted"
    chosen: ClassVar[tuple[str, ...]] = ("order", "decay", "rate", "block", "limit")
    seconds: ClassVar[tuple[float, float]] = (1.2e-7, 1e-7)
    decay: float

    @property
    def proved(self) -> bool:
        return 2 <= self.order <= MAX_ORDER and self.decay in DECAYS and super().proved

    @property
    def cost(self) -> float:
        """Most counts of the chain are given up early, so few samples take passes over columns."""
        return self._cost(SECONDS_PER_ENTRY_ABOVE) + (self.own.law.coins - 1) * self.own.steps * self.seconds[0]

    @property
    def loss_error(self) -> float:
        """That of the products and filters, and of the chain's table, whose entries are sums of positive terms."""
        own, chain = self.own, self._chain
        terms = self.order * own.law.coins + abs(chain.log_norm) + 2.0 * chain.largest_log
        entries = 16.0 * UNIT_ROUNDOFF * own.steps * (terms + self.limit + 16.0)
        return float(max(1e-9, own.rounding(self.order + 1.0, self.order + 1.0) + entries))

    @property
    def _chain(self) -> Chain:
        return chain_of(self.own, self.order, self.decay, self.limits)

    @property
    def log_norm(self) -> float:
        return self._chain.log_norm

    @property
    def source(self) -> Chained:
        own, tables = self.own, self._chain.tables
        assert tables is not None  # M is infinite where there is none
        starts = np.cumsum(own.law.start * (1.0 - own.law.prob) ** -np.arange(own.law.start.size))
        scratch = law_of(own.steps, tables)
        return Chained(tables, own.law.min_sep, starts / starts[-1], kept_shares(own, self.order), scratch)


@dataclass(frozen=True, kw_only=True, eq=False)
class Below(LowerBounds, Far):
    """A mixture of P and of filtered outputs.

    Attributes:
        rate: the chance of an opportunity in the filtered outputs, one of :func:`rates`.
    """

    name: ClassVar[str] = "far_below"
    chosen: ClassVar[tuple[str, ...]] = ("rate",)
    rate: float

    @property
    def proved(self) -> bool:
        return super().proved and self.rate in rates(self.own)

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, self.own.rounding(2.0, 2.0)))

    def drawn(self, rng: np.random.Generator, samples: int) -> Array:
        return drawn_below(rng, self.own, self.rate, BELOW_SHARE, samples)[:, [0, 0, 1]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Add(MovedBelow, Far):
    """Add, upper bounds."""

    name: ClassVar[str] = "far_add"
    seconds: ClassVar[tuple[float, float]] = (1.2e-7, 2e-8)

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, self.own.rounding(self.beta + 2.0, self.beta + 2.0)))

    @property
    def moments(self) -> tuple[float, float]:
        return self.own.moments

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        own, drawn = self.own, np.empty((samples, 2))
        draw_add(rng, own.overlaps, own.law.edges, beta or 0.0, own.mean, drawn)
        return drawn


def drawn_below(rng: np.random.Generator, own: Columns, rate: float, share: float, samples: int) -> Array:
    """Lower bounds on log X and logarithms of F, shape (samples, 2): of filtered outputs with a chance, else of P."""
    drawn = np.empty((samples, 2))
    draw_below(rng, own.overlaps, own.law.edges, binomial(own.law.coins, rate), share, drawn)
    return drawn


def rates(own: Columns) -> list[float]:
    """The rates of filtered outputs that are proposed, ascending."""
    return sorted({rounded(min(own.law.prob * rate, MAX_RATE)) for rate in RATES})


def best_rate(own: Columns, epsilon: float) -> float:
    """The rate whose filtered outputs have a loss of about epsilon on the average."""
    some = rates(own)
    losses = np.maximum.accumulate([_mean_loss(own, rate) for rate in some])
    wanted = float(np.interp(epsilon, losses, some))
    return min(some, key=lambda rate: abs(rate - wanted))


@remembered
def _mean_loss(own: Columns, rate: float) -> float:
    """The mean loss of a few filtered outputs; only choices rest on it."""
    rng = np.random.Generator(np.random.SFC64(0))
    return float(drawn_below(rng, own, rate, 1.0, TRIED)[:, 0].mean())
