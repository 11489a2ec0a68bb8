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
from hockeystick.sequences.repeated_steps import repeated_often

FUNCTIONS = 12
"""Eigenfunctions of the mean over the next states on which a step is looked at."""
ENOUGH = 1e-8
"""An error for which nothing more is tried."""
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

    def transforms(self, steps: Array, kinds: NDArray[np.int64], tick: Callable[[], None]) -> tuple[Vectors, Array]:
        """The transform of the sum over all bins, and a bound on the error of each."""
        if int(kinds.max()) > 0:
            raise ValueError("The bins of a ring of independent sequences must all be alike.")
        half = steps.shape[2] // 2
        factor = np.ascontiguousarray((steps[0, :, :half] + 1j * steps[0, :, half:]).T)
        step, norm, rounding = self.step(factor, tick)
        counts = (self.bins, self.bins - 2 * (self.bins // 6))
        times = [one for count in counts for one in (count, (self.bins + count) // 2 - 1)]
        found = repeated_often(step, factor, times, norm, rounding)
        values = np.zeros(len(factor), dtype=np.complex128)
        errors = np.full(len(factor), self.occupied.sum() / self.share)  # the transform is no larger
        chance = float(self.start.sum()) * (1.0 + SLACK)
        largest = np.ones(len(factor))  # the product of the two largest singular values of a step
        for count, after, before in zip(counts, found[::2], found[1::2], strict=True):
            if count < self.bins:
                if float(errors.max()) <= ENOUGH:
                    break
                tick()
                largest = self._spectrum.singular_values(factor)
            seen, before_error = self._mean(before, norm, rounding)
            below, size = after[0] @ self.start, np.abs(after[0]) @ self.start
            unit = 4.0 * (self.seen.size + 16.0) * UNIT_ROUNDOFF
            below_error = chance * after[1] + unit * size
            above = (factor * seen**2) @ self.start
            above_error = 2.0 * before_error * (np.abs(seen) @ self.start) + chance * before_error**2
            above_error += unit * (np.abs(seen) ** 2 @ self.start)
            least = np.abs(below) - below_error
            rest = sqrt(2.0) * chance * self._spectrum.exterior(count, largest)
            good = least > 0.0
            quotient = np.divide(above, below, out=np.zeros_like(above), where=good)
            error = above_error + np.abs(quotient) * (below_error + unit * np.abs(below)) + rest
            error = np.divide(error, least, out=np.full_like(error, np.inf), where=good) * (1.0 + SLACK)
            better = ~(error >= errors)  # what is not a number stays so
            values, errors = np.where(better, quotient, values), np.where(better, error, errors)
        return values * self.share, errors * self.share

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

    def singular_values(self, factor: Vectors) -> Array:
        """Upper bounds on the product of the two largest of a step, for each row of its factors, shape (F, S)."""
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
        found: Array = np.sqrt(squares[:, 0] * squares[:, 1])
        return found

    def exterior(self, count: int, largest: Array) -> Array:
        """Bounds on the trace norm of the second exterior power of so many steps, the two largest singular values of
        each of which have this product."""
        powers = (self.values[1:] / self.values[0]) ** count
        others = float(powers.sum())
        plain = float(self.values[0]) ** (2 * count) * (others + 0.5 * others**2)
        squared = float(self.values @ self.values)
        found: Array = np.minimum(plain, 0.5 * squared**2 * largest ** max(count - 3, 0)) * 1.001
        return found


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
