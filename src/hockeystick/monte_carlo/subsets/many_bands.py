"""Proposals for Poisson and cyclic Poisson sampling with many bands (docs/theory/monte-carlo/many-bands.md).

The recursion over patterns of recent participations visits 2^bands of them; here the ratio is bounded instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hockeystick.monte_carlo.histories.columns import Columns, columns_of, why_no_columns
from hockeystick.monte_carlo.histories.one_sided import Above, Add, Below, OneSided, first_one_sided, one_sided
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.types import Direction, Side

MAX_COINS = 16
"""Of an opportunity."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _ManyBands(OneSided):
    """Of a pair that is not refused by :func:`too_large`, and that subsamples."""

    pair: SubsetMixture

    @property
    def own(self) -> Columns:
        return subset_columns(self.pair, self.sides[0])

    @property
    def covered(self) -> bool:
        return too_large(self.pair) is None and not self.pair.batches_are_public


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyBandsAbove(_ManyBands, Above):
    """Remove, upper bounds."""

    name: ClassVar[str] = "many_bands_counted"


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyBandsBelow(_ManyBands, Below):
    """Remove, lower bounds."""

    name: ClassVar[str] = "many_bands_below"


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyBandsAdd(_ManyBands, Add):
    """Add, upper bounds."""

    name: ClassVar[str] = "many_bands_add"


KINDS = (ManyBandsBelow, ManyBandsAbove, ManyBandsAdd)


def subset_columns(pair: SubsetMixture, side: Side) -> Columns:
    """The columns of the opportunities, on this side of those of the pair."""
    return columns_of(
        pair.step_matrix, pair.noise_multiplier, pair.sampling_prob, side, groups=pair.groups, coins=pair.coins
    )


def too_large(pair: SubsetMixture) -> str | None:
    """Why the columns of this pair are not held."""
    if pair.coins > MAX_COINS:
        return f"a user has more than {MAX_COINS} examples"
    return why_no_columns(pair.step_matrix, pair.groups)


def first_proposal(pair: SubsetMixture, direction: Direction, epsilon: float) -> Proposal:
    """The first one of :func:`proposals`."""
    return first_one_sided(pair, subset_columns(pair, Side.UPPER), KINDS, direction, epsilon)


def proposals(pair: SubsetMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds."""
    return one_sided(pair, subset_columns(pair, Side.UPPER), KINDS, direction, epsilon)
