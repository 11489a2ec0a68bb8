"""Sums over moving averages that run on a ring: the trace of a product of steps, which no single start gives.

Once the steps have forgotten where they began, the trace is a quotient of two sums that have a start. What the second
exterior power of a few steps may add is bounded by Hilbert-Schmidt norms, which are sums over windows as well.

Proof: docs/theory/moving-averages.md, section 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.sequences.moving_averages import Windows

Step = Callable[[Array], Array]
SETTLING = 3
"""Blocks after which values have nearly the shape that they keep."""
FEWEST_BLOCKS, MOST_BLOCKS, SIZED_BLOCKS = 2, 48, 16
LARGEST = 1.000001
"""No trace is larger: it is a mean over innovations of products that are at most 1, up to roundings."""
LEAST_DEFINITE = 1e-6
"""Least eigenvalue of the Gram matrix of the functions on which a block is tried."""
WORSE = 10.0
"""More blocks are of no use once the error is so many times the least."""
LEAST_SIZE = 1e-100
"""Of these functions before they are scaled: squares of smaller numbers underflow."""


@dataclass(frozen=True)
class Run:
    """The same contraction many times, on functions of the state with the norm ``windows.start @ |v|^2``.

    Attributes:
        step: the contraction A.
        length: how many times.
        squared: the mean of the squared size of the kernel of a block of d - 1 steps.
    """

    windows: Windows
    step: Step
    length: int
    squared: float

    def block(self, values: Array) -> Array:
        """d - 1 steps."""
        for _ in range(self.depth):
            values = self.step(values)
        return values

    @property
    def depth(self) -> int:
        """d - 1, the steps of a block."""
        return int(self.windows.places.shape[1])

    @property
    def blocks(self) -> int:
        """How many whole blocks there are."""
        return self.length // self.depth

    @property
    def rounding(self) -> float:
        """Relative, of inner products of what a block makes."""
        terms = 2.0 * float(self.windows.counts.max()) + 64.0
        return UNIT_ROUNDOFF * (4.0 * self.windows.start.size + 8.0 * self.depth * terms)


@dataclass(frozen=True)
class Tried:
    """A block on a few functions.

    Attributes:
        after: what a block makes of the functions.
        squares: lower bounds on the largest squared singular values of a block, in falling order.
        inverse: of the Gram matrix of the functions.
        slack: bound on the error of these numbers.
    """

    after: list[Array]
    squares: Array
    inverse: NDArray[np.complex128]
    slack: float


def trace(
    run: Run,
    other: Callable[[Array], tuple[Array, float]],
    power: Callable[[Array, int], tuple[Array, float]],
    rounding: float,
    tolerance: float,
) -> tuple[complex, float]:
    """The trace of ``R A^n`` and a bound on its error.

    Args:
        run: A and n.
        other: R, a contraction, with a bound on the weighted mean of the size of the error of what it makes.
        power: so many steps A of some values, with such a bound.
        rounding: such a bound for the rounding of all steps of R A^n together.
        tolerance: of the error; it may not be reached.
    """
    values = np.vstack([np.ones(run.windows.start.size), np.zeros(run.windows.start.size)])
    settled = values
    for _ in range(min(SETTLING, run.blocks)):
        settled = run.block(settled)
    tried = _tried(run, settled)
    if tried is None:  # the trace norm of two blocks and contractions is at most the squared norm of one
        return 0.0j, LARGEST * min(run.squared, 1.0)
    both, mixed = _exterior(run.squared + tried.slack, tried.squares)
    best, least, kept = 0, inf, values
    for count in range(1, min(MOST_BLOCKS, run.blocks) + 1):
        values = run.block(values)
        size = abs(complex(*(values @ run.windows.start))) - rounding
        if count < FEWEST_BLOCKS or not size > 0.0:
            continue
        error = (sqrt(2.0) * both**2 * mixed ** (count - 2) + 3.0 * rounding) / size
        if error >= least:
            break
        best, least, kept = count, error, values
        if error <= 0.5 * tolerance:
            break
    below = complex(*(kept @ run.windows.start))
    # about the size of the trace; where it is larger than the error nothing is gained by bounding it
    if least > tolerance and (not best or abs(below) ** (run.blocks / best) < least):
        size = _size(run, tried)
        if size <= least:
            return 0.0j, size
    steps = best * run.depth
    values, error = power(kept, run.length - steps)
    for more in (other, lambda later: power(later, steps)):
        values, added = more(values)
        error += added
    return _quotient(complex(*(values @ run.windows.start)), below, error, least, rounding)


def _tried(run: Run, settled: Array) -> Tried | None:
    """A block on what values settle to and on its products with each innovation, each of norm 1; None if these fail."""
    windows = run.windows
    before = [settled, *(settled * (windows.spacing * place) for place in windows.places.T)]
    sizes = [sqrt(float(windows.start @ (one**2).sum(axis=0))) for one in before]
    if not min(sizes) > LEAST_SIZE:
        return None
    before = [one / size for one, size in zip(before, sizes, strict=True)]
    gram = _inner(windows, before)
    least = float(np.linalg.eigvalsh(gram)[0])
    if not least > LEAST_DEFINITE:
        return None
    after = [run.block(one) for one in before]
    slack = 8.0 * len(before) * run.rounding / least
    squares = np.asarray(eigh(_inner(windows, after), gram, eigvals_only=True)[::-1], dtype=np.float64)
    inverse = np.asarray(np.linalg.inv(gram), dtype=np.complex128)
    return Tried(after, np.maximum(squares - slack, 0.0), inverse, slack)


def _inner(windows: Windows, rows: list[Array]) -> Array:
    """Inner products, complex."""
    values = np.stack([one[0] + 1j * one[1] for one in rows])
    found: Array = (values.conj() * windows.start) @ values.T
    return found


def _exterior(total: float, squares: Array) -> tuple[float, float]:
    """The Hilbert-Schmidt norm of the second exterior power of a block, and its norm; upper bounds.

    Args:
        total: the squared Hilbert-Schmidt norm of the block, or more.
        squares: lower bounds on its largest squared singular values, in falling order.
    """
    hilbert = sqrt(0.5 * max(total**2 - float(squares @ squares), 0.0))
    pair = total - float(squares[2:].sum())
    first = max(float(squares[0]), 0.5 * pair)
    return hilbert, min(sqrt(max(first * (pair - first), 0.0)), hilbert)


def trace_by_blocks(
    windows: Windows, steps: list[Step], squared: Callable[[int], float], rounding: float, tolerance: float
) -> tuple[complex, float]:
    """The trace of a product of contractions that may all differ, and a bound on its error.

    Args:
        steps: the first factor first; at least two blocks of d - 1 of them.
        squared: the squared Hilbert-Schmidt norm of the block of which the last factor is the one with this number.
        rounding, tolerance: as for :func:`trace`.
    """
    depth, backwards = int(windows.places.shape[1]), steps[::-1]
    slack = 8.0 * Run(windows, steps[0], len(steps), 0.0).rounding

    def size_of(values: Array) -> float:
        return float(windows.start @ (values**2).sum(axis=0))

    values = np.vstack([np.ones(windows.start.size), np.zeros(windows.start.size)])
    best, least, kept, exterior, size = 0, inf, values, sqrt(2.0), 1.0
    for count in range(1, len(steps) // depth + 1):
        before = size_of(values)
        for step in backwards[(count - 1) * depth : count * depth]:
            values = step(values)
        total = squared(len(steps) - (count - 1) * depth - 1) + slack
        size *= sqrt(min(total, 1.0))
        first = size_of(values) / before - slack if before > LEAST_SIZE**2 else 0.0
        both, mixed = _exterior(total, np.array([min(max(first, 0.0), total)]))
        exterior *= both if count <= FEWEST_BLOCKS else mixed
        below = abs(complex(*(values @ windows.start))) - rounding
        if count < FEWEST_BLOCKS or not below > 0.0:
            continue
        error = (exterior + 3.0 * rounding) / below
        if error < least:
            best, least, kept = count * depth, error, values
        if exterior <= max(0.5 * tolerance * below, rounding) or error > WORSE * least:
            break
    if not least < size:  # the trace norm is at most the product of the Hilbert-Schmidt norms of the blocks
        return 0.0j, LARGEST * size
    values = kept
    for step in (*backwards[best:], *backwards[:best]):
        values = step(values)
    return _quotient(complex(*(values @ windows.start)), complex(*(kept @ windows.start)), 0.0, least, rounding)


def _quotient(above: complex, below: complex, error: float, least: float, rounding: float) -> tuple[complex, float]:
    """The trace and a bound on its error: of the sum above but for rounding, and of what the trace has beside it."""
    found = above / below
    error += 2.0 * rounding + abs(found) * rounding
    return found, LARGEST * (least + error / (abs(below) - rounding))


def _size(run: Run, tried: Tried) -> float:
    """A bound on the size of the trace, by Hilbert-Schmidt norms of powers of a block."""
    rest = sqrt(max(run.squared + tried.slack - float(tried.squares.sum()), 0.0))
    bound, rows, found = sqrt(run.squared + tried.slack), tried.after, LARGEST
    for count in range(2, min(SIZED_BLOCKS, run.blocks // 2) + 1):
        rows = [run.block(one) for one in rows]
        seen = float(np.trace(tried.inverse @ _inner(run.windows, rows)).real)
        bound = sqrt(max(seen, 0.0) + count**2 * tried.slack**2) + count * tried.slack + rest * bound
        found = min(found, bound ** (run.blocks // count))
    return LARGEST * found
