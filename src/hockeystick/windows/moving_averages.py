"""Gaussians that are white noise beside moving averages of innovations, whose covariance ends by itself.

``z_i = whites[i] e_i + unit sum_s weights[i, s] y_(i // period - s)``, e_i and y_m independent standard normal. White
noise lets the innovations live on a lattice without any error worth the name; whole weights make what is seen of them
take few different values. Proof: docs/theory/moving-averages.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import Array


@dataclass(frozen=True)
class MovingAverages:
    """``z_i = whites[i] e_i + unit sum_s weights[i, s] y_(i // period - s)``.

    Attributes:
        period: q, how many bins there are for each innovation; y_m is new at bin q m.
        weights: shape (b, d), whole numbers. Innovations before the first bin exist as well.
        unit: of the weights, positive.
        whites: shape (b,), positive standard deviations of the white noise.
    """

    period: int
    weights: NDArray[np.int64]
    unit: float
    whites: Array

    @property
    def bins(self) -> int:
        """b, how many terms there are."""
        return len(self.weights)

    @property
    def depth(self) -> int:
        """d, how many innovations a bin sees."""
        return int(self.weights.shape[1])

    @property
    def groups(self) -> NDArray[np.int64]:
        """The newest innovation of each bin, shape (b,)."""
        return np.arange(self.bins) // self.period

    @property
    def loadings(self) -> Array:
        """The weight of each innovation in each bin, shape (b, d - 1 + groups), the oldest first."""
        found = np.zeros((self.bins, self.depth + int(self.groups[-1])))
        for s in range(self.depth):
            found[np.arange(self.bins), self.depth - 1 + self.groups - s] = self.unit * self.weights[:, s]
        return found

    @property
    def products(self) -> Array:
        """The covariance of z, shape (b, b)."""
        found: Array = self.loadings @ self.loadings.T + np.diag(self.whites**2)
        return found
