"""Sweeps: every combination once, kept line by line, resumed where they stopped."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.bounds import Question
from hockeystick.errors import CannotCertifyError, HockeystickError, InvalidInputError, VerificationError
from hockeystick.execution import executor
from hockeystick.execution.work import ExecutionError
from hockeystick.sweep import CERTIFIED, HEADER, MAX_CELLS, Cell, Record, Results, Sweep, certifier, run_sweep

ROOT = Path(__file__).resolve().parents[1]
PLAN = """
noise_multiplier = 1.0
[data]
num_examples = 100
batch_size = 10
epochs = 1
[sampler]
kind = "deterministic"
[target]
delta = 1e-5
"""
GRID = """
[grid]
noise_multiplier = [1.0, 2, 4.0]
"sampler.kind" = ["deterministic", "poisson"]
"""


@cache
def certified(mechanism: hs.Mechanism, question: Question) -> hs.Certificate:
    """By the quickest accountant there is."""
    return certifier(method="gaussian")(mechanism, question)


def load(folder: Path, grid: str = GRID, plan: str = PLAN) -> Sweep:
    (folder / "sweep.toml").write_text(plan + grid)
    return Sweep.load(folder / "sweep.toml")


class Certifier:
    """Counts what it is asked, and answers with a certificate or what a test wants."""

    def __init__(self, failures: dict[float, BaseException] | None = None) -> None:
        self.failures = failures or {}
        self.asked: list[tuple[float, str]] = []

    def __call__(self, mechanism: hs.Mechanism, question: Question) -> hs.Certificate:
        self.asked.append((mechanism.sigma, mechanism.sampler.kind))
        if mechanism.sigma in self.failures:
            raise self.failures[mechanism.sigma]
        return certified(mechanism, question)


def test_the_cells_are_all_combinations_and_the_last_field_changes_fastest(tmp_path):
    cells = load(tmp_path).cells()
    assert [tuple(cell.fields.values()) for cell in cells] == [
        (sigma, kind) for sigma in (1.0, 2, 4.0) for kind in ("deterministic", "poisson")
    ]
    assert [cell.plan.mechanism().sigma for cell in cells] == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert [cell.plan.sampler.kind for cell in cells] == ["deterministic", "poisson"] * 3
    assert {cell.question for cell in cells} == {Question(delta=1e-5)}
    assert len({cell.digest for cell in cells}) == len(cells)


def test_fields_may_be_written_as_tables_and_values_may_be_tables(tmp_path):
    grid = """
