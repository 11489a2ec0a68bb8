"""What a reproduction keeps: a run that was interrupted goes on, and nothing of other code is reused."""

import json
import sys
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from hockeystick.cli.main import main
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.reproduction import papers
from hockeystick.reproduction.kept import Kept, code_of
from hockeystick.reproduction.papers import Reproduced, available, reproduce

SOURCE = """
from pathlib import Path

from hockeystick.reproduction.papers import Check

LOG = Path(__file__).parent / "log.txt"
FAIL = Path(__file__).parent / "fail"

def part(output, size=3):
    for place in range(size):
        output.kept.value(f"square {place}", lambda place=place: square(place))
    output.table("squares", ["value"], [[size]])
    output.lines.append(f"{size} squares")

def square(place):
    with LOG.open("a") as log:
        log.write(f"{place}\\n")
    if place == 2 and FAIL.exists():
        raise KeyboardInterrupt
    return place**2

CHECKS = [Check("a", "<", 2.0, 1.5, True), Check("b", "~", 3.0, float("inf"), False, note="far off")]
FIGURES = {"squares": part, "numbers": lambda output: output.checks("numbers", CHECKS)}
QUICK = {"squares": lambda output: part(output, size=1)}
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a paper that writes down what it computes."""
    folder = tmp_path / "papers" / "toy-2026"
    folder.mkdir(parents=True)
    (folder / "reproduce.py").write_text(SOURCE)
    monkeypatch.setattr(papers, "paper_folders", lambda: [folder])
    yield folder
    sys.modules.pop("hockeystick_papers_toy_2026", None)


def computed(folder: Path) -> list[str]:
    log = folder / "log.txt"
    return log.read_text().split() if log.exists() else []


def printed(parts: Iterable[Reproduced]) -> list[str]:
    """The lines that the command prints."""
    return [line for part in parts for line in str(part).splitlines()]


def run(out: Path, **options: Any) -> list[str]:
    return printed(reproduce("toy-2026", None, out, Deadline(), **options))


def test_an_interrupted_run_goes_on_where_it_stopped(toy: Path, tmp_path: Path) -> None:
    (toy / "fail").touch()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    (toy / "fail").unlink()
    lines = run(tmp_path)
    assert computed(toy) == ["0", "1", "2", "2"]
    assert "3 squares" in lines
    assert f"wrote {tmp_path / 'toy-2026' / 'squares.csv'}" in lines


def test_a_part_that_is_there_is_not_computed_again(toy: Path, tmp_path: Path) -> None:
    first, again = run(tmp_path), run(tmp_path)
    assert computed(toy) == ["0", "1", "2"]
    assert [line for line in again if "squares.csv" in line] == [f"kept {tmp_path / 'toy-2026' / 'squares.csv'}"]
    assert "3 squares" in again
    assert [line for line in first if line.startswith("squares: ")]


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: file.write_text("other")])
def test_a_file_that_was_changed_is_written_again(toy: Path, tmp_path: Path, change: Any) -> None:
    run(tmp_path)
    file = tmp_path / "toy-2026" / "squares.csv"
    before = file.read_text()
    change(file)
    assert f"wrote {file}" in run(tmp_path)
    assert file.read_text() == before


def test_other_code_computes_everything_again(toy: Path, tmp_path: Path) -> None:
    run(tmp_path)
    (toy / "reproduce.py").write_text(SOURCE.replace("place**2", "place**2 + 1"))
    run(tmp_path)
    assert computed(toy) == ["0", "1", "2"] * 2


def test_quick_versions_have_a_directory_of_their_own(toy: Path, tmp_path: Path) -> None:
    assert "1 squares" in run(tmp_path, quick=True)
    assert (tmp_path / "toy-2026" / "quick" / "squares.csv").exists()
    assert (tmp_path / "toy-2026" / "quick" / "numbers.csv").exists()
    assert "3 squares" in run(tmp_path)
    assert computed(toy) == ["0", "0", "1", "2"]


def test_matplotlib_is_looked_for_before_anything_is_computed(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match="matplotlib"):
        run(tmp_path)
    assert computed(toy) == []
    assert "toy-2026 numbers" in printed(reproduce("toy-2026", "numbers", tmp_path, Deadline()))


def test_an_unknown_paper_or_figure_is_refused(toy: Path, tmp_path: Path) -> None:
    assert available() == {"toy-2026": ["squares", "numbers"]}
    for paper, figure in (("toy-2025", None), ("toy-2026", "cubes")):
        with pytest.raises(InvalidInputError):
            list(reproduce(paper, figure, tmp_path, Deadline()))


def test_the_command_prints_one_object(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", *words, "--json"])
        assert (ended.value.code or 0) == code
        said = capsys.readouterr().out
        assert said.count("\n") == 1
        return json.loads(said)

    assert printed() == {"papers": {"toy-2026": ["squares", "numbers"]}}
    for kept in (False, True):
        done = printed("toy-2026", "--out", str(tmp_path))
        squares, numbers = done["parts"]
        assert (squares["paper"], squares["part"], squares["kept"]) == ("toy-2026", "squares", kept)
        assert (squares["files"], squares["lines"], squares["checks"]) == (["squares.csv"], ["3 squares"], [])
        assert [Path(numbers["directory"]) / file for file in numbers["files"]] == [tmp_path / "toy-2026/numbers.csv"]
        assert numbers["checks"] == [
            {"what": "a", "relation": "<", "printed": 2.0, "ours": 1.5, "holds": True, "note": ""},
            {"what": "b", "relation": "~", "printed": 3.0, "ours": None, "holds": False, "note": "far off"},
        ]
    refused = printed("toy-2025", code=2)
    assert refused == {"error": "The paper must be one of toy-2026, or 'all'. Got 'toy-2025' instead.", "exit_code": 2}


def test_kept_values_come_back_as_they_were(tmp_path: Path) -> None:
    values = [0.1 + 0.2, inf, None, {"a": [1, 'b, "c"\n']}]
    first, second = Kept(tmp_path / "kept.csv", "code"), None
    for place, value in enumerate(values):
        assert first.value(str(place), lambda value=value: value) == value
    second = Kept(tmp_path / "kept.csv", "code")
    assert [second.stored(str(place)) for place in range(len(values))] == values
    assert Kept(tmp_path / "kept.csv", "other code").stored("0") is None


def test_a_file_that_is_not_ours_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "kept.csv").write_text("a\n1,2,3\n")
    assert Kept(tmp_path / "kept.csv", "code").value("a", lambda: 1.5) == 1.5


def test_the_code_is_that_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = code_of([tmp_path])
    assert before == code_of([tmp_path])
    (tmp_path / "b.py").write_text("")
    assert code_of([tmp_path]) != before
