"""The Compare page: pairs, their table, their pictures and their curves."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from conftest import App
from helpers.stores import small_work

from pages.parts.compare import state as compare_state
from pages.parts.compare import what_if as what_if_page
from pages.parts.compare.state import WhatIfState
from pages.shared.session import Session
from tessel_core.editing.schedule import reordered
from tessel_core.editing.what_if import WhatIf
from tessel_core.inspection import Jitter, difference, under_jitter
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, Answer, Comparison, solve_schedule
from tessel_core.scheduling.comparison import Made, drawable_of
from tessel_core.scheduling.finish import BY_HAND
from tessel_core.scheduling.reports import evaluate
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.difference import difference_sentences


def table(tab: App) -> list[dict[str, object]]:
    """Return the rows of the comparison's table."""
    return tab.test.dataframe[0].value.to_dict("records")


def captions(tab: App) -> str:
    return " ".join(caption.value for caption in tab.test.caption).replace("\\", "")


def figures(tab: App) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in tab.test.get("plotly_chart")]


def answered(tab: App) -> bool:
    return not any(row["Outcome"] == "searching" for row in table(tab))


def compared(*schedulers: str, sample: str = "v-shape-4", n: str = "8") -> App:
    """Open the page with these pairs of one sample, and wait until all are solved."""
    tab = App("compare", sample=sample, n=n)
    tab.test.multiselect[0].set_value(list(schedulers))
    tab.run().press("Add")
    return tab.wait(lambda: answered(tab))


def test_an_empty_list_says_what_to_do() -> None:
    tab = App("compare", sample="v-shape-4")
    assert tab.says("Nothing to compare yet")
    assert not tab.test.dataframe
    tab.press("Compare the schedules of this plan")
    asked = [pair.scheduler for pair in tab.work.comparison.pairs]
    assert {"tessel", "1f1b", "gpipe"} < set(asked)
    assert "zb-v" not in asked, "it does not apply"


def test_pairs_are_solved_and_stand_in_one_table_and_one_picture() -> None:
    tab = compared("1f1b", "gpipe", "sequential")
    rows = table(tab)
    assert [row["Pair"].split(",")[0] for row in rows] == ["1F1B", "GPipe", "Sequential"]
    assert [row["Makespan (steps)"] for row in rows] == [44, 44, 128]
    assert rows[0]["Pair"].endswith("(reference)")
    assert rows[1]["Outcome"] == "does not fit"
    assert "GPipe, v-shape-4: does not fit: the order exceeds the memory of gpu0–gpu3 by 4 slots each" in captions(tab)
    shown = [(each["title"].split(",")[0], each["makespan"], each["misfit"]) for each in tab.timelines()]
    misfit = "does not fit: gpu0 would hold 8 slots of 4 slots"
    assert shown == [("1F1B", 44, ""), ("GPipe", 44, misfit), ("Sequential", 128, "")]
    assert not figures(tab)


def test_memory_lanes_and_the_picture_are_a_switch_away() -> None:
    tab = compared("1f1b", "gpipe")
    heights, digests = zip(*((each["memoryHeight"], each["digest"]) for each in tab.timelines()), strict=True)
    assert heights == (0, 0)
    tab.test.toggle[0].set_value(True)
    tab.run()
    assert all(each["memoryHeight"] > 8 for each in tab.timelines())
    assert tuple(each["digest"] for each in tab.timelines()) == digests, "what is seen stays"
    next(each for each in tab.test.button_group if "Picture" in each.options).set_value("Picture")
    tab.run()
    assert not tab.timelines()
    titles = [note["text"] for note in figures(tab)[0]["layout"]["annotations"]]
    assert [title for title in titles if "v-shape-4" in title] == [
        "1F1B, v-shape-4",
        'GPipe, v-shape-4 · <b style="color:#b34700">does not fit</b>',
    ]
    again = App("compare", **tab.address)
    assert figures(again)
    assert not again.timelines()


def test_a_pair_that_does_not_apply_stays_with_its_reason() -> None:
    tab = compared("1f1b+", "1f1b")
    assert [row["Outcome"] for row in table(tab)] == ["does not apply", "makespan proved"]
    assert SCHEDULERS["1f1b+"].objection(tab.work.plan) in captions(tab)


