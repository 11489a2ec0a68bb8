"""Upper bounds by splitting every row's noise among windows of steps, for subsets of steps and any strategy matrix.

Whoever sees, for every window of m steps by itself, its part of every row with its share of the row's noise can add
them up and has the output. The windows are independent mechanisms, each dominated by a product mixture on the line.
Shares are proportional to the norms of the row's parts. Under cyclic sampling of a Toeplitz matrix the first group is
the worst; for others the windows of all groups are bounded together, shift by shift. b-min-sep subsampling is Poisson
subsampling with participations left out (:mod:`.deletion`).

Proof: docs/theory/subsets/reductions.md. Errs upward: it reveals more than the run does, shifts are rounded up, the
laws are upper laws. Cost: O(non-zero entries) and one product mixture for each m on coarse grids, then a few fine ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hockeystick.accountants import deletion
from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import Indices
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.windows.column_entries import Entries

_KNOWN: "WeakKeyDictionary[StrategyMatrix, dict[int, list[Array]]]" = WeakKeyDictionary()
"""Shifts do not depend on the noise, the rate or delta, so searches over those need them once; by number of groups."""
SMALLEST_ENTRY = 1e-140
"""Positive entries below this are raised to it, so that no square underflows; the profile grows with every entry."""


def groups_in_play(pair: SubsetMixture) -> list[Indices]:
    """The steps of each group that may be the worst."""
    groups = 1 if pair.matrix.toeplitz_column is not None else pair.groups_in_play
    return [pair.group_steps(group) for group in range(groups)]


def split_shifts(entries: "Entries", size: int) -> Array:
    """Lengths of the columns of each window of ``size`` steps, rounded up; shape (windows, size), largest first.

    O(non-zero entries). Raises UnsupportedError for entries whose squares overflow.
    """
    from hockeystick.windows.windows import in_windows

    by_row = entries.entries.tocsr()
    by_row.sort_indices()
    row = np.repeat(np.arange(by_row.shape[0]), np.diff(by_row.indptr))
    window = by_row.indices // size
    new = np.concatenate([[True], (np.diff(row) > 0) | (np.diff(window) > 0)])
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.maximum(by_row.data, SMALLEST_ENTRY) ** 2
        parts = np.sqrt(np.add.reduceat(squares, np.flatnonzero(new)))
        inverse_share = np.bincount(row[new], weights=parts)[row[new]] / parts
        lengths = np.bincount(
            by_row.indices, weights=squares * inverse_share[np.cumsum(new) - 1], minlength=by_row.shape[1]
        )
    if not np.isfinite(lengths).all():
        raise UnsupportedError("Noise is split only where the squares of all entries of C are in the range of doubles.")
    return in_windows(np.sqrt(lengths) * (1.0 + entries.error), size)


def worst_windows(groups: list[Array]) -> Array:
    """Shifts that are at least those of every group, window by window; shape (most windows, size)."""
    worst = np.zeros_like(max(groups, key=len))
    for shifts in groups:
        np.maximum(worst[: len(shifts)], shifts, out=worst[: len(shifts)])
    return worst


def _laws(pair: SubsetMixture, side: Side, settings: Settings) -> list[Law]:
    from hockeystick.windows.windows import best_windows, window_law

    candidates = _candidates(pair, settings)
    prob, sigma = pair.sampling_prob, pair.noise_multiplier
    chosen = best_windows(candidates, prob, sigma, side, settings.asked_epsilon, settings.resolution, settings.deadline)
    return [window_law(shifts, prob, sigma, side, settings.resolution, settings.deadline) for shifts in chosen]


def _analyse(pair: SubsetMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    return law_profiles(*_laws(pair, side, settings), choose=min)


def _candidates(pair: SubsetMixture, settings: Settings) -> list[Array]:
    """The windows of all candidate sizes, those of all groups together; raises UnsupportedError for lack of memory."""
    from hockeystick.windows.column_entries import MOST_ENTRIES, Entries, entries_of, too_many
    from hockeystick.windows.windows import window_sizes

    known = _KNOWN.setdefault(pair.matrix, {})
    if pair.groups not in known:
        groups, count = list[Entries](), 0
        for steps in groups_in_play(pair):
            groups.append(entries_of(pair.matrix, steps, settings.deadline))
            count += groups[-1].entries.nnz
            if count > MOST_ENTRIES:
                raise too_many()
        candidates = []
        for size in window_sizes(groups[0].entries.shape[1], groups[0].overlap):
            settings.deadline.tick()
            candidates.append(worst_windows([split_shifts(entries, size) for entries in groups]))
        known[pair.groups] = candidates
    return known[pair.groups]


def _cost(pair: SubsetMixture) -> float:
    """Seconds for the coarse laws of windows of all sizes."""
    from hockeystick.windows.windows import MOST_STEPS

    steps = pair.matrix.steps
    return 0.5 + 5e-7 * steps * min(pair.matrix.bands, steps) + 5e-8 * min(steps, MOST_STEPS) ** 2


def _refusal(pair: SubsetMixture, side: Side) -> str | None:
    from hockeystick.windows.column_entries import why_too_many

    return why_too_many(pair.matrix, pair.matrix.steps)


ACCOUNTANT = Accountant(
    name="split_noise",
    summary="shares out every row's noise among windows of steps, for Poisson, cyclic Poisson and b-min-sep sampling",
    sides=(Side.UPPER,),
    errs="upward: the windows together reveal at least the output, and shifts are rounded up",
    reference="docs/theory/subsets/reductions.md",
    analyses={SubsetMixture: _analyse, **deletion.analyses(_analyse)},
    laws={SubsetMixture: _laws, **deletion.laws(_laws)},
    refusal=deletion.refusal(_refusal),
    cost=deletion.cost(_cost),
    no_better_than=("direct",),
)
