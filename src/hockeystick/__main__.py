"""The ``hockeystick`` command as a process: Ctrl-C is handled from the first import to the last exit handler."""

import gc
import os
import signal
import sys
from contextlib import suppress

from hockeystick.cli import INTERRUPTED, INTERRUPTED_MESSAGE, say_failure

ALLOCATIONS = 10_000
"""New containers between two searches for cycles. Imports and compilers make many and leave no cycles behind: at the
default of 700 the searches would take a tenth of the time of a quick command."""


def main() -> None:
    """Run the command line; the exit codes are those of ``hockeystick.cli.main.main``.

    The command reports Ctrl-C itself, but importing it takes most of a second, in which an interruption has to end the
    same way. An interrupted process ends without Python's clean-up, which could replace the exit code by the signal.
    """
    try:
        code = _run()
    except KeyboardInterrupt:
        code = INTERRUPTED
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is said once, however often it comes
        say_failure(INTERRUPTED_MESSAGE, code, as_json="--json" in sys.argv)
    if code == INTERRUPTED:
        with suppress(BaseException):
            _give_back()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):  # it is closed
                continue
        os._exit(code)
    sys.exit(code)


def _give_back() -> None:
    """Give back the semaphores of worker processes, whose tracker would warn about them on stderr."""
    if (processes := sys.modules.get("multiprocessing.util")) is not None:
        processes._run_finalizers(0)


def _run() -> int:
    """The exit code of the command; raises KeyboardInterrupt for whatever a library makes of an interruption."""
    from hockeystick.cli import interruption

    gc.set_threshold(ALLOCATIONS)
    interruption.start()
    code = 0
    try:
        from hockeystick.cli.main import main as command

        command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
    except BaseException:
        if not interruption.seen():
            raise
        raise KeyboardInterrupt from None
    interruption.finish(code)
    return code


if __name__ == "__main__":
    main()
