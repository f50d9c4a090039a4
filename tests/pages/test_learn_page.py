"""The page Learn: levels are judged and saved, and any plan can be a puzzle."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import App
from helpers.stores import small_work

from pages.parts.learn import coming_back
from pages.shared.contents import PAGES
from pages.shared.learn_state import LearnState
from tessel_core.control import Control
from tessel_core.formats import read_workspace, workspace_text
from tessel_core.learning import GLOSSARY, KnobAnswers, Puzzle, find_level, list_decks, list_levels
from tessel_core.learning.levels import causal_ring, overloaded_expert, repetend
from tessel_core.model import Schedule
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.workbench.slides import OwnSlide
from tessel_core.workbench.workspace import OWN, Played, Workspace, workspace_file, workspace_of

PLAN = build_shape("v-shape", ShapeParameters(devices=2, forward=1, backward=1, capacity=2))


def runs(schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
    return tuple(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), schedule.start.tolist(), strict=True))


def solved(scheduler: str, puzzle: Puzzle) -> tuple[tuple[int, int, int], ...]:
    schedule = solve_schedule(scheduler, puzzle.plan, puzzle.micro_batches).solution
    assert schedule is not None
    return runs(schedule)


def on(played: Played, **address: str) -> App:
    work = replace(small_work(PLAN, 3), played=(played,))
    tab = App.on("learn", work)
    tab.test.query_params.update(address)
    return tab


def icons(tab: App) -> dict[str, str]:
    """Return whether each level is solved, started or neither, by the key of its button."""
    return {each.key: each.icon for each in tab.test.button if (each.key or "").startswith("level-")}


def opened(tab: App, level: str) -> App:
    next(each for each in tab.test.button if each.key == f"level-{level}").click()
    return tab.run()


def test_it_opens_the_first_level_that_is_not_solved() -> None:
    levels = list_levels()
    tab = on(Played(levels[0].name, reached=True))
    assert any(levels[1].asks in each.value.replace("\\", "") for each in tab.test.markdown)
    assert icons(tab)[f"level-{levels[0].name}"] == ":material/check_circle:"
    assert icons(tab)[f"level-{levels[1].name}"] == ":material/circle:"
    assert tab.address["level"] == levels[1].name
    solved_there = replace(Played(levels[1].name), reached=True)
    tab.test.session_state["tessel"].change(tab.work.playing(solved_there))
    tab.run()
    assert any(levels[1].asks in each.value.replace("\\", "") for each in tab.test.markdown), "it stays open"


def test_a_solved_level_is_proved_recognised_explained_and_ticked() -> None:
    level = find_level("3")
    task = level.task()
    assert isinstance(task, Puzzle)
    tab = opened(on(Played("3", solved("1f1b", task))), "3")
    assert tab.says("10 steps, proved optimal. Recognised: 1F1B.")
    assert icons(tab)["level-3"] == ":material/check_circle:"
    said = [each.value.replace("\\", "") for each in tab.test.markdown]
    assert any(level.reasons()[0] in each for each in said)
    assert tab.address["level"] == "3"
    again = App("learn", **tab.address)
    assert again.says("Recognised: 1F1B."), "a reload goes on with it"
    again.press("Open in Schedule")
    assert again.work.by_hand is not None
    assert again.work.opened is not None
    assert again.work.opened.makespan == 10
    assert again.work.play("3").reached, "what was learned is carried along"


def test_a_longer_schedule_is_not_called_solved() -> None:
    task = find_level("3").task()
    assert isinstance(task, Puzzle)
    tab = opened(on(Played("3", solved("sequential", task))), "3")
    assert tab.says("16 steps, 60.0% longer than necessary: 10 steps is possible, and proved to be the shortest.")
    assert icons(tab)["level-3"] == ":material/pending:"
    assert not tab.work.play("3").reached


def test_a_schedule_that_breaks_a_rule_is_refused_in_a_sentence() -> None:
    task = find_level("1").task()
    assert isinstance(task, Puzzle)
    names = [block.name for block in task.plan.blocks]
    starts = {"F0": 0, "F1": 0, "B1": 2, "B0": 3}
    tab = opened(on(Played("1", tuple((b, 0, starts[name]) for b, name in enumerate(names)))), "1")
    assert tab.says("F1 of micro-batch 0: starts at 0, but F0 lets it start at 1")
    tab = opened(on(Played("1", ((77, 0, 0),))), "1")
    assert tab.says("has no block 77 of micro-batch 0")


def test_a_level_that_was_left_in_the_middle_is_there_on_return() -> None:
    work = small_work(PLAN, 3)
    for play in (Played("1", reached=True), Played("5", ((0, 0, 0),)), Played("3", ((0, 0, 0),)), Played(OWN)):
        work = work.playing(play)
    assert App.on("learn", work).address["level"] == "3", "the last one"
    assert App.on("learn", work.playing(Played("3", reached=True))).address["level"] == "5"
    assert App.on("learn", small_work(PLAN, 3)).address["level"] == "1"


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_every_page_links_to_the_words(page: str) -> None:
    tab = App.on(page, small_work(PLAN, 3))
    assert "Words explained" in [each.label for each in tab.test.button]


def test_the_course_is_found_again_by_the_browser_without_a_link(monkeypatch) -> None:
    before = on(Played("1", reached=True)).run()
    (told,) = [each.proto for each in before.test.get("bidi_component") if each.proto.component_name == "tessel_course"]
    assert json.loads(told.json)["token"] == before.work.token
    monkeypatch.setattr(coming_back, "remembered", lambda: before.work.token)
    again = App("learn")
    assert again.work.token == before.work.token
    assert icons(again)["level-1"] == ":material/check_circle:"
    elsewhere = on(Played("own"))
    assert icons(elsewhere)["level-1"] == ":material/circle:", "a link goes before"
    assert elsewhere.press("Continue where you left off").work.token == before.work.token
    monkeypatch.setattr(coming_back, "remembered", lambda: "gone")
    assert App("learn").work.token != before.work.token
    assert on(Played("own")).press("Continue where you left off").says("no longer exists")


def test_a_block_is_stamped_refused_and_held_against_the_best() -> None:
    best = repetend.best()
    placed = tuple((b, m, int(at)) for m, row in enumerate(best.first_start) for b, at in enumerate(row))
    tab = opened(on(Played("9", placed, best.period)), "9")
    assert tab.says(
        "16 steps for 3 micro-batches, 16/3 steps each. Proved: no block of any size has a shorter time per "
        "micro-batch."
    )
    assert icons(tab)["level-9"] == ":material/check_circle:"
    assert tab.timelines()[0]["makespan"] > 3 * best.period
    assert opened(on(Played("9", placed, best.period - 1)), "9").says("stamped every 15: ")
    assert opened(on(Played("9", placed[:-8], 40)), "9").says("16/3 steps each is possible, and proved")
    for broken in (Played("9", placed[:5], 9), Played("9", placed, -3), Played("9", ((99, 0, 0),), 4)):
        assert icons(opened(on(broken), "9"))["level-9"] == ":material/pending:"


def test_lists_are_put_in_order_and_the_hang_check_judges() -> None:
    tab = opened(App("learn"), "15").press("Run")
    assert tab.says("Circle: gpu0 waits forever to send activations 1 and gpu1 waits forever to send gradients 0.")
    assert icons(tab)["level-15"] == ":material/pending:"
    pressed(tab, "Up-1-1")
    assert tab.says("gpu1: cannot send gradients 0 before this action: receive activations 0")
    pressed(tab, "Down-1-1")
    assert not tab.says("cannot send gradients 0")
    tab.press("Run")
    assert tab.says("All devices reach the end of their lists.")
    assert icons(tab)["level-15"] == ":material/check_circle:"
    tab.press("Start over").press("Step").press("Run")
    assert tab.says("All devices reach the end of their lists.")
    assert tab.work.play("15").placed == ((0, 2, 1, 3), (0, 1, 2, 3)), "the coach's move"
    assert opened(on(Played("15", ((7,),), 1)), "15").says("Circle"), "what is no order begins anew"


def given(tab: App, *devices: tuple[int, ...]) -> App:
    """Set the devices of each part, as chosen by hand."""
    parts = [each for each in (*tab.test.button_group, *tab.test.radio) if each.label.startswith(("Expert", "Chunk"))]
    numbered = sorted(parts, key=lambda each: each.label)
    for part, row in zip(numbered, devices, strict=True):
        part.set_value(list(row) if part.label.startswith("Expert") else row[0])
    return tab.run()


def test_experts_are_copied_and_the_simulator_judges() -> None:
    tab = opened(App("learn"), "17")
    assert not traces(tab), "nothing is shown before it is simulated"
    tab.press("Simulate")
    assert tab.says("24 ms, 44.7% idle, of which 40.8% is imbalance. 13.7 ms is possible")
    assert icons(tab)["level-17"] == ":material/pending:"
    assert len(traces(tab)) == 1
    given(tab, (), *overloaded_expert.BEST[1:]).press("Simulate")
    assert tab.says("Expert 1: 36% of the tokens: is not on any device")
    given(tab, *overloaded_expert.BEST).press("Simulate")
    assert tab.says("no assignment is faster, since all devices compute equally long.")
    assert icons(tab)["level-17"] == ":material/check_circle:"
    assert tab.work.play("17") == Played("17", overloaded_expert.BEST, 1, reached=True)
    tab.press("Start over")
    assert tab.work.play("17") == Played("17", reached=True)


def test_chunks_are_moved_by_hand_and_by_the_coach() -> None:
    tab = opened(App("learn"), "18")
    given(tab, (0,), *causal_ring.START[1:]).press("Simulate")
    assert tab.says("6.89 ms, 43.0% idle, of which 43.0% is imbalance.")
    tab.press("Step").press("Simulate")
    assert tab.says("gpu1: has 3 parts, but room for only 2")
    while not next(each for each in tab.test.button if each.label == "Step").disabled:
        tab.press("Step")
    tab.press("Simulate")
    assert tab.says("3.93 ms, 0.0% idle")
    assert icons(tab)["level-18"] == ":material/check_circle:"


def traces(tab: App) -> list[object]:
    return [each for each in tab.test.get("bidi_component") if each.proto.component_name == "tessel_timeline"]


def test_a_knob_shows_a_simulation() -> None:
    KnobAnswers(16).solve(Control())  # then the results that the page requests in the background are ready
    tab = opened(App("learn"), "16").press("Show")
    tab.wait(lambda: tab.says("Not this one. Free, 2 micro-batches: each layer's weights are gathered 4 times."))
    assert len(traces(tab)) == 1


def pressed(tab: App, key: str) -> App:
    next(each for each in tab.test.button if each.key == key).click()
    return tab.run()


@pytest.mark.parametrize("level", ["1", "2", "9", "15", "17", "18", OWN])
@pytest.mark.parametrize("placed", [((1, 2),), ((1, 2, 3, 4), (5,)), ((),), ((10**9, 10**9, 10**9),)])
def test_whatever_a_file_says_of_a_level_opens(level: str, placed: tuple[tuple[int, ...], ...]) -> None:
    tab = on(Played(level, placed, 10**9), level=level).run()
    assert not tab.work.play(level).reached


def test_a_knob_shows_what_was_predicted_and_why() -> None:
    tab = opened(App("learn"), "2")
    assert not tab.timelines(), "nothing is shown before the prediction"
    tab.press("Show")
    assert tab.says("Not this one. With 1 micro-batch the devices are idle 75.0% of the time.")
    tab.test.select_slider[0].set_value("13")
    tab.run().press("Show")
    assert tab.says("Right. With 13 micro-batches the devices are idle 18.8% of the time.")
    assert len(tab.timelines()) == 1
    assert tab.test.dataframe[0].value.shape == (8, 2)
    assert tab.work.play("2") == Played("2", chosen=5, reached=True)
    tab.press("Undo")
    assert tab.work.play("2").chosen == 0


def test_any_plan_is_a_puzzle() -> None:
    tab = App.on("schedule", small_work(PLAN, 3)).look_at("Schedule").search()
    tab.press("Play this")
    assert tab.address["level"] == OWN
    (data,) = [each for each in tab.test.get("bidi_component") if each.proto.component_name == "tessel_board"]
    assert '"microBatches":3' in data.proto.json.replace(" ", "")
    work = replace(small_work(PLAN, 3), played=(Played(OWN, solved("1f1b", Puzzle(PLAN, 3))),))
    tab = opened(App.on("learn", work), OWN)
    assert tab.says("proved optimal. Recognised: 1F1B")
    wide = small_work(build_shape("v-shape", ShapeParameters(devices=20)), 2)
    assert opened(App.on("learn", wide), OWN).says("has 20 devices, more than 16, the number that fits a screen.")


def test_the_words_have_the_numbers_of_the_open_plan() -> None:
    tab = App.on("schedule", small_work(PLAN, 3))
    tab.press("Words explained")
    assert tab.address["level"] == "words"
    here = [each.value.replace("\\", "") for each in tab.test.caption]
    assert "Here: (p − 1) / (m + p − 1) = (2 − 1) / (3 + 2 − 1) = 25.0%." in here
    assert any("no schedule of 3 ends before 8 steps" in each for each in here)
    for term in GLOSSARY:
        assert any(term.name in each.value.replace("\\", "") for each in tab.test.markdown)


@pytest.mark.parametrize("level", ["0", "x", "999", "77"])
def test_a_link_to_no_level_opens_the_first_and_says_so(level: str) -> None:
    tab = App("learn", level=level)
    assert tab.says(
        "level: must be a number from 1 to"
        if level == "77"
        else f"level: there is no level and no deck named {level!r}"
    )
    assert any(list_levels()[0].asks in each.value.replace("\\", "") for each in tab.test.markdown)


def test_progress_goes_along_with_files_and_plans() -> None:
    begun = Played("1", ((0, 0, 0),))
    work: Workspace = replace(small_work(PLAN, 3), played=(begun, Played(OWN, ((0, 0, 0),))))
    again = workspace_of(read_workspace(workspace_text(workspace_file(work)).encode()), "token")
    assert again.played == work.played
    assert work.with_plan(work.plan, "elsewhere").played == (begun,)
    assert small_work(PLAN, 2).carrying(work).played == (begun,)
    assert work.playing(Played("1")).play("1") == Played("1")


def test_start_has_a_tour_that_plays_by_itself_and_pages_explain_themselves() -> None:
    tab = App("start").press("Tour in three minutes")
    assert tab.address["level"] == "slides-this-tool"
    state = tab.test.session_state["tessel"].of(LearnState)
    assert state.goes
    state.open("slides-zero-bubble")
    assert not state.goes, "only on request"
    explained = {page.name: page.slides for page in PAGES if page.slides}
    assert set(explained) == {"placement", "schedule", "compare", "strategies", "program"}
    assert set(explained.values()) <= {deck.name for deck in list_decks()}
    tab = App.on("schedule", small_work(PLAN, 3)).press("How this page works")
    assert tab.address["level"] == "slides-tessel"


def test_slides_are_made_of_schedules_worded_put_in_order_and_kept() -> None:
    tab = App.on("schedule", small_work(PLAN, 3)).look_at("Schedule").search()
    tab.press("Add to slides")
    assert tab.work.slides[0].title == f"Tessel search, {PLAN.name}"
    (shown,) = tab.work.slides[0].shown
    assert len(shown[1].starts) == 3
    second = OwnSlide("Second", "Two {lines}\nof text")
    work = replace(tab.work, slides=(*tab.work.slides, second))
    again = workspace_of(read_workspace(workspace_text(workspace_file(work)).encode()), "token")
    assert again.slides == work.slides
    assert small_work(PLAN, 2).carrying(work).slides == work.slides
    tab = opened(App.on("learn", work), "slides")
    tab.wait(lambda: any(each.proto.component_name == "tessel_slides" for each in tab.test.get("bidi_component")))
    assert tab.files() == ["Download as HTML"]
    next(each for each in tab.test.text_input if each.label == "Title of slide 2").set_value("The second")
    tab.run()
    assert tab.work.slides[1].title == "The second"
    next(each for each in tab.test.button if each.key == "slide-up-1").click()
    tab.run()
    assert tab.work.slides[0].title == "The second"
    next(each for each in tab.test.button if each.key == "slide-remove-0").click()
    tab.run()
    assert [each.title for each in tab.work.slides] == [work.slides[0].title]
    tab.press("Undo")
    assert len(tab.work.slides) == 2
    assert opened(App("learn"), "slides").says("No slides yet.")


def test_a_deck_is_shown_and_taken_away() -> None:
    tab = App("learn", level="slides-zero-bubble")
    tab.wait(lambda: any(each.proto.component_name == "tessel_slides" for each in tab.test.get("bidi_component")))
    assert tab.files() == ["Download as HTML"]
    assert App("learn", level="slides-none").says("slides: must be one of")


def test_a_plan_without_a_schedule_is_no_puzzle_and_says_what_would_do() -> None:
    tight = replace(small_work(load_sample("m-shape-4").with_capacity(0), 3), source="")
    tab = App.on("learn", tight)
    tab.press(f"Your plan: {tight.plan.name}").wait(lambda: tab.says("Infeasible"))
    assert tab.says("on every device would be enough for a schedule")
    assert not [each for each in tab.test.get("bidi_component") if "board" in each.proto.component_name]
