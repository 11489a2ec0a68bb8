"""Reading small files, and writing files whole or not at all."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from hockeystick.errors import InvalidInputError, shortened

MAX_CLAIM_BYTES = 1 << 26
"""Certificates of Monte Carlo bounds name thousands of runs."""

MOST_PARTS = 16
"""The most parts of a dotted key; no field of ours has half as many."""
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_TWICE = re.compile(r"^Cannot (?:overwrite a value|declare \(.*\) twice)")
"""What Python's parser says of a name that has a value, or is a table, already."""
_LONG_KEY = re.compile(
    rf"(?:^|[\[{{,])[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MOST_PARTS},}}[ \t]*[\]=]", re.MULTILINE
)


def read_small_file(path: str | Path, name: str, most: int) -> bytes:
    """The content of an ordinary file of at most ``most`` bytes; ``name`` is what errors call it.

    Raises: InvalidInputError in one sentence when it cannot be read, is not an ordinary file, or is larger.
    """
    with opened(path, name) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise InvalidInputError(f"The {name} must be at most {most} bytes; this file is larger.")
    return content


@contextmanager
def opened(path: str | Path, name: str) -> Iterator[BinaryIO]:
    """An ordinary file, open for reading. Pipes and devices are not even opened: that could block, or have an effect.

    Raises: InvalidInputError in one sentence when it cannot be read or is not an ordinary file, or when ``path`` is
    neither text nor a path: a number would be taken for a file that is open already.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(
            f"The {name} must be named by text or a path. Got an object of type {type(path).__name__!r} instead."
        )
    try:
        _check_ordinary(os.stat(path), name)
        with open(path, "rb", opener=_open_without_blocking) as stream:
            _check_ordinary(os.fstat(stream.fileno()), name)  # it may have been replaced in between
            yield stream
    except OSError as error:
        raise InvalidInputError(f"The {name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"The {name} cannot be read: a path cannot contain a null byte.") from None


def npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, Any] | None:
    """Shape, whether columns come first, and dtype of the .npy array that begins here; None where none does.

    The stream is left where the numbers begin. Nothing is unpickled.
    """
    from tokenize import TokenError

    from numpy.lib import format as npy

    try:
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        return readers[npy.read_magic(stream)](stream)
    except (KeyError, ValueError, EOFError, OSError, SyntaxError, TokenError):
        return None


def json_object(content: bytes) -> dict[str, Any]:
    """The fields of a JSON object, to tell what kind of file it is; none for anything else."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """The tables of a TOML document; raises InvalidInputError in one sentence when it is not one.

    A dotted key takes memory and time that grow with the square of its parts, so long ones are refused before that.
    """
    import tomllib

    from hockeystick.spec import plain

    try:
        text = content.decode("utf-8-sig")
        if _LONG_KEY.search(text):
            raise InvalidInputError(f"The {name} must have at most {MOST_PARTS} parts in a dotted key.")
        values: dict[str, Any] = plain(tomllib.loads(text), name)
        return values
    except InvalidInputError:
        raise
    except UnicodeDecodeError:
        raise InvalidInputError(f"The {name} must be UTF-8 text.") from None
    except RecursionError:
        raise InvalidInputError(f"The {name} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:  # a TOMLDecodeError, or a number that Python refuses to read
        said = _TWICE.sub("a name is given twice", str(error).split(";")[0])
        raise InvalidInputError(f"The {name} is not valid TOML: {said}.") from None


def _check_ordinary(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInputError(f"The {name} cannot be read: it is not an ordinary file.")


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_writable(path: str | Path) -> Path:
    """Check, before long work, that its result can be written to a path; returns the path with symbolic links resolved.

    Raises: InvalidInputError in one sentence for a missing directory, for missing permissions, or for a path that
    exists and is not an ordinary file (a device or a directory is never replaced).
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(
            f"The output path must be text or a path. Got an object of type {type(path).__name__!r} instead."
        )
    try:
        if not os.fspath(path):
            raise InvalidInputError(_unwritable(path, "it is empty"))
        place = Path(os.path.realpath(path))
        place.parent.stat()
        if place.exists() and not place.is_file():
            raise InvalidInputError(_unwritable(path, "it is not an ordinary file"))
        if os.fspath(path).endswith(os.sep) or not place.parent.is_dir():
            raise InvalidInputError(_unwritable(path, "its parent is not a directory"))
        if not os.access(place.parent, os.W_OK | os.X_OK) or (place.exists() and not os.access(place, os.W_OK)):
            raise InvalidInputError(_unwritable(path, "no permission"))
    except OSError as error:
        raise InvalidInputError(_unwritable(path, error.strerror)) from None
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(_unwritable(path, "a path cannot contain a null byte")) from None
    return place


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write to a temporary file beside the target and rename it; an interruption leaves the old file or none.

    Raises: InvalidInputError in one sentence when the place cannot be written.
    """
    with replacing(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: str | Path, *, secret: bool = False) -> Iterator[BinaryIO]:
    """A temporary file beside the target, open for writing; it takes the target's place when the block ends well.

    Args:
        secret: nobody but its owner may read the file.

    Raises: InvalidInputError in one sentence when the place cannot be written.
    """
    place = check_writable(path)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".hockeystick.", dir=place.parent)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o600 if secret else _permissions(place))
        os.replace(temporary, place)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInputError(_unwritable(path, error.strerror)) from None
        raise


def _permissions(place: Path) -> int:
    """The permissions of the file that is replaced, or those that the user's mask gives to new files."""
    if place.exists():
        return place.stat().st_mode & 0o777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritable(path: str | Path, why: str | None) -> str:
    return f"The output path {shortened(os.fspath(path))} cannot be written: {why or 'unknown reason'}."
