"""Random allocation with correlated noise from below: epochs made independent, each of them one of balls in bins.

Inner products of columns of different epochs are lowered to 0. An epoch is then a mixture of bins by itself, with
its own columns, and lower laws of mixtures of bins compose.

Proof: docs/theory/fresh-bins.md. Errs downward, as the laws do that are composed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.operations import compose, power
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.settings import Settings
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.causal_factor import causal_factor
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.types import Direction, Side

LawsOfBins = Callable[[BinMixture, Side, Settings], Sequence[Law]]

MOST_KINDS = 4
"""Epochs that differ, of which laws are computed; neighbours that are more are lowered to what they share."""
MOST_ENTRIES = 1 << 24
"""The most inner products of columns that are not orthogonal."""


def too_many(pair: FreshBins) -> str | None:
    """Why the inner products of all columns are not computed, or None."""
    if pair.batches_are_public:
        return "the example is in every batch"
    matrix = pair.matrix
    if matrix.steps * max(matrix.bands, pair.bins) > MOST_ENTRIES:
        return "the strategy has too many bands for its steps"
    if matrix.rows != matrix.steps and matrix.steps * matrix.rows > MOST_ENTRIES:
        return "the strategy has too many rows for its steps"
    return None


@lru_cache(maxsize=4)
def diagonals(matrix: StrategyMatrix, width: int) -> Array:
    """``G[i + l, i]`` at ``[l, i]`` for ``G = C^T C``, shape (width, steps); zero beyond the end.

    The width is at least the bands. Each entry is within :func:`rounding_of`.
    """
    from hockeystick.windows.dominating_chain import gram_band

    if matrix.rows == matrix.steps:
        return gram_band(band_of(matrix), width)
    columns = matrix.materialize()
    products = columns.T @ columns
    band = np.zeros((width, matrix.steps))
    for lag in range(width):
        band[lag, : matrix.steps - lag] = np.diagonal(products, lag)
    return band


def rounding_of(matrix: StrategyMatrix) -> float:
    """The relative error of :func:`diagonals`."""
    return 3.0 * matrix.rounding + (matrix.rows + 4.0) * UNIT_ROUNDOFF


def epochs_below(pair: FreshBins) -> list[tuple[BinMixture, int]]:
    """Mixtures of bins that compose to a lower bound of the pair, and how many there are of each.

    Empty where no columns with these inner products were found.
    """
    matrix, bins = pair.matrix, pair.bins
    band = diagonals(matrix, max(matrix.bands, bins))
    grams: list[tuple[Array, int]] = []
    for epoch in range(pair.epochs):
        gram = _block(band, epoch * bins, bins)
        if grams and np.array_equal(gram, grams[-1][0]):
            grams[-1] = gram, grams[-1][1] + 1
        else:
            grams.append((gram, 1))
    while len(grams) > MOST_KINDS:  # the two that stand for the fewest epochs become one
        first = min(range(len(grams) - 1), key=lambda place: grams[place][1] + grams[place + 1][1])
        (earlier, many), (later, more) = grams[first : first + 2]
        grams[first : first + 2] = [(np.minimum(earlier, later), many + more)]
    mixtures = []
    for gram, count in grams:
        factor = causal_factor(gram)
        if factor is None:
            return []
        columns, error = factor
        lowered = DenseMatrix(columns * (1.0 - error - rounding_of(matrix)))
        mixtures.append((BinMixture(noise_multiplier=pair.noise_multiplier, matrix=lowered, bins=bins), count))
    return mixtures


def _block(band: Array, first: int, size: int) -> Array:
    """The inner products of some neighbouring columns, shape (size, size)."""
    block = np.zeros((size, size))
    for lag in range(size):
        places = np.arange(size - lag)
        block[places, places + lag] = block[places + lag, places] = band[lag, first : first + size - lag]
    return block


def laws(of_bins: LawsOfBins) -> Callable[[FreshBins, Side, Settings], Sequence[Law]]:
    """Lower laws of the pair from those of mixtures of bins; none from above, and none where some epoch has none."""

    def laws_of(pair: FreshBins, side: Side, settings: Settings) -> Sequence[Law]:
        epochs = epochs_below(pair) if side is Side.LOWER else []
        if not epochs:
            return []
        resolution, tick = settings.resolution, settings.deadline.tick
        share = Resolution(resolution.nodes_per_unit, resolution.smallest_delta / pair.epochs)
        own = replace(settings, resolution=share, effort=settings.effort / len(epochs))
        each = [of_bins(mixture, side, own) for mixture, _ in epochs]
        if not all(each):
            return []
        wholes: list[Law] = []
        for place in range(max(len(some) for some in each)):
            parts = [
                power(some[min(place, len(some) - 1)], count, resolution, tick=tick)
                for some, (_, count) in zip(each, epochs, strict=True)
            ]
            wholes.append(reduce(lambda law, other: compose(law, other, resolution, tick=tick), parts))
        return wholes

    return laws_of


def analysis(of_bins: LawsOfBins) -> Callable[[FreshBins, Side, Settings], Mapping[Direction, Profile]]:
    """The lower analysis of the pair that lower laws of mixtures of bins give."""

    def analyse(pair: FreshBins, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
        lower_laws = laws(of_bins)(pair, side, settings)
        if not lower_laws:
            raise UnsupportedError("No lower law of an epoch was found.")
        return law_profiles(*lower_laws, choose=max)

    return analyse


def refusal(of_bins: Callable[[BinMixture, Side], str | None]) -> Callable[[Any, Side], str | None]:
    """The refusal of an accountant of mixtures of bins that bounds these pairs from below too."""

    def why_not(pair: BinMixture | FreshBins, side: Side) -> str | None:
        if not isinstance(pair, FreshBins):
            return of_bins(pair, side)
        if side is Side.UPPER:
            return "epochs that are taken by themselves bound random allocation from below only"
        if (reason := too_many(pair)) is not None:
            return reason
        epochs = epochs_below(pair)
        if not epochs:
            return "no columns were found for the inner products of an epoch"
        return of_bins(epochs[0][0], side)

    return why_not


def cost(of_bins: Callable[[BinMixture], float]) -> Callable[[Any], float]:
    """The cost of an accountant of mixtures of bins that bounds these pairs from below too."""

    def seconds(pair: BinMixture | FreshBins) -> float:
        if not isinstance(pair, FreshBins):
            return of_bins(pair)
        return 0.5 + sum(of_bins(mixture) for mixture, _ in epochs_below(pair)) if too_many(pair) is None else 0.0

    return seconds
