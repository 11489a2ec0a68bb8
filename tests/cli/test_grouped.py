"""Options that are declared once: typer sees the fields, commands see the dataclass."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from hockeystick.cli.grouped import grouped
from hockeystick.cli.main import app

Text = Annotated[str | None, typer.Option("--text-of-any-kind", help="Words.")]


@dataclass(frozen=True)
class Inner:
    text: Text = None


@dataclass(frozen=True)
class Outer:
    loud: Annotated[bool, typer.Option("--loud")] = False
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "None Outer(loud=False, inner=Inner(text=None)) 3"),
        (["--loud", "--text-of-any-kind", "x", "--last", "4"], "None Outer(loud=True, inner=Inner(text='x')) 4"),
        (["--first", "a"], "a Outer(loud=False, inner=Inner(text=None)) 3"),
    ],
)
def test_a_command_has_the_options_of_its_groups_and_of_theirs(arguments: list[str], found: str) -> None:
    own = typer.Typer()

    @own.command()
    @grouped
    def command(
        first: Annotated[str | None, typer.Option("--first")] = None,
        outer: Outer = Outer(),
        last: Annotated[int, typer.Option("--last")] = 3,
    ) -> None:
        """Do something."""
        typer.echo(f"{first} {outer} {last}")

    result = CliRunner().invoke(own, arguments)
    assert (result.exit_code, result.output.strip()) == (0, found)


@pytest.mark.parametrize("command", ["epsilon", "delta", "calibrate", "compare", "sweep", "recommend"])
def test_commands_that_may_sample_have_the_same_options_for_it(command: str) -> None:
    """In the same order, with the same help; of a sweep, the failure probability is that of one cell."""
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    start, end = shown.index("  --allow "), shown.index("  --workers ")
    reference = CliRunner().invoke(app, ["epsilon", "--help"], env={"COLUMNS": "200"}).output
    wanted = reference[reference.index("  --allow ") : reference.index("  --workers ")]
    expected = " ".join(wanted.split())
    if command == "sweep":
        expected = expected.replace(
            "of all Monte Carlo bounds together", "of the Monte Carlo bounds of one cell together"
        )
    assert " ".join(shown[start:end].split()) == expected
