"""How kernels are compiled: the flags that all of them have, and what a Ctrl-C does meanwhile."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, TypeVar, overload

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])
CALLBACKS = "_raw_object_cache_"
"""How the functions of llvmlite begin that LLVM calls while numba loads or compiles a kernel.
They cannot pass an exception on: LLVM goes on without the kernel's code and aborts the process."""

_njit: Any = njit  # its types leave out a flag


@overload
def kernel(function: F, /) -> F: ...
@overload
def kernel(**flags: Any) -> Callable[[F], F]: ...
def kernel(function: F | None = None, /, **flags: Any) -> F | Callable[[F], F]:
    """Compile a function of numbers and arrays when it is first called, and keep the result on disk.

    A Ctrl-C meanwhile is no danger, in notebooks and scripts too, see :func:`interruptions_wait`.

    Args:
        flags: of ``numba.njit``: ``fastmath``, or ``inline`` for what one kernel calls once. All kernels share the
            others, as numba compiles what they call of its own, such as ``np.zeros`` and ``max``, once for every set of
            flags. So all release the interpreter lock, also those of a moment. None is called from C, and the function
            for that is left out.
    """
    if function is None:
        return lambda given: _guarded(_njit(cache=True, nogil=True, no_cfunc_wrapper=True, **flags)(given))
    made: F = _guarded(_njit(function, cache=True, nogil=True, no_cfunc_wrapper=True, **flags))
    return made


def _guarded(dispatcher: Any) -> Any:
    """The dispatcher, which numba has load or compile a kernel by its ``compile``."""
    dispatcher.compile = interruptions_wait()(dispatcher.compile)
    return dispatcher


@contextmanager
def interruptions_wait() -> Iterator[None]:
    """Keep a Ctrl-C that comes while LLVM waits for one of its callbacks until the kernel is there.

    Whatever handler there is stays in charge: it is called at once at any other time, and at the end for what was kept.
    Where there is none in Python, and in other threads, which are not interrupted, nothing changes.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or current_thread() is not main_thread():
        yield
        return
    kept = []

    def keep(number: int, frame: FrameType | None) -> None:
        if _calls_back(frame):
            kept.append(number)
        else:
            handler(number, frame)

    try:
        signal.signal(signal.SIGINT, keep)
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if kept:
            handler(kept[0], sys._getframe())


def _calls_back(frame: FrameType | None) -> bool:
    """Whether LLVM waits for this frame or for one that called it."""
    while frame is not None:
        if frame.f_code.co_name.startswith(CALLBACKS):
            return True
        frame = frame.f_back
    return False
