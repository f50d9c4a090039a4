"""Reruns of pages: a new message does not interrupt a change halfway, and searches start one after another."""

from __future__ import annotations

import threading

import pytest
import streamlit as st
from streamlit.runtime.scriptrunner import RerunException, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

from pages.parts.compare import arrange
from pages.parts.placement import form
from pages.parts.schedule import question_form
from pages.shared import run_panel
from pages.shared.address import PLAN, SCHEDULE
from pages.shared.session import session, unbroken
from tessel_core.control import Control
from tessel_core.model import PlacementReport, ScheduleReport
from tessel_core.placement import PlacementQuestion
from tessel_core.scheduling import Question


def test_a_callback_that_is_broken_off_begins_again_and_the_message_is_answered() -> None:
    messages, done = [RerunData(query_string="first"), RerunData(query_string="second")], []

    @unbroken
    def change(amount: int) -> None:
        if messages:
            raise RerunException(messages.pop(0))
        done.append(amount)

    try:
        change(3)
        answered = ""
    except RerunException as message:
        answered = message.rerun_data.query_string
    assert (done, answered) == ([3], "second")
    change(4)
    assert done == [3, 4], "nothing is raised where nothing came"


def test_a_press_is_answered_once_though_the_next_message_breaks_its_run_off(small, monkeypatch) -> None:
    small.choose("Micro-batches", 5).choose("Micro-batches", 6)
    messages, asked = ["one"], question_form.why_not

    def why_not(work) -> str:
        if messages:
            messages.clear()
            here = get_script_run_ctx()
            raise RerunException(RerunData(here.query_string, page_script_hash=here.page_script_hash))
        return asked(work)

    monkeypatch.setattr(question_form, "why_not", why_not)
    small.press("Undo")
    assert (messages, small.work.micro_batches) == ([], 5), "undone, and once"


def test_a_press_that_nothing_answered_is_forgotten_with_its_page(small, monkeypatch) -> None:
    def leave() -> None:
        st.switch_page("pages/mesh.py")

    small.choose("Micro-batches", 5)
    monkeypatch.setattr(question_form, "why_not", lambda _: leave())
    small.press("Undo")
    monkeypatch.undo()
    assert small.go("schedule").work.micro_batches == 5


def test_a_run_looks_its_session_up_once(monkeypatch) -> None:
    looked = []

    class Counted(dict):
        def setdefault(self, key, value):
            looked.append(key)
            return super().setdefault(key, value)

    monkeypatch.setattr(st, "session_state", Counted())
    same = []
    run = threading.Thread(target=lambda: same.append(session() is session()))
    run.start()
    run.join()
    assert (same, looked) == ([True], ["tessel"])


class EndedError(Exception):
    """Stands for the exception by which Streamlit ends a run of the page."""


class Run:
    """A finished search."""

    running = False

    def wait(self, _: float) -> bool:
        return True


def test_what_is_answered_soon_is_answered_first_and_all_of_it_in_one_run_of_the_page(monkeypatch) -> None:
    begun = []

    def rerun() -> None:
        raise EndedError

    monkeypatch.setattr(run_panel, "answer", lambda question: None)
    monkeypatch.setattr(run_panel, "start_search", lambda question: (begun.append(question), Run())[1])
    monkeypatch.setattr(st, "rerun", rerun)
    with pytest.raises(EndedError):
        run_panel.search_in_turn(
            ["search", "built", "long", "made"], str, lambda question: question in ("built", "made")
        )
    assert begun == ["built", "made", "search", "long"]


def test_the_search_that_goes_on_is_watched_and_not_the_one_that_was_asked_about_last(monkeypatch) -> None:
    class Long(Run):
        running = True

        def wait(self, _: float) -> bool:
            return False

    going, watched = Long(), []
    monkeypatch.setattr(run_panel, "answer", lambda question: going if question == "first" else None)
    monkeypatch.setattr(run_panel, "watch", lambda run, line: watched.append(run))
    run_panel.search_in_turn(["first", "second"], str)
    assert watched == [going]


def test_a_search_that_ends_while_its_page_is_drawn_is_shown_as_ended(app, restart, monkeypatch) -> None:
    page, ends, solve = app("compare", sample="m-shape-4", n="9"), threading.Event(), Question.solve

    def late(question: Question, control: Control) -> ScheduleReport:
        if question.scheduler == "tessel":
            ends.wait()
        return solve(question, control)

    def end() -> None:
        """End the search after the table is drawn, and before the progress panel is."""
        ends.set()
        for pair in session().work.comparison.pairs:
            run_panel.answer(pair).wait()

    monkeypatch.setattr(Question, "solve", late)
    page.test.multiselect[0].set_value(["tessel", "gpipe"])
    page.press("Add")
    assert len(page.timelines()) == 1
    monkeypatch.setattr(arrange, "arrange", end)
    assert len(page.run().timelines()) == 2, "nothing would come by later"


def test_a_placement_that_is_found_while_its_page_is_drawn_is_shown(app, restart, monkeypatch) -> None:
    page, ends, solve = app("placement", graph="mlp-8-training"), threading.Event(), PlacementQuestion.solve
    whole = form.placing_form

    def late(question: PlacementQuestion, control: Control) -> PlacementReport:
        ends.wait()
        return solve(question, control)

    def drawn() -> bool:
        """End the search before the page checks whether it is running."""
        ends.set()
        run_panel.answer(session().work.placing.question).wait()
        return whole()

    monkeypatch.setattr(PlacementQuestion, "solve", late)
    page.press("Place")
    assert page.work.placing.placement is None
    monkeypatch.setattr(form, "placing_form", drawn)
    assert page.run().work.placing.placement is not None, "nothing would come by later"


@pytest.mark.parametrize("answered", [False, True], ids=["with the press", "when the press is answered"])
def test_a_view_that_is_chosen_after_search_was_pressed_stays(small, answered: bool) -> None:
    small.search()
    assert small.address["view"] == "schedule"
    if answered:
        small.test.session_state["tessel"].next_view = SCHEDULE
    else:
        next(button for button in small.test.button if button.label == "Search").click()
    assert small.look_at(PLAN).address["view"] == "plan"
