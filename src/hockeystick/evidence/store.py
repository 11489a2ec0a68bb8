"""The evidence store: one SQLite file that keeps the chunks of runs, consistent at any moment of a run."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from hockeystick._version import __version__
from hockeystick.errors import EvidenceError, InvalidInputError
from hockeystick.evidence import matrices, schema
from hockeystick.evidence.rows import (
    COLUMNS,
    Row,
    RunSummary,
    chunk_digest,
    chunk_row,
    read_chunk,
    run_content,
    short,
)
from hockeystick.files import check_writable
from hockeystick.mechanism import Mechanism
from hockeystick.samples import LARGEST_CHUNK, Chunk, Ledger, Run, fresh_seed, misfit
from hockeystick.strategies import StrategySpec

PATIENCE = 30.0
"""Seconds that one program waits while another writes."""
_SMALLEST = 512
"""The smallest page of SQLite, in bytes."""
_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_DAMAGE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
)
"""SQLite's codes for a store that another program writes, and for one that is as it should be but out of reach."""
_SUMMARY = """
    SELECT key, content, label, created_at, code_version,
        (SELECT count(*) FROM chunks WHERE run = key),
        (SELECT count(*) FROM (SELECT stream, row_number() OVER (ORDER BY stream) - 1 AS place
            FROM chunks WHERE run = key) WHERE stream = place)
    FROM runs"""
"""The fields of :class:`RunSummary`: the last two count a run's chunks, and those before the first gap."""
_INSERT_CHUNK = f"INSERT INTO chunks (run, stream, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class Health:
    """The result of checking a whole store; damage raises an error instead.

    Attributes:
        runs, chunks: their numbers; all have correct digests.
        gaps: key and first missing stream of the runs that have chunks behind a gap, as an interrupted parallel run
            leaves them. Nothing is wrong with them.
    """

    runs: int
    chunks: int
    gaps: dict[str, int]


