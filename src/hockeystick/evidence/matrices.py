"""The optimised matrices that the runs of a store are about, so that other machines draw samples of the same ones."""

import io
import json
import sqlite3
from collections.abc import Iterable

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.strategies import Strategy, StrategySpec, companion

TABLE = """CREATE TABLE matrices (
    strategy TEXT NOT NULL,
    steps INTEGER NOT NULL,
    digest TEXT NOT NULL,
    held TEXT NOT NULL,
    numbers BLOB NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (strategy, steps, digest)
) WITHOUT ROWID"""
"""For each strategy without its numbers and each number of steps: matrices by their digests, with these numbers."""
Row = tuple[str, int, str, str, bytes, str]
_COLUMNS = "strategy, steps, digest, held, numbers, created_at"
_STRATEGY: TypeAdapter[StrategySpec] = TypeAdapter(Strategy)


def row_of(pinned: Mechanism, created_at: str) -> Row:
    """The row of a mechanism that holds the numbers of its matrix; those in a file go into the row."""
    strategy, steps = pinned.strategy, pinned.sampler.steps
    matrix, numbers = strategy.matrix(steps), io.BytesIO()  # before any rounding of exact noise, as it is held
    if strategy.companion is not None:
        np.save(numbers, matrix.table.astype("<f8"), allow_pickle=False)
    digest, held = matrix.digest, strategy.model_dump_json()
    return _name(strategy), steps, digest, held, numbers.getvalue(), created_at


def oldest(connection: sqlite3.Connection, mechanism: Mechanism) -> Row | None:
    """The row of the matrix that was kept first for the strategy and the steps of a mechanism."""
    asked = (_name(mechanism.strategy), mechanism.sampler.steps)
    row: Row | None = connection.execute(
        f"SELECT {_COLUMNS} FROM matrices WHERE strategy = ? AND steps = ? ORDER BY created_at, digest LIMIT 1", asked
    ).fetchone()
    return row


def all_rows(connection: sqlite3.Connection) -> Iterable[Row]:
    """Every row."""
    return connection.execute(f"SELECT {_COLUMNS} FROM matrices ORDER BY strategy, steps, digest").fetchall()


def keep(connection: sqlite3.Connection, row: Row) -> None:
    """Keep a row; of two with the same matrix the older time stays."""
    connection.execute(
        f"INSERT INTO matrices ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (strategy, steps, digest) DO UPDATE "
        "SET created_at = min(created_at, excluded.created_at)",
        row,
    )


def strategy_of(row: Row) -> StrategySpec:
    """The strategy of a row, which holds its numbers.

    Raises: ValueError, in half a sentence, where the row does not hold the matrix of its digest.
    """
    name, steps, digest, held, numbers, _ = row
    try:
        strategy = _STRATEGY.validate_json(held)
        if numbers and strategy.companion == digest:
            companion.keep(digest, np.load(io.BytesIO(numbers), allow_pickle=False))
        intact = _name(strategy) == name and strategy.matrix(steps).digest == digest
    except (ValidationError, InvalidInputError, ValueError, TypeError, OSError, EOFError):
        raise ValueError("its numbers cannot be read") from None
    if not intact:
        raise ValueError("its numbers are not those of its digest")
    return strategy


def _name(strategy: StrategySpec) -> str:
    """A strategy without its numbers, as canonical JSON."""
    return json.dumps(strategy.unheld().model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
