"""Which proposals there are for columns that reach far, and which look best (docs/theory/monte-carlo/many-bands.md)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hockeystick.monte_carlo.far.chains import best_chain
from hockeystick.monte_carlo.far.limits import Limits
from hockeystick.monte_carlo.far.linked import Linked, best_linked, trees_of
from hockeystick.monte_carlo.far.proposals import LARGEST_BOUND, Above, Add, Below, Counted, best_rate
from hockeystick.monte_carlo.far.subjects import columns_for, subject_of, why_not
from hockeystick.monte_carlo.far.tuples import ALONE, Tuples, best_tuples
from hockeystick.monte_carlo.moved import best_beta
from hockeystick.monte_carlo.proposals import Family, Proposal
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.types import Direction, Side

COUNTED = (Below, Counted, Add)
"""For coins."""
KINDS = (*COUNTED, Tuples, Linked)


def propose(pair: DominatingPair, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """One for each side, for lower bounds first, where M is of any use; for add one for upper bounds.

    For upper bounds of examples that wait links where there are trees; else whatever has the smallest M.
    """
    first = first_proposal(pair, direction, epsilon)
    if not isinstance(first, Below):
        return (first,)
    own, rate, subject = columns_for(pair, Side.UPPER), first.rate, subject_of(pair)
    trees, linked, tuples = trees_of(pair), None, None
    if trees is not None and (chosen := best_linked(own, trees, epsilon)) is not None:
        linked = _above(Linked, pair, rate, chosen[1], epsilon, order=chosen[0])
    if linked is not None and not own.law.bins:
        return first, linked
    if subject.tuples and (best := best_tuples(own, epsilon)) is not None:
        tuples = _above(Tuples, pair, rate, best[2], epsilon, order=best[0], cap=best[1])
    if tuples is not None and tuples.order >= ALONE:
        return first, tuples
    order, decay, limit = best_chain(own, epsilon)
    counted = _above(Counted, pair, rate, limit, epsilon, order=order, decay=decay)
    above = [proposal for proposal in (counted, linked, tuples) if proposal is not None]
    return (first, min(above, key=lambda proposal: proposal.weight_bound(epsilon))) if above else (first,)


def first_proposal(pair: DominatingPair, direction: Direction, epsilon: float) -> Below | Add:
    """The first one of :func:`propose`: no chain is looked for, which takes seconds."""
    own = columns_for(pair, Side.UPPER)
    if direction is Direction.ADD:
        return Add(direction=direction, pair=pair, beta=best_beta(own.moments, epsilon))
    return Below(direction=direction, pair=pair, rate=best_rate(own, epsilon))


def _above(
    kind: type[Above], pair: DominatingPair, rate: float, limit: Limits, epsilon: float, **chosen: float
) -> Above | None:
    """The proposal with these parameters, if its M is of any use."""
    values: dict[str, Any] = {"rate": rate, "block": limit.block, "limit": limit.most, **chosen}
    proposal = kind(direction=Direction.REMOVE, pair=pair, **values)
    return proposal if proposal.weight_bound(epsilon) < LARGEST_BOUND else None


def fingerprint(pair: FreshBins) -> Sequence[Any]:
    """The bins, and what stands for the entries of C."""
    return (pair.bins, pair.matrix.steps, np.frombuffer(bytes.fromhex(pair.matrix.digest), dtype=np.uint8))


FAMILY = Family(
    pair=FreshBins,
    kinds=(*COUNTED, Linked),
    propose=propose,
    quick=first_proposal,
    fingerprint=fingerprint,
    refusal=lambda pair, side: why_not(pair),
)
"""Random allocation with correlated noise; pairs with recursions of their own have families elsewhere."""
