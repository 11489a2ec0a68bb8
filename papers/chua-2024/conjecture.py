"""Conjecture 3.2: the paper's query is not the worst, already for two batches of one record.

The conjecture says that answers 1 of the example and -1 of all others, at every step, have the largest divergence in
both directions. Here the answers may change with the step, or with the first output: then the worst second answers are
taken at every first output by itself, from a grid of answers. Answers that are the same at every step show no more.
"""

from collections.abc import Sequence
from itertools import permutations, product
from math import exp, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import ndtr

from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.reproduction.papers import Check, Output
from hockeystick.types import Side

Array = NDArray[np.float64]
Deltas = tuple[float, float]
"""(remove, add)."""

ANSWERS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""What a query may say of a record."""
CASES = ((1.0, 0.5), (1.0, 2.0), (2.0, 0.5), (3.0, 1.0))
"""sigma and epsilon."""
REACH = 7.0
"""Deviations beyond the largest answer at which the grids end."""
GRID_ERROR = 5e-3
"""Relative error of a delta on a grid, at most, by doubling the grid; a smaller excess refutes nothing."""


def paper_deltas(sigma: float, epsilon: float) -> Deltas:
    """The paper's pair for two batches: exact.

    The sum of both outputs and their difference are independent. In units of the noise, the first moves by
    ``1 / sqrt(2)``; the second is ``N(+-a)`` with equal chances, a being ``sqrt(2)`` with the example and half of that
    without. Given the difference, delta is that of the Gaussian of the sum at another epsilon.
    """
    near, far = 1.0 / (sqrt(2.0) * sigma), sqrt(2.0) / sigma

    def density(v: float, shift: float) -> float:
        return 0.5 * (exp(-0.5 * (v - shift) ** 2) + exp(-0.5 * (v + shift) ** 2)) / sqrt(2.0 * pi)

    def gain(v: float, first: float, second: float) -> float:
        p, q = density(v, first), density(v, second)
        level = epsilon + np.log(q / p)
        if level >= 0.0:
            return p * gaussian_delta(1.0, near, level, Side.UPPER)
        # H_c(P || Q) = 1 - c + c H_(1/c)(Q || P), and both directions of a Gaussian are the same.
        return p * (1.0 - exp(level) + exp(level) * gaussian_delta(1.0, near, -level, Side.UPPER))

    ends = (-12.0 - far, 12.0 + far)
    remove, add = (quad(gain, *ends, args=pair, limit=500)[0] for pair in ((far, near), (near, far)))
    return remove, add


def axis(sigma: float, points: int) -> Array:
    """Equidistant outputs."""
    return np.linspace(-1.0 - REACH * sigma, 1.0 + REACH * sigma, points)


def density(outputs: Array, answer: float, sigma: float) -> Array:
    """Of an output around this answer, at every place."""
    values: Array = np.exp(-0.5 * ((outputs - answer) / sigma) ** 2) / (sigma * sqrt(2.0 * pi))
    return values


def adaptive_deltas(sigma: float, epsilon: float, points: int = 321) -> Deltas:
    """Two batches with the paper's answers at the first step and the worst ones of the grid at the second."""
    outputs, level = axis(sigma, points), exp(epsilon)
    width = float(outputs[1] - outputs[0])
    of = {answer: density(outputs, answer, sigma) for answer in ANSWERS}
    # The example is in the first batch with probability 1/2, and its ghost answers 0.
    with_it, without, later = (0.5 * of[answer][:, None] for answer in (1.0, 0.0, -1.0))
    worst = np.zeros((2, points))
    for own, other in product(ANSWERS, repeat=2):
        present = with_it * of[other] + later * of[own]
        absent = without * of[other] + later * of[0.0]
        for place, excess in enumerate((present - level * absent, absent - level * present)):
            worst[place] = np.maximum(worst[place], np.maximum(excess, 0.0).sum(axis=1) * width)
    remove, add = map(float, worst.sum(axis=1) * width)
    return remove, add


