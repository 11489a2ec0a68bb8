"""Independent references for compositions: exact enumeration, quadrature, and plain convolution without FFT."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from scipy.special import ndtr

from hockeystick.laws.law import Law
from hockeystick.types import Direction, Side

Array = np.ndarray

# --- discrete pairs ------------------------------------------------------------------------------------------------


def random_pair(rng: np.random.Generator, outcomes: int, holes: bool = True) -> tuple[Array, Array]:
    """Two distributions on a few outcomes; some outcomes may be impossible under one of them."""
    p, q = rng.dirichlet(np.full(outcomes, 0.7), size=2)
    if holes and outcomes > 2:
        p[0] *= rng.random() < 0.5
        q[1] *= rng.random() < 0.5
        p, q = p / p.sum(), q / q.sum()
    return p, q


def product_pair(pairs: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    p, q = np.ones(1), np.ones(1)
    for p_of_run, q_of_run in pairs:
        p, q = np.multiply.outer(p, p_of_run).ravel(), np.multiply.outer(q, q_of_run).ravel()
    return p, q


def hockey_stick(p: Array, q: Array, epsilon: float, direction: Direction) -> float:
    first, second = (p, q) if direction is Direction.REMOVE else (q, p)
    return float(np.maximum(first - exp(epsilon) * second, 0.0).sum())


def exact_law(p: Array, q: Array, side: Side = Side.UPPER) -> Law:
    """The law of dP/dQ as it is."""
    finite = q > 0.0
    ratio, inverse = np.unique(p[finite] / q[finite], return_inverse=True)
    mass = np.bincount(inverse, weights=q[finite])
    return Law(ratio, mass, float(p[~finite].sum()), side, 1e-14, 1e-14)


# --- quadrature: a run of up to two Gaussian outputs, and one with a closed form -----------------------------------


@dataclass(frozen=True)
class OneOutput:
    """``(1 - rate) N(0, 1) + rate N(shift, 1)`` against ``N(0, 1)``: one Poisson step, or the Gaussian for rate 1."""

    rate: float
    shift: float

    def divergence(self, order: Array) -> Array:
        """``E (X - order)_+`` for orders >= 0: X increases in y, so the set is {y > y*}."""
        level = (order - (1.0 - self.rate)) / self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.where(level > 0.0, np.log(np.maximum(level, 1e-300)) / self.shift + 0.5 * self.shift, -np.inf)
        p = (1.0 - self.rate) * ndtr(-place) + self.rate * ndtr(self.shift - place)
        return p - order * ndtr(-place)


def ratios_of(kind: str, parameters: dict[str, float], y: Array) -> Array:
    """The likelihood ratio of a small run on a grid of standard normal outputs, one axis for each of two outputs."""
    shift = 1.0 / parameters["sigma"]
    ratio = np.exp(shift * y - 0.5 * shift * shift)
    if kind == "allocation":
        return 0.5 * np.add.outer(ratio, ratio)
    thinned = 1.0 - parameters["rate"] + parameters["rate"] * ratio
    return np.multiply.outer(thinned, thinned) if kind == "poisson" else thinned


def composed_delta(
    kind: str, parameters: dict[str, float], other: OneOutput, epsilon: float, way: Direction
) -> tuple[float, float]:
    """delta of the run together with ``other``, by the trapezoidal rule on a smooth integrand, and its error.

    The error is the difference to half as many points, which is far more than that of the finer rule.
    """
    y = np.linspace(-9.0, 9.0 + 1.0 / parameters["sigma"], 721)
    ratio = ratios_of(kind, parameters, y)
    if way is Direction.REMOVE:  # sum over y of q x H(x2 at e^eps / x)
        value = ratio * other.divergence(exp(epsilon) / ratio)
    else:  # E (1 - c X2)_+ = 1 - c + c E (X2 - 1/c)_+
        c = exp(epsilon) * ratio
        value = 1.0 - c + c * other.divergence(1.0 / c)
    deltas = []
    for stride in (1, 2):
        density = np.exp(-0.5 * y[::stride] ** 2) / sqrt(2.0 * np.pi) * (y[stride] - y[0])
        if ratio.ndim == 1:
            deltas.append(float(density @ value[::stride]))
        else:
            deltas.append(float(density @ value[::stride, ::stride] @ density))
    return deltas[0], abs(deltas[0] - deltas[1]) + 1e-12


# --- plain convolution on a lattice of losses ----------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """Q-masses of losses ``(first + j) step``."""

    step: float
    first: int
    masses: Array

    def then(self, other: "Losses", negligible: float = 1e-25) -> "Losses":
        whole = Losses(self.step, self.first + other.first, np.convolve(self.masses, other.masses))
        losses = whole.step * (whole.first + np.arange(whole.masses.size))
        used = np.flatnonzero(whole.masses * np.maximum(1.0, np.exp(losses)) > negligible)
        return Losses(whole.step, whole.first + int(used[0]), whole.masses[used[0] : used[-1] + 1])

    def times(self, count: int) -> "Losses":
        whole = self
        for digit in bin(count)[3:]:
            whole = whole.then(whole)
            if digit == "1":
                whole = whole.then(self)
        return whole

    def delta(self, epsilon: float, direction: Direction) -> float:
        ratio = np.exp(self.step * (self.first + np.arange(self.masses.size)))
        if direction is Direction.REMOVE:
            return float(self.masses @ np.maximum(ratio - exp(epsilon), 0.0))
        return float(self.masses @ np.maximum(1.0 - exp(epsilon) * ratio, 0.0))

    def epsilon(self, delta: float) -> float:
        return max(where(lambda at, d=d: self.delta(at, d), delta) for d in Direction)


def where(profile: Callable[[float], float], delta: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


def on_lattice(ratio: Array, mass: Array, step: float) -> Losses:
    """Each atom split between the two losses around it, so that its masses under Q and under P are kept."""
    loss = np.log(ratio)
    cell = np.floor(loss / step).astype(np.int64)
    share = (ratio * np.exp(-cell * step) - 1.0) / (exp(step) - 1.0)
    first = int(cell.min())
    out = np.zeros(int(cell.max()) - first + 2)
    np.add.at(out, cell - first, mass * (1.0 - share))
    np.add.at(out, cell - first + 1, mass * share)
    return Losses(step, first, out)


def gaussian_atoms(points: int = 40_001) -> tuple[Array, Array]:
    y = np.linspace(-11.0, 11.0, points)
    mass = np.exp(-0.5 * y * y)
    return y, mass / mass.sum()


def poisson_losses(sigma: float, rate: float, steps: int, step: float) -> Losses:
    y, mass = gaussian_atoms()
    shift = 1.0 / sigma
    return on_lattice(1.0 - rate + rate * np.exp(shift * y - 0.5 * shift * shift), mass, step).times(steps)


def balls_in_bins_losses(sigma: float, bins: int, epochs: int, step: float, spacing: float, largest: float) -> Losses:
    """The sum of the bins' ratios, by convolution on a linear lattice; then as losses of the mean."""
    y, mass = gaussian_atoms()
    shift = sqrt(epochs) / sigma
    ratio = np.exp(shift * y - 0.5 * shift * shift)
    cell = np.floor(ratio / spacing).astype(np.int64)
    share = ratio / spacing - cell
    single = np.zeros(int(largest / spacing))
    kept = cell + 1 < single.size
    np.add.at(single, cell[kept], (mass * (1.0 - share))[kept])
    np.add.at(single, cell[kept] + 1, (mass * share)[kept])
    total = single
    for digit in bin(bins)[3:]:
        total = np.convolve(total, total)[: single.size]
        if digit == "1":
            total = np.convolve(total, single)[: single.size]
    used = np.flatnonzero(total > 1e-25)
    used = used[used > 0]
    return on_lattice(used * spacing / bins, total[used], step)
