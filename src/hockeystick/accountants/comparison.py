"""Covariance comparison: replace the Gram matrix of the bins by one whose law is known exactly.

By Kahane's inequality a positive semidefinite ``G' >= G``, entry by entry, gives an upper bound and ``G'' <= G`` a
lower bound on both directions (docs/theory/comparison.md). Known exactly are *ultrametric* matrices: bins in blocks,
blocks in larger blocks, and an inner product that only depends on the smallest block that two bins share.

* **Upper, plain**: one block with the largest diagonal and the largest off-diagonal entry.
* **Upper, combed**: reveal the bin's residue modulo m (revealing only helps the adversary), and mix the classes, each
  bounded with its own entries.
* **Lower**: nested blocks of neighbouring bins, each level with the smallest entry inside any of its blocks.

Cost: O(log(bins)) projections of laws for each candidate; candidates are chosen on coarse grids.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from hockeystick.accountants import fresh_bins
from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile, best_of
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law
from hockeystick.laws.operations import Tick, average, compose, mix, weighted
from hockeystick.laws.profile import law_delta, law_profiles, smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

SEARCH_NODES = 12
"""Nodes per unit of score of the laws that only choose among candidates."""
SEARCHED = {Side.UPPER: 10, Side.LOWER: 5}
"""At most this many combs, or block sizes (which nest by doubling), are tried."""
SEARCH_ACCURACY = 1e-3
"""Relative accuracy in epsilon of the choice among candidates."""


@dataclass(frozen=True)
class Level:
    """One level of an ultrametric Gram matrix: bins in a common block of ``size`` have at least ``inner`` in common."""

    size: int
    inner: float


def ultrametric_law(
    levels: Sequence[Level], bins: int, noise_multiplier: float, side: Side, resolution: Resolution, tick: Tick
) -> Law:
    """The law of X for an ultrametric Gram matrix.

    Args:
        levels: from the bins themselves (size 1, the diagonal entry) to the outermost blocks, with sizes that each
            divide the next one and entries that do not grow. Bins that share no block have the entry of the last
            level, whose size is therefore taken as all ``bins``.
        bins: number of bins; the last block of every level may be cut short.
        noise_multiplier: sigma.
        side: UPPER gives a spread, LOWER a contraction of the exact law.

    Cost: O(sum over levels of log(blocks in a block)) projections.
    """
    from hockeystick.laws.discretise import gaussian_law

    def block(level: int, size: int) -> Law:
        """The law of one block, without what it shares with the blocks around it."""
        outside = levels[level + 1].inner if level + 1 < len(levels) else 0.0
        shared = gaussian_law(noise_multiplier, sqrt(max(levels[level].inner - outside, 0.0)), side, resolution)
        if level == 0:
            return shared
        part = levels[level - 1].size
        whole, rest = divmod(size, part)
        inside = None if whole == 0 else average(block(level - 1, part), whole, resolution, tick=tick)
        if rest:
            last = block(level - 1, rest)
            inside = last if inside is None else weighted(inside, whole * part, last, rest, resolution, tick=tick)
        assert inside is not None
        return inside if levels[level].inner <= outside else compose(inside, shared, resolution, tick=tick)

    return block(len(levels) - 1, bins)


def raised_levels(gram: Array, error: float) -> list[Level]:
    """One block that holds all bins of ``gram``, with entries at least its own."""
    others = gram[~np.eye(gram.shape[0], dtype=bool)]
    common = float(others.max(initial=0.0)) * (1.0 + error)
    return [Level(1, max(float(gram.diagonal().max()) * (1.0 + error), common)), Level(gram.shape[0], common)]


def nested_levels(gram: Array, error: float, smallest: int) -> list[Level]:
    """Blocks of ``smallest``, twice, four times ... as many neighbouring bins: entries at most those of ``gram``."""
    own = float(gram.diagonal().min()) * (1.0 - error)
    levels = [Level(1, own)]
    size, bins = max(smallest, 2), gram.shape[0]
    while size < bins:
        ends = range(0, bins, size)
        inside = min(float(gram[first : first + size, first : first + size].min()) for first in ends)
        levels.append(Level(size, min(levels[-1].inner, inside * (1.0 - error))))
        size *= 2
    return [*levels, Level(bins, min(levels[-1].inner, float(gram.min()) * (1.0 - error)))]


def combed_law(pair: BinMixture, teeth: int, resolution: Resolution, tick: Tick) -> Law:
    """Upper law when the bin's residue modulo ``teeth`` is revealed; classes of one size share entries."""
    gram, error, bins = pair.gram, pair.rounding, pair.bins
    classes: dict[int, list[Level]] = {}
    for residue in range(teeth):
        part = gram[residue::teeth, residue::teeth]
        levels = raised_levels(part, error)
        known = classes.get(part.shape[0], levels)
        classes[part.shape[0]] = [
            Level(ours.size, max(ours.inner, theirs.inner)) for ours, theirs in zip(levels, known, strict=True)
        ]
    laws = [
        ultrametric_law(levels, size, pair.noise_multiplier, Side.UPPER, resolution, tick)
        for size, levels in classes.items()
    ]
    counts = [sum(1 for residue in range(teeth) if len(range(residue, bins, teeth)) == size) for size in classes]
    if len(laws) == 1:
        return laws[0]
    return mix(laws, [size * count / bins for size, count in zip(classes, counts, strict=True)], resolution)


