"""The store keeps what it is given, bit for bit and once, and refuses what it should."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from evidence_toy import content, toy_chunk, toy_run

from hockeystick.errors import EvidenceError, InvalidInputError
from hockeystick.evidence import EvidenceStore, schema
from hockeystick.evidence import store as store_module
from hockeystick.evidence.rows import chunk_digest, chunk_row, read_chunk, run_content
from hockeystick.samples import Chunk

RUN = toy_run()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with streams 0, 1 and 3."""
    path = tmp_path / "evidence.sqlite"
    with EvidenceStore.open(path, label="a toy") as store:
        for stream in (3, 0, 1):
            store.add(RUN, toy_chunk(7, stream))
    return path


def fill(store: EvidenceStore, streams: Iterable[int]) -> None:
    for stream in streams:
        store.add(RUN, toy_chunk(7, stream))


def same(chunk: Chunk, other: Chunk) -> bool:
    arrays = ("sums", "logs", "cells", "counts")
    return (chunk.stream, chunk.samples, chunk.largest) == (other.stream, other.samples, other.largest) and all(
        getattr(chunk, name).dtype == getattr(other, name).dtype
        and getattr(chunk, name).shape == getattr(other, name).shape
        and getattr(chunk, name).tobytes() == getattr(other, name).tobytes()
        for name in arrays
    )


def test_what_was_added_comes_back(path: Path) -> None:
    with EvidenceStore.open(path, read_only=True) as store:
        assert store.streams(RUN) == {0, 1, 3}
        kept = list(store.chunks(RUN))
        assert [chunk.stream for chunk in kept] == [0, 1]
        assert all(same(chunk, toy_chunk(7, chunk.stream)) for chunk in kept)
        assert [chunk.stream for chunk in store.chunks(RUN, 1)] == [1]
        assert [chunk.stream for chunk in store.chunks(RUN, 3)] == [3]
        assert list(store.chunks(RUN, 2)) == list(store.chunks(toy_run(8))) == []
        (summary,) = store.runs()
        assert (summary.run, summary.label, summary.chunks, summary.prefix) == (RUN, "a toy", 3, 2)
        health = store.check()
        assert (health.runs, health.chunks, health.gaps) == (1, 3, {RUN.key: 2})
        with pytest.raises(InvalidInputError, match=r"chunk 2 .* not stored"):
            store.chunk(RUN, 2)


def test_a_closed_store_is_one_file(path: Path) -> None:
    assert os.listdir(path.parent) == [path.name]
    with EvidenceStore.open(path, read_only=True) as store:
        store.check()
        assert os.listdir(path.parent) == [path.name]


def test_strange_floats_keep_their_bits() -> None:
    odd = np.array([np.nan, -0.0, np.inf])
    none = np.empty((0, 2), dtype=np.int32), np.empty(0, dtype=np.int64)
    for largest in (np.nan, -0.0, np.inf, 5e-324):
        chunk = Chunk(stream=2, samples=9, sums=odd, logs=-odd, largest=largest, cells=none[0], counts=none[1])
        again = read_chunk("key", 2, chunk_row("key", chunk))
        assert again.sums.tobytes() == odd.tobytes()
        assert np.float64(again.largest).tobytes() == np.float64(largest).tobytes()
        assert (again.cells.shape, again.counts.shape) == ((0, 2), (0,))
        assert chunk_digest("key", again) == chunk_digest("key", chunk) != chunk_digest("other", chunk)


def test_the_content_of_a_run_has_its_key() -> None:
    assert hashlib.sha256(run_content(RUN).encode()).hexdigest() == RUN.key


