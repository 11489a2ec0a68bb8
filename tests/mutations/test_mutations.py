"""The planted faults can be planted: their old text occurs once, their tests exist; the tables are about them."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def load_harness() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations_run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


HARNESS = load_harness()
places = sys.modules["places"]
FAULTS = [fault for room in HARNESS.names() for fault in HARNESS.faults(room)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.room}-{fault.path.stem}-{fault.reason[:40]}")
def test_a_fault_can_be_planted(fault):
    assert fault.planted(ROOT)
    assert fault.reason
    for test in fault.tests:
        assert (ROOT / test.split("::")[0]).exists(), f"{fault.path}: there is no {test}"


@pytest.mark.parametrize("room", HARNESS.names())
def test_a_table_is_about_the_faults_that_there_are(room):
    """Rows may be missing until the next run; none is left over, about a survivor, or names a test that is gone."""
    keys = [fault.key for fault in HARNESS.faults(room)]
    assert len(set(keys)) == len(keys), "two faults of one file have one reason"
    rows = HARNESS.rows(room)
    again = f"run: python tests/mutations/run.py {room} --missing"
    assert sorted(set(rows) - set(keys)) == [], again
    assert [row.reason for row in rows.values() if not row.killer] == [], f"survived; write a test, then {again}"
    assert [row.killer for row in rows.values() if not exists(row.killer)] == [], again


def exists(test: str) -> bool:
    path, _, function = test.partition("::")
    if test == HARNESS.HANGS:
        return True
    named = f"def {function.split('[')[0]}(" if function else ""  # a file alone could not be read
    return (ROOT / path).is_file() and named in (ROOT / path).read_text()


@pytest.mark.parametrize("killer", ["tests/test_x.py::test_y", "tests/test_x.py::test_y[a - b|c]", HARNESS.HANGS, ""])
def test_a_row_is_read_as_it_was_written(killer, tmp_path, monkeypatch):
    (tmp_path / "one_faults.py").write_text(
        'FAULTS = [("bounds.py", "a", "b", "why | `this`\\nmatters", "tests/x.py")]'
    )
    monkeypatch.setattr(HARNESS, "HERE", tmp_path)
    (fault,) = HARNESS.faults("one")
    row = HARNESS.Row(*fault.key, fault.digest, killer)
    gone = HARNESS.Row("bounds.py", "no fault any more", "00000000", "tests/test_x.py::test_z")
    HARNESS.write("one", {fault.key: row, ("bounds.py", "no fault any more"): gone})
    assert HARNESS.rows("one") == {fault.key: row}


def test_a_fault_is_taken_back_with_what_was_compiled_of_it(tmp_path):
    """Of the file and of those that import it: numba stores what calls a kernel without looking at the kernel."""
    folder = tmp_path / HARNESS.SOURCE
    (folder / "laws" / "__pycache__").mkdir(parents=True)
    (folder / "laws" / "kernels.py").write_text("@kernel\ndef f(x): return x\n")
    (folder / "laws" / "user.py").write_text("from hockeystick.laws.kernels import f\n")
    (folder / "laws" / "further.py").write_text("from hockeystick.laws import user\n")
    (folder / "laws" / "other.py").write_text("import numpy\n")
    cached = {
        name: folder / "laws" / "__pycache__" / f"{name}.f-1.py312.nbi"
        for name in ("kernels", "user", "further", "other")
    }
    for file in cached.values():
        file.write_text("clean")
    before = (folder / "laws" / "kernels.py").stat().st_mtime_ns
    fault = HARNESS.Fault("laws", HARNESS.SOURCE / "laws" / "kernels.py", "return x", "return 2 * x", "twice", ())
    with HARNESS.planted(tmp_path, fault):
        assert "return 2 * x" in (folder / "laws" / "kernels.py").read_text()
        assert [name for name, file in cached.items() if file.exists()] == ["other"]
        cached["user"].write_text("of the fault")
    assert "return x" in (folder / "laws" / "kernels.py").read_text()
    assert (folder / "laws" / "kernels.py").stat().st_mtime_ns == before
    assert {file.read_text() for file in cached.values()} == {"clean"}


def test_a_text_that_occurs_twice_is_refused(tmp_path):
    (tmp_path / "twice.py").write_text("a = 1\nb = 1\n")
    fault = HARNESS.Fault("door", Path("twice.py"), "= 1", "= 2", "twice", ())
    with pytest.raises(HARNESS.UnplantableError, match="occurs 2 times"):
        fault.planted(tmp_path)


def renamed(source: str, name: str) -> str:
    return re.sub(rf"\b{name}\b", f"{name}_of_another_day", source)


def names_of(fault) -> list[str]:
    """Names of the replaced text that may be exchanged, less the half that has to stay."""
    distinct = [token for token in dict.fromkeys(places.TOKENS.findall(fault.old)) if places._is_name(token)]
    return distinct[: min(int((1.0 - places.KEPT) * len(distinct)), 1)]


@pytest.mark.parametrize("room", HARNESS.names())
def test_faults_stay_where_they_are_when_names_change(room):
    """A name of each text is another one, everywhere in its file: the fault is the one that it was."""
    moved = 0
    for fault in HARNESS.faults(room):
        if fault.path.suffix != ".py" or len(places.TOKENS.findall(fault.old)) < places.FEWEST:
            continue
        source = (ROOT / fault.path).read_text()
        for name in names_of(fault):
            other = renamed(source, name)
            candidates = places.places(other, fault.old)
            if len(candidates) != 1:  # the file has the same tokens once more, in other names
                continue
            planted = renamed(fault.planted(ROOT), name)
            assert places.TOKENS.findall(candidates[0].replaced(other, fault.new)) == places.TOKENS.findall(planted)
            moved += 1
    assert moved >= 3


@pytest.mark.parametrize(
    ("source", "planted"),
    [
        ("total = rate * sum(\n    sizes\n) + error", "total = rate * sum(sizes) - error"),
        ("total = rate * sum(weights) + error", "total = rate * sum(weights) - error"),
        ("whole = rate * sum(sizes) + slack", "whole = rate * sum(sizes) - slack"),
    ],
)
def test_a_text_is_found_in_other_lines_and_names(source, planted):
    old = "total = rate * sum(sizes) + error"
    (place,) = places.places(f"x = 1\n{source}\n", old)
    assert place.replaced(source, "") == source[: place.start] + source[place.end :]
    assert place.replaced(f"x = 1\n{source}\n", "total = rate * sum(sizes) - error") == f"x = 1\n{planted}\n"


@pytest.mark.parametrize(
    "source",
    [
        "total = rate * sum(sizes) - error",  # another operator
        "total = rate * max(sizes) + error",  # another function of the language
        "total = rate * sum(rate) + error",  # two names have become one
        "a = b * sum(c) + error",  # too many names are new
        "total = rate * sum(sizes) + 1e-3",
        "total = rate * sum(sizes)",
    ],
)
def test_what_is_written_otherwise_is_no_place(source):
    assert places.places(source, "total = rate * sum(sizes) + error") == []


def test_a_text_that_may_stand_in_two_places_is_refused(tmp_path):
    (tmp_path / "twice.py").write_text("a = rate * sum(sizes) + error\nb = rate * sum(sizes) + error\n")
    fault = HARNESS.Fault("door", Path("twice.py"), "total = rate * sum(sizes) + error", "total = 0", "twice", ())
    with pytest.raises(HARNESS.UnplantableError, match="occurs 2 times"):
        fault.planted(tmp_path)


def test_a_fault_that_is_no_python_is_refused(tmp_path):
    (tmp_path / "once.py").write_text("a = 1\n")
    fault = HARNESS.Fault("door", Path("once.py"), "= 1", "= = 1", "broken", ())
    with pytest.raises(HARNESS.UnplantableError, match="not Python"):
        fault.planted(tmp_path)


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("sweep.py", ["tests/test_sweep.py"]),
        ("laws/kernels.py", ["tests/laws/test_kernels.py", "tests/laws"]),
        ("monte_carlo/bins/kernels.py", ["tests/monte_carlo/test_count_kernels.py", "tests/monte_carlo"]),
    ],
)
def test_the_tests_of_a_file_are_those_that_mirror_it(path, tests):
    defaults = HARNESS.default_tests(HARNESS.SOURCE / path)
    assert defaults[0] == tests[0]
    assert defaults[-1] == tests[-1]
