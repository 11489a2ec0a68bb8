"""Compiled code of contribution bounding."""

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel


@kernel
def keep_while_below(
    order: NDArray[np.int64],
    offsets: NDArray[np.int64],
    users: NDArray[np.int32],
    num_users: int,
    bound: int,
) -> NDArray[np.bool_]:
    """Whether each example is kept when those in ``order`` are kept if all their users are below ``bound`` so far.

    Shapes and units: ``users[offsets[e] : offsets[e + 1]]`` are the users of example e, distinct. Examples that are
    not in ``order`` are not kept. O(edges) time.
    """
    kept = np.zeros(offsets.size - 1, dtype=np.bool_)
    used = np.zeros(num_users, dtype=np.int64)
    for example in order:
        row = users[offsets[example] : offsets[example + 1]]
        below = True
        for user in row:
            if used[user] >= bound:
                below = False
                break
        if below:
            kept[example] = True
            for user in row:
                used[user] += 1
    return kept
