"""Objects shown in notebooks, and the functions that `import tessel_core` offers."""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64decode
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import tessel_core as tessel
from tessel_core.charts.timeline import Look, timeline_data
from tessel_core.errors import InputError
from tessel_core.exports.notebook import notebook_html
from tessel_core.formats import graph_text, mesh_text, plan_text, schedule_text
from tessel_core.model import Block, BlockKind, MicroBatchPlan, Placement, PlacementDevice, PlanDevice, Schedule
from tessel_core.samples import load_graph, load_mesh, load_sample
from tessel_core.scheduling import one_micro_batch

MARKUP = "<b>x</b> & 'y'"


@cache
def placed() -> Any:
    return tessel.place(tessel.load("gpt2-small-inference"), "h200-4", "balanced-layers")


SHOWN = {
    "plan": lambda: tessel.load("v-shape-4"),
    "schedule": lambda: tessel.schedule(tessel.load("v-shape-4"), 6, "gpipe").drawable,
    "schedule report": lambda: tessel.schedule(tessel.load("v-shape-4"), 6, "gpipe"),
    "graph": lambda: tessel.load("gpt2-small-inference"),
    "placement": lambda: placed().solution,
    "placement report": placed,
    "simulation": lambda: tessel.simulate("mlp", "h200-4", tessel.Strategy(pipeline=4, micro_batches=4)),
    "trace": lambda: tessel.simulate("mlp", "h200-1").trace,
}


def page_in(html: str) -> str:
    """Return the page inside the frame of an output."""
    (text,) = re.findall(r'<iframe [^>]*sandbox="allow-scripts" srcdoc="([^"]*)"', html)
    return unescape(text)


def data_in(html: str) -> bytes:
    """Return the data that the timeline in the frame draws."""
    (text,) = re.findall(r'atob\("([^"]*)"\)', page_in(html))
    return b64decode(text)


@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN)
def test_every_noun_shows_itself_and_asks_for_nothing(make) -> None:
    noun = make()
    html = noun._repr_html_()
    assert html == notebook_html(noun)
    loose = re.sub(r'xmlns="[^"]*"|http://www\.w3\.org/2000/svg', "", unescape(html))
    for word in ("http:", "https:", "src=", "@import", "fetch("):
        assert word not in loose


def test_a_schedule_is_drawn_from_the_data_of_the_app() -> None:
    schedule = SHOWN["schedule"]()
    data = timeline_data([("", schedule)], look=Look(quiet=True))
    assert data_in(schedule._repr_html_()) == data
    assert data_in(SHOWN["schedule report"]()._repr_html_()) == data


def test_a_plan_is_drawn_as_one_micro_batch() -> None:
    plan = load_sample("v-shape-4")
    alone = timeline_data([("", one_micro_batch(plan))], look=Look(quiet=True))
    assert data_in(tessel.load("v-shape-4")._repr_html_()) == alone


def test_what_breaks_rules_is_drawn_as_well() -> None:
    whole = SHOWN["schedule"]()
    part = Schedule(whole.plan, whole.micro_batches, whole.block[:-3], whole.micro_batch[:-3], whole.start[:-3])
    nowhere = Placement(load_graph("gpt2-small-inference"), (PlacementDevice("a", "unheard of"),), ((),) * 125)
    for noun in (part, nowhere):
        assert data_in(noun._repr_html_())


def test_names_are_text() -> None:
    plan = MicroBatchPlan(MARKUP, (PlanDevice(MARKUP),), (Block("b", BlockKind.FORWARD, (0,), 1),))
    html = plan._repr_html_()
    assert MARKUP not in html
    assert MARKUP not in page_in(html)


def test_a_report_without_a_solution_says_why() -> None:
    plan = load_sample("v-shape-4").with_capacity(0)
    report = tessel.schedule(plan, 4, "list-scheduling", time_limit=1.0)
    assert report.drawable is None
    assert "one micro-batch alone does not fit" in report._repr_html_()


def test_the_package_imports_nothing_before_it_is_used() -> None:
    script = "import sys, tessel_core; print(*(name for name in sys.modules if name.split('.')[0] in sys.argv[1:]))"
    command = [sys.executable, "-c", script, "tessel_core", "numpy", "plotly"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(said) == {"tessel_core", "tessel_core.shown", "tessel_core.version"}
    assert set(tessel.__all__) <= set(dir(tessel))
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = tessel.absent


def test_every_kind_of_file_is_loaded(tmp_path: Path) -> None:
    report = tessel.schedule(tessel.load("m-shape-4"), 4)
    texts = {
        "plan": (plan_text(load_sample("m-shape-4")), load_sample("m-shape-4")),
        "graph": (graph_text(load_graph("mlp-8-training")), load_graph("mlp-8-training")),
        "mesh": (mesh_text(load_mesh("h200-16")), load_mesh("h200-16")),
    }
    for name, (text, noun) in texts.items():
        tmp_path.joinpath(f"{name}.json").write_text(text)
        assert tessel.load(tmp_path / f"{name}.json") == noun
    tmp_path.joinpath("schedule.json").write_text(schedule_text(report.solution, report))
    assert tessel.load(str(tmp_path / "schedule.json")).makespan == report.makespan
    assert tessel.load("mlp").name == "mlp"
    assert tessel.load("h200-16") == load_mesh("h200-16")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: tessel.load("v-shape-44"), "is neither a sample nor a file, did you mean"),
        (lambda: tessel.schedule(tessel.load("v-shape-4"), 4, "magic"), "scheduler: 'magic' is not known"),
        (lambda: tessel.schedule(tessel.load("v-shape-4"), 4, depth=3), "depth: is no option here"),
        (lambda: tessel.place(tessel.load("mlp"), "h200-3000000"), "more than"),
        (lambda: tessel.simulate("mlp", "h200-1", depth=3), "depth: is no size of mlp, choose from layers, width"),
        (lambda: tessel.export(tessel.schedule(tessel.load("v-shape-4"), 9, "gpipe"), "a.csv"), "contains no schedule"),
        (lambda: tessel.export(tessel.schedule(tessel.load("m-shape-4"), 4), "a.unknown"), "has no known suffix"),
    ],
)
def test_wrong_input_is_one_sentence(call, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)):
        call()


def test_results_are_exported_by_the_end_of_the_name(tmp_path: Path) -> None:
    report = tessel.schedule(tessel.load("m-shape-4"), 4)
    table = tessel.export(report, tmp_path / "a.csv").read_text()
    assert table == tessel.export(report.solution, tmp_path / "b.txt", to="csv").read_text()
    step = tessel.simulate("mlp", "h200-2", tessel.Strategy(data=2))
    assert "matmul" in tessel.export(step, tmp_path / "program.txt").read_text()


def test_a_placement_becomes_a_plan() -> None:
    report = tessel.schedule(placed(), 4, "gpipe")
    assert report.solution is not None
    assert len(report.solution.plan.devices) == 4
