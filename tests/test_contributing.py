"""The tutorials of CONTRIBUTING.md work as they are printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers.plans import random_plan

from tessel_core.model import MicroBatchPlan, ScheduleReport, Status
from tessel_core.networks.graphs.table import network_program
from tessel_core.networks.program_graph import graph_of
from tessel_core.rules import insist
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule

TEXT = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(r"Write `tessel_core/([\w/]+)\.py`:\n\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Return the modules that the tutorials write, by name."""
    found = {}
    for path, code in FILE.findall(TEXT):
        module = ModuleType("tessel_core." + path.replace("/", "."))
        monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look for their module here
        exec(compile(code, f"{path}.py", "exec"), module.__dict__)
        found[path.split("/")[-1]] = module
    return found


PLANS = [load_sample(name) for name in ("v-shape-4", "m-shape-4", "zb-v-4")] + [random_plan(seed) for seed in range(5)]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_scheduler_obeys_the_referee(written: dict[str, ModuleType], plan: MicroBatchPlan) -> None:
    scheduler = written["shortest_first"].SHORTEST_FIRST

    def referee(report: ScheduleReport) -> None:
        for schedule in report.schedules:
            insist(schedule, scheduler.name)

    for in_flight in (1, 3):
        report = scheduler.ask((plan, 6), scheduler.config(in_flight), None, referee)
        assert report.drawable is not None
        assert report.makespan >= report.makespan_bound
    assert scheduler.ask((plan, 1), scheduler.config(1), None, referee).status is not Status.INFEASIBLE


def test_the_network_trains_on_devices_that_share_it(written: dict[str, ModuleType]) -> None:
    family = written["feed_forward"].FEED_FORWARD
    spec = family.spec(layers=2, width=8, inner=16, micro_batch=4, training=True, tensor_parallel=2)
    graph = graph_of(network_program(family.program, spec), "two", 4)
    assert any(each.backward for each in graph.operators)


def test_the_chart_draws_a_bar_per_device(written: dict[str, ModuleType]) -> None:
    report = solve_schedule("1f1b", load_sample("v-shape-4"), 8)
    (bars,) = written["busy"].busy_chart(report.solution).data
    assert bars.y == pytest.approx([100 * (1 - report.bubble_rate)] * 4)
