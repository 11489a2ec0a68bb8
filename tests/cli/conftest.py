"""A good plan, ways to spoil it, and a way to run a command inside the process."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hockeystick.cli.main import main

GOOD: dict[str, dict[str, Any]] = {
    "data": {"num_examples": 6000, "batch_size": 20, "epochs": 1},
    "sampler": {"kind": '"balls_in_bins"'},
    "target": {"epsilon": 2.0, "delta": 1e-5},
    "mechanism": {"noise_multiplier": 1.0},
}
JARGON = ("Value error", "nput should", "validation error", "Traceback", "pydantic", "Internal error", "datetime.")


def plan_text(changes: dict[str, str | None] | None = None, top: str = "") -> str:
    """The good plan as TOML; ``{"data.epochs": "3"}`` replaces a value by TOML text, None removes it."""
    tables = {name: dict(fields) for name, fields in GOOD.items()}
    for place, value in (changes or {}).items():
        table, field = place.split(".")
        if value is None:
            del tables[table][field]
        else:
            tables.setdefault(table, {})[field] = value
    lines = [top]
    for name, fields in tables.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in fields.items())]
    return "\n".join(lines) + "\n"


@dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str
    created: set[str]

    @property
    def complaint(self) -> str:
        """stderr without progress; a command that fails says one line."""
        lines = [line for line in self.err.splitlines() if not line.startswith("hockeystick: ")]
        assert len(lines) == 1, self.err
        return lines[0]

    @property
    def json(self) -> dict[str, Any]:
        """stdout, which must be one JSON object on one line."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, self.out
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


class Cli:
    """Runs commands in a fresh directory, where ``plan.toml`` is the good plan unless a test changes it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def write_plan(self, changes: dict[str, str | None] | None = None, top: str = "", name: str = "plan.toml") -> None:
        Path(name).write_text(plan_text(changes, top))

    def __call__(self, *arguments: str) -> Result:
        before = set(os.listdir())
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        out, err = self.capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Result(stopped.value.code, out, err, set(os.listdir()) - before)

    def refuses(self, *arguments: str, says: Sequence[str] = (), code: int = 2) -> str:
        """The command says one sentence with these parts and writes nothing; returns the sentence.

        It prints nothing either, but for the same sentence in an object where ``--json`` is asked for.
        """
        result = self(*arguments)
        assert result.code == code, (result.err, result.out)
        assert result.created == set()
        sentence = result.complaint
        if "--json" in arguments:
            assert json.loads(result.out) == {"error": sentence, "exit_code": code}
        else:
            assert result.out == ""
        assert sentence.endswith(".")
        for part in says:
            assert part in sentence, f"{part!r} is not in: {sentence}"
        for jargon in JARGON:
            assert jargon not in sentence
        return sentence


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands, run inside the process."""
    monkeypatch.chdir(tmp_path)
    made = Cli(capsys)
    made.write_plan()
    return made