def changing_delta(sigma: float, epsilon: float) -> float:
    """At least the delta for add of two batches in which all answers are -1 but the example's first, which is 1.

    With the example the second output is N(-1) in any case. The best event ``{y_1 < a, y_2 > b}`` of a grid is taken;
    its masses are products of normal ones.
    """
    a, b = np.meshgrid(np.linspace(-3.0, 6.0, 181) * sigma, np.linspace(-3.0, 6.0, 181) * sigma, indexing="ij")

    def below(mean: float) -> Array:
        return np.asarray(ndtr((a - mean) / sigma))

    def above(mean: float) -> Array:
        return np.asarray(ndtr((mean - b) / sigma))

    absent = 0.5 * (below(0.0) * above(-1.0) + below(-1.0) * above(0.0))
    present = 0.5 * (below(1.0) + below(-1.0)) * above(-1.0)
    return float((absent - exp(epsilon) * present).max())


def fixed_deltas(sigma: float, epsilon: float, batches: int = 3, points: int = 61) -> dict[tuple[float, ...], Deltas]:
    """Batches of one record and the same answers at every step: (of the example, of the others)."""
    outputs, level = axis(sigma, points), exp(epsilon)
    cell = float(outputs[1] - outputs[0]) ** batches
    of = {answer: density(outputs, answer, sigma) for answer in ANSWERS}

    def mixture(answers: Sequence[float]) -> Array:
        orders = list(permutations(answers))
        total = np.zeros((points,) * batches)
        for order in orders:
            grid = np.ones(())
            for answer in order:
                grid = grid[..., None] * of[answer]
            total += grid / len(orders)
        return total

    deltas = {}
    for own in (0.5, 1.0):  # a reflection of all outputs changes every sign
        for others in product(ANSWERS, repeat=batches - 1):
            if list(others) == sorted(others):
                present, absent = mixture((own, *others)), mixture((0.0, *others))
                remove = float(np.maximum(present - level * absent, 0.0).sum() * cell)
                add = float(np.maximum(absent - level * present, 0.0).sum() * cell)
                deltas[own, *others] = (remove, add)
    return deltas


def conjecture_checks(output: Output, cases: Sequence[tuple[float, float]] = CASES) -> list[Check]:
    """Deltas of other queries over those of the paper's, which the conjecture says are at most 1."""
    checks = []

    def judged(what: str, ratio: float, where: str) -> None:
        refuted = "refuted: these answers show more" if ratio > 1.0 + GRID_ERROR else ""
        holds = ratio <= 1.0 + GRID_ERROR
        checks.append(Check(f"Conjecture 3.2, {what} / the paper's, {where}", "<=", 1.0, ratio, holds, refuted))

    for sigma, epsilon in cases:
        output.deadline.tick()
        where = f"sigma={sigma:g}, eps={epsilon:g}"
        paper, adaptive = paper_deltas(sigma, epsilon), adaptive_deltas(sigma, epsilon)
        for place, direction in enumerate(("remove", "add")):
            what = f"T=2: delta for {direction} with the worst second answers at each first output"
            judged(what, adaptive[place] / paper[place], where)
        fixed = fixed_deltas(sigma, epsilon)
        for place, direction in enumerate(("remove", "add")):
            largest = max(deltas[place] for deltas in fixed.values())
            what = f"T=3: largest delta for {direction} with the same answers at every step"
            judged(what, largest / fixed[1.0, -1.0, -1.0][place], where)
    sigma, epsilon = CASES[-1]
    ratio = changing_delta(sigma, epsilon) / paper_deltas(sigma, epsilon)[1]
    what = "T=2: delta for add where all answers are -1 but the example's first"
    judged(what, ratio, f"sigma={sigma:g}, eps={epsilon:g}, in closed form")
    return checks


def conjecture(output: Output, cases: Sequence[tuple[float, float]] = CASES) -> None:
    """The part."""
    output.checks("conjecture", conjecture_checks(output, cases))
