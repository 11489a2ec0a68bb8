"""The rows of C as blocks, described by what was released before them, and few blocks that dominate many.

A *block* is a run of rows that is analysed as one vector: a single row for Poisson sampling, the rows from one
opportunity of a group to the next for cyclic sampling. Equal blocks are kept
once. Similar ones are bounded by one whose probabilities and norms are at least theirs, place by place, newest column
first; which blocks are put together affects tightness only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.strategies.matrix.base import BLOCK, StrategyMatrix
from hockeystick_papers.participations import tail_kernels
from hockeystick_papers.participations.tail_kernels import Indices
from hockeystick_papers.participations.tails import Blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

SMALLEST_ENTRY = 1e-140
"""Positive entries below this are raised to it, so that no product underflows; the profile grows with every entry."""
MAX_PRODUCTS = 40_000_000
LOSS = 1e-3
"""Relative loss of strength below which blocks need not be told apart."""

_KNOWN: "WeakKeyDictionary[StrategyMatrix, dict[tuple[int, int | None], Blocks]]" = WeakKeyDictionary()
"""Descriptions do not depend on the noise, the sampling or delta, so searches over those need them once."""


def described(matrix: StrategyMatrix, groups: int, group: int | None, tick: Callable[[], None]) -> Blocks:
    """The blocks of C for an example that may take part in the steps ``group``, ``group + groups``, ...

    Args:
        group: None stands for all steps, with every row a block of its own. A number cuts the rows where a column of
            the group begins.

    Cost: O(entries * w) for the width w of the prefix Gram matrix; memory O(steps w) and 48 bytes for each entry of a
        different block.
    """
    known = _KNOWN.setdefault(matrix, {})
    if (groups, group) not in known:
        if len(known) >= max(groups, 1):
            known.clear()
        known[groups, group] = _described(matrix, groups, group, tick)
    return known[groups, group]


def different(groups: list[Blocks]) -> list[Blocks]:
    """The descriptions without those that say the same as another one."""
    kept: dict[bytes, Blocks] = {}
    for blocks in groups:
        kept.setdefault(b"".join(np.asarray(part).tobytes() for part in (blocks.steps, *blocks.numbers)), blocks)
    return list(kept.values())


def _columns_and_width(matrix: StrategyMatrix, groups: int) -> tuple[int, int]:
    """The columns of one group, and how many of them a row meets."""
    columns = -(-matrix.steps // groups)
    return columns, min(-(-matrix.bands // groups), columns)


def too_large(matrix: StrategyMatrix, groups: int) -> str | None:
    """Why the columns of one group take too much memory, or None."""
    columns, width = _columns_and_width(matrix, groups)
    if 2 * columns * width <= MAX_PRODUCTS:
        return None
    return f"the inner products of {columns} columns, {width} together in a row, take too much memory"


def products(matrix: StrategyMatrix, groups: int) -> float:
    """About how many inner products are read and updated."""
    _, width = _columns_and_width(matrix, groups)
    return float(matrix.rows) * width * width


def _described(matrix: StrategyMatrix, groups: int, group: int | None, tick: Callable[[], None]) -> Blocks:
    entries = _compressed(matrix, np.arange(group or 0, matrix.steps, groups), tick)
    starts, columns, values = entries.indptr.astype(np.int64), entries.indices.astype(np.int64), entries.data
    cuts = np.arange(matrix.rows + 1) if group is None else _first_rows(entries)
    filled = np.flatnonzero(np.diff(starts) > 0)
    span = columns[starts[filled + 1] - 1] - columns[starts[filled]]
    gram = np.zeros((entries.shape[1], 2 * int(span.max(initial=0)) + 1))
    last_column = np.full(matrix.rows, -1, dtype=np.int64)
    last_column[filled] = columns[starts[filled + 1] - 1]
    places: dict[bytes, int] = {}
    different: list[tuple[Array, ...]] = []
    copies: list[int] = []
    informed, seen = 0, -1
    for first, last in pairwise(cuts):
        tick()
        which, *block = tail_kernels.advance(starts, columns, values, int(first), int(last), seen, gram)
        seen = max(seen, int(last_column[first:last].max(initial=-1)))
        if which.size == 0:
            continue
        informed += int(np.count_nonzero(block[1]))
        key = b"".join(part.tobytes() for part in block)
        place = places.setdefault(key, len(different))
        if place == len(different):
            different.append(tuple(block))
            copies.append(0)
        copies[place] += 1
    error = 4.0 * matrix.rounding + (4.0 * matrix.rows + 2.0 * matrix.steps + 64.0) * UNIT_ROUNDOFF
    parts = [np.concatenate(part) for part in zip(*different, strict=True)]
    sizes = np.array([block[0].size for block in different], dtype=np.int64)
    return Blocks(
        starts=np.concatenate([[0], np.cumsum(sizes)]),
        copies=np.array(copies, dtype=np.int64),
        norm=np.sqrt(parts[0]),
        own=parts[1],
        total=parts[2],
        square=parts[3],
        largest=parts[4],
        error=2.0 * error,
        informed=informed,
        steps=int(entries.shape[1]),
    )


def _compressed(matrix: StrategyMatrix, which: Indices, tick: Callable[[], None]) -> "csr_matrix":
    """The columns ``which`` of C by rows, sorted within a row."""
    from scipy.sparse import csc_matrix, csr_matrix, hstack

    parts = []
    for first in range(0, which.size, BLOCK):
        tick()
        part = matrix.columns(which[first : first + BLOCK])
        parts.append(csc_matrix(np.where(part > 0.0, np.maximum(part, SMALLEST_ENTRY), 0.0)))
    entries = csr_matrix(hstack(parts, format="csr"))
    entries.sort_indices()
    return entries


def _first_rows(entries: "csr_matrix") -> Indices:
    """The first rows of the blocks, one at the first row of each column, and the end of the last block."""
    by_column = entries.tocsc()
    by_column.sort_indices()
    begun = by_column.indices[by_column.indptr[:-1][np.diff(by_column.indptr) > 0]]
    return np.append(np.unique(begun), entries.shape[0]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Independent participations: step k with ``probabilities[k]`` moves the output by ``sensitivities[k]``."""

    probabilities: Array
    sensitivities: Array
    copies: int

    def strength(self, noise_multiplier: float) -> float:
        """About ``E_Q (X - 1)^2``; for ranking only."""
        return float(_strengths(self.probabilities, self.sensitivities, np.array([0]), noise_multiplier)[0])


