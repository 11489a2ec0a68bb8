"""Moments of the likelihood ratio of a Poisson-subsampled Gaussian step, of complex order, with proved errors.

For one step ``X = 1 - q + q exp(mu z - mu^2 / 2)`` with ``z ~ N(0, 1)`` under Q and ``mu = 1 / sigma``. The moment of
order s is ``M(s) = E X^s``, an entire function where q < 1. Everything here is relative to a real ``c``: the measure of
z with density ``phi(z) X(z)^c / M(c)`` is called tilted, and on the line ``s = c + it`` the ratio ``M(s) / M(c)`` is
the characteristic function of ``L = log X`` under it. Proofs: docs/theory/contours.md.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, cos, exp, expm1, inf, isqrt, log, log1p, pi, sqrt
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.inner_products import inner_products
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.moved_paths import MovedPath, moved_path
from hockeystick.laws.rotations import rotations

REACH = 8.6
"""Standard deviations beyond every maximum of the tilted density; what lies farther is charged."""
QUADRATURE = 36.0
"""The trapezoidal rule errs by at most about e^-QUADRATURE of M(c)."""
NEGLIGIBLE = 1e-18
"""Share of the mass below which a node is left out of a line; that of all of them is charged."""
BLOCK = 32
"""Frequencies of a block. Its rotations are those of its first frequency times those of the first block."""
TOGETHER = 1024
"""Nodes whose rotations are in memory, and in the cache of a processor, at a time."""
CELL = 1.0 / 64.0
"""Width, in z, of the cells by which the decay of characteristic functions is bounded."""
PLACE = 1.0 / 16.0
"""Distance, in z, of the places at which a path of integration is moved, at most."""
BY_PATHS = 2e-3
"""Moved paths bound the sizes of moments whose logarithm is to be below minus this, and slabs those nearer to 1."""
OCTAVE, OCTAVES = 1.4, 1.4**3
"""Ratio of the frequencies between which one partition in slabs is used: near the end, and at first."""
LARGEST_ORDER = 1e4
SHARING = 12
"""Orders of real moments that share their nodes."""
ERROR_OF_LOGS = 1e-9
"""Far above the error of logarithms of moments of real orders up to LARGEST_ORDER in size, and up to 300 sigma."""
ROUNDING_OF_CELLS = 1e-9
"""Far above the relative rounding error of a sum over cells."""


class Line(NamedTuple):
    """Moments on the line ``c + i j step``, j = 0, 1, ...

    Attributes:
        log_moment: log M(c).
        log_error: bound on its error.
        ratios: complex, ``M(c + i j step) / M(c)``.
        errors: bounds on the errors of the ratios.
    """

    log_moment: float
    log_error: float
    ratios: NDArray[np.complex128]
    errors: Array


class Moments(Protocol):
    """What contours need to know of the moments of a step; see :class:`PoissonMoments`."""

    @property
    def sampling_prob(self) -> float: ...
    @property
    def noise_multiplier(self) -> float: ...
    @property
    def mu(self) -> float: ...
    @property
    def log_least(self) -> float: ...
    @property
    def heeds_limits(self) -> bool: ...
    def log_moments(self, orders: Array) -> Array: ...
    def size(self, c: float, frequency: float) -> float: ...
    def line(self, c: float, step: float, count: int) -> Line: ...
    def settled_frequency(self, c: float, steps: float, log_size: float, at_most: float = ...) -> float: ...


@dataclass(frozen=True)
class PoissonMoments:
    """``M(s) = E X^s`` of one step at rate ``sampling_prob`` in (0, 1/2] with this noise multiplier."""

    sampling_prob: float
    noise_multiplier: float
    heeds_limits: ClassVar[bool] = True
    """Whether searches for the end of a line are shorter for a limit, which takes some time to find."""

    @cached_property
    def mu(self) -> float:
        """The mean of z under the component of P in which the example takes part."""
        return 1.0 / self.noise_multiplier

    @cached_property
    def log_least(self) -> float:
        """``log(1 - q)``, which is below the log of every ratio."""
        return log1p(-self.sampling_prob)

    def log_ratios(self, z: Array) -> tuple[Array, Array, Array]:
        """``L = log X``, ``w = L' / mu`` in (0, 1), and a bound on the rounding error of L, at each z.

        With rates of at most a half, ``X - 1`` is at least -1/2, so its rounding changes L by at most twice its size.
        """
        rate, exponent = self.sampling_prob, self.mu * z - 0.5 * self.mu**2
        near = np.minimum(exponent, 30.0)
        far = np.maximum(exponent, 30.0)
        logs = np.where(
            exponent < 30.0,
            np.log1p(rate * np.expm1(near)),
            log(rate) + far + np.log1p((1.0 - rate) / rate * np.exp(-far)),
        )
        weights = np.minimum(rate * np.exp(exponent - logs), 1.0)
        errors = 8.0 * UNIT_ROUNDOFF * (np.abs(logs) + weights * (np.abs(self.mu * z) + self.mu**2 + 2.0))
        return logs, weights, errors

    def ends(self, c: float) -> tuple[float, float]:
        """Where nodes end: beyond, tilted densities of z fall at a rate of at least REACH, those of L of REACH - mu.

        The slope of ``log(phi X^c)`` is ``-z + c mu w``, and that of the density of L ``-z - mu + (c + 1) mu w``, where
        w rises in z: below -REACH it is at most what it is there.
        """
        low = REACH + self.mu + max(-c - 1.0, 0.0) * self.mu * self._low_weight
        return -low, REACH + max(c + 1.0, 0.0) * self.mu

    @cached_property
    def _low_weight(self) -> float:
        """At least w at -REACH."""
        odds = self.sampling_prob / (1.0 - self.sampling_prob)
        return min(odds * exp(-self.mu * (REACH + 0.5 * self.mu)) * (1.0 + 1e-9), 1.0)

    def log_moments(self, orders: Array) -> Array:
        """log M at real orders, by the trapezoidal rule with a coarse step: shape (n,), within ERROR_OF_LOGS.

        Sorted orders take the least time, as neighbours share their nodes.
        """
        groups = np.array_split(orders, ceil(len(orders) / SHARING))
        return np.concatenate([self._log_moments(group) for group in groups])

    def _log_moments(self, orders: Array) -> Array:
        low, high = min(self.ends(float(orders.min()))[0], -REACH), self.ends(float(orders.max()))[1]
        cells = ceil((high - low) / min(0.12, 0.12 / self.mu)) + 1
        z = low + (high - low) / cells * np.arange(cells + 1, dtype=np.float64)
        exponents = np.multiply.outer(orders, self.log_ratios(z)[0]) - 0.5 * z * z
        top = exponents.max(axis=1)
        sums = np.exp(exponents - top[:, None]).sum(axis=1)
        logs: Array = top + np.log(sums * ((z[1] - z[0]) / sqrt(2.0 * pi)))
        return logs

    def spacing(self, c: float, frequency: float) -> float:
        """The step of the trapezoidal rule that is good up to this frequency.

        On the line ``Im z = d < pi / mu`` the integrand is at most ``e^(d^2 / 2 + |t| mu d)`` times that on the real
        line, and ``cos(mu d)^c`` times more where c < 0.
        """
        turn = 2.0 * pi / self.mu
        steps = []
        for share in (0.1, 0.2, 0.3, 0.4, 0.47):
            d = min(share * turn / (1.0 if c >= 0.0 else 2.0), sqrt(2.0 * QUADRATURE))
            excess = QUADRATURE + 0.5 * d * d + (max(-c, 0.0) * -log(cos(self.mu * d)) if c < 0.0 else 0.0)
            steps.append(2.0 * pi / (frequency * self.mu + excess / d))
        return max(steps)

    def size(self, c: float, frequency: float) -> float:
        """How many nodes a line up to this frequency takes."""
        low, high = self.ends(c)
        return (high - low) / self.spacing(c, frequency)

    def line(self, c: float, step: float, count: int) -> Line:
        """The moments at ``count`` frequencies 0, step, 2 step, ... O(count * nodes) time."""
        low, high = self.ends(c)
        spacing = self.spacing(c, (count - 1) * step)
        nodes = ceil((high - low) / spacing) + 1
        z = low + spacing * np.arange(nodes, dtype=np.float64)
        logs, slopes, log_errors = self.log_ratios(z)
        exponents = c * logs - 0.5 * z * z
        top = float(exponents.max())
        # The nodes themselves are rounded, while the rule is about equidistant ones.
        of_nodes = 2.0 * UNIT_ROUNDOFF * (np.abs(z) - low)
        log_errors = log_errors + self.mu * slopes * of_nodes
        masses = np.exp(exponents - top)
        total = float(masses.sum())
        # Beyond the ends the density falls from node to node by at least this factor.
        fall = exp(-spacing * (REACH - 1.0))
        left_out = float(masses[0] + masses[-1]) * fall / (1.0 - fall) / total
        # Nodes with next to no mass are not turned.
        kept = masses > NEGLIGIBLE * total
        left_out += float(masses[~kept].sum()) / total
        z, logs, log_errors, masses, of_nodes = (each[kept] for each in (z, logs, log_errors, masses, of_nodes))
        of_masses = UNIT_ROUNDOFF * (2.0 * z * z + 4.0 * np.abs(c * logs) + 8.0) + abs(c) * log_errors
        of_masses += np.abs(z) * of_nodes
        of_angles = log_errors + 4.0 * UNIT_ROUNDOFF * np.abs(logs)
        always = (
            float(np.sum(masses * of_masses)) / total
            + left_out
            + 4.0 * exp(-QUADRATURE)
            + (nodes + len(z) + 64) * UNIT_ROUNDOFF
        )
        per_frequency = float(np.sum(masses * of_angles)) / total
        ratios = self._sums(masses, step * logs, count) / total
        errors = 2.02 * (always + per_frequency * step * np.arange(count, dtype=np.float64)) + 80.0 * UNIT_ROUNDOFF
        log_moment = top + log(total * spacing / sqrt(2.0 * pi))
        log_error = 1.01 * always + UNIT_ROUNDOFF * (8.0 + 4.0 * abs(log_moment) + 4.0 * abs(top))
        return Line(log_moment, log_error, ratios, errors)

    @staticmethod
    def _sums(masses: Array, angles: Array, count: int) -> NDArray[np.complex128]:
        """``sum_n masses_n e^(i j angles_n)``, j = 0, 1, ... up to a count.

        With ``j = BLOCK b + k``, k from -BLOCK / 2 on, the sums of ``e^(i BLOCK b angle)`` times the cosines and sines
        of ``k angle`` are two real products for each of them, and serve k and -k.
        """
        half = BLOCK // 2
        blocks = ceil((count + half) / BLOCK)
        sums = np.zeros((2 * blocks, 2 * (half + 1)))
        for first in range(0, len(masses), TOGETHER):
            some = slice(first, first + TOGETHER)
            starts = _rotations(BLOCK * angles[some], blocks) * masses[some]
            within = _rotations(angles[some], half + 1)
            sums += inner_products(
                np.concatenate([starts.real, starts.imag]), np.concatenate([within.real, within.imag])
            )
        parts = sums[:blocks] + 1j * sums[blocks:]
        cosines, sines = parts[:, : half + 1], 1j * parts[:, half + 1 :]
        values = np.concatenate([(cosines - sines)[:, :0:-1], (cosines + sines)[:, :half]], axis=1)
        return values.ravel()[half : half + count]

    def cells(self, c: float) -> "Cells":
        """The tilted measure of z on cells of width CELL between the ends of the nodes, bounded on both sides."""
        low, high = self.ends(c)
        edges = np.arange(low, high + CELL, CELL)
        middles = 0.5 * (edges[1:] + edges[:-1])
        every, weights, _ = self.log_ratios(np.concatenate([edges, middles]))
        at_edges, weight_at_edges, logs = every[: edges.size], weights[: edges.size], every[edges.size :]
        slopes = np.abs(middles) + CELL + abs(c) * self.mu * weight_at_edges[1:]
        exponents = c * logs - 0.5 * middles * middles
        change = 0.5 * CELL * slopes
        top = exponents.max()
        total = exp(float(self.log_moments(np.array([c]))[0]) - top) * sqrt(2.0 * pi) / CELL
        masses = np.exp(exponents - top) / total
        least, most = masses * np.exp(-change) * (1.0 - 1e-5), masses * np.exp(change) * (1.0 + 1e-5)
        densities = most / (CELL * self.mu * np.maximum(weight_at_edges[:-1], 1e-300))  # the mass underflows first
        # Of the density of L and of its part above any place.
        variations = (4.0 if c > -1.0 else 2.0) * np.maximum.accumulate(densities[::-1])[::-1]
        variations *= 1.0 + ROUNDING_OF_CELLS
        above = np.cumsum(least[::-1])[::-1]
        return Cells(least, most, above, variations, logs - logs[int(np.argmax(masses))], at_edges, at_edges[1:] - logs)

    def moved_path(self, c: float, needed: float) -> MovedPath:
        """A bound on ``|M(c + it) / M(c)|`` at high frequencies t, for sizes of about ``e^-needed``."""
        low, high = self.ends(c)
        spacing = min(PLACE, 0.12 / self.mu)
        z = np.arange(low, high + spacing, spacing)
        logs, weights, _ = self.log_ratios(z)
        return moved_path(c, self.mu, needed, z, logs, weights)

    def settled_frequency(self, c: float, steps: float, log_size: float, at_most: float = inf) -> float:
        """A frequency T such that ``|M(c + it) / M(c)|^steps <= e^log_size`` for every ``t >= T``.

        For few steps by a path of integration that is moved (:mod:`.moved_paths`). For many of them, high frequencies:
        L has a density under the tilted measure with at most two maxima, so the ratio is at most its total variation
        over t. Below: the range of z is cut in slabs on which ``t L`` moves by at most pi. With masses
        p_i and variances v_i of L on them, ``1 - |ratio| >= (2 t^2 / pi^2) sum_i p_i v_i``; and the part of the density
        above any place, of mass p, gives ``1 - |ratio| >= p - (its total variation) / t``. Masses and variances are
        bounded from below cell by cell. Infinite where no such frequency is proved, or none up to ``at_most``.
        """
        needed = -log_size / steps
        if needed >= BY_PATHS:
            return self.moved_path(c, needed).settled(-needed, at_most)
        cells = self.cells(c)
        settled = float(cells.variations[0]) * exp(needed)
        if settled > at_most and steps * cells.drop(at_most / OCTAVE, at_most) < -log_size:
            return inf
        ratio = OCTAVES
        while True:
            frequency = settled / ratio
            if steps * cells.drop(frequency, settled) >= -log_size:
                settled = frequency
            elif ratio > OCTAVE:
                ratio = OCTAVE
            else:
                return settled


class Cells(NamedTuple):
    """The tilted measure of z, cell by cell; arrays of shape (n,), and (n + 1,) at the edges.

    Attributes:
        least, most: bounds on the masses.
        above: at most the mass of a cell and of all above it.
        variations: at least the total variation of the density of L on a cell and above.
        places: L in the middle of the cells, relative to where the mass is.
        at_edges: L at the edges of the cells.
        halves: from the middle to the upper edge, the longer part, as L is convex.
    """

    least: Array
    most: Array
    above: Array
    variations: Array
    places: Array
    at_edges: Array
    halves: Array

    def drop(self, frequency: float, settled: float) -> float:
        """At most ``1 - |M(c + it) / M(c)|`` for every t between two frequencies."""
        least, places = self.least, self.places
        slab = np.floor((self.at_edges - self.at_edges[0]) / (pi / settled))
        inside = slab[:-1] == slab[1:]
        if not inside.any():
            return 0.0
        starts = np.flatnonzero(np.diff(slab[:-1][inside], prepend=-1.0))
        p = np.add.reduceat(least[inside], starts)
        means = np.add.reduceat(least[inside] * places[inside], starts) / np.maximum(p, 1e-300)
        spread = places[inside] - np.repeat(means, np.diff(np.append(starts, int(inside.sum()))))
        deviations = np.sqrt(np.add.reduceat(least[inside] * spread**2, starts) / np.maximum(p, 1e-300))
        deviations = np.maximum(deviations - np.maximum.reduceat(self.halves[inside], starts), 0.0)
        whole = np.add.reduceat(self.most[inside], starts)
        by_slabs = 2.0 * (frequency / pi) ** 2 * float(np.sum(p**2 / np.maximum(whole, 1e-300) * deviations**2))
        by_variation = float(np.max(self.above - self.variations / frequency))
        return max(by_slabs, by_variation, 0.0) * (1.0 - ROUNDING_OF_CELLS)


def _rotations(angles: Array, count: int) -> NDArray[np.complex128]:
    """``e^(i j angle)``, j = 0, 1, ..., shape (count, n), as products of two, ten times faster than exponentials."""
    together = isqrt(count - 1) + 1
    fine, coarse = (
        rotations(np.multiply.outer(pace * np.arange(size), angles))
        for pace, size in ((1.0, together), (float(together), ceil(count / together)))
    )
    return np.asarray((coarse[:, None] * fine).reshape(-1, angles.size)[:count])


def relative_error_of_power(steps: float, log_error: float) -> float:
    """The relative error of ``M(c)^steps`` for an error of log M(c)."""
    return expm1(min(steps * log_error, 700.0))
