"""Lower bounds by linear statistics of disjoint blocks of rows, for subsets of steps and any strategy matrix.

An adversary who keeps only ``<w, y>``, w a unit vector, sees a Gaussian whose mean is a sum over the steps in S of
``a_j = <w, C_j>``. Any w gives a lower bound; we take ``w = C 1`` normalised, on windows of m steps, whose statistics
are independent and compose. Under cyclic sampling the group with the largest sum of squared columns is taken.

Proof: docs/theory/subsets/reductions.md. Errs downward: the statistics are a post-processing, shifts are rounded down
(by more than their own rounding), the laws are lower laws. Cost: O(non-zero entries) and one product mixture for
each m on coarse grids, then a few fine ones.
"""

from collections.abc import Mapping

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.base import Indices
from hockeystick.types import Direction, Side
from hockeystick.windows.column_entries import Entries, entries_of, why_too_many
from hockeystick.windows.windows import MOST_STEPS, best_windows, in_windows, window_law, window_sizes

SHORTEST = 1e-100
"""Windows with shorter sums of columns are left out: squares near the end of the range of doubles lose digits."""


def steps_in_play(pair: SubsetMixture) -> Indices:
    """The steps at which the example may take part: those of the group with the largest sum of squared columns."""
    group_of_step = np.arange(pair.matrix.steps) % pair.groups
    return pair.group_steps(int(np.argmax(np.bincount(group_of_step, weights=pair.matrix.column_norms**2))))


def statistic_shifts(entries: Entries, size: int) -> Array:
    """``a_j`` of each window of ``size`` steps, rounded down; shape (windows, size), rows sorted, largest first."""
    steps = entries.entries.shape[1]
    window = entries.first // size
    sums = np.where(window == entries.last // size, entries.sums, 0.0)
    lengths = np.sqrt(np.bincount(window, weights=sums * sums, minlength=-(-steps // size)))
    lengths[lengths < SHORTEST] = np.inf
    shifts: Array = entries.entries.T @ (sums / lengths[window])
    return in_windows(shifts * (1.0 - entries.error), size)


def _laws(pair: SubsetMixture, side: Side, settings: Settings) -> list[Law]:
    entries = entries_of(pair.matrix, steps_in_play(pair), settings.deadline)
    sizes = window_sizes(entries.entries.shape[1], entries.overlap)
    candidates = [statistic_shifts(entries, size) for size in sizes]
    prob, sigma = pair.sampling_prob, pair.noise_multiplier
    chosen = best_windows(candidates, prob, sigma, side, settings.asked_epsilon, settings.resolution, settings.deadline)
    return [window_law(shifts, prob, sigma, side, settings.resolution, settings.deadline) for shifts in chosen]


def _analyse(pair: SubsetMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    return law_profiles(*_laws(pair, side, settings), choose=max)


def _cost(pair: SubsetMixture) -> float:
    """Seconds for the coarse laws, and for the law of the largest sum."""
    return 0.3 + 1e-6 * pair.matrix.steps + 5e-8 * min(pair.matrix.steps, MOST_STEPS) ** 2


ACCOUNTANT = Accountant(
    name="linear_statistic",
    summary="what sums over blocks of rows reveal, for Poisson and cyclic Poisson sampling of any strategy",
    sides=(Side.LOWER,),
    errs="downward: fixed linear statistics are a post-processing, and shifts are rounded down",
    reference="post-processing; proof in docs/theory/subsets/reductions.md",
    analyses={SubsetMixture: _analyse},
    laws={SubsetMixture: _laws},
    refusal=lambda pair, side: pair.why_not_from_below or why_too_many(pair.matrix, steps_in_play(pair).size),
    cost=_cost,
    no_better_than=("direct",),
)
