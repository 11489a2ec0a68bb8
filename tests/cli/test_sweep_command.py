"""hockeystick sweep: a table or one JSON object, results that can be gone on with, one sentence for bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hockeystick.cli.main import app

GRID = '\n[grid]\nnoise_multiplier = [1.0, 2.0]\n"sampler.kind" = ["deterministic", "poisson"]\n'
DELTA = {"target.epsilon": None, "mechanism.noise_multiplier": None}
OUT = "sweep.results.jsonl"


@pytest.fixture
def sweep(cli):
    def write(grid: str = GRID, changes=None) -> None:
        cli.write_plan({**DELTA, **(changes or {})}, name="sweep.toml")
        Path("sweep.toml").write_text(Path("sweep.toml").read_text() + grid)

    write()
    return write


def test_the_command_is_registered():
    assert "sweep" in {command.name for command in app.registered_commands}


def test_a_table_and_results_that_are_not_computed_again(cli, sweep):
    first = cli("sweep", "sweep.toml", "--method", "gaussian")
    assert first.code == 0, first.err
    assert first.created == {OUT}
    header, *rows, last = first.out.splitlines()
    assert header.split() == ["noise_multiplier", "sampler.kind", "epsilon", "delta", "adjacency", "seconds", "status"]
    assert ["  zero_out  " in row for row in rows] == [True, False, True, False]
    assert ["  zero_out, also add_remove  " in row for row in rows] == [False, True, False, True]
    assert [row.split()[:2] for row in rows] == [
        [sigma, kind] for sigma in ("1.0", "2.0") for kind in ("deterministic", "poisson")
    ]
    assert all(row.endswith("certified") and " at most " in row and " 1e-05 " in row for row in rows)
    assert last == f"results written to {OUT}"
    content = Path(OUT).read_text()
    assert content.count("\n") == 5
    again = cli("sweep", "sweep.toml", "--method", "gaussian")
    assert again.out == first.out  # seconds and all: nothing was computed
    assert Path(OUT).read_text() == content


def test_workers_certify_cells_without_samples(cli, sweep):
    first = cli("sweep", "sweep.toml", "--method", "gaussian", "--workers", "1", "--out", "here.jsonl", "--json").json
    again = cli("sweep", "sweep.toml", "--method", "gaussian", "--out", "there.jsonl", "--json").json
    for done in (first, again):
        done.pop("out")
        for cell in done["results"]:
            cell.pop("seconds")
    assert first == again
    assert cli("sweep", "sweep.toml", "--workers", "0").code == 2
    assert cli("sweep", "sweep.toml", "--seed", "1").code == 2, "samples still have to be allowed"


def test_json_is_one_object_with_what_epsilon_says(cli, sweep):
    result = cli("sweep", "sweep.toml", "--method", "gaussian", "--out", "here.jsonl", "--json").json
    assert (result["out"], result["cells"], len(result["results"])) == ("here.jsonl", 4, 4)
    cell = result["results"][0]
    assert cell["fields"] == {"noise_multiplier": 1.0, "sampler.kind": "deterministic"}
    assert cell["status"] == "certified"
    cli.write_plan({"sampler.kind": '"deterministic"'})
    alone = cli("epsilon", "plan.toml", "--method", "gaussian", "--json").json
    assert cell["epsilon"] == alone["epsilon"]
    assert cell["method"] == alone["method"]


def test_a_cell_that_cannot_be_certified_says_why_and_is_tried_again_on_demand(cli, sweep):
    sweep('\n[grid]\n"data.batch_size" = [20, 7]\n', {"mechanism.noise_multiplier": "1.0", "sampler.kind": '"shuffle"'})
    first = cli("sweep", "sweep.toml", "--method", "gaussian", "--json").json
    assert [cell["status"] == "certified" for cell in first["results"]] == [True, False]
    assert "epsilon" not in first["results"][1]
    size = Path(OUT).stat().st_size
    cli("sweep", "sweep.toml", "--method", "gaussian")
    assert Path(OUT).stat().st_size == size
    cli("sweep", "sweep.toml", "--method", "gaussian", "--retry")
    assert Path(OUT).stat().st_size > size


@pytest.mark.parametrize(
    ("arguments", "grid", "says"),
    [
        ((), "", "The 'grid' table is missing"),
        ((), "\n[grid]\nnoise_multiplier = []\n", "must have at least one value"),
        (
            (),
            '\n[grid]\n"sampler.bins" = [3]\nnoise_multiplier = [1.0]\n',
            "The 'sampler.bins' field is not known here",
        ),
        ((), f"\n[grid]\nnoise_multiplier = {list(range(1, 10_002))}\n", "at most 10000 cells. Got 10001 instead."),
        (("--out", "missing/out"), GRID, "The output path 'missing/out' cannot be written"),
        (("--out", "plan.toml"), GRID, "is not a file of sweep results"),
        (("--budget", "0"), GRID, "The 'budget' field must be above 0"),
        (("--budget", "soon"), GRID, "The '--budget' option must be a number. Got 'soon' instead."),
        (("--delta", "2"), GRID, "The 'delta' field must be from 1e-30 to below 1. Got 2.0 instead."),
        (("--delta", "1e-5", "--epsilon", "1"), GRID, "Exactly one of 'delta' and 'epsilon' must be given."),
        (("--method", "magic"), GRID, "magic"),
        (("--evidence", "samples.sqlite"), GRID, "--allow"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(cli, sweep, arguments, grid, says):
    sweep(grid)
    cli.refuses("sweep", "sweep.toml", *arguments, says=[says])


def first_is_done() -> bool:
    return os.path.exists(OUT) and Path(OUT).read_text().count("\n") > 1


def test_an_interruption_leaves_results_that_can_be_gone_on_with(tmp_path, cli, sweep):
    """The first cell is quick, the second takes longer than anyone waits."""
    sweep('\n[grid]\n"data.num_examples" = [6000, 200000000]\n', {"mechanism.noise_multiplier": "1.0"})
    text = Path("sweep.toml").read_text()
    Path("sweep.toml").write_text(text.replace("balls_in_bins", "poisson").replace("epochs = 1", "epochs = 100"))
    command = [sys.executable, "-m", "hockeystick", "sweep", "sweep.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60.0
        while time.monotonic() < end and not (os.path.exists(OUT) and Path(OUT).read_text().count("\n") > 1):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    lines = Path(OUT).read_text().splitlines()
    assert json.loads(lines[1])["status"] == "certified"
    if process.returncode != 0:  # unless a very fast machine was done already
        assert (process.returncode, out) == (130, "")
        assert err.splitlines()[-1] == "Interrupted; no file was left half written."
    assert sorted(os.listdir()) == ["plan.toml", OUT, "sweep.toml"]
    assert all(json.loads(line) for line in lines)
