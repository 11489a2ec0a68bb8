"""Exceptions whose messages say what to change.

Every message is one sentence that names the field, the value and what is allowed. The command line
prints it as it stands and exits with the class's ``exit_code``.
"""

from datetime import date, time


class HockeystickError(Exception):
    """Base of every error that hockeystick raises on purpose."""

    exit_code = 2


class InvalidInputError(HockeystickError, ValueError):
    """A value is outside what is allowed (exit code 2)."""


class UnsupportedError(HockeystickError):
    """A combination that nobody has analysed, or a method whose proof does not cover the case (exit code 2)."""


class CannotCertifyError(HockeystickError):
    """No certified bound meets the request (exit code 1)."""

    exit_code = 1


class VerificationError(HockeystickError):
    """A certificate does not follow from what it says (exit code 1)."""

    exit_code = 1


class ViolationError(HockeystickError):
    """A run broke a promise that its certificate rests on (exit code 1)."""

    exit_code = 1


class EvidenceError(HockeystickError):
    """A store of evidence is damaged, contradicts another one, or cannot be used now (exit code 1)."""

    exit_code = 1


class OptimisationError(HockeystickError):
    """A strategy's optimiser did not converge (exit code 1)."""

    exit_code = 1


class BudgetExceededError(HockeystickError):
    """The time budget ran out inside an accountant (exit code 1)."""

    exit_code = 1


def install(extra: str) -> str:
    """How to get an extra, as the end of a message: from a clone, as no index has a release.

    >>> print(install("torch"))
    run pip install '.[torch]' in your clone of hockeystick
    """
    return f"run pip install '.[{extra}]' in your clone of hockeystick"


def counted(count: int, noun: str) -> str:
    """A number of things, in words that fit it.

    >>> counted(1, "step"), counted(2, "step")
    ('1 step', '2 steps')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortened(value: object) -> str:
    """A value as it goes into a message: on one line, of at most 60 characters."""
    try:
        text = value.isoformat() if isinstance(value, date | time) else " ".join(repr(value).split("\n"))
    except ValueError:  # Python does not print whole numbers of more than 4300 digits
        return "a number too large to print"
    return text if len(text) <= 60 else text[:57] + "..."
