"""Draws that kernels of several families share: noise, and places in lists of chances."""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array


@kernel
def place_of(level: float, values: Array) -> int:
    """The first place at which the running sum of the values exceeds a level; the last one where none does."""
    for place in range(values.size - 1):
        level -= values[place]
        if level < 0.0:
            return place
    return int(values.size - 1)


@kernel
def draw_number(rng: np.random.Generator, chances: Array) -> int:
    """A place in a list of chances, from the last one down."""
    rest, number = rng.random(), chances.size - 1
    while number > 0:
        rest -= chances[number]
        if rest < 0.0:
            break
        number -= 1
    return number


@kernel
def draw_noise(rng: np.random.Generator, y: Array) -> None:
    """Outputs of Q."""
    for t in range(y.size):
        y[t] = rng.standard_normal()


@kernel
def draw_moved(rng: np.random.Generator, mean: Array, beta: float, y: Array) -> float:
    """Fill y with outputs of Q that are moved by ``-beta mean``; the return value is ``<mean, y>``."""
    total = 0.0
    for t in range(mean.size):
        y[t] = rng.standard_normal() - beta * mean[t]
        total += mean[t] * y[t]
    return total
