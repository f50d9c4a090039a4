"""Placement files: they are downloaded, opened with their graph, and refused in one sentence with another graph."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from helpers.workspaces import published_graph

from tessel_core.formats.graph_file import graph_file_text
from tessel_core.workbench.placement_files import placement_file_text

pytestmark = pytest.mark.usefixtures("restart")


def upload(tab: Any, text: str) -> Any:
    tab.test.file_uploader[0].set_value(("p.json", text.encode(), "application/json"))
    return tab.run()


def refusals(tab: Any) -> list[str]:
    return [each for each in tab.says("p.json") if "another" in each or "unknown" in each]


def test_a_placement_goes_out_and_comes_back(placed, app) -> None:
    (button,) = [each for each in placed.test.get("download_button") if each.label == "Placement JSON"]
    assert not button.disabled
    text, before = placement_file_text(placed.work.placing), placed.work.placing
    tab = upload(app("placement", graph="mlp-8-training"), text)
    assert tab.work.placing.assignment == before.assignment
    assert tab.says("not proved optimal"), "what a file claims is not taken over"
    tab.place()
    assert tab.says("proved optimal")
    tab.press("Undo").press("Undo")
    assert tab.work.placing.assignment is None


def test_a_placement_opens_from_start_too(placed, app) -> None:
    text = placement_file_text(placed.work.placing)
    tab = upload(app("start", graph="mlp-8-training"), text).go("placement")
    assert tab.work.placing.assignment == placed.work.placing.assignment


def test_of_another_graph_or_mesh_it_is_refused_and_nothing_changes(placed, app) -> None:
    text = placement_file_text(placed.work.placing)
    other = upload(app("placement", graph="gpt2-small-inference"), text)
    assert refusals(other) == [
        "p.json: graph: the placement belongs to another operator graph. Open that one first",
    ]
    assert other.work.placing.assignment is None
    before = placed.work.placing
    mesh = json.loads(text) | {"mesh": "0" * 64}
    upload(placed, json.dumps(mesh))
    assert refusals(placed) == ["p.json: mesh: the placement belongs to another device mesh. Open that one first"]
    assert placed.work.placing == before


def test_what_breaks_a_rule_is_not_handed_out(placed) -> None:
    session = placed.test.session_state["tessel"]
    graph = placed.work.placing.graph.graph
    session.change_placing(placed.work.placing.moved([graph.operators[0].name], "gpu5"))
    placed.run()
    (button,) = [each for each in placed.test.get("download_button") if each.label == "Placement JSON"]
    assert button.disabled
    assert any("circle" in caption.value for caption in placed.test.caption)


def test_an_experts_split_is_judged_where_it_belongs(app) -> None:
    tab = app("graph")
    file = published_graph(3)
    upload(tab, graph_file_text(file)).go("placement")
    tab.place()
    best = tab.work.placing.outcome.bound
    names = [int(each.name) for each in file.graph.operators]
    upload(tab, json.dumps({"fpgas": [{"nodes": names}], "cpus": []}))
    assert set(tab.work.placing.assignment) == {(0,)}
    assert tab.work.placing.by_hand
    assert tab.work.placing.outcome.bound == best, "what was proved holds for it too"
    upload(tab, json.dumps({"fpgas": [{"nodes": [*names, 10**6]}], "cpus": []}))
    assert refusals(tab) == ["p.json: fpgas: unknown operator '1000000'"]


def test_a_workspace_that_asks_a_placer_that_judges_opens_with_one_that_places(placed, restart, app) -> None:
    session = placed.test.session_state["tessel"]
    session.change_placing(replace(placed.work.placing, placer="expert"))
    token = placed.work.token
    restart()
    assert app("placement", work=token).work.placing.placer != "expert"
