"""Ctrl-C at any time ends the command with one sentence and one exit code.

Libraries that are being imported, or called from compiled code, may turn an interruption into another error or swallow
it. So the process remembers that there was one, and interrupts itself again where it was swallowed.
"""

import atexit
import os
import signal
import sys
from time import monotonic
from types import FrameType

SOON = 0.02
"""Seconds until an interruption that was swallowed, or has to wait, is repeated."""

_began: float | None = None
_seen = False
_telling = False
_exit_code: int | None = None


def start() -> None:
    """Remember interruptions from now on, unless the parent process had them ignored; and when that was."""
    global _began
    _began = monotonic()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _repeat
        # Exit handlers run in reverse order: after this one, Python would restore the signal's default action.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def began() -> float:
    """When this process was started for a command, by the monotonic clock; now, where it was not."""
    return monotonic() if _began is None else _began


def tell() -> None:
    """How the command failed is about to be told, once: from now on interruptions change nothing."""
    global _telling
    _telling = True


def finish(code: int) -> None:
    """The command is done: from now on an interruption ends the process at once, with the command's exit code."""
    global _exit_code
    _exit_code = code


def seen() -> bool:
    """Whether this process was interrupted since ``start``."""
    return _seen


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _seen
    if _exit_code is not None:
        os._exit(_exit_code)
    if _telling:
        return
    _seen = True
    if _would_be_lost(frame):
        _again_soon()
        return
    raise KeyboardInterrupt


def _would_be_lost(frame: FrameType | None) -> bool:
    """Whether Python's report of what was swallowed waits for this frame or for one that called it."""
    while frame is not None:
        if frame.f_code is _repeat.__code__:
            return True
        frame = frame.f_back
    return False


def _repeat(report: "sys.UnraisableHookArgs") -> None:
    """Interrupt again where an interruption met a callback or a destructor, which cannot pass it on."""
    if not isinstance(report.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(report)
        return
    _again_soon()


def _again_soon() -> None:
    from threading import Timer, main_thread

    timer = Timer(SOON, signal.pthread_kill, (main_thread().ident, signal.SIGINT))
    timer.daemon = True
    timer.start()
