"""Rows of independent coin flips, in time proportional to the successes."""

from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

_MAX_CHUNK = 2**16  # gaps drawn at a time: large enough to be fast, small enough to stay in cache


def bernoulli_successes(trials: int, prob: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Positions of the successes in a row of independent trials, in time proportional to their number.

    The failures before a success are geometric, which is the whole part of an exponential of rate
    -log(1 - prob). The memoryless surplus of gaps beyond the last trial is thrown away.
    """
    if prob == 1.0:
        return np.arange(trials, dtype=np.int64)
    rate = -log1p(-prob)
    pieces: list[NDArray[np.int64]] = []
    last = -1
    while True:
        expected = (trials - 1 - last) * prob
        gaps = rng.standard_exponential(min(_MAX_CHUNK, int(expected + 4.0 * sqrt(expected)) + 8))
        # A gap of `trials` already ends the row; the cap keeps tiny rates from overflowing the integers.
        with np.errstate(over="ignore"):
            np.minimum(gaps / rate, float(trials), out=gaps)
        positions = gaps.astype(np.int64)
        positions += 1
        np.cumsum(positions, out=positions)
        positions += last
        if positions[-1] >= trials:
            pieces.append(positions[: np.searchsorted(positions, trials)])
            return pieces[0].copy() if len(pieces) == 1 else np.concatenate(pieces)
        pieces.append(positions)
        last = int(positions[-1])