def test_a_stream_that_is_there_stays(path: Path) -> None:
    before = content(path)
    with EvidenceStore.open(path, label="another label") as store:
        store.add(RUN, toy_chunk(7, 0))
        chunk = toy_chunk(7, 1)
        for changed in (
            replace(chunk, sums=np.nextafter(chunk.sums, 9.0)),
            replace(chunk, logs=np.nextafter(chunk.logs, 9.0)),
            replace(chunk, largest=chunk.largest / 2.0),
            replace(chunk, counts=chunk.counts[::-1].copy()),
        ):
            with pytest.raises(EvidenceError, match=f"chunk 1 of the run {RUN.key[:12]} .* is not the same"):
                store.add(RUN, changed)
    assert content(path) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 255}, "has 255 samples and the run's chunks have 256"),
        ({"sums": np.zeros(2)}, "nodes"),
        ({"logs": np.zeros((3, 1))}, "nodes"),
        ({"counts": np.zeros(3, dtype=np.int64)}, "cells"),
        ({"cells": np.zeros((3, 2), np.int32), "counts": np.array([1, 2, 300])}, "cells"),
        ({"cells": np.zeros((3, 2), np.int32), "counts": np.array([1, 2, -1])}, "cells"),
    ],
)
def test_a_chunk_that_is_none_of_the_run(path: Path, change: dict, says: str) -> None:
    with EvidenceStore.open(path) as store:
        with pytest.raises(InvalidInputError, match=says):
            store.add(RUN, replace(toy_chunk(7, 5), **change))
        assert store.streams(RUN) == {0, 1, 3}


def test_a_store_that_is_read_is_not_written(path: Path) -> None:
    with EvidenceStore.open(path, read_only=True) as store:
        for write in (
            lambda: store.add(RUN, toy_chunk(7, 5)),
            lambda: store.merge(path),
            lambda: store.prune(keep=[]),
        ):
            with pytest.raises(InvalidInputError, match="opened for reading"):
                write()


