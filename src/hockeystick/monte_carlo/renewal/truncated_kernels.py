"""Numba kernels of truncated b-min-sep subsampling: counts of the other examples, and two recursions given them."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.monte_carlo.sums import log_add

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


class Truncation(NamedTuple):
    """What the kernels know of a pair.

    Attributes:
        scaled: ``C[i + d, i] / sigma``, shape (n, p), p <= min_sep.
        half_norms: ``|c_i|^2 / (2 sigma^2)``, shape (n,).
        min_sep: b.
        prob: q.
        warm: whether the first availability is that of the long run.
        cap: B.
        others: N - 1.
    """

    scaled: Array
    half_norms: Array
    min_sep: int
    prob: float
    warm: bool
    cap: int
    others: int


@njit(cache=True, nogil=True)
def draw_truncated(rng: np.random.Generator, law: Truncation, from_first: bool, losses: Array) -> None:
    """Fill ``losses`` with ``log P/Q`` of outputs of P (``from_first``), or ``log Q/P`` of outputs of Q.

    O(n p + b) for each sample.
    """
    n = law.scaled.shape[0]
    y, counts, projections = np.empty(n), np.empty(n, np.int64), np.empty(n)
    for sample in range(losses.size):
        draw_counts(rng, law.min_sep, law.prob, law.warm, law.others, counts)
        _draw_output(rng, law, counts, from_first, y)
        _project(law.scaled, y, projections)
        loss = log_mixture(projections, law, counts, 1.0, 2.0) - log_mixture(projections, law, counts, 0.0, -1.0)
        losses[sample] = loss if from_first else -loss


@njit(cache=True, nogil=True)
def draw_counts(rng: np.random.Generator, min_sep: int, prob: float, warm: bool, others: int, counts: Counts) -> None:
    """How many of ``others`` independent examples are taken at each step: binomials of those available. O(n + b).

    The counts of the examples that return at a step are in a ring of b places. Given all counts up to a step, every
    available example is taken independently with probability q, whichever examples these are.
    """
    returning = np.zeros(min_sep, np.int64)
    available = others
    if warm:
        for first in range(1, min_sep):  # available from step index `first` on; what is left is available at once
            returning[first] = rng.binomial(available, prob / (1.0 + (min_sep - first) * prob))
            available -= returning[first]
    for t in range(counts.size):
        place = t % min_sep
        available += returning[place]
        counts[t] = rng.binomial(available, prob)
        available -= counts[t]
        returning[place] = counts[t]


@njit(cache=True, nogil=True)
def _draw_output(rng: np.random.Generator, law: Truncation, counts: Counts, from_first: bool, y: Array) -> None:
    """Noise and the shifts of one draw of the participations and survivals, in units of sigma."""
    n, p = law.scaled.shape
    for t in range(n):
        y[t] = rng.standard_normal()
    i = 0
    if law.warm and rng.random() * (1.0 + (law.min_sep - 1) * law.prob) >= 1.0:
        i = 1 + min(int(rng.random() * (law.min_sep - 1)), law.min_sep - 2)
    while i < n:
        if rng.random() >= law.prob:
            i += 1
            continue
        shift = 1.0 if from_first else 0.0
        if counts[i] >= law.cap:
            survives = rng.random() * (counts[i] + 1.0) < law.cap
            shift = (2.0 if from_first else -1.0) if survives else 0.0
        for d in range(min(p, n - i)):
            y[i + d] += shift * law.scaled[i, d]
        i += law.min_sep


@njit(cache=True, nogil=True)
def _project(scaled: Array, y: Array, projections: Array) -> None:
    """``<c_i, y> / sigma`` for y in units of sigma."""
    n, p = scaled.shape
    for i in range(n):
        total = 0.0
        for d in range(min(p, n - i)):
            total += scaled[i, d] * y[i + d]
        projections[i] = total


@njit(cache=True, nogil=True)
def log_mixture(projections: Array, law: Truncation, counts: Counts, whole: float, cut: float) -> float:
    """Log of the density of one of the mixtures relative to ``N(0, sigma^2 I)``, given the counts.

    Taken at step i, the example shifts the output by ``whole c_i`` where the counts are below the cap; else by
    ``cut c_i`` with probability ``B / (r_i + 1)`` and by nothing otherwise. Goes back from the last step with
    ``f_i = (1 - q) f_{i+1} + q E[ratio of the shift] f_{i+b}``, in logarithms: the values of different steps can be
    hundreds of powers of ten apart.
    """
    n = projections.size
    log_wait = np.log1p(-law.prob) if law.prob < 1.0 else -np.inf
    log_take = np.log(law.prob)
    later = np.zeros(law.min_sep)  # log f of the min_sep steps to come, at the places of the steps
    following = 0.0
    for i in range(n - 1, -1, -1):
        if counts[i] < law.cap:
            ratio = whole * projections[i] - whole * whole * law.half_norms[i]
        else:
            survival = law.cap / (counts[i] + 1.0)
            ratio = cut * projections[i] - cut * cut * law.half_norms[i]
            ratio = log_add(np.log(survival) + ratio, np.log1p(-survival))
        place = i % law.min_sep
        following = log_add(log_wait + following, log_take + ratio + later[place])
        later[place] = following
    if not law.warm:
        return following
    total = following
    for first in range(1, law.min_sep):
        total = log_add(total, log_take + later[first])
    return float(total - np.log1p((law.min_sep - 1) * law.prob))
