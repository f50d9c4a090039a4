"""The SQLite file of the store.

It is opened only if it is valid, and changed only in transactions. Errors are reported in words.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tessel_core.errors import InputError

PATIENCE_S = 2.0
"""Seconds that a writer waits for another writer to finish."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables of the file, and the ids by which it is recognised."""

    application: int
    """SQLite's `application_id`, which identifies the program that created the file."""
    version: int
    """SQLite's `user_version`, the version of the tables."""
    tables: str
    """SQL statements that create the tables."""


SAVED_WORK = Schema(
    int.from_bytes(b"TESL", "big"),
    2,
    """
CREATE TABLE workspace (
  token TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, saved_at REAL NOT NULL);
CREATE TABLE revision (
  token TEXT NOT NULL REFERENCES workspace ON DELETE CASCADE, number INTEGER NOT NULL, parent INTEGER,
  schedule TEXT, document BLOB NOT NULL, graph TEXT, mesh TEXT, PRIMARY KEY (token, number));
CREATE INDEX revision_parent ON revision (token, parent);
CREATE INDEX revision_schedule ON revision (schedule) WHERE schedule IS NOT NULL;
CREATE INDEX revision_graph ON revision (graph) WHERE graph IS NOT NULL;
CREATE INDEX revision_mesh ON revision (mesh) WHERE mesh IS NOT NULL;
CREATE TABLE part (digest TEXT PRIMARY KEY, document BLOB NOT NULL);
CREATE TABLE answer (digest TEXT PRIMARY KEY, kept_at REAL NOT NULL, document BLOB NOT NULL);
""",
)


_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_BUSY: "another program has locked it",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is damaged, or not a store",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_PERM: "access to it is denied",
    sqlite3.SQLITE_AUTH: "access to it is denied",
}


class StoreError(InputError):
    """The store cannot be used. Its content was not changed."""


class Database:
    """One connection that the threads of the process share, one at a time. Processes wait for each other."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._connection = connection
        self._path = path
        self._identity = _identity(path)
        self._lock = threading.RLock()
        self.trouble = ""
        """Reason why the latest change was not saved. Empty if it was saved."""

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Provide the connection for reading. Every statement sees a consistent state. Raises StoreError."""
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise self._troubled(error) from None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Provide the connection for one transaction.

        Changes are on disk when the `with` block ends. Raises StoreError with the reason if nothing was saved.
        """
        with self.reading() as connection:
            with self._transaction():
                yield connection
            self.trouble = ""

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if _identity(self._path) != self._identity:
            raise sqlite3.OperationalError("it was moved or deleted while it was in use")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _troubled(self, error: sqlite3.Error) -> StoreError:
        found = StoreError("memory" if self._path is None else str(self._path), reason(error))
        self.trouble = str(found)
        return found

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


def open_on_disk(path: Path, schema: Schema = SAVED_WORK) -> Database:
    """Open the store at `path`, or create it.

    Raises StoreError if it cannot be used: not writable, damaged, another version, or another program's file.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = _connect(str(path))
    except OSError as error:
        raise StoreError(str(path), f"its folder cannot be created: {error.strerror}") from None
    except sqlite3.Error as error:
        raise StoreError(str(path), reason(error)) from None
    try:
        fresh = _recognise(connection, path, schema)
        _write_ahead(connection)
        if fresh:
            _create(connection, schema)
        _probe(connection, schema)
    except (sqlite3.Error, StoreError) as error:
        connection.close()
        raise error if isinstance(error, StoreError) else StoreError(str(path), reason(error)) from None
    return Database(connection, path)


def open_in_memory(path: Path) -> Database:
    """Open a store in memory. It starts with a copy of the store at `path`, if that file can be read."""
    connection = _connect(":memory:")
    with suppress(sqlite3.Error, OSError, StoreError), tempfile.TemporaryDirectory() as folder:
        _copy(path, Path(folder), connection)
    if not _tables(connection):
        _create(connection, SAVED_WORK)
    return Database(connection, None)


def reason(error: sqlite3.Error) -> str:
    """Return the cause of an SQLite error in a few words."""
    code = getattr(error, "sqlite_errorcode", None)
    return str(error) if code is None else _REASONS.get(code & 0xFF, str(error))


def _connect(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(name, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _recognise(connection: sqlite3.Connection, path: Path, schema: Schema) -> bool:
    """Return whether the file is empty. Raises StoreError unless the file is empty or a store of the known version."""
    connection.execute("BEGIN")  # one transaction, because another process may be creating the store
    try:
        application, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
        tables = _tables(connection)
    finally:
        connection.execute("ROLLBACK")
    if not tables and not application and not version:
        return True
    if application != schema.application:
        raise StoreError(str(path), "it belongs to another program")
    if version != schema.version:
        raise StoreError(str(path), f"it has version {version}, but this program reads only version {schema.version}")
    if _pragma(connection, "quick_check(1)") != "ok":
        raise StoreError(str(path), "it is damaged")
    return False


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch the journal to write-ahead mode, and put every commit on disk before it returns.

    In this mode, readers do not wait for a writer. SQLite does not wait for a lock when it changes the journal mode, so
    this function retries.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous = FULL")


def _create(connection: sqlite3.Connection, schema: Schema) -> None:
    """Create the tables in one transaction, unless another process has already done so."""
    connection.execute("BEGIN IMMEDIATE")
    if not _tables(connection):
        for statement in filter(str.strip, schema.tables.split(";")):  # `executescript` would end the transaction
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.application}")
        connection.execute(f"PRAGMA user_version = {schema.version}")
    connection.execute("COMMIT")


def _probe(connection: sqlite3.Connection, schema: Schema) -> None:
    """Raise sqlite3.OperationalError if the file is not writable. A busy writer is no error.

    Beginning a transaction is not enough, because SQLite allows that on a read-only file.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"PRAGMA user_version = {schema.version}")
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise


def _copy(path: Path, folder: Path, target: sqlite3.Connection) -> None:
    """Read the store through a temporary copy, because SQLite may write files beside a database even to read it."""
    for name in (path.name, f"{path.name}-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(name), folder / name)
    with closing(_connect(str(folder / path.name))) as source:
        if not _recognise(source, path, SAVED_WORK):
            source.execute("PRAGMA journal_mode = DELETE")  # a database in memory supports no write-ahead log
            source.backup(target)


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return device number and inode number of the file at `path`. None if the file does not exist."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
