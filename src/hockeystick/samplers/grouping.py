"""Put items into numbered bins in linear time."""

import numpy as np
from numpy.typing import NDArray


def draw_bins(bins: int, size: int, rng: np.random.Generator) -> NDArray[np.uint16] | NDArray[np.uint32]:
    """Draw ``size`` independent, uniform bin numbers in the narrowest type that :func:`group_by_bin` sorts quickly."""
    if bins <= 2**16:
        return rng.integers(bins, size=size, dtype=np.uint16)
    return rng.integers(bins, size=size, dtype=np.uint32)


def group_by_bin(
    assigned: NDArray[np.uint16] | NDArray[np.uint32], bins: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return ``order`` and ``starts`` such that ``order[starts[b] : starts[b + 1]]`` are the items of bin b, ascending.

    Shapes and units: ``assigned`` holds the bin of each item, at most 2**31 - 1 of them; ``order`` has its length
    and ``starts`` has ``bins + 1`` entries. Time and memory are O(items + bins): numpy's stable sort is a radix
    sort for 16-bit keys, so wider keys take two passes.
    """
    order = np.argsort(assigned.astype(np.uint16), kind="stable")  # the low half of the key
    if assigned.itemsize > 2:
        high = (assigned >> 16).astype(np.uint16)
        order = order[np.argsort(high[order], kind="stable")]
    starts = np.zeros(bins + 1, dtype=np.int64)
    np.cumsum(np.bincount(assigned, minlength=bins), out=starts[1:])
    return order.astype(np.int32), starts
