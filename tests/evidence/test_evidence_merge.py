"""Merging stores is the union of sets of chunks."""

import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from evidence_toy import content, toy_chunk, toy_run
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.errors import EvidenceError, InvalidInputError
from hockeystick.evidence import EvidenceStore
from hockeystick.evidence import store as store_module

POOL = [(seed, stream) for seed in (1, 2) for stream in range(3)]
Subset = frozenset[tuple[int, int]]
subsets = st.frozensets(st.sampled_from(POOL))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is described at a time of its own, so that descriptions differ from store to store."""
    ticks = count()
    monkeypatch.setattr(store_module, "_now", lambda: f"2030-01-01T00:{next(ticks):06d}")


def store_of(path: Path, chunks: Subset, label: str = "") -> Path:
    with EvidenceStore.open(path, label=label) as store:
        store.seed(len(label) + len(chunks))
        for seed, stream in sorted(chunks):
            store.add(toy_run(seed), toy_chunk(seed, stream))
    return path


def union(path: Path, *others: Path) -> Path:
    with EvidenceStore.open(path) as store:
        for other in others:
            store.merge(other)
    return path


@settings(max_examples=6)
@given(subsets, subsets, subsets)
def test_laws(first: Subset, second: Subset, third: Subset) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        a, b, c = (
            store_of(place / name, chunks, name) for name, chunks in zip("abc", (first, second, third), strict=True)
        )
        ab = content(union(place / "ab", a, b))
        assert {(row[0], row[1]) for row in ab["chunks"]} == {(toy_run(seed).key, s) for seed, s in first | second}
        assert content(union(place / "ba", b, a)) == ab
        assert content(union(place / "aab", a, a, b, a)) == ab
        left = content(union(place / "abc1", place / "ab", c))
        assert content(union(place / "abc2", union(place / "bc", b, c), a)) == left
        with EvidenceStore.open(place / "all") as store:
            assert store.merge(a, b, c) == len(first | second | third)
            assert store.merge(a, b, c) == 0
            assert store.merge(place / "all") == 0
            assert store.check().chunks == len(first | second | third)
        assert content(place / "all") == left


def test_the_older_description_stays(tmp_path: Path) -> None:
    older, newer = store_of(tmp_path / "a", frozenset(POOL[:1]), "older"), store_of(tmp_path / "b", POOL[:2], "newer")
    for target, source in ((older, newer), (newer, older)):
        with EvidenceStore.open(union(target, source), read_only=True) as store:
            assert [run.label for run in store.runs()] == ["older"]


def test_stores_that_contradict_each_other(tmp_path: Path) -> None:
    target, good = store_of(tmp_path / "t", frozenset(POOL[:2])), store_of(tmp_path / "g", frozenset(POOL[3:]))
    chunk = toy_chunk(1, 1)
    with EvidenceStore.open(tmp_path / "bad") as store:
        store.add(toy_run(1), replace(chunk, sums=np.nextafter(chunk.sums, 0.0)))
    before = content(target)
    with EvidenceStore.open(target) as store, pytest.raises(EvidenceError) as refused:
        store.merge(good, tmp_path / "bad")
    for part in ("chunk 1", toy_run(1).key[:12], "/t'", "/bad'"):
        assert part in str(refused.value)
    assert content(target) == before


def test_a_source_that_cannot_be_read(tmp_path: Path) -> None:
    target, good = store_of(tmp_path / "t", frozenset(POOL[:2])), store_of(tmp_path / "g", frozenset(POOL[3:]))
    (tmp_path / "text").write_text("text" * 100)
    before = content(target)
    with EvidenceStore.open(target) as store:
        for bad in ("missing", "text"):
            with pytest.raises(InvalidInputError, match=bad):
                store.merge(good, tmp_path / bad)
    assert content(target) == before
    assert sorted(os.listdir(tmp_path)) == ["g", "t", "text"]
