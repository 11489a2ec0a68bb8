"""The ``hockeystick`` command: gathers the commands and turns our errors into one sentence and an exit code."""

import sys

import click
import typer

from hockeystick.cli import calibrate, compare, delta, epsilon, list_, reproduce, verify
from hockeystick.errors import HockeystickError

app = typer.Typer(
    name="hockeystick",
    help="The true privacy of differentially private training: calibrate, certify, compare, verify.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("calibrate")(calibrate.command)
app.command("epsilon")(epsilon.command)
app.command("delta")(delta.command)
app.command("compare")(compare.command)
app.command("verify")(verify.command)
app.command("list")(list_.command)
app.command("reproduce")(reproduce.command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit codes: 0 done, 1 not certified or not verified, 2 bad input, 130 interrupted."""
    try:
        code = app(args=arguments, standalone_mode=False)
    except HockeystickError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.UsageError as error:
        _fail(error.format_message(), 2)
    except click.exceptions.Exit as finished:
        raise SystemExit(finished.exit_code) from None
    except (KeyboardInterrupt, click.exceptions.Abort):
        _fail("Interrupted; nothing was written.", 130)
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    print(message, file=sys.stderr)  # noqa: T201
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
