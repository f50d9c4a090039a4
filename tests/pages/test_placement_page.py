"""The Placement page: search, proof, moves by hand, comparison, and the way to the schedule. Nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.workspaces import published_graph

from pages.shared.session import Session
from tessel_core.formats.graph_file import graph_file_text
from tessel_core.model import LayoutShape, StageLayout
from tessel_core.model.layout import layout_of

pytestmark = pytest.mark.usefixtures("restart")


def device_of(tab: Any, operator: str) -> str:
    placement = tab.work.placing.placement
    (device,) = placement.assignment[placement.graph.operator_index(operator)]
    return str(placement.devices[device].name)


def select(tab: Any, *operators: str) -> Any:
    """Select operators, as a user does by dragging a box in the drawing."""
    session: Session = tab.test.session_state["tessel"]
    graph = tab.work.placing.graph.graph
    points = [{"customdata": graph.operator_index(name)} for name in operators]
    tab.test.session_state[f"placed-{session.work.token}"] = {"selection": {"points": points}}
    return tab.run()


def search(tab: Any, text: str) -> Any:
    next(each for each in tab.test.text_input if each.label == "Search").set_value(text)
    return tab.run()


def rows(tab: Any, edits: dict[int, dict[str, Any]]) -> Any:
    session: Session = tab.test.session_state["tessel"]
    (key,) = [key for key in session.bases if key.startswith("placed-") and key.endswith(f"-{session.generation}")]
    tab.test.session_state[key] = {"edited_rows": edits, "added_rows": [], "deleted_rows": []}
    return tab.run()


@pytest.fixture
def first(placed) -> str:
    return str(placed.work.placing.graph.graph.operators[0].name)


def test_a_placement_is_found_proved_and_kept(placed, app, restart) -> None:
    assert placed.says("Largest load")
    assert placed.says("proved optimal")
    assert placed.numbers()["Bound"] == placed.numbers()["Largest load"] == placed.numbers()["Period at least"]
    token = placed.work.token
    restart()
    again = app("placement", work=token)
    assert again.work == placed.work
    assert again.says("proved optimal"), "without a search"
    assert again.numbers() == placed.numbers()


def test_without_a_graph_the_page_leads_to_one(app) -> None:
    tab = app("placement").pick("Sample network", "mlp-8-training").press("Open network").go("placement")
    assert tab.says("Press Place")


def test_a_small_graph_has_its_table_and_a_large_one_the_way_to_the_slides(placed, app) -> None:
    shown = choose_below(placed, "Step by step")
    (table,) = [each.proto for each in shown.test.get("bidi_component") if "filling" in each.proto.component_name]
    assert "ideals" in table.mixed.json or "ideals" in table.json
    large = app("placement").pick("Sample network", "flava-inference").press("Open network").go("placement").place()
    assert choose_below(large, "Step by step").says("more than 200 ideals")
    assert large.press("Open the slides").address["level"] == "slides-ideals"


def choose_below(tab: Any, part: str) -> Any:
    next(each for each in tab.test.button_group if part in each.options).set_value(part)
    return tab.run()


def test_what_is_selected_in_the_drawing_is_moved_and_answers_at_once(placed, first) -> None:
    before = placed.numbers()
    select(placed, first).choose("Device", "gpu3").press("Move")
    assert device_of(placed, first) == "gpu3"
    assert placed.numbers()["Largest load"] != before["Largest load"]
    assert placed.numbers()["Period at least"] == placed.numbers()["Largest load"]
    assert placed.numbers()["Bound"] == before["Bound"], "what was proved holds for whatever is moved by hand"
    assert placed.says("tensors flow in a circle")
    placed.press("Undo")
    assert placed.numbers() == before
    assert placed.says("proved optimal")
    placed.press("Redo")
    assert device_of(placed, first) == "gpu3"


def test_what_is_searched_for_is_moved_too(placed) -> None:
    found = search(placed, "relu").work.placing.graph.graph
    names = [each.name for each in found.operators if "relu" in each.kind or "relu" in each.name]
    placed.choose("Device", "gpu7").press("Move")
    assert {device_of(placed, name) for name in names} == {"gpu7"}


def test_a_pin_is_obeyed_by_placers_and_stands_against_moves(placed, first) -> None:
    select(placed, first).choose("Device", "gpu0").press("Pin")
    assert first in {pin.operator for pin in placed.work.placing.pins}
    select(placed, first).choose("Device", "gpu1").press("Move")
    assert placed.says("is pinned to gpu0. Unpin it first. Nothing was moved.")
    placed.place()
    assert device_of(placed, first) == "gpu0"
    select(placed, first).press("Unpin")
    assert placed.work.placing.pins == ()


def test_the_table_moves_and_pins(placed, first) -> None:
    rows(placed, {0: {"device": "gpu5"}})
    assert device_of(placed, first) == "gpu5"
    rows(placed, {0: {"pinned": True}})
    assert {pin.devices for pin in placed.work.placing.pins} == {("gpu5",)}
    rows(placed, {0: {"pinned": False}})
    assert placed.work.placing.pins == ()


def test_devices_costs_and_objective_are_part_of_the_question(placed) -> None:
    placed.choose("Transfers", "blocking")
    assert placed.numbers()["Bound"] == "none yet", "what was proved was about other costs"
    placed.place()
    assert placed.says("proved optimal")
    placed.choose("Objective", "Latency of one sample").choose("Placer", "latency-greedy")
    placed.place()
    assert "Latency" in placed.numbers()
    placed.press("Undo").press("Undo").press("Undo")
    assert placed.work.placing.objective == "throughput"


def test_the_stages_hold_what_is_chosen(placed) -> None:
    placed.choose("Micro-batches in flight", "gpipe")
    assert placed.work.placing.costs.in_flight == "gpipe"
    placed.choose("Micro-batches in flight", "a number").choose("Micro-batches in flight (number)", 3)
    assert placed.work.placing.costs.in_flight == 3
    placed.place()
    assert set(placed.work.placing.placement.held) == {3}


def test_groups_of_devices_share_each_operator(placed) -> None:
    placed.choose("Tensor-parallel degree", 2)
    assert placed.says("Press Place")
    placed.place()
    assert placed.says("proved optimal")
    assert placed.work.placing.placement.devices[0].name == "gpu0..gpu1"
    placed.choose("Tensor-parallel degree", 3)
    assert placed.says("groups of 3 do not divide the 8 devices of h200-8")


def test_branches_are_kept_apart_where_that_is_asked(placed) -> None:
    placed.choose("Objective", "Throughput, branches apart")
    placed.place()
    assert placed.says("no contiguous placement with branches apart has a smaller value")
    assert placed.work.placing.problem.branches_apart
    assert placed.work.placing.placers == ("dp", "cp-sat")


def test_what_does_not_fit_is_told_with_what_would_do_and_the_placement_stays(placed) -> None:
    before = placed.work.placing.assignment
    placed.go("mesh").choose("Preset", "v100-1").press("Open preset").go("placement")
    session: Session = placed.test.session_state["tessel"]
    mesh = placed.work.placing.mesh.mesh
    tiny = replace(mesh, devices=tuple(replace(each, memory_capacity=1000) for each in mesh.devices))
    session.change_placing(placed.work.placing.with_mesh(tiny))
    placed.run()
    placed.place()
    assert placed.says("infeasible")
    assert placed.says("on each accelerator would be enough")
    assert len(placed.work.placing.assignment) == len(before)


def test_a_problem_that_cannot_be_asked_says_why(app) -> None:
    tab = app("graph")
    tab.test.file_uploader[0].set_value(("p.json", graph_file_text(published_graph(3)).encode(), "application/json"))
    tab.run().go("placement")
    tab.place()
    assert tab.says("proved optimal")
    tab.test.radio[0].set_value("The mesh")
    tab.run()
    assert tab.says("its times are in ms, but times on a mesh are in s.")
    assert next(button for button in tab.test.button if button.label == "Place").disabled


def test_placers_that_only_judge_are_not_offered_and_files_take_their_place(placed) -> None:
    (offered,) = [box.options for box in placed.test.selectbox if box.label == "Placer"]
    assert "By hand" not in offered
    assert "Dynamic program" in offered
    assert any("open it under File" in caption.value for caption in placed.test.caption)


def test_placers_are_compared_and_one_is_taken_over(placed) -> None:
    placed.test.button_group(key="placed-below").set_value("Compare placers")
    placed.run().press("Run all placers")
    placed.wait(lambda: "waiting" not in str(table(placed)) and "is at work" not in str(table(placed)))
    found = table(placed)
    assert found["placer"][0] == "Dynamic program"
    assert found["status"][0] == "proved optimal"
    one = found["placer"].index("All on one device") if "All on one device" in found["placer"] else None
    assert one is None or float(found["against the best"][one].split()[0]) >= 1


def table(tab: Any) -> dict[str, list[Any]]:
    return {column: list(values) for column, values in tab.test.dataframe[0].value.items()}


def test_schedule_this_carries_on_to_the_schedule(placed) -> None:
    placed.press("Schedule this")
    assert placed.work.source == "placement of mlp-8-training on h200-8"
    assert len(placed.work.plan.devices) <= 8
    placed.go("schedule").look_at("Schedule").search()
    assert placed.says("proved optimal") or placed.says("Period")
    placed.go("placement")
    assert placed.says("Largest load"), "the placement is still there"


def test_a_placement_with_a_hole_is_no_plan_and_says_so(placed, first) -> None:
    placed.go("graph")
    placed.test.button_group(key="graph-view").set_value("Operators")
    placed.run()
    session: Session = placed.test.session_state["tessel"]
    (key,) = [
        each for each in session.bases if each.startswith("operators") and each.endswith(f"-{session.generation}")
    ]
    added = [{"operator": "new", "flops": 1.0, "bytes": 1.0}]
    placed.test.session_state[key] = {"edited_rows": {}, "added_rows": added, "deleted_rows": []}
    placed.run().go("placement")
    assert placed.says("Operator new: has no device")
    assert placed.numbers()["Period at least"] == "–"
    placed.press("Schedule this")
    assert placed.says("operator new: has no device, but a plan needs one.")


def test_stages_are_replicated_by_a_switch_and_moved_as_one(placed) -> None:
    (switch,) = [each for each in placed.test.toggle if each.label == "Replicate stages"]
    switch.set_value(True)
    placed.run()
    assert [box.options for box in placed.test.selectbox if box.label == "Placer"] == [
        ["Dynamic program", "Data parallel"]
    ]
    placed.place()
    assert placed.says("no contiguous placement with or without replicated stages has a smaller value")
    assert "Replicas" in placed.numbers()
    placement = placed.work.placing.placement
    (stage,) = list(placement.replicated)[:1]
    outside = next((i for i, on in enumerate(placement.assignment) if on != stage), 0)
    name = placement.devices[stage[1]].name
    moved = placed.work.placing.moved([placement.graph.operators[outside].name], name)
    assert moved.assignment[outside] == stage
    (switch,) = [each for each in placed.test.toggle if each.label == "Replicate stages"]
    switch.set_value(False)
    placed.run()
    assert all(len(on) == 1 for on in placed.work.placing.assignment)


@pytest.mark.parametrize(("goal", "shape"), [("Throughput, loop of stages", "loop"), ("Throughput, V of stages", "v")])
def test_stages_go_round_the_devices_or_down_and_up(app, goal: str, shape: str) -> None:
    tab = app("placement", graph="mlp-8-training").choose("Objective", goal)
    tab.choose("Stages per device", 2)
    assert tab.work.placing.layout == StageLayout(2, LayoutShape(shape))
    tab.place()
    assert tab.says("proved optimal: no layout of 2 stages per device")
    placement = tab.work.placing.placement
    assert layout_of(placement) == StageLayout(2, LayoutShape(shape))
    (lanes,) = tab.timelines()
    chunks = {(block["devices"][0], block["chunk"]) for block in lanes["blocks"]}
    assert chunks == {(device, chunk) for device in range(8) for chunk in range(2)}
    assert {block["short"].split(":")[0] for block in lanes["blocks"]} == set(map(str, range(16)))
    moved = select(tab, placement.graph.operators[0].name).choose("Device", "gpu3").press("Move")
    assert moved.says("in stage 3" if shape == "loop" else "but follows")
    moved.press("Undo").choose("Objective", "Throughput, contiguous")
    assert moved.work.placing.layout is None
    assert moved.work.placing.assignment is None
