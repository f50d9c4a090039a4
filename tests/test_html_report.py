"""The HTML report: complete in one file, true to the schedule, and safe with any names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache

import pytest
from helpers.page_reader import PageReader
from helpers.simulator import peaks, runs_of

from tessel_core.charts.gantt import SHARES_CAPTION
from tessel_core.exports import export_schedule
from tessel_core.exports.html_report import html_report
from tessel_core.formats import read_schedule, schedule_text
from tessel_core.model import Dependency, MicroBatchPlan, PlanDevice, ScheduleReport
from tessel_core.options import options_of
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, evaluate_file, solve_schedule
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.schedule import key_numbers, verdict

EVIL = "<script>alert(1)</script>"


QUICK = {"time_limit": 1.0, "polish": 0.0}


def answered(sample: str = "m-shape-4", scheduler: str = "tessel", micro_batches: int = 8) -> ScheduleReport:
    """The same report for every test."""
    return _answered(sample, scheduler, micro_batches)


@cache
def _answered(sample: str, scheduler: str, micro_batches: int) -> ScheduleReport:
    config = SCHEDULERS[scheduler].config
    quick = {name: value for name, value in QUICK.items() if name in options_of(config)}
    return solve_schedule(scheduler, load_sample(sample), micro_batches, config(**quick))


def page_of(report: ScheduleReport) -> str:
    assert report.solution is not None
    return html_report(report.solution, report)


@cache
def read(sample: str = "m-shape-4", scheduler: str = "tessel", micro_batches: int = 8) -> PageReader:
    return PageReader(page_of(answered(sample, scheduler, micro_batches)))


def figures(page: PageReader) -> dict[str, list[dict[str, object]]]:
    """Return the traces of each figure."""
    found = {}
    for script in page.scripts:
        drawn = re.search(r'Plotly\.newPlot\(\s*"(\w+)",\s*', script)
        if drawn:
            found[drawn[1]] = json.JSONDecoder().raw_decode(script, drawn.end())[0]
    return found


def test_the_page_needs_nothing_else() -> None:
    page = read()
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert links == ["data:,"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    policy = next(each["content"] for tag, each in page.tags if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert sum(len(script) > 10**6 for script in page.scripts) == 1, "the library that draws, once"


def test_every_figure_is_there() -> None:
    assert set(figures(read())) == {"timeline", "idle", "causes", "history"}
    assert set(figures(read("v-shape-4", "1f1b"))) == {"timeline", "idle", "causes"}, "nothing was searched"
    steps = {trace["name"] for trace in figures(read())["history"]}
    assert steps == {"best so far", "bound", *(news.by for news in answered().history)}, "each step says what found it"
    bars = [trace for trace in figures(read())["timeline"] if trace.get("customdata") and trace["type"] == "bar"]
    drawn = sum(len(trace["customdata"]) for trace in bars)  # type: ignore[arg-type]
    report = answered()
    assert report.solution is not None
    assert drawn == len(report.solution.start)


@pytest.mark.parametrize("scheduler", ["tessel", "time-optimal", "1f1b+", "sequential"])
def test_verdict_and_key_numbers_are_those_of_every_other_surface(scheduler: str) -> None:
    report, page = answered("m-shape-4", scheduler), read("m-shape-4", scheduler)
    assert report.solution is not None
    assert verdict(report, report.solution.plan) in page.text
    for number in key_numbers(report):
        assert {number.label, number.value, number.beside} <= set(page.words)


def table_under(page: PageReader, first_heading: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this heading."""
    (found,) = [table for table in page.tables if table[0][0] == first_heading]
    return found[1:]


@pytest.mark.parametrize("sample", ["m-shape-4", "gpt-1m-vocab-v-4", "zb-v-4"])
def test_the_devices_do_what_the_schedule_says(sample: str) -> None:
    report, page = answered(sample), read(sample)
    assert report.solution is not None
    plan, runs = report.solution.plan, runs_of(report.solution)
    held, makespan = peaks(plan, runs), max(start + plan.blocks[b].duration for b, _, start in runs)
    for d, row in enumerate(table_under(page, "device")):
        work = sum(plan.blocks[b].duration for b, _, _ in runs if d in plan.blocks[b].devices)
        device = plan.devices[d]
        assert row[:2] == [device.name, show_time(work, plan.time_unit)]
        idle, *memory, capacity = row[-4:]
        assert idle == f"{1 - work / makespan:.1%}"
        assert memory == [show_memory(each, plan.memory_unit) for each in (device.static_memory, held[d])]
        assert capacity == show_memory(device.memory_capacity or 0, plan.memory_unit)


