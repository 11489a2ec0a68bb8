"""Chains with a state of three numbers whose covariance reveals more than that of the bins, with few states.

A linear programme finds the covariance at all lags, of white noise beside one pole and a pair of conjugate ones. Of all
states that show it, those are taken whose lattice has fewest points, and of all ways to write such a state as three
numbers one in which they can be drawn one after the other. Whether the chain is comparable is checked afterwards.

Proof: docs/theory/hidden-chains.md, sections 1 and 8.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.comparable_chain import (
    FREQUENCIES,
    MOST_CHANGE,
    MOST_SHARED_LAGS,
    NEGLIGIBLE,
    ROUNDS,
    TYPICAL,
    adjusted,
    loss_of,
    semidefinite,
    typical_covariances,
)
from hockeystick.sequences.coordinate_chain import CoordinateChain
from hockeystick.types import Side

POLES, RADII, ANGLES = (0.5, 0.65, 0.8, 0.9), (0.6, 0.7, 0.8, 0.87), (0.1, 0.2, 0.3, 0.45, 0.65)
"""Of the pole, and of the pair: where the search begins."""
REFINED, MOST_RADIUS, HOPE = 60, 0.97, 0.01
"""Programmes for poles between those; the largest size of a pole; what they may gain."""
LEAST_WHITE = (0.15, 0.08)
"""Of the variance, tried one after the other: more white noise makes coarser lattices."""
LEAST_SPECTRUM = 0.01
"""Of what is seen of the state, as a share of the variance: where it vanishes a state has but one innovation."""
SPECTRUM_LAGS = 400
MOST_CROWDING = 2.0
"""Of chances on the lattice: where they may exceed the density by more, too many states would have to be kept."""
TRIES, SEED = 6, 0
"""Of bases."""
EXACT, STEADY, MOST_CONDITION = 1e-20, 0.999, 30.0
"""Sum of squares below which a basis is one in which numbers can be drawn one after the other; the largest norm of a
step, and the largest condition of a basis: beyond them the covariance of the state is less sure than it has to be."""


def coordinate_chain(
    covariance: Array,
    error: float,
    weights: Array,
    affordable: Callable[[CoordinateChain], bool],
    most_loss: float,
    deadline: Deadline,
) -> CoordinateChain | None:
    """The best of some chains, proved to reveal more, if it loses less than ``most_loss`` of epsilon, as estimated.

    Other arguments as for :func:`..comparable_chain.comparable_chain`.
    """
    variance = float(covariance.diagonal().max())
    typical = typical_covariances(covariance / variance, TYPICAL)
    best: CoordinateChain | None = None
    for white in LEAST_WHITE:
        programme = Programme(typical, variance, weights, white)

        def loss(at: Array, rounds: int = ROUNDS, programme: Programme = programme) -> float:
            deadline.tick()
            found = programme.solved(_inside(at), rounds)
            return np.inf if found is None else found[0]

        first = min(product(POLES, RADII, ANGLES), key=lambda poles: loss(np.array(poles), 1))
        if not loss(np.array(first)) <= most_loss + HOPE:
            continue
        poles = _inside(_least(loss, np.array(first), {"maxfev": REFINED, "xatol": 1e-3}))
        fitted = programme.solved(poles)
        if fitted is None or not fitted[0] <= most_loss:
            continue
        try:
            chain = _realised(poles, fitted[1], len(covariance), float(np.sqrt(variance)))
            if chain is None or not chain.crowding <= MOST_CROWDING or not affordable(chain):
                continue
        except np.linalg.LinAlgError:  # too close to singular to be computed
            continue
        shared = variance * semidefinite(fitted[2])
        for negligible in NEGLIGIBLE:
            compared = adjusted(chain, covariance, error, Side.UPPER, deadline, typical * variance, shared, negligible)
            if compared is None or not affordable(compared):
                continue
            lost = loss_of(compared, covariance, Side.UPPER, weights)
            if lost < most_loss:
                best, most_loss = compared, lost
        if fitted[1][0] > 1.01 * white:
            break  # less would do nothing
    return best


def _least(function: Callable[[Array], float], start: Array, options: dict[str, Any]) -> Array:
    from scipy.optimize import minimize

    search: Any = minimize  # its types know no dictionaries of options
    return np.asarray(search(function, start, method="Nelder-Mead", options=options).x, dtype=np.float64)


def _inside(at: Array) -> Array:
    return np.clip(at, 0.01, [MOST_RADIUS, MOST_RADIUS, 3.0])


class Programme:
    """Linear programmes for the covariance of a chain from above, one for each choice of poles."""

    def __init__(self, typical: Array, variance: float, weights: Array, white: float) -> None:
        self.typical, self.variance, self.weights, self.white = typical, variance, weights, white
        lags = np.arange(SPECTRUM_LAGS)
        frequencies = np.linspace(0.0, np.pi, FREQUENCIES)
        self.cosines = np.where(lags == 0, 1.0, 2.0) * np.cos(np.outer(frequencies, lags))
        self.short = min(typical.size, MOST_SHARED_LAGS)
        places, own = np.linspace(0.0, np.pi, 2 * self.short + 1), np.arange(self.short)
        self.shared = np.cos(np.outer(places, own)) * np.where(own == 0, 1.0, 2.0)

    def solved(self, poles: Array, rounds: int = ROUNDS) -> tuple[float, Array, Array] | None:
        """About the loss; white noise and the amounts of the three sequences; a semidefinite part of the difference."""
        from scipy.optimize import linprog

        lags, bins, short = self.typical.size, self.weights.size, self.short
        basis = _sequences(poles, max(bins, SPECTRUM_LAGS))
        unknowns = np.vstack([np.eye(1, bins), basis[:, :bins]])
        spectrum = self.cosines @ basis[:, :SPECTRUM_LAGS].T
        below = np.hstack([-unknowns[:, :lags].T, np.eye(lags, short)])
        positive = np.hstack([np.zeros((FREQUENCIES, 1)), -spectrum, np.zeros((FREQUENCIES, short))])
        definite = np.hstack([np.zeros((len(self.shared), 4)), -self.shared])
        least, growth, best = np.inf, np.ones(bins), None
        for _ in range(rounds):
            result = linprog(
                np.concatenate([unknowns @ (self.weights * growth), np.zeros(short)]),
                A_ub=np.vstack([below, positive, definite]),
                b_ub=np.concatenate([-self.typical, np.full(FREQUENCIES, -LEAST_SPECTRUM), np.zeros(len(self.shared))]),
                bounds=[(self.white, None)] + [(None, None)] * (3 + short),
            )
            if result.status != 0:
                break
            shares = np.asarray(result.x, dtype=np.float64)
            change = unknowns.T @ shares[:4]
            change[:lags] -= self.typical
            change = np.minimum(self.variance * np.where(np.abs(change) > 1e-6, change, 1e-6), MOST_CHANGE)
            loss = float(self.weights @ np.expm1(change))
            if loss < least:
                least, best = loss, (loss, shares[:4], shares[4:])
            growth = np.expm1(change) / change
        return best


def _sequences(poles: Array, lags: int) -> Array:
    (pole, radius, angle), powers = poles, np.arange(lags)
    turning = (radius * np.exp(1j * angle)) ** powers
    return np.array([pole**powers, turning.real, turning.imag])


def _realised(poles: Array, shares: Array, bins: int, gain: float) -> CoordinateChain | None:
    """The chain with these covariances that has fewest states."""
    pole, radius, angle = (float(one) for one in poles)
    real, imaginary = radius * np.cos(angle), radius * np.sin(angle)
    step = np.array([[pole, 0.0, 0.0], [0.0, real, imaginary], [0.0, -imaginary, real]])
    seen, shown = np.array([1.0, 1.0, 0.0]), shares[1:]
    covariance = _roomiest(step, seen, shown)
    if covariance is None:
        return None
    root = np.linalg.cholesky(covariance)
    white_step = np.linalg.solve(root, step @ root)
    basis = _basis(white_step)
    if basis is None or not float(np.linalg.norm(white_step, 2)) < STEADY:
        return None
    coefficients, variances, places = basis
    return CoordinateChain(
        coefficients,
        variances,
        np.linalg.solve(places.T, root.T @ seen),
        float(np.sqrt(shares[0])),
        np.full(bins, gain),
    )


def _roomiest(step: Array, seen: Array, shown: Array) -> Array | None:
    """The covariance C of a state with ``C seen = shown`` that makes ``det C / det(C - step C step^T)`` least."""
    rows, columns = np.triu_indices(3)
    units = []
    for i, j in zip(rows, columns, strict=True):
        unit = np.zeros((3, 3))
        unit[i, j] = unit[j, i] = 1.0
        units.append(unit)
    given = np.array([unit @ seen for unit in units]).T
    some = np.linalg.lstsq(given, shown)[0]
    free = np.linalg.svd(given)[2][3:]

    def covariance(at: Array) -> Array:
        return np.asarray(np.tensordot(some + at @ free, units, 1))

    def least(at: Array) -> float:
        found = covariance(at)
        return float(np.linalg.eigvalsh(found - step @ found @ step.T)[0])

    def states(at: Array) -> float:
        if least(at) <= 0.0:
            return 1e3
        found = covariance(at)
        return float(np.linalg.slogdet(found)[1] - np.linalg.slogdet(found - step @ found @ step.T)[1])

    fine = {"maxiter": 3000, "xatol": 1e-9, "fatol": 1e-12}
    at, width = np.zeros(3), float(np.abs(shown).max())
    for _ in range(3):
        corners = np.vstack([at, at + width * np.eye(3)])
        at = _least(lambda at: -least(at), at, {**fine, "initial_simplex": corners})
    if least(at) <= 0.0:
        return None
    for _ in range(3):
        at = _least(states, at, fine)
    return covariance(at)


def _basis(step: Array) -> tuple[Array, Array, Array] | None:
    """Coefficients and variances of draws, and the numbers as rows, for a state of unit covariance with this step."""
    from scipy.optimize import least_squares

    n, rng = len(step), np.random.default_rng(SEED)
    best = None

    def joint(places: Array) -> Array:
        own, across = places @ places.T, places @ step @ places.T
        return np.block([[own, across.T], [across, own]])

    def regression(whole: Array, number: int, known: list[int]) -> tuple[Array, float]:
        row = whole[known, n + number]
        found = np.linalg.solve(whole[np.ix_(known, known)], row)
        return np.asarray(found, dtype=np.float64), float(whole[n + number, n + number] - row @ found)

    def excess(at: Array) -> Array:
        """What draws depend on of values that are replaced already; and lengths."""
        whole = joint(at.reshape(n, n))
        found: list[float] = []
        for number in range(1, n):
            found.extend(regression(whole, number, [*range(n), *range(n, n + number)])[0][:number])
        return np.array([*found, *((at.reshape(n, n) ** 2).sum(axis=1) - 1.0)])

    for _ in range(TRIES):
        start = np.linalg.qr(rng.standard_normal((n, n)))[0]
        try:
            found = least_squares(excess, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200)
        except np.linalg.LinAlgError:
            continue
        places = found.x.reshape(n, n)
        condition = float(np.linalg.cond(places))
        if found.cost > EXACT or condition > (MOST_CONDITION if best is None else best[0]):
            continue
        whole = joint(places)
        draws = [regression(whole, number, [*range(n, n + number), *range(number, n)]) for number in range(n)]
        best = condition, np.array([row for row, _ in draws]), np.array([one for _, one in draws]), places
    return None if best is None or not best[2].min() > 0.0 else best[1:]
