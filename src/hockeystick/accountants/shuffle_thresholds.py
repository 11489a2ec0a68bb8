"""Lower bounds for shuffled batches: one dataset, and what the largest output of an epoch reveals.

The adversary keeps ``m = max_t w_t`` of every epoch; its cdf is ``F_a(C) = Phi(C / sigma)^(T-1) Phi((C - a) / sigma)``,
a = 2 under P_S and a = 1 under Q_S (chua-2024, eq. (1), (2)). Each profile is the largest of three bounds: threshold
sets of one epoch, m in cells for all epochs, and the sum of all outputs.

Where a remainder is dropped, or is a short batch, the example is in no whole batch of an epoch with a probability r,
and m over the whole batches has the cdf ``(1 - r) F_a(C) + r F_0(C)`` on those datasets. The sum of all outputs is the
Gaussian above where the rest is a short batch; where it is dropped it is none, and not used (docs/theory/samplers.md).

Proofs: docs/theory/shuffle-thresholds.md. Errs downward, by post-processing and choice of sets; rounding by the bounds
stated at ``_rounding``. Cost: O(log(epochs)) products of laws of about 1,000 cells.
"""

from collections.abc import Mapping, Sequence
from math import exp, log, log1p, sqrt

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import MAX_RATIO, UNIT_ROUNDOFF, Array, Law, lower_law
from hockeystick.laws.operations import power
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.shuffled_batches import ShuffledBatches, ShuffledWithRemainder
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

Shuffled = ShuffledBatches | ShuffledWithRemainder
WITH, WITHOUT = 2.0, 1.0
"""Shift of the batch that holds the example, under P_S and Q_S."""
SEARCH_POINTS = 400
SEARCH_ROUNDS = 5
CELLS = 1200
UNDERFLOWN = 1e-290
"""More than a mass can lose where log_ndtr underflows."""
SMALLEST_MASS = 1e-80
MAX_MASS_ERROR = 1e-10


def _log_cdf(z: Array, shift: float, pair: Shuffled) -> Array:
    """log F_shift at ``C = sigma z``: never positive, accurate relative to itself (see ``_rounding``)."""
    from scipy.special import log_ndtr

    shifted, plain = log_ndtr(z - shift / pair.noise_multiplier), log_ndtr(z)
    if isinstance(pair, ShuffledBatches):
        value: Array = (pair.bins - 1) * plain + shifted
        return value
    # Near 1 the mixture is taken as 1 less what is missing, so that neither end loses digits.
    missing = (1.0 - pair.rest_prob) * np.expm1(shifted) + pair.rest_prob * np.expm1(plain)
    small = np.logaddexp(log1p(-pair.rest_prob) + shifted, log(pair.rest_prob) + plain)
    mixed: Array = np.where(missing > -0.5, np.log1p(np.maximum(missing, -0.5)), np.minimum(small, 0.0))
    return (pair.full_batches - 1) * plain + mixed


def _rounding(z: Array, pair: Shuffled) -> Array:
    """Bound on the relative error of ``_log_cdf`` (either shift).

    The shifted argument ``x`` carries an absolute error of a few units of ``|z| + shift/sigma``, and
    ``|d log(-log Phi(x)) / dx| <= |x| + 2``; log_ndtr itself is good to some 1e-14.

    The mixture of a remainder at most doubles that. Near 1, expm1 and log1p(-x), x <= 1/2, enlarge a relative error by
    factors of at most 1 and 1.5, and both terms have one sign. Elsewhere ``L = log(e^p + e^q) <= -log 2`` moves by at
    most the mean of the errors of p and q with weights ``e^(p - L)``, ``e^(q - L)``, and ``|p| e^(p - L)`` is at most
    1.5 |L| for p <= L. The roundings of the weights and of these few operations are within the 100 units.
    """
    reach = np.abs(z) + WITH / pair.noise_multiplier + 2.0
    factor = 8.0 if isinstance(pair, ShuffledBatches) else 32.0
    return factor * UNIT_ROUNDOFF * (100.0 + reach * reach)


def _best_threshold(pair: Shuffled, epsilon: float, direction: Direction) -> float:
    """The largest ``P(E) - e^eps Q(E)`` over the threshold sets of one epoch, rounded down."""

    def value(z: Array) -> Array:
        """The two masses are ``1 - F`` (remove) or ``F`` (add); the relative error of log F bounds that of both."""
        error = _rounding(z, pair)
        log_with, log_without = _log_cdf(z, WITH, pair), _log_cdf(z, WITHOUT, pair)
        if direction is Direction.REMOVE:  # |G| e^G / (1 - e^G) <= 1: the error of log F carries over as it is
            return -np.expm1(log_with) * (1.0 - error) + scale * (np.expm1(log_without) * (1.0 + error) - UNDERFLOWN)
        first = np.exp(log_without + (log_without - 1.0) * error)
        second = np.exp(log_with - (log_with - 1.0) * error)
        return first - scale * (second + UNDERFLOWN)

    scale = exp(epsilon) * (1.0 + 4 * UNIT_ROUNDOFF)
    z = np.linspace(-40.0, WITH / pair.noise_multiplier + 40.0, 8 * SEARCH_POINTS)
    best = 0.0
    for _ in range(SEARCH_ROUNDS):
        values = value(z)
        top = int(np.argmax(values))
        best = max(best, float(values[top]))
        z = np.linspace(z[max(top - 1, 0)], z[min(top + 1, z.size - 1)], SEARCH_POINTS)
    return best


