"""tessel-workspace and tessel-answer: what is written reads back, what is wrong is told in one sentence."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from helpers.plans import plans
from helpers.simulator import runs_of
from helpers.workspaces import same, simple_workspace, workspace_files
from hypothesis import given, settings, strategies

from tessel_core.errors import InputError
from tessel_core.formats import KeptQuestion, WorkspaceFile, answer_text, read_answer, read_text, read_workspace
from tessel_core.formats import workspace_text as text_of
from tessel_core.formats.tables import tables_of
from tessel_core.model import PERIOD, ScheduleReport
from tessel_core.networks import build_shape
from tessel_core.scheduling import solve_schedule

PLAN = build_shape("m-shape")


@given(workspace_files())
@settings(max_examples=150, deadline=None)
def test_a_workspace_reads_back(work: WorkspaceFile) -> None:
    assert same(read_workspace(text_of(work).encode()), work)


def test_a_workspace_is_known_by_its_content() -> None:
    found = read_text(text_of(simple_workspace(PLAN)).encode(), "somewhere.json")
    assert found == simple_workspace(PLAN)


def test_a_plan_that_stands_in_many_places_is_written_once() -> None:
    question = KeptQuestion("tessel", PLAN, 3, {})
    work = WorkspaceFile(
        **{**vars(simple_workspace(PLAN)), "asked": question, "compared": (question, question), "reference": 1}
    )
    assert text_of(work).count('"tessel-plan"') == 1
    assert read_workspace(text_of(work).encode()) == work


DOCUMENT = json.loads(
    text_of(
        WorkspaceFile(
            **{
                **vars(simple_workspace(PLAN)),
                "draft": tables_of(build_shape("v-shape")),
                "options": {"tessel": {"max_unroll": 2}},
                "compared": (KeptQuestion("tessel", PLAN, 3, {"seed": 1}),),
                "reference": 0,
            }
        )
    )
)


def changed(path: tuple[str | int, ...], value: Any) -> bytes:
    """The document with one value replaced; a value of `...` takes the key away."""
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
        (("reference",), 1, "reference: must be a position in the 1 compared, or null"),
        (("opened",), {"format": "tessel-plan"}, "opened: format: must be 'tessel-schedule', got 'tessel-plan'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: tuple[str | int, ...], value: Any, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        read_workspace(changed(path, value), "mine.json")
    assert str(error.value).startswith(f"mine.json: {complaint}")
    assert "\n" not in str(error.value)


@given(strategies.data())
@settings(max_examples=300, deadline=None)
def test_no_change_of_a_file_does_more_than_raise_one_sentence(data: strategies.DataObject) -> None:
    """Any value anywhere replaced by anything: it reads as something that can be written again, or it is refused."""
    document: Any = deepcopy(DOCUMENT)
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
    assert complaint.startswith("mine.json: ") if found is None else same(outcome(text_of(found).encode())[0], found)


def outcome(data: bytes) -> tuple[Any, str]:
    """What is read, or why nothing is."""
    try:
        return read_workspace(data, "mine.json"), ""
    except InputError as error:
        return None, str(error)


def facts(report: ScheduleReport) -> dict[str, object]:
    """A report as plain values; what is equal only to itself is spelled out."""
    found = {name: getattr(report, name) for name in report.__dataclass_fields__}
    for name in ("solution", "relaxed_solution", "shortest", "steady"):
        if found[name] is not None:
            found[name] = (runs_of(found[name]), found[name].repetend, found[name].plan)
    if report.repetend is not None:
        found["repetend"] = (report.repetend.period, report.repetend.first_start.tolist(), report.repetend.plan)
    return {**found, "config": None}


@given(plans(), strategies.sampled_from(["tessel", "time-optimal", "sequential"]), strategies.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_an_answer_reads_back_in_every_field(plan: Any, scheduler: str, micro_batches: int) -> None:
    report = solve_schedule(scheduler, plan, micro_batches)
    for spoken in (report, report.about(PERIOD)):
        again = read_answer(answer_text(spoken).encode(), plan)
        assert facts(again) == facts(spoken)


ANSWER = json.loads(answer_text(solve_schedule("tessel", PLAN, 6)))


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
    with pytest.raises(InputError, match="is of another plan"):
        read_answer(json.dumps(ANSWER).encode(), build_shape("v-shape"))
