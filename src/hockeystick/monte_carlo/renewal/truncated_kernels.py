"""Numba kernels of truncated b-min-sep subsampling: counts of the other examples, and two densities given them."""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.draws import draw_noise
from hockeystick.monte_carlo.renewal.kernels import (
    Recursion,
    Workspace,
    add_column,
    correlate,
    sum_terms,
    workspace,
)
from hockeystick.monte_carlo.sums import log_add


class Truncation(NamedTuple):
    """What the kernels know of a pair.

    Attributes:
        law: the recursion of the example where no batch is cut.
        prob: q.
        warm: whether the first availability is that of the long run.
        cap: B.
        others: N - 1.
    """

    law: Recursion
    prob: float
    warm: bool
    cap: int
    others: int


@kernel
def draw_truncated(rng: np.random.Generator, cuts: Truncation, from_first: bool, log_ratios: Array) -> None:
    """Fill ``log_ratios`` with ``log P/Q`` of outputs of P (``from_first``), or of Q.

    O(n p + b) for each sample.
    """
    law = cuts.law
    n = law.half_squares.size
    y, counts, work = np.zeros(n + law.taps.shape[0]), np.empty(n, np.int64), workspace(law)
    for sample in range(log_ratios.size):
        draw_counts(rng, law.min_sep, cuts.prob, cuts.warm, cuts.others, counts)
        _draw_output(rng, cuts, counts, from_first, y)
        correlate(y, law.taps, work.products)
        of_p, of_q = log_mixture(cuts, counts, 1.0, 2.0, work), log_mixture(cuts, counts, 0.0, -1.0, work)
        log_ratios[sample] = of_p - of_q


@kernel(inline="always")
def draw_counts(rng: np.random.Generator, min_sep: int, prob: float, warm: bool, others: int, counts: Integers) -> None:
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


@kernel(inline="always")
def _draw_output(rng: np.random.Generator, cuts: Truncation, counts: Integers, from_first: bool, y: Array) -> None:
    """Noise and the shifts of one draw of the participations and survivals, in units of sigma, in the first n rows."""
    law, n = cuts.law, counts.size
    draw_noise(rng, y[:n])
    i = 0
    if cuts.warm and rng.random() * (1.0 + (law.min_sep - 1) * cuts.prob) >= 1.0:
        i = 1 + min(int(rng.random() * (law.min_sep - 1)), law.min_sep - 2)
    while i < n:
        if rng.random() >= cuts.prob:
            i += 1
            continue
        shift = 1.0 if from_first else 0.0
        if counts[i] >= cuts.cap:
            survives = rng.random() * (counts[i] + 1.0) < cuts.cap
            shift = (2.0 if from_first else -1.0) if survives else 0.0
        add_column(law.taps, i, shift, n, y)
        i += law.min_sep


@kernel
def log_mixture(cuts: Truncation, counts: Integers, whole: float, cut: float, work: Workspace) -> float:
    """Log of the density of one of the mixtures relative to Q, given the counts, from the ``products`` in ``work``.

    Taken at step i, the example shifts the output by ``whole c_i`` where the counts are below the cap; else by
    ``cut c_i`` with probability ``B / (r_i + 1)`` and by nothing otherwise.
    """
    law = cuts.law
    log_take = law.log_weights[0]
    for i in range(counts.size):
        shift = whole if counts[i] < cuts.cap else cut
        ratio = shift * work.products[i] - shift * shift * law.half_squares[i]
        if counts[i] >= cuts.cap:
            survival = cuts.cap / (counts[i] + 1.0)
            ratio = log_add(np.log(survival) + ratio, np.log1p(-survival))
        work.terms[i] = log_take + ratio
    return sum_terms(law, work)
