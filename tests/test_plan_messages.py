"""Messages about the plan of a placement, besides its loads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions
from tessel_core.formats import GraphFile
from tessel_core.model import PlacementLoads
from tessel_core.samples import load_graph
from tessel_core.scheduling.bounds import period_bound
from tessel_core.units import show_time
from tessel_core.workbench.messages.plan import period_number
from tessel_core.workbench.messages.schedule import KeyNumber
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.planning import planned


def placed(name: str) -> Placing:
    placing = Placing(costs=CostOptions(in_flight=1)).opened(GraphFile.of(load_graph(name)), "a test")
    return placing.answered(placing.question.solve(Control()))


def told(placing: Placing) -> KeyNumber:
    placement = placing.placement
    assert placement is not None
    return period_number(placing, placement)


def test_where_work_binds_it_is_the_largest_load() -> None:
    placing = placed("gpt2-xl-training")
    placement = placing.placement
    assert placement is not None
    assert told(placing).value == show_time(PlacementLoads.of(placement).largest, "s")
    assert told(placing).beside == "limited by work"


def test_where_memory_binds_it_is_more() -> None:
    """The devices hold their operators with one micro-batch in flight, and little more."""
    placing = placed("gpt2-xl-training")
    placement = placing.placement
    assert placement is not None
    held = PlacementLoads.of(placement).memory
    mesh = placing.mesh.mesh
    devices = tuple(replace(each, memory_capacity=int(held[i]) + 1) for i, each in enumerate(mesh.devices))
    tight = placing.with_mesh(replace(mesh, devices=devices))
    plan = planned(tight)
    assert period_bound(plan) > plan.busiest_work
    assert told(tight).value == show_time(float(period_bound(plan)), "ns")
    assert told(tight).beside == "limited by memory"


def test_a_hole_is_a_dash_with_the_reason() -> None:
    placing = placed("mlp-8-training")
    assert placing.assignment is not None
    number = told(replace(placing, assignment=((), *placing.assignment[1:])))
    assert number.value == "–"
    assert number.help.endswith("has no device, but a plan needs one.")


def test_a_plan_of_very_many_blocks_is_not_bounded_while_a_person_waits() -> None:
    placing = placed("evoformer-training")
    count = len(placing.devices)
    assert placing.graph is not None
    groups = placing.graph.graph.group_of
    scattered = replace(placing, assignment=tuple(((7 * group) % count,) for group in groups))
    assert len(planned(scattered).blocks) > 128
    number = told(scattered)
    assert number.value == "–"
    assert number.beside == "too many blocks"
    assert number.help.startswith(f"The plan has {len(planned(scattered).blocks)} blocks")


@pytest.mark.parametrize("name", ["gpt2-xl-training", "evoformer-training"])
def test_a_move_changes_it_as_its_plan_says(name: str) -> None:
    placing = placed(name)
    assert placing.graph is not None
    moved = placing.moved([placing.graph.graph.operators[0].name], placing.devices[-1].name)
    assert told(moved).value == show_time(float(period_bound(planned(moved))), "ns")
