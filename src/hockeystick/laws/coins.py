"""The law of a number of coins: logarithms of its chances, and its tails."""

from functools import lru_cache

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array


@kernel
def log_chances(prob: float, copies: int, counts: int) -> Array:
    """Logs of the chances that j of ``copies`` independent copies take part, given that fewer than ``counts`` do.

    For j = 0, ..., counts - 1, and 0 < prob < 1.
    """
    logs = np.zeros(counts)
    odds = np.log(prob) - np.log1p(-prob)
    for count in range(1, counts):
        logs[count] = logs[count - 1] + odds + np.log((copies - count + 1) / count)
    top = logs.max()
    normalised: Array = logs - top - np.log(np.exp(logs - top).sum())
    return normalised


@lru_cache(maxsize=64)
def tails(prob: float, draws: int) -> Array:
    """The chances that more than 0, 1, ..., ``draws`` coins show 1, the last of which is 0; shape (draws + 1,)."""
    chances = np.exp(log_chances(prob, draws, draws + 1)) if draws else np.ones(1)
    return np.append(np.cumsum(chances[:0:-1])[::-1], 0.0)
