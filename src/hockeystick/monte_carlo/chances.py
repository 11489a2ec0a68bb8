"""The law of a number of coins, in logarithms, and draws from lists of chances."""

from functools import lru_cache

import numpy as np
from numba import njit

from hockeystick.monte_carlo.arrays import Array


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def place_of(level: float, values: Array) -> int:
    """The first place at which the running sum of the values exceeds a level; the last one where none does."""
    for place in range(values.size - 1):
        level -= values[place]
        if level < 0.0:
            return place
    return int(values.size - 1)


@njit(cache=True, nogil=True)
def draw_number(rng: np.random.Generator, chances: Array) -> int:
    """A place in a list of chances, from the last one down."""
    rest, number = rng.random(), chances.size - 1
    while number > 0:
        rest -= chances[number]
        if rest < 0.0:
            break
        number -= 1
    return number