def test_another_number_of_micro_batches_is_for_all_pairs() -> None:
    tab = compared("1f1b", "sequential")
    tab.choose("Micro-batches", 3)
    tab.wait(lambda: answered(tab))
    assert [row["Makespan (steps)"] for row in table(tab)] == [24, 48]
    assert {pair.micro_batches for pair in tab.work.comparison.pairs} == {3}


def test_what_is_looked_at_on_the_schedule_page_can_be_added() -> None:
    tab = App("schedule", sample="m-shape-4", n="8", scheduler="1f1b+")
    tab.press("Add to Compare")
    assert tab.work.comparison.pairs == (tab.work.question,)
    tab.press("On Compare").wait(lambda: answered(tab))
    assert [row["Pair"] for row in table(tab)] == ["1F1B+, m-shape-4 (reference)"]


def test_a_schedule_changed_by_hand_is_added_as_it_is_and_opens_again() -> None:
    tab = App("schedule", sample="v-shape-4", n="8", scheduler="1f1b").search()
    built = solve_schedule("1f1b", tab.work.plan, 8).solution
    assert built is not None
    slower, session = reordered(built, (3, 0), 9), tab.test.session_state["tessel"]
    session.change(tab.work.changed_by_hand(evaluate(slower, BY_HAND)))
    tab.run().press("Add to Compare")
    assert tab.work.comparison.pairs == (Made.of(slower),)
    session.change(tab.work.changed_by_hand(evaluate(built, BY_HAND)))
    tab.run().press("Add to Compare").go("compare").wait(lambda: answered(tab))
    rows = table(tab)
    assert [row["Makespan (steps)"] for row in rows] == [slower.makespan, built.makespan]
    assert [row["Outcome"].split(",")[0] for row in rows] == ["by hand", "by hand"]
    for view in ("Difference", "Jitter", "Against micro-batches", "Idle time", "Timelines"):
        tab.look_at(view)
    tab.test.multiselect[0].set_value(["gpipe"])
    tab.run().press("Add").look_at("What if")
    assert captions(tab).count("Left out, because a schedule changed by hand") == 1
    tick(tab, 0).press("Open").go("schedule")
    assert tab.work.by_hand is not None
    assert tab.work.opened.makespan == slower.makespan
    assert any("Changed by hand" in each.value for each in tab.test.markdown)


def test_pairs_go_along_to_another_plan_and_units_are_not_mixed() -> None:
    tab = compared("1f1b")
    tab.choose("Plan", "m-shape-4")
    tab.test.multiselect[0].set_value(["1f1b+"])
    tab.run().press("Add").wait(lambda: answered(tab))
    assert [row["Pair"].split(" (")[0] for row in table(tab)] == ["1F1B, v-shape-4", "1F1B+, m-shape-4"]
    tab.choose("Plan", "gpt-1m-vocab-v-4")
    tab.test.multiselect[0].set_value(["1f1b"])
    tab.run().press("Add")
    assert tab.says("Not added: 1F1B. plan gpt-1m-vocab-v-4: its times are in ns")
    assert len(tab.work.comparison.pairs) == 2


def test_every_scheduler_can_be_compared() -> None:
    names = [name for name in SCHEDULERS if name != "time-optimal"]
    tab = compared(*names, sample="m-shape-4", n="4")
    assert len(table(tab)) == len(names)
    for name, row in zip(names, table(tab), strict=True):
        applies = not SCHEDULERS[name].why_not(tab.work.plan, 4)
        assert (row["Outcome"] == "does not apply") != applies


def test_the_idle_time_of_all_pairs_stands_side_by_side() -> None:
    tab = compared("1f1b", "sequential")
    tab.look_at("Idle time")
    split, causes, *single = figures(tab)
    assert len(single) == 2
    assert [trace["name"] for trace in split["data"]] == ["busy", "unavoidable", "open"], "stages are equal"
    assert [trace["name"] for trace in causes["data"]] == ["busy", "warmup", "cooldown", "order", "memory", "data"]


