"""The ``hockeystick`` command: registers the commands, and turns errors into one sentence and an exit code."""

import sys
from typing import Annotated, Any, NoReturn, cast

import typer

from hockeystick import cli
from hockeystick._version import __version__
from hockeystick.cli import (
    INTERRUPTED,
    INTERRUPTED_MESSAGE,
    audit,
    calibrate,
    compare,
    compose,
    curve,
    delta,
    doctor,
    epsilon,
    evidence,
    explore,
    interruption,
    list_,
    recommend,
    report,
    reproduce,
    say_failure,
    show,
    state,
    sweep,
    tune,
    verify,
)
from hockeystick.errors import HockeystickError


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hockeystick {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The privacy of differentially private training, bounded from both sides: calibrate, certify, compare, verify."""


app = typer.Typer(name="hockeystick", callback=_options, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("show")(show.command)
app.command("recommend")(recommend.command)
app.command("calibrate")(calibrate.command)
app.command("epsilon")(epsilon.command)
app.command("delta")(delta.command)
app.command("compare")(compare.command)
app.command("curve")(curve.command)
app.command("compose")(compose.command)
app.command("tune")(tune.command)
app.command("verify")(verify.command)
app.command("audit")(audit.command)
app.command("state")(state.command)
app.command("sweep")(sweep.command)
app.command("report")(report.command)
app.add_typer(evidence.app, name="evidence")
app.command("list")(list_.command)
app.command("explore")(explore.command)
app.command("reproduce")(reproduce.command)
app.command("doctor")(doctor.command)


_UsageError: type[typer.BadParameter] = cast(Any, typer.BadParameter.__mro__[1])
"""click's error for a bad command line. Newer versions of typer bundle click, older ones import it."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Exit codes: 0 done, 1 not certified or not verified, 2 bad input, 70 internal error, 130 interrupted. With
    ``--json`` a failure is one JSON object on stdout too, with the sentence as ``error`` and the ``exit_code``, unless
    the answer is there already.
    """
    words = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    as_json, cli.answered = "--json" in words, False
    try:
        code = app(args=words, prog_name="hockeystick", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, typer.Exit):
            code = error.exit_code
        elif _interrupted(error):
            code = INTERRUPTED
        else:
            _fail(*_complaint(error, words), as_json=as_json)
    if code == INTERRUPTED:  # some versions of typer return it
        _fail(INTERRUPTED_MESSAGE, INTERRUPTED, as_json=as_json)
    raise SystemExit(code if isinstance(code, int) else 0)


def _complaint(error: BaseException, words: list[str]) -> tuple[str, int]:
    """The error in one sentence, and the exit code, for the words of a command line."""
    if isinstance(error, HockeystickError):
        return str(error), error.exit_code
    if isinstance(error, _UsageError):
        return _sentence(error, words), 2
    if isinstance(error, MemoryError):
        return "The memory of this machine is too small for this problem.", 1
    return _internal(error), 70


def _sentence(error: typer.BadParameter, words: list[str]) -> str:
    """typer's message as one sentence on one line, with the help of the command that it is about."""
    if error.ctx is not None:
        command = error.ctx.command_path
    else:  # of an option without a value, or with one too many
        command = "hockeystick" if words[0].startswith("-") else f"hockeystick {words[0]}"
    message = " ".join(error.format_message().split()).rstrip(".")
    if getattr(error, "possibilities", None) is not None and hasattr(error, "option_name") and error.ctx is not None:
        message = _no_such_option(str(error.option_name), error.ctx.command.params)
    if message.startswith("No such command 'certify'"):  # its name in Python
        message = "No such command 'certify'; 'hockeystick epsilon PLAN' certifies a plan, 'calibrate' finds its noise"
    if message.endswith("?"):
        return f"{message} See '{command} --help'."
    return f"{message}; see '{command} --help'."


def _no_such_option(name: str, parameters: list[Any]) -> str:
    """That a command has no option of this name, with the one that it begins, or that it means elsewhere."""
    from hockeystick.misspelt import nearest

    fields = {option.lstrip("-").replace("-", "_"): option for parameter in parameters for option in parameter.opts}
    word = name.lstrip("-").replace("-", "_")
    longer = [option for option in fields.values() if option.startswith(name)]
    near = nearest(word, fields)
    meant = longer[0] if longer else None if near is None else fields[near]
    return f"No such option: {name}" + ("" if meant is None else f" (did you mean {meant!r}?)")


def _interrupted(error: BaseException) -> bool:
    """Whether this error is Ctrl-C, possibly wrapped by typer, a compiled kernel or an import."""
    if interruption.seen():
        return True
    cause: BaseException | None = error
    while isinstance(cause, SystemError):
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, KeyboardInterrupt | typer.Abort)


def _internal(error: BaseException) -> str:
    """An internal error on one line, with the place where it happened."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return " ".join(f"Internal error{place}, please report it: {type(error).__name__}: {error}".split())


def _fail(message: str, code: int, *, as_json: bool) -> NoReturn:
    interruption.tell()
    say_failure(message, code, as_json=as_json)
    raise SystemExit(code) from None
