"""Gaussians that white noise and a few independent autoregressive sequences add up to, each on a lattice of its own.

``z_i = gains[i] (sum_s amounts[s] x_(s,i) + whites[i] e_i)``, x_s stationary of order one and unit variance, all
independent. White noise makes the lattices harmless, as it does for :mod:`hockeystick.sequences.hidden_chain`; a step
forward is one matrix for each sequence in turn.

Proof: docs/theory/hidden-chains.md, section 6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from math import log, pi, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.sequences.hidden_chain import LATTICE_ERROR
from hockeystick.sequences.repeated_steps import FEWEST, SMALL, WORTH, repeated

Vectors = NDArray[np.complex128]


@dataclass(frozen=True)
class IndependentSequences:
    """White noise beside independent sequences ``x_(s,i) = poles[s] x_(s,i-1) + noise``.

    Attributes:
        poles: shape (s,), from 0 to below 1.
        amounts: shape (s,), non-negative; what is seen of each.
        white, gains, extra: as for :class:`..hidden_chain.HiddenChain`.
        ring: whether the sequences are closed, ``Cov(x_(s,i), x_(s,j))`` in proportion to ``a^d + a^(b-d)``.
    """

    poles: Array
    amounts: Array
    white: float
    gains: Array
    extra: Array | None = None
    ring: bool = False

    @property
    def bins(self) -> int:
        """b, how many terms there are."""
        return int(self.gains.size)

    @property
    def whites(self) -> Array:
        """Standard deviations of the white noise of the bins, nowhere below ``white``."""
        return np.sqrt(self.white**2 + (np.zeros(self.bins) if self.extra is None else self.extra))

    @property
    def seen_variance(self) -> float:
        """The variance of ``sum_s amounts[s] x_(s,i)``."""
        return float(self.amounts**2 @ self.variances)

    @property
    def variances(self) -> Array:
        """Of the sequences, shape (s,): 1, and more around a ring."""
        around = self.poles**self.bins if self.ring else np.zeros(self.poles.size)
        found: Array = (1.0 + around) / (1.0 - around)
        return found

    @property
    def products(self) -> Array:
        """The covariance of z, shape (b, b)."""
        lags = np.arange(self.bins)
        powers = np.power(self.poles[:, None], lags)
        if self.ring:
            other = np.power(self.poles[:, None], self.bins - lags)
            powers = (powers + other) / (1.0 - self.poles[:, None] ** self.bins)
        seen = self.amounts**2 @ powers
        distance = np.abs(np.subtract.outer(lags, lags))
        return np.multiply.outer(self.gains, self.gains) * (seen[distance] + np.diag(self.whites**2))

    @property
    def spacings(self) -> Array:
        """Of lattices for the sequences that change the density of z by less than ``LATTICE_ERROR``, relative to it."""
        sharpest = (1.0 + self.poles) / (1.0 - self.poles)
        each = sharpest + self.amounts**2 / self.white**2
        shares = self.amounts / self.white / np.sqrt(each)
        together = np.outer(shares, shares)
        np.fill_diagonal(together, 1.0)
        largest = float(np.linalg.eigvalsh(together)[-1]) * 1.000001
        needed = log(3.0 * self.poles.size * (self.bins + 1) / LATTICE_ERROR)
        return np.sqrt(2.0 * pi**2 / (needed * largest * each))

    def sides(self, lost: float) -> NDArray[np.int64]:
        """How many places of each lattice are kept on either side of 0."""
        width = sqrt(-2.0 * log(lost / (8.0 * self.poles.size * (self.bins + 1))))
        reach = width * np.sqrt(self.variances) + float(self.gains.max()) * self.amounts * self.variances
        return np.ceil(reach / self.spacings).astype(np.int64)

    def states(self, lost: float) -> "ProductStates":
        """The states but for such of a chance below ``lost`` in all, under Q and given any one bin's tilt."""
        lines = [h * np.arange(-side, side + 1) for h, side in zip(self.spacings, self.sides(lost), strict=True)]
        kernels, starts = [], []
        for h, line, pole in zip(self.spacings, lines, self.poles, strict=True):
            apart, innovation = line[None, :] - pole * line[:, None], 1.0 - pole**2
            kernels.append(h / sqrt(2.0 * pi * innovation) * np.exp(-0.5 * apart**2 / innovation))
            starts.append(h / sqrt(2.0 * pi) * np.exp(-0.5 * line**2))
        seen = reduce(np.add.outer, [amount * line for amount, line in zip(self.amounts, lines, strict=True)])
        return ProductStates(seen.ravel(), reduce(np.multiply.outer, starts).ravel(), tuple(kernels), lost)


