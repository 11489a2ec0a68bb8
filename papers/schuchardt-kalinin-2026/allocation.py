"""Conditional composition with the paper's allocation of the failure probability, for its figures: it proves nothing.

The union of its events can be more likely than what it adds for them (docs/theory/conditional-composition.md).
"""

from collections.abc import Mapping

import numpy as np

import hockeystick as hs
from hockeystick.accountants.conditional_composition import BLOCKS
from hockeystick.bounds import Profile
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.posteriors.bins.dominating_steps import composed_law
from hockeystick.posteriors.bins.hazards import tail_bounds
from hockeystick.posteriors.bins.levels import levelled_means


def paper_shares(rows: int, bins: int, epochs: int) -> Array:
    """Shares of schuchardt-kalinin-2026, appendix E: they sum to more than 1 and prove nothing."""
    shares = np.full((rows, bins), 1.0 / (epochs * max(bins - 1, 1)))
    shares[:bins] /= bins
    return shares


def largest_of_each_epoch(bins: int, tails: Array) -> Array:
    """The companion of :func:`paper_shares`: from the second epoch on, an epoch's rows share their largest tail.

    Args:
        tails: shape (rows, levels).
    """
    result = tails.copy()
    for first in range(bins, tails.shape[0], bins):
        result[first : first + bins] = tails[first : first + bins].max(axis=0)
    return result


def profiles_as_published(pair: BinMixture, settings: hs.Settings) -> Mapping[hs.Direction, Profile]:
    """Both directions, no bounds: delta_E is half of ``smallest_delta``, and there is no other method for add."""
    means, tick, noise = pair.means(), settings.deadline.tick, pair.noise_multiplier
    levelled, rows = levelled_means(means, pair.rounding), np.arange(pair.matrix.rows)
    spent = 0.5 * settings.resolution.smallest_delta
    shares = paper_shares(pair.matrix.rows, pair.bins, pair.epochs)
    tries = dict.fromkeys(hs.Direction, np.array([spent]))
    profiles: dict[hs.Direction, Profile] = {}
    for direction, tails in tail_bounds(means, noise, pair.rounding, levelled, rows, tries, shares, tick).items():
        largest = largest_of_each_epoch(pair.bins, tails[0])
        law = composed_law(levelled.values, largest, 1, noise, BLOCKS, settings.resolution, tick)
        profiles[direction] = _profile(law, direction, spent)
    return profiles


def _profile(law: Law, direction: hs.Direction, spent: float) -> Profile:
    return lambda epsilon: min((law_delta(law, epsilon, direction) + spent) * (1.0 + 1e-15), 1.0)