def _best(
    candidates: Sequence[int], law_of: Callable[[int, Resolution], Law], side: Side, resolution: Resolution
) -> list[int]:
    """The candidates with the best epsilon at the delta that is asked for, one for each direction."""
    if len(candidates) == 1:
        return list(candidates)
    delta, coarse = resolution.smallest_delta, Resolution(SEARCH_NODES, resolution.smallest_delta)
    scores: dict[Direction, list[tuple[float, int]]] = {direction: [] for direction in Direction}
    for candidate in candidates:
        law = law_of(candidate, coarse)
        for direction in Direction:

            def at(epsilon: float, law: Law = law, direction: Direction = direction) -> float:
                return law_delta(law, epsilon, direction)

            scores[direction].append((smallest_epsilon(at, delta, side, tolerance=SEARCH_ACCURACY), candidate))
    choose = min if side is Side.UPPER else max
    return sorted({choose(values)[1] for values in scores.values()})


def comparison_laws(pair: BinMixture, side: Side, settings: Settings) -> list[Law]:
    """The laws of the best candidates, one for each direction, or one that is the best for both."""
    resolution, tick = settings.resolution, settings.deadline.tick

    def law_of(candidate: int, resolution: Resolution) -> Law:
        if side is Side.UPPER:
            return combed_law(pair, candidate, resolution, tick)
        levels = nested_levels(pair.gram, pair.rounding, candidate)
        return ultrametric_law(levels, pair.bins, pair.noise_multiplier, side, resolution, tick)

    largest = min(pair.bins, max(pair.matrix.bands, 1))
    candidates = sorted({round(float(x)) for x in np.geomspace(1.0, largest, SEARCHED[side])})
    return [law_of(candidate, resolution) for candidate in _best(candidates, law_of, side, resolution)]


def comparison_profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Both directions of the pair's profile, on the asked side; the add direction also by the geometric mean."""
    from hockeystick.moments.geometric_mean import geometric_mean_profile

    profiles = [law_profiles(law) for law in comparison_laws(pair, side, settings)]
    parts = {direction: [both[direction] for both in profiles] for direction in Direction}
    if side is Side.UPPER:
        parts[Direction.ADD].append(geometric_mean_profile(pair.gram, pair.rounding, pair.noise_multiplier))
    return {direction: best_of(min if side is Side.UPPER else max, *parts[direction]) for direction in Direction}


def _lower_laws(pair: BinMixture, side: Side, settings: Settings) -> Sequence[Law]:
    return comparison_laws(pair, side, settings) if side is Side.LOWER else ()


ACCOUNTANT = Accountant(
    name="comparison",
    summary="Gram matrix of the bins replaced by an ultrametric one, whose law is exact",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side: Gram matrices are raised for upper bounds, lowered for lower ones (Kahane's inequality)",
    reference="Kahane 1986; docs/theory/comparison.md",
    analyses={BinMixture: comparison_profiles, FreshBins: fresh_bins.analysis(comparison_laws)},
    laws={BinMixture: _lower_laws, FreshBins: fresh_bins.laws(comparison_laws)},
    refusal=fresh_bins.refusal(lambda pair, side: pair.too_large),
    cost=fresh_bins.cost(lambda pair: 0.4 + 2e-9 * pair.matrix.steps * pair.bins),
)
