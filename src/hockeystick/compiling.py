"""How kernels are compiled: the flags that all of them have."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

_njit: Any = njit  # its types leave out a flag


@overload
def kernel(function: F, /) -> F: ...
@overload
def kernel(**flags: Any) -> Callable[[F], F]: ...
def kernel(function: F | None = None, /, **flags: Any) -> F | Callable[[F], F]:
    """Compile a function of numbers and arrays when it is first called, and keep the result on disk.

    Args:
        flags: of ``numba.njit``: ``fastmath``, or ``inline`` for what one kernel calls once. All kernels share the
            others, as numba compiles what they call of its own, such as ``np.zeros`` and ``max``, once for every set of
            flags. So all release the interpreter lock, also those of a moment. None is called from C, and the function
            for that is left out.
    """
    compiled: F | Callable[[F], F] = _njit(function, cache=True, nogil=True, no_cfunc_wrapper=True, **flags)
    return compiled
