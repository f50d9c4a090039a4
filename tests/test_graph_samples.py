"""Sample graphs: their documented properties, and their pinned optima."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from tessel_core.errors import InputError
from tessel_core.formats import graph_text
from tessel_core.samples import SAMPLE_FOLDER, list_graphs, load_graph, sample_text

TOOLS = Path(__file__).resolve().parent.parent / "tools"
GRAPHS = {sample.name: sample for sample in list_graphs()}
OPTIMA = json.loads((SAMPLE_FOLDER / "optima.json").read_text(encoding="utf-8"))["optima"]
every_graph = pytest.mark.parametrize("name", GRAPHS)


def test_there_are_small_and_large_ones_for_training_and_inference():
    graphs = [load_graph(name) for name in GRAPHS]
    sizes = sorted(len(graph.operators) for graph in graphs)
    assert len(graphs) >= 8
    assert sizes[0] <= 40
    assert 1900 <= sizes[-1] <= 2500
    assert 3 <= sum(graph.is_training for graph in graphs) <= len(graphs) - 3


@every_graph
def test_every_graph_says_what_it_is_and_round_trips(name):
    sample, graph = GRAPHS[name], load_graph(name)
    readme = (SAMPLE_FOLDER / "README.md").read_text(encoding="utf-8")
    for text in (sample.title, sample.description, sample.provenance, sample.family, f"`{name}.json`"):
        assert text
        assert text in readme
    assert "et al." in sample.provenance
    assert graph.name == name
    assert graph_text(graph) == sample_text(name) == sample.path.read_text(encoding="utf-8")
    assert graph.is_training == name.endswith("-training")
    assert sample.path.stat().st_size <= 1_100_000


def test_every_graph_has_a_proven_optimum():
    assert [row["sample"] for row in OPTIMA] == list(runpy.run_path(str(TOOLS / "pin_optima.py"))["MESH_OF"])
    assert {row["sample"] for row in OPTIMA} == set(GRAPHS)
    assert {row["status"] for row in OPTIMA} == {"PROVED_OPTIMAL"}
    for row in OPTIMA:
        assert row["bound"] == pytest.approx(row["objective"], rel=1e-9)


@pytest.mark.parametrize("row", OPTIMA, ids=lambda row: row["sample"])
def test_the_pinned_optimum_is_found_again(row):
    found = runpy.run_path(str(TOOLS / "pin_optima.py"))["pin"](row["sample"])
    assert (found["mesh"], found["status"]) == (row["mesh"], row["status"])
    for what in ("objective", "bound"):
        assert found[what] == pytest.approx(row[what], rel=1e-9)


def test_a_pinned_optimum_is_no_better_than_sharing_the_work_freely():
    """It is also no worse than all on one device, if that fits in memory."""
    sys.path.insert(0, str(TOOLS))
    try:
        uniform = runpy.run_path(str(TOOLS / "pin_optima.py"))
    finally:
        sys.path.remove(str(TOOLS))
    for row in OPTIMA:
        mesh = uniform["uniform_mesh"](**row["mesh"])
        graph = uniform["costed"](load_graph(row["sample"]), mesh, uniform["CostOptions"]())
        work = sum(operator.time_on(mesh.devices[0].kind) for operator in graph.operators)
        assert work / len(mesh.devices) <= row["objective"]
        if sum(operator.memory for operator in graph.operators) <= mesh.devices[0].memory_capacity:
            assert row["objective"] <= work


def test_graphs_and_plans_are_told_apart():
    assert load_graph("GPT2 XL training").name == "gpt2-xl-training"
    with pytest.raises(InputError, match=r"^sample: 'v-shape-4' is not known"):
        load_graph("v-shape-4")
