"""Section 6: two datasets that refute Theorem 6.1. Two steps, min_sep = 2, noise multiplier 1, no correlated noise."""

from math import comb, exp

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from hockeystick.reproduction.curves import judge
from hockeystick.reproduction.papers import Check

Array = NDArray[np.float64]

NODES, REACH = 4000, 12.0
"""Of the integral over the first output: points, and deviations to either side."""
NEIGHBOURS, RATE = 1000, 0.1
"""Users who share the example, and the rate at which examples are sampled."""
FAR, HIGH = 45.0, 1.5
"""The event: the second output below FAR along the neighbours' gradient, the first above HIGH along the example's."""


def pair_delta(epsilon: float, prob: float, examples: int, columns: tuple[float, float] = (1.0, 1.0)) -> float:
    """delta of the remove direction of Theorem 6.1's pair for C = diag(columns): ``E_Q (X - e^epsilon)_+``.

    ``X = (1-h)^2 + A(y_1) + B(y_2)`` grows in both outputs, so given y_1 the integral over y_2 is one of normal tails
    beyond the y_2 at which X is e^epsilon. The one over y_1 is a trapezoidal sum. About ten digits.
    """
    counts = np.arange(1, examples + 1)
    weights = np.array([comb(examples, j) * prob**j * (1.0 - prob) ** (examples - j) for j in counts])
    none = (1.0 - prob) ** examples

    def part(column: float, output: Array) -> Array:
        shift = counts * column
        parts: Array = weights * np.exp(np.multiply.outer(output, shift) - shift**2 / 2.0)
        return parts.sum(axis=-1)

    first = np.linspace(-REACH, REACH + examples * columns[0], NODES)
    known = none**2 + part(columns[0], first)
    low, high = np.full(NODES, -1e3), np.full(NODES, 1e3)
    with np.errstate(over="ignore"):
        for _ in range(80):
            middle = 0.5 * (low + high)
            above = known + none * part(columns[1], middle) > exp(epsilon)
            low, high = np.where(above, low, middle), np.where(above, middle, high)
    tails = norm.sf(np.subtract.outer(low, counts * columns[1])) @ weights
    inner = (known - exp(epsilon)) * norm.sf(low) + none * tails
    return float(np.trapezoid(inner * norm.pdf(first), first))


def shared_delta() -> float:
    """A lower bound on the mechanism's delta(1): one example with NEIGHBOURS further users, each with another example.

    All gradients of those others are one unit vector, orthogonal to that of the example. If the example is sampled at
    step 1, all of them are left out at step 2; if not, each is in batch 2 with probability RATE * (1 - RATE). So an
    output near 0 at step 2 tells that the example was sampled, and the first output is then a plain Gaussian.
    """
    crowd = np.arange(NEIGHBOURS + 1)
    missing = float(binom.pmf(crowd, NEIGHBOURS, RATE * (1.0 - RATE)) @ norm.cdf(FAR - crowd))
    by_chance = (1.0 - RATE) * missing * norm.sf(HIGH)
    with_example = RATE * norm.cdf(FAR) * norm.sf(HIGH - 1.0) + by_chance
    with_ghost = RATE * norm.cdf(FAR) * norm.sf(HIGH) + by_chance
    return float(with_example - exp(1.0) * with_ghost)


def attribution_checks() -> list[Check]:
    """Theorem 6.1 for a user with fewer than k_u = 2 examples: shared with others, and not shared at all."""
    alone = float(norm.cdf(-0.5) - exp(1.0) * norm.cdf(-1.5))
    fewer, shared = pair_delta(0.5, 0.9, 1, (0.001, 1.0)), shared_delta()
    return [
        judge(
            f"Theorem 6.1: delta(1), q={RATE:g}, an example of {NEIGHBOURS + 1} users, against the pair of k_u=2",
            "<=",
            repr(pair_delta(1.0, RATE, 2)),
            upper=alone,
            lower=shared,
            why=f"delta(1) is at least {shared:.4g}, as those missing from batch 2 reveal that the example was sampled",
        ),
        judge(
            "Theorem 6.1: delta(0.5), q=0.9, C=diag(0.001, 1), a user with 1 example, against the pair of k_u=2",
            "<=",
            repr(pair_delta(0.5, 0.9, 2, (0.001, 1.0))),
            upper=fewer,
            lower=fewer,
            why="a second example may be sampled where it hardly matters and keep the first one out where it does",
        ),
    ]
