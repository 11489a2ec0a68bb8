"""Python files that a command runs for what they define: training loops, and models."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

from hockeystick.errors import HockeystickError, InvalidInputError, shortened


def check_script(option: str, script: str) -> None:
    """Raise InvalidInputError for a Python file that cannot be read; ``option`` named it."""
    from hockeystick.files import opened

    with opened(script, f"{option!r} file {shortened(script)}"):
        pass


def of_script(option: str, script: str, names: Sequence[str], use: Callable[[dict[str, Any]], Any]) -> Any:
    """What ``use`` makes of the names that a Python file defines; all it prints goes to stderr.

    Args:
        option: that named the file, for errors.
        script: path of the file, which is run.
        names: what it has to define.
        use: is part of what may fail in the file's own code, as it calls it.

    Raises: InvalidInputError in one sentence for a file that cannot be read, lacks a name, or fails.
    """
    import runpy

    check_script(option, script)
    try:
        with redirect_stdout(sys.stderr):
            defined = runpy.run_path(script)
            missing = [name for name in names if name not in defined]
            if missing:
                raise InvalidInputError(
                    f"The {option!r} file must define {', '.join(names[:-1])} and {names[-1]}. "
                    f"It lacks {', '.join(missing)}."
                )
            return use(defined)
    except HockeystickError:
        raise
    except (Exception, SystemExit) as error:  # a script that exits would look like an audit that passed
        what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise InvalidInputError(f"The {option!r} file {shortened(script)} failed with {what}.") from error
