"""Every export of the table works on the command line, on the page, and for its readers."""

from __future__ import annotations

import csv
import io
import json
from functools import cache

import pytest
from helpers.seeds import one_in
from helpers.simulator import peaks, runs_of

from tessel_core.errors import InputError
from tessel_core.exports import EXPORTS, export_for, export_schedule, find_export
from tessel_core.formats import read_schedule
from tessel_core.formats.fields import read_with
from tessel_core.formats.tessel_json import tessel_json_from
from tessel_core.model import ScheduleReport
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule

SAMPLES = one_in(3, [sample.name for sample in list_samples()])
every_export = pytest.mark.parametrize("name", EXPORTS)


@cache
def answered(sample: str = "v-shape-4") -> ScheduleReport:
    return solve_schedule("sequential", load_sample(sample), 3)


def exported(name: str, sample: str = "v-shape-4") -> bytes:
    report = answered(sample)
    assert report.solution is not None
    return export_schedule(name, report.solution, report)


@every_export
def test_a_file_s_name_leads_back_to_its_export(name: str) -> None:
    export = EXPORTS[name]
    assert find_export(name) is export
    assert export_for(f"some.plan{export.suffix}") is export
    assert export_for(f"SOME.PLAN{export.suffix.upper()}") is export
    assert export.is_text == (name != "png")


@pytest.mark.parametrize("name", ["plan.json", "plan", "html", "plan.html.zip", ""])
def test_a_name_that_says_nothing_is_asked_back(name: str) -> None:
    with pytest.raises(InputError, match="has no known suffix; give --to, or a name that ends in "):
        export_for(name)


@every_export
def test_text_is_utf_8_and_what_cannot_be_made_says_why(name: str) -> None:
    report = answered()
    assert report.solution is not None
    objection = EXPORTS[name].objection(report.solution)
    if objection:
        assert name in ("png", "svg", "megatron"), "everything else can be made of it on every machine"
        with pytest.raises(InputError) as raised:
            exported(name)
        assert str(raised.value) == f"export {name}: {objection}"
        assert "\n" not in objection
    elif EXPORTS[name].is_text:
        assert exported(name).decode().strip()


def test_an_unknown_export_names_the_known_ones() -> None:
    report = answered()
    assert report.solution is not None
    with pytest.raises(InputError, match="export: 'gif' is not known, choose from tessel-schedule, html, chrome-trace"):
        export_schedule("gif", report.solution, report)


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_can_be_read_back_is_the_same_schedule(sample: str) -> None:
    schedule = answered(sample).solution
    assert schedule is not None
    kept = read_schedule(exported("tessel-schedule", sample))
    assert kept.schedule.plan == schedule.plan
    assert runs_of(kept.schedule) == runs_of(schedule)
    splits = any(block.kind not in ("forward", "backward") for block in schedule.plan.blocks)
    assert bool(EXPORTS["tessel"].objection(schedule)) == splits
    if not splits:
        again = read_with(tessel_json_from, exported("tessel", sample), "a file")
        assert peaks(again.plan, runs_of(again)) == peaks(without_static_memory(sample), runs_of(schedule))
        assert sorted(again.start.tolist()) == sorted(schedule.start.tolist())


def without_static_memory(sample: str):
    plan = load_sample(sample)
    return type(plan)(
        plan.name, tuple(type(device)(device.name) for device in plan.devices), plan.blocks, plan.dependencies
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_csv_holds_every_run_once_a_device(sample: str) -> None:
    schedule = answered(sample).solution
    assert schedule is not None
    rows = list(csv.DictReader(io.StringIO(exported("csv", sample).decode())))
    plan = schedule.plan
    assert sorted((row["device"], row["block"], int(row["micro_batch"]), int(row["start"])) for row in rows) == sorted(
        (plan.devices[d].name, plan.blocks[b].name, m, start)
        for b, m, start in runs_of(schedule)
        for d in plan.blocks[b].devices
    )
    last = {row["device"]: int(row["memory_after"]) for row in rows}
    assert last == {device.name: device.static_memory for device in plan.devices if device.name in last}


def test_json_files_are_one_document() -> None:
    for name, export in EXPORTS.items():
        if export.media_type == "application/json":
            assert isinstance(json.loads(exported(name)), dict)
