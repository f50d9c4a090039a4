"""The store of this process: on disk where that can be, else in memory, with the reason."""

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
    """`TESSEL_DATA` where it is set, else the place that the system has for such things; it may not exist yet.

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
    # A relative path there is to be ignored [XDG Base Directory Specification 0.8].
    return (Path(shared) if os.path.isabs(shared) else home / ".local" / "share") / _NAME


MOST_BYTES = 64 * 1000 * 1000
"""The most that all answers may take, packed; the oldest go first."""


class Answers:
    """Documents by digest; every method may raise StoreError."""

    def __init__(self, database: Database, most_bytes: int = MOST_BYTES) -> None:
        self._database = database
        self._most_bytes = most_bytes

    def keep(self, digest: str, document: str) -> None:
        """Keep an answer, in place of an earlier one to the same question; not one that is larger than all may be."""
        packed = pack(document)
        if len(packed) > self._most_bytes:
            return
        with self._database.writing() as connection:
            row = (digest, time.time(), packed)
            connection.execute("INSERT OR REPLACE INTO answer (digest, kept_at, document) VALUES (?, ?, ?)", row)
            self._make_room(connection)

    def find(self, digest: str) -> bytes | None:
        """The document kept under `digest`; InputError where it is damaged."""
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
    """Everything that is kept for one person."""

    database: Database
    workspaces: Workspaces
    answers: Answers
    refused: str = ""
    """Why this store is in memory and ends with the process; empty for one on disk."""

    @property
    def trouble(self) -> str:
        """Why the latest change is not on disk, in one sentence without its full stop; empty where it is."""
        return self.refused or self.database.trouble


def open_store(folder: Path) -> Store:
    """The store in `folder`, made where there is none; in memory where it cannot be used."""
    path = folder / FILE_NAME
    try:
        database, refused = open_on_disk(path), ""
    except StoreError as error:
        database, refused = open_in_memory(path), str(error)
    return Store(database, Workspaces(database), Answers(database), refused)


_LOCK = threading.Lock()
_opened = lru_cache(open_store)


def find_store() -> Store:
    """The store of whoever runs this process, opened once."""
    with _LOCK:
        return _opened(data_folder())
