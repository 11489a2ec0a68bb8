"""Lower bounds on epsilon by betting against (epsilon, delta), for one delta and all epsilons of a grid.

Engine: counts in, bounds out. Statements and proofs: docs/theory/audits.md.
"""

from math import log

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PER_UPPER = 40
"""Epsilons of the grid up to the certificate's upper end, which is one of them."""
BEYOND = 2
"""The grid ends at so many times the upper end."""
LARGEST_EPSILON = 350.0
"""Powers of e to ``BEYOND`` times this are doubles."""
ABOVE: Array = np.array([0.0, 0.1, 0.25, 0.5, 1.0])
"""Losses at which events begin, less epsilon, in units of the upper end: the best events where the code is correct."""
ANYWHERE: Array = np.array([-2.0, -1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95])
"""Losses at which other events begin, in units of the upper end: the losses of other code have another law. With less
noise than claimed the best event begins a little below the upper end."""
FRACTIONS: Array = np.array([1 / 128, 1 / 32, 1 / 8, 1 / 4, 1 / 2, 0.95])
"""Shares of the largest bet that never loses everything."""


class Bets:
    """Bets on pairs of losses, one from each of two worlds, in both directions.

    A pair has the loss ``log X`` of an output with the example and of one without it. For remove an event is
    ``log X > tau``; for add it is ``-log X > tau``, with the worlds swapped. Under (epsilon, delta),
    ``1[event with] - e^epsilon 1[event without] - delta`` has a mean of at most 0, whatever the event.

    Args:
        upper: the certificate's upper end at ``delta``.
        delta: at which epsilon is bounded.
        level: the chance, at most, that the bound exceeds the true epsilon.
    """

    def __init__(self, upper: float, delta: float, level: float) -> None:
        top = min(max(upper, 1e-3), LARGEST_EPSILON)
        self.upper = upper
        self.level = level
        self.epsilons: Array = top * (np.arange(BEYOND * PER_UPPER + 1) / PER_UPPER)
        self.at_upper = min(int(np.searchsorted(self.epsilons, upper)), self.epsilons.size - 1)
        above = self.epsilons[:, None] + top * ABOVE[None, :]
        anywhere = np.broadcast_to(top * ANYWHERE, (self.epsilons.size, ANYWHERE.size))
        self.thresholds: Array = np.concatenate([above, anywhere], axis=1)
        self.pairs = 0
        self.counts = np.zeros((2, 2, 2, *self.thresholds.shape))  # direction, event with, event without
        self.means = np.zeros((2, *self.thresholds.shape, FRACTIONS.size))  # logarithms of what bets on means paid
        self.highest = np.full(self.epsilons.size, -np.inf)
        growth = np.exp(self.epsilons)[:, None]
        stakes = FRACTIONS / (growth + delta)
        self.growth, self.stakes, self.delta = growth, stakes, delta
        self.pays = {
            (first, second): np.log1p(stakes * (first - growth * second - delta))
            for first in (0, 1)
            for second in (0, 1)
        }

    def observe(self, with_example: Array, without: Array) -> None:
        """Add pairs of log-ratios ``log P/Q``, each of shape (pairs,), and settle all bets."""
        for direction, (first, second) in enumerate(_directions(with_example, without)):
            ones, others = self._above(first), self._above(second)
            both = self._above(np.minimum(first, second))
            self.counts[direction, 1, 1] += both
            self.counts[direction, 1, 0] += ones - both
            self.counts[direction, 0, 1] += others - both
            self.counts[direction, 0, 0] += first.size - ones - others + both
        self.pairs += with_example.size
        np.maximum(self.highest, self._evidence(), out=self.highest)

    def observe_mean(self, with_example: Array, without: Array) -> None:
        """Add the mean over pairs that may depend on one another, as one bet, and settle it; shapes as of ``observe``.

        The mean of what they pay has a mean of at most 0 as well, whatever they have in common.
        """
        size = with_example.size
        for direction, (first, second) in enumerate(_directions(with_example, without)):
            payoff = self._above(first) / size - self.growth * self._above(second) / size - self.delta
            self.means[direction] += np.log1p(self.stakes[:, None, :] * payoff[:, :, None])
        self.pairs += size
        np.maximum(self.highest, self._evidence(), out=self.highest)

    def _above(self, losses: Array) -> Array:
        """How many exceed each threshold."""
        return losses.size - np.searchsorted(np.sort(losses), self.thresholds, side="right").astype(np.float64)

    def _evidence(self) -> Array:
        """The logarithm of the mean worth of all bets against each epsilon."""
        logs = self.means.copy()
        for (first, second), pays in self.pays.items():
            logs += self.counts[:, first, second, :, :, None] * pays[None, :, None, :]
        bets = logs[0, 0].size * 2
        worth: Array = np.logaddexp.reduce(logs, axis=(0, 2, 3)) - log(bets)
        return worth

    @property
    def audited(self) -> float:
        """Lower bound on epsilon at delta: the end of the run of rejected epsilons that begins at 0."""
        rejected = self._rejected
        count = int(np.argmin(rejected)) if not rejected.all() else rejected.size
        return float(self.epsilons[count - 1]) if count else 0.0

    @property
    def refuted(self) -> bool:
        """Whether the upper end and all epsilons below it are rejected."""
        reached = self.epsilons[self.at_upper] >= self.upper
        return bool(reached and self._rejected[: self.at_upper + 1].all())

    @property
    def _rejected(self) -> NDArray[np.bool_]:
        rejected: NDArray[np.bool_] = self.highest >= -log(self.level)
        return rejected

    @property
    def evidence(self) -> float:
        """The largest logarithm of the worth of the bets against the upper end, not below 0."""
        return max(float(self.highest[self.at_upper]), 0.0)


def _directions(with_example: Array, without: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """What a bet compares in either direction; no event is about what is unknown, so that counts as 0."""
    with_example, without = np.nan_to_num(with_example), np.nan_to_num(without)
    return (with_example, without), (-without, -with_example)
