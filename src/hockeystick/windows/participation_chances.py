"""When an example takes part in a window, from the chance of each step at which it is available."""

import numpy as np

from hockeystick.laws.law import Array


def weights_of(prob: float | Array, size: int) -> Array:
    """The chances that an example that is available at the first of some steps takes part at each of them.

    >>> weights_of(np.array([1 / 3, 1 / 2, 1.0]), 3).round(12).tolist()
    [0.333333333333, 0.333333333333, 0.333333333333]

    Args:
        prob: the chance of an available step, for all of them or shape (size,).
    """
    if isinstance(prob, float):
        return np.asarray(prob * np.exp(np.arange(size) * np.log1p(-prob)), dtype=np.float64)
    weights = np.array(prob, dtype=np.float64)
    weights[1:] *= np.cumprod(1.0 - prob[:-1])
    return weights


def absences_of(prob: float | Array, size: int) -> Array:
    """The chances that an example that is available at step u = 1, ..., size takes no part from then on."""
    if isinstance(prob, float):
        return np.asarray(np.exp((size - np.arange(size)) * np.log1p(-prob)), dtype=np.float64)
    return np.asarray(np.cumprod(1.0 - prob[::-1])[::-1], dtype=np.float64)
