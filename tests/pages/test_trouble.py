"""A store that cannot write: the app keeps running, lists what is not saved, and saves it as soon as it can."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessel_core.workbench.store import FILE_NAME, find_store, open_store
from tessel_core.workbench.store.database import Database
from tessel_core.workbench.workspace import workspace_of

pytestmark = pytest.mark.usefixtures("restart")


def test_a_kept_workspace_that_cannot_be_read_is_told(small, tab, restart, data_folder) -> None:
    small.edit("blocks", 1, "duration", 4)
    token = small.work.token
    edit_store(data_folder, "UPDATE revision SET document = x'0000'")
    restart()
    again = tab(token, sample="m-shape-4")
    assert again.says("workspace m-shape-4: is damaged.")
    assert again.durations[1] == 1, "its sample is opened instead"
    again.press("Dismiss")
    again.test.selectbox(key=again.test.session_state["tessel"].key("another")).set_value(token)
    assert again.run().says("workspace m-shape-4: is damaged.")
    assert again.durations[1] == 1, "what is open stays open"
    assert small.kept == ["m-shape-4"], "it stays where it is"


def edit_store(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()


def newer(folder: Path) -> None:
    open_store(folder).database.close()
    edit_store(folder, "PRAGMA user_version = 3")


def corrupt(folder: Path) -> None:
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(b"no store" * 1000)


def in_the_way(folder: Path) -> None:
    folder.write_text("a file where the folder should be")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (newer, "it has version 3, but this program reads only version 2"),
        (corrupt, "it is damaged, or not a store"),
        (in_the_way, "its folder cannot be created"),
    ],
)
def test_the_app_runs_without_its_store_and_says_what_it_cannot_keep(app, tab, data_folder, spoil, why: str) -> None:
    spoil(data_folder)
    before = data_folder.read_bytes() if data_folder.is_file() else (data_folder / FILE_NAME).read_bytes()
    opened = tab(sample="m-shape-4", n="8")
    (said,) = opened.says("Work is lost when the app stops. Export what you want to keep")
    assert why in said
    opened.edit("blocks", 1, "duration", 4).choose("Micro-batches", 5).search().press("Undo")
    assert (opened.work.micro_batches, opened.durations[1]) == (8, 4)
    assert tab(opened.work.token).work == opened.work, "a reload finds it while the server runs"
    opened.press("Dismiss")
    assert not opened.says("Work is lost when the app stops")
    after = data_folder.read_bytes() if data_folder.is_file() else (data_folder / FILE_NAME).read_bytes()
    assert after == before


def test_what_a_full_disk_refused_is_kept_when_there_is_room_again(small, tab, restart, monkeypatch) -> None:
    small.choose("Micro-batches", 5)
    token, first = small.work.token, small.work
    with monkeypatch.context() as disk:
        disk.setattr(Database, "_transaction", no_room)
        small.edit("blocks", 2, "duration", 5).choose("Micro-batches", 6)
        assert small.says("The latest changes are not saved yet. The next change tries again")
        assert small.says("the disk is full")
        assert tab(token).work == small.work, "a reload finds it while the server runs"
        small.press("Undo")
        assert small.work.micro_batches == 6, "what is not kept cannot be undone, and stays"
    stored = find_store().workspaces.load(token)
    assert stored is not None
    assert workspace_of(stored[1], token) == first
    small.run()
    assert not small.says("not saved yet")
    restart()
    assert tab(token).work == small.work


def test_what_was_left_while_the_disk_was_full_is_kept_in_the_end(small, tab, monkeypatch) -> None:
    with monkeypatch.context() as disk:
        disk.setattr(Database, "_transaction", no_room)
        small.edit("blocks", 1, "duration", 4)
        left = small.work
        small.go("start").pick("Sample", "v-shape-4").press("Open sample").go("schedule")
    small.choose("Micro-batches", 5)
    assert set(small.kept) == {"m-shape-4", "v-shape-4"}
    assert tab(left.token).work == left


@contextlib.contextmanager
def no_room(self: Database) -> Iterator[None]:
    """Raise the error of SQLite on a full disk."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error
    yield


def test_no_test_touches_the_data_of_whoever_runs_it(data_folder, small) -> None:
    small.choose("Micro-batches", 5)
    assert os.environ["TESSEL_DATA"] == str(data_folder)
    assert (data_folder / FILE_NAME).exists()
