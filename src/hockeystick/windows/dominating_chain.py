"""Gauss-Markov chains that reveal more than C does, one for each window of steps.

Columns with the inner products K in place of ``G = C^T C`` reveal at least as much whenever K - G is positive
semidefinite: they are those of C with further rows below. K is zero between windows, so the windows become independent,
and ``K_ij = size scales_i scales_j rho^|i-j|`` inside them. Whether K - G is positive semidefinite is decided by a
Cholesky factorisation with room for its rounding; which rho and scales are tried only decides how good the bound is.

Proof: docs/theory/separated-windows.md. Cost: some thousand banded factorisations of a few windows, ten of all steps.
"""

from contextlib import suppress
from dataclasses import dataclass
from math import log

import numpy as np
from scipy.linalg import LinAlgError, cholesky_banded

from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.windows.participation_chances import weights_of

ROOM = 1e-9
"""Share of the largest diagonal entry that is kept beyond the proved rounding of the factorisation."""
TRIED = 90
"""Shapes that are tried for one level of noise."""
FITTED_WINDOWS = 4
BISECTIONS = 12
FREED_WINDOWS, FREED_TRIED = 3, 100
"""Windows to which all scales are fitted, and rounds of that."""
SHARPNESS = 2000.0
"""Sharpness of the soft maximum of eigenvalues, relative to the largest."""
FARTHEST = 20.0
"""Largest logarithms of scales, and of the odds of a correlation, in that search: exp does not overflow."""


@dataclass(frozen=True)
class DominatingChain:
    """The columns of one window: ``z_i = scales[i] s_i``, s a chain of unit variance and correlation rho.

    Attributes:
        scales: shape (w,), in the unit of C.
        correlation: rho in [0, 1).
    """

    scales: Array
    correlation: float

    @property
    def products(self) -> Array:
        """The inner products of a window's columns, shape (w, w)."""
        places = np.arange(self.scales.size)
        lags = np.abs(np.subtract.outer(places, places))
        return np.multiply.outer(self.scales, self.scales) * self.correlation**lags

    def second_moment(self, sigma: float, prob: float | Array) -> float:
        """The variance of the window's ratio at this noise; only compares chains."""
        weights = weights_of(prob, self.scales.size)
        return float(weights @ np.expm1(np.minimum(self.products / sigma**2, 500.0)) @ weights)


def gram_band(columns: Array, width: int) -> Array:
    """``G[i + l, i]`` at ``[l, i]``, shape (width, n), for ``columns[i, d] = C[i + d, i]``; zero beyond the end."""
    n, bands = columns.shape
    band = np.zeros((width, n))
    for lag in range(min(width, bands, n)):
        band[lag, : n - lag] = np.einsum("id,id->i", columns[: n - lag, lag:], columns[lag:, : bands - lag])
    return band


def fitted_columns(steps: int, bands: int, size: int) -> int:
    """Columns to which a shape is fitted, for so many diagonals of inner products and steps of a window."""
    return min(steps, max(FITTED_WINDOWS * size, 2 * bands))


def dominating_chain(
    gram: Array, size: int, sigma: float, prob: float | Array, rounding: float, deadline: Deadline
) -> DominatingChain:
    """A chain for windows of ``size`` steps whose columns reveal at least as much as those of C, good at this noise.

    Args:
        gram: at least as many diagonals as C has bands and a window has steps, as :func:`gram_band` gives them.
        sigma: the noise for which the shape is chosen.
        prob: the chance of an available step, for all of them or shape (size,).
        rounding: proved relative error of the entries of ``gram``.

    Raises: LinAlgError when no multiple of the shape is large enough, which rounding alone can cause;
        BudgetExceededError when the deadline passes.
    """
    from scipy.optimize import minimize

    few = gram[:, : fitted_columns(gram.shape[1], gram.shape[0], size)]

    def chain(shape: Array) -> DominatingChain:
        return DominatingChain(scales_of(shape[1:], size), 1.0 / (1.0 + np.exp(-shape[0])))

    def score(shape: Array) -> float:
        deadline.tick()
        tried = chain(shape)
        return float(np.log(long_enough(tried, few, rounding, 6).second_moment(sigma, prob)))

    if gram.shape[0] == 1 or not gram[1:].any():
        return long_enough(DominatingChain(np.ones(size), 0.0), gram, rounding, BISECTIONS)
    start = np.array([-0.3, 0.15, 0.3, 1.0])
    formula = chain(minimize(score, start, method="Nelder-Mead", options={"maxfev": TRIED}).x)
    raised = [long_enough(formula, gram, rounding, BISECTIONS)]
    free = _freed(formula, few, sigma, prob, deadline)
    deadline.tick()
    # Scales of too many sizes leave no room for rounding; then those of the formula are kept.
    with suppress(LinAlgError):
        raised.append(long_enough(free, gram, rounding, BISECTIONS))
    return min(raised, key=lambda candidate: candidate.second_moment(sigma, prob))


def scales_of(shape: Array, size: int) -> Array:
    """Scales of a window by a formula: how much longer the first and the last columns are, and how fast that fades."""
    edges = np.exp(-np.abs(shape[2]) * np.arange(size))
    scales: Array = (1.0 + abs(shape[0]) * edges) * (1.0 + abs(shape[1]) * edges[::-1])
    return scales


