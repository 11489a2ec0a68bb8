"""Renyi accounting with exact moments: Poisson sampling and random allocation.

Every number below is the *excess* ``d = M_a - 1`` of a moment, not the moment: all terms that are added are then
non-negative and ``log M_a = log(1 + d)`` has a small relative error even when it is 1e-15. Sums are in the log domain.
With ``g_r = r (r-1) / (2 sigma^2)``, the r-th moment of one Gaussian step is ``e^(g_r)``.

Random allocation, add, and k-of-t: ``block_add_moments`` of ``dong_chen_ozgur``, and its blocks. Formulas and proofs:
docs/theory/allocation.md.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.dong_chen_ozgur import block_add_moments, of_blocks
from hockeystick.bounds import Profile
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.moments.log_moments import LogMoments

POISSON_ORDERS = (64, 1024, 16384)
AVERAGED_ORDERS = (32, 128, 512, 2048)
"""Largest orders that are tried one after the other, for as long as the best order is near the largest."""
POWERING_ORDERS = 512
"""Most orders by binary powering, which costs O(log t) times more than the recurrence."""
REAL_ORDERS = np.arange(17, 256) / 16.0
REAL_ORDERS = REAL_ORDERS[np.mod(REAL_ORDERS, 1.0) != 0.0]
"""The best order is often low and the log-moments bend sharply there: chords between integers would cost 10 percent."""
SMALLEST_NOISE_FOR_REAL_ORDERS = 0.1
STEEPEST = 100.0
"""Real orders of random allocation end where log M_a grows faster than this: their grids would be long."""


def thinned_moments(noise_multiplier: float, sampling_prob: float, orders: Array) -> "LogMoments":
    """Moments of one Poisson-subsampled step, remove direction; an upper bound of the add direction's.

    Formal guarantee: exact but for rounding, which is bounded and added.

    Args:
        noise_multiplier: sigma > 0.
        sampling_prob: q in (0, 1].
        orders: integers >= 2.
    """
    from scipy.special import gammaln

    from hockeystick.moments.log_moments import LogMoments
    from hockeystick_papers.renyi_kernels import thinned_excess

    precision = noise_multiplier**-2
    growth = 0.5 * orders * (orders - 1.0) * precision
    if sampling_prob == 1.0:
        return LogMoments(orders, growth * (1.0 + 8 * UNIT_ROUNDOFF))
    log_factorial = gammaln(np.arange(int(orders.max()) + 1) + 1.0)
    log_rate, log_rest = float(np.log(sampling_prob)), float(np.log1p(-sampling_prob))
    log_excess = thinned_excess(orders, log_rate, log_rest, precision, log_factorial)
    size = 3.0 * log_factorial[-1] + orders * (abs(log_rate) + abs(log_rest)) + growth + abs(np.log(precision)) + 8.0
    return LogMoments(orders, _log_moment(log_excess, UNIT_ROUNDOFF * (orders + 16.0 * size)))


def thinned_real_moments(noise_multiplier: float, sampling_prob: float) -> "LogMoments":
    """Moments of one Poisson step at low real orders; none where they would be slow or have a closed form."""
    from hockeystick.moments.log_moments import LogMoments
    from hockeystick.moments.real_orders import log_thinned_excess

    if sampling_prob == 1.0 or noise_multiplier < SMALLEST_NOISE_FOR_REAL_ORDERS:
        return LogMoments(np.empty(0), np.empty(0))
    log_excess = log_thinned_excess(noise_multiplier, sampling_prob, REAL_ORDERS)
    return LogMoments(REAL_ORDERS, _log_moment(log_excess, np.zeros_like(log_excess)))


def _log_moment(log_excess: Array, rounding: Array) -> Array:
    """log(1 + d) from log d, whose absolute error is at most ``rounding``."""
    result: Array = np.logaddexp(0.0, log_excess + rounding) * (1.0 + 8 * UNIT_ROUNDOFF)
    # logaddexp keeps the relative accuracy of a small excess only above the smallest double
    return np.maximum(result, 1e-300)


def averaged_moments(noise_multiplier: float, bins: int, largest: int) -> "LogMoments":
    """Moments of 1-of-``bins`` allocation, remove direction, of all integer orders from 2 to ``largest``.

    Formal guarantee: exact but for rounding, which is bounded and added.

    Args:
        noise_multiplier: sigma > 0.
        bins: t >= 1, of any size.
        largest: highest order >= 2. Cost: 30 ns times its square, times 2 log2(t) when it exceeds t + 1.
    """
    from scipy.special import gammaln

    from hockeystick.moments.log_moments import LogMoments
    from hockeystick_papers.renyi_kernels import recurrence

    every = np.arange(largest + 1, dtype=np.float64)
    growth = 0.5 * every * (every - 1.0) * noise_multiplier**-2
    if bins == 1:
        return LogMoments(every[2:], growth[2:] * (1.0 + 8 * UNIT_ROUNDOFF))
    log_factorial = gammaln(every + 1.0)
    with np.errstate(divide="ignore"):
        log_excess = growth + np.log(-np.expm1(-growth))  # of one step; -inf at 0 and 1
    if largest <= bins + 1:
        result = recurrence(growth, log_excess, float(bins), log_factorial)
        depth = every
    else:
        result = _powered(log_excess, bins, log_factorial)
        depth = np.full_like(every, 2.0 * bins)
    size = 3.0 * log_factorial + every * np.log(bins + 1.0) + 2.0 * growth + abs(log_excess[2]) + 8.0
    rounding = depth * UNIT_ROUNDOFF * (every + 16.0 * size)
    return LogMoments(every[2:], _log_moment(result[2:], rounding[2:]))


def _real_orders(noise_multiplier: float, bins: int) -> Array:
    """The orders between integers that :func:`averaged_real_moments` is worth its time for."""
    if noise_multiplier < SMALLEST_NOISE_FOR_REAL_ORDERS:
        return np.empty(0)
    values = np.concatenate([[0.0, 0.0], averaged_moments(noise_multiplier, bins, AVERAGED_ORDERS[0]).values])
    steep = values[2:] - values[:-2] > STEEPEST
    last = int(np.argmax(steep)) if bool(steep.any()) else steep.size
    return REAL_ORDERS[(last > REAL_ORDERS) & (np.ceil(REAL_ORDERS) <= bins)]


def averaged_real_moments(noise_multiplier: float, bins: int, orders: Array) -> "LogMoments":
    """The moments of :func:`averaged_moments` at low orders that are not integers, never above the integers' chords."""
    from hockeystick.moments.log_moments import LogMoments
    from hockeystick.moments.real_orders import log_averaged_moments

    moments = averaged_moments(noise_multiplier, bins, int(np.ceil(orders.max())) + 1)
    values = np.concatenate([[0.0, 0.0], moments.values])
    real = log_averaged_moments(noise_multiplier, bins, orders, values)
    return LogMoments(orders, np.minimum(real, np.interp(orders, np.arange(values.size), values) * (1.0 + 1e-15)))


