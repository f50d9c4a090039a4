"""Graphs and meshes as tables: each edit changes one cell, a new name reaches all references, the rest is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.workspaces import plain_graph, published_graph
from hypothesis import given
from hypothesis.strategies import integers

from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.costs.meshes import MESHES, find_mesh, uniform_mesh
from tessel_core.errors import InputError
from tessel_core.formats.graph_tables import (
    MAX_TABLE_ROWS,
    edge_columns,
    edge_rows,
    find_edges,
    find_operators,
    operator_columns,
    operator_rows,
    row_pages,
    with_edges,
    with_operators,
)
from tessel_core.formats.mesh_tables import (
    SharedLinks,
    device_rows,
    kind_columns,
    kind_rows,
    link_rows,
    shared_links,
    shown_pool,
    typed_pool,
    with_devices,
    with_kinds,
    with_links,
    with_shared_links,
)
from tessel_core.formats.tables import Row, TableEdits
from tessel_core.model import Connection, DeviceMesh, Edge, Link, Operator, OperatorGraph


def edits(
    changed: dict[int, Row] | None = None, added: tuple[Row, ...] = (), deleted: tuple[int, ...] = ()
) -> TableEdits:
    return TableEdits(changed or {}, added, frozenset(deleted))


GRAPH = OperatorGraph(
    "small",
    (
        Operator("in", "embedding", weight_bytes=100),
        Operator("left", "matmul", flops=2e9, colour="red"),
        Operator("right", "matmul", flops=3e9),
        Operator("left/back", "matmul_backward", backward=True, forward_of="left"),
    ),
    (Edge("in", "left", 8), Edge("in", "right", 8), Edge("right", "left/back", 4)),
)
EVERYTHING = (0, 1, 2, 3)


# Operators


@given(integers(0, 10**6))
def test_whole_rows_typed_again_change_nothing(seed: int) -> None:
    for graph in (plain_graph(seed).graph, published_graph(seed).graph):
        every = tuple(range(len(graph.operators)))
        rows = operator_rows(graph, every)
        assert with_operators(graph, every, edits(dict(enumerate(rows)))) == graph
        shown = tuple(range(len(graph.edges)))
        assert with_edges(graph, shown, edits(dict(enumerate(edge_rows(graph, shown))))) == graph
        assert all(tuple(row) == operator_columns(graph) for row in rows)


def test_a_renamed_operator_takes_its_edges_and_its_backward_along() -> None:
    found = with_operators(GRAPH, EVERYTHING, edits({1: {"operator": "west"}, 0: {"operator": "input"}}))
    assert [each.name for each in found.operators] == ["input", "west", "right", "left/back"]
    assert found.operators[3].forward_of == "west"
    assert [(each.source, each.target) for each in found.edges[:2]] == [("input", "west"), ("input", "right")]


def test_a_deleted_operator_takes_its_edges_along() -> None:
    found = with_operators(GRAPH, (2, 3), edits(deleted=(0,)))
    assert [each.name for each in found.operators] == ["in", "left", "left/back"]
    assert found.edges == (Edge("in", "left", 8),)


def test_rows_are_those_that_were_shown_and_empty_new_rows_are_none() -> None:
    found = with_operators(GRAPH, (2,), edits({0: {"flops": 7.0, "colour": None}}, ({}, {"backward": False})))
    assert found == replace(
        GRAPH, operators=(*GRAPH.operators[:2], replace(GRAPH.operators[2], flops=7.0), GRAPH.operators[3])
    )
    added = with_operators(GRAPH, EVERYTHING, edits(added=({"operator": "new", "weight_bytes": 5},)))
    assert added.operators[-1] == Operator("new", weight_bytes=5)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (edits({1: {"operator": " "}}), "operator left, column operator: is empty"),
        (edits({1: {"operator": "in"}}), "operators: duplicate name 'in'"),
        (edits({1: {"flops": -1}}), "operator left, column flops: must not be negative, got -1"),
        (edits({1: {"flops": float("inf")}}), "operator left, column flops: must be a finite number"),
        (edits({1: {"weight_bytes": 1.5}}), "operator left, column weight_bytes: must be an integer, got 1.5"),
        (edits({1: {"backward": "yes"}}), "operator left, column backward: must be true or false, got 'yes'"),
        (edits({3: {"forward_of": "nobody"}}), "operator left/back: forward_of names an unknown operator 'nobody'"),
        (edits(deleted=(1,)), "operator left/back: forward_of names an unknown operator 'left'"),
        (edits(deleted=EVERYTHING), "operators: the graph has none"),
        (edits(added=({"kind": "matmul"},)), "the new row, column operator: is empty"),
    ],
)
def test_a_wrong_operator_is_named(change: TableEdits, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        with_operators(GRAPH, EVERYTHING, change)
    assert str(error.value).startswith(complaint)


# Edges


def test_one_output_has_one_size_so_it_changes_on_all_its_edges() -> None:
    found = with_edges(GRAPH, (1,), edits({0: {"bytes": 16}}))
    assert [each.bytes for each in found.edges] == [16, 16, 4]
    more = with_edges(GRAPH, (0,), edits(added=({"from": "in", "to": "left/back"}, {})))
    assert more.edges[-1] == Edge("in", "left/back", 8), "a new edge carries what its source sends"
    assert with_edges(GRAPH, (0, 2), edits(deleted=(1,))).edges == GRAPH.edges[:2]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (edits({0: {"to": "nobody"}}), "edge in -> nobody: unknown operator 'nobody'"),
        (edits({0: {"to": None}}), "edge in -> left, column to: is empty"),
        (edits({0: {"to": "right"}}), "edges: duplicate name 'in -> right'"),
        (edits({0: {"bytes": -4}}), "edge in -> left, column bytes: must be at least 0, got -4"),
        (edits(added=({"from": "left", "to": "in"},)), "edges: they form a cycle"),
        (edits(added=({"from": "left/back", "to": "in"},)), "edge left/back -> in: leads from a backward operator"),
    ],
)
def test_a_wrong_edge_is_named(change: TableEdits, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        with_edges(GRAPH, (0, 1, 2), change)
    assert str(error.value).startswith(complaint)


def test_published_graphs_have_sizes_and_costs() -> None:
    graph = published_graph(3).graph
    assert "size" in operator_columns(graph)
    assert edge_columns(graph) == ("from", "to", "cost")
    found = with_operators(graph, (0,), edits({0: {"time on cpu": 9, "size": 7}}))
    assert (found.operators[0].time_on("cpu"), found.operators[0].size) == (9.0, 7.0)


# Search and pages


def test_a_search_looks_at_names_kinds_and_colours() -> None:
    assert find_operators(GRAPH, "") == EVERYTHING
    assert find_operators(GRAPH, " MATMUL ") == (1, 2, 3)
    assert find_operators(GRAPH, "red") == (1,)
    assert find_operators(GRAPH, "nothing") == ()


def test_numbers_are_searched_for_whole() -> None:
    names = ("layer2", "layer2/attention", "layer20", "layer12", "12layer2", "conv_1234")
    graph = OperatorGraph("numbered", tuple(Operator(name) for name in names), ())

    def found(text: str) -> set[str]:
        return {names[i] for i in find_operators(graph, text)}

    assert found("layer2") == {"layer2", "layer2/attention", "12layer2"}
    assert found("2layer2") == {"12layer2"}, "nothing has a whole 2 there, so a part of a number counts"
    assert found("12") == {"layer12", "12layer2"}
    assert found("layer") == set(names) - {"conv_1234"}
    assert found("layer1") == {"layer12"}, "there is no layer1"
    assert found("v_123") == {"conv_1234"}
    assert found("a.ten|") == set(), "text, no pattern"
    assert find_edges(GRAPH, "embed") == (0, 1)


def test_long_tables_come_in_parts() -> None:
    assert row_pages(()) == ((),)
    parts = row_pages(tuple(range(2 * MAX_TABLE_ROWS + 1)))
    assert [len(part) for part in parts] == [MAX_TABLE_ROWS, MAX_TABLE_ROWS, 1]
    assert sum(parts, ()) == tuple(range(2 * MAX_TABLE_ROWS + 1))


# Meshes

SHEETS = {kind: each.device(kind) for kind, each in DEVICE_KINDS.items()}
PAIR = uniform_mesh("h200", 1, 2)


@pytest.mark.parametrize("name", MESHES)
def test_a_preset_typed_again_is_the_same_to_the_bit(name: str) -> None:
    mesh = find_mesh(name)
    assert with_devices(mesh, edits(dict(enumerate(device_rows(mesh)))), SHEETS) == mesh
    assert with_kinds(mesh, edits(dict(enumerate(kind_rows(mesh))))) == mesh
    assert with_shared_links(mesh, shared_links(mesh)) == mesh
    touched = with_links(mesh, edits({0: {}})) if mesh.connections else mesh
    assert touched == mesh


def linked(mesh: DeviceMesh = PAIR) -> DeviceMesh:
    return replace(mesh, connections=(Connection(("gpu0", "gpu1"), Link(1e9, 1e-6)),))


def test_links_follow_a_device_that_is_renamed_or_deleted() -> None:
    renamed = with_devices(linked(), edits({0: {"device": "left"}}), SHEETS)
    assert renamed.connections[0].between == ("left", "gpu1")
    assert with_devices(linked(), edits(deleted=(1,)), SHEETS).connections == ()


def test_a_kind_brings_its_data_sheet_and_a_bare_row_is_one_more_device() -> None:
    found = with_devices(PAIR, edits({1: {"kind": "a100"}}, ({"device": "gpu2"}, {"kind": "cpu"}, {})), SHEETS)
    assert found.devices[1] == SHEETS["a100"].__class__("gpu1", "a100", 0, *_rates("a100"))
    assert found.devices[2] == replace(PAIR.devices[0], name="gpu2")
    assert (found.devices[3].name, found.devices[3].kind) == ("gpu3", "cpu")
    kept = with_devices(PAIR, edits({1: {"kind": "a100", "memory (GB)": 40}}), SHEETS)
    assert kept.devices[1].memory_capacity == 40 * 10**9


def _rates(kind: str) -> tuple[Any, ...]:
    sheet = SHEETS[kind]
    return sheet.memory_capacity, sheet.flops, sheet.memory_bandwidth


def test_a_kind_changes_on_all_its_devices() -> None:
    found = with_kinds(
        PAIR, edits({0: {"bf16 (TFLOP/s)": 500, "fp32 (TFLOP/s)": None, "memory bandwidth (GB/s)": 1000}})
    )
    assert {device.peak("bf16") for device in found.devices} == {500e12}
    assert {device.peak("fp32") for device in found.devices} == {None}
    assert {device.memory_bandwidth for device in found.devices} == {1e12}
    assert kind_columns(found)[:2] == ("kind", "bf16 (TFLOP/s)")


def test_links_are_added_changed_and_shared() -> None:
    found = with_links(linked(), edits({0: {"bandwidth (GB/s)": 2}}))
    assert found.connections[0].link == Link(2e9, 1e-6)
    assert link_rows(found)[0]["latency (µs)"] == pytest.approx(1)
    new: Row = {"from": "gpu0", "to": "gpu1", "bandwidth (GB/s)": 3, "latency (µs)": None}
    assert with_links(PAIR, edits(added=(new,))).connections == (Connection(("gpu0", "gpu1"), Link(3e9)),)
    assert with_links(linked(), edits(deleted=(0,))) == PAIR
    shared = with_shared_links(PAIR, SharedLinks(100.0, 3.0, 10.0, None, 40.0))
    assert (shared.same_node_link, shared.default_link, shared.node_uplink) == (Link(1e11, 3e-6), Link(1e10), 4e10)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: with_devices(PAIR, edits({0: {"device": "gpu1"}}), SHEETS), "devices: duplicate name 'gpu1'"),
        (lambda: with_devices(PAIR, edits({0: {"node": -1}}), SHEETS), "device gpu0, column node: must be at least 0"),
        (lambda: with_devices(PAIR, edits({0: {"node": 1}}), SHEETS), "links: nothing links gpu0 and gpu1"),
        (lambda: with_devices(PAIR, edits(deleted=(0, 1)), SHEETS), "devices: the mesh has none"),
        (lambda: with_kinds(PAIR, edits({0: {"bf16 (TFLOP/s)": -1}})), "kind h200, column bf16 (TFLOP/s): must not be"),
        (lambda: with_links(linked(), edits({0: {"to": "gpu9"}})), "link gpu0 - gpu9: unknown device 'gpu9'"),
        (lambda: with_links(linked(), edits({0: {"bandwidth (GB/s)": None}})), "link gpu0 - gpu1, column bandwidth"),
        (lambda: with_links(linked(), edits({0: {"bandwidth (GB/s)": 0}})), "a link: bandwidth must be"),
        (lambda: with_shared_links(PAIR, SharedLinks(None, None, None, None, None)), "links: nothing links gpu0 and"),
    ],
)
def test_a_wrong_mesh_is_told_in_one_sentence(make: Any, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value).startswith(complaint)
    assert "\n" not in str(error.value)


def test_memory_of_equal_accelerators_is_typed_in_gb() -> None:
    assert typed_pool(4, 1, 16.5).memory == 16.5e9
    assert shown_pool(typed_pool(4, 1, 16.5)) == 16.5
    assert shown_pool(typed_pool(4, 1, None)) is None
    with pytest.raises(InputError, match="devices: there are none"):
        typed_pool(0, 0, None)
