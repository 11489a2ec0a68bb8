"""Lower bounds for b-min-sep subsampling by one function of every block of rows, added over the run.

A linear statistic of a whole run sees how often an example takes part. Summing a curved function of each block instead,
about the logarithm of its likelihood ratio, also sees the few blocks that stand out, and comes close to the truth. The
laws of the sum with and without the example are computed, memory of the sampler included
(:mod:`hockeystick.filters.block_statistics`).

Proof: docs/theory/separated-windows.md, "From below". Errs downward: a function of the output is a post-processing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.separated_windows import RAREST
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array, Law, lower_law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.filters.block_statistics import Blocks

MOST_COST = 4e9
LARGEST_SHIFT = 20.0
"""In standard deviations; beyond it masses of cells underflow, and nothing is left to tell."""
SIZES = (1, 2, 4, 8, 16, 32)


def _column(pair: RenewalMixture) -> Array | None:
    column = pair.matrix.toeplitz_column
    return None if column is None else column[: pair.matrix.bands]


def _sizes(pair: RenewalMixture) -> list[int]:
    """Blocks in which no two participations can meet."""
    most = min(pair.min_sep + 1 - pair.matrix.bands, pair.matrix.steps)
    return [size for size in SIZES if size <= most]


def best_blocks(pair: RenewalMixture) -> "Blocks":
    """The blocks that tell most, of those that do not take too long; raises UnsupportedError where there are none."""
    from hockeystick.filters.block_statistics import CELLS_PER_DEVIATION, blocks_of

    column = _column(pair)
    assert column is not None  # refused otherwise
    steps, sigma, prob = pair.matrix.steps, pair.noise_multiplier, pair.participation_prob
    found = [
        blocks_of(column, steps, size, sigma, prob, pair.min_sep, cells)
        for size in _sizes(pair)
        for cells in CELLS_PER_DEVIATION
    ]
    allowed = [
        one for one in found if one.cost <= MOST_COST and one.edges.size > 1 and one.shifts.max() <= LARGEST_SHIFT
    ]
    if not allowed:
        raise UnsupportedError("No function of blocks of rows is quick enough for this run, or tells anything.")
    return max(allowed, key=lambda one: one.information)


def _law(pair: RenewalMixture, settings: Settings) -> Law:
    from hockeystick.filters.block_statistics import sum_laws

    settings.deadline.tick()
    blocks = best_blocks(pair)
    without, taking_part, error = sum_laws(
        blocks, pair.participation_prob, pair.min_sep, pair.first_available, pair.matrix.rounding
    )
    order = np.argsort(taking_part / np.maximum(without, 1e-300), kind="stable")
    return lower_law(without[order], taking_part[order], error, 2.0 * error)


def _laws(pair: RenewalMixture, side: Side, settings: Settings) -> Sequence[Law]:
    try:
        return [_law(pair, settings)]
    except UnsupportedError:
        return []


def _analyse(pair: RenewalMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    return law_profiles(_law(pair, settings))


def _refusal(pair: RenewalMixture, side: Side) -> str | None:
    if pair.examples_per_user > 1:
        return "it is for units of one example"
    if pair.participation_prob < RAREST:
        return f"the sampling probability must be at least {RAREST}"
    if _column(pair) is None or pair.matrix.rows != pair.matrix.steps:
        return "it needs a Toeplitz strategy matrix"
    if not _sizes(pair):
        return "columns of two participations overlap, or nearly do"
    return None


ACCOUNTANT = Accountant(
    name="block_statistic",
    summary="the sum of one curved function of every block of rows, for b-min-sep sampling",
    sides=(Side.LOWER,),
    errs="downward: a function of the output is a post-processing, and its laws are contractions",
    reference="post-processing; proof in docs/theory/separated-windows.md",
    analyses={RenewalMixture: _analyse},
    laws={RenewalMixture: _laws},
    refusal=_refusal,
    cost=lambda pair: 1.5,
    example=examples.min_separated,
)
