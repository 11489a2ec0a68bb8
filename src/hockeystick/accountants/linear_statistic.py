"""Lower bounds by linear statistics of blocks of rows, for subsets of steps and b-min-sep, and any strategy matrix.

An adversary who keeps only ``<w, y>``, w a unit vector, sees a Gaussian whose mean is a sum over the steps in S of
``a_j = <w, C_j>``. Any w gives a lower bound; we take ``w = C 1`` normalised, on windows of m steps, whose statistics
are independent and compose. Under cyclic sampling the group with the largest sum of squared columns is taken.

Under b-min-sep sampling the windows depend on each other, so one statistic of the first steps is taken at a time; the
law of its mean is a sum over the participations of a renewal process, or over those of several examples of a user.

Proof: docs/theory/subsets/reductions.md, and separated-windows.md, "From below". Errs downward: the statistics are a
post-processing, shifts are rounded down (by more than their own rounding), the laws are lower laws. Cost: O(non-zero
entries) and one product mixture for each m on coarse grids, then a few fine ones; under b-min-sep O(n PARTS) for each
of the participations that there can be, and the square of that for every further example.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.waiting_copies import WaitingCopies, copies_of
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.base import Indices
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.windows.column_entries import Entries

PARTS = 64
"""A step of the lattice, of the longest shift, on which shifts are rounded down under b-min-sep sampling."""
MOST_PLACES = 2048
MOST_WORK = 1e9
SHORTEST = 1e-100
"""Windows with shorter sums of columns are left out: squares near the end of the range of doubles lose digits."""


def steps_in_play(pair: SubsetMixture) -> Indices:
    """The steps at which the example may take part: those of the group with the largest sum of squared columns."""
    group_of_step = np.arange(pair.matrix.steps) % pair.groups
    return pair.group_steps(int(np.argmax(np.bincount(group_of_step, weights=pair.matrix.column_norms**2))))


def statistic_shifts(entries: "Entries", size: int) -> Array:
    """``a_j`` of each window of ``size`` steps, rounded down; shape (windows, size), rows sorted, largest first."""
    from hockeystick.windows.windows import in_windows

    return in_windows(_shifts(entries, size), size)


def _shifts(entries: "Entries", size: int) -> Array:
    """``a_j`` of every step in play, for windows of ``size`` steps, rounded down."""
    steps = entries.entries.shape[1]
    window = entries.first // size
    sums = np.where(window == entries.last // size, entries.sums, 0.0)
    lengths = np.sqrt(np.bincount(window, weights=sums * sums, minlength=-(-steps // size)))
    lengths[lengths < SHORTEST] = np.inf
    shifts: Array = entries.entries.T @ (sums / lengths[window])
    rounded: Array = shifts * (1.0 - entries.error)
    return rounded


def _laws(pair: SubsetMixture, side: Side, settings: Settings) -> list[Law]:
    from hockeystick.windows.column_entries import entries_of
    from hockeystick.windows.windows import best_windows, window_law, window_sizes

    entries = entries_of(pair.matrix, steps_in_play(pair), settings.deadline)
    sizes = window_sizes(entries.entries.shape[1], entries.overlap)
    candidates = [statistic_shifts(entries, size) for size in sizes]
    prob, sigma = pair.sampling_prob, pair.noise_multiplier
    chosen = best_windows(candidates, prob, sigma, side, settings.asked_epsilon, settings.resolution, settings.deadline)
    return [window_law(shifts, prob, sigma, side, settings.resolution, settings.deadline) for shifts in chosen]


def _of_renewals(pair: RenewalMixture | WaitingCopies, side: Side, settings: Settings) -> list[Law]:
    """One law for each of some numbers of first steps, whose statistic is the only one that is kept."""
    from hockeystick.filters.renewal_sums import renewal_sum
    from hockeystick.laws.lattice import lattice_law
    from hockeystick.laws.mixtures import LatticeMasses, coarsen
    from hockeystick.windows.column_entries import entries_of

    example, copies = copies_of(pair)
    entries = entries_of(pair.matrix, np.arange(pair.matrix.steps), settings.deadline)
    examples, prob = example.examples_per_user, example.participation_prob
    chances = np.ones(1)  # of a number of examples: products and sums of positive numbers, one example after the other
    for _ in range(examples):
        chances = np.convolve(chances, [1.0 - prob, prob])
    chance_error = 8.0 * (examples + 1.0) * UNIT_ROUNDOFF  # relative, of their sum too
    laws = []
    for size in _first_steps(example):
        settings.deadline.tick()
        shifts = _shifts(entries, size)[:size]
        spacing = float(shifts.max()) / PARTS
        if not spacing > 0.0:
            continue
        counts = np.floor(shifts / spacing * (1.0 + 4.0 * UNIT_ROUNDOFF)).astype(np.int64)
        single, error = renewal_sum(counts, chances / chances.sum(), example.min_sep, example.first_available)
        masses = single
        for _ in range(copies - 1):
            masses = np.convolve(masses, single)
        # sums of non-negative products, of no more terms than one example has masses
        error = copies * (error + 2.0 * (single.size + 1.0) * UNIT_ROUNDOFF)
        whole = LatticeMasses(
            masses / masses.sum(), spacing, 0.0, 2.0 * error + 2.0 * copies * pair.matrix.steps * chance_error
        )
        whole = coarsen(whole, max(masses.size // MOST_PLACES, 1), side)
        law = lattice_law(
            whole.masses,
            whole.spacing,
            pair.noise_multiplier,
            side,
            settings.resolution,
            weight_error=whole.error,
        )
        laws.append(law)
    return laws


def _first_steps(pair: RenewalMixture) -> list[int]:
    """How many first steps the statistics are about: all, and few, which is better where the noise is low."""
    steps = pair.matrix.steps
    return sorted({min(size, steps) for size in (1, pair.min_sep, 4 * pair.min_sep, 16 * pair.min_sep, steps)})


def _analyse_renewals(
    pair: RenewalMixture | WaitingCopies, side: Side, settings: Settings
) -> Mapping[Direction, Profile]:
    return law_profiles(*_of_renewals(pair, side, settings), choose=max)


def _refusal(pair: SubsetMixture | RenewalMixture | WaitingCopies, side: Side) -> str | None:
    from hockeystick.windows.column_entries import why_too_many

    if isinstance(pair, SubsetMixture):
        return why_too_many(pair.matrix, steps_in_play(pair).size)
    example, copies = copies_of(pair)
    steps = pair.matrix.steps
    length = PARTS * example.examples_per_user * (-(-steps // example.min_sep))
    if length * (steps * example.examples_per_user + length * copies * (copies - 1) / 2) > MOST_WORK:
        return "the sums of so many participations take too long"
    return why_too_many(pair.matrix, steps)


def _analyse(pair: SubsetMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    return law_profiles(*_laws(pair, side, settings), choose=max)


def _cost(pair: SubsetMixture | RenewalMixture | WaitingCopies) -> float:
    """Seconds for the coarse laws, and for the law of the largest sum."""
    from hockeystick.windows.windows import MOST_STEPS

    return 0.3 + 1e-6 * pair.matrix.steps + 5e-8 * min(pair.matrix.steps, MOST_STEPS) ** 2


ACCOUNTANT = Accountant(
    name="linear_statistic",
    summary="what sums over blocks of rows reveal, for Poisson, cyclic Poisson and b-min-sep sampling of any strategy",
    sides=(Side.LOWER,),
    errs="downward: fixed linear statistics are a post-processing, and shifts are rounded down",
    reference="post-processing; proof in docs/theory/subsets/reductions.md",
    analyses={SubsetMixture: _analyse, RenewalMixture: _analyse_renewals, WaitingCopies: _analyse_renewals},
    laws={SubsetMixture: _laws, RenewalMixture: _of_renewals, WaitingCopies: _of_renewals},
    refusal=_refusal,
    cost=_cost,
    no_better_than=("direct",),
)
