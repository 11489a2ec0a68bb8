"""Loading an optional library, with a clear message when it is missing."""

from importlib import import_module
from typing import Any

from hockeystick.errors import UnsupportedError, install


def load(module: str) -> Any:
    """The module of an optional library.

    Raises: UnsupportedError when the library is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise
        raise UnsupportedError(f"The library {library!r} is not installed; {install('interop')}.") from None
