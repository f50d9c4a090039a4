"""Answers by the digest of their question: what was searched once need not be searched again."""

from __future__ import annotations

import sqlite3
import time

from tessel_core.workbench.store.database import Database
from tessel_core.workbench.store.packing import pack, unpack

MOST_BYTES = 64 * 1000 * 1000
"""What all answers together may take, packed; the oldest go first."""


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
