"""Workspaces by token, with their history.

Saved work is never overwritten. A history is a tree of revisions: saving adds a revision, and undo and redo move along
the tree. A writer states which revision it started from. If another writer has changed the workspace since, the work is
saved as a separate workspace.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from dataclasses import dataclass, replace
from itertools import count

from tessel_core.errors import InputError
from tessel_core.formats.workspace_file import LONGEST_NAME, WorkspaceFile, check_name, read_workspace, workspace_text
from tessel_core.hosting import MAX_WORKSPACES, hosted
from tessel_core.workbench.store.database import Database
from tessel_core.workbench.store.parts import pack, parts_of, unpack, with_parts, without_parts

MAX_REVISIONS = 200
MAX_BYTES = 16 * 1000 * 1000
"""Limit for the compressed history of a workspace, in bytes.

Each graph counts once. The oldest revisions are deleted first.
"""

_SECOND = " (forked)"

_KEPT = """
SELECT w.token, w.name, w.revision, w.saved_at,
  EXISTS (SELECT 1 FROM revision p WHERE p.token = w.token AND p.number = r.parent),
  EXISTS (SELECT 1 FROM revision c WHERE c.token = w.token AND c.parent = w.revision)
FROM workspace w JOIN revision r ON r.token = w.token AND r.number = w.revision
"""
_PARENT = "SELECT parent FROM revision WHERE token = ? AND number = ?"
_OLD = """\
DELETE FROM workspace WHERE token NOT IN (SELECT token FROM workspace ORDER BY saved_at DESC, rowid DESC LIMIT ?)
"""
_SIZES = """\
SELECT r.number, LENGTH(r.document), r.graph, LENGTH(p.document)
FROM revision r LEFT JOIN part p ON p.digest = r.graph WHERE r.token = ? ORDER BY r.number DESC
"""

_WHOLE = """
SELECT r.document, s.document, g.document, m.document FROM revision r
LEFT JOIN part s ON s.digest = r.schedule LEFT JOIN part g ON g.digest = r.graph LEFT JOIN part m ON m.digest = r.mesh
WHERE r.token = ? AND r.number = ?
"""


@dataclass(frozen=True, slots=True)
class SavedWorkspace:
    """List entry of a stored workspace."""

    token: str
    name: str
    revision: int
    saved_at: float
    """Time of the latest change, in seconds since 1970."""
    can_undo: bool
    can_redo: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Result of saving after another writer has already saved a successor of the same revision.

    Both states are saved.
    """

    mine: SavedWorkspace
    """The workspace that now holds this writer's work."""
    other: SavedWorkspace | None
    """The other writer's workspace. None if it was deleted."""


def new_token() -> str:
    """Return a new random token for a workspace."""
    return secrets.token_urlsafe(9)


