"""Graph, placement and published files: what is written reads back, and errors give one sentence with the place."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.graphs import random_graph

from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError
from tessel_core.formats import (
    GraphFile,
    MeshFile,
    PlacementFile,
    graph_text,
    placement_text,
    read_graph,
    read_placement,
)
from tessel_core.formats.files import read_any, read_known, read_text
from tessel_core.formats.graph_file import SplitFile, graph_file_text, split_placement
from tessel_core.formats.placement_file import PlacementTerms, bound_placement
from tessel_core.model import Allowance, Communication, DevicePool, DeviceTime, OperatorGraph, Transfers
from tessel_core.placement import PlacementProblem, solve_placement

GRAPH: dict[str, Any] = {
    "format": "tessel-graph",
    "version": 1,
    "name": "two layers",
    "operators": [
        {"name": "a", "kind": "layer", "time": {"h200": 1e-3, "cpu": 2e-2}, "flops": 5e9, "weight_bytes": 10},
        {"name": "b", "time": {"h200": 2e-3}, "activation_bytes": 7, "colour": "red", "output_bytes": None},
        {"name": "c", "time": {"h200": 2e-3}, "backward": True, "forward_of": "b", "bytes": 12.5},
    ],
    "edges": [{"from": "a", "to": "b", "bytes": 4}, {"from": "b", "to": "c"}],
    "batch_size": 8,
}
TIMES = DeviceTime("gpu", 1 / 3), DeviceTime("cpu", 2.0)
PUBLISHED: dict[str, Any] = {
    "maxSizePerFPGA": 8.0,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {"id": 7, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 1.5, "isBackwardNode": 0, "colorClass": 3},
        {"id": 8, "supportedOnFpga": False, "cpuLatency": 4.0, "fpgaLatency": 1, "isBackwardNode": False, "size": 2},
        {"id": 9, "supportedOnFpga": True, "cpuLatency": 4, "fpgaLatency": 1, "isBackwardNode": True, "colorClass": 3},
    ],
    "edges": [{"sourceId": 7, "destId": 8, "cost": 0.5, "size": 1}, {"sourceId": 7, "destId": 9, "cost": 0.5}],
}


def bytes_of(document: object) -> bytes:
    return json.dumps(document).encode()


def test_a_graph_is_read_field_by_field() -> None:
    a, b, c = read_graph(bytes_of(GRAPH)).graph.operators
    assert (a.time_on("h200"), a.time_on("cpu"), b.time_on("cpu"), a.flops, a.kind) == (1e-3, 2e-2, None, 5e9, "layer")
    assert (a.memory, b.memory, b.colour, b.forward_of, c.forward_of, c.backward, c.bytes) == (
        *(10, 7, "red", None, "b"),
        *(True, 12.5),
    )


@pytest.mark.parametrize("kind", ["graph", "published"])
def test_graphs_round_trip_and_keep_their_fingerprint(kind: str) -> None:
    if kind == "graph":
        first = read_graph(bytes_of(GRAPH))
        second = read_graph(graph_text(first.graph).encode())
        text = json.dumps(json.loads(graph_text(first.graph)), sort_keys=True, separators=(",", ":"))
        assert first.fingerprint == hashlib.sha256(text.encode()).hexdigest()
    else:
        first = read_graph(bytes_of(PUBLISHED))
        assert first.pool is not None
        second = read_graph(graph_file_text(first).encode())
    assert first == second


def test_a_published_graph_is_read_field_by_field() -> None:
    file = read_graph(bytes_of(PUBLISHED))
    assert file.pool == DevicePool(2, 1, 8.0)
    seven, eight, nine = file.graph.operators
    assert (seven.name, seven.time_on("accelerator"), seven.time_on("cpu"), seven.colour) == ("7", 1.5, 9.0, "3")
    assert (eight.time_on("accelerator"), eight.size, eight.colour, seven.size) == (None, 2.0, None, 0.0)
    assert (nine.backward, file.graph.output_cost, file.graph.time_unit) == (True, (0.5, 0.0, 0.0), "ms")


GRAPH_FAULTS = [
    ("version", 2, "version"),
    ("batch_size", 0, "batch_size"),
    ("time_unit", "ms", "must be 's'"),
    ("extra", 1, "unknown key 'extra'"),
    ("operators", [], "needs at least one"),
    ("operators.0.name", "b", "duplicate name 'b'"),
    ("operators.0.time", {"cpu": -1.0}, "must not be negative"),
    ("operators.0.time", {"cpu": "fast"}, "must be a finite number"),
    ("operators.0.weight_bytes", 1.5, "must be an integer"),
    ("operators.0.weight_bytes", -1, "must be at least 0"),
    ("operators.0.backward", 1, "must be true or false"),
    ("operators.0.forward_of", "b", "forward_of must name the forward operator"),
    ("operators.2.forward_of", "z", "unknown operator 'z'"),
    ("operators.2.backward", False, "forward_of must name the forward operator"),
    ("edges.0.to", "z", "unknown operator 'z'"),
    ("edges.0.to", "a", "form a cycle: a -> a"),
    ("edges.1", {"from": "c", "to": "a"}, "from a backward operator to a forward operator"),
    ("edges.1", {"from": "a", "to": "b"}, "duplicate name 'a -> b'"),
    ("edges.1", {"from": "b", "to": "a"}, "form a cycle"),
]
PUBLISHED_FAULTS = [
    ("maxFPGAs", -1, "must be at least 0"),
    ("maxSizePerFPGA", None, "maxSizePerFPGA is null"),
    ("nodes.0.cpuLatency", -2, "must not be negative"),
    ("nodes.0.fpgaLatency", None, "fpgaLatency is null"),
    ("nodes.0.supportedOnFpga", 2, "must be true, false, 0 or 1"),
    ("nodes.0.isBackwardNode", "no", "must be an integer"),
    ("nodes.0.colorClass", "red", "must be an integer"),
    ("nodes.1.id", 7, "duplicate name '7'"),
    ("edges.1.cost", 0.75, "one output has one cost"),
    ("edges.1.cost", -1, "must not be negative"),
    ("edges.1.destId", 99, "unknown operator '99'"),
    ("edges.1", {"sourceId": 8, "destId": 7, "cost": 0.5}, "form a cycle"),
    ("edges.1", {"sourceId": 9, "destId": 8, "cost": 0.5}, "from a backward operator to a forward operator"),
]


def broken(document: dict[str, Any], path: str, value: object) -> bytes:
    copy = deepcopy(document)
    *way, last = path.split(".")
    at: Any = copy
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return bytes_of(copy)


@pytest.mark.parametrize(("path", "value", "why"), GRAPH_FAULTS)
def test_a_wrong_graph_is_one_sentence(path: str, value: object, why: str) -> None:
    with pytest.raises(InputError, match=why) as raised:
        read_known(broken(GRAPH, path, value), "g.json")
    assert str(raised.value).startswith("g.json: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("path", "value", "why"), PUBLISHED_FAULTS)
def test_a_wrong_published_graph_is_one_sentence(path: str, value: object, why: str) -> None:
    with pytest.raises(InputError, match=why) as raised:
        read_known(broken(PUBLISHED, path, value), "g.json")
    assert str(raised.value).startswith("g.json: ")


@pytest.mark.parametrize("key", ["cpuLatency", "fpgaLatency", "supportedOnFpga", "isBackwardNode", "id"])
def test_a_published_cost_that_is_missing_is_named(key: str) -> None:
    document = deepcopy(PUBLISHED)
    del document["nodes"][1][key]
    with pytest.raises(InputError, match=rf"nodes\[1\]: '{key}' is missing"):
        read_known(bytes_of(document), "g.json")


def test_colours_that_force_a_cycle_are_refused() -> None:
    """a -> b -> c, with a and c of one colour: b would have to run both after and before their stage."""
    operators = [{"name": name, "time": {"cpu": 1}, "colour": "y" if name == "b" else "x"} for name in "abc"]
    document = {
        **GRAPH,
        "operators": operators,
        "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}],
    }
    with pytest.raises(InputError, match="form a cycle: a -> b -> a"):
        read_known(bytes_of(document), "g.json")


@pytest.mark.parametrize("seed", range(20))
def test_a_placement_round_trips_on_its_graph(seed: int) -> None:
    pool = DevicePool(2, 2)
    graph = OperatorGraph("any", tuple(replace(each, times=TIMES) for each in random_graph(seed).operators))
    file = GraphFile(graph, None, "f" * 64)
    report = solve_placement("dp", PlacementProblem.on_pool(file.graph, pool))
    assert report.solution is not None
    kept = read_placement(placement_text(report, file, pool, contiguous=True).encode())
    assert (kept.graph, kept.pool, kept.mesh) == ("f" * 64, pool, None)
    assert bound_placement(kept, file) == report.solution
    assert kept.report is not None
    assert kept.report.status is report.status
    assert kept.report.objective == pytest.approx(float(report.objective or 0))


PLACEMENT: dict[str, Any] = {
    "format": "tessel-placement",
    "version": 1,
    "graph": "0" * 64,
    "mesh": None,
    "devices": {"accelerators": 2, "cpus": 1, "memory": None},
    "assignment": {"a": "acc0", "b": ["acc0", "acc1"], "c": "cpu0"},
    "report": None,
}


REPORT = {"status": "FEASIBLE", "objective_name": "throughput", "objective": 1, "bound": 1, "wall_s": 0}


def test_what_a_placement_depended_on_round_trips() -> None:
    graph, mesh = read_graph(bytes_of(GRAPH)), MeshFile.of(uniform_mesh("h200", 1, 2))
    terms = PlacementTerms(Communication.BLOCKING, {"dtype": "fp16", "in_flight": 3}, (Allowance("a", ("gpu1",)),))
    problem = PlacementProblem.on_mesh(graph.graph, mesh.mesh, allowances=terms.allowances)
    report = solve_placement("dp", problem)
    kept = read_placement(placement_text(report, graph, mesh, terms, contiguous=True).encode())
    assert (kept.graph, kept.mesh, kept.pool, kept.terms) == (graph.fingerprint, mesh.fingerprint, None, terms)
    bound = bound_placement(kept, graph, mesh.mesh)
    assert (bound.devices, bound.transfers) == (
        mesh.mesh.placement_devices,
        Transfers(mesh.mesh, Communication.BLOCKING),
    )
    assert report.solution is not None
    assert bound.assignment == report.solution.assignment
    assert bound.assignment[0] == (1,)


def test_what_a_placement_does_not_say_is_the_default() -> None:
    for report in (None, REPORT):
        kept = read_placement(bytes_of({**PLACEMENT, "report": report}))
        assert kept.terms == PlacementTerms(Communication.OVERLAPPED, {}, ())


def test_an_operator_may_be_on_several_devices() -> None:
    kept, file = read_placement(bytes_of(PLACEMENT)), read_graph(bytes_of(GRAPH))
    assert bound_placement(kept, file).assignment == ((0,), (0, 1), (2,))


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("assignment.a", "acc7", "assignment.a: unknown device 'acc7'"),
        ("assignment.z", "acc0", "assignment: unknown operator 'z'"),
        ("assignment.a", 3, "must be a list"),
        ("assignment.a", [3], "must be the name of a device"),
        ("assignment.a", ["acc0", "acc0"], "must name distinct devices"),
        ("devices", None, "contains the devices"),
        ("devices.cpus", -1, "must be at least 0"),
        ("report", {"status": "FINE"}, "must be one of"),
        ("report", {**REPORT, "communication": "fast"}, "must be one of blocking, overlapped, got 'fast'"),
        ("report", {**REPORT, "costs": {"dtype": []}}, "report.costs.dtype: must be a finite number, got a list"),
        ("report", {**REPORT, "allowances": {"z": []}}, "report.allowances: unknown operator 'z'"),
        ("report", {**REPORT, "allowances": {"a": "acc7"}}, "report.allowances.a: unknown device 'acc7'"),
    ],
)
def test_a_wrong_placement_is_one_sentence(path: str, value: object, why: str) -> None:
    with pytest.raises(InputError, match=why):
        bound_placement(read_placement(broken(PLACEMENT, path, value)), read_graph(bytes_of(GRAPH)))


def test_a_split_puts_backward_operators_with_their_mates() -> None:
    file = read_graph(bytes_of(PUBLISHED))
    split = SplitFile((("7",),), (("8",),))
    assert file.pool is not None
    assert split_placement(split, file.graph, file.pool).assignment == ((0,), (2,), (0,))
    for wrong, why in (
        (SplitFile((("7",), ("8",), ("9",)), ()), "fpgas: the split uses 3, but there are 2"),
        (SplitFile((("5",),), ()), "unknown operator '5'"),
        (SplitFile((("7",),), (("7",),)), "operator 7 is on two devices"),
        (SplitFile((("7",),), ()), "operator 8: is not in the split"),
    ):
        with pytest.raises(InputError, match=why):
            split_placement(wrong, file.graph, file.pool)


def test_kinds_of_files_are_told_apart(tmp_path: Path) -> None:
    for document, kind in (
        (GRAPH, GraphFile),
        (PUBLISHED, GraphFile),
        (PLACEMENT, PlacementFile),
        ({"fpgas": [{"nodes": [1], "load": -1}], "cpus": [], "maxLoad": -1}, SplitFile),
    ):
        (tmp_path / "f.json").write_bytes(bytes_of(document))
        assert isinstance(read_any(tmp_path / "f.json"), kind)
    with pytest.raises(InputError, match=r"g\.json: is an operator graph, but a plan or a schedule is needed"):
        read_text(bytes_of(GRAPH), "g.json")
