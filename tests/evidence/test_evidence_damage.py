"""Whatever happens to the bytes of a store: it is noticed and named, or what is read is what was stored."""

import random
import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from evidence_toy import toy_chunk, toy_run

from hockeystick.errors import EvidenceError, HockeystickError
from hockeystick.evidence import EvidenceStore
from hockeystick.evidence.rows import chunk_digest, chunk_row, read_chunk

SIZE = 3000
RUNS = {seed: toy_run(seed, SIZE) for seed in (1, 2)}
STREAMS = 4


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a closed store, some tens of pages."""
    path = tmp_path_factory.mktemp("good") / "good.sqlite"
    with EvidenceStore.open(path, label="toy") as store:
        for stream in range(STREAMS):
            for seed, run in RUNS.items():
                store.add(run, toy_chunk(seed, stream, SIZE))
    return path.read_bytes()


@pytest.fixture
def damaged(good: bytes, tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes bytes where a store is expected."""
    path = tmp_path / "x.sqlite"

    def write(content: bytes) -> Path:
        for left in tmp_path.iterdir():
            left.unlink()
        path.write_bytes(content)
        return path

    return write


def read(path: Path, *, fill: bool) -> bool:
    """Whether damage is noticed when all is read, or when the driver goes on and reads. Silence has to be true."""
    try:
        with EvidenceStore.open(path, read_only=not fill) as store:
            for seed, run in RUNS.items():
                for stream in range(STREAMS) if fill else ():
                    store.add(run, toy_chunk(seed, stream, SIZE))
                kept = list(store.chunks(run))
                if fill:
                    assert len(kept) == STREAMS
                for place, chunk in enumerate(kept):
                    assert chunk.stream == place
                    assert chunk_digest(run.key, chunk) == chunk_digest(run.key, toy_chunk(seed, place, SIZE))
            store.runs()
    except HockeystickError as error:
        sentence = str(error)
    else:
        return False
    assert "x.sqlite'" in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return True


def flips(good: bytes) -> Iterator[tuple[int, int]]:
    """Places and bits: the header of the file, of each page, and everywhere else with a stride."""
    page = 4096
    places = set(range(100)) | set(range(0, len(good), 151))
    for start in range(0, len(good), page):
        places |= set(range(start, start + 10))
    chance = random.Random(5)
    yield from ((place, 1 << chance.randrange(8)) for place in sorted(places) if place < len(good))


@pytest.mark.parametrize("fill", [False, True])
def test_flipped_bits(good: bytes, damaged: Callable[[bytes], Path], fill: bool) -> None:
    noticed = []
    for number, (place, bit) in enumerate(flips(good)):
        if fill and number % 7:
            continue
        spoiled = bytearray(good)
        spoiled[place] ^= bit
        noticed.append(read(damaged(bytes(spoiled)), fill=fill))
    assert sum(noticed) > 0.3 * len(noticed)  # the rest is free space and what is read nowhere


def test_flipped_bits_inside_of_chunks(good: bytes, damaged: Callable[[bytes], Path]) -> None:
    """Where a chunk is known to lie, every change is noticed; a compressed table has padding, where one is harmless."""
    chance = random.Random(9)
    for seed, run in RUNS.items():
        for stream in range(STREAMS):
            _, sums, logs, _, cells, digest = chunk_row(run.key, toy_chunk(seed, stream, SIZE))
            for blob in (sums, logs, cells, digest):
                assert good.count(blob) == 1
                silent = 0
                for _ in range(10):
                    spoiled = bytearray(good)
                    spoiled[good.index(blob) + chance.randrange(len(blob))] ^= 1 << chance.randrange(8)
                    silent += not read(damaged(bytes(spoiled)), fill=False)
                assert silent <= (blob is cells)


def test_a_row_is_inflated_as_far_as_its_run_has_samples() -> None:
    """Four gigabytes of zeros fit into four megabytes, and a row says itself how many samples it has."""
    seed, run = next(iter(RUNS.items()))
    chunk = toy_chunk(seed, 0, SIZE)
    row = list(chunk_row(run.key, chunk))
    assert read_chunk(run.key, 0, row, run.chunk_size).samples == SIZE
    inflated = zlib.compress(bytes(1 << 28), 9)
    for samples in (SIZE + 1, 1 << 40, 0, -1):
        tracemalloc.start()
        with pytest.raises(ValueError, match="cannot be read"):
            read_chunk(run.key, 0, [samples, *row[1:4], inflated, row[5]], run.chunk_size)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 24


def test_truncation(good: bytes, damaged: Callable[[bytes], Path]) -> None:
    chance = random.Random(6)
    pages = set(range(4096, len(good), 4096))
    lengths = {1, 15, 16, 99, 100, 101, 511, 512, len(good) - 1} | pages | {page - 1 for page in pages}
    for length in sorted(lengths | {chance.randrange(1, len(good)) for _ in range(40)}):
        assert read(damaged(good[:length]), fill=False), length
        assert read(damaged(good[:length]), fill=True), length
    assert read(damaged(b""), fill=False)
    assert not read(damaged(b""), fill=True)  # a new store


