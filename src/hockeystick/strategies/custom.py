"""A matrix from a file of the user's."""

import hashlib
import io
from typing import Annotated, Literal, Self

import numpy as np
from numpy.lib import format as npy
from pydantic import Field

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.files import npy_header, read_small_file
from hockeystick.strategies.base import StrategySpec
from hockeystick.strategies.matrix.base import Array, StrategyMatrix

MAX_STEPS = 8192
"""A larger matrix would take more than half a gigabyte."""
MAX_FILE_BYTES = 8 * MAX_STEPS**2 + 4096
EXTREME = 1e50
"""No entry is above this and no diagonal one below its inverse, so that squares neither overflow nor vanish."""
MAX_KEPT = 2


class Custom(StrategySpec):
    """A lower-triangular, non-negative matrix from a ``.npy`` file, used at its own scale.

    The file is read whenever the matrix is needed, so that a changed file gives the changed matrix. Mechanisms and
    certificates that name the file can be created and loaded without it.

    >>> Custom(path="matrix.npy").kind
    'custom'

    Fields:
        path: the file, relative to the working directory: a square array of real numbers with a positive diagonal and
            one row per step, at most 8192 rows and half a gigabyte.
        sha256: digest of the file's bytes; when given, a file with other content is refused. Certificates fill it in.
    """

    kind: Literal["custom"] = "custom"
    path: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    def pinned(self, steps: int | None = None) -> Self:
        """The same strategy, for the present content of the file only. Raises as :meth:`matrix` does."""
        return self.model_copy(update={"sha256": self._content()[1]})

    def read_from(self, path: str | None) -> Self:
        """The same strategy, and the same digest, with the file at ``path``, which has to be given."""
        if path is None:
            raise InvalidInputError(
                "The '--matrix' option is missing: the certificate is about a matrix from a file, and a file that is "
                "merely named in a certificate is not opened."
            )
        return self.model_copy(update={"path": path})

    def matrix(self, steps: int, *, exact: bool = False) -> StrategyMatrix:
        """C for this number of steps; its entries are checked once.

        Raises: InvalidInputError when the file cannot be read, is not the one of ``sha256``, or holds no such matrix.
        """
        from hockeystick.strategies.matrix.dense import DenseMatrix
        from hockeystick.strategies.matrix.dyadic import dyadic

        content, digest = self._content()
        matrix = _kept.get(digest)
        if matrix is None:
            matrix = _kept[digest] = DenseMatrix(_entries(content, self.path))
            if len(_kept) > MAX_KEPT:
                del _kept[next(iter(_kept))]
        if matrix.steps != steps:
            raise InvalidInputError(
                f"The 'strategy.path' field must name a matrix with as many rows as the {steps} steps. "
                f"Got {matrix.steps} rows instead."
            )
        return dyadic(matrix) if exact else matrix

    def check_file(self, steps: int) -> None:
        self.matrix(steps)

    def build(self, steps: int) -> StrategyMatrix:
        return self.matrix(steps)

    def _content(self) -> tuple[bytes, str]:
        """The bytes of the file and their digest."""
        content = read_small_file(self.path, f"'strategy.path' file {shortened(self.path)}", MAX_FILE_BYTES)
        digest = hashlib.sha256(content).hexdigest()
        if self.sha256 not in (None, digest):
            raise InvalidInputError(
                f"The 'strategy.path' field must name the file with the SHA-256 {self.sha256}. "
                f"Got {shortened(self.path)} instead, which has another content."
            )
        return content, digest


_kept: dict[str, StrategyMatrix] = {}
"""The matrices of the last few files, by the digest of their bytes."""


def _entries(content: bytes, path: str) -> Array:
    """The array in a .npy file, if it can be a strategy matrix."""

    def refuse(reason: str) -> InvalidInputError:
        return InvalidInputError(f"The 'strategy.path' field must name {reason}. Got {shortened(path)} instead.")

    stream = io.BytesIO(content)
    header = npy_header(stream)
    if header is None:
        raise refuse("a file in NumPy's .npy format")
    shape, _, dtype = header
    if dtype.kind not in "fiu":
        raise refuse(f"an array of real numbers, not of {dtype.name}")
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise refuse(f"a square matrix, not an array of shape {shape}")
    if shape[0] > MAX_STEPS:
        raise refuse(f"a matrix of at most {MAX_STEPS} rows, not {shape[0]}")
    if len(content) - stream.tell() != shape[0] * shape[1] * dtype.itemsize:
        raise refuse("a whole .npy file: its size is not that of its array")
    stream.seek(0)
    with np.errstate(over="ignore", invalid="ignore"):
        entries = npy.read_array(stream, allow_pickle=False).astype(np.float64)
    if not np.isfinite(entries).all():
        raise refuse("a matrix of finite numbers")
    if np.triu(entries, 1).any():
        raise refuse("a lower-triangular matrix, with zeros above the diagonal")
    if (entries < 0.0).any():
        raise refuse("a matrix without negative entries")
    if not (entries.diagonal() >= 1.0 / EXTREME).all():
        raise refuse(f"a matrix that is not singular, with at least {1.0 / EXTREME:g} everywhere on the diagonal")
    if (entries > EXTREME).any():
        raise refuse(f"a matrix of entries of at most {EXTREME:g}")
    return entries
