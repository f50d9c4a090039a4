"""From the Placement page to schedules: the joint search, opening a result, and undo."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pages.shared.program_state import ProgramState
from pages.shared.session import Session
from tessel_core.control import Control
from tessel_core.workbench import jobs
from tessel_core.workbench.planning import planned

pytestmark = pytest.mark.usefixtures("restart")


@pytest.fixture
def placed(placed) -> Any:
    """Return the page with the joint search open."""
    placed.test.button_group(key="placed-below").set_value("With schedules")
    return placed.run()


def searched(tab: Any) -> Any:
    """Return the page after a joint search of three placements, with enough micro-batches for a repetend."""
    tab.choose("Placements", 3).choose("Micro-batches", 24).choose("Time limit (s)", 20.0).press("Search both")
    return tab.wait(lambda: any(button.label == "Open this schedule" for button in tab.test.button))


def table(tab: Any) -> dict[str, list[Any]]:
    return {column: list(values) for column, values in tab.test.dataframe[0].value.items()}


def choose_row(tab: Any, row: int) -> Any:
    """Select a row of the table, as a user does with a click."""
    session: Session = tab.test.session_state["tessel"]
    tab.test.session_state[session.key("joint-table-3")] = {"selection": {"rows": [row], "columns": []}}
    return tab.run()


def test_placements_and_schedules_are_searched_together_and_ranked(placed) -> None:
    found = table(searched(placed))
    assert found["against the first"][found["placement"].index("least largest load")] == "1.000 ×"
    assert found["rank"] == ["best", "2", "3"]
    ratios = [float(each.split()[0]) for each in found["against the first"]]
    assert min(ratios) == ratios[0] <= 1
    assert placed.says("per micro-batch"), "with what is proved of it"


def test_a_placement_of_the_joint_search_is_taken_over_and_given_back(placed) -> None:
    before = searched(placed).work.placing.assignment
    choose_row(placed, 2).press("Use this placement")
    assert placed.work.placing.assignment != before
    assert placed.says("Largest load")
    placed.press("Undo")
    assert placed.work.placing.assignment == before


def test_the_best_schedule_opens_with_its_plan(placed, restart, app) -> None:
    best = table(searched(placed))["rank"].index("best")
    period = table(placed)["period"][best]
    placed.press("Open this schedule").go("schedule")
    assert placed.numbers()["Time per micro-batch"] == period
    assert placed.work.source.startswith("placement of mlp-8-training on h200-8: ")
    assert placed.work.micro_batches == 24
    token, plan = placed.work.token, placed.work.plan
    restart()
    again = app("schedule", work=token)
    assert again.work.plan == plan
    assert again.numbers()["Time per micro-batch"] == period, "the schedule is kept"


def test_the_joint_search_is_for_throughput_only(placed) -> None:
    placed.choose("Objective", "Forward + backward, contiguous")
    assert placed.says("to search placement and schedule together")
    assert all(button.label != "Search both" for button in placed.test.button)


def deliver_and_linger(control: Control, part: object) -> None:
    """Delay the end of the search. Otherwise it may end before a busy machine can cancel it."""
    control.parts.append(part)
    until = time.monotonic() + 20
    while not control.stopped and time.monotonic() < until:
        time.sleep(0.01)


def test_cancelled_it_keeps_what_is_done(app, monkeypatch) -> None:
    patient = jobs.Jobs(patience_s=60)  # on a busy machine, the page may not poll for seconds, like a closed tab
    monkeypatch.setattr(jobs, "submit", patient.submit)
    monkeypatch.setattr(jobs, "find", patient.find)
    tab = app("placement", graph="gpt2-xl-training").press("Place")
    tab.wait(lambda: "Phase" not in tab.numbers())
    tab.test.button_group(key="placed-below").set_value("With schedules")
    monkeypatch.setattr(Control, "deliver", deliver_and_linger)
    tab.run().choose("Placements", 64).choose("Time limit (s)", 600.0).press("Search both")
    tab.wait(lambda: tab.test.dataframe and len(table(tab)["rank"]) > 0)
    tab.press("Cancel").wait(lambda: any(button.label == "Use this placement" for button in tab.test.button))
    assert 0 < len(table(tab)["rank"]) < 64
    assert tab.says("per micro-batch")


def test_where_weight_gradients_are_operators_they_can_be_blocks(app) -> None:
    tab = app("graph", graph="swin-t-inference")
    next(box for box in tab.test.checkbox if box.label == "Separate weight gradients").check()
    tab.run().press("Add backward").go("placement").press("Place")
    tab.wait(lambda: "Phase" not in tab.numbers())
    next(box for box in tab.test.checkbox if box.label == "Separate weight gradients").check()
    tab.run().press("Schedule this")
    assert tab.work.plan == planned(tab.work.placing, split_weights=True)
    assert {str(block.kind) for block in tab.work.plan.blocks} == {"forward", "backward", "weight"}


def test_a_zero_bubble_schedule_of_a_placed_graph_splits_its_backward_by_itself(placed) -> None:
    placed.press("Schedule this").go("schedule").look_at("Schedule")
    whole = placed.work.plan
    placed.choose("Scheduler", "zb-h1")
    assert placed.work.plan == planned(placed.work.placing, split_weights=True) != whole
    assert placed.work.scheduler == "zb-h1"
    assert placed.work.source.endswith("backward in halves")
    placed.press("Build")
    assert placed.says("Makespan")
    placed.press("Undo")
    assert placed.work.plan == whole


def test_the_program_of_a_placement_and_its_schedule_is_shown_operator_by_operator(app) -> None:
    tab = app("graph", graph="gpt2-xl-training")
    tab.go("placement").press("Place")
    tab.wait(lambda: "Phase" not in tab.numbers())
    tab.press("Schedule this").go("schedule").look_at("Schedule").choose("Scheduler", "1f1b").press("Build")
    tab.press("Program")
    assert any("as placed, 16 micro" in each.value for each in tab.test.markdown)
    assert {"matmul_grad", "send", "accumulate", "adam"} <= kinds_shown(tab)
    tab.go("program")
    (switch,) = [each for each in tab.test.button_group if "Blocks" in each.options]
    switch.set_value("Blocks")
    assert kinds_shown(tab.run()) == {"block", "delay"}


def kinds_shown(tab: Any) -> set[str]:
    """Return the kinds of the operations of the program on the page."""
    shown = tab.test.session_state["tessel"].of(ProgramState).shown
    return {op.kind for op in shown.trace.program.ops}


def test_a_zero_bubble_schedule_on_compare_splits_the_backward_too(placed) -> None:
    placed.press("Schedule this").go("compare")
    placed.test.multiselect[0].set_value(["1f1b", "zb-h1"])
    placed.press("Add")
    whole, halves = [pair.plan for pair in placed.work.comparison.pairs]
    assert whole == placed.work.plan
    assert halves == planned(placed.work.placing, split_weights=True)


def test_where_weight_gradients_are_merged_away_nothing_is_offered(app) -> None:
    tab = app("placement", graph="gpt2-xl-training")
    assert all(box.label != "Separate weight gradients" for box in tab.test.checkbox)


def test_a_placement_on_groups_is_scheduled_and_shown_operator_by_operator(placed) -> None:
    placed.choose("Tensor-parallel degree", 2)
    placed.place().press("Schedule this").go("schedule").look_at("Schedule").choose("Scheduler", "1f1b").press("Build")
    plan = placed.work.plan
    assert [device.name for device in plan.devices] == [f"gpu{i}" for i in range(8)]
    assert {len(block.devices) for block in plan.blocks} == {2}
    assert placed.work.source == "placement of mlp-8-training on h200-8 in groups of 2"
    placed.go("program")
    assert not placed.test.exception
    assert any("as placed" in each.value for each in placed.test.markdown)
