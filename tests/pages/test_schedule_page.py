"""The Schedule page: editing, questions, answers, and every kind of error."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from helpers.seeds import one_in

from pages.parts.schedule import plan_editor
from pages.shared.timeline.state import TimelineState
from tessel_core.control import Control
from tessel_core.exports import EXPORTS
from tessel_core.formats.answer_file import answer_text
from tessel_core.formats.tables import tables_of
from tessel_core.model import MAKESPAN, PERIOD
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, Comparison, Question, one_micro_batch, solve_schedule
from tessel_core.workbench.answers import digest
from tessel_core.workbench.store import find_store


def figure(app, key: str) -> dict:
    """Return the figure of a chart on the page."""
    for chart in app.test.get("plotly_chart"):
        if chart.proto.id.endswith(key):
            return json.loads(chart.proto.spec)
    raise AssertionError(f"no chart {key} on the page")


def headings(app, part: str) -> list[str]:
    """Return the bold headings that contain `part`."""
    return [text.value for text in app.test.markdown if part in text.value]


def shown(app) -> dict:
    """Return what the timeline shows: the plan or the answer."""
    return app.timelines()[0]


def draw(app, drawing: str) -> None:
    """Switch between the timeline and the static picture."""
    next(each for each in app.test.button_group if drawing in each.options).set_value(drawing)
    app.run()


def test_a_sample_opens_as_tables_and_picture(small) -> None:
    assert small.work.plan.name == "m-shape-4"
    assert small.work.micro_batches == 13
    assert len(shown(small)["block"]) == 10
    assert not small.numbers()


def test_a_search_plays_again_news_by_news(small) -> None:
    small.search()
    last, points = small.test.slider[0].max, drawn_points(small)
    assert small.test.slider[0].value == last > 1
    small.press("Play the search")
    assert small.test.slider[0].value == 1, "from the beginning"
    assert drawn_points(small) < points
    while small.test.slider[0].value < last:  # its fragment runs like this while it plays
        small.run()
    assert [each.label for each in small.test.button if "the search" in each.label] == ["Play the search"]
    small.test.slider[0].set_value(2)
    small.run()
    assert any(each.value.startswith("after ") for each in small.test.caption)


def drawn_points(app) -> int:
    """Return the points of the search's curves."""
    return sum(x is not None for trace in figure(app, "history")["data"] for x in trace["x"])


def test_search_shows_what_was_proved_and_the_pictures(small) -> None:
    small.search()
    assert small.says(
        "Makespan proved optimal: no order of this placement ends 13 micro-batches before 90 steps. "
        "The period is proved"
    )
    assert small.numbers()["Makespan"] == "90 steps"
    assert (shown(small)["makespan"], len(shown(small)["block"])) == (90, 13 * 10)
    for key in ("idle", "causes", "history"):
        assert figure(small, key)["data"]


def test_the_schedule_beside_the_plan_follows_the_number_of_micro_batches(restart, small, monkeypatch) -> None:
    monkeypatch.setattr(plan_editor, "_QUICK_S", 60.0)
    small.search().look_at("Plan").choose("Micro-batches", 5)
    assert small.work.asked.micro_batches == 5, "with the number, not with what comes after it"
    small.wait(lambda: len(small.timelines()[1]["block"]) == 5 * 10)


def test_what_faster_blocks_would_save_is_seen_at_a_glance(small) -> None:
    small.search()
    assert headings(small, "If a block were 10% faster")
    names = {block.name for block in small.work.plan.blocks}
    assert names & set(figure(small, "faster")["layout"]["yaxis"]["ticktext"])


@pytest.mark.parametrize("saved", [(), (Fraction(0),) * 10], ids=["too many runs", "nothing saved"])
def test_where_nothing_would_be_saved_there_is_no_such_picture(
    small, monkeypatch: pytest.MonkeyPatch, saved: tuple[Fraction, ...]
) -> None:
    monkeypatch.setattr("pages.parts.schedule.answer.savings", lambda _: saved)
    small.search()
    assert figure(small, "causes")["data"]
    assert not headings(small, "10% faster")


