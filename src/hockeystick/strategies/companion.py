"""Files of matrices that are too large for a certificate: one array, named by the digest of its matrix.

Whoever writes a claim about such a matrix writes the file beside it, and whoever reads the claim looks for the file
there. The file needs no trust: the matrix that is built from it must have the digest that the claim states.
"""

import io
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.files import npy_header, read_small_file, write_atomically
from hockeystick.strategies.matrix.base import Array

MAX_FILE_BYTES = 1 << 30
_places: dict[str, Path] = {}
"""Where the files lie that were found or named in this process, by the digests of their matrices."""
_tables: dict[str, Array] = {}
"""Numbers that came in another way, as in the state of a run."""


def file_name(digest: str) -> str:
    """The name of the file of a matrix.

    >>> file_name("0123456789abcdef" * 4)
    'matrix-0123456789abcdef.npy'
    """
    return f"matrix-{digest[:16]}.npy"


def remember(digest: str, path: str | Path) -> None:
    """The file of the matrix with this digest is at ``path``; it is read, and held against the digest, when needed."""
    _places[digest] = Path(path).resolve()


def keep(digest: str, table: Array) -> None:
    """Keep the numbers of the matrix with this digest; they are held against it when needed."""
    _tables[digest] = table


def look_beside(claim: str | Path, digest: str) -> None:
    """Remember the file of this matrix, if it lies in the folder of a claim."""
    path = Path(claim).parent / file_name(digest)
    if path.is_file():
        remember(digest, path)


def write_beside(claim: str | Path, digest: str, table: Array) -> None:
    """Write the numbers of a matrix into the folder of a claim, whole or not at all.

    Raises: InvalidInputError when the place cannot be written.
    """
    path = Path(claim).parent / file_name(digest)
    write_atomically(path, content_of(table))
    remember(digest, path)


def content_of(table: Array) -> bytes:
    """The bytes of the file."""
    stream = io.BytesIO()
    npy.write_array(stream, np.ascontiguousarray(table, dtype="<f8"), allow_pickle=False)
    return stream.getvalue()


def table_of(digest: str) -> Array | None:
    """The numbers that were kept, or are in the file of a matrix; None where no file is known. Nothing is unpickled.

    Raises: InvalidInputError for a file that cannot be read, or is no array of doubles.
    """
    path = _places.get(digest)
    if path is None or digest in _tables:
        return _tables.get(digest)
    name = f"file of the matrix {shortened(str(path))}"
    content = read_small_file(path, name, MAX_FILE_BYTES)
    stream = io.BytesIO(content)
    header = npy_header(stream)
    if header is None or header[2] != np.dtype("<f8"):
        raise InvalidInputError(f"The {name} must be an array of doubles in NumPy's .npy format.")
    if len(content) - stream.tell() != 8 * int(np.prod(header[0], dtype=object)):
        raise InvalidInputError(f"The {name} must be a whole .npy file: its size is not that of its array.")
    stream.seek(0)
    return np.ascontiguousarray(npy.read_array(stream, allow_pickle=False), dtype=np.float64)
