"""Reading small files, and writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from hockeystick.errors import InvalidInputError, shortened


def read_small_file(path: str | Path, name: str, most: int) -> bytes:
    """The content of a file of at most ``most`` bytes; ``name`` is what errors call it.

    Raises: InvalidInputError in one sentence when it cannot be read or is larger.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read(most + 1)
    except OSError as error:
        raise InvalidInputError(f"The {name} cannot be read: {error.strerror}.") from None
    except ValueError:  # the path has a null byte
        raise InvalidInputError(f"The {name} cannot be read: no path has a null byte.") from None
    if len(content) > most:
        raise InvalidInputError(f"The {name} must be at most {most} bytes; this file is larger.")
    return content


def check_writable(path: str | Path) -> Path:
    """The place where a file can be written, before the work that is to go there is done; symbolic links followed.

    Raises: InvalidInputError in one sentence for a missing directory, one without permission, or a path that is
    there and not an ordinary file that may be written (a device or a directory is never replaced).
    """
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
        raise InvalidInputError(_unwritable(path, "no path has a null byte")) from None
    return place


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write to a temporary file beside the target and rename it; an interruption leaves the old file or none.

    Raises: InvalidInputError in one sentence when the place cannot be written.
    """
    place = check_writable(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".hockeystick.", dir=place.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _permissions(place))
        os.replace(temporary, place)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInputError(_unwritable(path, error.strerror)) from None
        raise


def _permissions(place: Path) -> int:
    """Those of the file that is replaced, or what the user's mask gives to new files."""
    if place.exists():
        return place.stat().st_mode & 0o777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritable(path: str | Path, why: str | None) -> str:
    return f"The output path {shortened(os.fspath(path))} cannot be written: {why or 'unknown reason'}."
