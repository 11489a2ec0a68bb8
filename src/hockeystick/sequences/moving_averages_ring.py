"""Sums over moving averages that run on a ring: the trace of a product of steps, which no single start gives.

Once steps have forgotten where they began, whatever they make is nearly a multiple of one function, and the trace is
what a lap makes of it. What the trace has beside it is bounded by Hilbert-Schmidt norms, which are sums over windows.

Proof: docs/theory/moving-averages.md, section 8.
"""

from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import hypot, sqrt

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.sequences.moving_averages import InnovationWindows
from hockeystick.sequences.moving_averages_kernels import factor_of
from hockeystick.sequences.moving_averages_steps import Step, stationary

FEWEST_BLOCKS = 2
"""Fewest blocks whose Hilbert-Schmidt norms give a bound on a trace."""
LARGEST = 1.000001
"""No trace is larger: it is a mean over innovations of products that are at most 1, up to roundings."""
LEAST_SIZE = 1e-100
"""The least size of functions before they are scaled: squares of smaller numbers underflow."""
POWERS = 0.1
"""Share of the error that powers may have."""
SETTLED = 1.001
"""Alike blocks may leave so many times as much, squared, beside a settled function as where an adjoint was taken."""


@dataclass(frozen=True)
class Factor:
    """A contraction for the norm that is the root of ``windows.start @ |v|^2``, as often as groups are alike.

    Attributes:
        step: the contraction.
        adjoint: its adjoint.
        square: the same with the squared sizes of its kernel's entries.
        length: how often it comes, one after the other.
    """

    step: Step
    adjoint: Step
    square: Step
    length: int


def trace(
    windows: InnovationWindows, factors: list[Factor], rounding: float, tolerance: float
) -> tuple[complex, float]:
    """The trace of a product of contractions, and a bound on its error.

    Args:
        factors: the first one first; at least two blocks of d - 1 of them, each as often as it comes.
        rounding: bound on the norm of what rounding changes in all of them together, of a function of norm 1.
        tolerance: of the error; it may not be reached.

    Cost: one lap, and two to four times the steps of the blocks that are needed for the error.
    """
    depth, start = int(windows.places.shape[1]), windows.start
    order = [number for number, factor in enumerate(factors) for _ in range(factor.length)][::-1]
    slack, weights = _slack(windows), np.tile(start, 2)  # of real parts and of imaginary ones

    @cache
    def squared(*block: int) -> float:
        ones = np.vstack([np.ones(start.size), np.zeros(start.size)])
        for number in block:
            ones = factors[number].square(ones)
        return float(ones[0] @ start)

    def size_of(values: Array) -> float:
        return sqrt(float(weights @ np.square(values).ravel()))

    settled = np.vstack([np.ones(start.size), np.zeros(start.size)])
    settled /= size_of(settled)
    steps, rest = 0, 1.0
    share, least, last = 0.0, 0.0, list[int]()  # of the last block whose adjoint was taken
    for count in range(1, len(order) // depth + 1):
        block = order[steps : steps + depth]
        steps += depth
        before = values = settled
        for number in block:
            values = factors[number].step(values)
        size = size_of(values)
        if size > LEAST_SIZE:
            settled = values / size
        # With settled = a before + r the adjoint of the same block takes it to at least |a| times as much, less |r|.
        real, imaginary, moved = factor_of(before, settled, start)
        share = max(hypot(real, imaginary) * share - moved - slack, 0.0) if block == last else 0.0
        if squared(*block) - share**2 > SETTLED * least:
            seen = settled
            for number in block[::-1]:
                seen = factors[number].adjoint(seen)
            share, last = size_of(seen), block
            least = squared(*block) - share**2
        beside = sqrt(max(squared(*block) - share**2, 0.0) + slack)
        rest *= beside if count <= FEWEST_BLOCKS else min(beside, 1.0)
        if count >= FEWEST_BLOCKS and rest <= max(POWERS * tolerance, rounding):
            break
    values, error = settled, rest + 4.0 * rounding
    for number, same in groupby(order[steps:] + order[:steps]):
        each = POWERS * tolerance / (len(factors) + 1)
        values, more = stationary(factors[number].step, values, start, len(list(same)), each)
        error += more
    trace = complex(((settled[0] - 1j * settled[1]) * start) @ (values[0] + 1j * values[1]))
    return trace, LARGEST * error


def _slack(windows: InnovationWindows) -> float:
    """Bound on the error of what a block misses: of a difference of two squared norms that are at most about 1."""
    ends = np.zeros(windows.counts.size + 1, dtype=np.int64)
    np.add.at(ends, windows.begins, 1)
    np.subtract.at(ends, windows.begins + windows.counts, 1)
    terms = 2.0 * max(float(windows.counts.max()), float(np.cumsum(ends).max())) + 64.0
    return 8.0 * UNIT_ROUNDOFF * (4.0 * windows.start.size + 8.0 * float(windows.places.shape[1]) * terms)
