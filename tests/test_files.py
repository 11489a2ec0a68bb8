"""Files are written whole or not at all, and never in the place of what is no file."""

import os
import tracemalloc
from pathlib import Path

import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.files import check_writable, parse_toml, read_small_file, write_atomically
from hockeystick.plan import Plan


def test_writes_text_and_bytes(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "ä\n")
    assert (tmp_path / "a").read_bytes() == "ä\n".encode()
    write_atomically(tmp_path / "a", b"\0")
    assert (tmp_path / "a").read_bytes() == b"\0"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("x")])
@pytest.mark.parametrize("call", ["os.replace", "os.fsync", "os.chmod"])
def test_a_failure_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    (tmp_path / "a").write_text("old")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(call, fail)
    with pytest.raises(InvalidInputError if isinstance(error, OSError) else type(error)) as raised:
        write_atomically(tmp_path / "a", "new")
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert "No space left on device" in str(raised.value)
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_follow_the_mask_or_the_file_that_was_there(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
        (tmp_path / "a").chmod(0o600)
        write_atomically(tmp_path / "a", "")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(mask)


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to("a")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"


def test_special_files_are_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path(os.devnull)):
        with pytest.raises(InvalidInputError, match="not an ordinary file"):
            write_atomically(path, "x")
    assert os.listdir(tmp_path) == ["fifo"]


def test_checking_creates_nothing(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "a") == (tmp_path / "a").resolve()
    with pytest.raises(InvalidInputError, match="No such file"):
        check_writable(tmp_path / "b" / "a")
    assert os.listdir(tmp_path) == []


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_small_file(tmp_path / "a", "plan", 5) == b"12345"
    with pytest.raises(InvalidInputError, match="plan must be at most 4 bytes"):
        read_small_file(tmp_path / "a", "plan", 4)


@pytest.mark.parametrize("path", [None, 0, 5, b"plan.toml", 1.5])
def test_what_is_no_path_is_refused_and_no_open_file_is_read(path: object) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^The plan must be named by text or a path\. Got an object of type '\w+' instead\.$"
    ):
        read_small_file(path, "plan", 10)  # type: ignore[arg-type]


def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for path in (tmp_path / "fifo", tmp_path / "link", "/dev/zero", os.devnull, tmp_path):
        with pytest.raises(InvalidInputError, match=r"^The plan cannot be read: it is not an ordinary file\.$"):
            read_small_file(path, "plan", 10)
    # One that takes the place of a file after that was looked at is not waited for either.
    (tmp_path / "a").write_text("x")
    ordinary = os.stat(tmp_path / "a")
    monkeypatch.setattr(os, "stat", lambda path: ordinary)
    with pytest.raises(InvalidInputError, match=r"not an ordinary file\.$"):
        read_small_file(tmp_path / "fifo", "plan", 10)


@pytest.mark.parametrize("parts", [17, 600, 16_000])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[ {} ]]", "x = {{y = 1, {} = 1}}", "name = 'text'\n {}=1"])
@pytest.mark.parametrize("part", ["a", '"b.c"', "'d'"])
def test_long_dotted_keys_are_refused_before_they_are_read(parts: int, form: str, part: str) -> None:
    """They take memory and time that grow with the square of their parts: a gigabyte for 32 kilobytes."""
    tracemalloc.start()
    with pytest.raises(InvalidInputError, match=r"^The plan must have at most 16 parts in a dotted key\.$"):
        parse_toml(form.format(" . ".join([part] * parts)).encode(), "plan")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


def test_text_with_dots_is_no_key() -> None:
    text = "a." * 40
    assert parse_toml(f"# {text}b = 1\nname = '{text}b = 1'\n".encode(), "plan") == {"name": f"{text}b = 1"}
    key = ".".join(["a"] * 16)
    assert parse_toml(f"{key} = 1".encode(), "plan")["a"]


@pytest.mark.parametrize("depth", [41, 300, 3000])
def test_what_is_nested_deeply_is_one_sentence(depth: int) -> None:
    tables: dict[str, object] = {}
    lists: list[object] = []
    for _ in range(depth):
        tables, lists = {"sampler": tables}, [lists]
    for values in (tables, {"sampler": lists}):
        with pytest.raises(InvalidInputError, match=r"must nest tables and lists at most 40 deep\.$"):
            Plan.parse(values)
    for text in ("x = " + "[" * depth + "]" * depth, "x = " + "{a = " * depth + "1" + "}" * depth):
        with pytest.raises(InvalidInputError, match=r"at most 40 deep\.$|nested too deeply\.$"):
            parse_toml(text.encode(), "plan")


@pytest.mark.parametrize("document", [b"a = 1\na = 2\n", b"[a]\nx = 1\n[a]\n", b"[a]\nx = 1\nx = 2\n"])
def test_a_name_in_toml_that_is_given_twice(document: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"^The plan is not valid TOML: a name is given twice \(at line \d, "):
        parse_toml(document, "plan")
