"""Files of secret arrays, which only their owner can read: the states of runs, and what was trained with them."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from hockeystick.errors import InvalidInputError
from hockeystick.files import opened, replacing


def save_arrays(path: str | Path, entries: dict[str, Any]) -> None:
    """Write arrays, integers and text to a file, whole or not at all."""
    with replacing(path, secret=True) as file:
        np.savez(file, allow_pickle=False, **entries)


def load_arrays(path: str | Path, name: str) -> dict[str, Any]:
    """The arrays of a file of :func:`save_arrays`; ``name`` is what errors call it.

    Raises: InvalidInputError in one sentence where it cannot be read, or is cut short, damaged or another file.
    """
    with opened(path, name) as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, NpzFile):
                raise ValueError("it has one array without a name")
            with archive:
                return dict(archive)
        except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            reason = str(error).rstrip(".")
            raise InvalidInputError(f"The {name} does not hold a run: {reason}.") from None
