"""State of the Placement page: edits keep what they can, moves keep groups together, files keep everything."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from helpers.workspaces import published_graph
from hypothesis import given, settings, strategies

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions
from tessel_core.costs.meshes import find_mesh, uniform_mesh
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.formats.placement_file import read_placement
from tessel_core.formats.tables import TableEdits
from tessel_core.model import (
    LATENCY,
    THROUGHPUT,
    Allowance,
    Communication,
    DevicePool,
    Edge,
    Operator,
    OperatorGraph,
    PlacementLoads,
    StageLayout,
    Status,
)
from tessel_core.placement import PLACERS
from tessel_core.workbench.messages.placement import (
    Tone,
    broken_rules,
    outcome_verdict,
    placed_rows,
    placement_numbers,
    placement_verdict,
    placer_rows,
    with_rows,
)
from tessel_core.workbench.placement_files import placement_file_text, with_placement
from tessel_core.workbench.placing import ALL_OBJECTIVES, PLACING, Placing, placing_from
from tessel_core.workbench.planning import plan_source, planned


def chain(count: int = 6) -> GraphFile:
    """Return a chain: forward operators o0 … with backward ones, with memory and without times."""
    forward = [
        Operator(f"o{i}", "matmul", flops=1e12 * (i + 1), bytes=1e9, weight_bytes=10**9, output_bytes=10**6)
        for i in range(count)
    ]
    backward = [
        replace(each, name=f"{each.name}b", backward=True, forward_of=each.name, weight_bytes=0) for each in forward
    ]
    names = [each.name for each in (*forward, *reversed(backward))]
    edges = tuple(Edge(one, other, bytes=10**6) for one, other in pairwise(names))
    return GraphFile.of(OperatorGraph("chain", (*forward, *backward), edges))


def on_two(file: GraphFile | None = None) -> Placing:
    """Return the chain placed on two H200s."""
    placing = Placing().opened(file or chain(), "a test").on(MeshFile.of(uniform_mesh("h200", 1, 2)), "a test")
    return placing.answered(placing.question.solve(Control()))


def devices_of(placing: Placing) -> dict[str, str]:
    placement = placing.placement
    assert placement is not None
    return {
        operator.name: " ".join(placement.devices[device].name for device in on)
        for operator, on in zip(placement.graph.operators, placement.assignment, strict=True)
    }


def verdict(placing: Placing) -> tuple[Tone, str]:
    placement = placing.placement
    assert placement is not None
    found = placement_verdict(placing, placement, PlacementLoads.of(placement))
    return found.tone, found.text


# Moving and pinning


def test_an_answer_says_where_operators_are_and_what_was_proved() -> None:
    placing = on_two()
    assert placing.outcome is not None
    assert placing.outcome.status is Status.PROVED_OPTIMAL
    assert set(devices_of(placing).values()) == {"gpu0", "gpu1"}
    tone, text = verdict(placing)
    assert tone is Tone.PROVED
    assert "proved optimal" in text


def test_a_move_takes_along_what_must_share_the_device_and_keeps_the_bound() -> None:
    before = on_two()
    placing = before.moved(["o0"], "gpu1")
    changed = {name for name, device in devices_of(placing).items() if devices_of(before)[name] != device}
    assert changed == {"o0", "o0b"}
    assert placing.by_hand
    assert placing.outcome == before.outcome
    tone, text = verdict(placing)
    assert tone is Tone.BROKEN
    assert "tensors flow in a circle" in text
    assert verdict(replace(placing, contiguous=False))[0] is Tone.FOUND
    assert placing.moved(["o0"], "gpu0").assignment == before.assignment


def test_by_hand_the_load_stands_beside_the_bound() -> None:
    placing = on_two()
    everything = [operator.name for operator in chain().graph.operators]
    tone, text = verdict(placing.moved(everything, "gpu1"))
    assert tone is Tone.FOUND
    assert "by hand" in text
    assert "none is below" in text


def test_a_pin_holds_against_moves_and_placers_until_it_is_taken_off() -> None:
    placing = on_two().pinned(["o0"], "gpu1")
    assert {pin.operator: pin.devices for pin in placing.pins} == {"o0": ("gpu1",), "o0b": ("gpu1",)}
    assert devices_of(placing)["o0"] == "gpu1"
    with pytest.raises(InputError, match=r"operator o0: is pinned to gpu1\. Unpin it first"):
        placing.moved(["o1", "o0"], "gpu0")
    again = placing.answered(placing.question.solve(Control()))
    assert devices_of(again)["o0"] == "gpu1"
    free = again.unpinned(["o0b"])
    assert free.pins == ()
    assert devices_of(free.moved(["o0"], "gpu0"))["o0"] == "gpu0"


def test_a_bound_outlives_more_pins_but_not_fewer() -> None:
    placing = on_two()
    pinned = placing.pinned(["o0"], devices_of(placing)["o0"])
    assert pinned.outcome == placing.outcome
    assert verdict(pinned)[0] is Tone.PROVED, "the best there is keeps to the pin"
    assert pinned.unpinned(["o0"]).outcome is None
    assert pinned.pinned(["o0"], "gpu1").outcome is None, "elsewhere is another problem"


def test_a_broken_pin_is_told() -> None:
    placing = replace(on_two(), pins=(Allowance("o0", ("gpu1",)),))
    placement = placing.placement
    assert placement is not None
    assert any(
        "Operator o0: is on gpu0, but is only allowed on gpu1" in text for text in broken_rules(placing, placement)
    )


def test_rows_are_edited_like_everything_else() -> None:
    placing = on_two()
    graph, shown = chain().graph, (0, 5)
    moved = with_rows(placing, graph, shown, TableEdits({0: {"device": "gpu1"}}, (), frozenset()))
    assert devices_of(moved)["o0"] == devices_of(moved)["o0b"] == "gpu1"
    pinned = with_rows(placing, graph, shown, TableEdits({1: {"pinned": True}}, (), frozenset()))
    assert {pin.operator for pin in pinned.pins} == {"o5", "o5b"}
    elsewhere = with_rows(pinned, graph, shown, TableEdits({1: {"device": "gpu0"}}, (), frozenset()))
    assert {pin.devices for pin in elsewhere.pins} == {("gpu0",)}, "a pinned operator that is moved is pinned there"
    assert with_rows(pinned, graph, shown, TableEdits({1: {"pinned": False}}, (), frozenset())).pins == ()
    placement = pinned.placement
    assert placement is not None
    assert [row["pinned"] for row in placed_rows(pinned, placement, shown)] == [False, True]


# Edits of what is placed, and on what


def test_an_edited_graph_keeps_its_operators_where_they_are() -> None:
    placing = on_two().pinned(["o0"], "gpu0")
    graph = chain().graph
    operators = (*(each for each in graph.operators if each.name != "o0b"), Operator("new", flops=1.0))
    edges = tuple(edge for edge in graph.edges if "o0b" not in (edge.source, edge.target))
    edited = placing.edited(replace(graph, operators=operators, edges=edges))
    before, after = devices_of(placing), devices_of(edited)
    assert after.pop("new") == ""
    assert after == {name: device for name, device in before.items() if name != "o0b"}
    assert {pin.operator for pin in edited.pins} == {"o0"}
    assert edited.outcome is None
    tone, text = verdict(edited)
    assert tone is Tone.BROKEN
    assert "Operator new: has no device" in text


def test_on_another_mesh_operators_stay_on_devices_of_the_same_name() -> None:
    placing = on_two()
    wider = placing.on(MeshFile.of(find_mesh("h200-4")), "a preset")
    assert devices_of(wider) == devices_of(placing)
    assert wider.outcome is None
    narrow = placing.on(MeshFile.of(find_mesh("h200-1")), "a preset")
    assert set(devices_of(narrow).values()) == {"gpu0", ""}


def test_a_renamed_device_keeps_its_operators_and_pins() -> None:
    placing = on_two().pinned(["o0"], "gpu0")
    mesh = placing.mesh.mesh
    first = replace(mesh.devices[0], name="left")
    renamed = placing.with_mesh(replace(mesh, devices=(first, *mesh.devices[1:])))
    assert devices_of(renamed)["o0"] == "left"
    assert renamed.pins[0].devices == ("left",)


def test_another_graph_begins_anew_and_a_published_one_brings_its_devices() -> None:
    placing = on_two().opened(published_graph(3), "file x.json")
    assert placing.assignment is None
    assert not placing.on_mesh
    assert placing.pool == DevicePool(3, 1, 16e9)
    placed = placing.answered(placing.question.solve(Control()))
    assert verdict(placed)[0] is Tone.PROVED
    with pytest.raises(InputError, match="its times are in ms, but times on a mesh are in s"):
        _ = replace(placing, on_mesh=True).problem


def test_published_inputs_stay_what_their_format_can_say() -> None:
    placing = Placing().opened(published_graph(3), "file x.json")
    assert placing.graph is not None
    graph = placing.graph.graph
    named = replace(graph.operators[0], name="first")
    edges = tuple(e for e in graph.edges if graph.operators[0].name not in (e.source, e.target))
    with pytest.raises(InputError, match="operator first: its name must be a whole number in a published input"):
        placing.edited(replace(graph, operators=(named, *graph.operators[1:]), edges=edges))


def test_costs_change_the_problem_and_with_it_what_was_proved() -> None:
    placing = on_two()
    assert placing.costing(placing.costs, placing.communication) is placing
    dearer = placing.costing(CostOptions(dtype="fp32"), Communication.BLOCKING)
    assert dearer.outcome is None
    assert dearer.assignment == placing.assignment


# Objectives


@pytest.mark.parametrize("objective", ALL_OBJECTIVES)
def test_every_objective_has_a_placer_and_its_answer_says_what_it_reached(objective: str) -> None:
    placing = on_two(chain(3)).wanting(objective, contiguous=True)
    assert objective in PLACERS[placing.placer].objectives
    placing = placing.answered(placing.question.solve(Control()))
    placement = placing.placement
    assert placement is not None
    loads = PlacementLoads.of(placement)
    assert verdict(placing)[0] is Tone.PROVED
    assert placement_numbers(placing, placement, loads)[0].label == "Largest load"
    assert placing.wanting(THROUGHPUT, contiguous=True).placer in PLACERS


def test_a_latency_of_a_placement_for_throughput_is_known_at_once() -> None:
    placing = on_two(chain(3))
    assert placing.subgraphs is None
    waiting = placing.wanting(LATENCY, contiguous=False)
    assert waiting.contiguous, "subgraphs are contiguous"
    assert waiting.subgraphs == (0,) * 6


# Words


def test_an_answer_without_a_placement_says_what_would_do_and_moves_nothing() -> None:
    file = chain()
    heavy = tuple(replace(each, weight_bytes=4 * 10**9) for each in file.graph.operators)
    placing = on_two()
    placing = placing.edited(replace(file.graph, operators=heavy))
    report = placing.question.solve(Control())
    after = placing.answered(report)
    assert after.assignment == placing.assignment
    assert after.outcome is not None
    said = outcome_verdict(after.outcome)
    assert said is not None
    assert said.tone is Tone.BROKEN
    assert "infeasible" in said.text
    assert "3 accelerators of the same memory or " in said.text


def test_placers_are_compared_in_one_table() -> None:
    placing = on_two()
    reports = [(name, placing.question_to(name).solve(Control()), "") for name in ("dp", "one-device")]
    rows = placer_rows([*reports, ("by-order", None, "")], "s")
    assert rows[0]["against the best"] == "1.000 ×"
    assert float(str(rows[1]["against the best"]).split()[0]) > 1
    assert rows[0]["status"] == "proved optimal"
    assert rows[2]["why"] == "waiting"


# On to the plan, and into files


def test_the_plan_of_a_placement_is_as_busy_as_its_largest_load() -> None:
    placing = on_two()
    placement = placing.placement
    assert placement is not None
    plan = planned(placing)
    busiest = max(sum(b.duration for b in plan.blocks if d in b.devices) for d in range(len(plan.devices)))
    assert busiest == pytest.approx(PlacementLoads.of(placement).largest * 1e9, abs=len(plan.blocks))
    assert plan_source(placing) == "placement of chain on h200-2"


@given(strategies.data())
@settings(max_examples=40, deadline=None)
def test_whatever_was_decided_comes_back_from_a_file(data: strategies.DataObject) -> None:
    placing = on_two(chain(3))
    names = [operator.name for operator in chain(3).graph.operators]
    for _ in range(data.draw(strategies.integers(0, 5))):
        operator, device = (
            data.draw(strategies.sampled_from(names)),
            data.draw(strategies.sampled_from(["gpu0", "gpu1"])),
        )
        act = data.draw(strategies.sampled_from(["move", "pin", "unpin", "objective", "costs"]))
        with suppress(InputError):  # a move against a pin
            placing = {
                "move": lambda p, o=operator, d=device: p.moved([o], d),
                "pin": lambda p, o=operator, d=device: p.pinned([o], d),
                "unpin": lambda p, o=operator: p.unpinned([o]),
                "objective": lambda p: p.wanting(LATENCY, contiguous=True),
                "costs": lambda p: p.costing(CostOptions(in_flight=4), Communication.BLOCKING),
            }[act](placing)
    assert placing_from(PLACING.write(placing), placing.graph, placing.mesh) == placing


OUTCOME = {
    "placer": "dp",
    "status": "FEASIBLE",
    "objective_name": "throughput",
    "objective": 2,
    "wall_s": 0.1,
    "reason": "",
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"placer": "magic"}, "placing.placer: 'magic' is not known"),
        ({"objective": "fame"}, "placing.objective: must be one of throughput"),
        ({"communication": "loud"}, "placing.communication: must be one of blocking, overlapped, got 'loud'"),
        ({"costs": {"dtype": "fp3"}}, "placing.costs: Number format: must be one of"),
        ({"options": {"dp": {"most_ideals": -1}}}, "placing.options.dp: Most cuts: must be between"),
        ({"options": {"magic": {}}}, "placing.options: 'magic' is not known"),
        ({"assignment": [0]}, "placing.assignment: has 1 entries, the graph has 12 operators"),
        ({"assignment": [2] * 12}, "placing.assignment[0]: must name distinct devices from 0 to 1, got [2]"),
        ({"assignment": [[0, "x"]] * 12}, "placing.assignment[0][1]: must be an integer, got 'x'"),
        ({"subgraphs": [0]}, "placing.subgraphs: has 1 entries"),
        ({"subgraphs": [-1]}, "placing.subgraphs[0]: must be at least 0, got -1"),
        ({"outcome": {**OUTCOME, "bound": -1}}, "placing.outcome.bound: must not be negative, got -1"),
        ({"subgraphs": None, "by_hand": 1}, "placing.by_hand: must be true or false, got 1"),
        ({"pins": {"nobody": ["gpu0"]}}, "placing.pins.nobody: there is no such operator"),
        ({"pins": {"o0": ["gpu9"]}}, "placing.pins.o0: unknown device 'gpu9'"),
        ({"pool": {"accelerators": 0, "cpus": 0}}, "placing.pool: devices: there are none"),
        ({"outcome": {"placer": "dp"}}, "placing.outcome: 'status' is missing"),
        ({"colour": "red"}, "placing: unknown key 'colour'"),
    ],
)
def test_what_does_not_belong_together_is_refused(change: dict[str, object], complaint: str) -> None:
    placing = on_two()
    with pytest.raises(InputError) as error:
        placing_from({**PLACING.write(placing), **change}, placing.graph, placing.mesh)
    assert str(error.value).startswith(complaint)


def test_a_placement_without_its_graph_is_refused() -> None:
    with pytest.raises(InputError, match="placing: places operators, but the file has no graph"):
        placing_from(PLACING.write(on_two()), None, None)


def in_stages() -> Placing:
    """Return the chain placed on two H200s, in a loop of two stages per device."""
    placing = on_two().wanting(THROUGHPUT, contiguous=True, layout=StageLayout(2))
    return placing.answered(placing.question.solve(Control()))


def test_a_layout_is_kept_moved_and_left() -> None:
    placing = in_stages()
    assert placing.placers == ("layout",)
    assert verdict(placing)[0] is Tone.PROVED
    assert "no layout of 2 stages per device in a loop" in verdict(placing)[1]
    assert placing_from(PLACING.write(placing), placing.graph, placing.mesh) == placing
    text = placement_file_text(placing)
    opened = with_placement(on_two(), read_placement(text.encode()))
    assert (opened.layout, opened.stages, opened.assignment) == (placing.layout, placing.stages, placing.assignment)
    moved = placing.moved(["o0"], "gpu1")
    assert moved.stages is not None
    assert moved.stages[0] == 1, "the nearest stage of the device"
    assert verdict(moved)[0] is Tone.BROKEN
    left = placing.wanting(THROUGHPUT, contiguous=True)
    assert (left.layout, left.assignment, left.stages) == (None, None, None)
    smaller = placing.on(MeshFile.of(uniform_mesh("h200", 1, 4)), "a test")
    assert (smaller.layout, smaller.assignment) == (StageLayout(2), None)


@pytest.mark.parametrize(("objective", "layout"), [(LATENCY, None), (THROUGHPUT, StageLayout(2))])
def test_replicas_end_where_they_are_not_for_what_is_asked(objective: str, layout: StageLayout | None) -> None:
    replicated = on_two().replicating(ReplicaOptions())
    placing = replicated.wanting(objective, contiguous=True, layout=layout)
    assert placing.replicas is None
    assert placing.placers
    assert placing.placer in placing.placers
    assert placing.problem.replication is None
    back = placing.wanting(THROUGHPUT, contiguous=True).replicating(ReplicaOptions())
    assert back.placers == replicated.placers
    document = {**PLACING.write(placing), "replicas": PLACING.write(replicated)["replicas"]}
    with pytest.raises(InputError, match=r"placing\.replicas: need .* with one stage per device"):
        placing_from(document, placing.graph, placing.mesh)


def test_stages_without_a_layout_are_no_placing() -> None:
    placing = in_stages()
    with pytest.raises(InputError, match="must have at most 64 stages per device, got 65"):
        placing_from({**PLACING.write(placing), "layout": {"stages_per_device": 65}}, placing.graph, placing.mesh)
    for change in ({"layout": None}, {"stages": None}, {"stages": [0]}):
        with pytest.raises(InputError, match=r"placing\.stages"):
            placing_from({**PLACING.write(placing), **change}, placing.graph, placing.mesh)
