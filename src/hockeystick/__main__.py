"""The door of the ``hockeystick`` command: Ctrl-C counts from the first import to the last flush."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Run the command line as a process of its own; its exit codes are those of ``hockeystick.cli.main.main``.

    The command itself catches Ctrl-C, but importing it takes most of a second. An interruption in that time, also one
    that a library passes on as another error, ends the same way. Python would end the process by the signal itself
    where the interruption met code that a library was just generating; leaving at once keeps the exit code.
    """
    seen = False

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal seen
        seen = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody chose to ignore it
        signal.signal(signal.SIGINT, interrupt)
    try:
        from hockeystick.cli.main import main as command

        command()
    except SystemExit as error:
        if error.code == INTERRUPTED:
            _leave()
        raise
    except BaseException:
        if not seen:
            raise
        print("Interrupted; no file was left half written.", file=sys.stderr)  # noqa: T201
        _leave()


def _leave() -> NoReturn:
    """End now with the exit code of an interruption; every file is written or removed before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