def test_an_interruption_inside_a_transaction_leaves_no_trace(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(path)
    with EvidenceStore.open(path) as store:
        keep = EvidenceStore._keep_chunk

        def interrupted(*arguments: object) -> bool:
            keep(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(EvidenceStore, "_keep_chunk", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.add(RUN, toy_chunk(7, 2))
        assert store.streams(RUN) == {0, 1, 3}
    assert content(path) == before


def test_a_full_disk_is_said_and_harmless(path: Path) -> None:
    with EvidenceStore.open(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(EvidenceError, match=r"cannot be read or written: .* full\.") as refused:
            fill(store, range(10, 60))
        assert path.name in str(refused.value)
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.add(RUN, toy_chunk(7, 2))
        assert [chunk.stream for chunk in store.chunks(RUN)] == [0, 1, 2, 3]
        store.check()


def test_a_program_that_holds_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PATIENCE", 0.05)
    with EvidenceStore.open(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EvidenceError, match="in use by another program"):
            store.add(RUN, toy_chunk(7, 2))
        assert len(list(store.chunks(RUN))) == 2  # reading goes on
        other.execute("ROLLBACK")
        store.add(RUN, toy_chunk(7, 2))


@pytest.mark.parametrize("log", ["WAL", "DELETE"])
@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_store_in_use_is_waited_for_as_long_as_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, log: str, lock: str
) -> None:
    monkeypatch.setattr(store_module, "PATIENCE", 0.5)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {log}")
        other.execute(f"BEGIN {lock}")
        started = time.monotonic()
        with pytest.raises(EvidenceError, match=r"for 0\.5 seconds"), EvidenceStore.open(path) as store:
            store.merge(path)
        assert time.monotonic() - started >= 0.5


def test_prune_drops_whole_runs(path: Path) -> None:
    with EvidenceStore.open(path) as store:
        for seed in (8, 9):
            for stream in range(60):
                store.add(toy_run(seed), toy_chunk(seed, stream))
    large = path.stat().st_size
    with EvidenceStore.open(path) as store:
        with pytest.raises(InvalidInputError, match="Exactly one"):
            store.prune()
        assert store.prune(drop=["no key"]) == []
        assert [run.key for run in store.prune(drop=[toy_run(8).key])] == [toy_run(8).key]
        assert [run.chunks for run in store.prune(keep=[RUN.key])] == [60]
        assert [run.key for run in store.runs()] == [RUN.key]
        assert store.check().chunks == 3
    with EvidenceStore.open(path.with_name("empty.sqlite")):
        pass
    empty = path.with_name("empty.sqlite").stat().st_size
    assert path.stat().st_size - empty < (large - empty) / 4


def test_a_newer_schema_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.SCHEMA + 2}")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(InvalidInputError, match=rf"newer schema {schema.SCHEMA + 2}, .* up to {schema.SCHEMA};"):
            EvidenceStore.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN remark TEXT NOT NULL DEFAULT ''",))
    monkeypatch.setattr(schema, "MIGRATIONS", added)
    monkeypatch.setattr(schema, "SCHEMA", len(added))
    with pytest.raises(InvalidInputError, match=rf"older schema {len(added) - 1}, .* schema {len(added)};"):
        EvidenceStore.open(path, read_only=True)
    with EvidenceStore.open(path) as store:
        assert store.check().chunks == 3
    with EvidenceStore.open(path, read_only=True) as store:
        assert [chunk.stream for chunk in store.chunks(RUN)] == [0, 1]
    assert content(path)["runs"][0][-1] == ""


def test_tables_that_are_not_ours(path: Path) -> None:
    for statement in ("CREATE TABLE more (x)", "CREATE TRIGGER t AFTER INSERT ON chunks BEGIN DELETE FROM runs; END"):
        copy = path.with_name("copy.sqlite")
        copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute(statement)
        with pytest.raises(EvidenceError, match="damaged: its tables are not those"):
            EvidenceStore.open(copy)


@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_are_no_store(tmp_path: Path, read_only: bool) -> None:
    foreign, text = tmp_path / "foreign.sqlite", tmp_path / "text.sqlite"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE things (x)")
        connection.execute(f"PRAGMA user_version = {schema.SCHEMA}")
    text.write_text("no database at all\n" * 100)
    for place, says in ((foreign, "SQLite file of another program"), (text, "not a store of evidence")):
        before = place.read_bytes()
        with pytest.raises(InvalidInputError, match=says) as refused:
            EvidenceStore.open(place, read_only=read_only)
        assert place.name in str(refused.value)
        assert place.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["foreign.sqlite", "text.sqlite"]


def test_an_empty_file_is_a_new_store_but_nothing_to_read(tmp_path: Path) -> None:
    place = tmp_path / "empty.sqlite"
    place.touch()
    with pytest.raises(InvalidInputError, match="it is empty"):
        EvidenceStore.open(place, read_only=True)
    with EvidenceStore.open(place) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("place", "to_read", "to_write"),
    [
        ("folder", "not an ordinary file", "not an ordinary file"),
        ("missing/x", "No such file", "No such file"),
        ("", "not an ordinary file", "empty"),
        ("a\0b", "null byte", "null byte"),
        (os.devnull, "not an ordinary file", "not an ordinary file"),
    ],
)
def test_places_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, to_read: str, to_write: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for read_only, says in ((True, to_read), (False, to_write)):
        with pytest.raises(InvalidInputError, match=says):
            EvidenceStore.open(place, read_only=read_only)
    assert os.listdir() == ["folder"]


@contextmanager
def not_root() -> Iterator[None]:
    """Root may read and write everything: be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_permissions(path: Path) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        there = Path(folder, "x.sqlite")
        there.write_bytes(path.read_bytes())
        there.chmod(0o444)
        Path(folder).chmod(0o555)
        with not_root():
            with pytest.raises(InvalidInputError, match="no permission"):
                EvidenceStore.open(there)
            with EvidenceStore.open(there, read_only=True) as store:  # nothing can be written beside it
                assert store.check().chunks == 3
        there.chmod(0o000)
        with not_root(), pytest.raises(InvalidInputError, match="no permission"):
            EvidenceStore.open(there, read_only=True)
        Path(folder).chmod(0o755)


def test_names_that_need_quoting(tmp_path: Path) -> None:
    for name in ("a?mode=memory", "b%20c#d", "ü ;", os.fsdecode(b"\xff")):
        with EvidenceStore.open(tmp_path / name) as store:
            store.add(RUN, toy_chunk(7, 0))
        with EvidenceStore.open(tmp_path / name, read_only=True) as store:
            assert store.streams(RUN) == {0}
    assert len(os.listdir(tmp_path)) == 4
