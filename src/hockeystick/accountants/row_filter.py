"""Lower bounds for few bands by a sum over rows, each judged by a summary of the rows before it.

Any function of the output gives a lower bound. The summary tells how much the participations so far are expected to
shift the next row, so the sum comes close to the logarithm of the likelihood ratio, where a linear statistic
(:mod:`.linear_statistic`) cannot tell one participation from the sum of many rows' noise.

For Poisson sampling the law of the sum is computed step by step (:mod:`hockeystick.filters.row_filters`); for b-min-sep
subsampling, whose examples have to wait, frequency by frequency (:mod:`hockeystick.filters.renewal_filters`), for one
example or for two of one user that wait independently.

Proof: docs/theory/poisson-windows.md and separated-windows.md, "From below". Errs downward: a post-processing,
participations left out, laws that are contractions, and masses less their absolute errors. Cost: steps times sums times
some hundred times the histories of the last rows, seconds for b-min-sep, and up to half a minute for two examples.
"""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant, of_one_law
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import SMALLEST, Law, lower_law
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.waiting_copies import WaitingCopies, copies_of
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.filters.row_filters import Histories

FINE, COARSE = 5.0, 1.5
"""Units of the sum for the standard deviation of what one row adds: no more are of use, and fewer are not."""
SIZE = 14.0
"""About how many standard deviations of the sum are kept."""
MOST_WORK = 2.4e10
SPEED = 1.2e9
"""Multiplications in a second."""
LARGEST_SHIFT = 8.0
"""The largest shift of a row by participations that begin there, one of each example, in standard deviations."""
RAREST, MOST_OFTEN = 1e-12, 0.99
MOST_RENEWAL_WORK, RENEWAL_SPEED = {1: 4e9, 2: 2e10}, 8e8
"""Operations at most, by the number of examples, and in a second."""
MOST_RENEWAL_STEPS = 20_000
LARGEST_ERROR = 1e-3
"""Relative, of the laws of b-min-sep."""


def _histories(pair: SubsetMixture) -> "Histories":
    from hockeystick.filters.row_filters import histories_of, tracked

    column = pair.matrix.toeplitz_column
    assert column is not None  # refused otherwise
    bands = pair.matrix.bands
    return histories_of(column[:bands], pair.noise_multiplier, tracked(bands, pair.sampling_prob))


def _per_deviation(pair: SubsetMixture) -> float:
    """Units of the sum for its standard deviation, as the work allows."""
    from hockeystick.filters.row_filters import work_of

    steps = pair.matrix.steps
    work = work_of(_number(pair), SIZE, steps)
    return min(FINE * float(np.sqrt(steps)), MOST_WORK / work)


def _number(pair: SubsetMixture) -> int:
    from hockeystick.filters.row_filters import count_histories, tracked

    return count_histories(pair.matrix.bands, tracked(pair.matrix.bands, pair.sampling_prob))


def _law(pair: SubsetMixture, settings: Settings) -> Law:
    from hockeystick.filters.row_filters import filter_for, sum_laws, work_of

    settings.deadline.tick()
    histories, prob, steps = _histories(pair), pair.sampling_prob, pair.matrix.steps
    if histories.own > LARGEST_SHIFT:
        raise UnsupportedError("The noise is too low: the cells of a row are for shifts of a few standard deviations.")
    table = filter_for(histories, prob, steps, _per_deviation(pair))
    if work_of(histories.free.size, table.size, steps) > 4.0 * MOST_WORK:
        raise UnsupportedError("The example is so visible that the sums over rows have too many values.")
    settings.deadline.tick()
    without, taking_part, error = sum_laws(histories, table, prob, steps, pair.matrix.rounding)
    # Where a mass may have lost digits to underflow, both are left out, which only lowers expectations.
    kept = (without > SMALLEST) & (taking_part > SMALLEST)
    without, taking_part = without[kept], taking_part[kept]
    order = np.argsort(taking_part / without, kind="stable")
    return lower_law(without[order], taking_part[order], error, 2.0 * error)


