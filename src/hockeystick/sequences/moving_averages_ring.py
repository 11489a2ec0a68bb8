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
    both, mixed = _exterior(run, tried)
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
    above = complex(*(values @ run.windows.start))
    found = above / below
    error += 2.0 * rounding + abs(found) * rounding
    return found, LARGEST * (least + error / (abs(below) - rounding))


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


def _exterior(run: Run, tried: Tried) -> tuple[float, float]:
    """The Hilbert-Schmidt norm of the second exterior power of a block, and its norm; upper bounds."""
    total = run.squared + tried.slack
    hilbert = sqrt(0.5 * max(total**2 - float(tried.squares @ tried.squares), 0.0))
    pair = total - float(tried.squares[2:].sum())
    first = max(float(tried.squares[0]), 0.5 * pair)
    return hilbert, min(sqrt(max(first * (pair - first), 0.0)), hilbert)


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
