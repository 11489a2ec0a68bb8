"""Shared by several commands: options, progress on stderr, output on stdout."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hockeystick import cli
from hockeystick.deadline import say as say
from hockeystick.errors import InvalidInputError, VerificationError, shortened
from hockeystick.report.document import visible

if TYPE_CHECKING:
    from hockeystick.certificate import CertificateBase
    from hockeystick.deadline import Deadline
    from hockeystick.mechanism import Mechanism
    from hockeystick.plan import Plan

C = TypeVar("C", bound="CertificateBase")
PlanPath = Annotated[str, typer.Argument(metavar="PLAN", help="Plan file (TOML or JSON).", show_default=False)]
# Numbers arrive as text, so that one that cannot be read gets our own sentence.
NoiseOption = Annotated[
    str | None,
    typer.Option(
        "--noise-multiplier", metavar="NUMBER", help="Standard deviation of the noise, divided by the clipping norm."
    ),
]
EpsilonOption = Annotated[
    str | None, typer.Option("--epsilon", metavar="NUMBER", help="Overrides the plan's target epsilon.")
]
DeltaOption = Annotated[
    str | None, typer.Option("--delta", metavar="NUMBER", help="Overrides the plan's target delta.")
]
MethodOption = Annotated[
    str | None, typer.Option("--method", help="Use only this accountant (see 'hockeystick list accountants').")
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="SECONDS",
        help="Time limit in seconds. The compilation of kernels does not count, except for Monte Carlo. By default "
        "there is no limit, and about a minute of work is planned.",
    ),
]
MatrixOption = Annotated[
    str | None,
    typer.Option(
        "--matrix",
        metavar="FILE",
        help="The file of the strategy matrix, if the certificate names one. A file 'matrix-....npy' in the folder of "
        "the certificate is found without this option.",
    ),
]
VerifyBudgetOption = Annotated[
    str, typer.Option("--budget", metavar="SECONDS", help="Time limit in seconds. One-time compilation does not count.")
]
GeneratorOption = Annotated[
    str | None,
    typer.Option(
        "--generator",
        metavar="NAME",
        help="Generator of the noise, if it is not hockeystick's own (see 'hockeystick list generators').",
    ),
]
OutOption = Annotated[str | None, typer.Option("--out", help="Write the certificate here.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Also print what the run must do, as 'show CERTIFICATE' does.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

MOST_PARAMETERS = 1e15
QUIET_SECONDS = 1.0
"""Work that takes less than this reports no progress."""
AGAIN_SECONDS = 10.0
"""When work that is not shown by a bar is reported again, for the first time."""


def emit(text: str) -> None:
    """Print a result on stdout and flush it, so that a failure is noticed.

    Control characters, which a stranger's file could have, are escaped, so that they cannot command the terminal. A
    closed pipe (``| head``) ends the command quietly.

    Raises: InvalidInputError when stdout cannot be written.
    """
    if sys.stdout is None:  # closed by the caller
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(visible(text).encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try again, and complain, when it exits
        if isinstance(error, BrokenPipeError):
            raise SystemExit(0) from None
        raise InvalidInputError(f"The standard output cannot be written: {error.strerror}.") from None


def number(name: str, text: str) -> float:
    """The number given for an option."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(f"The {name!r} option must be a number. Got {shortened(text)} instead.") from None


def parameter_count(text: str) -> int:
    """The number of parameters of a model, given for --parameters; as 1e9 too."""
    value = number("--parameters", text)
    if not (1.0 <= value <= MOST_PARAMETERS and value.is_integer()):
        raise InvalidInputError(
            f"The '--parameters' option must be a whole number from 1 to {MOST_PARAMETERS:g}. "
            f"Got {shortened(text)} instead."
        )
    return int(value)


def emit_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    emit(json.dumps(value, allow_nan=False))
    cli.answered = True


def wanted_delta(plan: "Plan", option: str | None) -> float:
    """The delta of the option, or of the plan."""
    value = plan.target.delta if option is None else number("--delta", option)
    if value is None:
        raise InvalidInputError("The 'target.delta' field is missing; give it in the plan or with --delta.")
    return value


