"""Proposals for b-min-sep subsampling whose columns reach beyond the separation.

Participations of one example then overlap, and the recursion for the ratio gives bounds that are of little use. Here
the ratio is bounded for each sample (docs/theory/monte-carlo/many-bands.md, "Examples that wait"), for any C.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from hockeystick.monte_carlo.forests.linked import Linked, Trees, best_linked
from hockeystick.monte_carlo.histories.columns import Columns, columns_of, why_no_columns
from hockeystick.monte_carlo.histories.one_sided import (
    LARGEST_BOUND,
    Above,
    Add,
    Below,
    OneSided,
    first_one_sided,
    one_sided,
)
from hockeystick.monte_carlo.histories.tuples import ALONE, Tuples, best_tuples
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.types import Direction, Side


@dataclass(frozen=True, kw_only=True, eq=False)
class _Wide(OneSided):
    """Of a pair that is not refused by :func:`why_not_wide`."""

    pair: RenewalMixture

    @property
    def own(self) -> Columns:
        return wide_columns(self.pair, self.sides[0])

    @property
    def covered(self) -> bool:
        return why_not_wide(self.pair) is None


@dataclass(frozen=True, kw_only=True, eq=False)
class WideAbove(_Wide, Above):
    """Remove, upper bounds."""

    name: ClassVar[str] = "renewal_wide_remembered"


@dataclass(frozen=True, kw_only=True, eq=False)
class WideBelow(_Wide, Below):
    """Remove, lower bounds."""

    name: ClassVar[str] = "renewal_wide_below"


@dataclass(frozen=True, kw_only=True, eq=False)
class WideAdd(_Wide, Add):
    """Add, upper bounds."""

    name: ClassVar[str] = "renewal_wide_add"


@dataclass(frozen=True, kw_only=True, eq=False)
class WideTuples(_Wide, Tuples):
    """Remove, upper bounds at small epsilon."""

    name: ClassVar[str] = "renewal_wide_tuples"


@dataclass(frozen=True, kw_only=True, eq=False)
class WideLinked(_Wide, Linked):
    """Remove, upper bounds for trees."""

    name: ClassVar[str] = "renewal_wide_linked"

    @property
    def covered(self) -> bool:
        return super().covered and trees_of(self.pair) is not None

    @property
    def trees(self) -> Trees:
        found = trees_of(self.pair)
        assert found is not None
        return found


ONE_SIDED = (WideBelow, WideAbove, WideAdd)
KINDS = (*ONE_SIDED, WideTuples, WideLinked)


def trees_of(pair: RenewalMixture) -> Trees | None:
    """Those whose nodes the matrix releases; None for others."""
    sizes = pair.matrix.tree_sizes
    return None if sizes is None else Trees(sizes, pair.noise_multiplier)


def wide_columns(pair: RenewalMixture, side: Side) -> Columns:
    """The columns of the steps, on this side of those of the pair."""
    return columns_of(
        pair.matrix,
        pair.noise_multiplier,
        pair.participation_prob,
        side,
        min_sep=pair.min_sep,
        warm_start=pair.warm_start,
    )


def why_not_wide(pair: RenewalMixture) -> str | None:
    """Why these proposals are not for this pair, or None."""
    if pair.banded and pair.too_large is None:
        return "the columns of one example do not overlap"
    if pair.examples_per_user > 1:
        return "several examples of a user wait together, and their columns overlap"
    return why_no_columns(pair.matrix)


def first_proposal(pair: RenewalMixture, direction: Direction, epsilon: float) -> Proposal:
    """The first one of :func:`proposals`."""
    return first_one_sided(pair, wide_columns(pair, Side.UPPER), ONE_SIDED, direction, epsilon)


def proposals(pair: RenewalMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds.

    For upper bounds links where there are trees, else a chain or tuples, whichever has the smaller M.
    """
    own = wide_columns(pair, Side.UPPER)
    if direction is Direction.ADD:
        return one_sided(pair, own, ONE_SIDED, direction, epsilon)
    first = first_proposal(pair, direction, epsilon)
    linked = _linked(pair, own, first, epsilon)
    if linked is not None:
        return first, linked
    tuples = _tuples(pair, own, first, epsilon)
    if tuples is not None and tuples.order >= ALONE:
        return first, tuples
    *_, other = found = one_sided(pair, own, ONE_SIDED, direction, epsilon)
    least = inf if other.name == first.name else other.weight_bound(epsilon)
    return (first, tuples) if tuples is not None and tuples.weight_bound(epsilon) < least else found


def _linked(pair: RenewalMixture, own: Columns, first: Proposal, epsilon: float) -> WideLinked | None:
    trees = trees_of(pair)
    chosen = None if trees is None else best_linked(own, trees, epsilon)
    if chosen is None:
        return None
    order, limit = chosen
    rate = first.parameters["rate"]
    one = WideLinked(direction=Direction.REMOVE, pair=pair, order=order, rate=rate, block=limit.block, limit=limit.most)
    return one if one.weight_bound(epsilon) < LARGEST_BOUND else None


def _tuples(pair: RenewalMixture, own: Columns, first: Proposal, epsilon: float) -> WideTuples | None:
    chosen = best_tuples(own, epsilon)
    if chosen is None:
        return None
    order, cap, limit = chosen
    rate = first.parameters["rate"]
    one = WideTuples(
        direction=Direction.REMOVE, pair=pair, order=order, cap=cap, rate=rate, block=limit.block, limit=limit.most
    )
    return one if one.weight_bound(epsilon) < LARGEST_BOUND else None
