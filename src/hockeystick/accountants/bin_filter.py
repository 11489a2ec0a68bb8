"""Lower bounds for correlated noise under balls-in-bins at low noise, by a sum over bins that rows are filtered for.

Any function of the output gives a lower bound. The rows are read backwards with a short summary; at the row of a bin
the summary and the row tell how likely the bin is, and these ratios are added, so the sum comes close to the
likelihood ratio itself (:mod:`hockeystick.filters.bin_filters`). One law bounds both directions.

Proof: docs/theory/bin-filters.md. Errs downward: a post-processing, means that are lowered,
outcomes left out. Cost: some ten seconds, by the choice of the lattice.
"""

from math import exp, log
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants import examples, fresh_bins
from hockeystick.accountants.base import Accountant, of_one_law
from hockeystick.accountants.low_noise_bins import bins_refusal
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import SMALLEST, Law, lower_law
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.settings import DEFAULT_EFFORT, Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.filters.bin_filters import Shifts

MOST_ENTRIES = 40_000
"""Bins times bands."""
LARGEST_SHIFT = 8.0
"""The largest shift of a row by its bin, in standard deviations."""
SUMS, COARSE_SUMS = 300, 120
"""Values of the sum at the usual effort, and where only a rough epsilon is wanted."""
MORE_SUMS = 0.3
"""The power of the effort that the values of the sum grow with."""
MOST_FINER = 3.0
"""Up to so many times as many values where thresholds are close to 1, as the sum is then told from its mean."""
SPEED = 2.4e9
"""Multiplications in a second."""
COARSE_SHARE = 0.02
FIRST_RATIO, MOST_RATIO = 12.0, 2600.0
ABOVE = 1.4
"""Ratios are followed up to so many times e^epsilon."""


def _law_up_to(shifts: "Shifts", ratio: float, work: float, sums: int, settings: Settings) -> Law:
    """The law of the sum, ratios above ``ratio`` taken as one."""
    from hockeystick.filters.bin_filters import fitted, lattice_for, sum_laws

    summaries, spacing = fitted(shifts, work, sums)
    lattice = lattice_for(shifts, spacing, ratio, sums)
    delta = settings.resolution.smallest_delta
    without, with_it, error = sum_laws(shifts, summaries, lattice, delta, settings.deadline)
    # Where a mass may have lost digits to underflow, both are left out, which only lowers expectations.
    kept = (without > SMALLEST) & (with_it > SMALLEST)
    without, with_it = without[kept], with_it[kept]
    order = np.argsort(with_it / without, kind="stable")
    return lower_law(without[order], with_it[order], error, 2.0 * error)


def _law(pair: BinMixture, settings: Settings) -> Law:
    from hockeystick.filters.bin_filters import ring_shifts

    shifts = ring_shifts(pair.means() / pair.noise_multiplier, pair.matrix.bands, 2.0 * pair.rounding)
    if not 0.0 < max(float(shifts.own.max()), float(shifts.again.max(initial=0.0))) <= LARGEST_SHIFT:
        raise UnsupportedError("The noise is too low: the cells of a row are for shifts of a few standard deviations.")
    delta, ratio = settings.resolution.smallest_delta, FIRST_RATIO
    work = SPEED * settings.effort
    while True:
        coarse = _law_up_to(shifts, ratio, COARSE_SHARE * work, COARSE_SUMS, settings)

        def at(epsilon: float, law: Law = coarse) -> float:
            return law_delta(law, epsilon, Direction.REMOVE)

        epsilon = smallest_epsilon(at, delta, Side.LOWER, tolerance=0.01)
        if exp(epsilon) * ABOVE < ratio:
            break
        ratio *= 6.0
        if ratio > MOST_RATIO:
            raise UnsupportedError(f"Ratios of more than e^{log(MOST_RATIO):.2g} are too many for this method.")
    finer = min(0.6 / (1.0 - exp(-epsilon)), MOST_FINER) if epsilon > 0.0 else MOST_FINER
    most = SUMS * (settings.effort / DEFAULT_EFFORT) ** MORE_SUMS
    sums = int(max(finer * most, min(most, SUMS), COARSE_SUMS))
    return _law_up_to(shifts, ABOVE * exp(epsilon), work, sums, settings)


def _refusal(pair: BinMixture, side: Side) -> str | None:
    if (reason := bins_refusal(pair)) is not None:
        return reason
    if pair.matrix.rows != pair.matrix.steps:
        return "it needs a square strategy matrix"
    bands = pair.matrix.bands
    if bands > pair.bins or bands * pair.bins > MOST_ENTRIES:
        return "the strategy has too many bands"
    return None


_ANALYSE, _LAWS = of_one_law(_law)

ACCOUNTANT = Accountant(
    name="bin_filter",
    summary="a sum over bins, each judged by a summary of the rows after it, for low noise",
    sides=(Side.LOWER,),
    errs="downward: a function of the output is a post-processing, and means that are lowered reveal less",
    reference="post-processing, Kahane 1986; proof in docs/theory/bin-filters.md",
    analyses={BinMixture: _ANALYSE, FreshBins: fresh_bins.analysis(_LAWS)},
    laws={BinMixture: _LAWS, FreshBins: fresh_bins.laws(_LAWS)},
    refusal=fresh_bins.refusal(_refusal),
    cost=fresh_bins.cost(lambda pair: 7.5 + 2e-9 * pair.matrix.steps * pair.bins),
    example=examples.low_noise_bins,
    plans_effort=True,
)
