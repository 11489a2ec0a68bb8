"""Upper bounds for b-min-sep subsampling by windows of at most b steps, in which an example takes part at most once.

The columns of C are replaced by others that reveal more and see no other window, a Gauss-Markov chain in each
(:mod:`hockeystick.windows.dominating_chain`). Given the windows before, an example is available in a window from some
step on, or not at all; the least upper bound, in convex order, of the ratios of all these cases is one law
(:mod:`hockeystick.windows.chains`), and the windows compose. Windows of b steps are also linked: what is known of the
last participation is kept from one to the next (:mod:`hockeystick.windows.linked_windows`). Both laws are bounds, and
the better is taken. Where batches are cut, what that can change is added.

Proof: docs/theory/separated-windows.md. Errs upward in both directions, warm or cold, for any C >= 0, adaptive or not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from math import log2
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.deletion import Renewal, check_cuts, with_cuts
from hockeystick.bounds import Profile
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Law
from hockeystick.laws.operations import compose, power
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.settings import Settings
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.base import Array
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.windows.dominating_chain import DominatingChain
    from hockeystick.windows.linked_windows import Detail

LONGEST = 64
"""Steps of a window: more would gain little, and take time in proportion."""
MOST_WORK = 2e8
"""Entries of the factorisation of all steps, times its bandwidth."""
LONGEST_COLUMN = 6.0
"""Standard deviations of the noise: longer columns of a chain have ratios that no grid can hold."""
RAREST = 1e-15
"""With a smaller chance of taking part, ratios differ from 1 by little more than a rounding, or not at all."""
NOISES = (0.7, 1.4, 4.0, 12.0)
"""Levels of noise, over the longest column, for which shapes are fitted."""
PER_OCTAVE = 4
"""Levels of noise in an octave, for the nearest of which one of the shapes is chosen."""
SHORTER = 1e-5
"""Share by which the longest column of a chain is shorter than that of one with less variance; else it is left out."""
DETAILS = (
    (8, (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0)),
    (4, (0.0, 0.35, 0.65, 0.85, 1.0)),
    (3, (0.0, 0.5, 0.8, 1.0)),
)
"""How windows are linked: knots and shares. The first is taken that costs at most ``MOST_SECONDS``."""
COARSE_DETAILS, COARSE_NODES = DETAILS[1:], 34.0
"""Details on grids with fewer nodes per unit, which lose more themselves: half the time, for 0.7 percent at most."""
MOST_SECONDS = 2.6
"""Standard seconds for the law of windows that are linked."""
SMALLEST_DELTA = 1e-12
"""Windows are not linked for smaller ones: their grids would be too long. Whole profiles are linked for this one."""
LEAST_SHARE = 0.03
"""The least chance of a participation in the b steps of a window: below it there is next to nothing to link."""
LEAST_ABSENT = 1e-3
"""The least chance of no participation in b steps of several windows: below it links lose more than they gain."""
SMALLEST_ABSENT = 1e-200
"""The least chance of no participation in a single window: a smaller one is near the end of the range of doubles."""

_FITTED: "WeakKeyDictionary[StrategyMatrix, dict[tuple[int, tuple[float, ...]], list[DominatingChain]]]" = (
    WeakKeyDictionary()
)
"""Chains do not depend on the noise, so searches over it need them once; by steps of a window and coins."""
_CHOSEN: "WeakKeyDictionary[StrategyMatrix, dict[tuple[Any, ...], DominatingChain]]" = WeakKeyDictionary()
"""The best of the chains, by b, coins, noise, and what it is for."""


def window_size(pair: Renewal) -> int:
    """Steps of a window: at most b."""
    return min(pair.min_sep, pair.matrix.steps, LONGEST)


def _bandwidth(pair: Renewal) -> int:
    return max(min(pair.matrix.bands, pair.matrix.steps), window_size(pair))


def chains(pair: Renewal, deadline: Deadline) -> "list[DominatingChain]":
    """Chains that dominate the columns of C, fitted to each level of noise, for linked windows and for others."""
    from hockeystick.windows.dominating_chain import dominating_chain, gram_band

    size, matrix = window_size(pair), pair.matrix
    known, longest, prob = _FITTED.setdefault(matrix, {}), float(matrix.max_column_norm), pair.participation_prob
    wanted = dict.fromkeys([coins_of(pair), (prob,) * size])
    for coins in wanted:
        if (size, coins) not in known:
            gram = gram_band(band_of(matrix), _bandwidth(pair))
            rounding = 3.0 * matrix.rounding + (matrix.bands + 4.0) * UNIT_ROUNDOFF
            try:
                known[size, coins] = [
                    dominating_chain(gram, size, longest * noise, np.array(coins), rounding, deadline)
                    for noise in NOISES
                ]
            except np.linalg.LinAlgError:
                raise UnsupportedError(
                    "No chain of columns dominates the strategy matrix within its rounding."
                ) from None
    return [chain for coins in wanted for chain in known[size, coins]]


def _level(pair: Renewal) -> float:
    """The noise over the longest column, as one of a few levels."""
    longest = float(pair.matrix.max_column_norm)
    return float(2.0 ** (round(PER_OCTAVE * log2(pair.noise_multiplier / longest)) / PER_OCTAVE))


def _front(candidates: "Sequence[DominatingChain]", sigma: float, coins: Array) -> "list[DominatingChain]":
    """The chains of which no other has both less variance at this noise and a shorter longest column.

    The variance is about most of the ratio, and the longest column about its tail, which small deltas ask for.
    """
    front: list[DominatingChain] = []
    for chain in sorted(candidates, key=lambda candidate: candidate.second_moment(sigma, coins)):
        if not front or chain.scales.max() < (1.0 - SHORTER) * front[-1].scales.max():
            front.append(chain)
    return front


def _chain(pair: Renewal, settings: Settings) -> "DominatingChain":
    """The best of the chains, as coarse laws find at about this noise."""
    from hockeystick.windows.linked_windows import Detail
    from hockeystick.windows.windows import COARSE_NODES_PER_UNIT, reach

    resolution, coins, level = settings.resolution, coins_of(pair), _level(pair)
    known = _CHOSEN.setdefault(pair.matrix, {})
    key = (pair.min_sep, coins, level, pair.warm_start, resolution.smallest_delta)
    if key not in known:
        about = replace(pair, noise_multiplier=level * float(pair.matrix.max_column_norm))
        front = _front(chains(pair, settings.deadline), about.noise_multiplier, np.array(coins))
        # Whole profiles and single questions have the same chain, whichever is asked first.
        nodes = replace(resolution, nodes_per_unit=COARSE_NODES_PER_UNIT)
        coarse = replace(settings, resolution=nodes, question=None)
        detail = None if _detail(pair) is None else Detail(*DETAILS[-1])

        def looseness(chain: "DominatingChain") -> float:
            try:
                laws = _laws_of(chain, about, coarse, detail)
                return min(reach(law, resolution.smallest_delta) for law in laws)
            except UnsupportedError:
                return float("inf")

        known[key] = min(front, key=looseness) if len(front) > 1 else front[0]
    return known[key]


def coins_of(pair: Renewal) -> tuple[float, ...]:
    """The chance of each step of a window, given that the example has not taken part before, for which a chain is best.

    In windows that are linked an example has often taken part shortly before, and all steps are alike.
    """
    size, prob = window_size(pair), pair.participation_prob
    if _detail(pair) is None:
        return (prob,) * size
    rate = prob / (1.0 + (size - 1.0) * prob)
    return tuple(rate / (1.0 - rate * step) for step in range(size))


def _laws(pair: RenewalMixture, side: Side, settings: Settings) -> Sequence[Law]:
    try:
        return _window_laws(pair, settings)
    except UnsupportedError:
        return []


def _window_laws(pair: Renewal, settings: Settings) -> list[Law]:
    """Laws of all windows, each of which is a bound; raises UnsupportedError where the noise is too low."""
    coarse = settings.resolution.nodes_per_unit < COARSE_NODES
    return _laws_of(_chain(pair, settings), pair, settings, _detail(pair, COARSE_DETAILS if coarse else DETAILS))


def _laws_of(chain: "DominatingChain", pair: Renewal, settings: Settings, detail: "Detail | None") -> list[Law]:
    """Laws of windows with the columns of this chain; raises UnsupportedError where the noise is too low."""
    from hockeystick.windows.chains import window_law
    from hockeystick.windows.linked_windows import Run, linked_law

    sigma, prob, size, steps = pair.noise_multiplier, pair.participation_prob, window_size(pair), pair.matrix.steps
    resolution, deadline = settings.resolution, settings.deadline
    if not float(chain.scales.max()) <= LONGEST_COLUMN * sigma:
        raise UnsupportedError(
            "The noise is too low: the columns of a chain are too long for the grids of its windows."
        )
    scales: Array = chain.scales * (1.0 + 4.0 * UNIT_ROUNDOFF) / sigma

    def of_last(count: int) -> Law:
        return window_law(scales[size - count :], chain.correlation, prob, resolution, deadline)

    count, rest = divmod(steps, size)
    law = power(of_last(size), count, resolution, tick=deadline.tick)
    if rest:
        law = compose(law, of_last(rest), resolution, tick=deadline.tick)
    too_small = resolution.smallest_delta < SMALLEST_DELTA
    if detail is None or (too_small and settings.question is not None):
        return [law]
    resolution = replace(resolution, smallest_delta=max(resolution.smallest_delta, SMALLEST_DELTA))
    windows = -(-steps // size) - 1
    run = Run(steps - windows * size, windows, pair.min_sep if pair.warm_start else None)
    return [law, linked_law(scales, chain.correlation, prob, run, law, detail, resolution, deadline)]


def _detail(pair: Renewal, details: Sequence[tuple[int, tuple[float, ...]]] = DETAILS) -> "Detail | None":
    """How windows are linked: they have b steps, or there is but one."""
    from hockeystick.windows.linked_windows import Detail

    size = window_size(pair)
    absent = size * np.log1p(-pair.participation_prob)  # the logarithm of the chance to take no part
    if size < min(pair.min_sep, pair.matrix.steps) or -np.expm1(absent) < LEAST_SHARE:
        return None
    if absent < np.log(LEAST_ABSENT if size < pair.matrix.steps else SMALLEST_ABSENT):
        return None
    return next((detail for detail in starmap(Detail, details) if _seconds(pair, detail) <= MOST_SECONDS), None)


def _seconds(pair: Renewal, detail: "Detail") -> float:
    """Standard seconds for the law of windows that are linked."""
    size, laws = window_size(pair), detail.knots * len(detail.shares)
    return 0.05 + (8e-4 * size + 1.7e-5 * pair.matrix.steps) * laws


def _analyse(pair: Renewal, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    check_cuts(pair, settings)
    return with_cuts(law_profiles(*_window_laws(pair, settings), choose=min), pair)


def _refusal(pair: Renewal, side: Side) -> str | None:
    if isinstance(pair, RenewalMixture) and pair.examples_per_user > 1:
        return "several examples of one user may take part in a window, and it is for a single one"
    if pair.min_sep == 1 or pair.participation_prob == 1.0:
        return "it needs an example that waits, and a coin that may show either side"
    if pair.participation_prob < RAREST:
        return f"the sampling probability must be at least {RAREST}"
    if pair.matrix.rows != pair.matrix.steps:
        return "it needs a square strategy matrix"
    if pair.matrix.steps * _bandwidth(pair) ** 2 > MOST_WORK:
        return "the strategy has too many bands for its steps"
    return None


def _cost(pair: Renewal) -> float:
    """Seconds for the shapes, for the law of a window, and for that of windows that are linked."""
    from hockeystick.windows.dominating_chain import fitted_columns

    steps, bandwidth, size = pair.matrix.steps, _bandwidth(pair), window_size(pair)
    fitted = fitted_columns(steps, bandwidth, size)
    detail = _detail(pair)
    linked = 0.0 if detail is None else _seconds(pair, detail)
    return 0.8 + 0.01 * size + 1e-5 * size**3 + (1e-8 * steps + 5e-8 * fitted) * bandwidth**2 + linked


ACCOUNTANT = Accountant(
    name="separated_windows",
    summary="composes windows of at most b steps, in which an example takes part at most once, for b-min-sep sampling",
    sides=(Side.UPPER,),
    errs="upward: the columns of a chain reveal more, one law is above every state of a window, and laws are spreads",
    reference="docs/theory/separated-windows.md",
    analyses={RenewalMixture: _analyse, TruncatedRenewal: _analyse},
    laws={RenewalMixture: _laws},
    refusal=_refusal,
    cost=_cost,
    example=examples.min_separated,
)
