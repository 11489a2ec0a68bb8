"""Rows of noise in a file, read one at a time."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.audit.whiteness import MOST_NUMBERS
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.files import npy_header, opened


def saved_rows(path: str, steps: int, name: str) -> Iterator[NDArray[Any]]:
    """The rows of an array of floating-point numbers in NumPy's .npy format, whose first axis counts steps.

    Nothing in the file is unpickled or run, and memory is taken for one row at a time.

    Args:
        path: an ordinary file.
        steps: the most rows that it may have.
        name: what errors call the file.

    Raises: InvalidInputError in one sentence for a file that is not such an array, is cut short, has more rows than
    steps, or more than ``MOST_NUMBERS`` numbers.
    """

    def refuse(reason: str) -> InvalidInputError:
        return InvalidInputError(f"The {name} {shortened(path)} must hold {reason}.")

    with opened(path, f"{name} {shortened(path)}") as stream:
        header = npy_header(stream)
        if header is None:
            raise refuse("an array in NumPy's .npy format")
        shape, by_columns, dtype = header
        numbers = int(np.prod(shape, dtype=object))
        if dtype.kind != "f":
            raise refuse(f"floating-point numbers, not {dtype.name}")
        if len(shape) < 2 or not numbers or by_columns:
            raise refuse(f"an array of shape (steps, numbers), row by row, not of shape {shape}")
        if shape[0] > steps:
            raise refuse(f"at most {steps} rows, as many as the mechanism has steps, not {shape[0]}")
        if numbers > MOST_NUMBERS:
            raise refuse(f"at most {MOST_NUMBERS} numbers, not {numbers}; some of the parameters are enough")
        if os.fstat(stream.fileno()).st_size - stream.tell() != numbers * dtype.itemsize:
            raise refuse("a whole array: the size of the file is not that of its array")
        for _ in range(shape[0]):
            yield np.frombuffer(stream.read(numbers // shape[0] * dtype.itemsize), dtype)
