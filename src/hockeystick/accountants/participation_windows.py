"""Upper bounds for Poisson and cyclic Poisson sampling by the close laws of windows of steps, all participations kept.

The columns of C are replaced by others that reveal more and see no other window, a Gauss-Markov chain in each
(:mod:`hockeystick.windows.dominating_windows`), so that the windows become independent and compose. The law of a window
is found step by step over the states of its chain (:mod:`hockeystick.windows.participation_chains`). Under cyclic
sampling of a Toeplitz matrix the first group is the worst; others are refused. b-min-sep subsampling is Poisson
subsampling with participations left out (:mod:`.deletion`).

Proof: docs/theory/poisson-windows.md. Errs upward in both directions, for any C >= 0, adaptive or not.
"""

from collections import Counter
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hockeystick.accountants import deletion, examples, separated_windows
from hockeystick.accountants.base import Accountant, of_one_law
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.operations import compose, power
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.settings import Settings
from hockeystick.strategies import StrategyMatrix
from hockeystick.types import Side

if TYPE_CHECKING:
    from hockeystick.windows.dominating_windows import DominatingWindows

SIZES = (256, 64, 16)
"""Steps of a window; the best of them is taken. Shorter ones than one that is worse are not tried."""
WORSE = 1.005
"""Times the best second moment, at the noise for which shapes are chosen."""
CLOSE = 1.25
"""Times the best second moment up to which windows are compared by coarse laws."""
DENSE = 0.1
"""The share of entries that are not zero from which on inner products are computed by dense algebra."""
MOST_WORK = 1e10
"""Entries of the factorisation of all steps, times its bandwidth."""
MOST_DENSE = 4000
LONGEST_COLUMN = 6.0
"""Standard deviations of the noise: longer columns of a chain have ratios that no grid can hold."""
OFTEN = 0.25
"""Expected participations in b steps from which on separated windows are the better ones."""
RAREST = 1e-15
"""With a smaller chance of taking part, ratios differ from 1 by little more than a rounding, or not at all."""

_KNOWN: "WeakKeyDictionary[StrategyMatrix, dict[tuple[int, float, int], list[DominatingWindows]]]" = WeakKeyDictionary()
"""Shapes are for noises a factor 2 apart, so that searches need few; by groups, chance and the noise's octave."""

PER_OCTAVE = 2
"""Levels of noise in an octave at which windows are compared."""
_CHOSEN: "WeakKeyDictionary[StrategyMatrix, dict[tuple[int, float, int, float, float], DominatingWindows]]" = (
    WeakKeyDictionary()
)
"""By groups, chance, octave and level of the noise, and delta: two octaves may share the level between them."""


def windows_above(pair: SubsetMixture, settings: Settings) -> "list[DominatingWindows]":
    """Windows of each size whose columns reveal at least as much as those of C, for about the noise of the pair.

    Raises: UnsupportedError when the entries of C are too many, or their rounding is in the way.
    """
    from scipy.sparse import csr_matrix

    from hockeystick.windows.column_entries import entries_of
    from hockeystick.windows.dominating_windows import dominating_windows
    from hockeystick.windows.participation_chains import longest_window

    prob, matrix, deadline = pair.sampling_prob, pair.matrix, settings.deadline
    octave = _octave(pair)
    known = _KNOWN.setdefault(matrix, {})
    if (pair.groups, prob, octave) not in known:
        entries = entries_of(matrix, pair.group_steps(0), deadline)
        columns = entries.entries
        dense = columns.nnz > DENSE * columns.shape[0] * columns.shape[1]
        gram: csr_matrix | Array
        if dense:
            full = columns.toarray()
            gram = full.T @ full
        else:
            gram = csr_matrix(columns.T @ columns)
        sizes = dict.fromkeys(min(size, longest_window(prob), columns.shape[1]) for size in SIZES)
        candidates: list[DominatingWindows] = []
        scores: list[float] = []
        try:
            for size in sizes:
                of_size = dominating_windows(gram, size, 2.0**octave, prob, entries.error, deadline)
                candidates += of_size
                scores.append(of_size[0].second_moment(2.0**octave, prob))
                if scores[-1] > WORSE * min(scores):
                    break
        except np.linalg.LinAlgError:
            raise UnsupportedError("No chain of columns dominates the strategy matrix within its rounding.") from None
        known[pair.groups, prob, octave] = candidates
    return known[pair.groups, prob, octave]


def _octave(pair: SubsetMixture) -> int:
    """The noise for which shapes are made, as a power of 2."""
    return round(log2(pair.noise_multiplier))


def _law(pair: SubsetMixture, settings: Settings) -> Law:
    """The law of all windows; raises UnsupportedError where the noise is too low."""
    return _law_of(_best(pair, settings), pair, settings)


