"""Results that are kept with the object that they are about, and go with it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")


class Remembers(Protocol):
    """What results are kept with: ``memo`` starts empty."""

    @property
    def memo(self) -> dict[Any, Any]:
        """The results so far, by function and arguments."""
        ...


S = TypeVar("S", bound=Remembers)


def remembered(function: Callable[[S, *Arguments], R]) -> Callable[[S, *Arguments], R]:
    """Keep all results of a function with its first argument; the others are positional and hashable.

    A cache of the module would keep the first argument, and what it holds, alive.
    """

    @wraps(function)
    def kept(subject: S, *arguments: *Arguments) -> R:
        key = (function, arguments)
        if key not in subject.memo:
            subject.memo[key] = function(subject, *arguments)
        value: R = subject.memo[key]
        return value

    return kept
