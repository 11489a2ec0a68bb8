"""Seeds of runs."""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


def fresh_generator() -> np.random.Generator:
    """A generator with 256 bits of the operating system; numpy's own default has 128."""
    return np.random.default_rng(np.random.SeedSequence(pool_size=8))


def words(rng: np.random.Generator) -> Words:
    """256 bits."""
    return rng.integers(0, 2**64 - 1, size=4, dtype=np.uint64, endpoint=True)