class Workspaces:
    """Workspaces in the store. Every method may raise StoreError."""

    def __init__(self, database: Database, most_revisions: int = MAX_REVISIONS, most_bytes: int = MAX_BYTES) -> None:
        self._database = database
        self._most_revisions = most_revisions
        self._most_bytes = most_bytes

    def create(self, work: WorkspaceFile, token: str = "") -> SavedWorkspace:
        """Save a new workspace under its name and token, or under similar ones if they are taken.

        A caller may repeat the call with the same state if it does not know whether the first call succeeded. The
        second call then does nothing.
        """
        with self._database.writing() as connection:
            there = _find(connection, token)
            if there is not None and _says(connection, there, work):
                return there
            made = _create(connection, token, work, work.name)
            if hosted():
                connection.execute(_OLD, (MAX_WORKSPACES,))
                _forget_parts(connection)
            return made

    def save(self, token: str, base: int, work: WorkspaceFile, *, step: bool = True) -> SavedWorkspace | Conflict:
        """Save the next state of a workspace, made from revision `base`.

        The name in the store stays the same. With `step`, undo returns to `base`. Otherwise the new state replaces
        `base` in the history.
        """
        with self._database.writing() as connection:
            other = _find(connection, token)
            if other is not None and other.revision != base and _says(connection, other, work):
                return other
            if other is None or other.revision != base:
                return Conflict(_sibling(connection, token, base, other, work), other)
            parent = base if step else connection.execute(_PARENT, (token, base)).fetchone()[0]
            number = _append(connection, token, parent, work)
            if not step:
                connection.execute(
                    "UPDATE revision SET parent = ? WHERE token = ? AND parent = ?", (number, token, base)
                )
            self._prune(connection, token)
            return _present(connection, token)

    def undo(self, token: str, base: int) -> SavedWorkspace | None:
        """Undo one step if `base` is still the current revision.

        Return the current state, or None if the workspace was deleted.
        """
        return self._move(token, base, _PARENT)

    def redo(self, token: str, base: int) -> SavedWorkspace | None:
        """Redo one step if `base` is still the current revision.

        Return the current state, or None if the workspace was deleted.
        """
        return self._move(token, base, "SELECT MAX(number) FROM revision WHERE token = ? AND parent = ?")

    def _move(self, token: str, base: int, target: str) -> SavedWorkspace | None:
        with self._database.writing() as connection:
            (number,) = connection.execute(target, (token, base)).fetchone() or (None,)
            connection.execute(
                "UPDATE workspace SET revision = ?, saved_at = ? WHERE token = ? AND revision = ? "
                "AND EXISTS (SELECT 1 FROM revision WHERE token = ? AND number = ?)",
                (number, time.time(), token, base, token, number),
            )
            return _find(connection, token)

    def find(self, token: str) -> SavedWorkspace | None:
        """Return the list entry of a workspace. None if the store has no such workspace."""
        with self._database.reading() as connection:
            return _find(connection, token)

    def load(self, token: str) -> tuple[SavedWorkspace, WorkspaceFile] | None:
        """Return a workspace's list entry and content.

        None if the store has no such workspace. Raises InputError if its document cannot be read.
        """
        with self._database.reading() as connection:
            kept = _find(connection, token)
            return None if kept is None else (kept, _document(connection, kept))

    def all(self) -> tuple[SavedWorkspace, ...]:
        """Return all workspaces, the latest change first."""
        with self._database.reading() as connection:
            rows = connection.execute(f"{_KEPT} ORDER BY w.saved_at DESC, w.rowid DESC").fetchall()
        return tuple(_kept(row) for row in rows)

    def rename(self, token: str, name: str) -> SavedWorkspace | None:
        """Rename a workspace.

        Return None if the workspace was deleted. Raises InputError if the name is invalid or taken.
        """
        name = name.strip()
        check_name(name)
        with self._database.writing() as connection:
            taken = connection.execute("SELECT 1 FROM workspace WHERE name = ? AND token <> ?", (name, token))
            if taken.fetchone():
                raise InputError("name", f"{name!r} is the name of another workspace")
            connection.execute("UPDATE workspace SET name = ? WHERE token = ?", (name, token))
            return _find(connection, token)

    def delete(self, token: str) -> None:
        """Delete a workspace and its history."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM workspace WHERE token = ?", (token,))
            _forget_parts(connection)

    def _prune(self, connection: sqlite3.Connection, token: str) -> None:
        """Delete revisions beyond the limits of number and size.

        The caller has just added the current revision, so it is never deleted.
        """
        rows = connection.execute(_SIZES, (token,)).fetchall()
        room, counted = self._most_bytes, set[str]()
        for position, (number, size, graph, graph_size) in enumerate(rows):
            room -= size if graph is None or graph in counted else size + graph_size
            counted.add(graph)
            if position and (position >= self._most_revisions or room < 0):
                connection.execute("DELETE FROM revision WHERE token = ? AND number <= ?", (token, number))
                _forget_parts(connection)
                return


def _create(connection: sqlite3.Connection, token: str, work: WorkspaceFile, name: str) -> SavedWorkspace:
    if not token or _find(connection, token) is not None:
        token = new_token()
    row = (token, _free_name(connection, name), 0, time.time())
    connection.execute("INSERT INTO workspace (token, name, revision, saved_at) VALUES (?, ?, ?, ?)", row)
    _append(connection, token, None, work)
    return _present(connection, token)


def _sibling(
    connection: sqlite3.Connection, token: str, base: int, other: SavedWorkspace | None, work: WorkspaceFile
) -> SavedWorkspace:
    """Create a workspace for the second writer. Its undo returns to the common revision."""
    if other is None:
        return _create(connection, token, work, work.name)
    name = other.name[: LONGEST_NAME - 30].removesuffix(_SECOND) + _SECOND
    try:
        parted = _document(connection, replace(other, revision=base))
    except InputError:
        return _create(connection, "", work, name)
    kept = _create(connection, "", parted, name)
    _append(connection, kept.token, kept.revision, work)
    return _present(connection, kept.token)


def _append(connection: sqlite3.Connection, token: str, parent: int | None, work: WorkspaceFile) -> int:
    """Add a revision and make it the current one."""
    (last,) = connection.execute("SELECT MAX(number) FROM revision WHERE token = ?", (token,)).fetchone()
    number, parts = (last or 0) + 1, parts_of(work)
    for digest, text in parts:
        if digest is not None and not connection.execute("SELECT 1 FROM part WHERE digest = ?", (digest,)).fetchone():
            connection.execute("INSERT INTO part (digest, document) VALUES (?, ?)", (digest, pack(text())))
    connection.execute(
        "INSERT INTO revision (token, number, parent, document, schedule, graph, mesh) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (token, number, parent, _packed(work), *(digest for digest, _ in parts)),
    )
    connection.execute("UPDATE workspace SET revision = ?, saved_at = ? WHERE token = ?", (number, time.time(), token))
    return number


def _says(connection: sqlite3.Connection, kept: SavedWorkspace, work: WorkspaceFile) -> bool:
    """Return whether the stored workspace already has this state.

    Names are not compared, because they have no history.
    """
    document, *digests = connection.execute(
        "SELECT document, schedule, graph, mesh FROM revision WHERE token = ? AND number = ?",
        (kept.token, kept.revision),
    ).fetchone()
    return bool(digests == [digest for digest, _ in parts_of(work)] and document == _packed(work))


def _packed(work: WorkspaceFile) -> bytes:
    """Return the compressed state without its name and without the parts that are stored separately."""
    return pack(workspace_text(replace(without_parts(work), name="unnamed")))


def _document(connection: sqlite3.Connection, kept: SavedWorkspace) -> WorkspaceFile:
    """Return the content of a workspace at its revision.

    Raises InputError if that revision was deleted or is damaged.
    """
    name = f"workspace {kept.name}"
    row = connection.execute(_WHOLE, (kept.token, kept.revision)).fetchone()
    if row is None:
        raise InputError(name, "no longer has this revision")
    document, *parts = row
    work = read_workspace(unpack(document, name), name)
    return replace(with_parts(work, *parts, name=name), name=kept.name)


def _find(connection: sqlite3.Connection, token: str) -> SavedWorkspace | None:
    row = connection.execute(f"{_KEPT} WHERE w.token = ?", (token,)).fetchone()
    return None if row is None else _kept(row)


def _present(connection: sqlite3.Connection, token: str) -> SavedWorkspace:
    found = _find(connection, token)
    assert found is not None, "this transaction has written it"
    return found


def _kept(row: tuple[str, str, int, float, int, int]) -> SavedWorkspace:
    token, name, revision, saved_at, can_undo, can_redo = row
    return SavedWorkspace(token, name, revision, saved_at, bool(can_undo), bool(can_redo))


def _free_name(connection: sqlite3.Connection, wanted: str) -> str:
    """Return `wanted`, or the first of "wanted 2", "wanted 3" … that no workspace has."""
    taken = {name for (name,) in connection.execute("SELECT name FROM workspace")}
    names = (wanted if n == 1 else f"{wanted[: LONGEST_NAME - 10]} {n}" for n in count(1))
    return next(name for name in names if name not in taken)


def _forget_parts(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM part WHERE NOT EXISTS (SELECT 1 FROM revision WHERE schedule = digest) AND NOT EXISTS "
        "(SELECT 1 FROM revision WHERE graph = digest) AND NOT EXISTS (SELECT 1 FROM revision WHERE mesh = digest)"
    )
