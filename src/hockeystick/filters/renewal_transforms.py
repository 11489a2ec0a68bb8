"""Fourier transforms of the law of a sum over rows under b-min-sep subsampling, for one example and for two.

Every row has a matrix over summaries at each frequency: entry (m, m') is the sum over the cells that lead from summary
m to m' of the cell's chance times ``e^(-i w added)``. Given the participations, the transform is the product of these
matrices. Which matrix a row has depends on which entries of a column shift it: numbered from 1, and 0 for none.

Proof: docs/theory/separated-windows.md, "From below".
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.filters.row_filters import Places
from hockeystick.laws.law import Array

Spectrum = NDArray[np.complex128]
Outcome = tuple[float, int, int]
"""The chance, the entry of a column that shifts the row, and the state at the next row."""


def without_examples(plain: Spectrum, steps: int, start: int) -> Spectrum:
    """The transform where no row is shifted, shape (f,).

    Args:
        plain: shape (f, summaries, summaries), the matrix of such a row.
        start: the first summary.
    """
    ahead = np.ones((plain.shape[0], plain.shape[1], 1), dtype=np.complex128)
    for _ in range(steps):
        ahead = plain @ ahead
    return ahead[:, start, 0]


def of_one(rows: Sequence[Spectrum], prob: float, min_sep: int, steps: int, first: Array, start: int) -> Spectrum:
    """The transform with one example, shape (f,); a participation and the waiting after it are one matrix.

    Args:
        rows: the matrices of a row that is not shifted, and of one that each entry of a column shifts; at most
            ``min_sep`` entries.
        first: probabilities that the first available step is 0, 1, 2, ...

    Cost: O(f summaries^2 (steps + summaries min_sep)).
    """
    plain, *shifted = rows
    count, summaries = plain.shape[:2]
    ones = np.ones((count, summaries, 1), dtype=np.complex128)
    ended = [ones]  # a participation, and the waiting after it, of which so many rows are in the run
    taken = shifted[0]
    for row in range(1, min(min_sep, steps) + 1):
        ended.append(taken @ ones)
        if row < min_sep:
            taken = taken @ (shifted[row] if row < len(shifted) else plain)
    ahead = [ones] * (steps + 1)  # from each step on, for an example that is available
    for step in range(steps - 1, -1, -1):
        left = steps - step
        after = taken @ ahead[step + min_sep] if left >= min_sep else ended[left]
        ahead[step] = (1.0 - prob) * (plain @ ahead[step + 1]) + prob * after
    before = np.zeros((count, 1, summaries), dtype=np.complex128)
    before[:, 0, start] = 1.0
    present = np.zeros(count, dtype=np.complex128)
    for step in range(steps):
        if step < first.size:
            present += first[step] * (before @ ahead[step])[:, 0, 0]
        before = before @ plain
    present += float(first[steps:].sum()) * before.sum(axis=(1, 2))
    return present


@dataclass(frozen=True)
class Moves:
    """What two examples do at a row that is shifted by two given entries of a column.

    Attributes:
        before: numbers of their states, each at most once.
        after: the numbers of the states at the next row.
        chances: of this move from that state.
    """

    before: Places
    after: Places
    chances: Array


def states(bands: int, min_sep: int) -> int:
    """How many states one example has: available, 1 to bands - 1 rows after a step, and 1 to min_sep - 1 to wait."""
    return bands + min_sep - 1


def waiting(rows: int, bands: int) -> int:
    """The state of an example that has to wait for so many rows, none of which it shifts."""
    return bands - 1 + rows if rows else 0


def outcomes(state: int, bands: int, min_sep: int, prob: float) -> list[Outcome]:
    """What one example may do at a row."""
    rest = waiting(min_sep - bands, bands)
    if state == 0:
        return [(1.0 - prob, 0, 0), (prob, 1, 1 if bands > 1 else rest)]
    if state < bands:
        return [(1.0, state + 1, state + 1 if state + 1 < bands else rest)]
    return [(1.0, 0, waiting(state - bands, bands))]


def pairs_of(count: int) -> Places:
    """The number of every pair of states, in either order; shape (count, count)."""
    numbers = np.zeros((count, count), dtype=np.int64)
    for number, (first, second) in enumerate(combinations_with_replacement(range(count), 2)):
        numbers[first, second] = numbers[second, first] = number
    return numbers


def moves_of_two(bands: int, min_sep: int, prob: float) -> dict[tuple[int, int], Moves]:
    """The moves of two examples by the two entries that shift the row, the smaller first."""
    count = states(bands, min_sep)
    numbers = pairs_of(count)
    chances: dict[tuple[int, int], dict[tuple[int, int], float]] = defaultdict(lambda: defaultdict(float))
    for before, its_before in combinations_with_replacement(range(count), 2):
        each = (outcomes(state, bands, min_sep, prob) for state in (before, its_before))
        for (chance, entry, then), (its_chance, its_entry, its_then) in product(*each):
            entries = (min(entry, its_entry), max(entry, its_entry))
            chances[entries][int(numbers[before, its_before]), int(numbers[then, its_then])] += chance * its_chance
    return {
        entries: Moves(
            np.array([before for before, _ in moves], dtype=np.int64),
            np.array([after for _, after in moves], dtype=np.int64),
            np.array(list(moves.values())),
        )
        for entries, moves in chances.items()
    }


def of_two(
    rows: Mapping[tuple[int, int], Spectrum],
    moves: Mapping[tuple[int, int], Moves],
    bands: int,
    min_sep: int,
    steps: int,
    first: Array,
    start: int,
    deadline: Deadline,
) -> Spectrum:
    """The transform with two examples that wait independently, shape (f,).

    Args:
        rows: the matrix of a row that two entries shift, for all keys of ``moves``.
        moves: of :func:`moves_of_two`.
        first: probabilities that the first available step of an example is 0, 1, 2, ..., ``min_sep - 1`` at most.

    Cost: O(f summaries^2 steps states^2).
    """
    count, summaries = rows[0, 0].shape[:2]
    numbers = pairs_of(states(bands, min_sep))
    turned = {entries: np.ascontiguousarray(np.swapaxes(matrix, 1, 2)) for entries, matrix in rows.items()}
    ahead = np.ones((count, int(numbers.max()) + 1, summaries), dtype=np.complex128)
    for _ in range(steps):
        deadline.tick()
        now = np.zeros_like(ahead)
        for entries, each in moves.items():
            # no state is twice among those before
            now[:, each.before] += each.chances[:, None] * (ahead[:, each.after] @ turned[entries])
        ahead = now
    begun = [waiting(rows_left, bands) for rows_left in range(first.size)]
    chances = np.outer(first, first)
    transform: Spectrum = np.einsum("ij,fij->f", chances, ahead[:, numbers[np.ix_(begun, begun)], start])
    return transform
