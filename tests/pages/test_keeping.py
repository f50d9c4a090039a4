"""Nothing is lost: reloads, restarts, undo, and two tabs on one workspace."""

from __future__ import annotations

import pytest

from pages.shared.contents import PAGES

pytestmark = pytest.mark.usefixtures("restart")


def button(app, label: str):
    return next(each for each in app.test.button if each.label == label)


# Reload, restart, undo


def test_every_page_opens_whatever_token_chance_gives_a_workspace(tab, monkeypatch) -> None:
    """One token in 400 has two underscores in a row. Streamlit refuses a component whose key has them."""
    monkeypatch.setattr("pages.shared.session.new_token", lambda: "-a__b_-")
    small = tab(sample="m-shape-4")
    assert small.work.token == "-a__b_-"
    for page in PAGES:
        small.go(page.name)


def test_looking_at_samples_keeps_nothing_and_the_first_edit_does(small) -> None:
    small.look_at("Schedule").search()
    assert small.kept == []
    assert "work" not in small.address
    small.choose("Micro-batches", 5)
    assert small.kept == ["m-shape-4"]
    assert small.address["work"] == small.work.token


def test_work_and_answer_come_back_after_a_restart_of_the_server(small, tab, restart) -> None:
    small.edit("blocks", 1, "duration", 4).choose("Largest repeat", 3).search()
    restart()
    again = tab(small.work.token)
    assert again.work == small.work
    assert again.numbers() == small.numbers()
    assert again.says("period is proved optimal"), "without a search"


def test_an_invalid_draft_comes_back_as_it_was_typed(small, tab, restart) -> None:
    small.edit("blocks", 1, "duration", 0)
    restart()
    again = tab(small.work.token, view="plan")
    assert again.work == small.work
    assert again.says("blocks, row 2, column duration: must be at least 1, got 0")
    again.press("Undo")
    assert not again.work.complaint
    assert again.work.draft.blocks[1]["duration"] == 1


def test_undo_and_redo_go_step_by_step_and_across_a_reload(small, tab, restart) -> None:
    before = small.durations
    small.edit("blocks", 1, "duration", 4).choose("Micro-batches", 5).choose("Scheduler", "gpipe")
    small.press("Undo").press("Undo")
    assert (small.work.micro_batches, small.work.scheduler, small.durations[1]) == (13, "tessel", 4)
    restart()
    again = tab(small.work.token)
    again.press("Undo")
    assert again.durations == before
    assert button(again, "Undo").disabled
    again.press("Redo").press("Redo").press("Redo")
    assert (again.work.micro_batches, again.work.scheduler, again.durations[1]) == (5, "gpipe", 4)
    assert button(again, "Redo").disabled


def test_the_widgets_show_what_undo_brought_back(small) -> None:
    small.choose("Micro-batches", 5).edit("blocks", 1, "duration", 4).edit("blocks", 2, "duration", 6)
    small.press("Undo").press("Undo").press("Undo")
    small.run()
    assert small.work.micro_batches == 13, "no widget brings its old value back"
    assert small.test.number_input[0].value == 13
    small.press("Redo").run()
    small.edit("blocks", 3, "duration", 7)
    assert small.work.micro_batches == 5
    assert small.durations[1:4] == [1, 1, 7], "the tables began again from the undone state"


def test_a_search_is_no_step_of_its_own(small) -> None:
    small.choose("Micro-batches", 5).search().press("Undo")
    assert small.work.micro_batches == 13


# The menu of the workspace


def test_rename_and_duplicate_and_delete(small, tab) -> None:
    small.edit("blocks", 1, "duration", 4)
    rename(small, "mine")
    assert (small.work.name, small.kept) == ("mine", ["mine"])
    first = small.work.token
    small.press("Duplicate")
    assert small.work.token != first
    assert (small.work.name, small.durations[1]) == ("mine 2", 4)
    small.edit("blocks", 1, "duration", 9)
    assert tab(first).durations[1] == 4, "the original stays as it is"
    rename(small, "mine")
    assert small.says("name: 'mine' is the name of another workspace.")
    assert small.work.name == "mine 2"
    small.press("Delete").press("Keep it").press("Delete").press("Delete for good")
    assert small.kept == ["mine"]
    assert not small.run().says("no longer exists"), "whoever deletes knows that it is gone"
    small.go("schedule")
    small.test.selectbox(key=small.test.session_state["tessel"].key("another")).set_value(first)
    small.run()
    assert (small.work.token, small.durations[1]) == (first, 4)


