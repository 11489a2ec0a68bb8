"""Renyi accounting of balls-in-bins with correlated noise, without sampling.

**Remove.** Upper bounds of ``log E_Q X^a`` from several reductions of the Gram matrix (``moments/bands.py``): orders
2 to 4 of the whole matrix, and bands of growing width, each with the orders that its time allows (narrow bands reach
high orders, wide ones lose less). All bound the same numbers, so every order takes the smallest. ``log M_a`` is convex
in a and 0 at a = 1, so the lower convex hull of the bounds is a bound too, also at real orders. One profile is made
from all of them: :mod:`.order_programme`.

**Add.** The smaller of ``comparison`` and the geometric mean of the ratios.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.comparison import comparison_profiles
from hockeystick.bounds import Profile
from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.moments.log_moments import LogMoments

BANDWIDTHS = (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128)
DIAGONAL_ORDERS = (32, 128, 512)
ORDERS = (*range(3, 33), 36, 40, 48, 56, 64)
"""Highest orders that are considered for a band."""
SECONDS = 1.5
"""Most time in all, as estimated; the same for every deadline, or verification would find another bound."""
NEARLY_CIRCULANT = 0.003
"""Relative difference of ``log M_2`` up to which the bins need no weights of their own."""


def remove_moments(pair: BinMixture, settings: Settings) -> "LogMoments":
    """Upper bounds of the remove direction's ``log M_a``, every order from the best reduction that the time allows.

    Formal guarantee: never too small; exact but for rounding at orders 2 to 4 where the matrix is small enough
    (hundreds of bins), and where the Gram matrix is banded on the ring within the bandwidths that were used.
    """
    from hockeystick.moments.bands import banded_moments, ring_maxima, scaled_gram
    from hockeystick.moments.log_moments import LogMoments, enough_orders

    smallest, deadline = settings.resolution.smallest_delta, settings.deadline
    scaled = scaled_gram(pair.gram, pair.rounding, pair.noise_multiplier)
    maxima = ring_maxima(scaled)

    def diagonal(top: int) -> LogMoments:
        deadline.tick()
        return banded_moments(scaled, 1, top)

    if maxima[1:].max(initial=0.0) == 0.0:
        return enough_orders(diagonal, *DIAGONAL_ORDERS, smallest_delta=smallest)
    bounds = [diagonal(ORDERS[-1])]
    bounds += _dense(scaled, 0.2 * SECONDS, deadline)
    bounds += _bands(scaled, maxima, 0.8 * SECONDS, deadline)
    return _convex(bounds)


def _dense(scaled: Array, seconds: float, deadline: Deadline) -> "Iterator[LogMoments]":
    from hockeystick.moments.bands import dense_cost, dense_moments

    affordable = [a for a in (2, 3, 4) if dense_cost(scaled.shape[0], a) <= seconds]
    if affordable:
        yield dense_moments(scaled, affordable[-1], deadline=deadline)


def _bands(scaled: Array, maxima: Array, seconds: float, deadline: Deadline) -> "Iterator[LogMoments]":
    """Moments for each bandwidth, with weights shared by all bins and, where that loses, with their own."""
    from hockeystick.moments.bands import banded_cost, banded_moments, dense_moments

    bins = scaled.shape[0]
    widths = []
    for width in BANDWIDTHS:
        widths.append(min(width, maxima.size))
        if maxima[widths[-1] :].max(initial=0.0) == 0.0:  # wider bands bring nothing more
            break
    widths = list(dict.fromkeys(widths))
    gap = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    circulant = maxima[np.minimum(gap, bins - gap)]
    excess = dense_moments(circulant, 2).values[0] / dense_moments(scaled, 2).values[0] - 1.0
    passes = (True,) if excess <= NEARLY_CIRCULANT else (True, False)
    for share in passes:
        for width in widths:
            allowed = seconds / (len(passes) * len(widths))
            affordable = [a for a in ORDERS if banded_cost(bins, width - 1, a, share) <= allowed]
            if affordable:
                yield banded_moments(scaled, width, affordable[-1], share=share, deadline=deadline)


def _convex(bounds: "list[LogMoments]") -> "LogMoments":
    """The smallest bound of every integer order, then the lower convex hull with the point (1, 0), rounded up."""
    from hockeystick.moments.log_moments import LogMoments

    orders = np.arange(2.0, max(float(each.orders[-1]) for each in bounds) + 1.0)
    lowest = np.full(orders.size, np.inf)
    for each in bounds:
        place = each.orders.astype(np.int64) - 2
        lowest[place] = np.minimum(lowest[place], each.values)
    hull = [(1.0, 0.0)]
    for order, value in zip(orders, lowest, strict=True):
        while len(hull) > 1 and _above_chord(hull[-2], hull[-1], (order, value)):
            hull.pop()
        hull.append((float(order), float(value)))
    corners = np.array(hull)
    smooth = np.interp(orders, corners[:, 0], corners[:, 1]) * (1.0 + 8 * UNIT_ROUNDOFF)
    return LogMoments(orders, np.minimum(lowest, smooth))


def _above_chord(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])


def _profiles(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick_papers.order_programme import programme_profile

    settings.deadline.tick()
    return {
        Direction.REMOVE: programme_profile(remove_moments(pair, settings)),
        Direction.ADD: comparison_profiles(pair, side, settings)[Direction.ADD],
    }


ACCOUNTANT = Accountant(
    name="bin_renyi",
    summary="moments of the bins' mixture, exact for banded matrices; covariance comparison for add",
    sides=(Side.UPPER,),
    errs="upward: moments are exact or of a larger Gram matrix, the polynomial above the hockey stick is certified",
    reference="docs/theory/bins-moments.md; schuchardt-kalinin-2026, section 3",
    analyses={BinMixture: _profiles},
    refusal=lambda pair, side: pair.too_large,
    cost=lambda pair: 0.5 if pair.bins == 1 else 2.5,
    example=examples.bins,
)