def test_jitter_says_how_late_each_may_end_and_how_often_it_is_first() -> None:
    tab = compared("1f1b", "gpipe", "sequential")
    tab.look_at("Jitter")
    schedules = drawable_of([Answer.to(pair) for pair in tab.work.comparison.pairs])

    def is_drawn(jitter: Jitter) -> bool:
        bars, strokes = figures(tab)[0]["data"]
        found = under_jitter(schedules, jitter)
        assert bars["base"] == pytest.approx([each.p50 for each in found])
        assert bars["x"] == pytest.approx([each.p95 - each.p50 for each in found])
        assert strokes["x"] == [44, 44, 128]
        return f"{jitter.draws:,} draws" in captions(tab)

    assert is_drawn(Jitter(0.1))
    assert "has no chance to win" in captions(tab), "GPipe does not fit"
    tab.test.slider[0].set_value(0.0)
    tab.run()
    assert is_drawn(Jitter(0.0))
    tab.test.slider[0].set_value(0.25)
    tab.run()
    next(each for each in tab.test.button_group if "Every device" in each.options).set_value("Every device")
    tab.run()
    assert is_drawn(Jitter(0.25, "device"))
    tab.look_at("Idle time").look_at("Jitter")
    assert tab.test.slider[0].value == 0.25
    assert is_drawn(Jitter(0.25, "device"))
    assert figures(App("compare", **tab.address))


def what_if(tab: App, values: WhatIf) -> App:
    """Set the sliders' values. The test runner cannot move sliders of a custom component."""
    tab.test.session_state["tessel"].of(WhatIfState).values = values
    return tab.run()


def test_schedules_follow_the_sliders_and_go_into_the_list() -> None:
    tab = compared("1f1b", "gpipe", "sequential")
    before = tab.look_at("What if").work.comparison
    assert spoken(tab) == "1F1B, v-shape-4 wins: 44 steps, 65.6 % before Sequential, v-shape-4."
    assert "Does not fit in memory: GPipe, v-shape-4." in captions(tab)
    assert titles(tab) == ["1F1B", "GPipe", "Sequential"]
    what_if(tab, WhatIf(micro_batches=4, capacity=4, link=2))
    assert [each["makespan"] for each in tab.timelines()] == [48, 40, 112]
    assert tab.timelines()[1]["title"] == "GPipe, v-shape-4 · wins"
    assert spoken(tab) == "GPipe, v-shape-4 wins: 40 steps, 16.7 % before 1F1B, v-shape-4."
    again = App("compare", **tab.address)
    assert spoken(again) == spoken(tab), "a link carries the sliders"
    wrong = App("compare", **{**tab.address, "if": "link:2,capacity:1e9"})
    assert spoken(wrong).startswith("1F1B, v-shape-4 wins: 44 steps")
    assert wrong.says("if must be slider values") or wrong.says("slider values")
    tab.press("Apply to the list")
    assert [row["Makespan (steps)"] for row in table(tab)] == [48, 40, 112]
    assert spoken(tab).startswith("GPipe, v-shape-4 wins: 40 steps"), "the sliders begin again there"
    tab.press("Undo")
    assert tab.work.comparison == before
    what_if(tab, WhatIf(pace=Fraction(3), device=2)).press("Reset sliders")
    assert spoken(tab).startswith("1F1B, v-shape-4 wins: 44 steps")


def test_what_sliders_said_before_they_were_set_elsewhere_counts_no_more(monkeypatch) -> None:
    tab = Session()
    for module in (what_if_page, compare_state):
        monkeypatch.setattr(module, "session", lambda: tab)
    state = tab.of(WhatIfState)
    what_if_page._moved(WhatIf(link=2), 1, 0, True)
    assert (state.values, state.serial) == (WhatIf(link=2), 1)
    what_if_page._reset()
    what_if_page._moved(WhatIf(link=2), 2, 0, True)
    assert (state.values, state.serial) == (WhatIf(), 2), "answered, and too late"
    what_if_page._moved(WhatIf(link=3), 3, 1, True)
    assert state.values == WhatIf(link=3)


def spoken(tab: App) -> str:
    """Return the sentence in bold, which names the winner."""
    return next(each.value for each in tab.test.markdown if " steps" in each.value).strip("*").replace("\\", "")