def rename(app, name: str) -> None:
    app.test.text_input[0].set_value(name)
    app.run()


def test_the_start_page_leads_back_to_what_is_kept(small, app) -> None:
    small.edit("blocks", 1, "duration", 4)
    again = app()
    again.test.selectbox(key=again.test.session_state["tessel"].key("another")).set_value(small.work.token)
    again.run()
    assert again.work == small.work
    assert again.test.get("download_button"), "the schedule page is open"


# Two tabs


def test_two_tabs_lose_nothing(small, tab) -> None:
    small.choose("Micro-batches", 5)
    second = tab(small.work.token, view="plan")
    second.edit("blocks", 1, "duration", 7)
    first = small.work.token
    small.edit("blocks", 2, "duration", 6)
    assert small.says("Another tab has also changed “m-shape-4”. Nothing is lost")
    assert small.work.name == "m-shape-4 (forked)"
    assert small.durations[1:3] == [1, 6]
    assert small.address["work"] == small.work.token != first
    small.edit("blocks", 3, "duration", 8)
    assert small.durations[1:4] == [1, 6, 8], "work goes on in the copy"
    mine = small.work.token
    small.press("Open the other version")
    assert (small.work.token, small.durations[1:3]) == (first, [7, 1])
    assert tab(mine).durations[1:4] == [1, 6, 8]
    assert set(small.kept) == {"m-shape-4", "m-shape-4 (forked)"}


def test_a_number_typed_where_the_schedule_follows_stays_when_another_tab_was_quicker(small, tab) -> None:
    small.search().look_at("Plan").choose("Micro-batches", 7)
    tab(small.work.token).choose("Micro-batches", 6)
    small.choose("Micro-batches", 5)
    assert small.work.micro_batches == 5
    assert small.says("Another tab has also changed “m-shape-4”. Nothing is lost")


def test_a_tab_without_changes_of_its_own_follows_the_other(small, tab) -> None:
    small.choose("Micro-batches", 5)
    second = tab(small.work.token)
    second.choose("Micro-batches", 6)
    small.look_at("Schedule")
    assert small.work.micro_batches == 6
    assert small.says("Another tab has changed this workspace. This is its current state.")
    assert small.kept == ["m-shape-4"]
    small.press("Dismiss")
    assert not small.says("Another tab")


def test_undo_takes_back_nothing_that_another_tab_did_unseen(small, tab) -> None:
    small.choose("Micro-batches", 5)
    tab(small.work.token).choose("Micro-batches", 6)
    small.press("Undo")
    assert small.work.micro_batches == 6
    assert small.says("Another tab has changed this workspace. This is its current state.")
    small.press("Undo")
    assert small.work.micro_batches == 5
    tab(small.work.token).press("Delete").press("Delete for good")
    assert small.press("Undo").says("Another tab has deleted this workspace. Your next change saves it again.")


def test_work_that_another_tab_deleted_is_kept_anew_when_it_is_changed(small, tab) -> None:
    small.choose("Micro-batches", 5)
    second = tab(small.work.token)
    second.press("Delete").press("Delete for good")
    assert small.kept == []
    small.choose("Micro-batches", 6)
    assert small.says("Another tab has deleted this workspace. The work of this tab is saved again.")
    assert small.kept == ["m-shape-4"]
    assert tab(small.work.token).work.micro_batches == 6


def test_a_link_to_a_schedule_that_is_not_kept_searches_by_itself(tab) -> None:
    linked = tab(sample="v-shape-4", n="5", scheduler="gpipe", view="schedule", seed="3")
    linked.wait(lambda: "Makespan" in linked.numbers())
    assert not linked.kept, "a sample that somebody looks at is not kept"
    short = tab(sample="v-shape-4", n="7", scheduler="gpipe")
    short.wait(lambda: "Makespan" in short.numbers())
    other = tab(sample="v-shape-4", n="5", scheduler="zb-h1", view="schedule")
    assert other.says("ZB-H1 does not apply")
    assert "Makespan" not in other.numbers()
    assert "Makespan" not in tab(sample="v-shape-4", n="6", scheduler="gpipe", view="plan").numbers()
