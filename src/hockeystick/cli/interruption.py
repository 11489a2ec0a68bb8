"""Ctrl-C: what it says, its exit code, and whether it happened.

Libraries that are just being imported, or called from compiled code, can pass an interruption on as another error, or
swallow it. So the process remembers that there was one.
"""

import signal
from types import FrameType
from typing import NoReturn

CODE = 130
MESSAGE = "Interrupted; no file was left half written."

_seen = False


def start() -> None:
    """Remember interruptions from now on; where somebody chose to ignore them, they stay ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def seen() -> bool:
    """Whether this process was interrupted since ``start``."""
    return _seen


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    global _seen
    _seen = True
    raise KeyboardInterrupt