def tick(tab: App, *rows: int) -> App:
    """Select these rows of the table and no others."""
    name = f"compare-table-{'-'.join(tab.work.comparison.labels())}-False"
    tab.test.session_state[tab.test.session_state["tessel"].key(name)] = {
        "selection": {"rows": list(rows), "columns": [], "cells": []}
    }
    return tab.run()


def titles(tab: App) -> list[str]:
    return [each["title"].split(",")[0] for each in tab.timelines()]


def test_pictures_are_of_the_rows_that_are_ticked() -> None:
    tab = compared("1f1b", "gpipe", "sequential")
    assert titles(tick(tab, 2, 0)) == ["1F1B", "Sequential"]
    assert titles(tick(tab)) == ["1F1B", "GPipe", "Sequential"]
    tick(tab, 1).look_at("Difference")
    assert titles(tab) == ["1F1B", "GPipe"], "one alone is held against the reference"
    tick(tab, 1, 2).press("Remove")
    assert len(table(tab)) == 1


def test_a_row_is_named_by_hand_and_moved_and_stays_ticked() -> None:
    tab = compared("1f1b", "gpipe", "sequential")
    tick(tab, 2)
    arranged(tab, tab.work.comparison.named(2, "Slow").only([0, 2, 1]))
    assert [row["Pair"].split(",")[0] for row in table(tab)] == ["1F1B", "Slow", "GPipe"]
    assert titles(tab) == ["Slow"]
    tab.press("Set as reference")
    arranged(tab, tab.work.comparison.only([1, 0, 2]))
    assert table(tab)[0]["Pair"] == "Slow (reference)"
    assert App("compare", **tab.address).work.comparison == tab.work.comparison


def arranged(tab: App, comparison: Comparison) -> App:
    """Set the order of the list under *Arrange*. The test runner cannot move its rows."""
    tab.test.session_state["tessel"].change(replace(tab.work, comparison=comparison))
    return tab.run()


def test_the_difference_of_two_is_said_summed_and_drawn() -> None:
    tab = compared("gpipe", "1f1b", "sequential")
    tab.look_at("Difference")

    def is_shown(before: str, after: str) -> None:
        schedules = dict(
            zip(
                tab.work.comparison.labels(),
                drawable_of([Answer.to(pair) for pair in tab.work.comparison.pairs]),
                strict=True,
            )
        )
        found = difference(schedules[before], schedules[after])
        assert [each["title"] for each in tab.timelines()] == [before, after]
        rows = tab.test.dataframe[1].value
        assert list(rows["Difference (steps)"])[-1] == found.makespan == sum(rows["Difference (steps)"][:-1])
        assert list(rows["Before (steps)"])[-1] == schedules[before].makespan
        text = " ".join(each.value for each in tab.test.markdown).replace("\\", "")
        assert all(sentence in text for sentence in difference_sentences(found, before, after))

    is_shown("1F1B, v-shape-4", "Sequential, v-shape-4")  # the reference, and the shortest of the others that fit
    tab.choose("From", "GPipe, v-shape-4")
    tab.choose("To", "1F1B, v-shape-4")
    is_shown("GPipe, v-shape-4", "1F1B, v-shape-4")
    assert App("compare", **tab.address).test.button_group[0].value == "Difference"


def test_one_schedule_has_no_difference() -> None:
    tab = compared("1f1b")
    tab.look_at("Difference")
    assert tab.says("Add a second schedule to see a difference.")


def test_unequal_work_has_no_common_chance() -> None:
    tab = compared("1f1b", "sequential")
    tab.choose("Plan", "m-shape-4")
    tab.test.multiselect[0].set_value(["1f1b+"])
    tab.run().press("Add").wait(lambda: answered(tab))
    tab.look_at("Jitter")
    texts = [note["text"] for note in figures(tab)[0]["layout"]["annotations"]]
    assert texts == ["chance to win", "<b>100.0%</b>", "<b>0.0%</b>"]
    assert "Only schedules of equal work compete" in captions(tab)


def test_the_curve_over_micro_batches_ends_where_it_should() -> None:
    tab = compared("1f1b", "sequential")
    tab.look_at("Against micro-batches").press("Compute the curve")
    tab.wait(lambda: not tab.test.get("progress"))
    lines = [trace for trace in figures(tab)[0]["data"] if trace["showlegend"]]
    assert [len(line["x"]) for line in lines] == [10, 10]
    assert lines[0]["y"][3] == 100 * (1 - 8 * 4 / 44)


