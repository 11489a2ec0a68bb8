"""Draws from lists of chances, for compiled kernels."""

import numpy as np
from numba import njit

from hockeystick.monte_carlo.arrays import Array


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