def _analyse_renewal(
    pair: RenewalMixture | WaitingCopies, side: Side, settings: Settings
) -> Mapping[Direction, Profile]:
    from hockeystick.filters import renewal_filters

    example, copies = copies_of(pair)
    column, steps, prob, min_sep = (
        example.matrix.toeplitz_column,
        example.matrix.steps,
        example.participation_prob,
        example.min_sep,
    )
    assert column is not None  # refused otherwise
    shifts = column[: example.matrix.bands] / pair.noise_multiplier
    if copies * float(shifts.max()) > LARGEST_SHIFT:
        raise UnsupportedError("The noise is too low: the cells of a row are for shifts of a few standard deviations.")
    table = renewal_filters.filter_for(shifts, prob, min_sep, steps, copies)
    if table is None:
        raise UnsupportedError("The sums over rows have too many values.")
    most = MOST_RENEWAL_WORK[copies] / renewal_filters.work_of(1.0, shifts.size, min_sep, steps, copies)
    used = renewal_filters.frequencies_for(table, shifts.size, min_sep, steps, settings.deadline, copies, most)
    if used.numbers.size > most:
        raise UnsupportedError("The law of a sum over rows has too many frequencies that matter.")
    sums = renewal_filters.sum_laws(
        table,
        shifts,
        prob,
        min_sep,
        steps,
        first=example.first_available,
        rounding=example.matrix.rounding,
        frequencies=used,
        deadline=settings.deadline,
        examples=copies,
    )
    if not sums.relative <= LARGEST_ERROR:
        raise UnsupportedError("The masses of the cells of a row are not known well enough.")
    return {
        Direction.REMOVE: lambda epsilon: sums.delta(sums.present, sums.without, epsilon),
        Direction.ADD: lambda epsilon: sums.delta(sums.without, sums.present, epsilon),
    }


def _renewal_refusal(pair: RenewalMixture | WaitingCopies) -> str | None:
    example, copies = copies_of(pair)
    if example.examples_per_user > 1 or copies not in MOST_RENEWAL_WORK:
        return "it is for one example, or two that wait independently"
    if not RAREST <= example.participation_prob <= MOST_OFTEN:
        return f"the sampling probability must be from {RAREST} to {MOST_OFTEN}"
    if pair.matrix.toeplitz_column is None or pair.matrix.rows != pair.matrix.steps:
        return "it needs a Toeplitz strategy matrix"
    if pair.matrix.bands > min(example.min_sep, pair.matrix.steps):
        return "columns of two participations overlap"
    if pair.matrix.steps > MOST_RENEWAL_STEPS or _renewal_work(pair) > MOST_RENEWAL_WORK[copies]:
        return "the run has too many steps"
    return None


def _renewal_work(pair: RenewalMixture | WaitingCopies) -> float:
    from hockeystick.filters import renewal_filters

    example, copies = copies_of(pair)
    if copies not in MOST_RENEWAL_WORK:
        return inf
    shape = (pair.matrix.bands, example.min_sep, pair.matrix.steps, copies)
    return renewal_filters.work_of(renewal_filters.likely_frequencies(*shape), *shape)


def _refusal(pair: SubsetMixture | RenewalMixture | WaitingCopies, side: Side) -> str | None:
    from hockeystick.filters.row_filters import tracked

    if isinstance(pair, RenewalMixture | WaitingCopies):
        return _renewal_refusal(pair)
    if pair.groups_in_play > 1:
        return "it is for Poisson sampling without groups"
    if not RAREST <= pair.sampling_prob <= MOST_OFTEN:
        return f"the sampling probability must be from {RAREST} to {MOST_OFTEN}"
    if pair.matrix.toeplitz_column is None or pair.matrix.rows != pair.matrix.steps:
        return "it needs a Toeplitz strategy matrix"
    if tracked(pair.matrix.bands, pair.sampling_prob) == 0:
        return "the strategy has too many bands"
    if _per_deviation(pair) < COARSE * np.sqrt(pair.matrix.steps):
        return "the run has too many steps"
    return None


def _cost(pair: SubsetMixture | RenewalMixture | WaitingCopies) -> float:
    """Seconds for the law of the sum."""
    from hockeystick.filters.row_filters import work_of

    if isinstance(pair, RenewalMixture | WaitingCopies):
        return 0.2 + _renewal_work(pair) / RENEWAL_SPEED
    return 0.5 + work_of(_number(pair), SIZE * _per_deviation(pair), pair.matrix.steps) / SPEED


_ANALYSE, _LAWS = of_one_law(_law)

ACCOUNTANT = Accountant(
    name="row_filter",
    summary="a sum over rows, judged by a summary of those before, for Poisson or b-min-sep",
    sides=(Side.LOWER,),
    errs="downward: a function of the output is a post-processing, and its laws are contractions",
    reference="post-processing; proof in docs/theory/poisson-windows.md and docs/theory/separated-windows.md",
    analyses={SubsetMixture: _ANALYSE, RenewalMixture: _analyse_renewal, WaitingCopies: _analyse_renewal},
    laws={SubsetMixture: _LAWS},
    refusal=_refusal,
    cost=_cost,
    example=examples.poisson,
    no_better_than=("direct",),
)