def test_the_curve_over_memory_marks_what_is_proved() -> None:
    tab = compared("1f1b")
    tab.look_at("Against memory").press("Compute the curve")
    tab.wait(lambda: not tab.test.get("progress"))
    marks = {trace["name"]: trace["y"] for trace in figures(tab)[0]["data"] if trace["mode"] == "markers"}
    assert marks["proved optimal"][:2] == [16, 8]
    assert min(marks["proved optimal"]) == 4


def test_a_link_opens_the_same_view_of_the_same_pairs() -> None:
    tab = compared("1f1b", "sequential")
    tab.look_at("Idle time").run()
    again = App("compare", **{k: v if isinstance(v, str) else v[0] for k, v in tab.test.query_params.items()})
    assert again.work.comparison == tab.work.comparison
    assert again.test.button_group[0].value == "Idle time"
    link = {k: v if isinstance(v, str) else v[0] for k, v in tab.test.query_params.items()} | {"compare": "bubbles"}
    assert App("compare", **link).test.button_group[0].value == "Idle time", "links of before open"


def test_what_is_wrong_with_all_is_said_once() -> None:
    tab = compared("1f1b", "sequential").press("Add")
    assert len(tab.says("Not added: 1F1B, Sequential.")) == 1


def test_clearing_takes_all_pairs_off() -> None:
    tab = compared("1f1b").press("Clear")
    assert tab.work.comparison.pairs == ()
    assert tab.says("Nothing to compare yet")
    tab.press("Undo")
    assert [row["Pair"].split(",")[0] for row in table(tab)] == ["1F1B"]


def test_what_is_added_at_once_is_one_step() -> None:
    tab = compared("1f1b", "gpipe", "sequential").press("Undo")
    assert tab.work.comparison.pairs == ()


def test_one_press_fills_the_list_with_one_model_under_many_schedules() -> None:
    quick = TesselConfig(time_limit=0.1, polish=0.0, workers=1)
    tab = App.on("compare", replace(small_work(load_sample("v-shape-4"), 8), configs={"tessel": quick}))
    tab.choose("Network", "gpt-6.7b")
    tab.choose("Devices", 4)
    tab.press("Compare all").wait(lambda: answered(tab))
    pairs = tab.work.comparison.pairs
    assert {pair.micro_batches * pair.plan.samples for pair in pairs} == {16}
    rows = {row["Pair"].split(" (")[0]: row for row in table(tab)}
    assert len(rows) == len(pairs)
    for pair in ("1F1B, gpt-6.7b-v-4", "ZB-V, gpt-6.7b-zb-v-4", "DualPipe, gpt-6.7b-split-x-4"):
        assert rows[pair]["Time per sample (ms)"] > 138.7 / 4
    assert "gpt-6.7b-sharded-4 has 0.663 % more work per sample than gpt-6.7b-v-4" in captions(tab)
    tab.choose("Micro-batches", 7)
    assert tab.says("has 4 samples per micro-batch, which do not divide the 14 samples")
    assert tab.work.comparison.pairs == pairs
    tab.choose("Devices", 1).press("Compare all")
    assert tab.says("Devices: must be between 2 and 64, got 1")
    assert tab.work.comparison.pairs == pairs
    tab.choose("Devices", 4).choose("Network", "gpt-175b")
    tab.press("Compare all")
    for sentence in ("Without the form Sharded vocabulary", "No form suits 1F1B+."):
        assert sentence in captions(tab)


def test_a_reload_goes_on_with_the_map() -> None:
    tab = compared("1f1b", "gpipe").look_at("What if").press("Solve the map")
    assert tab.address["map"] == "micro_batches.capacity.built"
    again = App("compare", **tab.address)
    state = again.test.session_state["tessel"].of(WhatIfState)
    assert state.map == tab.test.session_state["tessel"].of(WhatIfState).map is not None
    assert App("compare", **{**tab.address, "map": "here.there"}).says("map: must name two sliders and all or built")
