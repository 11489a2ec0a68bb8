"""One law that dominates all rows together, from bounds on each row's posterior.

Rows are sorted by strength and cut into blocks of similar ones; a block is bounded by the largest tail at every level,
so that few distinct laws are composed. A block has a power of two of rows: with the blocks of 2^e rows folded in
before the last e squarings, all of them cost one composition a block and one a squaring.
"""

from collections.abc import Callable

import numpy as np

from hockeystick.laws.discretise import mixture_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law, point_mass_at_one
from hockeystick.laws.operations import compose
from hockeystick.types import Side

SPREADS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0, 3.0)
"""Relative spread of the strength within a block, tried from the finest on until there are few enough blocks."""


def composed_law(
    values: Array,
    tails: Array,
    copies: int,
    noise_multiplier: float,
    blocks: int,
    resolution: Resolution,
    tick: Callable[[], None],
) -> Law:
    """An upper law of the composition of the rows' mixtures.

    Args:
        values: shape (levels,), means, increasing.
        tails: shape (rows, levels): a row's mixture puts at most ``tails[n, l]`` on ``values[l]`` and above;
            non-increasing in l, 1 at level 0.
        copies: how often every row is counted, a power of two (1 for the bound itself).
        blocks: about how many different laws to compose.

    Each replacement moves mass to larger means, so the result dominates (docs/theory/conditional-composition.md,
    Lemma 1).
    """
    law = None
    strongest_first = np.argsort(-_strength(values, tails, noise_multiplier), kind="stable")
    sizes = _block_sizes(_strength(values, tails, noise_multiplier)[strongest_first], blocks)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    for size in 2 ** np.arange(int(np.log2(sizes.max())), -1, -1):
        if law is not None:
            law = compose(law, law, resolution, tick=tick)
        for start in starts[sizes == size]:
            tick()
            largest = tails[strongest_first[start : start + size]].max(axis=0)
            step = _row_law(values, largest, noise_multiplier, resolution)
            law = step if law is None else compose(law, step, resolution, tick=tick)
    law = point_mass_at_one(Side.UPPER) if law is None else law
    for _ in range(copies.bit_length() - 1):
        law = compose(law, law, resolution, tick=tick)
    return law


def _row_law(values: Array, tails: Array, noise_multiplier: float, resolution: Resolution) -> Law:
    weights = tails - np.append(tails[1:], 0.0)
    used = weights > 0.0
    return mixture_law(weights[used], values[used], noise_multiplier, Side.UPPER, resolution)


def _strength(values: Array, tails: Array, noise_multiplier: float) -> Array:
    """``E_Q (X - 1)^2`` of each row's mixture, shape (rows,). For ranking only."""
    weights = tails - np.concatenate([tails[:, 1:], np.zeros((tails.shape[0], 1))], axis=1)
    growth = np.expm1(np.minimum(np.multiply.outer(values, values) / noise_multiplier**2, 300.0))
    strength: Array = np.einsum("nl,nl->n", weights @ growth, weights)
    return strength


def _block_sizes(strength: Array, blocks: int) -> Array:
    """Powers of two that cut non-increasing strengths into at most about ``blocks`` runs of similar ones."""
    for spread in SPREADS:
        sizes = []
        start = 0
        while start < strength.size:
            size = 1
            while (
                start + 2 * size <= strength.size and strength[start] <= (1.0 + spread) * strength[start + 2 * size - 1]
            ):
                size *= 2
            sizes.append(size)
            start += size
        if len(sizes) <= blocks:
            break
    return np.array(sizes)