def _freed(
    chain: DominatingChain, gram: Array, sigma: float, prob: float | Array, deadline: Deadline
) -> DominatingChain:
    """The chain with scales that follow no formula: a search for the smallest variance from those that do.

    How much the columns have to be longer is about the largest eigenvalue of G relative to the chain's inner products,
    in a few windows; a soft maximum of the eigenvalues has a gradient.
    """
    from scipy.optimize import minimize

    size, steps = chain.scales.size, gram.shape[1]
    windows = max(min(FREED_WINDOWS, steps // size), 1)
    products = np.zeros((windows * size, windows * size))
    count = min(windows * size, steps)
    for lag in range(min(gram.shape[0], count)):
        places = np.arange(count - lag)
        products[places + lag, places] = products[places, places + lag] = gram[lag, places]
    lags = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    weights = weights_of(prob, size)

    def score(shape: Array) -> tuple[float, Array]:
        deadline.tick()
        rho = 1.0 / (1.0 + np.exp(-shape[size]))
        inside = np.exp(np.add.outer(shape[:size], shape[:size])) * rho**lags
        inverse = np.linalg.inv(np.linalg.cholesky(inside))
        split = inverse @ products.reshape(windows, size, windows, size).transpose(0, 2, 1, 3) @ inverse.T
        values, vectors = np.linalg.eigh(split.transpose(0, 2, 1, 3).reshape(products.shape))
        soft = np.exp(SHARPNESS * (values / values[-1] - 1.0))
        largest = values[-1] * (1.0 + np.log(soft.sum()) / SHARPNESS)
        back = inverse.T @ vectors.reshape(windows, size, -1)
        slopes = -((back * (soft / soft.sum() * values)) @ back.transpose(0, 2, 1)).sum(axis=0)  # of the eigenvalue
        raised = np.minimum(largest * inside / sigma**2, 300.0)
        moment = float(weights @ np.expm1(raised) @ weights)
        gains = np.outer(weights, weights) * np.exp(raised) / (sigma**2 * moment)
        both = inside * (largest * gains + float((gains * inside).sum()) * slopes)
        return log(moment), np.append(2.0 * both.sum(axis=1), (1.0 - rho) * float((lags * both).sum()))

    rho = min(max(chain.correlation, 1e-6), 1.0 - 1e-6)
    start = np.append(np.log(chain.scales / chain.scales.max()), log(rho / (1.0 - rho)))
    bounds = [(-FARTHEST, FARTHEST)] * start.size
    try:
        free = minimize(score, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": FREED_TRIED}).x
    except LinAlgError:  # neighbours that are nearly one
        return chain
    return DominatingChain(np.exp(free[:size]), float(1.0 / (1.0 + np.exp(-free[size]))))


def long_enough(chain: DominatingChain, gram: Array, rounding: float, bisections: int = BISECTIONS) -> DominatingChain:
    """The chain with all columns as much longer, or shorter, as is needed; raises LinAlgError where nothing is."""
    n, size = gram.shape[1], chain.scales.size
    shape = in_band(chain, np.ones(-(-n // size)), gram.shape, -n % size)
    most = float(np.max(np.abs(gram).sum(axis=0)) + np.max(np.abs(gram[1:]).sum(axis=0), initial=0.0))
    low, high = float(np.max(gram[0] / shape[0])), most / float(shape[0].min()) * (1.0 + 1e-6)
    while not is_positive(high * shape - gram, high * shape, rounding):
        high *= 2.0
        if not high < 1e12 * most:
            raise LinAlgError("no chain dominates")
    for _ in range(bisections):
        middle = float(np.sqrt(low * high))
        if is_positive(middle * shape - gram, middle * shape, rounding):
            high = middle
        else:
            low = middle
    return DominatingChain(chain.scales * np.sqrt(high) * (1.0 + 4.0 * UNIT_ROUNDOFF), chain.correlation)


def in_band(chain: DominatingChain, levels: Array, shape: tuple[int, ...], skipped: int = 0) -> Array:
    """The inner products of windows, zero between them, each times its level, in the layout of :func:`gram_band`.

    Without the first ``skipped`` steps; the last window may be short.
    """
    width, n = shape
    band, size, products = np.zeros(shape), chain.scales.size, chain.products
    for lag in range(min(width, size)):
        diagonal = np.zeros(size)
        diagonal[: size - lag] = np.diagonal(products, lag)
        band[lag] = np.multiply.outer(levels, diagonal).ravel()[skipped : skipped + n]
        band[lag, n - lag :] = 0.0
    return band


def is_positive(difference: Array, minuend: Array, rounding: float) -> bool:
    """Whether the symmetric matrix with this band is proved to be positive semidefinite.

    The entries are off by at most ``rounding`` and some roundings of the minuend and subtrahend, in at most 2 width - 1
    places of a row; a factorisation that succeeds is that of a matrix within ``(width + 2) u`` of the diagonal, entry
    by entry (Higham 2002, Theorem 10.3). Both together are taken off the diagonal first.
    """
    width = difference.shape[0]
    largest = float(minuend[0].max())
    room = (ROOM + 2.0 * width * (2.0 * rounding + (3.0 * width + 32.0) * UNIT_ROUNDOFF)) * largest
    shifted = difference.copy()
    shifted[0] -= room
    try:
        cholesky_banded(shifted, lower=True, overwrite_ab=True, check_finite=True)
    except (LinAlgError, ValueError):
        return False
    return True