def epoch_law(pair: Shuffled) -> Law | None:
    """The lower law of the largest output of one epoch, in cells; None where P_S and Q_S barely overlap.

    Cells are equidistant in z where either cdf moves. A cell's mass is ``F(C_2) (1 - e^(G_1 - G_2))``, G = log F: no
    two masses are subtracted, and the error of ``G_1 - G_2`` is bounded. Cells for which that bound is poor, or whose
    mass is next to nothing, are left out: that lowers every divergence.
    """
    outer = np.linspace(-40.0, WITH / pair.noise_multiplier + 40.0, 20_000)
    log_with, log_without = _log_cdf(outer, WITH, pair), _log_cdf(outer, WITHOUT, pair)
    alive = (log_with > log(SMALLEST_MASS)) & (-np.expm1(log_without) > SMALLEST_MASS)
    if not alive.any():
        return None
    first, last = np.flatnonzero(alive)[[0, -1]]
    z = np.linspace(outer[max(first - 1, 0)], outer[min(last + 1, outer.size - 1)], CELLS + 1)
    z = np.concatenate([z, [np.inf]])
    mass_p, error_p = _cell_masses(z, WITH, pair)
    mass_q, error_q = _cell_masses(z, WITHOUT, pair)
    error = np.maximum(error_p, error_q)
    good = (error < MAX_MASS_ERROR) & (np.minimum(mass_p, mass_q) > SMALLEST_MASS) & (mass_p < mass_q * MAX_RATIO)
    if not good.any():
        return None
    mass_p, mass_q = mass_p[good], mass_q[good]
    worst = float(error[good].max(initial=0.0))
    order = np.argsort(mass_p / mass_q)
    rounding = 4.0 * worst + (CELLS + 8) * UNIT_ROUNDOFF
    return lower_law(mass_q[order], mass_p[order], rounding, rounding)


def _cell_masses(z: Array, shift: float, pair: Shuffled) -> tuple[Array, Array]:
    """Masses of the cells [z_i, z_{i+1}) and bounds on their relative errors; the last cell reaches to infinity."""
    log_cdf = np.concatenate([_log_cdf(z[:-1], shift, pair), [0.0]])
    error = np.concatenate([_rounding(z[:-1], pair), [0.0]]) * np.abs(log_cdf)
    rise = np.diff(log_cdf)
    usable = rise > 0.0
    mass = np.where(usable, np.exp(log_cdf[1:]) * -np.expm1(-rise), 0.0)
    absolute = error[1:] + error[:-1]
    return mass, np.where(usable, error[1:] + absolute / np.where(usable, rise, 1.0) + 8 * UNIT_ROUNDOFF, np.inf)


def _profile(pair: Shuffled, law: Law | None, direction: Direction) -> Profile:
    sensitivity = sqrt(pair.epochs / pair.bins) * (1.0 - 4 * UNIT_ROUNDOFF)
    always = isinstance(pair, ShuffledBatches) or pair.bins > pair.full_batches  # the example is in every epoch

    def profile(epsilon: float) -> float:
        of_sum = 0.0
        if always:
            of_sum = gaussian_delta(pair.noise_multiplier, sensitivity, epsilon, Side.LOWER) - UNDERFLOWN
        of_epochs = 0.0 if law is None else law_delta(law, epsilon, direction)
        return max(of_sum, of_epochs, _best_threshold(pair, epsilon, direction))

    return profile


def _laws(pair: Shuffled, side: Side, settings: Settings) -> Sequence[Law]:
    law = epoch_law(pair)
    if law is None:
        return ()
    return [power(law, pair.epochs, settings.resolution, tick=settings.deadline.tick)]


def _analyse(pair: Shuffled, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    law = next(iter(_laws(pair, side, settings)), None) if pair.epochs > 1 else None
    return {direction: _profile(pair, law, direction) for direction in Direction}


ACCOUNTANT = Accountant(
    name="shuffle_thresholds",
    summary="what the largest output of each epoch reveals of a shuffled run",
    sides=(Side.LOWER,),
    errs="downward: the statistic is a post-processing of one pair of datasets, its masses are rounded down",
    reference="chua-2024, eq. (1) to (3)",
    analyses={ShuffledBatches: _analyse, ShuffledWithRemainder: _analyse},
    laws={ShuffledBatches: _laws, ShuffledWithRemainder: _laws},
    cost=lambda pair: 0.01 if pair.epochs == 1 else 0.1 + 0.05 * log(pair.epochs),
)