def dominating_mixtures(
    blocks: Blocks, probabilities: Array, noise_multiplier: float, most: int, tick: Callable[[], None]
) -> list[Mixture]:
    """At most about ``most`` mixtures, each of which dominates every block that it stands for.

    Args:
        probabilities: shape (pairs,), the bound of each pair.
        most: how many different ones are wanted.

    Sensitivities are rounded upward by ``blocks.error``. O(pairs log(blocks)).
    """
    norm = blocks.norm * (1.0 + blocks.error)
    strengths = _strengths(probabilities, norm, blocks.starts[:-1], noise_multiplier)
    order = np.argsort(strengths, kind="stable")
    total = float(strengths @ blocks.copies)

    def bounded(low: int, high: int) -> tuple[float, int, int, Mixture]:
        tick()
        run = order[low:high]
        size = int(np.diff(blocks.starts)[run].max())
        chance, reach = np.zeros(size), np.zeros(size)
        for k in run:
            first, last = blocks.starts[k], blocks.starts[k + 1]
            np.maximum(chance[: last - first], probabilities[first:last], out=chance[: last - first])
            np.maximum(reach[: last - first], norm[first:last], out=reach[: last - first])
        mixture = Mixture(chance, reach, int(blocks.copies[run].sum()))
        excess = mixture.strength(noise_multiplier) * mixture.copies - float(strengths[run] @ blocks.copies[run])
        return -excess, low, high, mixture

    queue = [bounded(0, order.size)]
    while len(queue) < most and -sum(part[0] for part in queue) > LOSS * total:
        _, low, high, mixture = heappop(queue)
        if high - low == 1:  # what is left is rounding
            heappush(queue, (0.0, low, high, mixture))
            break
        middle = low + 2 ** ((high - low - 1).bit_length() - 1)  # powers of two are the cheapest powers of a law
        heappush(queue, bounded(low, middle))
        heappush(queue, bounded(middle, high))
    return [mixture for *_, mixture in sorted(queue, key=lambda part: part[1])]


def _strengths(probabilities: Array, norm: Array, starts: Indices, noise_multiplier: float) -> Array:
    """About ``E_Q (X - 1)^2`` of each mixture, from the mean and the variance of its sensitivity."""
    scaled = norm / noise_multiplier
    shift = probabilities * scaled
    alone = probabilities**2 * (np.expm1(np.minimum(scaled**2, 300.0)) - scaled**2)
    mean = np.add.reduceat(shift, starts)
    spread = np.add.reduceat((1.0 - probabilities) * shift * scaled, starts)
    return mean**2 + 0.5 * (mean**2 + spread) ** 2 + np.add.reduceat(alone, starts)