class EvidenceStore(Ledger):
    """Keeps chunks in one file, and is a :class:`~hockeystick.samples.Ledger`.

    Every chunk is one transaction, on the disk when :meth:`add` returns: whatever happens to the program or the
    machine, the file holds the chunks that were added and no part of another. Several programs may write at
    once; a chunk that two of them compute is kept once. Every chunk carries a SHA-256 over its run and its content,
    checked whenever it is read.

    Use it in the thread and process that opened it, and close it (it is a context manager). A closed store is one
    file; after a kill the last chunks are in a file ``...-wal`` beside it, which belongs to the store and is read
    when the store is next opened.

    All methods raise EvidenceError, in a sentence that names the store, and the run and stream where they are known,
    if the store is damaged, the disk is full, or another program keeps it locked for 30 seconds.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, *, read_only: bool, label: str) -> None:
        """Use :meth:`open` instead."""
        self._connection = connection
        self._name = name
        self._read_only = read_only
        self._label = label

    @classmethod
    def open(cls, path: str | Path, *, read_only: bool = False, label: str = "") -> Self:
        """Open a store; makes a new one if there is no file, unless ``read_only``.

        Args:
            label: what the runs added through this object are about, for human readers.

        Raises: InvalidInputError for a path that cannot be read or written, and for a file that is not a store or has
            a newer schema; EvidenceError for a damaged store.
        """
        name = f"evidence store {_path_text(path)}"
        place = _readable(path, name) if read_only else check_writable(path)
        if place.exists() and 0 < place.stat().st_size < _SMALLEST:  # SQLite would take it for an empty file
            raise InvalidInputError(f"The {name} is not a store of evidence, or most of it is missing.")
        mode = "ro" if read_only else "rwc"
        with _our_words(name):
            connection = sqlite3.connect(
                f"{place.absolute().as_uri()}?mode={mode}", uri=True, timeout=PATIENCE, isolation_level=None
            )
            try:
                for setting in ("foreign_keys = ON", "trusted_schema = OFF", "cell_size_check = ON"):
                    connection.execute(f"PRAGMA {setting}")
                schema.prepare(connection, name, read_only=read_only)
                _check_length(connection, place, name)
                if not read_only:
                    _write_ahead(connection)
                    connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                connection.close()
                raise
        return cls(connection, name, read_only=read_only, label=label)

    def close(self) -> None:
        """Close the file, without WAL files unless another program has it open."""
        with suppress(sqlite3.Error):
            if not self._read_only:
                # Without the write-ahead log the file can be read in a read-only folder. Refused, and not needed,
                # while other programs use it.
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def runs(self) -> list[RunSummary]:
        """All runs, oldest first. Memory: their descriptions."""
        with _our_words(self._name):
            rows = self._connection.execute(f"{_SUMMARY} ORDER BY created_at, key").fetchall()
        for key, content, *_ in rows:
            if not isinstance(content, str) or hashlib.sha256(content.encode()).hexdigest() != key:
                raise EvidenceError(
                    f"The run {short(str(key))} of the {self._name} is damaged: its description does not have the "
                    f"digest that is its key."
                )
        return [RunSummary(*row) for row in rows]

    def chunks(self, run: Run, first: int = 0) -> Iterator[Chunk]:
        """The stored chunks from stream ``first`` up to the first gap, one in memory at a time."""
        key, stream = run.key, first
        while (chunk := self._possible(run, key, stream)) is not None:
            yield chunk
            stream += 1

    def streams(self, run: Run) -> frozenset[int]:
        """The streams that are stored, behind gaps too."""
        return frozenset(self._streams(run.key))

    def seed(self, chosen: int | None = None) -> int:
        """The chosen seed, else the oldest one of this store, else a fresh one, on the disk when this returns.

        So an interrupted command that is given again makes the same choices, whether or not it had stored a chunk.
        """
        kept = self._oldest_seed()
        if kept is None:
            with self._transaction():
                kept = self._oldest_seed()  # another program may have been faster
                if kept is None:
                    kept = fresh_seed() if chosen is None else chosen
                    self._keep_seed((str(kept), _now()))
        return kept if chosen is None else chosen

    def pinned(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism with its matrix: the one that this store is about, where an optimiser is to find it.

        That is the oldest one that the store has for the strategy and the steps; if it has none, the optimiser's, which
        is kept. So a store that is continued on another machine goes on with the same matrix, and its chunks with it.
        """
        strategy = mechanism.strategy
        if not strategy.optimised or strategy.unheld() != strategy:
            return mechanism.pinned()
        kept = self._kept_matrix(mechanism)
        if kept is None:
            pinned = mechanism.pinned()
            if self._read_only:
                return pinned
            with self._transaction():
                kept = self._kept_matrix(mechanism)  # another program may have been faster
                if kept is None:
                    matrices.keep(self._connection, matrices.row_of(pinned, _now()))
                    return pinned
        return kept

    def _kept_matrix(self, mechanism: Mechanism) -> Mechanism | None:
        """The mechanism with the oldest matrix that is stored for its strategy and steps; None where there is none."""
        with _our_words(self._name):
            row = matrices.oldest(self._connection, mechanism)
        return None if row is None else mechanism.model_copy(update={"strategy": self._strategy(row)})

    def _strategy(self, row: matrices.Row) -> StrategySpec:
        """The strategy that holds a stored matrix, which is built again; raises EvidenceError for a damaged one."""
        try:
            return matrices.strategy_of(row)
        except ValueError as error:
            raise EvidenceError(f"A matrix of the {self._name} is damaged: {error}.") from None

    def _oldest_seed(self) -> int | None:
        """The seed that was chosen first, below 2^128; None where none is stored."""
        with _our_words(self._name):
            row = self._connection.execute("SELECT seed FROM seeds ORDER BY created_at, seed LIMIT 1").fetchone()
        if row is not None and not str(row[0]).isdecimal():
            raise EvidenceError(f"The {self._name} is damaged: its seed is not a number.")
        return None if row is None else int(row[0]) % (1 << 128)

    def _keep_seed(self, seed: Row) -> None:
        """Keep a seed and when it was chosen; of two times the earlier one stays."""
        self._connection.execute(
            "INSERT INTO seeds (seed, created_at) VALUES (?, ?) ON CONFLICT (seed) DO UPDATE "
            "SET created_at = min(created_at, excluded.created_at)",
            seed,
        )

    def chunk(self, run: Run, stream: int) -> Chunk:
        """One stored chunk; raises InvalidInputError if it is not stored."""
        chunk = self._possible(run, run.key, stream)
        if chunk is None:
            raise InvalidInputError(f"{self._where(run.key, stream)} is not stored.")
        return chunk

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep one chunk; durable when this returns.

        A chunk that is already stored stays as it is; the new one must equal it bit for bit.

        Raises: EvidenceError, naming run and stream, if it does not; InvalidInputError for a chunk that cannot be
            one of this run.
        """
        key, reason = run.key, misfit(run, chunk)
        if reason is not None:
            raise InvalidInputError(f"The chunk {chunk.stream} is not one of the run {short(key)}: {reason}.")
        with self._transaction():
            self._keep_run((key, run_content(run), self._label, _now(), __version__))
            self._keep_chunk(key, chunk, "what was computed now")

    def merge(self, *others: str | Path) -> int:
        """Add the chunks of other stores, all of them or, after an error, none: the union of sets.

        Merging is idempotent, and the order does not matter. Descriptions, seeds and matrices merge too: the oldest
        counts. Memory does not depend on the sizes of the stores.

        Returns: the number of new chunks.

        Raises: EvidenceError, naming run and stream, where two stores have different content for the same stream;
            and what :meth:`open` raises.
        """
        added = 0
        with self._transaction():
            for path in others:
                with EvidenceStore.open(path, read_only=True) as other:
                    for seed in other._connection.execute("SELECT seed, created_at FROM seeds").fetchall():
                        self._keep_seed(seed)
                    for row in matrices.all_rows(other._connection):
                        other._strategy(row)
                        matrices.keep(self._connection, row)
                    for summary in other.runs():
                        described = summary.key, summary.content, summary.label, summary.created_at
                        self._keep_run((*described, summary.code_version))
                        run = _known(summary)
                        for stream in other._streams(summary.key):
                            chunk = other._possible(run, summary.key, stream)
                            added += chunk is not None and self._keep_chunk(summary.key, chunk, f"the {other._name}")
        return added

    def prune(self, *, drop: Iterable[str] | None = None, keep: Iterable[str] | None = None) -> list[RunSummary]:
        """Drop whole runs, those with the keys ``drop`` or all but those with the keys ``keep``, and shrink the file.

        This removes evidence, not the failure probability that it has spent.

        Returns: the dropped runs.
        """
        if (drop is None) == (keep is None):
            raise InvalidInputError("Exactly one of 'drop' and 'keep' must be given.")
        kept, dropped = set(keep or ()), set(drop or ())
        with self._transaction():
            gone = [run for run in self.runs() if (run.key in dropped if keep is None else run.key not in kept)]
            for run in gone:
                self._connection.execute("DELETE FROM runs WHERE key = ?", (run.key,))
        with _our_words(self._name):
            self._connection.execute("VACUUM")
        return gone

    def check(self) -> Health:
        """Check every page of the file, the digest of every row, and that samples can have every chunk's statistics.

        Matrices are built again, to compare their digests.

        Raises: EvidenceError naming the first damage.
        """
        with _our_words(self._name):
            said = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            orphan = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if said != "ok" or orphan is not None:
            why = "there are chunks without a run" if said == "ok" else " ".join(str(said).split()).rstrip(".")
            raise EvidenceError(f"The {self._name} is damaged: {why}.")
        with _our_words(self._name):
            for row in matrices.all_rows(self._connection):
                self._strategy(row)
        counted = 0
        summaries = self.runs()
        for summary in summaries:
            run = _known(summary)
            for stream in self._streams(summary.key):
                counted += self._possible(run, summary.key, stream) is not None
        gaps = {summary.key: summary.prefix for summary in summaries if summary.prefix < summary.chunks}
        return Health(runs=len(summaries), chunks=counted, gaps=gaps)

    def _keep_run(self, described: Row) -> None:
        """Keep the description of a run; of two descriptions the older one stays."""
        self._connection.execute(
            "INSERT INTO runs (key, content, label, created_at, code_version) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET label = excluded.label, created_at = excluded.created_at, "
            "code_version = excluded.code_version WHERE (excluded.created_at, excluded.code_version, excluded.label) "
            "< (created_at, code_version, label)",
            described,
        )

    def _keep_chunk(self, key: str, chunk: Chunk, source: str) -> bool:
        """Keep a chunk, within a transaction; whether it is new."""
        kept = self._stored(key, chunk.stream)
        if kept is None:
            self._connection.execute(_INSERT_CHUNK, (key, chunk.stream, *chunk_row(key, chunk)))
            return True
        if chunk_digest(key, kept) != chunk_digest(key, chunk):
            raise EvidenceError(
                f"{self._where(key, chunk.stream)} is not the same as in {source}: one of the two is damaged, or was "
                f"computed on a machine that rounds differently."
            )
        return False

    def _streams(self, key: str) -> list[int]:
        """The streams of a run, ascending."""
        with _our_words(self._name):
            rows = self._connection.execute("SELECT stream FROM chunks WHERE run = ? ORDER BY stream", (key,))
            return [int(stream) for (stream,) in rows]

    def _possible(self, run: Run | None, key: str, stream: int) -> Chunk | None:
        """A chunk that suits its run, where this version knows the run; None where there is no chunk."""
        chunk = self._stored(key, stream, LARGEST_CHUNK if run is None else run.chunk_size)
        reason = None if chunk is None or run is None else misfit(run, chunk)
        if reason is not None:
            raise EvidenceError(f"{self._where(key, stream)} is damaged: {reason}.")
        return chunk

    def _stored(self, key: str, stream: int, most: int = LARGEST_CHUNK) -> Chunk | None:
        """A chunk of at most so many samples with its digest checked, or None if it is not stored."""
        with _our_words(self._name):
            row = self._connection.execute(
                f"SELECT {COLUMNS} FROM chunks WHERE run = ? AND stream = ?", (key, stream)
            ).fetchone()
        try:
            return None if row is None else read_chunk(key, stream, row, most)
        except ValueError as error:
            raise EvidenceError(f"{self._where(key, stream)} is damaged: {error}.") from None

    def _where(self, key: str, stream: int) -> str:
        """How messages name a chunk."""
        return f"The chunk {stream} of the run {short(key)} in the {self._name}"

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit at the end, or roll back whatever is raised inside."""
        if self._read_only:
            raise InvalidInputError(f"The {self._name} was opened for reading; open it for writing.")
        with _our_words(self._name):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _known(summary: RunSummary) -> Run | None:
    """The run of a summary; None where another version of hockeystick described it."""
    with suppress(EvidenceError):
        return summary.run
    return None