@dataclass(frozen=True)
class ProductStates:
    """States of independent sequences on their lattices, and how they go on.

    Attributes:
        seen: shape (S,), what is seen of each state; the last sequence changes fastest.
        start: shape (S,), chances of the state of the first bin.
        kernels: for each sequence the chances of the next place, a row for each place.
        lost: more than the chance of any other state at any bin, under Q and given any one bin's tilt.
    """

    seen: Array
    start: Array
    kernels: tuple[Array, ...]
    lost: float
    plain: ClassVar[int] = 0
    fewest: ClassVar[int | None] = None

    @property
    def end(self) -> Array:
        """Factors of the last state."""
        return np.ones(self.seen.size)

    @property
    def terms(self) -> int:
        """How many terms are added up in a step, for each state."""
        return sum(len(kernel) for kernel in self.kernels)

    @property
    def heaviest(self) -> float:
        """The largest sum of the chances of what follows a state."""
        return float(np.prod([kernel.sum(axis=1).max() for kernel in self.kernels]))

    def averaged(self, numbers: Array) -> Array:
        """The mean of each row of ``numbers``, shape (..., S), over the next state."""
        return through(self.kernels, numbers)

    def step(self, factor: Vectors, tick: Callable[[], None]) -> tuple[Callable[[Vectors], Vectors], float, float]:
        """A step backwards through bins with these factors, shape (F, S); its norm and rounding for ``repeated``."""

        def step(rows: Vectors) -> Vectors:
            tick()
            parts = self.averaged(np.stack([rows.real, rows.imag]))
            return np.asarray(factor * (parts[0] + 1j * parts[1]), dtype=np.complex128)

        heaviest = self.heaviest * (1.0 + 1e-12)
        norm = max(heaviest * float(np.abs(factor).max()) * (1.0 + 1e-12), 1.0)
        return step, norm, (4.0 * self.terms + 16.0) * UNIT_ROUNDOFF * norm

    def transforms(
        self, steps: Array, kinds: NDArray[np.int64], tick: Callable[[], None], small: float = SMALL
    ) -> tuple[Vectors, float | Array]:
        """The transform of the sum over all bins, and what runs of equal bins add to its error.

        ``steps`` and ``kinds`` as in :func:`..hidden_chain_kernels.chain_transforms`.
        """
        half = steps.shape[2] // 2
        factors = [np.ascontiguousarray((one[:, :half] + 1j * one[:, half:]).T) for one in steps]
        later, error = factors[int(kinds[-1])].copy(), 0.0
        for kind, run in groupby(kinds[-2::-1].tolist()):
            times = len(list(run))
            step, norm, rounding = self.step(factors[kind], tick)
            error *= norm**times
            single = min(self.plain, times) if times >= WORTH else times
            for _ in range(single):
                later = step(later)
            if single < times:
                later, added = repeated(step, later, times - single, norm, rounding, self.fewest, small)
                error += float(added.max())
        return np.asarray(later @ self.start, dtype=np.complex128), error * float(self.start.sum()) * (1.0 + 1e-9)


def through(kernels: tuple[Array, ...], numbers: Array) -> Array:
    """Each row of ``numbers``, shape (..., S), multiplied by the Kronecker product of square matrices."""
    behind = numbers.shape[-1]
    found = numbers
    for kernel in kernels:
        length = len(kernel)
        behind //= length
        found = found.reshape(-1, length) @ kernel.T if behind == 1 else kernel @ found.reshape(-1, length, behind)
    return found.reshape(numbers.shape)


def steps_of(gains: Array, whites: Array) -> int:
    """About how many steps are made for bins with these gains and white noise, as runs of equal bins take less."""
    kinds = zip(gains[-2::-1].tolist(), whites[-2::-1].tolist(), strict=True)
    runs = [len(list(run)) for _, run in groupby(kinds)]
    return 1 + sum(run if run < WORTH else FEWEST for run in runs)
