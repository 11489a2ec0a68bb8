"""The tables of an evidence store, and the migrations that bring older files up to date."""

import sqlite3

from hockeystick.errors import EvidenceError, InvalidInputError
from hockeystick.evidence.matrices import TABLE

APPLICATION = 0x686F636B
"""``PRAGMA application_id`` of a store: "hock"."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            key TEXT NOT NULL PRIMARY KEY,
            content TEXT NOT NULL,
            label TEXT NOT NULL,
            created_at TEXT NOT NULL,
            code_version TEXT NOT NULL
        )""",
        """CREATE TABLE chunks (
            run TEXT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
            stream INTEGER NOT NULL CHECK (stream >= 0),
            samples INTEGER NOT NULL,
            sums BLOB NOT NULL,
            logs BLOB NOT NULL,
            largest BLOB NOT NULL,
            cells BLOB NOT NULL,
            digest BLOB NOT NULL,
            UNIQUE (run, stream)
        )""",
    ),
    (
        """CREATE TABLE seeds (
            seed TEXT NOT NULL PRIMARY KEY,
            created_at TEXT NOT NULL
        )""",
    ),
    (TABLE,),
)
"""The statements that lead from each schema version to the next; version 0 is an empty file."""

SCHEMA = len(MIGRATIONS)
"""``PRAGMA user_version`` of the stores written by this version of hockeystick."""


def prepare(connection: sqlite3.Connection, name: str, *, read_only: bool) -> None:
    """Turn an empty file into a store, bring an older store up to date, and refuse anything else.

    Two programs may do so at once. ``name`` stands for the file in errors.

    Raises: InvalidInputError for a file that is not a store, or has a newer schema (or, if read-only, is empty or has
    an older schema); EvidenceError for a store whose tables are damaged.
    """
    if not read_only and _version(connection) != SCHEMA:
        connection.execute("BEGIN IMMEDIATE")  # a second program waits here and then finds it done
        try:
            version = _version(connection)
            if version or _pragma(connection, "application_id") or _tables(connection):  # the file is not empty
                _refuse_foreign(connection, name)
            _migrate(connection, version)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    version = _version(connection)
    _refuse_foreign(connection, name)
    if version != SCHEMA:
        raise InvalidInputError(
            f"The {name} has the older schema {version}, and this version of hockeystick reads schema {SCHEMA}; "
            f"open it once for writing."
        )
    if _tables(connection) != _expected():
        raise EvidenceError(f"The {name} is damaged: its tables are not those of schema {SCHEMA}.")


def _refuse_foreign(connection: sqlite3.Connection, name: str) -> None:
    """Refuse a file that is not a store, or was written by a newer hockeystick."""
    if _pragma(connection, "application_id") != APPLICATION:
        what = "an SQLite file of another program" if _tables(connection) else "empty"
        raise InvalidInputError(f"The {name} is not a store of evidence: it is {what}.")
    version = _version(connection)
    if version > SCHEMA:
        raise InvalidInputError(
            f"The {name} has the newer schema {version}, and this version of hockeystick reads schemas up to "
            f"{SCHEMA}; use a newer hockeystick."
        )


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _tables(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """The full schema of a database."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def _expected() -> list[tuple[object, ...]]:
    """The schema of a newly made store."""
    with_tables = sqlite3.connect(":memory:", isolation_level=None)
    try:
        _migrate(with_tables, 0)
        return _tables(with_tables)
    finally:
        with_tables.close()


def _version(connection: sqlite3.Connection) -> int:
    return _pragma(connection, "user_version")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
