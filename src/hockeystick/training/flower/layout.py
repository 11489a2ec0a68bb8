"""The arrays of a model as one row of numbers, and back."""

import json
import math
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError, shortened

Reals = NDArray[Any]


class Layout:
    """The names, shapes and types of a model's arrays.

    Args:
        arrays: of floating-point numbers, at least one of them.

    Attributes:
        size: all numbers.
        dtype: of a row: float64 where any array has it, else float32.

    Raises: InvalidInputError for arrays of whole numbers, and for a model without numbers.
    """

    def __init__(self, arrays: ArrayRecord) -> None:
        numbers = {key: array.numpy() for key, array in arrays.items()}
        self._parts = {key: _Part(values.shape, values.dtype) for key, values in numbers.items()}
        for key, part in self._parts.items():
            if part.dtype.kind != "f":
                raise InvalidInputError(
                    f"The array {shortened(key)} of the model must hold floating-point numbers, as noise is added to "
                    f"it; leave out counters, such as those of BatchNorm. Got {part.dtype} instead."
                )
        self.size = sum(math.prod(part.shape) for part in self._parts.values())
        if not self.size:
            raise InvalidInputError("The model must have at least one number.")
        wide = any(part.dtype.itemsize > 4 for part in self._parts.values())
        self.dtype = np.dtype(np.float64 if wide else np.float32)

    def __str__(self) -> str:
        return json.dumps([[key, part.dtype.str, list(part.shape)] for key, part in self._parts.items()])

    def flat(self, arrays: ArrayRecord) -> Reals | None:
        """A new row of all numbers, in this order of names; None for other names or shapes, and for damaged arrays."""
        if set(arrays) != set(self._parts):
            return None
        rows = []
        for key, part in self._parts.items():
            try:
                values = arrays[key].numpy()
            except Exception:  # bytes of a client, which may be anything
                return None
            if values.shape != part.shape or values.dtype.kind != "f":
                return None
            with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and no update
                rows.append(values.ravel().astype(self.dtype))
        return np.concatenate(rows)

    def record(self, row: Reals) -> ArrayRecord:
        """The arrays of a row."""
        arrays, start = {}, 0
        for key, part in self._parts.items():
            end = start + math.prod(part.shape)
            arrays[key] = Array(np.asarray(row[start:end]).reshape(part.shape).astype(part.dtype))
            start = end
        return ArrayRecord(arrays)


class _Part(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
