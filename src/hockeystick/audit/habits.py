"""Bets against a sampler: ways in which batches can depend on what came before, when the claim says they do not."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from hockeystick.audit.chances import Array, Flags, before
from hockeystick.compiling import kernel

Levels = NDArray[np.int8]


FINENESS = 4
"""Weights are whole multiples of 1 / FINENESS, from -1 to 1."""
_STRENGTHS = 0.005 * 2.0 ** np.arange(10)
STRENGTHS: Array = np.concatenate([_STRENGTHS, -_STRENGTHS])
"""How much likelier, in logarithms of the odds, a bet says that an example of weight 1 is."""


class Habits:
    """What is remembered of the batches so far, and the weights of every bet that follow from it.

    A weight may depend on the earlier batches and on whether the examples of smaller index are in this one.

    Args:
        num_examples: size of the dataset.
        period: of the scheme.
    """

    def __init__(self, num_examples: int, period: int) -> None:
        self.period = period
        self.last = np.full(num_examples, -1, dtype=np.int64)
        self.first = np.full(num_examples, -1, dtype=np.int64)
        self.first_before = self.first
        self.surplus = np.zeros(num_examples)
        self.variance = np.zeros(num_examples)
        self.spread = 0.0  # of the size of the last batch

    def begin(self) -> None:
        """Another run begins."""
        self.first_before = self.first
        self.first = np.full(self.first.size, -1, dtype=np.int64)
        self.last = np.full(self.last.size, -1, dtype=np.int64)

    def weights(self, step: int, chances: Array, present: Flags) -> Levels:
        """Shape (len(BETS), num_examples), in units of 1 / FINENESS."""
        return np.stack([bet(self, step, chances, present) for bet, _ in BETS.values()])

    def observe(self, step: int, chances: Array, present: Flags) -> None:
        """Remember a batch."""
        self.first[present & (self.first < 0)] = step
        self.last[present] = step
        self.surplus += present - chances
        variance = chances * (1.0 - chances)
        self.variance += variance
        self.spread = float(np.sqrt(variance.sum()))


def _rate(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return np.full(chances.size, FINENESS, dtype=np.int8)


def _batch_size(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _levels(before(present - chances), np.full(chances.size, habits.spread))


def _usage(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _levels(habits.surplus, np.sqrt(habits.variance))


def _again(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _where((habits.last >= 0) & (habits.last == step - 1))


def _after_a_period(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _where((habits.last >= 0) & (habits.last == step - habits.period))


def _neighbour(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _where(_shifted(present, 1))


def _distant_neighbour(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _where(_shifted(present, habits.period))


def _companions(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    place = np.where(present, np.arange(present.size), -1)
    previous = np.concatenate([[-1], np.maximum.accumulate(place)[:-1]])
    return _where((previous >= 0) & (habits.last >= 0) & (habits.last[previous] == habits.last))


def _earlier_run(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _where(habits.first_before == step)


def _earlier_phase(habits: Habits, step: int, chances: Array, present: Flags) -> Levels:
    return _where((habits.first_before >= 0) & (habits.first_before % habits.period == step % habits.period))


def _levels(value: Array, scale: Array) -> Levels:
    """Multiples of 1 / FINENESS next to ``value / scale``, cut off at -1 and 1; 0 where the scale is 0."""
    ratio = np.divide(value, scale, out=np.zeros_like(value), where=scale > 0.0)
    levels: Levels = np.rint(FINENESS * np.clip(ratio, -1.0, 1.0)).astype(np.int8)
    return levels


def _where(flags: Flags) -> Levels:
    return (FINENESS * flags).astype(np.int8)


def _shifted(present: Flags, distance: int) -> Flags:
    shifted = np.zeros_like(present)
    shifted[distance:] = present[: max(present.size - distance, 0)]
    return shifted


BETS: Mapping[str, tuple[Callable[[Habits, int, Array, Flags], Levels], str]] = {
    "rate": (_rate, "Examples are in batches at a rate other than the claimed one."),
    "batch_size": (_batch_size, "The sizes of the batches vary less, or more, than claimed."),
    "usage": (_usage, "Examples that were used more often than others are used less, or more, often later."),
    "again": (_again, "Examples of one batch are in the next one more, or less, often than claimed."),
    "after_a_period": (_after_a_period, "Examples come back after one period more, or less, often than claimed."),
    "neighbours": (
        _neighbour,
        "Examples with neighbouring indices share a batch more, or less, often than claimed.",
    ),
    "neighbours_at_a_period": (
        _distant_neighbour,
        "Examples whose indices differ by one period share a batch more, or less, often than claimed.",
    ),
    "companions": (_companions, "Examples that shared a batch share another one more, or less, often than claimed."),
    "earlier_run": (_earlier_run, "Examples are in the same batch as in the previous run."),
    "earlier_phase": (_earlier_phase, "Examples have the same place within a period as in the previous run."),
}
"""The weights of each bet, and what it means when the bet wins."""


@kernel
def settle(chances: Array, present: Flags, weights: Levels, strengths: Array, logs: Array) -> None:
    """Add to ``logs``, shape (bets, strengths), the logarithms of what each bet of one step pays.

    ``sum_i (theta w_i x_i - log(1 + p_i (e^(theta w_i) - 1)))``: of expectation 1 before the logarithm, coin by coin.
    O(bets strengths) for each example with a chance between 0 and 1.
    """
    gains = np.exp(strengths.reshape(-1, 1) * np.arange(-FINENESS, FINENESS + 1).reshape(1, -1) / FINENESS) - 1.0
    used = strengths.size
    products = np.empty(used)
    for bet in range(weights.shape[0]):
        products[:] = 1.0
        won, pending = 0.0, 0
        for i in range(chances.size):
            weight, chance = weights[bet, i], chances[i]
            if weight == 0 or chance <= 0.0 or chance >= 1.0:
                continue
            if present[i]:
                won += weight / FINENESS
            for k in range(used):
                products[k] *= 1.0 + chance * gains[k, weight + FINENESS]
            pending += 1
            if pending == 64:  # the products stay in the range of doubles
                for k in range(used):
                    logs[bet, k] -= np.log(products[k])
                products[:] = 1.0
                pending = 0
        for k in range(used):
            logs[bet, k] += strengths[k] * won - np.log(products[k])
