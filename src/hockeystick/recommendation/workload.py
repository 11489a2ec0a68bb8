"""What training makes of the noise: the error of the weights that an optimiser computes from noisy gradients.

The weights depend linearly on the noisy gradients, ``w = -A (x + C^{-1} z)``. A is lower triangular; its rows follow
from momentum, learning rates and weight decay. The error of step t is the norm of row t of ``A C^{-1}`` times the noise
multiplier over the expected batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import cos, pi, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hockeystick.by_name import by_name
from hockeystick.errors import InvalidInputError
from hockeystick.misspelt import one_of
from hockeystick.recommendation.sketches import spread_queries
from hockeystick.spec import real_number
from hockeystick.strategies.error import momentum as momentum_workload
from hockeystick.strategies.error import prefix_sums
from hockeystick.strategies.matrix.base import BLOCK, Array, StrategyMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

Schedule = Literal["constant", "cosine", "linear", "step"]
Measure = Literal["mean", "max"]
MOST_SCHEDULED_STEPS = 20_000
"""The most steps for which the rows of ``A C^{-1}`` take less than minutes where A is not Toeplitz."""
STEP_FACTOR = 0.1
"""A step schedule multiplies the learning rate by this after a half and after three quarters of the steps."""
SPREAD = 65
"""Evenly spread steps whose errors stand for all of them, where A is not Toeplitz."""

_FACTORS: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1.0 + cos(pi * done)),
    "linear": lambda done: 1.0 - done,
    "step": lambda done: STEP_FACTOR ** ((done >= 0.5) + (done >= 0.75)),
}
"""The learning rate over the largest one, by the share of the steps that are done."""


@by_name
@dataclass(frozen=True, kw_only=True)
class Workload:
    """An optimiser: ``v_t = momentum v_{t-1} + g_t`` and ``w_t = (1 - decay r_t) w_{t-1} - r_t v_t``.

    The rates ``r_t`` are those of the schedule over the largest one. With the defaults the weights are prefix sums.

    >>> Workload(momentum=0.9).describe()
    'SGD with momentum 0.9'

    Attributes:
        momentum: heavy-ball momentum, in [0, 1).
        schedule: "constant"; "cosine" or "linear", which fall to 0; or "step", a tenth after a half and again after
            three quarters of the steps.
        weight_decay: largest learning rate times the (decoupled) decay, in [0, 1).
        measure: "mean", the root of the mean over the steps of the squared errors, or "max", the largest error.

    Raises: InvalidInputError for values outside.
    """

    momentum: float = 0.0
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    measure: Measure = "mean"

    def __post_init__(self) -> None:
        momentum_workload(1, real_number("momentum", self.momentum), real_number("weight_decay", self.weight_decay))
        one_of("schedule", self.schedule, get_args(Schedule))
        one_of("measure", self.measure, get_args(Measure))

    def describe(self) -> str:
        """The workload in a few words."""
        parts = [f"momentum {self.momentum:g}"] if self.momentum else []
        parts += [f"a {self.schedule} schedule"] if self.schedule != "constant" else []
        parts += [f"weight decay {self.weight_decay:g} a step"] if self.weight_decay else []
        return "SGD with " + " and ".join(parts) if parts else "prefix sums"

    def rates(self, steps: int) -> Array:
        """Learning rates over the largest one, shape (steps,)."""
        return np.array([_FACTORS[self.schedule](step / steps) for step in range(steps)])

    def unit_error(self, matrix: StrategyMatrix) -> float:
        """The error by the measure, at noise multiplier 1: root mean squared or largest over the steps.

        With a schedule and a Toeplitz matrix, it is that of evenly spread steps, to some tenths of a percent.

        Raises: as :meth:`unit_errors`.
        """
        if self.schedule == "constant" or matrix.steps <= SPREAD or not isinstance(matrix, ToeplitzMatrix):
            errors = self.unit_errors(matrix)
            return sqrt(float(errors.max() if self.measure == "max" else errors.mean()))
        self._check_length(matrix.steps)
        errors = spread_queries(matrix, _spread_rows(self, matrix.steps))
        if self.measure == "max":
            return sqrt(float(errors.max()))
        return sqrt(float(np.interp(np.arange(matrix.steps), _spread(self, matrix.steps), errors).mean()))

    def _check_length(self, steps: int) -> None:
        if steps > MOST_SCHEDULED_STEPS:
            raise InvalidInputError(
                f"The 'schedule' field must be 'constant' for more than {MOST_SCHEDULED_STEPS} steps. "
                f"Got {self.schedule!r} for {steps} steps instead."
            )

    def unit_errors(self, matrix: StrategyMatrix) -> Array:
        """Squared l2 norms of the rows of ``A C^{-1}``, shape (steps,): squared errors at noise multiplier 1.

        O(steps * bands) where C and A are Toeplitz, O(steps^2 * bands) elsewhere.

        Raises: InvalidInputError for a schedule of more than MOST_SCHEDULED_STEPS steps.
        """
        steps = matrix.steps
        if self.schedule == "constant":
            if not self.momentum and not self.weight_decay:
                return matrix.query_errors(prefix_sums(steps))
            return matrix.query_errors(_momentum(steps, self.momentum, self.weight_decay))
        self._check_length(steps)
        errors = np.zeros(steps)
        for first in range(0, matrix.rows, BLOCK):
            unit = np.zeros((matrix.rows, min(BLOCK, matrix.rows - first)))
            unit[first + np.arange(unit.shape[1]), np.arange(unit.shape[1])] = 1.0
            weights = self.weights(matrix.solve(unit)[:steps])
            errors += np.einsum("ti,ti->t", weights, weights)
        return errors

    def weights(self, gradients: Array) -> Array:
        """``-w_t`` after every step for gradients of shape (steps, d): A applied to them."""
        from hockeystick.strategies.matrix.substitution import toeplitz_solve

        rates = self.rates(len(gradients))[:, None]
        moves = rates * toeplitz_solve([1.0, -self.momentum], gradients)
        if not self.weight_decay:
            return np.cumsum(moves, axis=0)
        weights, weight = np.empty_like(moves), np.zeros(moves.shape[1])
        for step, keep in enumerate(1.0 - self.weight_decay * rates[:, 0]):
            weight = keep * weight + moves[step]
            weights[step] = weight
        return weights


@lru_cache(maxsize=8)
def _momentum(steps: int, momentum: float, weight_decay: float) -> Array:
    return momentum_workload(steps, momentum, weight_decay)


@lru_cache(maxsize=4)
def _spread(workload: Workload, steps: int) -> NDArray[np.int64]:
    """Steps that stand for all of them: evenly spread ones, and both sides of a fall of the learning rate."""
    rates = workload.rates(steps)
    falls = np.flatnonzero(rates[1:] < 0.5 * rates[:-1])
    even = np.rint(np.linspace(0.0, steps - 1.0, SPREAD)).astype(np.int64)
    return np.unique(np.concatenate([even, falls, falls + 1]))


@lru_cache(maxsize=4)
def _spread_rows(workload: Workload, steps: int) -> Array:
    """Rows of A for the steps of :func:`_spread`, shape (m, steps).

    Backwards from step t, ``A[t, u] = r_u d_u + momentum A[t, u + 1]``, where ``d_u`` is what decay leaves at step t of
    a move at step u.
    """
    which, rates = _spread(workload, steps), workload.rates(steps)
    rows, row, left = np.zeros((which.size, steps)), np.zeros(which.size), np.ones(which.size)
    for step in range(steps - 1, -1, -1):
        begun = which >= step
        row = np.where(begun, rates[step] * left + workload.momentum * row, 0.0)
        left = np.where(begun, left * (1.0 - workload.weight_decay * rates[step]), 1.0)
        rows[:, step] = row
    return rows