[grid]
strategy = [{kind = "identity"}, {kind = "banded_square_root", bands = 2}]
[grid.data]
epochs = [1, 2]
[grid.target]
delta = [1e-5, 1e-6]
"""
    cells = load(tmp_path, grid).cells()
    assert len(cells) == 8
    assert list(cells[-1].fields) == ["strategy", "data.epochs", "target.delta"]
    last = cells[-1]
    assert (last.plan.strategy.kind, last.plan.data.epochs) == ("banded_square_root", 2)
    assert last.question == Question(delta=1e-6)


def test_a_cell_that_is_no_plan_is_named(tmp_path):
    """Its kind of sampler needs a field that the others have not."""
    grid = '[grid]\nnoise_multiplier = [1.0, 2.0]\nsampler.kind = ["poisson", "cyclic_poisson"]\n'
    with pytest.raises(InvalidInputError) as raised:
        load(tmp_path, grid, plan=PLAN).cells()
    assert str(raised.value) == (
        "Cell noise_multiplier = 1.0, sampler.kind = 'cyclic_poisson': "
        "The 'sampler.groups' field is missing and has to be given."
    )
    with pytest.raises(InvalidInputError, match=r"^The 'delta' field must be from 1e-30 to below 1\."):
        load(tmp_path).cells(delta=2.0)


def test_a_field_of_a_table_goes_over_the_table(tmp_path):
    grid = '[grid]\n"strategy.bands" = [2, 3]\nstrategy = [{kind = "banded_square_root", bands = 5}]\n'
    assert [cell.plan.strategy.bands for cell in load(tmp_path, grid).cells()] == [2, 3]


def test_digests_depend_on_what_the_answer_depends_on(tmp_path):
    sweep = load(tmp_path)

    def digests(**options: Any) -> set[str]:
        return {cell.digest for cell in sweep.cells(**options)}

    plain = digests()
    assert digests() == digests(delta=1e-5) == plain  # whether it is said in the plan or apart from it
    assert digests(delta=1e-6).isdisjoint(plain)
    assert digests(epsilon=1.0).isdisjoint(plain)
    assert digests(settings={"method": "direct"}).isdisjoint(plain)
    longer = load(tmp_path, plan=PLAN.replace("epochs = 1", "epochs = 2")).cells()
    assert {cell.digest for cell in longer}.isdisjoint(plain)


def test_a_matrix_that_changed_in_its_file_makes_another_cell(tmp_path):
    path = tmp_path / "matrix.npy"
    plan = PLAN + f'[strategy]\nkind = "custom"\npath = "{path}"\n'
    sweep = load(tmp_path, plan=plan)
    digests: set[str] = set()
    for scale in (1.0, 2.0):
        np.save(path, scale * np.eye(10))
        cells = {cell.digest for cell in sweep.cells()}
        assert digests.isdisjoint(cells)
        digests |= cells


def test_a_grid_that_grows_keeps_its_results(tmp_path):
    run_sweep(load(tmp_path).cells(), tmp_path / "out", certify_cell=Certifier())
    asked = Certifier()
    more = load(tmp_path, GRID.replace("4.0]", "4.0, 8.0]")).cells()
    records = run_sweep(more, tmp_path / "out", certify_cell=asked)
    assert asked.asked == [(8.0, "deterministic"), (8.0, "poisson")]
    assert [record.fields for record in records] == [cell.fields for cell in more]


def test_a_sweep_says_what_certify_says(tmp_path):
    grid = '[grid]\n"sampler.kind" = ["deterministic", "poisson"]\n'
    records = run_sweep(load(tmp_path, grid).cells(), tmp_path / "out", certify_cell=certifier(budget=30.0))
    for record in records:
        assert record.status == CERTIFIED
        assert record.certificate is not None
        again = hs.certify(record.certificate.mechanism, delta=1e-5, budget=30.0)
        assert record.certificate.epsilon == again.epsilon
        hs.verify(record.certificate)
    alone = certifier(budget=30.0, method="gaussian")(records[1].certificate.mechanism, Question(delta=1e-5))
    assert alone.method.upper == "gaussian"


def without_seconds(records: list[Record]) -> list[dict[str, Any]]:
    return [record.model_dump(mode="json", exclude={"seconds"}) for record in records]


def test_workers_write_what_one_process_writes(tmp_path):
    """In the same order, what cannot be certified included; and nothing is computed twice."""
    cells = load(tmp_path, GRID.replace('"poisson"', '"shuffle"')).cells()
    certify_cell = certifier(method="direct")
    alone = run_sweep(cells, tmp_path / "alone", certify_cell=certify_cell)
    with executor("local", workers=2) as workers:
        seen: list[int] = []
        spread = run_sweep(cells, tmp_path / "spread", certify_cell=certify_cell, executor=workers, on_cell=seen.append)
        assert seen == list(range(len(cells) + 1))
        again = run_sweep(cells, tmp_path / "spread", certify_cell=Certifier(), executor=workers)
    assert without_seconds(spread) == without_seconds(alone)
    assert again == spread
    assert [record.status == CERTIFIED for record in spread] == [True, False] * 3
    lines = [
        [{**json.loads(line), "seconds": 0} for line in (tmp_path / name).read_text().splitlines()]
        for name in ("alone", "spread")
    ]
    assert lines[0] == lines[1]


def test_a_sweep_that_is_stopped_leaves_no_cell_to_the_workers(tmp_path, monkeypatch):
    """One worker makes its calls in this process, as far ahead as four of them."""
    cells, asked = load(tmp_path, GRID.replace("[1.0, 2, 4.0]", "[1.0, 2, 4.0, 8.0]")).cells(), Certifier()

    def on_cell(done: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    abandoned: list[int] = []
    with executor("local", workers=1) as workers:
        monkeypatch.setattr(workers, "abandon", lambda: abandoned.append(len(asked.asked)))
        with pytest.raises(KeyboardInterrupt):
            run_sweep(cells, tmp_path / "out", certify_cell=asked, executor=workers, on_cell=on_cell)
        assert abandoned == [4]
    assert len(asked.asked) == 4
    assert (tmp_path / "out").read_text().count("\n") == 2, "what is written is a cell that was waited for"
    assert len(run_sweep(cells, tmp_path / "out", certify_cell=asked)) == 8
    assert len(asked.asked) == 4 + 7


@pytest.mark.parametrize("stopped_after", [0, 1, 4])
def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path, stopped_after):
    cells = load(tmp_path).cells()
    first = Certifier()
    seen: list[int] = []

    def on_cell(done: int) -> None:
        seen.append(done)
        if done == stopped_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(cells, tmp_path / "out", certify_cell=first, on_cell=on_cell)
    assert len(first.asked) == stopped_after
    assert (tmp_path / "out").read_text().count("\n") == 1 + stopped_after
    second, seen = Certifier(), []
    records = run_sweep(cells, tmp_path / "out", certify_cell=second, on_cell=seen.append)
    assert seen == list(range(stopped_after, len(cells) + 1))
    assert len(first.asked) + len(second.asked) == len(cells) == len(records)
    third = Certifier()
    assert run_sweep(cells, tmp_path / "out", certify_cell=third) == records
    assert third.asked == []


def test_a_line_that_was_torn_is_dropped_wherever_it_was_torn(tmp_path):
    cells = load(tmp_path).cells()[:3]
    out = tmp_path / "out"
    whole = run_sweep(cells, out, certify_cell=Certifier())
    content = out.read_bytes()
    last = len(content.splitlines(keepends=True)[-1])
    for cut in (1, 2, 40, last // 2, last - 1):
        out.write_bytes(content[:-cut])
        again = Certifier()
        records = run_sweep(cells, out, certify_cell=again)
        assert len(again.asked) == 1, cut
        assert [record.cell for record in records] == [record.cell for record in whole]
        assert len(Results(out, cells).records) == 3


def test_what_is_wrong_with_a_cell_is_its_status_and_can_be_tried_again(tmp_path):
    cells = load(tmp_path).cells()
    failures: dict[float, BaseException] = {2.0: CannotCertifyError("No bound."), 4.0: MemoryError()}
    records = run_sweep(cells, tmp_path / "out", certify_cell=Certifier(failures))
    assert [record.status for record in records] == [
        *[CERTIFIED] * 2,
        *["No bound."] * 2,
        *["The memory of this machine is too small for this problem."] * 2,
    ]
    assert [record.certificate is None for record in records] == [False, False, True, True, True, True]
    same = Certifier()
    assert run_sweep(cells, tmp_path / "out", certify_cell=same) == records
    assert same.asked == []
    better = Certifier({4.0: CannotCertifyError("Still no bound.")})
    retried = run_sweep(cells, tmp_path / "out", certify_cell=better, retry=True)
    assert len(better.asked) == 4
    assert [record.status for record in retried] == [*[CERTIFIED] * 4, *["Still no bound."] * 2]
    assert [record.status for record in run_sweep(cells, tmp_path / "out", certify_cell=same)] == [
        record.status for record in retried
    ]


def test_data_that_do_not_suit_a_sampler_are_a_status(tmp_path):
    grid = '[grid]\n"data.batch_size" = [10, 30]\n'
    cells = load(tmp_path, grid, PLAN.replace("deterministic", "shuffle")).cells()
    records = run_sweep(cells, tmp_path / "out", certify_cell=Certifier())
    assert records[0].status == CERTIFIED
    assert "shuffle" in records[1].status


@pytest.mark.parametrize("failure", [ExecutionError("The cluster is gone."), RuntimeError("a fault of ours")])
def test_what_is_not_about_a_cell_ends_the_sweep(tmp_path, failure):
    cells = load(tmp_path).cells()
    with pytest.raises(type(failure)):
        run_sweep(cells, tmp_path / "out", certify_cell=Certifier({2.0: failure}))
    assert len(Results(tmp_path / "out", cells).records) == 2


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ("", "The 'grid' table is missing"),
        ("[grid]\n", "The 'grid' table is missing"),
        ("grid = 3\n", "The 'grid' table is missing"),
        ("[grid]\nnoise_multiplier = []\n", "The 'grid.noise_multiplier' field must have at least one value. Got []"),
        ("[grid]\nnoise_multiplier = 1.0\n", "The 'grid.noise_multiplier' field must be a list of values. Got 1.0"),
        ('[grid]\n"data.epochs" = [1]\n[grid.data]\nepochs = [2]\n', "The 'grid.data.epochs' field is given twice."),
        ('[grid]\n"sampler.bins" = [1]\n', "The 'sampler.bins' field is not known here"),
        ("[grid]\nnoize = [1.0]\n", "The 'noize' field is not known here"),
        ('[grid]\n"" = [1.0]\n', "The '' field is not known here"),
        (
            '[grid]\n"data.epochs.x" = [1]\n',
            "The 'grid.data.epochs.x' field is not known here; 'epochs' is not a table",
        ),
        ("[grid]\nnoise_multiplier = [1.0, -1.0]\n", "The 'noise_multiplier' field must be at least 0.01. Got -1.0"),
        ("[grid]\nnoise_multiplier = [1.0, 1]\n", "The 'grid' table has the same cell twice: noise_multiplier = 1."),
        ('[grid]\n"target.epsilon" = [1.0]\n', "The 'target' table of a sweep must have one of 'delta' and 'epsilon'"),
        ('[grid]\n"target.delta" = [2.0]\n', "The 'target.delta' field must be below 1. Got 2.0"),
        (
            f"[grid]\nnoise_multiplier = {list(range(1, 102))}\n'data.epochs' = {list(range(1, 101))}\n",
            f"The 'grid' table must have at most {MAX_CELLS} cells. Got 10100 instead.",
        ),
        ("[grid\n", "is not valid TOML"),
        ("[grid]\nx = " + "[" * 5000, "is not valid TOML: it is nested too deeply."),
    ],
)
def test_bad_grids_are_one_sentence(tmp_path, grid, says):
    plan = PLAN if not grid.startswith("grid") else grid + PLAN
    with pytest.raises(InvalidInputError) as refused:
        load(tmp_path, "" if grid.startswith("grid") else grid, plan).cells()
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sweep_needs_noise_and_a_question(tmp_path):
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        load(tmp_path, '[grid]\n"data.epochs" = [1]\n', PLAN.replace("noise_multiplier = 1.0", "")).cells()
    sweep = load(tmp_path, plan=PLAN.replace("delta = 1e-5", ""))
    with pytest.raises(InvalidInputError, match="'target' table of a sweep"):
        sweep.cells()
    assert sweep.cells(epsilon=1.0)[0].question == Question(epsilon=1.0)
    with pytest.raises(InvalidInputError, match="Exactly one of"):
        sweep.cells(epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x" * ((1 << 20) + 1)])
def test_files_that_are_no_sweeps_are_refused(tmp_path, content):
    (tmp_path / "sweep.toml").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"must be UTF-8 text|must be at most"):
        Sweep.load(tmp_path / "sweep.toml")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Sweep.load(tmp_path / "missing.toml")


@pytest.fixture
def cells(tmp_path: Path) -> tuple[Cell, ...]:
    return load(tmp_path).cells()


def refused(out: Path, cells: tuple[Cell, ...]) -> str:
    """What is said of a place for results that must be left as it is."""
    before = out.read_bytes() if out.is_file() else None
    with pytest.raises(HockeystickError) as error:
        Results(out, cells)
    assert (out.read_bytes() if out.is_file() else None) == before
    return str(error.value)


@pytest.mark.parametrize("content", ["notes", "notes\nmore\n", '{"format": "hockeystick-certificate/1"}\n', "\n"])
def test_other_files_are_not_touched(tmp_path, cells, content):
    (tmp_path / "out").write_text(content)
    assert "is not a file of sweep results; choose another one." in refused(tmp_path / "out", cells)


def test_results_of_another_sweep_are_not_touched(tmp_path, cells):
    out = tmp_path / "out"
    run_sweep(cells, out, certify_cell=Certifier())
    assert "has results of another sweep (noise_multiplier = 4.0" in refused(out, cells[:4])
    with out.open("a") as stream:
        stream.write('{"torn')  # and it is not repaired either
    assert "has results of another sweep" in refused(out, cells[:4])


def test_results_that_were_altered_are_refused(tmp_path, cells):
    out = tmp_path / "out"
    run_sweep(cells[:1], out, certify_cell=Certifier())
    header, line = out.read_text().splitlines()
    record = json.loads(line)
    upper = record["certificate"]["epsilon"]["upper"]
    record["certificate"]["epsilon"]["upper"] = record["certificate"]["epsilon"]["lower"]
    assert upper != record["certificate"]["epsilon"]["upper"]
    out.write_text(f"{header}\n{json.dumps(record)}\n")
    with pytest.raises(VerificationError, match="was altered"):
        Results(out, cells)
    for spoiled in ("{}", "[1]", "nonsense", line[: len(line) // 2]):
        out.write_text(f"{header}\n{spoiled}\n{line}\n")  # a line in the middle was not torn by us
        assert "has a line that is no record: The " in refused(out, cells)


def test_places_that_cannot_be_written_are_refused(tmp_path, cells):
    assert "cannot be written" in refused(tmp_path / "missing" / "out", cells)
    assert "not an ordinary file" in refused(tmp_path, cells)
    (tmp_path / "empty").touch()
    Results(tmp_path / "empty", cells)
    assert (tmp_path / "empty").read_text() == HEADER


@pytest.mark.parametrize("other", [{"delta": 1e-6}, {"noise": 2.0}], ids=lambda other: next(iter(other)))
def test_a_certificate_that_was_moved_to_another_cell_is_refused(tmp_path, cells, other):
    """It is whole and verifies, but it is about less noise or another question than its new place says."""
    out = tmp_path / "out"
    run_sweep(cells[:1], out, certify_cell=Certifier())
    header, line = out.read_text().splitlines()
    mechanism = cells[0].plan.mechanism().with_noise(other.get("noise", 1.0))
    moved = certified(mechanism, Question(delta=other.get("delta", 1e-5)))
    out.write_text(f"{header}\n{json.dumps(json.loads(line) | {'certificate': moved.model_dump(mode='json')})}\n")
    before, asked = out.read_bytes(), Certifier()
    with pytest.raises(VerificationError, match=r"^The output path .* was altered: .* is not of this cell\.$"):
        run_sweep(cells, out, certify_cell=asked)
    assert (asked.asked, out.read_bytes()) == ([], before)


def test_a_full_disk_leaves_whole_lines(tmp_path, cells, monkeypatch):
    out = tmp_path / "out"
    results = Results(out, cells)
    run_sweep(cells[:1], out, certify_cell=Certifier())
    content = out.read_bytes()
    record = next(iter(Results(out, cells).records.values()))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidInputError, match="cannot be written: No space left on device"):
        results.add(record)
    assert out.read_bytes() == content


@pytest.mark.parametrize("sweep", sorted((ROOT / "examples" / "sweeps").glob("*.toml")), ids=lambda sweep: sweep.stem)
def test_shipped_sweeps_can_be_certified(sweep, tmp_path):
    """All of their cells are plans; the quickest accountant there is bounds them."""
    records = run_sweep(Sweep.load(sweep).cells(), tmp_path / "out", certify_cell=certifier(method="gaussian"))
    assert {record.status for record in records} == {CERTIFIED}


def test_two_sweeps_into_one_file_are_refused(tmp_path, cells):
    out = tmp_path / "out"

    class Second(Certifier):
        """Starts another sweep while it certifies."""

        def __call__(self, mechanism: hs.Mechanism, question: Question) -> hs.Certificate:
            with pytest.raises(InvalidInputError, match=r"^The output path .* is in use by another sweep; .*\.$"):
                run_sweep(cells, out, certify_cell=Certifier())
            return super().__call__(mechanism, question)

    first = Second()
    run_sweep(cells, out, certify_cell=first)
    assert len(first.asked) == len(cells)
    assert len(Results(out, cells).records) == len(cells)
    again = Certifier()
    run_sweep(cells, out, certify_cell=again)  # the lock is gone with the first one
    assert again.asked == []
