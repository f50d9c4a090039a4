"""The store of this process: on disk, or in memory if the file cannot be used."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tessel_core.workbench.store.database import Database, StoreError, open_in_memory, open_on_disk
from tessel_core.workbench.store.parts import pack, unpack
from tessel_core.workbench.store.workspaces import Workspaces

_NAME = "tessel-explorer"


def data_folder(
    environment: Mapping[str, str] = os.environ, platform: str = sys.platform, home: Path | None = None
) -> Path:
    """Return the folder of the store: `TESSEL_DATA` if it is set, or else the system's folder for user data.

    The folder may not exist yet.

    >>> data_folder({}, "linux", Path("/home/ada")).as_posix()
    '/home/ada/.local/share/tessel-explorer'
    """
    if environment.get("TESSEL_DATA"):
        return Path(environment["TESSEL_DATA"]).expanduser().absolute()
    home = Path.home() if home is None else home
    if platform == "darwin":
        return home / "Library" / "Application Support" / _NAME
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / _NAME
    shared = environment.get("XDG_DATA_HOME", "")
    # The specification says to ignore a relative path [XDG Base Directory Specification 0.8].
    return (Path(shared) if os.path.isabs(shared) else home / ".local" / "share") / _NAME


MAX_BYTES = 64 * 1000 * 1000
"""Limit for all compressed answers together, in bytes. The oldest answers are deleted first."""


class Answers:
    """Stored answers by digest. Every method may raise StoreError."""

    def __init__(self, database: Database, most_bytes: int = MAX_BYTES) -> None:
        self._database = database
        self._most_bytes = most_bytes

    def keep(self, digest: str, document: str) -> None:
        """Store an answer.

        It replaces an earlier answer to the same question. An answer above the size limit is not stored.
        """
        packed = pack(document)
        if len(packed) > self._most_bytes:
            return
        with self._database.writing() as connection:
            row = (digest, time.time(), packed)
            connection.execute("INSERT OR REPLACE INTO answer (digest, kept_at, document) VALUES (?, ?, ?)", row)
            self._make_room(connection)

    def find(self, digest: str) -> bytes | None:
        """Return the document stored under `digest`, or None. Raises InputError if the document is damaged."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT document FROM answer WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else unpack(row[0], f"answer {digest[:8]}")

    def _make_room(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT digest, LENGTH(document) FROM answer ORDER BY kept_at DESC, rowid DESC")
        room = self._most_bytes
        for digest, size in rows.fetchall():
            room -= size
            if room < 0:
                connection.execute("DELETE FROM answer WHERE digest = ?", (digest,))


FILE_NAME = "tessel.sqlite3"


@dataclass(frozen=True)
class Store:
    """Workspaces and answers of one user."""

    database: Database
    workspaces: Workspaces
    answers: Answers
    refused: str = ""
    """Reason why this store is only in memory. Empty for a store on disk."""

    @property
    def trouble(self) -> str:
        """Reason why the latest change is not on disk, as a sentence without a full stop. Empty if it is on disk."""
        return self.refused or self.database.trouble


def open_store(folder: Path) -> Store:
    """Open or create the store in `folder`. If it cannot be used, open one in memory."""
    path = folder / FILE_NAME
    try:
        database, refused = open_on_disk(path), ""
    except StoreError as error:
        database, refused = open_in_memory(path), str(error)
    return Store(database, Workspaces(database), Answers(database), refused)


_LOCK = threading.Lock()
_opened = lru_cache(open_store)


def find_store() -> Store:
    """Return the store of the user who runs this process. It is opened at the first call."""
    with _LOCK:
        return _opened(data_folder())
