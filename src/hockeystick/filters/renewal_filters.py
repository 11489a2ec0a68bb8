"""Lower bounds for b-min-sep subsampling: a sum over rows, each judged by a summary of the rows before it.

The tables are as in :mod:`.row_filters`, but the sum T counts modulo its size, which is a function of the output as
well. Its discrete Fourier transform is, at each frequency, a product of matrices, one for each step
(:mod:`.renewal_transforms`). At all but some tens of frequencies stretches of plain rows leave nothing. With two
examples of one user, each of which waits by itself, a row is shifted by the entries of two columns.

Masses have a proved absolute error, in the Euclidean norm, so this is for deltas above about 1e-8.

Proof: docs/theory/separated-windows.md, "From below". Cost: :func:`work_of`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.filters import renewal_transforms
from hockeystick.filters.cell_masses import cell_masses
from hockeystick.filters.renewal_transforms import Spectrum
from hockeystick.filters.row_filters import Filter, Places
from hockeystick.filters.summary_tables import summary_tables
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

CELLS, SUMMARIES = {1: 96, 2: 64}, {1: 32, 2: 16}
"""Cells of a row and summaries, by the number of examples."""
ROUNDS = 60
"""The tables are improved so many times."""
REACH, ABOVE = 3.75, 5.0
"""Cells end so many standard deviations below 0, and above the largest shift of a row."""
DEVIATIONS = 12.5
"""So many standard deviations of the sum, and twice its variance for the drift, are told apart."""
FINE, COARSE = 5.0, 1.5
"""Units of the sum for the standard deviation of what one row adds: no more are of use, and fewer are not."""
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
STRETCHES = (1, 2, 4, 8)
"""Numbers of plain rows that bound the transform together."""
USUAL_FREQUENCIES = 80.0
"""At which the transform is not negligible, where examples wait for longer than they are seen."""
NEGLIGIBLE = 1e-15
"""What is smaller is left out of the transform."""
AT_ONCE, MOST_HELD = {1: 64, 2: 8}, 1 << 22
"""Frequencies whose products are formed together, by the number of examples, and numbers that they may hold."""
LOOKED_AT_ONCE = 1024
"""Frequencies that are looked at together."""


@dataclass(frozen=True)
class Sums:
    """The laws of T modulo its size.

    Attributes:
        without, present: shape (size,), masses without and with the example.
        relative: proved relative error that the masses of cells cause in those of T.
        distance: proved Euclidean norm of all further errors, of either law.
    """

    without: Array
    present: Array
    relative: float
    distance: float

    def delta(self, larger: Array, smaller: Array, epsilon: float) -> float:
        """At most ``larger(A) - e^epsilon smaller(A)`` for a set A of sums; the arguments are the two laws."""
        factor = float(np.exp(min(epsilon, 700.0))) * (1.0 + 8.0 * UNIT_ROUNDOFF)
        chosen = larger - factor * smaller > (1.0 + factor) * self.distance / np.sqrt(larger.size)
        slack = float(np.sqrt(np.count_nonzero(chosen))) * self.distance + 4.0 * larger.size * UNIT_ROUNDOFF
        above = (1.0 - self.relative) * (float(larger[chosen].sum()) - slack)
        return max(above - factor * (1.0 + self.relative) * (float(smaller[chosen].sum()) + slack), 0.0)


@dataclass(frozen=True)
class Frequencies:
    """Those at which the transform of the law of T is computed; elsewhere it is at most ``left_out``."""

    numbers: Places
    left_out: float


def filter_for(shifts: Array, prob: float, min_sep: int, steps: int, examples: int = 1) -> Filter | None:
    """Tables that tell much; any tables are valid. None where sums would have too many values.

    Args:
        shifts: shape (p,), of the rows of a participation, in standard deviations, p at most ``min_sep``.
        prob: q, the chance of an available step.
        examples: how many there are of a user; 1 or 2.
    """
    cells, summaries = CELLS[examples], SUMMARIES[examples]
    edges = np.linspace(-REACH, float(shifts.max()) + ABOVE, cells - 1)
    plain = cell_masses(edges, 0.0)[0]
    chances, expected = _histories(edges, shifts, prob, min_sep, examples)
    tables = summary_tables(chances, expected, plain, summaries, ROUNDS)
    second, deviation = tables.second, tables.deviation(steps)
    span = DEVIATIONS * deviation + 2.0 * deviation**2
    units = span / np.sqrt(max(second, 1e-30))
    size = next((size for size in SIZES if size >= FINE * units), SIZES[-1])
    if size < COARSE * units:
        return None
    added = np.round(np.log(tables.ratio) * (size / span)).astype(np.int64)
    return Filter(edges, tables.following, added, tables.usual, 0, size)


def _histories(edges: Array, shifts: Array, prob: float, min_sep: int, examples: int) -> tuple[Array, Array]:
    """Of examples that are available, one to p - 1 steps after a participation, or waiting without a trace.

    Whoever waits may be available at the next step with the same chance each time.

    Returns:
        Chances of each cell and history at the next row by history, shape (H, cells, H), and the expected shift of a
        row by history, shape (H,).
    """
    last, waits = shifts.size, min_sep - shifts.size
    leave = 1.0 / waits if waits else 0.0
    rest = last if waits else 0
    taken = 1 if last > 1 else rest
    moves = [[(1.0 - prob, 0.0, 0), (prob, float(shifts[0]), taken)]]
    moves += [[(1.0, float(shifts[lag]), lag + 1 if lag + 1 < last else rest)] for lag in range(1, last)]
    moves += [[(1.0 - leave, 0.0, last), (leave, 0.0, 0)]]
    number = {history: k for k, history in enumerate(product(range(last + 1), repeat=examples))}
    chances = np.zeros((len(number), edges.size + 1, len(number)))
    expected = np.zeros(len(number))
    for history, k in number.items():
        for each in product(*(moves[state] for state in history)):
            chance = float(np.prod([move[0] for move in each]))
            shift = sum(move[1] for move in each)
            chances[k, :, number[tuple(move[2] for move in each)]] += chance * cell_masses(edges, shift)[0]
            expected[k] += chance * shift
    return chances, expected


def frequencies_for(
    table: Filter, bands: int, min_sep: int, steps: int, deadline: Deadline, examples: int = 1, most: float = inf
) -> Frequencies:
    """Where stretches of plain rows do not make the transform negligible, whatever the participations are.

    As soon as there are more than ``most`` of them, which is no use, the search ends.
    """
    every = np.arange(table.size // 2 + 1)
    pieces = {length: plain_pieces(length, bands, min_sep, steps, examples) for length in STRETCHES}
    if max(pieces.values()) <= 0:
        return Frequencies(every, 0.0)
    plain = cell_masses(table.edges, 0.0)[0][None]
    parts, numbers = [], 0
    for begin in range(0, every.size, LOOKED_AT_ONCE):
        deadline.tick()
        (row,) = _rows(table, plain, every[begin : begin + LOOKED_AT_ONCE])
        smallest = np.ones(row.shape[0])
        for length, count in pieces.items():
            if count > 0:
                sums = np.abs(np.linalg.matrix_power(row, length)).sum(axis=2).max(axis=1)
                smallest = np.minimum(smallest, np.minimum(sums + 1e-12, 1.0) ** count)
        parts.append(smallest)
        numbers += int(np.count_nonzero(smallest > NEGLIGIBLE))
        if numbers > most:
            break
    largest = np.concatenate(parts)
    every, kept = every[: largest.size], largest > NEGLIGIBLE
    return Frequencies(every[kept], float(largest[~kept].max(initial=0.0)))


def plain_pieces(length: int, bands: int, min_sep: int, steps: int, examples: int) -> int:
    """How many disjoint pieces of so many plain rows there are at least, whatever the participations are."""
    visits = examples * -(-steps // min_sep)
    plain = steps - bands * visits
    pieces = (plain - (length - 1) * (visits + 1)) // length
    if examples == 1 and length <= min_sep - bands:
        pieces = max(pieces, (plain - 2 * length) // (2 * length))
    return pieces


def likely_frequencies(bands: int, min_sep: int, steps: int, examples: int) -> float:
    """About how many frequencies matter: usually some tens; with two examples that leave no plain rows all of them."""
    longest = max(plain_pieces(length, bands, min_sep, steps, examples) for length in STRETCHES)
    return USUAL_FREQUENCIES if examples == 1 or longest > 0 else SIZES[-1] // 2 + 1.0


def work_of(frequencies: float, bands: int, min_sep: int, steps: int, examples: int = 1) -> float:
    """Complex multiplications of the laws of T."""
    summaries = SUMMARIES[examples]
    if examples == 1:
        return frequencies * summaries**2 * (4.0 * steps + min(min_sep, steps) * (summaries + 2.0))
    states = renewal_transforms.states(bands, min_sep)
    return frequencies * summaries**2 * steps * (states + 1.0) * (states + 2.0) / 2.0


def sum_laws(
    table: Filter,
    shifts: Array,
    prob: float,
    min_sep: int,
    steps: int,
    *,
    first: Array,
    rounding: float,
    frequencies: Frequencies,
    deadline: Deadline,
    examples: int = 1,
) -> Sums:
    """The laws of T.

    Args:
        shifts: as for :func:`filter_for`.
        first: probabilities that the first available step of an example is 0, 1, 2, ...; with two examples at most
            ``min_sep`` of them.
        rounding: proved relative error of the shifts.
    """
    present, laws = _transforms(table, shifts, prob, min_sep, steps, first, deadline, examples)
    masses = np.array([law for law, _ in laws])
    spectra = np.zeros((2, table.size // 2 + 1), dtype=np.complex128)
    summaries, cells = table.following.shape
    at_once = max(min(AT_ONCE[examples], MOST_HELD // ((steps + 1) * summaries)), 1)
    for begin in range(0, frequencies.numbers.size, at_once):
        deadline.tick()
        some = frequencies.numbers[begin : begin + at_once]
        rows = _rows(table, masses, some)
        spectra[0, some] = renewal_transforms.without_examples(rows[0], steps, table.first)
        spectra[1, some] = present(list(rows))
    without, with_it = np.fft.irfft(spectra, table.size, axis=1)
    farthest = examples * float(shifts.max())
    span = float(np.abs(table.edges).max()) + farthest + 1.0
    # The logarithm of a cell's mass changes by at most the distance of the cell from the centre when the centre moves.
    moved = 4.0 * (rounding + 8.0 * UNIT_ROUNDOFF) * farthest * span
    relative = 2.0 * steps * (max(error for _, error in laws) + moved + 4.0 * examples * UNIT_ROUNDOFF)
    rounded = 4.0 * steps * (cells + summaries + 64.0) + 64.0 * np.log2(table.size) + float(first.size) ** examples
    return Sums(without, with_it, relative, float(rounded) * UNIT_ROUNDOFF + 2.0 * frequencies.left_out)


def _transforms(
    table: Filter, shifts: Array, prob: float, min_sep: int, steps: int, first: Array, deadline: Deadline, examples: int
) -> tuple[Callable[[list[Spectrum]], Spectrum], list[tuple[Array, float]]]:
    """A function from the rows' matrices to the transform with the examples, and the rows' masses of cells with errors.

    The row that no example shifts comes first.
    """
    entries = [0.0, *shifts.tolist()]
    if examples == 1:
        laws = [cell_masses(table.edges, shift) for shift in entries]
        return lambda rows: renewal_transforms.of_one(rows, prob, min_sep, steps, first, table.first), laws
    moves = renewal_transforms.moves_of_two(shifts.size, min_sep, prob)
    names = sorted(moves)
    laws = [cell_masses(table.edges, entries[smaller] + entries[larger]) for smaller, larger in names]

    def present(rows: list[Spectrum]) -> Spectrum:
        by_name = dict(zip(names, rows, strict=True))
        return renewal_transforms.of_two(by_name, moves, shifts.size, min_sep, steps, first, table.first, deadline)

    return present, laws


def _rows(table: Filter, masses: Array, frequencies: Places) -> Spectrum:
    """What rows of these laws do to the summary, and to the sum at each frequency: shape (laws, f, summary, summary).

    Args:
        masses: shape (laws, cells).

    Cost: O(summaries cells laws f).
    """
    summaries, cells = table.following.shape
    angles = np.exp(-2j * np.pi / table.size * np.arange(table.size))
    matrices = np.zeros((len(masses), frequencies.size, summaries, summaries), dtype=np.complex128)
    for s in range(summaries):
        for cell in range(cells):
            turned = angles[frequencies * table.added[s, cell] % table.size]
            matrices[:, :, s, table.following[s, cell]] += masses[:, cell, None] * turned
    return matrices
