"""Lower bounds for b-min-sep subsampling: a sum over rows, each judged by a summary of the rows before it.

The tables are as in :mod:`.row_filters`, but the sum T counts modulo its size, which is a function of the output as
well. Its discrete Fourier transform is, at each frequency, a product of matrices, one for each step; a participation
and the waiting after it are one matrix. At all but some tens of frequencies stretches of plain rows leave nothing.

Masses have a proved absolute error, in the Euclidean norm, so this is for deltas above about 1e-8.

Proof: docs/theory/separated-windows.md, "From below". Cost: O(frequencies summaries^2 (steps + summaries distance)).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.filters.block_statistics import cell_masses
from hockeystick.filters.row_filters import Filter, Places
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

Spectrum = NDArray[np.complex128]
CELLS, SUMMARIES = 96, 32
ROUNDS = 60
"""The tables are improved so many times."""
REACH, ABOVE = 3.75, 5.0
"""Cells end so many standard deviations below 0, and above the largest shift of a row."""
DEVIATIONS = 12.5
"""So many standard deviations of the sum, and twice its variance for the drift, are told apart."""
FINE, COARSE = 5.0, 1.5
"""Units of the sum for the standard deviation of what one row adds: no more are of use, and fewer are not."""
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
STRETCH = 8
"""Of plain rows: at most so many bound the transform together."""
NEGLIGIBLE = 1e-15
"""What is smaller is left out of the transform."""
AT_ONCE, MOST_HELD = 64, 1 << 22
"""Frequencies whose products are formed together, and numbers that they may hold."""


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


def filter_for(shifts: Array, prob: float, min_sep: int, steps: int) -> Filter | None:
    """Tables that tell much; any tables are valid. None where sums would have too many values.

    Args:
        shifts: shape (p,), of the rows of a participation, in standard deviations, p at most ``min_sep``.
        prob: q, the chance of an available step.
    """
    edges = np.linspace(-REACH, float(shifts.max()) + ABOVE, CELLS - 1)
    plain = cell_masses(edges, 0.0)[0]
    moved = np.array([cell_masses(edges, float(shift))[0] for shift in shifts])
    # Histories: available, one to p - 1 steps after a participation, and waiting without a trace in the next rows.
    last, waits = shifts.size, min_sep - shifts.size
    leave = 1.0 / waits if waits else 0.0
    rest = last if waits else 0
    chances = np.zeros((last + 1, CELLS, last + 1))
    chances[0, :, 0] = (1.0 - prob) * plain
    chances[0, :, 1 if last > 1 else rest] += prob * moved[0]
    for lag in range(1, last):
        chances[lag, :, lag + 1 if lag + 1 < last else rest] = moved[lag]
    chances[last, :, last] += (1.0 - leave) * plain
    chances[last, :, 0] += leave * plain
    expected = np.concatenate([[prob * shifts[0]], shifts[1:], [0.0]])
    joint = np.zeros((SUMMARIES, last + 1))
    joint[0, 0] = 1.0
    prior, low, high = joint[0], np.inf, -np.inf
    following = np.zeros((SUMMARIES, CELLS), dtype=np.int64)
    ratio = np.ones((SUMMARIES, CELLS))
    for _ in range(ROUNDS):
        total = joint.sum(axis=1)
        known = total > 1e-200
        given = np.where(known[:, None], joint / np.maximum(total, 1e-200)[:, None], prior)
        after = np.einsum("sh,hck->sck", given, chances)
        chance = np.maximum(after.sum(axis=2), 1e-300)
        next_shift = np.log(after @ expected / chance + 1e-12)
        reached = next_shift[total > 1e-14]
        low, high = min(low, float(reached.min())), max(high, float(reached.max()))
        following = np.clip((next_shift - low) / (high - low + 1e-9) * SUMMARIES, 0, SUMMARIES - 1).astype(np.int64)
        ratio = chance / plain
        prior = joint.sum(axis=0) / joint.sum()
        joint = np.zeros((SUMMARIES, last + 1))
        np.add.at(joint, following, after * total[:, None, None])
    summary = np.full(SUMMARIES, 1.0 / SUMMARIES)
    for _ in range(ROUNDS):
        after_plain = np.zeros(SUMMARIES)
        np.add.at(after_plain, following, summary[:, None] * plain)
        summary = after_plain
    second = float((summary[:, None] * plain * (np.minimum(ratio, 1e4) - 1.0) ** 2).sum())
    deviation = float(np.sqrt(max(steps * second, 1e-30)))
    span = DEVIATIONS * deviation + 2.0 * deviation**2
    units = span / np.sqrt(max(second, 1e-30))
    size = next((one for one in SIZES if one >= FINE * units), SIZES[-1])
    if size < COARSE * units:
        return None
    added = np.round(np.log(ratio) * (size / span)).astype(np.int64)
    return Filter(edges, following, added, int(np.argmax(summary)), 0, size)


def frequencies_for(table: Filter, bands: int, min_sep: int, steps: int, deadline: Deadline) -> Frequencies:
    """Where stretches of plain rows do not make the transform negligible, whatever the participations are."""
    every = np.arange(table.size // 2 + 1)
    length = min(min_sep - bands, STRETCH)
    count = (steps - bands * (-(-steps // min_sep)) - 2 * length) // (2 * length) if length else 0
    if count <= 0:
        return Frequencies(every, 0.0)
    plain = cell_masses(table.edges, 0.0)[0]
    found = []
    for begin in range(0, every.size, AT_ONCE):
        deadline.tick()
        power = np.linalg.matrix_power(_step(table, plain, every[begin : begin + AT_ONCE]), length)
        found.append(np.abs(power).sum(axis=2).max(axis=1))
    largest = np.minimum(np.concatenate(found) + 1e-12, 1.0) ** count
    kept = largest > NEGLIGIBLE
    return Frequencies(every[kept], float(largest[~kept].max(initial=0.0)))


def work_of(frequencies: float, min_sep: int, steps: int) -> float:
    """Complex multiplications of the laws of T."""
    return frequencies * SUMMARIES**2 * (4.0 * steps + min(min_sep, steps) * (SUMMARIES + 2.0))


def sum_laws(
    table: Filter,
    shifts: Array,
    prob: float,
    min_sep: int,
    steps: int,
    first: Array,
    rounding: float,
    frequencies: Frequencies,
    deadline: Deadline,
) -> Sums:
    """The laws of T.

    Args:
        shifts: as for :func:`filter_for`.
        first: probabilities that the first available step is 0, 1, 2, ...
        rounding: proved relative error of the shifts.
    """
    laws = [cell_masses(table.edges, shift) for shift in (0.0, *shifts.tolist())]
    spectra = np.zeros((2, table.size // 2 + 1), dtype=np.complex128)
    at_once = max(min(AT_ONCE, MOST_HELD // ((steps + 1) * SUMMARIES)), 1)
    for begin in range(0, frequencies.numbers.size, at_once):
        deadline.tick()
        some = frequencies.numbers[begin : begin + at_once]
        plain, *shifted = (_step(table, masses, some) for masses, _ in laws)
        spectra[:, some] = _spectra(plain, shifted, prob, min_sep, steps, first, table.first)
    without, present = np.fft.irfft(spectra, table.size, axis=1)
    farthest = float(shifts.max())
    span = float(np.abs(table.edges).max()) + farthest + 1.0
    # The logarithm of a cell's mass changes by at most the distance of the cell from the centre when the centre moves.
    moved = 4.0 * (rounding + 8.0 * UNIT_ROUNDOFF) * farthest * span
    relative = 2.0 * steps * (max(error for _, error in laws) + moved + 4.0 * UNIT_ROUNDOFF)
    summaries, cells = table.following.shape
    rounded = (4.0 * steps * (cells + summaries + 64.0) + 64.0 * np.log2(table.size)) * UNIT_ROUNDOFF
    return Sums(without, present, relative, float(rounded) + 2.0 * frequencies.left_out)


def _step(table: Filter, masses: Array, frequencies: Places) -> Spectrum:
    """What one row of this law does to the summary, and to the sum at each frequency: shape (f, summary, summary)."""
    summaries, cells = table.following.shape
    angles = np.exp(-2j * np.pi / table.size * np.arange(table.size))
    found = np.zeros((frequencies.size, summaries, summaries), dtype=np.complex128)
    for s in range(summaries):
        for cell in range(cells):
            turned = angles[frequencies * table.added[s, cell] % table.size]
            found[:, s, table.following[s, cell]] += masses[cell] * turned
    return found


def _spectra(
    plain: Spectrum, shifted: list[Spectrum], prob: float, min_sep: int, steps: int, first: Array, start: int
) -> Spectrum:
    """The transforms of the laws without and with the example, shape (2, f)."""
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
    never = float(first[steps:].sum())
    without = before.sum(axis=(1, 2))
    return np.array([without, present + never * without])
