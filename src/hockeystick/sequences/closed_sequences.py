"""Sums over independent sequences that run on a ring of equal bins: traces of powers of one step.

Two steps around give the trace up to what the second exterior power of a step may add, which is bounded by the spectrum
of the mean over the next states, and by the largest singular values of a step.

Proof: docs/theory/hidden-chains.md, section 7. Cost: that of a line, and one mean of a few functions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.sequences.independent_sequences import IndependentSequences, ProductStates, Vectors, through
from hockeystick.sequences.repeated_steps import SMALL, repeated_often

FUNCTIONS = 12
"""Eigenfunctions of the mean over the next states on which a step is looked at."""
ENOUGH = 1e-8
"""An error for which nothing more is tried."""
PARTS = 3
"""How many numbers of steps are tried, each a third of the bins less than the one before."""
SLACK = 1e-9
"""More than rounding changes in a squared singular value, and in the sum of powers of eigenvalues, relative to it."""


@dataclass(frozen=True)
class ClosedStates(ProductStates):
    """States of independent sequences on a ring.

    Attributes:
        occupied: shape (S,), the chance of each state at any one bin.
        share: of densities on the ring in the product of all steps.
        bins: b, how many there are.
    """

    occupied: Array
    share: float
    bins: int

    def moments(self, mass: float, mean: float, scale: Array) -> tuple[float, float]:
        """Mass and mean of the sum of ``scale`` times what has this mass and mean in each bin."""
        return float(self.occupied.sum()) * mass**self.bins, (
            self.bins * mass ** (self.bins - 1) * mean * float(self.occupied @ scale)
        )

    def transforms(
        self, steps: Array, kinds: NDArray[np.int64], tick: Callable[[], None], small: float = SMALL
    ) -> tuple[Vectors, Array]:
        """The transform of the sum over all bins, and a bound on the error of each."""
        if int(kinds.max()) > 0:
            raise ValueError("The bins of a ring of independent sequences must all be alike.")
        half = steps.shape[2] // 2
        factor = np.ascontiguousarray((steps[0, :, :half] + 1j * steps[0, :, half:]).T)
        step, norm, rounding = self.step(factor, tick)
        counts = [self.bins - 2 * (self.bins * part // 6) for part in range(PARTS)]
        times = [one for count in counts for one in (count, (self.bins + count) // 2 - 1)]
        after = repeated_often(step, factor, times, norm, rounding, small=small)
        # the transform is no larger than where nothing is damped
        best = np.zeros(len(factor), dtype=np.complex128), np.full(len(factor), self.occupied.sum() / self.share)
        first = second = np.ones(len(factor))
        for n, count in enumerate(counts):
            if n == 1:
                if float(best[1].max()) <= ENOUGH:
                    break
                tick()
                first, second = self._spectrum.singular_values(factor)
                best = _better(best, (np.zeros_like(best[0]), self._spectrum.trace(self.bins, first)))
            left_out = self._spectrum.exterior(count, first * second)
            found = self._mean(after[2 * n + 1], norm, rounding)
            best = _better(best, self._quotient(factor, after[2 * n], found, left_out))
        return best[0] * self.share, best[1] * self.share

    def _quotient(
        self, factor: Vectors, once: tuple[Vectors, Array], half: tuple[Vectors, Array], left_out: Array
    ) -> tuple[Vectors, Array]:
        """The quotient of Lemma 6 and its error.

        Args:
            once: ``J Psi 1``, with a bound on the error of its entries.
            half: ``K v``, likewise.
            left_out: the trace norm of the second exterior power.
        """
        chance = float(self.start.sum()) * (1.0 + SLACK)
        unit = 4.0 * (self.seen.size + 16.0) * UNIT_ROUNDOFF
        below, seen = once[0] @ self.start, half[0]
        below_error = chance * once[1] + unit * (np.abs(once[0]) @ self.start)
        above = (factor * seen**2) @ self.start
        above_error = 2.0 * half[1] * (np.abs(seen) @ self.start) + chance * half[1] ** 2
        above_error += unit * (np.abs(seen) ** 2 @ self.start)
        least = np.abs(below) - below_error
        quotient = np.divide(above, below, out=np.zeros_like(above), where=least > 0.0)
        error = above_error + np.abs(quotient) * (below_error + unit * np.abs(below))
        error += sqrt(2.0) * chance * left_out
        return quotient, np.divide(error, least, out=np.full_like(error, np.inf), where=least > 0.0) * (1.0 + SLACK)

    def _mean(self, found: tuple[Vectors, Array], norm: float, rounding: float) -> tuple[Vectors, Array]:
        """Means over the next states, and the bound on the error of their entries."""
        values, error = found
        parts = self.averaged(np.stack([values.real, values.imag]))
        return parts[0] + 1j * parts[1], norm * error + rounding * np.abs(values).max(axis=1)

    @cached_property
    def _spectrum(self) -> "Spectrum":
        return Spectrum.of(self)


@dataclass(frozen=True)
class Spectrum:
    """The mean over the next states in the basis in which it is symmetric.

    Attributes:
        kernels: for each sequence.
        values: all eigenvalues, in falling order.
        functions: shape (r, S), the eigenfunctions of the first r of them.
    """

    kernels: tuple[Array, ...]
    values: Array
    functions: Array

    @classmethod
    def of(cls, states: ProductStates) -> "Spectrum":
        """Of these states."""
        # products of chances there and back are squares of entries of the symmetric matrix
        kernels = [np.sqrt(kernel * kernel.T) for kernel in states.kernels]
        pairs = [np.linalg.eigh(kernel) for kernel in kernels]
        values = reduce(np.multiply.outer, [np.maximum(value, 0.0) for value, _ in pairs])
        order = np.argsort(-values.ravel(), kind="stable")
        functions = [
            reduce(np.multiply.outer, [pair[1][:, one] for pair, one in zip(pairs, places, strict=True)]).ravel()
            for places in zip(*np.unravel_index(order[:FUNCTIONS], values.shape), strict=True)
        ]
        return cls(tuple(kernels), values.ravel()[order], np.array(functions))

    def singular_values(self, factor: Vectors) -> tuple[Array, Array]:
        """Upper bounds on the two largest of a step, shape (F,), for each row of its factors, shape (F, S)."""
        few = len(self.functions)
        root, rest = np.sqrt(self.values[:few]), float(self.values[few : few + 1].sum())
        moved = factor[:, None, :] * self.functions
        after = through(self.kernels, np.stack([moved.real, moved.imag]))
        mean = after[0] + 1j * after[1]
        gram = np.conj(moved) @ mean.transpose(0, 2, 1) * np.outer(root, root)
        back = np.conj(factor)[:, None, :] * mean * root[:, None]
        back -= (back @ self.functions.T) @ self.functions
        across = rest * np.linalg.eigvalsh(np.conj(back) @ back.transpose(0, 2, 1))[:, -1:]
        inside = np.linalg.eigvalsh(gram)[:, :-3:-1]
        apart = inside - rest
        squares = inside + 0.5 * (np.sqrt(apart**2 + 4.0 * np.maximum(across, 0.0)) - apart) + SLACK
        return np.sqrt(squares[:, 0]), np.sqrt(squares[:, 1])

    def trace(self, count: int, largest: Array) -> Array:
        """Bounds on the size of the trace of so many steps, at least two, with these largest singular values."""
        found: Array = 1.001 * float(self.values @ self.values) * largest ** (count - 2)
        return found

    def exterior(self, count: int, largest: Array) -> Array:
        """Bounds on the trace norm of the second exterior power of so many steps, the two largest singular values of
        each of which have this product."""
        powers = (self.values[1:] / self.values[0]) ** count
        others = float(powers.sum())
        plain = float(self.values[0]) ** (2 * count) * (others + 0.5 * others**2)
        squared = float(self.values @ self.values)
        damped = 0.5 * squared**2 * largest ** (count - 3) if count >= 3 else np.full_like(largest, np.inf)
        found: Array = 1.001 * np.minimum(plain, damped)
        return found


def _better(one: tuple[Vectors, Array], other: tuple[Vectors, Array]) -> tuple[Vectors, Array]:
    """Of two values with bounds on their errors; what is not a number stays so."""
    better = ~(other[1] >= one[1])
    return np.where(better, other[0], one[0]), np.where(better, other[1], one[1])


def closed_states(chain: IndependentSequences, lost: float) -> ClosedStates:
    """The states on a ring but for such of a chance below ``lost`` in all, under Q and given any one bin's tilt."""
    line = chain.states(lost)
    chances = [
        (1.0 - pole**chain.bins) * np.diagonal(np.linalg.matrix_power(kernel, chain.bins))
        for pole, kernel in zip(chain.poles, line.kernels, strict=True)
    ]
    occupied = reduce(np.multiply.outer, chances).ravel()
    share = float(np.prod(1.0 - chain.poles**chain.bins))
    return ClosedStates(line.seen, line.start, line.kernels, line.lost, occupied, share, chain.bins)