def test_the_picture_is_one_switch_away_and_a_link_leads_to_it(small, app) -> None:
    small.search()
    draw(small, "Picture")
    assert figure(small, "gantt")["data"]
    assert not small.timelines()
    assert small.address["drawing"] == "picture"
    again = app("schedule", sample="m-shape-4", n="13", view="schedule", drawing="picture")
    assert figure(again, "gantt")["data"]
    draw(again, "Timeline")
    assert shown(again)["makespan"] == 90
    assert "drawing" not in again.address


def test_the_table_lists_every_run_of_every_device(small) -> None:
    small.search()
    draw(small, "Table")
    (rows,) = [each.value for each in small.test.dataframe if "micro_batch" in each.value.columns]
    assert small.address["drawing"] == "table"
    assert len(rows) == 13 * sum(len(block.devices) for block in small.work.plan.blocks)
    assert rows["end"].max() == 90
    draw(small, "Timeline")
    assert shown(small)["makespan"] == 90


def test_a_browser_without_the_timeline_gets_the_picture_and_a_sentence(small) -> None:
    small.search()
    small.test.session_state["tessel"].of(TimelineState).failed = "Canvas is not supported."
    small.run()
    assert figure(small, "gantt")["data"]
    assert any("cannot draw the timeline" in caption.value for caption in small.test.caption)


def test_what_is_seen_stays_in_the_address(app) -> None:
    marks = ".".join([f"{10**15}-{10**16 - 1}"] * 8)
    looked = {"time": "12-48", "at": "3.5", "colour": "block", "lanes": "held", "marks": marks}
    tab = app("schedule", sample="m-shape-4", n="13", view="schedule", **looked).search()
    assert looked.items() <= tab.address.items()
    assert tab.test.session_state["tessel"].of(TimelineState).selected == "3.5"
    said = [each for each in tab.test.get("bidi_component") if each.proto.component_name == "tessel_timeline_said"]
    assert "Why not earlier" in said[0].proto.json


@pytest.mark.parametrize(
    ("key", "value"), [("time", "12"), ("at", "3"), ("colour", "red"), ("lanes", "all"), ("marks", "1-2.3")]
)
def test_a_wrong_view_in_the_address_is_told_and_left_out(app, key: str, value: str) -> None:
    tab = app("schedule", sample="m-shape-4", n="8", **{key: value})
    assert tab.says(f"{key}: must be")
    assert key not in tab.address


def test_what_a_timeline_tells_is_read_as_warily_as_an_address() -> None:
    state = TimelineState()
    state.seen({"time": "1-2", "at": "<b>", "colour": None, "lanes": 7, "more": "x"})
    assert state.in_address() == {"time": "1-2"}


