"""Suprema over all epsilons of what falls with epsilon and with delta, bracketed by finitely many samples of a profile.

Between two sampled epsilons the true delta is at most its value at the left one and at least that at the right one. So
an objective that falls with both of its arguments is, on the whole interval, at most its value at the left epsilon and
the right delta. That is all that is used of the profile: no interpolation, no smoothness, no convexity.
"""

from collections.abc import Callable

import numpy as np

from hockeystick.laws.law import Array

Objective = Callable[[Array, Array], Array]
"""A function of epsilons and deltas, both of shape (n,), that does not grow with either."""

FIRST = 65
"""Samples before any refinement."""
MOST = 12_000
"""No supremum takes more new samples than this; its bracket is then wider than was asked."""


class SampledProfile:
    """A profile bound and the epsilons at which it was evaluated, which become denser where a supremum needs it.

    Args:
        delta_at: delta at epsilons of shape (n,), which many profiles tell together in less time than one by one.
    """

    def __init__(self, delta_at: Callable[[Array], Array]) -> None:
        self._delta_at = delta_at
        self.epsilons: Array = np.empty(0)
        self.deltas: Array = np.empty(0)

    def add(self, epsilons: Array) -> None:
        """Evaluate the profile at these epsilons too."""
        new = np.setdiff1d(epsilons, self.epsilons)
        epsilons, deltas = np.concatenate([self.epsilons, new]), np.concatenate([self.deltas, self._delta_at(new)])
        order = np.argsort(epsilons)
        self.epsilons, self.deltas = epsilons[order], deltas[order]

    def supremum(self, objective: Objective, reach: float, tolerance: float) -> tuple[float, float]:
        """A bracket of ``sup objective(epsilon, delta(epsilon))`` over all epsilon >= 0.

        The first end is at most the supremum where ``delta`` is at least the true profile, as it is attained by a
        sample. The second end is at least the supremum where ``delta`` is at most the true profile.

        Args:
            objective: falls with both arguments.
            reach: samples lie from 0 to ``reach``; beyond it the objective is bounded as if delta were 0.
            tolerance: refine until the bracket is this narrow, or ``MOST`` samples have been added.
        """
        allowed = self.epsilons.size + MOST
        self.add(np.linspace(0.0, reach, FIRST))
        beyond = float(objective(np.array([reach]), np.zeros(1))[0])
        while True:
            used = self.epsilons <= reach
            epsilons, deltas = self.epsilons[used], self.deltas[used]
            attained = float(objective(epsilons, deltas).max())
            over = objective(epsilons[:-1], deltas[1:])
            middle = 0.5 * (epsilons[:-1] + epsilons[1:])
            wide = (over > attained + tolerance) & (middle > epsilons[:-1]) & (middle < epsilons[1:])
            if not wide.any() or self.epsilons.size + int(wide.sum()) > allowed:
                return attained, max(attained, float(over.max()), beyond)
            self.add(middle[wide])