def _powered(log_excess: Array, bins: int, log_factorial: Array) -> Array:
    """The mean of ``bins`` copies by repeated doubling."""
    from hockeystick_papers.renyi_kernels import convolved

    result, done = log_excess, 1
    for bit in bin(bins)[3:]:
        result, done = convolved(result, float(done), result, float(done), log_factorial), 2 * done
        if bit == "1":
            result, done = convolved(result, float(done), log_excess, 1.0, log_factorial), done + 1
    return result


def block_remove_moments(pair: AveragedSteps, settings: Settings) -> "LogMoments":
    """Upper bounds of the remove direction's moments: blocks, each visited once; exact for one participation."""
    from hockeystick.moments.log_moments import LogMoments, enough_orders

    sigma, shortest = pair.visit_noise, pair.bins // pair.participations

    def compute(top: int) -> LogMoments:
        settings.deadline.tick()
        largest = min(top, max(shortest + 1, POWERING_ORDERS))
        return of_blocks(pair, lambda size: averaged_moments(sigma, size, largest))

    whole = enough_orders(compute, *AVERAGED_ORDERS, smallest_delta=settings.resolution.smallest_delta)
    settings.deadline.tick()
    orders = _real_orders(sigma, shortest)
    if orders.size == 0:
        return whole
    return whole.merged(of_blocks(pair, lambda size: averaged_real_moments(sigma, size, orders)))


def _independent(pair: IndependentSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.moments.log_moments import LogMoments, enough_orders, moment_profile, sparse_orders

    settings.deadline.tick()
    real = thinned_real_moments(pair.noise_multiplier, pair.sampling_prob)

    def compute(top: int) -> LogMoments:
        settings.deadline.tick()
        step = thinned_moments(pair.noise_multiplier, pair.sampling_prob, sparse_orders(top)).merged(real)
        return step.times(pair.steps)

    moments = enough_orders(compute, *POISSON_ORDERS, smallest_delta=settings.resolution.smallest_delta)
    return dict.fromkeys(Direction, moment_profile(moments))


def _averaged(pair: AveragedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.moments.log_moments import moment_profile

    return {
        Direction.REMOVE: moment_profile(block_remove_moments(pair, settings)),
        Direction.ADD: moment_profile(block_add_moments(pair, settings)),
    }


ACCOUNTANT = Accountant(
    name="renyi",
    summary="Renyi divergences with exact moments, the classical moments accountant",
    sides=(Side.UPPER,),
    errs="upward: Markov's inequality at the best order; moments are exact or bounded from above",
    reference="Canonne, Kamath, Steinke 2020, Proposition 12; Mironov, Talwar, Zhang 2019; "
    "feldman-shenfeld-2025, Theorem 4.6 and Lemma 3.11",
    analyses={IndependentSteps: _independent, AveragedSteps: _averaged},
    cost=lambda pair: 0.2,
    no_better_than=("direct",),
)