def wanted_epsilon(plan: "Plan", option: str | None) -> float:
    """The epsilon of the option, or of the plan."""
    value = plan.target.epsilon if option is None else number("--epsilon", option)
    if value is None:
        raise InvalidInputError("The 'target.epsilon' field is missing; give it in the plan or with --epsilon.")
    return value


def mechanism_with_noise(plan: "Plan", option: str | None) -> "Mechanism":
    """The plan's mechanism, with a noise multiplier from the command line or the plan; a bad file is refused here."""
    mechanism = plan.mechanism(None if option is None else number("--noise-multiplier", option))
    if mechanism.noise_multiplier is None:
        raise InvalidInputError(
            "The 'noise_multiplier' field is missing; give it in the plan or with --noise-multiplier, "
            "or run 'hockeystick calibrate'."
        )
    mechanism.strategy.check_file(mechanism.sampler.steps)
    return mechanism


def check_method(name: str | None) -> None:
    """Refuse the name of an unknown accountant."""
    if name is not None:
        from hockeystick.accountants.registry import accountant

        accountant(name)


def check_generator(name: str | None) -> None:
    """Refuse the name of an unknown generator."""
    if name is not None:
        from hockeystick.noise.generators import known

        known(name)


def budget_seconds(option: str | None) -> float | None:
    """The seconds of --budget; None where it was not given."""
    from hockeystick.certification.schedule import check_budget

    return None if option is None else check_budget(number("--budget", option))


@contextmanager
def working(
    task: str, budget: str | None, mechanism: "Mechanism | None" = None, methods: Collection[str] | None = None
) -> Iterator["Deadline"]:
    """A deadline for one command, started once the kernels are compiled; none by default, and then nothing is compiled
    ahead.

    Reports on stderr what takes longer than a second.

    Args:
        methods: the accountants that will run, where that is known; nothing else is compiled ahead.
    """
    from hockeystick.deadline import Deadline

    seconds = budget_seconds(budget)
    if mechanism is not None:
        from hockeystick.pairs.registry import check_registered

        check_registered(mechanism)
    if seconds is not None:
        with say_if_slow("preparing the numerical kernels (up to a minute, the first time on this machine)"):
            from hockeystick.accountants.registry import warm_up

            warm_up(mechanism, methods)
    deadline = Deadline(float("inf") if seconds is None else seconds)
    with _progress(task, deadline):
        yield deadline


def check_output(out: str, *read: str | None, option: str = "--out") -> None:
    """Refuse a place for a result that cannot be written, or that is one of the files that the command reads."""
    from hockeystick.files import check_writable

    place = check_writable(out)
    for path in read:
        if path is not None and place.exists() and os.path.exists(path) and place.samefile(path):
            raise InvalidInputError(
                f"The {option!r} option must name another file than those that the command reads. "
                f"Got {shortened(out)} instead."
            )


def with_matrix(certificate: C, matrix: str | None) -> C:
    """The certificate with the matrix file that the user gives; the path in the certificate is never opened.

    Raises: InvalidInputError when the file is missing or not needed, or cannot be read; VerificationError when it is
    not the one that the certificate is about.
    """
    from hockeystick.files import opened

    strategy = certificate.mechanism.strategy.read_from(matrix)
    if matrix is None:
        return certificate
    with opened(matrix, f"'--matrix' file {shortened(matrix)}"):
        pass
    mechanism = certificate.mechanism.model_copy(update={"strategy": strategy})
    try:
        strategy.matrix(mechanism.sampler.steps)
    except InvalidInputError as error:
        raise VerificationError(str(error)) from None
    return certificate.model_copy(update={"mechanism": mechanism}).sealed()


def is_addendum(path: str) -> bool:
    """Whether a file of a claim is an addendum to one."""
    from hockeystick.audit.addendum_format import is_addendum

    return is_addendum(path)


def is_record(path: str) -> bool:
    """Whether a file is the record of a run."""
    from hockeystick.training.record import is_record

    return is_record(path)


@contextmanager
def saving(certificate: "CertificateBase", path: str | None) -> Iterator[None]:
    """Print the result inside: the certificate is written afterwards, even if nobody reads what is printed."""
    try:
        yield
    finally:
        if path is not None:
            certificate.save(path)


