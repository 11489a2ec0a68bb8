"""The laws of proposals of b-min-sep by enumeration of all tuples of participations."""

from collections import defaultdict
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from renewal_oracle import log_ratio, participations

from hockeystick.moments.copies.renewal import Renewal
from hockeystick.monte_carlo.renewal.kernels import Recursion, correlate, sum_logs, workspace
from hockeystick.monte_carlo.renewal.proposal_kernels import log_densities as log_densities_at
from hockeystick.monte_carlo.renewal.proposals import (
    CopiesProposal,
    OrderProposal,
    TiltedProposal,
)
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.types import Direction

Array = NDArray[np.float64]
Law = tuple[Array, Array]  # weights, shape (m,), and shift vectors, shape (m, n)


def matrix(steps: int, bands: int, seed: int) -> Array:
    """Non-negative, lower triangular, with this many diagonals and no other structure."""
    full = np.random.default_rng(seed).uniform(0.2, 1.2, (steps, steps))
    return np.asarray(np.tril(full) - np.tril(full, -bands))


def pair_of(steps: int, bands: int, min_sep: int, prob: float, warm: bool, sigma: float, seed: int) -> RenewalMixture:
    return RenewalMixture(
        noise_multiplier=sigma,
        matrix=DenseMatrix(matrix(steps, bands, seed)),
        min_sep=min_sep,
        participation_prob=prob,
        warm_start=warm,
    )


def renewal_of(pair: RenewalMixture) -> Renewal:
    return Renewal(
        columns=pair.columns / pair.noise_multiplier,
        min_sep=pair.min_sep,
        prob=pair.participation_prob,
        warm=pair.warm_start,
        chances=pair.participation_prob * pair.availability,
    )


def log_terms(law: Recursion, products: Array) -> Array:
    """The logarithms of what a participation at each step multiplies a density by."""
    kinds = [
        times * (products - law.shifts) - times**2 * law.half_squares + weight
        for times, weight in zip(law.times, law.log_weights, strict=True)
    ]
    return np.asarray(np.logaddexp.reduce(kinds, axis=0))


def log_densities(proposal: TiltedProposal, outputs: Array, in_logs: bool = False) -> tuple[Array, Array]:
    """log X and the proposal's log-density relative to Q at outputs in units of the noise, shape (m, n).

    With ``in_logs`` from recursions in logarithms, whatever the outputs.
    """
    laws = proposal.densities
    share, mixed, work = proposal.share, proposal.share < 1.0, workspace(laws[0])
    densities = np.full((outputs.shape[0], 3), -np.inf)
    for row, out in zip(outputs, densities, strict=True):
        padded = np.append(row, np.zeros(laws[0].taps.shape[0]))
        if in_logs:
            correlate(padded, laws[0].taps, work.products)
            out[:] = [sum_logs(law, log_terms(law, work.products), work.values) for law in laws]
        else:
            log_densities_at(padded, laws, mixed, work, out)
    tilted = proposal.order * densities[:, 1] - proposal.table.log_moment
    return densities[:, 0], np.logaddexp(
        np.log(share) + tilted, np.log1p(-share) + densities[:, 2]
    ) if mixed else tilted


def order_proposal(pair: RenewalMixture, order: int, separation: int, share: float, rate: float = 0.3) -> OrderProposal:
    return OrderProposal(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        separation=separation,
        share=share,
        rate=rate,
        shift=2.5,
        far=0.7,
    )


def copies_proposal(pair: RenewalMixture, order: int, separation: int, share: float) -> CopiesProposal:
    return CopiesProposal(
        direction=Direction.REMOVE, pair=pair, order=order, separation=separation, share=share, reach=4, cap=3
    )


Maker = Callable[[RenewalMixture, int, int, float], TiltedProposal]


def relaxed_law(pair: RenewalMixture, separation: int) -> Law:
    """All paths of the recursion with fewer blocked steps, ``q (1-q)^-(steps not blocked)`` each; by its definition."""
    n, b, q = pair.matrix.steps, pair.min_sep, pair.participation_prob
    law: dict[tuple[int, ...], float] = defaultdict(float)

    def follow(step: int, weight: float, past: tuple[int, ...]) -> None:
        if step >= n:
            law[past[:n]] += weight
            return
        follow(step + 1, weight * (1 - q), (*past, 0))
        free = sum(1 for later in range(step + separation, step + b) if later < n)
        follow(step + separation, weight * q * (1 - q) ** -free, (*past, 1, *[0] * (separation - 1)))

    for first in range(b if pair.warm_start else 1):
        chance = (q if first else 1.0) / (1 + (b - 1) * q) if pair.warm_start else 1.0
        start = min(first, separation - 1)
        free = sum(1 for step in range(start, first) if step < n)
        follow(start, chance * (1 - q) ** -free, (0,) * start)
    return np.array(list(law.values())), np.array(list(law), dtype=float)


def exact_law(pair: RenewalMixture) -> Law:
    return participations(pair.matrix.steps, pair.min_sep, pair.participation_prob, pair.warm_start)


def copies_law(pair: RenewalMixture, order: int, separation: int) -> tuple[Law, float]:
    """The law of the sum of a tuple's participations, weights ``prod w e^(sum of inner products)``; and their sum Z."""
    weights, vectors = relaxed_law(pair, separation)
    means = vectors @ pair.matrix.materialize().T / pair.noise_multiplier
    inner = means @ means.T
    which = np.indices((weights.size,) * order).reshape(order, -1)
    exponents = sum(inner[which[k], which[j]] for k in range(order) for j in range(k))
    products = weights[which].prod(axis=0) * np.exp(exponents)
    sums, place = np.unique(vectors[which].sum(axis=0), axis=0, return_inverse=True)
    return (np.bincount(place.ravel(), products) / products.sum(), sums), float(products.sum())


def chain_law(pair: RenewalMixture, proposal: TiltedProposal) -> Law:
    """Cold participations at the chain's own rate and distance, each with one of its shifts."""
    rate, kinds, shares = proposal.chain
    assert float(np.sum(shares)) == pytest.approx(1.0, abs=1e-12)
    weights, shifts = [], []
    for weight, vector in zip(*participations(pair.matrix.steps, proposal.gap, rate, False), strict=True):
        places = np.flatnonzero(vector)
        for which in product(range(kinds.size), repeat=places.size):
            shift = np.zeros(vector.size)
            shift[places] = kinds[list(which)]
            weights.append(weight * np.prod(shares[list(which)]))
            shifts.append(shift)
    return np.array(weights), np.array(shifts)


def proposal_law(proposal: TiltedProposal) -> Law:
    """The mixture of shifts that the proposal should draw, by enumeration."""
    first, _ = copies_law(proposal.pair, proposal.order, proposal.separation)
    second = chain_law(proposal.pair, proposal)
    weights = np.concatenate([proposal.share * first[0], (1.0 - proposal.share) * second[0]])
    return weights, np.concatenate([first[1], second[1]])


def log_ratio_of(pair: RenewalMixture, outputs: Array, law: Law) -> Array:
    """Of outputs in units of the noise."""
    return log_ratio(outputs, pair.matrix.materialize() / pair.noise_multiplier, *law, 1.0)


def lattice(dimension: int, reach: float, points: int) -> tuple[Array, Array]:
    """Points of a cube and the standard normal density times the volume of a cell at each."""
    axis = np.linspace(-reach, reach, points)
    outputs = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    cell = (axis[1] - axis[0]) ** dimension
    return outputs, np.exp(-0.5 * (outputs**2).sum(axis=1)) / (2 * np.pi) ** (0.5 * dimension) * cell
