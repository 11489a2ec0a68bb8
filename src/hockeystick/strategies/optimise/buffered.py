"""Buffered Toeplitz strategies: the decays of C and of its inverse that minimise error times squared sensitivity."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.deadline import tick
from hockeystick.errors import OptimisationError
from hockeystick.strategies.matrix.base import Array

STARTS = (0.1, 1.0, 3.0)
"""Where searches start: the slowest decay at 1 minus this over the number of steps."""
REACH = 25.0
"""Parameters stay within this: decays that are relatively 1e-11 apart are as good as equal."""
BETTER = 1e-9
"""A later start has to win by this, relative, so that rounding does not choose between two equal minima."""
CURVED = 1e-8
"""Directions in which the logarithm of the loss bends less leave C unchanged to the digits that count."""
DIFFERENCE = 1e-5
NEWTON_STEPS = 30
CLOSE = 1e-9
"""A step that is this long, measured by the curvature of the logarithm of the loss, is the last one."""
CONVERGED = 1e-7
"""The longest last step, measured so, that counts as convergence."""


def optimal_buffers(weights: Array, separation: int, buffers: int) -> tuple[Array, Array]:
    """The scales omega and decays theta of the best C with this many buffers, each of shape (buffers,).

    C has the generating function ``1 + sum_j omega_j x / (1 - theta_j x) = prod_j (1 - eta_j x) / (1 - theta_j x)``.
    The search runs over interlaced decays, ``1 > theta_1 > eta_1 > theta_2 > ... > eta_d > 0``. Then every omega is
    positive and the column of C is positive and non-increasing, as ``c_1 = sum_j (theta_j - eta_j) < 1``: no point of
    the search is invalid, and of participations at least ``separation`` steps apart those at 0, separation,
    2 separation, ... are the worst (Kalinin and Lampert, 2024, Theorem 2).

    The problem is not convex: the best of a few local minima is returned.

    Args:
        weights: shape (steps,), non-negative, of the squared errors that the filter ``1 / ((1 - x) C(x))`` gives.
        separation: least number of steps between two participations; at least ``steps`` for a single one.

    Raises: OptimisationError when no start leads to a minimum.

    Cost: O(steps * buffers) for an evaluation; a hundred with three buffers, a few thousand with ten.

    Reference: Dvijotham, McMahan, Pillutla, Steinke and Thakurta (2024), "Efficient and near-optimal noise generation
    for streaming differential privacy". Interlacing: McMahan and Pillutla (2025), "An inversion theorem for buffered
    linear Toeplitz matrices".
    """
    best, best_loss = None, np.inf
    for start in STARTS:
        minimum = _minimum(_start(weights.size, buffers, start), weights, separation)
        if minimum is not None and minimum[1] < best_loss - BETTER:
            best, best_loss = minimum
    if best is None:
        raise OptimisationError(
            f"The optimisation of {buffers} buffers for {weights.size} steps did not converge; "
            "fewer 'strategy.buffers' make the problem easier."
        )
    complements, _ = complements_of(best)
    return scales_of(complements)[::2], 1.0 - complements[::2]


def _start(steps: int, buffers: int, first: float) -> Array:
    """Parameters of decays whose distances from 1 grow geometrically, as those of the square root do."""
    complements = np.geomspace(min(first / (steps + 1), 0.5), 0.9, 2 * buffers)
    ratios = complements / np.append(complements[1:], 1.0)
    parameters: Array = np.log(ratios / (1.0 - ratios))
    return parameters


def _minimum(start: Array, weights: Array, separation: int) -> tuple[Array, float] | None:
    """A local minimum and the logarithm of the loss there: L-BFGS, then Newton steps for the last digits."""
    from scipy.optimize import minimize

    def objective(point: Array) -> tuple[float, Array]:
        tick()
        value, gradient = log_loss(point, weights, separation)
        return float(value), gradient

    point: Array = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-REACH, REACH)] * start.size,
        options={"maxiter": 5000, "maxfun": 20_000, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9},
    ).x
    length = np.inf
    for _ in range(NEWTON_STEPS):
        step, next_length = _newton_step(point, weights, separation)
        if not next_length < length:
            break
        length = next_length
        point = np.clip(point + step, -REACH, REACH)
        if length <= CLOSE:
            break
    return (point, float(log_loss(point, weights, separation)[0])) if length <= CONVERGED else None


def _newton_step(point: Array, weights: Array, separation: int) -> tuple[Array, float]:
    """The Newton step in the directions that are curved, and its length ``sqrt(g' H^{-1} g)``."""
    hessian = np.empty((point.size, point.size))
    for i, offset in enumerate(DIFFERENCE * np.eye(point.size)):
        tick()
        ahead, behind = (log_loss(point + sign * offset, weights, separation)[1] for sign in (1.0, -1.0))
        hessian[i] = (ahead - behind) / (2.0 * DIFFERENCE)
    curvatures, directions = np.linalg.eigh(0.5 * (hessian + hessian.T))
    curved = curvatures > CURVED
    curvatures, directions = curvatures[curved], directions[:, curved]
    slopes = directions.T @ log_loss(point, weights, separation)[1]
    return -directions @ (slopes / curvatures), float(np.sqrt(np.sum(slopes**2 / curvatures)))


@kernel
def complements_of(parameters: Array) -> tuple[Array, Array]:
    """``1 - theta_1 < 1 - eta_1 < 1 - theta_2 < ... < 1 - eta_d`` and the ratio of each to the next (the last to 1).

    Any parameters of shape (2 d,) give interlaced decays: the ratios are their logistic functions. Complements keep
    the digits of decays near 1.
    """
    ratios = 1.0 / (1.0 + np.exp(-parameters))
    complements = ratios.copy()
    for i in range(parameters.size - 2, -1, -1):
        complements[i] *= complements[i + 1]
    return complements, ratios


@kernel
def scales_of(complements: Array) -> Array:
    """Absolute scales of C (even places) and of its inverse (odd places), for interlaced decays.

    ``omega_j = prod_i (theta_j - eta_i) / prod_{i != j} (theta_j - theta_i)``, the residues of the generating function;
    for the inverse theta and eta change places, and the sign is minus. Both are positive by the interlacing.
    """
    scales = np.ones(complements.size)
    for i in range(complements.size):
        for j in range(complements.size):
            if (i - j) % 2 == 1:
                scales[i] *= complements[j] - complements[i]
            elif i != j:
                scales[i] /= complements[j] - complements[i]
    return np.abs(scales)


@kernel
def log_loss(parameters: Array, weights: Array, separation: int) -> tuple[float, Array]:
    """``log(sum_t weights_t b_t^2 * |m|^2)`` and its gradient in the parameters.

    b has the generating function ``1 / ((1 - x) C(x))``, so b_t is the sum of the first t + 1 coefficients of the
    inverse; m is the sum of C's first columns at the participations 0, separation, ... With weights 1 the first factor
    is the squared error of the last prefix sum, the largest; with weights ``1 - t / n`` it is the mean over all.
    """
    complements, ratios = complements_of(parameters)
    scales = scales_of(complements)
    steps, buffers = weights.size, parameters.size // 2
    profile, queries = np.empty(steps), np.empty(steps)
    profile[0] = queries[0] = 1.0
    terms = scales.copy()
    for t in range(1, steps):
        profile[t], queries[t] = 0.0, queries[t - 1]
        for j in range(buffers):
            profile[t] += terms[2 * j]
            queries[t] -= terms[2 * j + 1]
            terms[2 * j] *= 1.0 - complements[2 * j]
            terms[2 * j + 1] *= 1.0 - complements[2 * j + 1]
    for t in range(separation, steps):
        profile[t] += profile[t - separation]
    squared_sensitivity, error = np.sum(profile**2), np.sum(weights * queries**2)

    # Adjoints of the coefficients of C (in place) and of the inverse (their running sum), from the last to the first.
    # Horner's rule gives the adjoint of a scale, sum_t g_t decay^(t-1), and its derivative by the decay on the way.
    profile *= 2.0 / squared_sensitivity
    for t in range(steps - 1 - separation, -1, -1):
        profile[t] += profile[t + separation]
    by_scale, by_decay = np.zeros(parameters.size), np.zeros(parameters.size)
    of_inverse = 0.0
    for t in range(steps - 1, 0, -1):
        of_inverse -= 2.0 / error * weights[t] * queries[t]
        for i in range(parameters.size):
            decay = 1.0 - complements[i]
            by_decay[i] = by_scale[i] + decay * by_decay[i]
            by_scale[i] = (of_inverse if i % 2 == 1 else profile[t]) + decay * by_scale[i]

    by_complement = -by_decay * scales
    for i in range(parameters.size):
        for j in range(parameters.size):
            if i != j:
                sign = 1.0 if (i - j) % 2 == 1 else -1.0
                slope = sign * by_scale[i] * scales[i] / (complements[j] - complements[i])
                by_complement[j] += slope
                by_complement[i] -= slope
    gradient, running = np.empty(parameters.size), 0.0
    for i in range(parameters.size):
        running += by_complement[i] * complements[i]
        gradient[i] = (1.0 - ratios[i]) * running
    return np.log(squared_sensitivity) + np.log(error), gradient