def say_of_sampling(certificate: "CertificateBase", *, allowed: bool) -> None:
    """Report on stderr when sampling was allowed and did not improve the bounds."""
    if not allowed or certificate.monte_carlo is not None:
        return
    needed = [left.seconds for left in certificate.cut_off if left.method == "monte_carlo"]
    if needed:
        say(
            f"samples that give a better bound take about {max(needed):.2g} s more work; these bounds are deterministic"
        )
    else:
        say("Monte Carlo was allowed and gave no better bound; these bounds are deterministic")


def hints_of(
    certificate: "CertificateBase",
    *,
    epsilon: float | None = None,
    sampling: bool,
    method: str | None,
    budget: str | None,
) -> list[str]:
    """What the user could change for a better answer; ``epsilon`` is the target of a calibration."""
    from hockeystick.calibration.hints import Asked, hints

    asked = Asked(epsilon=epsilon, sampling=sampling, method=method, budget=budget_seconds(budget))
    with say_if_slow("looking for what would give a better answer"):
        return hints(certificate, asked)


def say_hints(hints: list[str]) -> None:
    """Report hints on stderr, one line each."""
    for hint in hints:
        say(f"hint: {hint}")


def claim_json(certificate: "CertificateBase", seconds: float) -> dict[str, Any]:
    """The JSON object of ``epsilon`` and ``delta``."""
    content = certificate.model_dump(mode="json")
    return {
        "delta": content["delta"],
        "noise_multiplier": certificate.mechanism.sigma,
        "epsilon": content["epsilon"],
        "method": content["method"],
        "kind": content["kind"],
        "confidence": content["confidence"],
        **_failure(certificate),
        **({} if certificate.generator is None else {"generator": certificate.generator.model_dump(mode="json")}),
        **({"cut_off": [left.model_dump(mode="json") for left in certificate.cut_off]} if certificate.cut_off else {}),
        "seconds": round(seconds, 4),
    }


def _failure(certificate: "CertificateBase") -> dict[str, Any]:
    """The fields that Monte Carlo bounds add; none for deterministic ones."""
    claim = certificate.monte_carlo
    if claim is None:
        return {}
    return {
        "failure_probability": claim.failure_probability,
        "statement": claim.statement.value,
    }


@contextmanager
def say_if_slow(what: str) -> Iterator[None]:
    """Report on stderr what takes longer than a second."""
    timer = threading.Timer(QUIET_SECONDS, say, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _said_again(task: str) -> Iterator[None]:
    """Report on stderr that a task goes on, after 10, 20, 40, ... seconds: a log is not silent, and stays short."""
    over, began = threading.Event(), time.monotonic()

    def report() -> None:
        seconds = AGAIN_SECONDS
        while not over.wait(began + seconds - time.monotonic()):
            say(f"{seconds:g} s: still {task}")
            seconds *= 2.0

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(QUIET_SECONDS)  # nothing is reported afterwards


@contextmanager
def _progress(task: str, deadline: "Deadline") -> Iterator[None]:
    """After QUIET_SECONDS: a bar of the budget used on a terminal, ever rarer lines elsewhere; and what is reported."""

    def report(line: str) -> None:
        if deadline.elapsed() >= QUIET_SECONDS:
            write(line)

    write: Callable[[str], object] = say
    deadline.on_report = report
    if not sys.stderr.isatty():
        limit = "" if deadline.seconds == float("inf") else f", at most {deadline.seconds:g} s"
        with say_if_slow(f"{task}{limit}"), _said_again(task):
            yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]} steps"))
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    limited = deadline.seconds < float("inf")
    handle = bar.add_task(f"{task} (budget)" if limited else task, total=deadline.seconds if limited else None, done=0)

    def show(ticks: int) -> None:
        if deadline.elapsed() < QUIET_SECONDS:
            return
        if not bar.live.is_started:
            bar.start()
        bar.update(handle, completed=min(deadline.elapsed(), deadline.seconds), done=ticks)

    deadline.on_tick = show

    def above_the_bar(line: str) -> None:
        bar.console.print(f"hockeystick: {line}", markup=False, highlight=False)

    write = above_the_bar
    try:
        yield
    finally:
        if bar.live.is_started:
            bar.stop()
