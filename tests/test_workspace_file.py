"""tessel-workspace and tessel-answer files: what is written reads back, and errors give one sentence."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.plans import plans
from helpers.seeds import examples
from helpers.simulator import runs_of
from helpers.stores import simple_workspace, small_work
from helpers.workspaces import same, workspace_files
from hypothesis import given, settings, strategies

from tessel_core.errors import InputError
from tessel_core.formats import WorkspaceFile, read_workspace
from tessel_core.formats import workspace_text as text_of
from tessel_core.formats.answer_file import answer_text, read_answer
from tessel_core.formats.files import read_text
from tessel_core.formats.tables import tables_of
from tessel_core.model import PERIOD, Communication, ScheduleReport, Status
from tessel_core.networks import build_shape
from tessel_core.scheduling import Comparison, Question, find_scheduler, solve_schedule
from tessel_core.scheduling.comparison import Made
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.scheduling.time_optimal import TimeOptimalConfig
from tessel_core.workbench.workspace import Workspace, workspace_file, workspace_of

PLAN = build_shape("m-shape")


@given(workspace_files())
@settings(max_examples=examples(150), deadline=None)
def test_a_workspace_reads_back(work: WorkspaceFile) -> None:
    assert same(read_workspace(text_of(work).encode()), work)


def test_a_workspace_is_known_by_its_content() -> None:
    found = read_text(text_of(simple_workspace(PLAN)).encode(), "somewhere.json")
    assert found == simple_workspace(PLAN)


def test_a_plan_that_stands_in_many_places_is_written_once() -> None:
    work = small_work(PLAN, 3)
    pairs = tuple(Question(name, PLAN, 3, find_scheduler(name).config()) for name in ("tessel", "gpipe"))
    made = solve_schedule("sequential", PLAN, 3).solution
    assert made is not None
    comparison = Comparison(pairs, 1).with_pair(Made.of(made)).named(2, "mine")
    work = replace(work, asked=work.question, comparison=comparison)
    text = text_of(workspace_file(work))
    assert text.count('"tessel-plan"') == 1
    assert workspace_of(read_workspace(text.encode()), work.token) == work


def test_a_workspace_of_november_2026_still_opens() -> None:
    """With everything in it: a placed graph with pins, a schedule, a comparison, and an invalid draft of a plan."""
    data = (Path(__file__).parent / "files_of_before" / "workspace.json").read_bytes()
    work = workspace_of(read_workspace(data), "token")
    assert (work.name, work.micro_batches, work.config) == ("of before", 12, TesselConfig(max_unroll=3))
    assert work.complaint == "blocks, row 1, column duration: is empty"
    assert [pair.scheduler for pair in work.comparison.pairs] == ["tessel", "gpipe"]
    assert work.comparison.reference == 1
    assert work.opened is not None
    assert work.opened.makespan == 84
    placing = work.placing
    assert placing.graph is not None
    assert (placing.graph.graph.name, placing.communication) == ("mlp-8-training", Communication.BLOCKING)
    assert placing.outcome is not None
    assert placing.outcome.status is Status.PROVED_OPTIMAL
    assert (placing.costs.in_flight, placing.config.most_ideals, placing.by_hand) == (2, 5000, True)
    assert [pin.devices for pin in placing.pins] == [("gpu1",)] * len(placing.pins)
    assert work.strategies == {"data": "1..3"}


WORK = small_work(PLAN).asking("tessel", 3, TesselConfig(max_unroll=2))
WORK = replace(WORK.edited(tables_of(build_shape("v-shape"))), plan=PLAN, comparison=Comparison((WORK.question,), 0))
DOCUMENT = json.loads(text_of(workspace_file(WORK)))


def changed(path: tuple[str | int, ...], value: Any) -> bytes:
    """Return the document with one value replaced. A value of `...` removes the key."""
    document = deepcopy(DOCUMENT)
    place = document
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("format",), "tessel-plan-2", "format: must be 'tessel-workspace', got 'tessel-plan-2'"),
        (("version",), 2, "version: tessel-workspace version 2 is not known, this program reads version 1"),
        (("colour",), "red", "the file: unknown key 'colour'"),
        (("name",), ..., "the file: 'name' is missing"),
        (("name",), "", "name: is empty"),
        (("name",), "x" * 201, "name: must be at most 200 printable characters"),
        (("name",), "a\nb", "name: must be at most 200 printable characters"),
        (("plan",), 1, "plan: must be a position in the 1 plans, got 1"),
        (("plan",), -1, "plan: must be at least 0"),
        (("plans", 0, "blocks", 0, "duration"), 0, "plans[0].blocks[0].duration: must be at least 1, got 0"),
        (("plans", 0, "devices", 0, "name"), "gpu1", "plans[0]: devices: duplicate name 'gpu1'"),
        (("draft", "blocks", 0, "colour"), "red", "draft.blocks[0]: unknown key 'colour'"),
        (("draft", "blocks", 0, "duration"), "long", "draft.blocks[0].duration: must be a whole number of at most"),
        (("draft", "blocks", 0, "duration"), 2**63, "draft.blocks[0].duration: must be a whole number of at most"),
        (("draft", "blocks", 0, "devices"), "gpu0", "draft.blocks[0].devices: must be a list, got 'gpu0'"),
        (("draft", "blocks", 0, "kind"), 4, "draft.blocks[0].kind: must be text, got 4"),
        (("options", "tessel"), [], "options.tessel: must be an object, got a list"),
        (("options", "tessel", "seed"), [], "options.tessel.seed: must be a finite number, got a list"),
        (("options", "tessel", "seed"), 10**400, "options.tessel.seed: must be a finite number, got a huge integer"),
        (("micro_batches",), 0, "micro_batches: must be at least 1, got 0"),
        (("micro_batches",), True, "micro_batches: must be an integer, got true"),
        (("asked",), {"scheduler": "tessel"}, "asked: 'plan' is missing"),
        (("compared", 0, "plan"), 7, "compared[0].plan: must be a position in the 1 plans, got 7"),
        (
            ("compared", 0),
            {"plan": 0, "starts": [[1]]},
            "compared[0].starts: must have one list of 10 starts per micro-batch",
        ),
        (("compared", 0), {"plan": 0, "starts": [["a"]]}, "compared[0].starts[0][0]: must be an integer, got 'a'"),
        (("reference",), 1, "reference: must be an index below 1, or null"),
        (("opened",), {"format": "tessel-plan"}, "opened: format: must be 'tessel-schedule', got 'tessel-plan'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: tuple[str | int, ...], value: Any, complaint: str) -> None:
    _, told = outcome(changed(path, value))
    assert told.startswith(f"mine.json: {complaint}")
    assert "\n" not in told


OF_BEFORE = json.loads((Path(__file__).parent / "files_of_before" / "workspace.json").read_bytes())
OF_BEFORE = {**OF_BEFORE, "opened": None}


@given(strategies.sampled_from([DOCUMENT, OF_BEFORE]), strategies.data())
@settings(max_examples=examples(300), deadline=None)
def test_no_change_of_a_file_does_more_than_raise_one_sentence(whole: Any, data: strategies.DataObject) -> None:
    """Any value is replaced by anything: the file reads as something that can be written again, or is refused."""
    document: Any = deepcopy(whole)
    place, keys = document, list(document)
    while True:
        key = data.draw(strategies.sampled_from(keys))
        deeper = place[key]
        if not isinstance(deeper, dict | list) or not deeper or data.draw(strategies.booleans()):
            break
        place, keys = deeper, list(deeper) if isinstance(deeper, dict) else list(range(len(deeper)))
    anything = strategies.sampled_from([None, True, 0, -1, 2**70, 1.5, "", "x", [], {}, [[]], {"a": {}}])
    place[key] = data.draw(anything)
    found, complaint = outcome(json.dumps(document).encode())
    if found is None:
        assert complaint.startswith("mine.json: ")
    else:
        assert outcome(text_of(workspace_file(found)).encode()) == (found, "")


def outcome(data: bytes) -> tuple[Workspace | None, str]:
    """Return what is read, or the message that a user gets."""
    try:
        file = read_workspace(data, "mine.json")
    except InputError as error:
        return None, str(error)
    try:
        return workspace_of(file, "token"), ""
    except InputError as error:
        return None, str(error.within("mine.json"))


def facts(report: ScheduleReport) -> dict[str, object]:
    """Return a report as plain values. Objects without equality are written out."""
    found = {name: getattr(report, name) for name in report.__dataclass_fields__}
    for name in ("solution", "relaxed_solution", "shortest", "steady"):
        if found[name] is not None:
            found[name] = (runs_of(found[name]), found[name].repetend, found[name].plan)
    if report.repetend is not None:
        found["repetend"] = (report.repetend.period, report.repetend.first_start.tolist(), report.repetend.plan)
    return {**found, "config": None}


@given(plans(), strategies.sampled_from(["tessel", "time-optimal", "sequential"]), strategies.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_an_answer_reads_back_in_every_field(plan: Any, scheduler: str, micro_batches: int) -> None:
    config = {"tessel": TesselConfig(time_limit=0.5, polish=0.1), "time-optimal": TimeOptimalConfig(time_limit=0.5)}
    report = solve_schedule(scheduler, plan, micro_batches, config.get(scheduler))
    for spoken in (report, report.about(PERIOD)):
        again = read_answer(answer_text(spoken).encode(), plan)
        assert facts(again) == facts(spoken)


ANSWER = json.loads(answer_text(solve_schedule("tessel", PLAN, 6, TesselConfig(polish=0.0))))


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("objective", "6/0", "objective: must be a fraction like \"16/3\", got '6/0'"),
        ("objective", 6, "objective: must be text, got 6"),
        ("bound", "6e9", "bound: must be a fraction like \"16/3\", got '6e9'"),
        ("status", "SURE", "status: must be one of PROVED_OPTIMAL"),
        ("fits", 1, "fits: must be true or false, got 1"),
        ("repetend", {"period": 6, "first_start": [[0, 1]]}, "repetend.first_start: must have one start for each of"),
        ("repetend", {"period": 6, "first_start": []}, "repetend.first_start: must have one start for each of"),
        ("repetend", {"period": 6, "first_start": [0]}, "repetend.first_start[0]: must be a list, got 0"),
        ("schedule", {**ANSWER["schedule"], "colour": "red"}, "schedule: unknown key 'colour'"),
    ],
)
def test_a_wrong_answer_is_refused(key: str, value: Any, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        read_answer(json.dumps({**ANSWER, key: value}).encode(), PLAN)
    assert str(error.value).startswith(f"answer: {complaint}")


def test_an_answer_about_another_plan_is_refused() -> None:
    with pytest.raises(InputError, match="belongs to another plan"):
        read_answer(json.dumps(ANSWER).encode(), build_shape("v-shape"))
