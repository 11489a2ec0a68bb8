"""Whether the arguments of a gradient function that have rows of examples are those that it maps over examples."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hockeystick.errors import InvalidInputError


def check_shared(args: Sequence[Any], apart: Sequence[int], size: int) -> None:
    """Raise InvalidInputError for an argument that every example sees whole, and that has as many rows as the batch.

    Labels that are left out of ``batch_argnums`` are broadcast against the prediction for each example, so that the
    gradients of all examples depend on all labels and clipping does not bound what one example changes.

    Args:
        args: of the function, arrays and trees of them.
        apart: the positions of those that have an example's rows, are trained, or are split into keys.
        size: of the batch; nothing is told by one of fewer than two examples.
    """
    for at, arg in enumerate(args):
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(arg)]
        if at not in apart and size > 1 and shapes and all(shape[:1] == (size,) for shape in shapes):
            raise InvalidInputError(
                f"The argument {at} of the function has {size} rows, as many as the batch has examples, and is not in "
                f"batch_argnums, so every example would see all of them: name it in batch_argnums, or bind what all "
                "examples share by functools.partial."
            )


def positions_of(*numbers: int | Sequence[int] | None) -> tuple[int, ...]:
    """The positions of arguments that are given one by one, in sequences, or not at all."""
    given = [(number,) if isinstance(number, int) else number for number in numbers if number is not None]
    return tuple(int(at) for several in given for at in several)