def test_pages_of_zeros_and_noise(good: bytes, damaged: Callable[[bytes], Path]) -> None:
    """What reading does not need (an index) is noticed by a check."""
    chance = random.Random(7)
    for start in range(0, len(good), 4096):
        for block in (bytes(4096), chance.randbytes(4096), good[:4096] if start else good[4096:8192]):
            path = damaged(good[:start] + block + good[start + 4096 :])
            read(path, fill=False)
            with (
                pytest.raises(HockeystickError, match=r"x\.sqlite'"),
                EvidenceStore.open(path, read_only=True) as store,
            ):
                store.check()


@pytest.mark.parametrize("column", ["sums", "logs", "largest", "cells", "digest", "samples", "stream", "run"])
def test_every_column_is_under_its_digest(good: bytes, damaged: Callable[[bytes], Path], column: str) -> None:
    """A change that SQLite cannot notice."""
    path = damaged(good)
    key = RUNS[1].key
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        where = "WHERE run = ? AND stream = 2"
        (value,) = connection.execute(f"SELECT {column} FROM chunks {where}", (key,)).fetchone()
        if column in ("stream", "run"):  # in the place of another chunk
            connection.execute("DELETE FROM chunks WHERE run = ? AND stream = 2", (RUNS[2].key,))
            connection.execute("DELETE FROM chunks WHERE run = ? AND stream = 3", (key,))
        changed = {"samples": SIZE - 1, "stream": 3, "run": RUNS[2].key}.get(column)
        if changed is None:
            changed = bytes([value[0] ^ 1]) + value[1:]
        connection.execute(f"UPDATE chunks SET {column} = ? {where}", (changed, key))
    place = 3 if column == "stream" else 2
    run = RUNS[2] if column == "run" else RUNS[1]
    with EvidenceStore.open(path, read_only=True) as store:
        says = f"chunk {place} of the run {run.key[:12]} in the evidence store .* is damaged"
        with pytest.raises(EvidenceError, match=says):
            store.chunk(run, place)
        with pytest.raises(EvidenceError, match=says):
            store.check()
    if column != "stream":
        with EvidenceStore.open(path) as store, pytest.raises(EvidenceError, match=says):
            store.add(run, toy_chunk(2 if column == "run" else 1, 2, SIZE))


@pytest.mark.parametrize("value", [None, "text", 1.5, b"", 7])
@pytest.mark.parametrize("column", ["sums", "largest", "cells", "digest", "samples"])
def test_values_of_other_types(good: bytes, damaged: Callable[[bytes], Path], column: str, value: object) -> None:
    if value is None:
        value = -1
    path = damaged(good)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE chunks SET {column} = ? WHERE stream = 1", (value,))
    with EvidenceStore.open(path, read_only=True) as store, pytest.raises(EvidenceError, match=r"chunk 1 .* damaged"):
        list(store.chunks(RUNS[1]))


def test_the_description_of_a_run_is_under_its_key(good: bytes, damaged: Callable[[bytes], Path]) -> None:
    path = damaged(good)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET content = replace(content, 'remove', 'add')")
    either = "|".join(run.key[:6] for run in RUNS.values())  # the older one, or the smaller key of the same second
    with EvidenceStore.open(path, read_only=True) as store:
        for look in (store.runs, store.check):
            with pytest.raises(EvidenceError, match=f"run ({either}).* is damaged"):
                look()


def test_chunks_without_a_run(good: bytes, damaged: Callable[[bytes], Path]) -> None:
    path = damaged(good)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM runs WHERE key = ?", (RUNS[1].key,))
    with EvidenceStore.open(path, read_only=True) as store, pytest.raises(EvidenceError, match="without a run"):
        store.check()


def test_a_missing_or_damaged_log(tmp_path: Path) -> None:
    """The file beside a store that was killed holds its last chunks; without it, or after it, fewer are there."""
    path, log = tmp_path / "x.sqlite", tmp_path / "x.sqlite-wal"
    with EvidenceStore.open(path) as store:
        for stream in range(STREAMS):
            store.add(RUNS[1], toy_chunk(1, stream, SIZE))
        main, tail = path.read_bytes(), log.read_bytes()
    chance = random.Random(8)
    tails = [b"", tail, *(tail[: chance.randrange(len(tail))] for _ in range(20))]
    for _ in range(20):
        spoiled = bytearray(tail)
        spoiled[chance.randrange(len(tail))] ^= 1 << chance.randrange(8)
        tails.append(bytes(spoiled))
    counts = set()
    for content in tails:
        for left in tmp_path.iterdir():
            left.unlink()
        path.write_bytes(main)
        log.write_bytes(content)
        with EvidenceStore.open(path) as store:
            kept = list(store.chunks(RUNS[1]))
            counts.add(len(kept))
            for place, chunk in enumerate(kept):
                assert chunk_digest(RUNS[1].key, chunk) == chunk_digest(RUNS[1].key, toy_chunk(1, place, SIZE))
            store.check()
    assert {0, STREAMS} <= counts
