"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from hockeystick.errors import InvalidInputError


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write to a temporary file beside the target and rename it; an interruption leaves the old file or none.

    Raises: InvalidInputError in one sentence when the place cannot be written.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InvalidInputError(f"The output path {str(path)!r} cannot be written: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InvalidInputError(f"The output path {str(path)!r} cannot be written: {error.strerror}.") from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
