"""Balanced iteration subsampling: Renyi bounds for k-of-t allocation without splitting it into blocks.

Remove: ``R_a(P || Q) <= log E exp(a H / (2 sigma^2))`` for integer a >= 2, H the overlap of two independent k-subsets;
exact at a = 2 and for k = t. Add: k blocks, each visited once, by moments of negative order (feldman-shenfeld-2025,
Lemma 3.11). Blocks and epochs add up their log-moments; between integer orders the chord is used.

Proof, and a comparison with splitting into blocks: docs/theory/allocation.md. Reference: Dong, Chen, Ozgur 2025,
"Leveraging randomness in model and data partitioning for privacy amplification".
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.moments.log_moments import LogMoments

ORDERS = (64, 512, 4096)
NEGATIVE_ORDERS = (64, 512, 4096)
SMALLEST_NOISE_FOR_ALL_ORDERS = 0.5
"""Below it, the highest level of negative orders would take seconds."""
LOW_ADD_ORDERS = np.arange(10, 16) / 8.0
LARGEST_OVERLAP = 2000
"""Above so many values of H, a binomial bound of its exponential moments is used."""


def balanced_moments(noise_multiplier: float, bins: int, participations: int, orders: Array) -> "LogMoments":
    """Upper bounds of the remove direction's ``log M_a`` for one k-of-t allocation: the star bound above.

    Formal guarantee: never too small. Sums have non-negative terms and their rounding is bounded and added. With more
    than ``LARGEST_OVERLAP`` values of H its exponential moments are replaced by those of the binomial law with the same
    mean, which are larger (Hoeffding 1963, Theorem 4).

    Args:
        noise_multiplier: sigma > 0.
        bins, participations: t >= k >= 1.
        orders: integers >= 2.

    Cost: O(min(k, t-k) * orders).
    """
    from hockeystick.moments.log_moments import LogMoments

    rates = 0.5 * orders * noise_multiplier**-2
    values = np.array([log_overlap_moment(bins, participations, float(rate)) for rate in rates])
    return LogMoments(orders, (orders - 1.0) * values * (1.0 + 4 * UNIT_ROUNDOFF))


def log_overlap_moment(bins: int, participations: int, rate: float) -> float:
    """Upper bound of ``log E exp(rate H)``, rate > 0, H the overlap of two independent uniform k-subsets of t.

    Computed as ``l0 rate + log(1 + E expm1(rate (H - l0)))`` with ``l0 = max(0, 2k-t)`` the smallest overlap, so that a
    moment close to 1 keeps its relative accuracy.
    """
    t, k = bins, participations
    least = max(0, 2 * k - t)
    width = min(k, t - k)  # H - least ranges over 0..width
    if width > LARGEST_OVERLAP:
        # log(1 + p (e^r - 1)) per draw, p = k/t
        log_excess = np.log(k / t) + rate + np.log(-np.expm1(-rate))
        size = abs(np.log(k / t)) + abs(np.log(rate)) + rate + 4.0
        return float(k * np.logaddexp(0.0, log_excess + 16 * UNIT_ROUNDOFF * size) * (1.0 + 8 * UNIT_ROUNDOFF))
    if width == 0:
        return least * rate * (1.0 + 4 * UNIT_ROUNDOFF)
    log_mass = _log_overlap_mass(t, width)
    overlap = np.arange(1, width + 1, dtype=np.float64)
    terms = log_mass[1:] + rate * overlap + np.log(-np.expm1(-rate * overlap))
    top = float(terms.max())
    log_excess = top + np.log(np.exp(terms - top).sum())
    size = float(np.abs(log_mass).max()) + rate * (width + 1.0) + abs(np.log(rate)) + width + 8.0
    rounding = UNIT_ROUNDOFF * (16.0 * size + 8.0 * width * (width + 1.0))
    return float((least * rate + np.logaddexp(0.0, log_excess + rounding)) * (1.0 + 8 * UNIT_ROUNDOFF))


def _log_overlap_mass(bins: int, width: int) -> Array:
    """log P(H - least = i), i = 0..width, for subsets of ``width`` out of ``bins`` (or their complements).

    The overlap of two k-subsets exceeds that of their complements by the constant 2k - t, so ``2 width <= bins``.
    By products of ratios, which keep their relative accuracy for any ``bins`` (differences of log-gammas do not).
    """
    i = np.arange(width, dtype=np.float64)
    none = float(np.log1p(-width / (bins - i)).sum()) if 2 * width <= bins else -np.inf
    ratios = 2.0 * np.log(width - i) - np.log(i + 1.0) - np.log(bins - 2.0 * width + i + 1.0)
    return none + np.concatenate([[0.0], np.cumsum(ratios)])


def of_blocks(pair: AveragedSteps, of_block: "Callable[[int], LogMoments]") -> "LogMoments":
    """Moments of the whole pair from those of one block of each size."""
    size, longer = divmod(pair.bins, pair.participations)
    epoch = of_block(size).times(pair.participations - longer)
    if longer:
        epoch = epoch.plus(of_block(size + 1).times(longer))
    return epoch.times(pair.epochs)


def block_add_moments(pair: AveragedSteps, settings: Settings) -> "LogMoments":
    """Upper bounds of the add direction's moments: blocks, each visited once, and moments of negative order."""
    from hockeystick.moments.log_moments import LogMoments, enough_orders, sparse_orders
    from hockeystick.moments.real_orders import log_negative_moments

    def moments(orders: Array) -> LogMoments:
        settings.deadline.tick()
        return of_blocks(
            pair, lambda size: LogMoments(orders, log_negative_moments(pair.visit_noise, size, orders - 1.0))
        )

    low = moments(LOW_ADD_ORDERS)  # on a grid of their own, which is longer
    levels = NEGATIVE_ORDERS if pair.visit_noise >= SMALLEST_NOISE_FOR_ALL_ORDERS else NEGATIVE_ORDERS[:-1]
    smallest = settings.resolution.smallest_delta
    return enough_orders(lambda top: low.merged(moments(sparse_orders(top))), *levels, smallest_delta=smallest)


def _averaged(pair: AveragedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.moments.log_moments import LogMoments, enough_orders, moment_profile, sparse_orders

    def compute(top: int) -> LogMoments:
        settings.deadline.tick()
        epoch = balanced_moments(pair.visit_noise, pair.bins, pair.participations, sparse_orders(top))
        return epoch.times(pair.epochs)

    remove = enough_orders(compute, *ORDERS, smallest_delta=settings.resolution.smallest_delta)
    return {
        Direction.REMOVE: moment_profile(remove),
        Direction.ADD: moment_profile(block_add_moments(pair, settings)),
    }


ACCOUNTANT = Accountant(
    name="dong_chen_ozgur",
    summary="Renyi divergences of k-of-t allocation as one step, by Hoelder's inequality",
    sides=(Side.UPPER,),
    errs="upward: Hoelder's inequality on the moments, then Markov's at the best order",
    reference="Dong, Chen, Ozgur 2025 (remove); feldman-shenfeld-2025, Lemma 3.11 (add)",
    analyses={AveragedSteps: _averaged},
    cost=lambda pair: 0.2,
)
