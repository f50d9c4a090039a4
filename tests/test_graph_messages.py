"""Facts about a graph in sentences, for the chosen devices and as far as they are known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from helpers.graphs import random_graph
from helpers.workspaces import published_graph

from tessel_core.costs.meshes import find_mesh
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.model import CPU, DevicePool, DeviceTime, Edge, OperatorGraph
from tessel_core.placement import PlacementProblem
from tessel_core.placement.ideals import count_ideals
from tessel_core.samples import load_graph
from tessel_core.units import show_time
from tessel_core.workbench.messages.graph import graph_numbers
from tessel_core.workbench.placing import Placing


def numbers(placing: Placing) -> dict[str, str]:
    return {number.label: number.value for number in graph_numbers(placing)}


def opened(name: str) -> Placing:
    return Placing().opened(GraphFile.of(load_graph(name)), "a test")


def test_a_graph_is_summed_up_on_the_kind_of_its_mesh() -> None:
    placing = opened("gpt2-xl-training")
    told, graph = numbers(placing), load_graph("gpt2-xl-training")
    assert (told["Operators"], told["Ways to cut"]) == ("100", "51")
    assert told["Time on h200"] == show_time(sum(each.time_on("h200") or 0.0 for each in graph.operators), "s")
    elsewhere = numbers(placing.on(MeshFile.of(find_mesh("v100-1")), "a test"))
    assert "Time on v100" in elsewhere
    assert "Time on h200" not in elsewhere


def test_times_that_only_follow_from_the_mesh_are_told_too() -> None:
    assert "Time on h200" in numbers(opened("mlp-8-training"))


def test_a_published_graph_has_times_on_its_devices() -> None:
    file = published_graph(3)
    told = numbers(Placing().opened(file, "a test"))
    assert {"Time on accelerator", "Time on cpu", "Memory", "Ways to cut"} <= told.keys()
    on_mesh = numbers(replace(Placing().opened(file, "a test"), on_mesh=True))
    assert "Operators" in on_mesh
    assert not [label for label in on_mesh if label.startswith("Time")], "its times are in ms"


def test_ideals_without_number_are_told_as_more() -> None:
    operators = [replace(each, name=f"b{i}/{each.name}", colour=None) for i in range(14) for each in _one()]
    placing = Placing().opened(GraphFile.of(OperatorGraph("wide", tuple(operators), (), "s")), "a test")
    assert numbers(placing)["Ways to cut"] == "> 10,000"


def _one() -> tuple:
    return load_graph("gpt2-xl-training").operators[:1]


@pytest.mark.parametrize("seed", range(20))
def test_ideals_are_the_sets_that_hold_what_they_need(seed: int) -> None:
    graph = random_graph(seed)
    busy = (DeviceTime("accelerator", 1.0), DeviceTime(CPU, 1.0))  # idle operators would follow a neighbour
    plain = tuple(replace(each, times=busy, colour=None, forward_of=None, backward=False) for each in graph.operators)
    graph = replace(graph, operators=plain, edges=tuple(Edge(e.source, e.target, cost=e.cost) for e in graph.edges))
    count = sum(
        all(chosen[a] >= chosen[b] for a, b in graph.arcs) for chosen in product((0, 1), repeat=len(graph.operators))
    )
    problem = PlacementProblem.on_pool(graph, DevicePool(2, 1))
    assert count_ideals(problem, 10**6) == count
    assert count_ideals(problem, count - 1) is None
