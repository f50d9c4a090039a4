"""States of a workspace that can be told apart, and short words for what the store says of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from helpers.workspaces import simple_workspace
from tessel_core.formats import WorkspaceFile
from tessel_core.networks import build_shape
from tessel_core.store import Conflict, Kept, Store

PLAN = build_shape("v-shape")


def state(number: int, name: str = "mine") -> WorkspaceFile:
    """A state of a workspace that can be told from others by its number."""
    return simple_workspace(PLAN, number, name)


def number_of(store: Store, token: str) -> int:
    """Which state the workspace is in."""
    loaded = store.workspaces.load(token)
    assert loaded is not None
    return loaded[1].micro_batches


def saved(outcome: Kept | Conflict) -> Kept:
    """What a save says when there was no conflict."""
    assert isinstance(outcome, Kept)
    return outcome


def as_version_1(path: Path) -> None:
    """The store as the first version of the app left it: no graphs, no meshes, schedules in a table of their own."""
    connection = sqlite3.connect(path)
    connection.executescript(
        "DROP INDEX revision_graph; DROP INDEX revision_mesh; ALTER TABLE revision DROP COLUMN graph;"
        "ALTER TABLE revision DROP COLUMN mesh; ALTER TABLE part RENAME TO schedule; PRAGMA user_version = 1;"
    )
    connection.close()