def _best(pair: SubsetMixture, settings: Settings) -> "DominatingWindows":
    """The windows that reveal least; of those that are close, the ones that coarse laws find best."""
    from hockeystick.windows.windows import COARSE_NODES_PER_UNIT, reach

    resolution, candidates = settings.resolution, windows_above(pair, settings)
    about = replace(pair, noise_multiplier=2.0 ** (round(PER_OCTAVE * log2(pair.noise_multiplier)) / PER_OCTAVE))
    key = (pair.groups, pair.sampling_prob, _octave(pair), about.noise_multiplier, resolution.smallest_delta)
    chosen = _CHOSEN.setdefault(pair.matrix, {})
    if key not in chosen:
        moments = [windows.second_moment(about.noise_multiplier, pair.sampling_prob) for windows in candidates]
        most = CLOSE * min(moments)
        close = [windows for windows, moment in zip(candidates, moments, strict=True) if moment <= most]
        coarse = replace(settings, resolution=replace(resolution, nodes_per_unit=COARSE_NODES_PER_UNIT))

        def looseness(windows: "DominatingWindows") -> float:
            try:
                return reach(_law_of(windows, about, coarse), resolution.smallest_delta)
            except UnsupportedError:
                return float("inf")

        chosen[key] = min(close, key=looseness) if len(close) > 1 else close[0]
    return chosen[key]


def _law_of(windows: "DominatingWindows", pair: SubsetMixture, settings: Settings) -> Law:
    """The law of these windows; raises UnsupportedError where the noise is too low."""
    from hockeystick.windows.participation_chains import window_laws

    sigma, prob = pair.noise_multiplier, pair.sampling_prob
    resolution, deadline = settings.resolution, settings.deadline
    if not windows.longest <= LONGEST_COLUMN * sigma:
        raise UnsupportedError(
            "The noise is too low: the columns of a chain are too long for the grids of its windows."
        )

    def of_windows(level: float, sizes: set[int]) -> dict[int, Law]:
        scales: Array = windows.chain.scales[: max(sizes)] * (np.sqrt(level) * (1.0 + 8.0 * UNIT_ROUNDOFF) / sigma)
        return window_laws(scales, windows.chain.correlation, prob, sizes, resolution, deadline)

    counts = Counter(zip(windows.levels.tolist(), windows.lengths, strict=True))
    laws = list[Law]()
    for level in dict.fromkeys(windows.levels.tolist()):
        law_of = of_windows(level, {size for other, size in counts if other == level})
        laws += [power(law_of[size], counts[level, size], resolution, tick=deadline.tick) for size in law_of]
    law = laws[0]
    for part in laws[1:]:
        law = compose(law, part, resolution, tick=deadline.tick)
    return law


def _bandwidth(pair: SubsetMixture) -> int:
    """Diagonals of the inner products of the columns in play, or steps of a window."""
    steps = pair.group_steps(0).size
    return min(max(-(-pair.matrix.bands // pair.groups), max(SIZES)), steps)


def _refusal(pair: SubsetMixture, side: Side) -> str | None:
    from hockeystick.windows.column_entries import why_too_many

    if pair.groups_in_play > 1 and pair.matrix.toeplitz_column is None:
        return "the groups of a strategy that is not Toeplitz have different windows"
    if not RAREST <= pair.sampling_prob <= 1.0 - 1e-2:
        return f"the sampling probability must be from {RAREST} to 0.99"
    steps = pair.group_steps(0).size
    if steps * _bandwidth(pair) ** 2 > MOST_WORK or (_bandwidth(pair) > 0.05 * steps and steps > MOST_DENSE):
        return "the strategy has too many bands for its steps"
    return why_too_many(pair.matrix, steps)


def _looser_than(pair: DominatingPair) -> tuple[str, ...]:
    """Windows of at most one participation, where those that b-min-sep leaves out cost more than long windows gain.

    That is where they are often many, or meet in the rows of long columns: docs/theory/poisson-windows.md, section 6.
    """
    if not isinstance(pair, RenewalMixture | TruncatedRenewal) or pair.matrix.bands > pair.min_sep:
        return ()
    often = pair.participation_prob * pair.min_sep >= OFTEN
    return ("separated_windows",) if often or pair.matrix.bands >= separated_windows.LONGEST else ()


def _cost(pair: SubsetMixture) -> float:
    """Seconds for the shapes, and for the laws of windows."""
    steps, bandwidth = pair.group_steps(0).size, _bandwidth(pair)
    products = 60.0 * 40.0 * len(SIZES) * steps * min(2.0 * pair.matrix.bands, steps)
    laws = min(1.0 + steps / max(SIZES), 24.0 if 2 * bandwidth > steps else 3.0)
    return 0.5 + 5e-10 * products + 1e-10 * steps * bandwidth**2 + 1.5 * laws


_ANALYSE, _LAWS = of_one_law(_law)

ACCOUNTANT = Accountant(
    name="participation_windows",
    summary="composes close laws of windows of steps, for Poisson, cyclic Poisson and b-min-sep sampling",
    sides=(Side.UPPER,),
    errs="upward: the columns of a chain reveal more, terms are large together, and laws are spreads",
    reference="docs/theory/poisson-windows.md",
    analyses={SubsetMixture: _ANALYSE, **deletion.analyses(_ANALYSE)},
    laws={SubsetMixture: _LAWS, **deletion.laws(_LAWS)},
    refusal=deletion.refusal(_refusal),
    cost=deletion.cost(_cost),
    example=examples.poisson,
    no_better_than=("direct",),
    looser_than=_looser_than,
)
