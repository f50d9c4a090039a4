"""Nothing is lost: reloads, restarts, undo, two tabs, links, files, and a store that cannot keep."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import App

from pages.shared import session as session_module
from tessel_core import jobs
from tessel_core.formats import read_workspace, workspace_text
from tessel_core.networks import build_shape
from tessel_core.options import options_of
from tessel_core.scheduling import SCHEDULERS
from tessel_core.store import FILE_NAME, find_store, open_store
from tessel_core.store import store as store_module
from tessel_core.store.database import Database
from tessel_core.workspace import workspace_file, workspace_of


@pytest.fixture(autouse=True)
def restart(monkeypatch: pytest.MonkeyPatch):
    """Forget all that the server has in memory, as a new process would; called once before every test."""

    def begin_anew() -> None:
        fresh = jobs.Jobs()
        monkeypatch.setattr(jobs, "submit", fresh.submit)
        monkeypatch.setattr(jobs, "find", fresh.find)
        store_module._opened.cache_clear()
        session_module._desk.cache_clear()

    begin_anew()
    return begin_anew


def tab(token: str = "", **address: str) -> App:
    """Another browser tab, on a workspace."""
    return App("schedule", **({"work": token} if token else {}), **address)


def address(app: App) -> dict[str, str]:
    return dict(app.test.query_params)


def names() -> list[str]:
    return [kept.name for kept in find_store().workspaces.all()]


def durations(app: App) -> list[int]:
    return [block.duration for block in app.work.plan.blocks]


def button(app: App, label: str):
    return next(each for each in app.test.button if each.label == label)


# Reload, restart, undo


def test_looking_at_samples_keeps_nothing_and_the_first_edit_does(small) -> None:
    small.look_at("Schedule").search()
    assert names() == []
    assert "work" not in address(small)
    small.choose("Micro-batches", 5)
    assert names() == ["m-shape-4"]
    assert address(small)["work"] == small.work.token


def test_work_and_answer_come_back_after_a_restart_of_the_server(small, restart) -> None:
    small.edit("blocks", 1, "duration", 4).choose("Largest unroll", 3).search()
    restart()
    again = tab(small.work.token)
    assert again.work == small.work
    assert again.numbers() == small.numbers()
    assert again.says("Period proved optimal"), "without a search"


def test_an_invalid_draft_comes_back_as_it_was_typed(small, restart) -> None:
    small.edit("blocks", 1, "duration", 0)
    restart()
    again = tab(small.work.token, view="plan")
    assert again.work == small.work
    assert again.says("blocks, row 2, column duration: must be at least 1, got 0")
    again.press("Undo")
    assert not again.work.complaint
    assert again.work.draft.blocks[1]["duration"] == 1


def test_undo_and_redo_go_step_by_step_and_across_a_reload(small, restart) -> None:
    before = durations(small)
    small.edit("blocks", 1, "duration", 4).choose("Micro-batches", 5).choose("Scheduler", "gpipe")
    small.press("Undo").press("Undo")
    assert (small.work.micro_batches, small.work.scheduler, durations(small)[1]) == (8, "tessel", 4)
    restart()
    again = tab(small.work.token)
    again.press("Undo")
    assert durations(again) == before
    assert button(again, "Undo").disabled
    again.press("Redo").press("Redo").press("Redo")
    assert (again.work.micro_batches, again.work.scheduler, durations(again)[1]) == (5, "gpipe", 4)
    assert button(again, "Redo").disabled


def test_the_widgets_show_what_undo_brought_back(small) -> None:
    small.choose("Micro-batches", 5).edit("blocks", 1, "duration", 4).edit("blocks", 2, "duration", 6)
    small.press("Undo").press("Undo").press("Undo")
    small.run()
    assert small.work.micro_batches == 8, "no widget brings its old value back"
    assert small.test.number_input[0].value == 8
    small.press("Redo").run()
    small.edit("blocks", 3, "duration", 7)
    assert small.work.micro_batches == 5
    assert durations(small)[1:4] == [1, 1, 7], "the tables began again from the undone state"


def test_a_search_is_no_step_of_its_own(small) -> None:
    small.choose("Micro-batches", 5).search().press("Undo")
    assert small.work.micro_batches == 8


# The menu of the workspace


def test_rename_and_duplicate_and_delete(small) -> None:
    small.edit("blocks", 1, "duration", 4)
    rename(small, "mine")
    assert (small.work.name, names()) == ("mine", ["mine"])
    first = small.work.token
    small.press("Duplicate")
    assert small.work.token != first
    assert (small.work.name, durations(small)[1]) == ("mine 2", 4)
    small.edit("blocks", 1, "duration", 9)
    assert durations(tab(first))[1] == 4, "the original stays as it is"
    rename(small, "mine")
    assert small.says("name: 'mine' is the name of another workspace.")
    assert small.work.name == "mine 2"
    small.press("Delete").press("Keep it").press("Delete").press("Delete for good")
    assert names() == ["mine"]
    assert not small.run().says("not kept"), "whoever deletes knows that it is gone"
    small.go("schedule")
    small.test.selectbox(key=small.test.session_state["tessel"].key("another")).set_value(first)
    small.run()
    assert (small.work.token, durations(small)[1]) == (first, 4)


def rename(app: App, name: str) -> None:
    app.test.text_input[0].set_value(name)
    app.run()


def test_the_start_page_leads_back_to_what_is_kept(small, app) -> None:
    small.edit("blocks", 1, "duration", 4)
    again = app()
    again.test.selectbox(key=again.test.session_state["tessel"].key("another")).set_value(small.work.token)
    again.run()
    assert again.work == small.work
    assert again.test.get("download_button"), "the schedule page is open"


def test_an_exported_workspace_opens_elsewhere_with_its_schedule(small, app, restart, monkeypatch, tmp_path) -> None:
    small.edit("blocks", 1, "duration", 4).search()
    text = export(small)
    monkeypatch.setenv("TESSEL_DATA", str(tmp_path / "of-somebody-else"))
    restart()
    other = app("start")
    other.test.file_uploader[0].upload("theirs.json", text.encode(), "application/json")
    other.run()
    assert other.work.token != small.work.token
    assert (other.work.name, other.work.draft, other.work.asked) == (
        small.work.name,
        small.work.draft,
        small.work.asked,
    )
    assert other.numbers()["Makespan"] == small.numbers()["Makespan"]
    assert names() == ["m-shape-4"], "it is kept from now on"


def export(app: App) -> str:
    """What the Export button hands out: read back as a file, and the same workspace."""
    from pages.shared.keeping import _with_answer

    text = workspace_text(workspace_file(_with_answer(app.work)))
    assert workspace_of(read_workspace(text.encode()), app.work.token).draft == app.work.draft
    return text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"format": "tessel-workspace", "version": 2}', "version: tessel-workspace version 2 is not known"),
        (b'{"format": "tessel-workspace", "version": 1}', "the file: 'plans' is missing"),
        (b'{"format": "somebody-elses", "version": 1}', "format: 'somebody-elses' is not known, known are tessel-plan"),
        (b'{"cells": [], "nbformat": 4}', "the file: 'format' is missing"),
    ],
)
def test_somebody_elses_file_is_refused_in_one_sentence(small, content: bytes, complaint: str) -> None:
    small.edit("blocks", 1, "duration", 4)
    before, kept = small.work, names()
    small.go("start")
    small.test.file_uploader[0].upload("bad.json", content, "application/json")
    small.run()
    assert len(small.says(f"bad.json: {complaint}")) == 1
    assert (small.work, names()) == (before, kept)


def test_an_unknown_scheduler_in_a_file_is_told(app) -> None:
    from helpers.workspaces import simple_workspace

    text = workspace_text(simple_workspace(build_shape("m-shape"))).replace('"tessel"', '"magic"')
    other = app("start")
    other.test.file_uploader[0].upload("new.json", text.encode(), "application/json")
    other.run()
    assert other.says("new.json: scheduler: 'magic' is not known")
    assert names() == []


# Two tabs


def test_two_tabs_lose_nothing(small) -> None:
    small.choose("Micro-batches", 5)
    second = tab(small.work.token, view="plan")
    second.edit("blocks", 1, "duration", 7)
    first = small.work.token
    small.edit("blocks", 2, "duration", 6)
    assert small.says("Another tab has changed “m-shape-4” meanwhile. Nothing is lost")
    assert small.work.name == "m-shape-4 (from another tab)"
    assert durations(small)[1:3] == [1, 6]
    assert address(small)["work"] == small.work.token != first
    small.edit("blocks", 3, "duration", 8)
    assert durations(small)[1:4] == [1, 6, 8], "work goes on in the copy"
    mine = small.work.token
    small.press("Open the other")
    assert (small.work.token, durations(small)[1:3]) == (first, [7, 1])
    assert durations(tab(mine))[1:4] == [1, 6, 8]
    assert set(names()) == {"m-shape-4", "m-shape-4 (from another tab)"}


def test_a_tab_without_changes_of_its_own_follows_the_other(small) -> None:
    small.choose("Micro-batches", 5)
    second = tab(small.work.token)
    second.choose("Micro-batches", 6)
    small.look_at("Schedule")
    assert small.work.micro_batches == 6
    assert small.says("Another tab has changed this workspace: this is how it is now.")
    assert names() == ["m-shape-4"]
    small.press("Dismiss")
    assert not small.says("Another tab")


def test_work_that_another_tab_deleted_is_kept_anew_when_it_is_changed(small) -> None:
    small.choose("Micro-batches", 5)
    second = tab(small.work.token)
    second.press("Delete").press("Delete for good")
    assert names() == []
    small.choose("Micro-batches", 6)
    assert small.says("Another tab has deleted this workspace; what this tab has is kept anew.")
    assert names() == ["m-shape-4"]
    assert tab(small.work.token).work.micro_batches == 6


# Links


def test_a_link_opens_the_same_view_on_another_machine(small, restart, monkeypatch, tmp_path) -> None:
    small.choose("Largest unroll", 3).choose("Time limit (s)", 2.5).choose("Micro-batches", 12).look_at("Schedule")
    link = address(small)
    assert link["max-unroll"] == "3"
    monkeypatch.setenv("TESSEL_DATA", str(tmp_path / "of-somebody-else"))
    restart()
    other = tab(**{key: value for key, value in link.items() if key != "work"})
    assert other.work.question == small.work.question
    assert other.test.button_group[0].value == "Schedule"
    assert not other.says("address")
    gone = tab(**link)
    assert gone.says("The workspace of this link is not kept on this machine; this is its sample m-shape-4, as it came")
    assert gone.work.question == small.work.question
    assert names() == []


def test_a_link_to_nothing_says_so(app) -> None:
    opened = app(work="long-gone")
    assert opened.says("not kept on this machine, and the link names no sample to open instead")
    assert not opened.press("Dismiss").run().says("not kept")


def test_an_address_has_no_two_meanings() -> None:
    taken = {"work", "sample", "scheduler", "n", "view"}
    for scheduler in SCHEDULERS.values():
        assert not taken & {name.replace("_", "-") for name in options_of(scheduler.config)}


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("max-unroll", "many", "Largest unroll: must be of type int, got 'many'"),
        ("max-unroll", "99", "Largest unroll: must be between 1 and 16, got 99"),
        ("time-limit", "nan", "Time limit: must be between 0.1 and 3600, got nan"),
        ("time-limit", "x" * 300, "time-limit: is longer than 200 letters"),
        ("view", "sideways", "view: must be one of plan, schedule, got 'sideways'"),
    ],
)
def test_a_wrong_setting_in_a_link_is_told(app, key: str, value: str, complaint: str) -> None:
    opened = app(sample="v-shape-4", **{key: value})
    assert opened.says(f"The address could not be followed: {complaint}.")
    assert opened.go("schedule").work.plan.name == "v-shape-4", "what is right in the link is followed"


def test_all_that_is_wrong_in_a_link_is_told(app) -> None:
    opened = app("schedule", sample="v-shape-4", n="0", scheduler="magic", view="sideways", **{"time-limit": "3"})
    assert opened.says("The address could not be followed in 3 places: ")
    assert opened.work.config.time_limit == 3.0


def test_a_kept_workspace_that_cannot_be_read_is_told(small, restart, data_folder) -> None:
    small.edit("blocks", 1, "duration", 4)
    token = small.work.token
    edit_store(data_folder, "UPDATE revision SET document = x'0000'")
    restart()
    again = tab(token, sample="m-shape-4")
    assert again.says("workspace m-shape-4: is damaged.")
    assert durations(again)[1] == 1, "its sample is opened instead"
    again.press("Dismiss")
    again.test.selectbox(key=again.test.session_state["tessel"].key("another")).set_value(token)
    assert again.run().says("workspace m-shape-4: is damaged.")
    assert durations(again)[1] == 1, "what is open stays open"
    assert names() == ["m-shape-4"], "it stays where it is"


# A store that cannot keep


def edit_store(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()


def newer(folder: Path) -> None:
    open_store(folder).database.close()
    edit_store(folder, "PRAGMA user_version = 2")


def corrupt(folder: Path) -> None:
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(b"no store" * 1000)


def in_the_way(folder: Path) -> None:
    folder.write_text("a file where the folder should be")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (newer, "it is of version 2, newer than the version 1 known here"),
        (corrupt, "it is damaged, or no store at all"),
        (in_the_way, "its folder cannot be made"),
    ],
)
def test_the_app_runs_without_its_store_and_says_what_it_cannot_keep(app, data_folder, spoil, why: str) -> None:
    spoil(data_folder)
    before = data_folder.read_bytes() if data_folder.is_file() else (data_folder / FILE_NAME).read_bytes()
    opened = tab(sample="m-shape-4", n="8")
    (said,) = opened.says("Work is kept only until the app stops, so export what should last")
    assert why in said
    opened.edit("blocks", 1, "duration", 4).choose("Micro-batches", 5).search().press("Undo")
    assert (opened.work.micro_batches, durations(opened)[1]) == (8, 4)
    assert tab(opened.work.token).work == opened.work, "a reload finds it while the server runs"
    opened.press("Dismiss")
    assert not opened.says("Work is kept only")
    after = data_folder.read_bytes() if data_folder.is_file() else (data_folder / FILE_NAME).read_bytes()
    assert after == before


def test_what_a_full_disk_refused_is_kept_when_there_is_room_again(small, restart, monkeypatch) -> None:
    small.choose("Micro-batches", 5)
    token, first = small.work.token, small.work
    with monkeypatch.context() as disk:
        disk.setattr(Database, "_transaction", no_room)
        small.edit("blocks", 2, "duration", 5).choose("Micro-batches", 6)
        assert small.says("The latest changes are not kept yet, each further change tries again")
        assert small.says("the disk is full")
        assert tab(token).work == small.work, "a reload finds it while the server runs"
        small.press("Undo")
        assert small.work.micro_batches == 6, "what is not kept cannot be undone, and stays"
    stored = find_store().workspaces.load(token)
    assert stored is not None
    assert workspace_of(stored[1], token) == first
    small.run()
    assert not small.says("not kept")
    restart()
    assert tab(token).work == small.work


def test_what_was_left_while_the_disk_was_full_is_kept_in_the_end(small, monkeypatch) -> None:
    with monkeypatch.context() as disk:
        disk.setattr(Database, "_transaction", no_room)
        small.edit("blocks", 1, "duration", 4)
        left = small.work
        small.go("start").choose("Sample", "v-shape-4").press("Open sample").go("schedule")
    small.choose("Micro-batches", 5)
    assert set(names()) == {"m-shape-4", "v-shape-4"}
    assert tab(left.token).work == left


@contextlib.contextmanager
def no_room(self: Database) -> Iterator[None]:
    """What SQLite raises on a full disk."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error
    yield


def test_no_test_touches_the_data_of_whoever_runs_it(data_folder, small) -> None:
    small.choose("Micro-batches", 5)
    assert os.environ["TESSEL_DATA"] == str(data_folder)
    assert (data_folder / FILE_NAME).exists()
