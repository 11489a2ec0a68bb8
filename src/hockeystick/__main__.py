"""The door of the ``hockeystick`` command: Ctrl-C counts from the first import to the last flush."""

import os
import sys
from typing import NoReturn

from hockeystick.cli import interruption


def main() -> None:
    """Run the command line as a process of its own; its exit codes are those of ``hockeystick.cli.main.main``.

    The command itself reports Ctrl-C, but importing it takes most of a second, in which an interruption has to end the
    same way. Python would end the process by the signal itself where the interruption met code that a library was just
    generating; leaving at once keeps the exit code.
    """
    interruption.start()
    try:
        from hockeystick.cli.main import main as command

        command()
    except SystemExit as error:
        if error.code == interruption.CODE:
            _leave()
        raise
    except BaseException:
        if not interruption.seen():
            raise
        print(interruption.MESSAGE, file=sys.stderr)  # noqa: T201
        _leave()


def _leave() -> NoReturn:
    """End now with the exit code of an interruption; every file is written or removed before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(interruption.CODE)


if __name__ == "__main__":
    main()
