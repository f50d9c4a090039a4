"""A placement file contains everything that it depends on, and reads back unchanged where its graph is open."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.workspaces import published_graph
from typer.testing import CliRunner

from tessel_core.cli.command import app
from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, mesh_text, read_placement
from tessel_core.formats.graph_file import graph_file_text
from tessel_core.model import Communication, Status
from tessel_core.samples import load_graph
from tessel_core.workbench.placement_files import placement_file_text, with_placement
from tessel_core.workbench.placing import ALL_OBJECTIVES, Placing


def opened() -> Placing:
    return Placing().opened(GraphFile.of(load_graph("mlp-8-training")), "a test")


def answered(placing: Placing) -> Placing:
    return placing.answered(placing.question.solve(Control()))


@pytest.mark.parametrize("objective", ALL_OBJECTIVES)
def test_devices_costs_pins_and_objective_come_back(objective: str, tmp_path: Path) -> None:
    name = load_graph("mlp-8-training").operators[0].name
    asked = opened().costing(CostOptions(dtype="fp32", in_flight=2), Communication.BLOCKING).pinned([name], "gpu1")
    found = answered(asked.wanting(objective, contiguous=True))
    text = placement_file_text(found)
    again = with_placement(opened(), read_placement(text.encode()))
    kept = ("assignment", "subgraphs", "pins", "costs", "communication", "objective", "contiguous", "on_mesh")
    for each in kept:
        assert getattr(again, each) == getattr(found, each), each
    assert again.outcome is None, "only a placer's answer proves anything"
    report = read_placement(text.encode()).report
    assert report is not None
    assert found.outcome is not None
    assert (report.status is Status.PROVED_OPTIMAL) == (found.outcome.status is Status.PROVED_OPTIMAL)
    assert found.graph is not None
    files = {"g.json": graph_file_text(found.graph), "m.json": mesh_text(found.mesh.mesh), "p.json": text}
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    checked = CliRunner().invoke(app, ["check", *(str(tmp_path / file) for file in files)])
    assert checked.exit_code == 0, checked.output


def test_a_published_graph_keeps_its_pool() -> None:
    placing = Placing().opened(published_graph(3), "a test")
    found = answered(placing)
    again = with_placement(placing, read_placement(placement_file_text(found).encode()))
    assert (again.assignment, again.pool, again.on_mesh) == (found.assignment, found.pool, False)


def test_by_hand_it_claims_no_more_than_was_proved() -> None:
    found = answered(opened())
    names = [operator.name for operator in load_graph("mlp-8-training").operators]
    moved = found.moved(names, "gpu0")
    report = read_placement(placement_file_text(moved).encode()).report
    assert report is not None
    assert (report.status, report.placer) == (Status.FEASIBLE, "expert")
    assert report.bound == found.outcome.bound < report.objective


def test_what_is_not_whole_or_belongs_elsewhere_is_refused() -> None:
    found = answered(opened())
    text = placement_file_text(found).encode()
    with pytest.raises(InputError, match="circle"):
        placement_file_text(found.moved([load_graph("mlp-8-training").operators[0].name], "gpu5"))
    with pytest.raises(InputError, match="another operator graph"):
        with_placement(Placing(), read_placement(text))
    unknown = text.replace(b'"objective_name": "throughput"', b'"objective_name": "beauty"')
    with pytest.raises(InputError, match=r"report.objective_name: must be one of .*, got 'beauty'"):
        with_placement(opened(), read_placement(unknown))
