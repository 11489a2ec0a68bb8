"""Upper bounds, in high probability, on how the posterior over the bins is spread over the levels of a row.

With prefixes ``mu_i`` of the means and ``l_i`` the likelihood of the earlier outputs given bin i, the reverse hazard of
a level is ``W / (1 + W)`` with ``W = sum_i W_i``, ``W_i = l_i / sum_{j below} l_j``, over the bins i of the level.
Each W_i has a threshold that it passes with at most the probability that it was given:

    1 / W_i = c + sum_{j in O} l_j / l_i >= c + |O| exp(L),    L = sum_j psi_j log(l_j / l_i) - KL(psi | uniform on O)

where c counts the bins below whose prefix is zero when that of i is (their ratio is exactly 1), O is the rest, and
psi is any distribution on O. L is Gaussian given the true bin k, so

    P(1 / W_i < c + |O| e^t) <= (1/b) sum_k min_psi Phi((t - nu_k(psi)) / xi(psi))      remove: the full mixture
                             <= min_psi Phi((t - nu_0(psi)) / xi(psi))                  add: y ~ Q.

psi is uniform, or ``softmax(-|mu_i - mu_j|^2 / t)`` at one of several temperatures. nu is lowered and xi raised by
their rounding, and a threshold is used only after the probability bound was evaluated at it.

Source: schuchardt-kalinin-2026, section 4 and appendices D and F, with the corrections of
docs/theory/conditional-composition.md.
"""

from collections.abc import Callable, Iterator, Mapping
from math import log, nan

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.posteriors.bins import kernels
from hockeystick.posteriors.bins.kernels import Indices
from hockeystick.posteriors.bins.levels import LevelledMeans
from hockeystick.types import Direction

TEMPERATURES = (10.0**-1.0, 10.0**-0.5, 1.0, 10.0**0.5, 10.0)
"""Temperatures of the softmax families, in squared clipping norms (schuchardt-kalinin-2026, appendix F.4), beside
2 sigma^2."""
CHUNK = 256


def tail_bounds(
    means: Array,
    noise_multiplier: float,
    rounding: float,
    levelled: LevelledMeans,
    rows: Indices,
    budgets: Mapping[Direction, Array],
    shares: Array,
    tick: Callable[[], None],
) -> dict[Direction, Array]:
    """Bounds on the posterior probability of a level or a higher one, given the outputs before a row.

    Args:
        means: shape (all rows, bins), the means of the bins.
        rounding: proved relative error of the means and of their inner products.
        rows: the rows wanted, increasing.
        budgets: for each direction, the failure probabilities to try, shape (tries,), each in (0, 1).
        shares: shape (all rows, bins): bin i at row n may fail with probability ``budget * shares[n, i]``.

    Formal guarantee: in the returned arrays, shape (tries, rows, levels) for each direction, every entry with level l
        is at least the posterior probability of ``index >= l``, unless a bin of the row fails. The union of all
        failures has at most the probability ``budget * (sum of shares over the bins above their row's lowest
        level)``, under P for remove and under Q for add.

    Cost: for a row with m bins above its lowest level, O(m bins^2) for each psi; memory O(bins^2 + m bins).
    """
    count = levelled.values.size
    bounds = {direction: np.empty((tries.size, rows.size, count)) for direction, tries in budgets.items()}
    scores = {direction: np.full((tries.size, count), nan) for direction, tries in budgets.items()}
    temperatures = np.array([*TEMPERATURES, 2.0 * noise_multiplier**2])
    error = 2.0 * rounding + 16.0 * sum(means.shape) * UNIT_ROUNDOFF
    for position, (row, gram) in enumerate(_prefix_grams(means, rows)):
        tick()
        level = levelled.index[row]
        lowest = int(level.min())
        bounded = np.flatnonzero(level > lowest)
        psi, divergence, informative, alike = kernels.reference_families(gram, level, bounded, temperatures)
        given_bin, given_none, deviation = _log_ratios(gram, bounded, psi, divergence, noise_multiplier, error)
        for direction, tries in budgets.items():
            # the components of the first distribution of the pair, and the typical one of each bin
            centres, own = given_bin, bounded
            if direction is Direction.ADD:
                centres, own = given_none[:, :, None], np.zeros_like(bounded)
            allowed = tries[:, None] * shares[row, bounded]
            thresholds = kernels.thresholds(
                centres, deviation, own, allowed, informative, level[bounded], scores[direction]
            )
            for attempt, threshold in enumerate(thresholds):
                bounds[direction][attempt, position] = kernels.level_tails(
                    threshold, informative, alike, level[bounded], lowest, count
                )
    return bounds


def _prefix_grams(means: Array, rows: Indices) -> Iterator[tuple[int, Array]]:
    """The rows with the inner products of the prefixes before them, one array that is kept up to date.

    O(bins^2) for each row, less where few means of a row are positive.
    """
    gram = np.zeros((means.shape[1], means.shape[1]))
    done = 0
    for row in rows:
        for first in range(done, int(row), CHUNK):
            new = means[first : min(first + CHUNK, int(row))]
            moved = np.flatnonzero(new.any(axis=0))
            gram[np.ix_(moved, moved)] += new[:, moved].T @ new[:, moved]
        done = int(row)
        yield done, gram


def _log_ratios(
    gram: Array, bounded: Indices, psi: Array, divergence: Array, noise_multiplier: float, error: float
) -> tuple[Array, Array, Array]:
    """nu_k, nu_0 (without the example) and xi of the lower bounds L, rounded to the safe side.

    With ``a = sum_j psi_j mu_j``: ``nu_k = <mu_k, a - mu_i>/s^2 + (G_ii - sum_j psi_j G_jj)/(2 s^2) - KL`` and
    ``xi = |a - mu_i| / s``, shapes (bounded, families, bins) and twice (bounded, families).

    Each of the terms of nu and xi^2 is at most twice the largest inner product, and KL is at most log b, its exponents'
    roundings weighing at most log^2 b.
    """
    precision = noise_multiplier**-2
    families, bins = psi.shape[1:]
    diagonal = gram.diagonal()
    products = (psi.reshape(-1, bins) @ gram).reshape(psi.shape)
    own = diagonal[bounded][:, None]
    at_own = np.take_along_axis(products, np.broadcast_to(bounded[:, None, None], (bounded.size, families, 1)), axis=2)
    squares = np.einsum("pfj,pfj->pf", products, psi)
    loss = error * 8.0 * (precision * float(diagonal.max()) + (1.0 + log(bins)) ** 2)
    variance = precision * np.maximum(own - 2.0 * at_own[:, :, 0] + squares, 0.0) + loss
    given_none = 0.5 * precision * (own - psi @ diagonal) - divergence - loss
    given_bin = precision * (products - gram[bounded][:, None, :]) + given_none[:, :, None]
    return given_bin, given_none, np.sqrt(variance)
