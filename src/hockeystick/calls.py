"""Calls that do not fit a function: one sentence that shows a call that does, in place of Python's TypeError."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from hockeystick.errors import InvalidInputError, shortened

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
OTHER_ARGUMENTS = {
    "accountant": "method",
    "eps": "epsilon",
    "random_state": "rng",
    "seed": "rng",
    "settings": "monte_carlo",
    "target_delta": "delta",
    "target_epsilon": "epsilon",
    "timeout": "budget",
}
"""What newcomers call our arguments, where the spelling is too far away to be recognised."""
LONGEST = 12
"""Names of arguments in a message."""
MOST = 4
"""Values of a call in a message."""
WITHOUT_NAME = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
ANY_NUMBER = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class WrongCallError(InvalidInputError, TypeError):
    """A function was called with arguments that it does not have, or without one that it needs (exit code 2)."""


def called(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for public functions and methods, which keeps their signatures, types and docstrings.

    Before its body begins, the decorated function raises WrongCallError for values without names where names are
    needed, for names that it does not have, and for arguments that are missing. The message is one sentence, which
    ends with the example.

    >>> @called("half(3)")
    ... def half(number: float) -> float:
    ...     return number / 2
    >>> half(number=3)
    1.5
    >>> half(nubmer=3)
    Traceback (most recent call last):
        ...
    hockeystick.calls.WrongCallError: The 'nubmer' argument is not known here (did you mean 'number'?); for example: ...

    Args:
        example: a call that is right; ``tests/test_calls.py`` binds it to the signature.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        of = cache(lambda: signature(function))  # at the first wrong call, as most functions never have one

        @wraps(function)
        def checked(*unnamed: P.args, **named: P.kwargs) -> R:
            try:
                return function(*unnamed, **named)
            except TypeError:
                try:
                    of().bind(*unnamed, **named)
                except TypeError:
                    said = _complaint(function.__qualname__, of(), unnamed, named)
                else:
                    raise  # the call fits, and the error is the body's
            raise WrongCallError(f"{said}; for example: {example}.")

        vars(checked)["example"] = example
        return checked

    return decorate


def made_by(example: str) -> Callable[[type[T]], type[T]]:
    """:func:`called` for the constructor of a public class.

    Args:
        example: a call that makes such an object: of the class, or of what users have it from.
    """

    def decorate(described: type[T]) -> type[T]:
        described.__init__ = called(example)(described.__init__)  # type: ignore[method-assign]
        return described

    return decorate


def outside() -> int:
    """The ``stacklevel`` that makes a warning point at the first caller that is not part of hockeystick."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "hockeystick":
        frame, level = frame.f_back, level + 1
    return level


def _complaint(name: str, whole: Signature, unnamed: Sequence[object], named: Mapping[str, Any]) -> str:
    """The first fault of a call: a name that is not known, too many values, one given twice, or one that is missing.

    Args:
        name: of the function, with that of its class.
    """
    own = bool({"self", "cls"} & whole.parameters.keys())  # the object of a method is no argument for those who call it
    parameters = {key: parameter for key, parameter in whole.parameters.items() if key not in ("self", "cls")}
    unnamed = unnamed[own:]
    places = [key for key, parameter in parameters.items() if parameter.kind in WITHOUT_NAME]
    unknown = [key for key in named if key not in parameters]
    if unknown and not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return f"The {unknown[0]!r} argument is not known here ({_hint(unknown[0], list(parameters))})"
    if len(unnamed) > len(places):
        return _too_many(name, len(places), len(parameters), unnamed)
    twice = [key for key in places[: len(unnamed)] if key in named]
    if twice:
        return f"The {twice[0]!r} argument is given twice"
    missing = [
        key
        for key, parameter in parameters.items()
        if parameter.default is Parameter.empty
        and parameter.kind not in ANY_NUMBER
        and key not in (*places[: len(unnamed)], *named)
    ]
    return f"The {missing[0]!r} argument has to be given"


def _hint(unknown: str, known: Sequence[str]) -> str:
    """The argument that was meant, or all that there are."""
    from hockeystick.misspelt import nearest  # pydantic comes with it, which no command should wait for

    other = OTHER_ARGUMENTS.get(unknown)
    meant = other if other in known else nearest(unknown, known)
    if meant is not None:
        return f"did you mean {meant!r}?"
    return f"the arguments are {', '.join([*known[:LONGEST], *['...'] * (len(known) > LONGEST)])}"


def _too_many(name: str, places: int, arguments: int, unnamed: Sequence[object]) -> str:
    """That fewer values may be given without names."""
    owner, _, name = name.rpartition(".")
    what, name = ("class", owner.rpartition(".")[2]) if name in ("__init__", "__new__") else ("function", name)
    values = ", ".join([*map(shortened, unnamed[:MOST]), *["..."] * (len(unnamed) > MOST)])
    if places == arguments:
        rule = f"The {what} {name} takes at most {places} argument{'s' * (places != 1)}"
    elif places == 0:
        rule = f"All arguments of {name} must be given by name"
    else:
        rule = f"Only the first {f'{places} arguments' if places > 1 else 'argument'} of {name} may go without a name"
    return f"{rule}. Got {name}({values}) instead"
