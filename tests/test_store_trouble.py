"""A store that cannot be used: one sentence says so, nothing is written, and nothing saved is lost."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.stores import number_of, saved, state
from hypothesis import given, settings, strategies

from tessel_core.errors import InputError
from tessel_core.workbench.store import FILE_NAME, Answers, SavedWorkspace, Store, StoreError, data_folder, open_store
from tessel_core.workbench.store import database as database_module


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(tmp_path)
    assert not found.refused
    yield found
    found.database.close()


def broken_garbage(path: Path) -> None:
    path.write_bytes(b"this is no store at all, but somebody may want it" * 100)


def broken_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def broken_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(bytes(data))


def broken_newer(path: Path) -> None:
    edit(path, "PRAGMA user_version = 3")


def broken_foreign(path: Path) -> None:
    path.unlink()
    edit(path, "CREATE TABLE holiday (photo BLOB)")


def broken_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (broken_garbage, "it is damaged, or not a store"),
        (broken_cut, "it is damaged"),
        (broken_page, "it is damaged"),
        (broken_newer, "it has version 3, but this program reads only version 2"),
        (broken_foreign, "it belongs to another program"),
        (broken_folder, "it cannot be opened"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_store_that_cannot_be_used_is_told_and_never_written(tmp_path: Path, spoil, why: str) -> None:
    store = open_store(tmp_path)
    store.workspaces.create(state(1))
    store.database.close()
    path = tmp_path / FILE_NAME
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    store = open_store(tmp_path)
    assert store.refused == store.trouble == f"{path}: {why}"
    kept = store.workspaces.create(state(2))
    kept = saved(store.workspaces.save(kept.token, kept.revision, state(3)))
    assert number_of(store, kept.token) == 3, "work goes on in memory"
    assert store.workspaces.undo(kept.token, kept.revision) is not None
    store.database.close()
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = open_store(tmp_path / "file" / "data")
    assert "its folder cannot be created" in store.refused
    assert number_of(store, store.workspaces.create(state(4)).token) == 4


def test_a_read_only_store_shows_what_it_has_and_takes_nothing(tmp_path: Path, monkeypatch) -> None:
    store = open_store(tmp_path)
    kept = store.workspaces.create(state(1))
    store.database.close()
    path = tmp_path / FILE_NAME
    before = path.read_bytes()

    def connect(name: str, **options: object) -> sqlite3.Connection:
        """Open the file as SQLite does for a user who may only read it. Root may write any file."""
        return real(f"file:{name}?mode=ro", uri=True, **options) if name == str(path) else real(name, **options)

    real = sqlite3.connect
    monkeypatch.setattr(database_module.sqlite3, "connect", connect)
    store = open_store(tmp_path)
    assert store.refused == f"{path}: it is read-only"
    assert number_of(store, kept.token) == 1
    assert isinstance(store.workspaces.save(kept.token, kept.revision, state(2)), SavedWorkspace)
    assert number_of(store, kept.token) == 2
    assert path.read_bytes() == before


def test_a_full_disk_is_told_and_what_was_kept_stays(store: Store) -> None:
    kept = store.workspaces.create(state(1))
    with store.database.reading() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
    large = replace(
        state(2), rest={**state(2).rest, "source": "".join(random.Random(0).choices("abcdefghijklmnop", k=40_000))}
    )
    with pytest.raises(StoreError, match="the disk is full"):
        store.workspaces.save(kept.token, kept.revision, large)
    assert "the disk is full" in store.trouble
    assert store.workspaces.find(kept.token) == kept
    with store.database.reading() as connection:
        connection.execute("PRAGMA max_page_count = 100000")
    kept = saved(store.workspaces.save(kept.token, kept.revision, large))
    assert number_of(store, kept.token) == 2
    assert store.trouble == ""


def test_a_store_that_another_program_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "PATIENCE_S", 0.1)
    store = open_store(tmp_path)
    kept = store.workspaces.create(state(1))
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program has locked it"):
        store.workspaces.save(kept.token, kept.revision, state(2))
    second = open_store(tmp_path)
    assert not second.refused, "a writer at work is no reason to give the store up"
    other.execute("COMMIT")
    assert isinstance(store.workspaces.save(kept.token, kept.revision, state(2)), SavedWorkspace)
    other.close()


def test_a_store_that_is_taken_away_is_told(store: Store, tmp_path: Path) -> None:
    kept = store.workspaces.create(state(1))
    shutil.move(tmp_path / FILE_NAME, tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="it was moved or deleted while it was in use"):
        store.workspaces.save(kept.token, kept.revision, state(2))
    shutil.move(tmp_path / "elsewhere", tmp_path / FILE_NAME)
    assert isinstance(store.workspaces.save(kept.token, kept.revision, state(2)), SavedWorkspace)


def test_a_damaged_document_is_told_in_one_sentence(store: Store) -> None:
    kept = store.workspaces.create(state(1))
    for bytes_there in (b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"):
        with store.database.writing() as connection:
            connection.execute("UPDATE revision SET document = ?", (bytes_there,))
        with pytest.raises(InputError, match=r"^workspace mine: "):
            store.workspaces.load(kept.token)


# Answers


@given(strategies.lists(strategies.tuples(strategies.integers(0, 9), strategies.integers(1, 3000)), max_size=20))
@settings(max_examples=50, deadline=None)
def test_answers_keep_within_their_room_and_the_newest_longest(tmp_path_factory, asked: list[tuple[int, int]]) -> None:
    store = open_store(tmp_path_factory.mktemp("store"))
    answers, chance, present = Answers(store.database, most_bytes=6000), random.Random(0), {}
    for name, size in asked:
        text = "".join(chr(chance.randrange(32, 127)) for _ in range(size))
        answers.keep(str(name), text)
        present[str(name)] = text
        assert answers.find(str(name)) == text.encode()
    with store.database.reading() as connection:
        sizes = connection.execute("SELECT LENGTH(document) FROM answer").fetchall()
    assert sum(size for (size,) in sizes) <= 6000
    found = {name: answers.find(name) for name in present}
    assert all(document in (None, present[name].encode()) for name, document in found.items())
    newest_first = list(dict.fromkeys(str(name) for name, _ in reversed(asked)))
    missing = [found[name] is None for name in newest_first]
    assert missing == sorted(missing), "only the oldest are gone"
    store.database.close()


def test_an_answer_larger_than_all_may_be_drives_nothing_out(store: Store) -> None:
    answers = Answers(store.database, most_bytes=1000)
    answers.keep("small", "x")
    answers.keep("large", "".join(map(str, random.Random(0).choices(range(10**6), k=1000))))
    assert answers.find("small") == b"x"
    assert answers.find("large") is None


# The place


@pytest.mark.parametrize(
    ("environment", "platform", "place"),
    [
        ({}, "linux", "/home/ada/.local/share/tessel-explorer"),
        ({"XDG_DATA_HOME": "/data"}, "linux", "/data/tessel-explorer"),
        ({"XDG_DATA_HOME": "data"}, "linux", "/home/ada/.local/share/tessel-explorer"),
        ({}, "darwin", "/home/ada/Library/Application Support/tessel-explorer"),
        ({"LOCALAPPDATA": "/c/local"}, "win32", "/c/local/tessel-explorer"),
        ({}, "win32", "/home/ada/AppData/Local/tessel-explorer"),
        ({"TESSEL_DATA": "/mine", "XDG_DATA_HOME": "/data"}, "linux", "/mine"),
        ({"TESSEL_DATA": ""}, "linux", "/home/ada/.local/share/tessel-explorer"),
    ],
)
def test_data_lies_where_the_system_has_such_things(environment: dict[str, str], platform: str, place: str) -> None:
    assert data_folder(environment, platform, Path("/home/ada")).as_posix() == place
