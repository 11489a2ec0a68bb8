"""The true profile of a small mixture of Gaussians against its noise, from the Gram matrix of its means.

Bins have equal weights; other mixtures (subset_oracle.py) give theirs. Shares nothing with the package: not its laws,
not its moments, not its Gram matrices.

``X = r + sum_i exp(a_i t + w_i)``: t is the coordinate of the noise along the sum of the means, and every ``a_i`` is
positive because the Gram matrix is non-negative; r is the weight of means that are 0. So X increases in t, ``X = c``
has at most one root, and given the other coordinates the expectations of ``(X - c)_+`` and ``(1 - c X)_+`` are sums of
normal distribution functions. What is left is a smooth integral over the other coordinates (principal axes of the
conditional covariance):

* over a grid, by the trapezoidal rule, which converges exponentially for such integrands, or by Gauss-Hermite nodes in
  the axes in which little happens; the error is estimated from two grids, which are shifted against each other by
  different fractions of the step in every axis, or have one more of the nodes of Gauss and Hermite;
* where the grid would be too large, by randomised quasi-Monte Carlo: ``REPLICATES`` independently scrambled Sobol
  nets, the remove direction sampled under the P of the means that move, where its integrand is from 0 to 1 - r. The
  error is ``DEVIATIONS`` standard errors of the replicates' mean, exceeded with probability 5e-9 if the replicates are
  normal (Student's law with 15 degrees of freedom); what an event so rare that no point has seen it could add is
  charged too. Seeds are fixed.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from math import erfc, exp, log, sqrt

import numpy as np
from numba import njit
from scipy.special import ndtri
from scipy.stats import qmc

MOST_POINTS = 25_000
"""Larger grids are left to quasi-Monte Carlo."""
TAIL = 7.0
"""Standard deviations at which grids end, around the means under P and under Q."""
SHIFTS = (0.37, 0.71, 0.19, 0.53)
REPLICATES, LOG2_POINTS, DEVIATIONS = 16, 11, 12.0
ROUNDING = 1e-10
"""Relative; the inner differences lose a few digits."""
TRUNCATION = 1e-11
"""More than the mass beyond ``TAIL`` in every axis."""
LITTLE = 0.5
"""Axes in which no log-ratio has a larger standard deviation have Gauss-Hermite nodes."""
MANY_AXES = 3
"""With more, there are fewer of these nodes in each."""
UNSEEN = 25.0
"""An event of probability ``UNSEEN / N`` is seen by none of N points with probability e^-25, so it may be missing."""


@dataclass(frozen=True)
class Truth:
    """delta at each epsilon, and how far it may be off. All of shape (number of epsilons,)."""

    remove: np.ndarray
    remove_error: np.ndarray
    add: np.ndarray
    add_error: np.ndarray


@njit(cache=True)
def root(a: np.ndarray, w: np.ndarray, level: float, right: float) -> float:
    """The t with ``log sum_i exp(a_i t + w_i) = level``: Newton from the right, where it converges monotonically.

    Of ``right`` it is known that t is not right of it; it may be infinite.
    """
    t = right
    for i in range(a.size):
        t = min(t, (level - w[i]) / a[i])
    for _ in range(100):
        top = -np.inf
        for i in range(a.size):
            top = max(top, a[i] * t + w[i])
        total = slope = 0.0
        for i in range(a.size):
            term = exp(a[i] * t + w[i] - top)
            total += term
            slope += a[i] * term
        change = (top + log(total) - level) * total / slope
        t -= change
        if change < 1e-13 * (1.0 + abs(t)):
            break
    return t


@njit(cache=True)
def inner(points: np.ndarray, a: np.ndarray, rest: float, epsilons: np.ndarray, adding: bool) -> np.ndarray:
    """Expectations over t at each point w (shape (points, b)): of ``(X - c)_+``, or of ``(1 - c X)_+`` if adding."""
    result = np.zeros((points.shape[0], epsilons.size))
    sign = -1.0 if adding else 1.0
    levels = np.exp(sign * epsilons) - rest
    falling = np.argsort(-levels)
    for p in range(points.shape[0]):
        w = points[p]
        whole = np.exp(w + 0.5 * a**2)
        t = np.inf
        for e in falling:
            c = exp(epsilons[e])
            if levels[e] <= 0.0:  # X > 1/c everywhere: adding gains nothing (removing, the level is positive)
                break
            t = root(a, w, log(levels[e]), t)
            # P(t' > t), or P(t' < t) if adding; then the same under each component's tilted law
            total = 0.5 * erfc(sign * t / sqrt(2.0)) * (1.0 - c * rest if adding else rest - c)
            for i in range(a.size):
                share = whole[i] * 0.5 * erfc(sign * (t - a[i]) / sqrt(2.0))
                total += -c * share if adding else share
            result[p, e] = max(total, 0.0)
    return result


@dataclass(frozen=True)
class Conditional:
    """The mixture given the noise along t: component i has slope ``a_i``, and ``w = axes z + offset``."""

    a: np.ndarray
    axes: np.ndarray
    """Shape (components, coordinates); z is standard normal under Q."""
    offset: np.ndarray
    weights: np.ndarray
    """Of the components whose means are not 0."""
    rest: float
    """Weight of the others."""


def truth(gram: np.ndarray, sigma: float, epsilons: np.ndarray, weights: np.ndarray | None = None) -> Truth:
    """The profiles of both directions at every epsilon, with their errors.

    Args:
        gram: inner products of the means, shape (components, components), non-negative.
        weights: of the components; equal if None.
    """
    weights = np.full(len(gram), 1.0 / len(gram)) if weights is None else weights
    moving = (weights > 0.0) & (gram.diagonal() > 0.0)
    rest = float(weights[(weights > 0.0) & ~moving].sum())
    cov, weights = gram[np.ix_(moving, moving)] / sigma**2, weights[moving]
    a = cov.sum(axis=0) / sqrt(cov.sum())
    values, vectors = np.linalg.eigh(cov - np.outer(a, a))
    used = np.argsort(values)[::-1][: len(a) - 1]
    used = used[values[used] > 1e-13 * cov.max()]
    axes = vectors[:, used] * np.sqrt(values[used])  # v = axes z
    mixture = Conditional(a, axes, np.log(weights) - 0.5 * cov.diagonal(), weights, rest)
    grids = [_grid(axes, shifted) for shifted in (False, True)]
    if max(np.prod([float(nodes.size) for nodes, _ in grid]) for grid in grids) <= MOST_POINTS:
        return _by_grids(mixture, grids, epsilons)
    return _by_simulation(mixture, epsilons)


Rule = tuple[np.ndarray, np.ndarray]
"""Nodes and weights of a rule for one coordinate."""


def _grid(axes: np.ndarray, shifted: bool) -> list[Rule]:
    """A rule for each coordinate, against the standard normal density."""
    rules = []
    for k in range(axes.shape[1]):
        furthest = float(np.abs(axes[:, k]).max())
        if furthest <= LITTLE:
            fewest = 10 if axes.shape[1] <= MANY_AXES else 8
            nodes, weights = np.polynomial.hermite_e.hermegauss(fewest + int(14.0 * furthest) + shifted)
            rules.append((nodes, weights / sqrt(2.0 * np.pi)))
        else:
            step, end = min(0.6, 1.1 / float(np.linalg.norm(axes[:, k]))), TAIL + furthest
            nodes = np.arange(-end, end + step, step) + shifted * step * SHIFTS[k % len(SHIFTS)]
            rules.append((nodes, np.exp(-0.5 * nodes**2) * step / sqrt(2.0 * np.pi)))
    return rules


def _by_grids(mixture: Conditional, grids: list[list[Rule]], epsilons: np.ndarray) -> Truth:
    results = []
    for adding in (False, True):
        sums = []
        for rules in grids:
            nodes = list(product(*(line for line, _ in rules)))
            z = np.array(nodes).reshape(len(nodes), len(rules))
            weights = reduce(np.multiply.outer, (share for _, share in rules), np.ones(())).ravel()
            points = z @ mixture.axes.T + mixture.offset
            sums.append(weights @ inner(points, mixture.a, mixture.rest, epsilons, adding))
        value = 0.5 * (sums[0] + sums[1])
        results += [value, 4.0 * np.abs(sums[0] - sums[1]) + ROUNDING * value + TRUNCATION]
    return Truth(*results)


@lru_cache(maxsize=8)
def _nets(dimension: int) -> np.ndarray:
    """Shape (replicates, points, dimension), strictly inside the unit cube."""
    nets = [
        qmc.Sobol(dimension, rng=np.random.default_rng(seed)).random_base2(LOG2_POINTS) for seed in range(REPLICATES)
    ]
    return np.clip(np.array(nets), 1e-12, 1.0 - 1e-12)


def _by_simulation(mixture: Conditional, epsilons: np.ndarray) -> Truth:
    axes = mixture.axes
    dimension = axes.shape[1]
    nets = _nets(dimension + 1)
    z = ndtri(nets[:, :, :dimension])
    variances = (axes**2).sum(axis=1)
    # Q: v = axes z. Removing, a component that moves shifts z by its row of axes; the integrand is divided by the ratio
    # of that density to Q's. As (X - c)_+ <= X - r and (1 - cX)_+ <= 1 - r, it is at most 1 - r in both directions.
    share = mixture.weights.sum()
    most = len(axes) - 1
    chosen = np.minimum(np.searchsorted(np.cumsum(mixture.weights), nets[:, :, dimension] * share, side="right"), most)
    results = []
    for adding in (False, True):
        v = (z if adding else z + axes[chosen]) @ axes.T
        flat = v.reshape(-1, len(axes))
        values = inner(flat + mixture.offset, mixture.a, mixture.rest, epsilons, adding)
        if not adding:
            values /= (np.exp(flat - 0.5 * variances) @ (mixture.weights / share))[:, None]
        means = values.reshape(REPLICATES, -1, epsilons.size).mean(axis=1)
        mean, error = means.mean(axis=0), means.std(axis=0, ddof=1) / sqrt(REPLICATES)
        results += [mean, DEVIATIONS * error + ROUNDING * mean + UNSEEN / flat.shape[0] * (1.0 - mixture.rest)]
    return Truth(*results)
