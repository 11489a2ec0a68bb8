"""Conditional composition: bound the posterior over the bins at every row, then compose the rows as if independent.

    delta(eps) <= H(composition of the rows' mixtures) + delta_E,

where fixed weights dominate the posterior over the bins but for an event of probability delta_E, under P for remove and
under Q for add. delta_E is chosen at each of ``settings.spending_deltas`` by a coarse look at some of the rows; any
choice is valid, and at every epsilon the best of them is taken. The add direction is the smaller of this and the
geometric-mean bound.

Proof: docs/theory/conditional-composition.md, with what it corrects in schuchardt-kalinin-2026, section 4 and
appendices D to F. Cost: see :func:`hockeystick.posteriors.bins.hazards.tail_bounds`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile, best_of
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.posteriors.bins.kernels import Indices
    from hockeystick.posteriors.bins.levels import LevelledMeans

SEARCH_ROWS = 192
SEARCH_NODES = 20
SEARCH_BLOCKS = 10
BLOCKS = 64
MAX_ENTRIES = 20_000_000
"""Most means of all bins in all rows, of which some copies are kept."""


def conditional_profiles(pair: BinMixture, settings: Settings) -> Mapping[Direction, Profile]:
    """Upper bounds on both directions of the pair's profile.

    Formal guarantee: at least the true profile at every epsilon.

    Raises: BudgetExceededError when the time of ``settings.deadline`` runs out.
    """
    from hockeystick.moments.geometric_mean import geometric_mean_profile
    from hockeystick.posteriors.bins import budget
    from hockeystick.posteriors.bins.levels import levelled_means

    means = pair.means()
    levelled = levelled_means(means, pair.rounding)
    shares = budget.union_shares(means, levelled)
    spent = _best_budgets(pair, levelled, shares, settings)
    rows = np.arange(pair.matrix.rows)
    tails = _tails(pair, levelled, rows, spent, shares, settings)
    profiles: dict[Direction, Profile] = {}
    for direction, bounds in tails.items():
        choices = []
        for delta, failure, tail in zip(settings.spending_deltas, spent[direction].tolist(), bounds, strict=False):
            own = replace(settings, resolution=replace(settings.resolution, smallest_delta=delta))
            choices.append(_profile(_composed(pair, levelled, tail, 1, BLOCKS, own), direction, failure))
        profiles[direction] = best_of(min, *choices)
    geometric = geometric_mean_profile(pair.gram, pair.rounding, pair.noise_multiplier)
    profiles[Direction.ADD] = best_of(min, profiles[Direction.ADD], geometric)
    return profiles


def _best_budgets(
    pair: BinMixture, levelled: "LevelledMeans", shares: Array, settings: Settings
) -> dict[Direction, Array]:
    """delta_E for each direction and each of ``settings.spending_deltas``, shape (deltas,).

    It is the candidate with the smallest epsilon at this delta when some rows stand for all.
    """
    from hockeystick.posteriors.bins import budget

    deltas = settings.spending_deltas
    copies = 1
    while pair.matrix.rows > SEARCH_ROWS * copies:
        copies *= 2
    # The last row of every run of `copies`: odd offsets would miss the end, where the posterior is widest.
    rows = np.arange(copies - 1, pair.matrix.rows, copies)
    candidates = np.multiply.outer(deltas, budget.CANDIDATES)
    tails = _tails(pair, levelled, rows, dict.fromkeys(Direction, candidates.ravel()), shares, settings)
    best: dict[Direction, Array] = {}
    for direction, bounds in tails.items():
        epsilons = np.empty(candidates.shape)
        for place, tail in zip(np.ndindex(candidates.shape), bounds, strict=True):
            delta = deltas[place[0]]
            coarse = Settings(Resolution(SEARCH_NODES, delta), settings.deadline)
            law = _composed(pair, levelled, tail, copies, SEARCH_BLOCKS, coarse)
            profile = _profile(law, direction, float(candidates[place]))
            epsilons[place] = smallest_epsilon(profile, delta, Side.UPPER, tolerance=1e-4)
        best[direction] = candidates[np.arange(len(deltas)), epsilons.argmin(axis=1)]
    return best


def _tails(
    pair: BinMixture,
    levelled: "LevelledMeans",
    rows: "Indices",
    tries: Mapping[Direction, Array],
    shares: Array,
    settings: Settings,
) -> dict[Direction, Array]:
    from hockeystick.posteriors.bins.hazards import tail_bounds

    tick = settings.deadline.tick
    return tail_bounds(pair.means(), pair.noise_multiplier, pair.rounding, levelled, rows, tries, shares, tick)


def _composed(
    pair: BinMixture, levelled: "LevelledMeans", tails: Array, copies: int, blocks: int, settings: Settings
) -> Law:
    from hockeystick.posteriors.bins.dominating_steps import composed_law

    noise, tick = pair.noise_multiplier, settings.deadline.tick
    return composed_law(levelled.values, tails, copies, noise, blocks, settings.resolution, tick)


def _profile(law: Law, direction: Direction, spent: float) -> Profile:
    return lambda epsilon: min((law_delta(law, epsilon, direction) + spent) * (1.0 + 1e-15), 1.0)


def _analyse(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """The smaller of conditional composition and the known bin, which is better at little noise."""
    sensitivity = pair.full_sensitivity * (1.0 + pair.sensitivity_error)
    known = partial(gaussian_delta, pair.noise_multiplier, sensitivity, side=Side.UPPER)
    return {
        direction: best_of(min, profile, known) for direction, profile in conditional_profiles(pair, settings).items()
    }


def _cost(pair: BinMixture) -> float:
    from hockeystick.posteriors.bins.hazards import TEMPERATURES
    from hockeystick.posteriors.bins.levels import most_bounded

    rows, bins = pair.matrix.rows, pair.bins
    bounded = min(pair.matrix.bands, bins, most_bounded(rows, bins))
    products = rows * bounded * (len(TEMPERATURES) + 2) * bins
    return 3.0 + 6e-4 * rows + products * (1.2e-8 + 1.3e-10 * bins)


def _refusal(pair: BinMixture, side: Side) -> str | None:
    entries = pair.matrix.rows * pair.bins
    return pair.too_large or (None if entries <= MAX_ENTRIES else f"its {entries} means take too much memory")


def _example() -> BinMixture:
    return BinMixture(noise_multiplier=3.0, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 6), bins=3)


ACCOUNTANT = Accountant(
    name="conditional_composition",
    summary="bounds the posterior over the bins at every step in high probability, then composes the steps",
    sides=(Side.UPPER,),
    errs="upward: weights dominate the posterior but for an event whose probability, by a union bound, is added",
    reference="docs/theory/conditional-composition.md; schuchardt-kalinin-2026, section 4, Theorem D.3, Corollary D.4",
    analyses={BinMixture: _analyse},
    refusal=_refusal,
    cost=_cost,
    example=_example,
)