def _path_text(path: str | Path) -> str:
    """A path for messages; the end of a long one, which tells stores apart."""
    text = repr(os.fspath(path))
    return text if len(text) <= 60 else "'..." + text[-56:]


def _now() -> str:
    """The time in UTC, to the second, as rows have it: such texts are in the order of their times."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _readable(path: str | Path, name: str) -> Path:
    """The path of a regular file that may be read.

    Does not open it: closing a file drops SQLite's locks on it in the whole process.
    """
    try:
        place = Path(os.path.realpath(path))
        place.stat()
    except OSError as error:
        raise InvalidInputError(f"The {name} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidInputError(f"The {name} cannot be read: no path has a null byte.") from None
    if not place.is_file():
        raise InvalidInputError(f"The {name} cannot be read: it is not an ordinary file.")
    if not os.access(place, os.R_OK):
        raise InvalidInputError(f"The {name} cannot be read: no permission.")
    return place


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite does not wait for its locks here, so this waits for PATIENCE itself."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _IN_USE or time.monotonic() >= end:
                raise
            time.sleep(0.05)
        else:
            return


def _check_length(connection: sqlite3.Connection, place: Path, name: str) -> None:
    """Refuse a file that ends within a page, which SQLite would pad with zeros."""
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    if place.stat().st_size % size and not os.path.exists(f"{place}-wal"):  # with a log the end may not be written yet
        raise EvidenceError(f"The {name} is damaged: its end is missing.")


@contextmanager
def _our_words(name: str) -> Iterator[None]:
    """Turn SQLite's errors into one sentence that names the store."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a bug in the calling program
        raise
    except UnicodeDecodeError:  # Python cannot pass on SQLite's complaint about a damaged name
        raise EvidenceError(f"The {name} is damaged: there is text that is not UTF-8.") from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # text that is not UTF-8 has no code
        said = " ".join(str(error).split()).rstrip(".")
        if code in _IN_USE:
            sentence = f"The {name} is in use by another program, which did not let go of it for {PATIENCE:g} seconds."
        elif code in _NO_DAMAGE:
            sentence = f"The {name} cannot be read or written: {said}."
        elif code == sqlite3.SQLITE_NOTADB:
            raise InvalidInputError(f"The {name} is not a store of evidence, or its beginning is damaged.") from None
        else:
            sentence = f"The {name} is damaged: {said}."
        raise EvidenceError(sentence) from None
