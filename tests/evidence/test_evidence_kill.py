"""Real processes that are killed at any moment, and two that write at once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import evidence_toy
import pytest
from evidence_toy import content, fill, toy_chunk, toy_run

from hockeystick.evidence import EvidenceStore
from hockeystick.evidence.rows import chunk_digest
from hockeystick.samples import MemoryLedger

SEED = 3
RUN = toy_run(SEED)
ENDLESS = 10**6


class Nursery:
    """Starts children that work on stores; keeps what they need compiled."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, evidence_toy.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        return self.process.stdout.readline().strip()

    def start(self, *arguments: object) -> int:
        self.process.stdin.write(
            json.dumps([str(argument) if isinstance(argument, Path) else argument for argument in arguments]) + "\n"
        )
        self.process.stdin.flush()
        return int(self._line())

    def end(self) -> int:
        return int(self._line())

    def killed_after(self, seconds: float, *arguments: object) -> int:
        """The exit code of a child that is killed after some time."""
        child = self.start(*arguments)
        time.sleep(seconds)
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:  # it was done before
            assert self.end() == 0
            return 0
        return self.end()

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.stop()


def test_killed_twenty_times_and_resumed(nursery: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    chance = random.Random(1)
    stored = 0
    kills = 0
    while kills < 20 or not stored:  # on a busy machine twenty may be too early
        kills += 1
        moment = chance.uniform(0.0, 0.15) * max(1.0, kills / 20)
        assert nursery.killed_after(moment, "fill", path, SEED, 0, ENDLESS) == -signal.SIGKILL
        if path.exists():
            with EvidenceStore.open(path) as store:
                streams = store.streams(RUN)
                assert streams == set(range(len(streams)))
                assert len(streams) >= stored  # what was there stays there
                stored = len(streams)
    wanted = stored + 10
    nursery.start("fill", path, SEED, 0, wanted)
    assert nursery.end() == 0

    uninterrupted = MemoryLedger()
    for stream in range(wanted):
        uninterrupted.add(RUN, toy_chunk(SEED, stream))
    with EvidenceStore.open(path, read_only=True) as store:
        kept = list(store.chunks(RUN))
        assert store.check().chunks == wanted
    assert [chunk.logs.tobytes() for chunk in kept] == [chunk.logs.tobytes() for chunk in uninterrupted.chunks(RUN)]
    assert [chunk_digest(RUN.key, chunk) for chunk in kept] == [
        chunk_digest(RUN.key, toy_chunk(SEED, stream)) for stream in range(wanted)
    ]


def test_killed_while_a_store_is_made(nursery: Nursery, tmp_path: Path) -> None:
    chance = random.Random(2)
    for number in range(12):
        path = tmp_path / f"{number}.sqlite"
        nursery.killed_after(chance.uniform(0.0, 0.012), "fill", path, SEED, 0, ENDLESS)
        fill(str(path), SEED, range(3))
        with EvidenceStore.open(path, read_only=True) as store:
            assert store.streams(RUN) >= {0, 1, 2}
            store.check()


def test_killed_while_merging_or_pruning(nursery: Nursery, tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    fill(str(source), SEED, range(80))
    chance = random.Random(4)
    for number in range(7):
        path = tmp_path / f"{number}.sqlite"
        fill(str(path), SEED, range(2))
        nursery.killed_after(chance.uniform(0.0, 0.1), "merge", path, source)
        with EvidenceStore.open(path) as store:
            assert store.check().chunks in (2, 80)
        before = len(content(path)["chunks"])
        nursery.killed_after(chance.uniform(0.0, 0.01), "prune", path)
        with EvidenceStore.open(path) as store:
            assert store.check().chunks in (before, 0)


def test_two_writers_at_once(nursery: Nursery, tmp_path: Path) -> None:
    """They draw the same chunks from opposite ends, and no file is there when they start."""
    path, streams = tmp_path / "x.sqlite", 120
    second = Nursery()
    nurseries = [nursery, second]
    for writer, order in zip(nurseries, ((0, streams, 1), (streams - 1, -1, -1)), strict=True):
        writer.start("fill", path, SEED, *order)
    assert [writer.end() for writer in nurseries] == [0, 0]
    second.stop()
    with EvidenceStore.open(path, read_only=True) as store:
        assert store.check().chunks == streams
        for chunk in store.chunks(RUN):
            assert chunk_digest(RUN.key, chunk) == chunk_digest(RUN.key, toy_chunk(SEED, chunk.stream))
    assert os.listdir(tmp_path) == [path.name]
