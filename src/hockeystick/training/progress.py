"""Long work of an engine, shown to whoever waits for it: lines on stderr."""

from threading import Lock, Timer
from typing import Any, Self

from hockeystick.certificate import Certificate
from hockeystick.certification.issue import certify
from hockeystick.deadline import Deadline, say
from hockeystick.mechanism import Mechanism

QUIET_SECONDS = 1.0
"""Work that takes less says nothing."""
EVERY_SECONDS = 5.0
"""Between two lines about work that goes on."""


class Progress:
    """What is being done, after a second; how far it is, every five seconds; and what came of it.

    A timer says the first line, as kernels that are compiled make no ticks. Work that takes less than a second says
    nothing.

    Args:
        task: what is being done, in words.

    Attributes:
        deadline: without a limit; the work ticks and reports there.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self.deadline = Deadline(on_tick=self._tick, on_report=self._report)
        self._lock, self._begun = Lock(), False
        self._next = QUIET_SECONDS + EVERY_SECONDS
        self._timer = Timer(QUIET_SECONDS, self.begin)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._timer.cancel()

    def begin(self) -> None:
        """Say now what is being done, unless it was said."""
        with self._lock:  # the timer may come at the same time
            begun, self._begun = self._begun, True
        if not begun:
            say(self.task)

    def done(self, result: str) -> None:
        """Say what came of it, where anything was said before."""
        self._timer.cancel()
        if self._begun:
            say(f"{result}, in {self.deadline.elapsed():.1f} s")

    def _tick(self, pieces: int) -> None:
        elapsed = self.deadline.elapsed()
        if elapsed >= self._next:
            self._next = elapsed + EVERY_SECONDS
            self.begin()
            say(f"{elapsed:.0f} s: {pieces:,} pieces of work done")

    def _report(self, line: str) -> None:
        if self.deadline.elapsed() >= QUIET_SECONDS:
            self.begin()
            say(f"{self.deadline.elapsed():.0f} s: {line}")


def certify_shown(mechanism: Mechanism, whose: str, *, shown: bool = True, **options: Any) -> Certificate:
    """:func:`hockeystick.certify`, which shows its progress unless ``options`` have a budget or deadline of their own.

    Args:
        mechanism: with its noise multiplier.
        whose: the steps that are certified, in words.
        shown: False where another process shows the same.
        options: of :func:`hockeystick.certify`.
    """
    if not shown or options.get("budget") is not None or options.get("deadline") is not None:
        return certify(mechanism, **options)
    with Progress(f"certifying {whose}") as progress:
        certificate = certify(mechanism, **options | {"deadline": progress.deadline})
        bounded = "epsilon" if certificate.question.epsilon is None else "delta"
        progress.done(f"{bounded} is at most {certificate.bounds.upper:.6g} for {whose}")
    return certificate
