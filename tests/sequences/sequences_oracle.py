"""Profiles of a few bins by quadrature, and covariances of many, for the tests of the sequences."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from hockeystick.laws.law import Array

EPSILONS = (0.0, 0.1, 0.4, 1.0, 1.8)
POINTS = np.linspace(-9.0, 11.0, 500)


def truth(covariance: Array, points: Array = POINTS, epsilons: Sequence[float] = EPSILONS) -> Array:
    """Both profiles of a few bins, shape (2, epsilons): one bin in closed form, the others by quadrature."""
    others = len(covariance) - 1
    factor = np.linalg.cholesky(covariance)
    weights = np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi) * (points[1] - points[0])
    grids = np.meshgrid(*[points] * others, indexing="ij")
    mass = np.prod(np.meshgrid(*[weights] * others, indexing="ij"), axis=0).ravel()
    e = np.stack([grid.ravel() for grid in grids])
    z = factor[:others, :others] @ e
    known = np.exp(z - 0.5 * covariance.diagonal()[:others, None]).sum(axis=0) / (others + 1)
    own = factor[others, others]
    mean = np.exp(factor[others, :others] @ e - 0.5 * (covariance[others, others] - own**2)) / (others + 1)
    deltas = []
    for epsilon in epsilons:
        rest = np.exp(epsilon) - known
        safe = np.maximum(rest, 1e-300)
        d = np.log(mean / safe) / own
        call = np.where(rest > 0.0, mean * ndtr(d + 0.5 * own) - safe * ndtr(d - 0.5 * own), mean - rest)
        rest = np.exp(-epsilon) - known
        safe = np.maximum(rest, 1e-300)
        d = np.log(mean / safe) / own
        put = np.where(rest > 0.0, safe * ndtr(0.5 * own - d) - mean * ndtr(-0.5 * own - d), 0.0)
        deltas.append([float(mass @ call), float(mass @ put) * np.exp(epsilon)])
    return np.array(deltas).T


def covariance_of(columns: Array, bins: int) -> Array:
    """Of bins whose columns are cut off at the end."""
    c = np.zeros((bins, bins))
    for place in range(bins):
        few = min(columns.size, bins - place)
        c[place : place + few, place] = columns[:few]
    return c.T @ c


def epsilon_at(covariance: Array, delta: float) -> float:
    """The epsilon at which the remove direction of a few bins has this delta, by bisection of the quadrature."""
    low, high = 0.0, 20.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if truth(covariance, epsilons=(middle,))[0, 0] > delta:
            low = middle
        else:
            high = middle
    return high