@pytest.fixture
def two_schedules(app, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a tab with a stored answer of two schedules, in which no search can run."""
    asked = Question("tessel", load_sample("m-shape-4"), 16, SCHEDULERS["tessel"].config())
    report = asked.solve(Control())
    report = replace(report, steady=report.repetend.expand(16))
    find_store().answers.keep(digest(asked), answer_text(report))
    one_micro_batch(asked.plan)  # the picture of the plan needs no search
    monkeypatch.setattr("tessel_core.scheduling.schedulers.solve_schedule", None)
    return app("schedule", sample="m-shape-4", n="16", view="schedule"), report


def test_the_switch_shows_either_schedule_and_searches_nothing(two_schedules) -> None:
    tab, report = two_schedules
    makespans = {MAKESPAN: report.makespan, PERIOD: report.repetend_makespan}
    assert len(set(makespans.values())) == 2
    for objective in (MAKESPAN, PERIOD, MAKESPAN):
        if objective != tab.work.config.objective:
            tab.show(objective)
        assert tab.switches[0].value == tab.work.config.objective == objective
        assert tab.address.get("objective", MAKESPAN) == objective
        assert tab.numbers()["Makespan"] == f"{makespans[objective]} steps"
        assert tab.says(f"{objective.capitalize()} proved optimal")
        assert tab.says("longer than the shortest.")
        assert shown(tab)["makespan"] == makespans[objective]
        tab.press("Add to Compare")
        assert tab.work.comparison.pairs[-1].config.objective == objective
        session = tab.test.session_state["tessel"]
        session.change(replace(tab.work, comparison=Comparison()))
    assert not tab.says("Plan, scheduler or options have changed since this search")


def test_what_is_proved_is_not_searched_again(two_schedules) -> None:
    tab, report = two_schedules
    tab.look_at("Plan").search()
    assert tab.numbers()["Makespan"] == f"{report.makespan} steps"
    assert tab.work.asked == tab.work.question


def test_the_schedule_that_is_shown_is_part_of_the_address(two_schedules, app) -> None:
    _, report = two_schedules
    again = app("schedule", sample="m-shape-4", n="16", view="schedule", objective=PERIOD)
    assert again.numbers()["Makespan"] == f"{report.repetend_makespan} steps"
    assert again.switches[0].value == PERIOD
    again.choose("Objective", MAKESPAN)
    assert again.numbers()["Makespan"] == f"{report.makespan} steps"
    assert again.switches[0].value == MAKESPAN


def test_one_schedule_for_both_objectives_needs_no_switch(app) -> None:
    tab = app("schedule", sample="v-shape-4", n="8").search()
    assert tab.says("The period is proved optimal too.")
    assert not tab.switches


@pytest.mark.parametrize("sample", ["m-shape-4", "split-v-4"])
def test_the_export_menu_follows_the_table_and_says_what_cannot_be_made(app, sample: str) -> None:
    tab = app("schedule", sample=sample, scheduler="sequential", n="4").search()
    schedule = solve_schedule("sequential", load_sample(sample), 4).solution
    assert schedule is not None
    objections = {export.title: export.objection(schedule) for export in EXPORTS.values()}
    assert tab.files() == ["Plan JSON", *(title for title, objection in objections.items() if not objection)]
    told = " ".join(caption.value.replace("\\", "") for caption in tab.test.caption)
    for title, objection in objections.items():
        assert not objection or (title in told and objection in told)
    assert ("Tessel JSON" in tab.files()) == (sample == "m-shape-4"), "it has no word for split backward"


@pytest.mark.parametrize("scheduler", one_in(3, SCHEDULERS))
def test_every_scheduler_answers_or_says_why_not(app, scheduler: str) -> None:
    tab = app("schedule", sample="m-shape-4", scheduler=scheduler, n="4")
    objection = SCHEDULERS[scheduler].objection(tab.work.plan)
    button = next(button for button in tab.test.button if button.label in ("Search", "Build"))
    assert button.disabled == bool(objection)
    if objection:
        assert tab.says(objection)
    else:
        tab.search()
        assert tab.numbers()["Makespan"]


def test_an_invalid_edit_is_told_beside_the_table_and_keeps_the_last_good_picture(small) -> None:
    before = shown(small)["digest"]
    small.edit("blocks", 1, "duration", 0)
    assert small.says("") == ["blocks, row 2, column duration: must be at least 1, got 0"]
    assert any("Last valid plan" in text.value for text in small.test.markdown)
    assert shown(small)["digest"] == before
    assert next(button for button in small.test.button if button.label == "Search").disabled
    small.edit("blocks", 1, "duration", 2)
    assert not small.says("must be")
    assert small.work.plan.blocks[1].duration == 2
    assert shown(small)["digest"] != before


def test_an_edit_changes_the_answer(small) -> None:
    small.edit("blocks", 1, "duration", 5).search()
    assert small.numbers()["Time per micro-batch"] == "10 steps"


def test_an_answer_to_another_question_is_marked(small) -> None:
    small.search().choose("Micro-batches", 9)
    assert small.says("Plan, scheduler or options have changed since this search")
    assert small.numbers()["Makespan"]
    small.choose("Micro-batches", 13)
    assert not small.says("Plan, scheduler or options have changed since this search"), (
        "the answer to this question is known"
    )


def test_infeasible_says_so_and_what_would_do(small) -> None:
    for row in range(4):
        small.edit("devices", row, "capacity", 0)
        small.test.session_state["tessel"].editor_base = small.work.draft
    plan = small.work.plan.with_capacity(0)
    small.test.session_state["tessel"].change(replace(small.work, plan=plan, draft=tables_of(plan)))
    small.look_at("Schedule").search()
    assert small.says("Infeasible")
    assert small.says("1 slot on every device would be enough")
    assert "Schedule JSON" not in small.files()


def test_a_schedule_that_does_not_fit_is_drawn_but_not_handed_out(app) -> None:
    tab = app("schedule", sample="v-shape-4", scheduler="gpipe", n="8").search()
    assert tab.says("Infeasible: the order exceeds the memory")
    assert shown(tab)["misfit"] == "does not fit: gpu0 would hold 8 slots of 4 slots"
    draw(tab, "Picture")
    assert any("does not fit" in note["text"] for note in figure(tab, "gantt")["layout"]["annotations"])
    assert tab.files() == ["Plan JSON"]


def test_state_survives_page_switches_and_views(small) -> None:
    small.edit("blocks", 1, "duration", 4).choose("Micro-batches", 5)
    small.go("start").go("schedule")
    assert small.work.plan.blocks[1].duration == 4
    assert small.work.micro_batches == 5
    small.look_at("Schedule").look_at("Plan").edit("blocks", 2, "duration", 3)
    assert [block.duration for block in small.work.plan.blocks[1:3]] == [4, 3]


def test_a_reload_finds_the_edits_and_the_answer(small, app) -> None:
    small.edit("blocks", 1, "duration", 4).search()
    again = app("schedule", work=small.work.token, sample="m-shape-4")
    assert again.work == small.work
    assert again.numbers() == small.numbers()


def test_options_are_part_of_the_question(small) -> None:
    small.choose("Largest repeat", 2).search()
    assert small.work.asked.config.max_unroll == 2
    small.choose("Scheduler", "sequential").choose("Scheduler", "tessel")
    assert small.work.config.max_unroll == 2


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ({"sample": "nothing-like-it"}, "'nothing-like-it' is not known"),
        ({"sample": "../secret"}, "is not known"),
        ({"sample": "v-shape-4", "scheduler": "magic"}, "'magic' is not known"),
        ({"sample": "v-shape-4", "n": "0"}, "must be a whole number from 1 to 99,999, got '0'"),
        ({"sample": "v-shape-4", "n": "many"}, "got 'many'"),
    ],
)  # fmt: skip
def test_a_wrong_address_is_told_in_one_sentence(app, address: dict[str, str], complaint: str) -> None:
    tab = app(**address)
    assert tab.says(complaint)
    known = address["sample"] == "v-shape-4"
    assert tab.go("schedule").work.plan.name == ("v-shape-4" if known else "gpt-1m-vocab-m-4")


def test_an_unknown_token_falls_back_to_the_sample(app) -> None:
    assert app("schedule", work="long-forgotten", sample="v-shape-4").work.plan.name == "v-shape-4"


def test_a_scheduler_that_does_not_apply_offers_what_would_make_it_apply(app) -> None:
    tab = app("schedule", sample="gpt-6.7b-v-4", n="8", scheduler="zb-h1")
    assert tab.says("ZB-H1 does not apply")
    tab.press("Split the backward")
    assert not tab.says("does not apply")
    assert len(tab.work.plan.blocks) == 12
    tab.search()
    assert tab.numbers()["Makespan"]
    tab.press("Undo")
    assert len(tab.work.plan.blocks) == 8
    tab.choose("Scheduler", "chimera")  # no cut makes a second chain
    tab.press("Use Tessel search")
    assert tab.work.scheduler == "tessel"
    assert not tab.says("does not apply")


def test_what_memory_would_buy_is_solved_when_somebody_asks(app) -> None:
    tab = app("schedule", sample="v-shape-4", n="4", scheduler="1f1b").search()
    tab.press("Solve 5 changes")
    tab.wait(lambda: any("Saves" in table.value for table in tab.test.dataframe))
    rows = next(table.value for table in tab.test.dataframe if "Saves" in table.value)
    tab.wait(lambda: "–" not in set(next(t.value for t in tab.test.dataframe if "Saves" in t.value)["Saves"]))
    assert len(rows) == 5