def test_the_plan_is_told_whole() -> None:
    plan, page = load_sample("mt5-nn-4"), read("mt5-nn-4")
    blocks, dependencies = table_under(page, "block"), table_under(page, "from")
    assert [(row[0], row[1], row[2].split(", ")) for row in blocks] == [
        (block.name, block.kind, [plan.devices[d].name for d in block.devices]) for block in plan.blocks
    ]
    assert [(row[0], row[1]) for row in dependencies] == [(dep.predecessor, dep.successor) for dep in plan.dependencies]


@pytest.mark.parametrize("scheduler", ["tessel", "time-optimal", "1f1b+"])
def test_the_question_can_be_asked_again(scheduler: str) -> None:
    """The report contains scheduler, micro-batches, every option with its value, seed included, and versions."""
    page = read("m-shape-4", scheduler)
    asked = {row[0]: row[1] for table in page.tables for row in table if len(row) == 2}
    assert asked["Scheduler"] == f"{SCHEDULERS[scheduler].title} ({scheduler})"
    assert asked["Micro-batches"] == "8"
    for option, value in options_of(answered("m-shape-4", scheduler).config).values():
        assert asked[option.label].split()[0] == str(value)
    assert ("Seed" in asked) == (scheduler != "1f1b+")
    for name in ("Tessel Explorer", "Python", "ortools", "numpy", "plotly"):
        assert re.search(rf"{name} \d+\.\d+", page.text)


def test_a_schedule_from_a_file_says_what_is_not_known_and_what_is_not_proved_anew() -> None:
    report = answered("nn-shape-4", "time-optimal", 3)
    assert report.solution is not None
    found = evaluate_file(read_schedule(schedule_text(report.solution, report).encode()))
    page = PageReader(page_of(found))
    assert "unknown, because the schedule was read from a file (its rules were checked again)" in page.text
    claimed = "The file says that its makespan is proved optimal; not proved here."
    assert (claimed in page.text) == (report.makespan_bound > found.makespan_bound)


def test_a_long_schedule_has_a_close_look_at_each_phase() -> None:
    long, short = read("v-shape-4", "1f1b", 1_000).text, read().text
    for name in ("Warmup", "Repetend", "Cooldown", SHARES_CAPTION):
        assert name in long
        assert name not in short


def test_the_same_report_gives_the_same_page() -> None:
    assert page_of(answered()) == page_of(answered())


def hostile() -> MicroBatchPlan:
    """Return a plan in which every name is an attack."""
    plan = load_sample("m-shape-4")
    return MicroBatchPlan(
        EVIL,
        tuple(PlanDevice(f"{EVIL}{d}</title>", 6) for d in range(4)),
        tuple(replace(block, name=f"{block.name}'\"{EVIL}&$body") for block in plan.blocks),
        tuple(
            Dependency(f"{dep.predecessor}'\"{EVIL}&$body", f"{dep.successor}'\"{EVIL}&$body")
            for dep in plan.dependencies
        ),
        f"step<img src=x onerror=alert(1)>{EVIL}",
        f"slot</script>{EVIL}",
    )


def test_names_cannot_become_code() -> None:
    report = replace(solve_schedule("1f1b+", hostile(), 4), solver=f"{EVIL}<!--")
    page, plain = PageReader(page_of(report)), read("m-shape-4", "1f1b+", 4)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags], "no name has made a tag"
    assert [sorted(each) for _, each in page.tags] == [sorted(each) for _, each in plain.tags]
    assert not [script for script in page.scripts if "<script" in script and len(script) < 10**6]
    assert EVIL in page.words
    assert [row[0] for row in table_under(page, "block")] == [block.name for block in hostile().blocks]


def test_the_table_of_exports_hands_out_this_page() -> None:
    report = answered()
    assert report.solution is not None
    assert export_schedule("html", report.solution, report) == page_of(report).encode()
