"""Gauss-Markov chains that reveal more than C does, one for each window of steps.

Columns with the inner products K in place of ``G = C^T C`` reveal at least as much whenever K - G is positive
semidefinite: they are those of C with further rows below. K is zero between windows, so the windows become independent,
and ``K_ij = size scales_i scales_j rho^|i-j|`` inside them. Whether K - G is positive semidefinite is decided by a
Cholesky factorisation with room for its rounding; which rho and scales are tried only decides how good the bound is.

Proof: docs/theory/separated-windows.md. Cost: some ten thousand banded products with vectors of a few windows, for each
shape that is kept a hundred of at most ``SEARCHED`` steps, and some banded factorisations of all steps.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, log

import numpy as np
from scipy.linalg import LinAlgError, cholesky_banded

from hockeystick.deadline import Deadline
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.windows.participation_chances import weights_of
from hockeystick.windows.relative_eigenvalue import largest_relative

ROOM = 1e-9
"""Share of the largest diagonal entry that is kept beyond the proved rounding of the factorisation."""
TRIED = 120
"""Shapes that are tried for one level of noise."""
FITTED_WINDOWS = 4
ACCURACY = 1e-5
"""Relative accuracy of the squared lengths that a shape needs."""
CLOSEST, FARTHER, FARTHEST_ROOM = 2e-9, 8.0, 1e6
"""Share of the largest eigenvalue by which these exceed it at first, how many times as much after each failure, and
from where on no multiple is thought to be large enough."""
ROUGH, CLOSE = (10, 3e-3), (24, 1e-4)
"""Vectors and tolerance of the search for that eigenvalue, while shapes are compared and for the last one."""
ROUNDS, SEARCHED = 8, 20_000
"""Rounds of that search, and columns that it looks at: the first of more, which need hardly less than all."""
FREED_WINDOWS, FREED_STEPS, FREED_TRIED = 3, 48, 100
"""Windows to which all scales are fitted, more of them up to so many steps; and rounds of that."""
SHARPNESS = (2000.0, 20_000.0)
"""Sharpness of the soft maxima of eigenvalues, relative to the largest, one search after the other."""
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

    about = about_needed(gram[:, : fitted_columns(gram.shape[1], gram.shape[0], size)], size, *ROUGH)

    def chain(shape: Array) -> DominatingChain:
        return DominatingChain(scales_of(shape[1:], size), 1.0 / (1.0 + np.exp(-shape[0])))

    def score(shape: Array) -> float:
        deadline.tick()
        tried = chain(shape)
        longer = replace(tried, scales=tried.scales * np.sqrt(about(tried)))
        return float(np.log(longer.second_moment(sigma, prob)))

    if not gram[1:].any():
        return long_enough(DominatingChain(np.ones(size), 0.0), gram, rounding)
    start = np.array([-0.3, 0.15, 0.3, 1.0])
    formula = chain(minimize(score, start, method="Nelder-Mead", options={"maxfev": TRIED}).x)
    return polished(long_enough(formula, gram, rounding), gram, sigma, prob, rounding, deadline)


def polished(
    chain: DominatingChain, gram: Array, sigma: float, prob: float | Array, rounding: float, deadline: Deadline
) -> DominatingChain:
    """The best of a chain that dominates and those whose scales, found from it, follow no formula."""
    size = chain.scales.size
    if not gram[1:].any():
        return chain
    candidates = [chain]
    for few in few_windows(gram, size):
        free = freed(chain, few, sigma, weights_of(prob, size), deadline)
        deadline.tick()
        with suppress(LinAlgError):  # scales of too many sizes leave no room for rounding
            candidates.append(long_enough(free, gram, rounding))
    return min(candidates, key=lambda candidate: candidate.second_moment(sigma, prob))


def scales_of(shape: Array, size: int) -> Array:
    """Scales of a window by a formula: how much longer the first and the last columns are, and how fast that fades."""
    edges = np.exp(-np.abs(shape[2]) * np.arange(size))
    scales: Array = (1.0 + abs(shape[0]) * edges) * (1.0 + abs(shape[1]) * edges[::-1])
    return scales


def few_windows(gram: Array, size: int) -> list[Array]:
    """Inner products of the columns of a few windows, of shape (parts, n, n) for n steps, that shapes can be fitted to.

    They are those of all windows, where these are short and few. Of many there is one in the middle, as if C went on
    for ever: vectors that are alike in all windows meet the sum of the inner products with all of them, and vectors of
    changing sign another sum. The first windows come before it where they are different.

    Args:
        gram: as :func:`gram_band` gives them.
    """
    steps = gram.shape[1]
    windows, most = -(-steps // size), max(FREED_WINDOWS, FREED_STEPS // size)
    first = np.zeros((1, min(windows, most) * size, min(windows, most) * size))
    skipped = -steps % size if windows <= most else 0  # the last window is whole
    count = first.shape[1] - skipped
    for lag in range(min(gram.shape[0], count)):
        columns = np.arange(count - lag) + skipped
        first[0, columns + lag, columns] = first[0, columns, columns + lag] = gram[lag, : count - lag]
    if windows <= most:
        return [first]
    sums, columns = np.zeros((2, size, size)), np.arange(size)
    begin = windows // 2 * size
    middle = gram[:, begin : begin + size]
    for lag in range(gram.shape[0]):
        signs, rows = 1.0 - 2.0 * ((columns + lag) // size % 2), (columns + lag) % size
        for part, entries in zip(sums, (middle[lag], signs * middle[lag]), strict=True):
            part[rows, columns] += entries
            if lag:
                part[columns, rows] += entries
    alike = np.allclose(gram[:, :size], middle, rtol=1e-9, atol=0.0)
    return [sums] if alike else [first, sums]


def freed(chain: DominatingChain, gram: Array, sigma: float, weights: Array, deadline: Deadline) -> DominatingChain:
    """The chain with scales that follow no formula: a search for the smallest variance from those of the chain.

    How much the columns have to be longer is about the largest eigenvalue of G relative to the chain's inner products,
    in a few windows; a soft maximum of the eigenvalues has a gradient. The columns are as long as the shape makes them.

    Args:
        gram: shape (parts, n, n), one of those that :func:`few_windows` gives.
        weights: shape (size,), what each step of a window adds to the ratio whose variance is compared.
    """
    from scipy.optimize import minimize

    size = chain.scales.size
    parts, steps = gram.shape[:2]
    blocks = gram.reshape(parts, steps // size, size, steps // size, size).transpose(0, 1, 3, 2, 4)
    lags = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))

    def score(shape: Array, sharpness: float) -> tuple[float, Array]:
        deadline.tick()
        rho = 1.0 / (1.0 + np.exp(-shape[size]))
        inside = np.exp(np.add.outer(shape[:size], shape[:size])) * rho**lags
        inverse = np.linalg.inv(np.linalg.cholesky(inside))
        split = (inverse @ blocks @ inverse.T).transpose(0, 1, 3, 2, 4)
        values, vectors = np.linalg.eigh(split.reshape(gram.shape))
        soft = np.exp(sharpness * (values / values.max() - 1.0))
        largest = values.max() * (1.0 + np.log(soft.sum()) / sharpness)
        back = inverse.T @ vectors.reshape(parts, -1, size, steps)
        shares = (soft / soft.sum() * values)[:, None, None]
        slopes = -((back * shares) @ back.transpose(0, 1, 3, 2)).sum(axis=(0, 1))  # of the eigenvalue
        raised = np.minimum(largest * inside / sigma**2, 300.0)
        moment = float(weights @ np.expm1(raised) @ weights)
        gains = np.outer(weights, weights) * np.exp(raised) / (sigma**2 * moment)
        both = inside * (largest * gains + float((gains * inside).sum()) * slopes)
        return log(moment), np.append(2.0 * both.sum(axis=1), (1.0 - rho) * float((lags * both).sum()))

    rho = min(max(chain.correlation, 1e-6), 1.0 - 1e-6)
    shape = np.append(np.log(chain.scales / chain.scales.max()), log(rho / (1.0 - rho)))
    bounds = [(-FARTHEST, FARTHEST)] * shape.size
    try:
        for sharpness in SHARPNESS:
            shape = minimize(
                score, shape, (sharpness,), "L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": FREED_TRIED}
            ).x
    except LinAlgError:  # neighbours that are nearly one
        return chain
    return DominatingChain(np.exp(shape[:size]), float(1.0 / (1.0 + np.exp(-shape[size]))))


def about_needed(gram: Array, size: int, vectors: int, tolerance: float) -> Callable[[DominatingChain], float]:
    """How many times as long, squared, the columns of a chain have to be: a number below it and mostly next to it.

    Each search begins where the last one ended.

    Args:
        vectors, tolerance: of the search, see :func:`.largest_relative`.
    """
    from scipy.linalg.blas import dsbmv

    (width, n), band = gram.shape, np.asfortranarray(gram)
    places = (np.arange(n) - n) % size  # the last window is whole
    first = np.union1d(0, np.flatnonzero(places == 0))
    vector = np.ones(n)

    def product(vector: Array) -> Array:
        return np.asarray(dsbmv(width - 1, 1.0, band, vector, lower=1))

    def needed(chain: DominatingChain) -> float:
        nonlocal vector
        scales = chain.scales[places]
        least = float(np.max(gram[0] / scales**2))
        if not chain.correlation < 1.0:
            return least
        largest, vector = largest_relative(
            product, scales, chain.correlation, first, vector, tolerance=tolerance, vectors=vectors, rounds=ROUNDS
        )
        return max(largest, least) if largest < inf else least

    return needed


def long_enough(chain: DominatingChain, gram: Array, rounding: float) -> DominatingChain:
    """The chain with all columns as much longer, or shorter, as is needed; raises LinAlgError where nothing is."""
    n, size = gram.shape[1], chain.scales.size
    shape = in_band(chain, np.ones(-(-n // size)), gram.shape, -n % size)

    def enough(level: float) -> bool:
        raised = level * shape
        return is_positive(raised - gram, raised, rounding)

    columns = n - max(n - SEARCHED, 0) // size * size  # whole windows are left out
    low, room = about_needed(gram[:, :columns], size, *CLOSE)(chain), CLOSEST
    high = low * (1.0 + room)
    while not enough(high):
        low, room = high, FARTHER * room
        high *= 1.0 + room
        if not room < FARTHEST_ROOM:
            raise LinAlgError("no chain dominates")
    while high > (1.0 + ACCURACY) * low:
        middle = float(np.sqrt(low * high))
        if enough(middle):
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
