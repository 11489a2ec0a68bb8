"""L-BFGS to the neighbourhood of a minimum, Newton steps to the digits that two machines have to share."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import tick
from hockeystick.errors import OptimisationError
from hockeystick.strategies.matrix.base import Array

Objective = Callable[[Array], tuple[float, Array]]
"""Value and gradient, shape (m,), at a point of shape (m,). A logarithm, so that its scale is known."""

MEMORY = 6
ITERATIONS = 20_000
NEWTON_STEPS = 8
CLOSE = 1e-5
"""A Newton step this short leaves about ``RESIDUAL`` of its length as error."""
FLAT = 1e-14
"""No gradient of a logarithm is known better than this in doubles."""
DIFFERENCE = 1e-6
RESIDUAL = 1e-4
CONJUGATE_STEPS = 3000


def minimise(function: Objective, start: Array, subject: str, *, non_negative: bool = False) -> Array:
    """The minimiser of a smooth function near ``start``, to about nine digits of its size.

    L-BFGS compares values, so rounding stops it some 1e-7 from the minimum, at a point that depends on the machine.
    Newton steps compare gradients and close that gap. It has converged when a Newton step is shorter than ``CLOSE``
    times the size, the largest entry or 1; that step is taken too. Deterministic.

    Args:
        function: value and gradient; its second derivative is positive definite at the minimum.
        start: shape (m,). With m = 0 there is nothing to do.
        subject: what is optimised, for the error message.
        non_negative: keep every entry at 0 or above.

    Raises: OptimisationError when the values are not finite or the steps do not become short.
    Cost: L-BFGS takes a few times the square root of the condition number of gradients, a Newton step about half that.
    """
    from scipy.optimize import Bounds, minimize

    if start.size == 0:
        return start

    def objective(point: Array) -> tuple[float, Array]:
        tick()
        return function(point)

    lowest = 0.0 if non_negative else -np.inf
    bounds = Bounds(np.zeros(start.size), np.full(start.size, np.inf)) if non_negative else None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        point: Array = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "maxcor": MEMORY, "ftol": 0.0, "gtol": FLAT},
        ).x
        for _ in range(NEWTON_STEPS):
            gradient = objective(point)[1]
            free = (point > lowest) | (gradient < 0.0)
            if np.abs(gradient[free]).max(initial=0.0) * _size(point) <= FLAT:
                return point
            step = _newton_step(objective, point, gradient, free)
            if step is None:
                break
            before, point = point, np.maximum(point + step, lowest)
            if np.abs(point - before).max() <= CLOSE * _size(point):
                return point
    raise OptimisationError(f"The optimisation of {subject} did not converge; fewer bands make the problem easier.")


def _newton_step(objective: Objective, point: Array, gradient: Array, free: NDArray[np.bool_]) -> Array | None:
    """The step s in the free coordinates with ``H s = -gradient`` there, by conjugate gradients.

    ``H v`` is a difference of gradients, relative error of the order of ``DIFFERENCE``. None where H is not positive
    definite or not finite.
    """
    reach = DIFFERENCE * _size(point)
    step, residual = np.zeros_like(point), np.where(free, -gradient, 0.0)
    direction, square = residual, float(residual @ residual)
    wanted = RESIDUAL**2 * square
    for _ in range(CONJUGATE_STEPS):
        unit = reach / float(np.abs(direction).max())
        bent = np.where(free, objective(point + unit * direction)[1] - gradient, 0.0) / unit
        curvature = float(direction @ bent)
        if not curvature > 0.0:
            return None
        step = step + (square / curvature) * direction
        residual = residual - (square / curvature) * bent
        previous, square = square, float(residual @ residual)
        if square <= wanted:
            return step
        direction = residual + (square / previous) * direction
    return None


def _size(point: Array) -> float:
    return max(1.0, float(np.abs(point).max()))
