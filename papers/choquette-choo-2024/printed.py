"""Algorithms 2 and 4 as printed, for comparison alone: nothing here is registered, and no certificate can name it.

The tail bounds are the paper's: half of each share for the noise, half for the number of other participations, which
Appendix F.3 bounds by the largest inner products of as many as a binomial tail allows. What follows them, the laws of
the rows and their composition, is that of our ``mmcc``, so that the curves differ by the tail bounds alone. Both
directions use the bounds of the remove direction ("by symmetry").

Algorithm 4's budget is refuted (docs/theory/subsets/mmcc.md): its numbers are no bounds.
"""

import itertools
from collections.abc import Callable

import numpy as np
from scipy.special import expit
from scipy.stats import binom, norm

import hockeystick as hs
from hockeystick.laws.law import Array
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.reproduction.curves import PLOT_NODES
from hockeystick_papers.participations.engine import composed_powers, mixture_law
from hockeystick_papers.participations.rows import dominating_mixtures
from hockeystick_papers.participations.tails import Blocks

SHARE = 0.5
"""delta_1 over delta; the paper does not print how it divides delta."""
LAWS, SHARES = 60, 512
"""Different laws of rows, at most, and parts of a typical sensitivity that others are rounded up to."""


def printed_epsilon(
    entries: Array, sigma: float, prob: float, delta: float, tick: Callable[[], None], groups: int = 1
) -> float:
    """epsilon by MMCC with Algorithm 2, or by Generalized-MMCC with Algorithm 4 where there are groups.

    Args:
        entries: C, shape (rows, steps); with groups, of a lower triangular C.
        prob: p; with groups, the rate is ``groups * p`` in the steps of a group, as in Algorithm 3.
    """
    if groups > 1:
        entries = entries[:, ::groups]
    cuts = np.arange(0, entries.shape[0] + groups, groups).clip(max=entries.shape[0])
    chances, norms, starts = tail_chances(entries, cuts, sigma, groups * prob, groups * SHARE * delta, tick)
    none = np.zeros(norms.size)
    blocks = Blocks(
        starts=starts,
        copies=np.ones(starts.size - 1, dtype=np.int64),
        norm=norms,
        own=none,
        total=none,
        square=none,
        largest=none,
        error=0.0,
        informed=0,
        steps=entries.shape[1],
    )
    resolution = hs.Resolution(PLOT_NODES, delta)
    steps = []
    for mixture in dominating_mixtures(blocks, chances, sigma, LAWS, tick):
        tick()
        steps.append((mixture_law(mixture, sigma, SHARES, resolution), mixture.copies))
    law = composed_powers(steps, resolution, tick)

    def delta_at(epsilon: float) -> float:
        return max(law_delta(law, epsilon, direction) for direction in hs.Direction) + SHARE * delta

    return smallest_epsilon(delta_at, delta, law.side)


def tail_chances(
    entries: Array, cuts: Array, sigma: float, prob: float, budget: float, tick: Callable[[], None]
) -> tuple[Array, Array, Array]:
    """The chances of Algorithm 2 or 4 for every block of rows and column that meet, and the norms.

    Args:
        cuts: where the blocks begin, and the end.
        budget: delta_1 of the algorithm.

    Returns: chances and norms of the pairs, those of a block from the newest column on, and where blocks start.
    """
    columns = entries.shape[1]
    share = budget / (2.0 * max(np.count_nonzero(entries) - columns, 1))
    quantile = float(norm.isf(share))
    gram = np.zeros((columns, columns))
    chances, norms, starts = [], [], [0]
    for first, last in itertools.pairwise(cuts):
        tick()
        lengths = np.linalg.norm(entries[first:last], axis=0)
        met = np.flatnonzero(lengths)[::-1]
        if met.size:
            own = gram[met, met]
            seen = np.flatnonzero(gram.diagonal())
            most = int(binom.isf(share, seen.size, prob)) if seen.size else 0
            largest = np.zeros(met.size)
            if most:
                products = gram[np.ix_(met, seen)]
                largest = np.partition(products, seen.size - most, axis=1)[:, seen.size - most :].sum(axis=1)
            loss = quantile * np.sqrt(own) / sigma + (2.0 * largest - own) / (2.0 * sigma**2)
            chance = expit(np.log(prob / (1.0 - prob)) + loss) if prob < 1.0 else np.ones(met.size)
            chance[(entries[first, met] == 0.0)] = 1.0
            chances.append(chance)
            norms.append(lengths[met])
            starts.append(starts[-1] + met.size)
        for row in entries[first:last]:
            filled = np.flatnonzero(row)
            gram[np.ix_(filled, filled)] += np.outer(row[filled], row[filled])
    return np.concatenate(chances), np.concatenate(norms), np.array(starts, dtype=np.int64)
