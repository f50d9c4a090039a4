"""Files: what is written reads back the same, and errors give one sentence that names the place."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import pytest
from helpers.plans import plans
from helpers.seeds import examples
from helpers.simulator import runs_of
from hypothesis import assume, given, settings, strategies

from tessel_core.errors import InputError
from tessel_core.formats import (
    fields as fields_module,
)
from tessel_core.formats import (
    files as files_module,
)
from tessel_core.formats import plan_text, read_file, read_plan, read_schedule, schedule_text, write_file
from tessel_core.formats.fields import read_with
from tessel_core.formats.files import read_text
from tessel_core.formats.schedule_file import ScheduleFile
from tessel_core.formats.tessel_json import tessel_json_from, tessel_json_text
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule, SolveReport, Status
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule

names = strategies.text(strategies.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.isprintable)
large = strategies.integers(0, 2**50)


@strategies.composite
def named_plans(draw: strategies.DrawFn) -> MicroBatchPlan:
    """Return plans with random names, units and magnitudes."""
    forward, backward, weight = draw(strategies.lists(names, min_size=3, max_size=3, unique=True))
    held = draw(large)
    return MicroBatchPlan(
        draw(names),
        tuple(
            PlanDevice(name, draw(strategies.none() | large), draw(large))
            for name in draw(strategies.lists(names, min_size=2, max_size=3, unique=True))
        ),
        (
            Block(forward, draw(strategies.sampled_from(BlockKind)), (0, 1), draw(large) + 1, held),
            Block(weight, BlockKind.WEIGHT, (1,), draw(large) + 1),
            Block(backward, BlockKind.BACKWARD, (1, 0), draw(large) + 1, -held),
        ),
        (Dependency(forward, backward, draw(large)),),
        draw(names),
        draw(names),
    )


@given(plans() | named_plans())
@settings(max_examples=examples(100), deadline=None)
def test_a_plan_reads_back(plan: MicroBatchPlan):
    text = plan_text(plan)
    assert read_plan(text.encode()) == plan
    assert read_text(text.encode(), "file") == plan
    assert plan_text(read_plan(text.encode())) == text


def report_on(schedule: Schedule, objective: Fraction | None) -> SolveReport[Schedule]:
    return SolveReport(
        status=Status.FEASIBLE,
        solution=schedule,
        objective_name="makespan",
        objective=objective,
        bound=objective,
        wall_s=0.25,
        solver="somebody",
    )


@given(plans() | named_plans(), strategies.integers(1, 5), strategies.none() | strategies.fractions(0, 10**6))
@settings(max_examples=examples(100), deadline=None)
def test_a_schedule_reads_back(plan: MicroBatchPlan, micro_batches: int, objective: Fraction | None):
    assume(micro_batches * (sum(b.duration for b in plan.blocks) + sum(d.lag for d in plan.dependencies)) <= 2**53)
    schedule = solve_schedule("sequential", plan.with_capacity(None), micro_batches).solution
    assert schedule is not None
    text = schedule_text(schedule, report_on(schedule, objective))
    again = read_schedule(text.encode())
    assert again.schedule.plan == schedule.plan
    assert again.schedule.micro_batches == micro_batches
    assert runs_of(again.schedule) == runs_of(schedule)
    assert again.schedule.repetend == schedule.repetend
    assert again.scheduler == "somebody"
    assert again.report is not None
    assert (again.report.status, again.report.objective_name, again.report.wall_s) == (
        Status.FEASIBLE,
        "makespan",
        0.25,
    )
    assert again.report.objective == again.report.bound == (None if objective is None else float(objective))


@pytest.mark.parametrize(
    "name", [each.name for each in list_samples() if not each.name.startswith("zb") and "split" not in each.name]
)
def test_tessel_s_own_json_reads_back_what_it_can_hold(name: str):
    """The format has blocks, devices and steps, but no names, lags or capacities."""
    plan = load_sample(name)
    schedule = solve_schedule("sequential", plan.with_capacity(None), 3).solution
    assert schedule is not None
    again = read_with(tessel_json_from, tessel_json_text(schedule).encode(), "a file")
    assert held_by(again) == held_by(schedule)
    assert held_by(read_with(tessel_json_from, tessel_json_text(again).encode(), "a file")) == held_by(schedule)
    known = [again.plan.block_index(f"{block.kind.value[0].upper()}{b}") for b, block in enumerate(plan.blocks)]
    for before, after, _ in plan.arcs:
        assert again.plan.ancestors[known[after]] >> known[before] & 1


def held_by(schedule: Schedule) -> list[tuple[object, ...]]:
    return sorted(
        (start, m, block.kind.value, block.devices, block.duration, block.memory)
        for b, m, start in runs_of(schedule)
        for block in [schedule.plan.blocks[b]]
    )


@pytest.mark.parametrize("kinds", [("forward", "backward"), ("FORWARD", "BACKWARD")], ids=lambda kinds: kinds[0])
def test_tessel_s_own_json_is_read_in_both_spellings(kinds: tuple[str, str]):
    blocks = [
        {"mid": 0, "span": 1, "memory": 1.0, "btype": kinds[0], "gid": 7, "step": 0, "device": [0, 1], "extra": None},
        {"mid": 0, "span": 3, "memory": -1.0, "btype": kinds[1], "gid": 2, "step": 1, "device": [0, 1]},
    ]
    document = {"ndevs": 2, "blocks": blocks, "repetend": [0, 4], "note": "other keys are ignored"}
    schedule = read_with(tessel_json_from, json.dumps(document).encode(), "a file")
    assert held_by(schedule) == [(0, 0, "forward", (0, 1), 1, 1), (1, 0, "backward", (0, 1), 3, -1)]
    assert schedule.plan.dependencies == (Dependency("F7", "B2"),)
    assert [device.memory_capacity for device in schedule.plan.devices] == [None, None]
    read = read_text(json.dumps(document).encode(), "file")
    assert isinstance(read, ScheduleFile)
    assert (read.scheduler, read.report) == ("tessel-json", None)


def test_tessel_s_own_json_has_no_word_for_split_backward():
    schedule = solve_schedule("sequential", load_sample("split-v-4"), 1).solution
    assert schedule is not None
    with pytest.raises(InputError, match="block W0: Tessel's JSON knows forward and backward blocks, not weight"):
        tessel_json_text(schedule)


PLAN = {
    "format": "tessel-plan",
    "version": 1,
    "name": "turn",
    "time_unit": "step",
    "memory_unit": "slot",
    "devices": [{"name": "gpu0", "memory_capacity": 4, "static_memory": 1}, {"name": "gpu1"}],
    "blocks": [
        {"name": "F", "kind": "forward", "devices": [0], "duration": 1, "memory": 1},
        {"name": "G", "kind": "other", "devices": [0, 1], "duration": 2},
        {"name": "B", "kind": "backward", "devices": [0], "duration": 2, "memory": -1},
    ],
    "dependencies": [{"from": "F", "to": "G", "lag": 1}, {"from": "F", "to": "B"}],
}
SCHEDULE = {
    "format": "tessel-schedule",
    "version": 1,
    "plan": PLAN,
    "scheduler": "hand",
    "micro_batches": 1,
    "runs": [
        {"block": "F", "micro_batch": 0, "start": 0},
        {"block": "B", "micro_batch": 0, "start": 1},
        {"block": "G", "micro_batch": 0, "start": 3},
    ],
    "repetend": None,
    "report": {"status": "FEASIBLE", "objective_name": "makespan", "objective": 5, "bound": None, "wall_s": 0.0},
}
TESSEL = {
    "ndevs": 1,
    "blocks": [
        {"mid": 0, "span": 1, "memory": 1, "btype": "forward", "gid": 0, "step": 0, "device": [0]},
        {"mid": 0, "span": 2, "memory": -1, "btype": "backward", "gid": 1, "step": 1, "device": [0]},
    ],
    "repetend": [0, 3],
}
"""Three valid documents, from which the invalid ones are made."""

MISSING = object()
LATE = {**TESSEL["blocks"][0], "mid": 10**9, "step": 5}


def changed(document: dict[str, object], path: str, value: object) -> bytes:
    """Return the document with the value at a dotted path replaced or added, or removed if it is MISSING."""
    copy = deepcopy(document)
    here: object = copy
    *steps, last = path.split(".")
    for step in steps:
        here = here[int(step) if isinstance(here, list) else step]  # type: ignore[index]
    if value is MISSING:
        del here[last]  # type: ignore[attr-defined]
    elif isinstance(here, list) and int(last) == len(here):
        here.append(value)
    else:
        here[int(last) if isinstance(here, list) else last] = value  # type: ignore[index]
    return json.dumps(copy).encode()


def test_the_good_documents_are_good():
    plan = read_plan(json.dumps(PLAN).encode())
    assert plan.devices[1] == PlanDevice("gpu1", None, 0)
    assert (plan.blocks[1].memory, plan.dependencies[1].lag) == (0, 0)
    assert read_schedule(json.dumps(SCHEDULE).encode()).schedule.makespan == 5
    assert read_with(tessel_json_from, json.dumps(TESSEL).encode(), "a file").makespan == 3
    assert read_text(b"\xef\xbb\xbf" + json.dumps(PLAN).encode(), "with a byte order mark") == plan


BAD_VALUES = [
    (PLAN, "version", 2, "version: tessel-plan version 2 is not known, this program reads version 1"),
    (PLAN, "version", "1", "version: must be an integer, got '1'"),
    (PLAN, "version", True, "version: must be an integer, got true"),
    (PLAN, "version", MISSING, "the file: 'version' is missing"),
    (
        PLAN,
        "format",
        "tessel-program",
        "format: 'tessel-program' is not known, choose from tessel-plan, tessel-schedule",
    ),
    (PLAN, "format", 1, "format: must be text, got 1"),
    (PLAN, "format", MISSING, "the file: 'format' is missing"),
    (PLAN, "colour", "red", "unknown key 'colour', choose from format, version, name"),
    (PLAN, "name", MISSING, "the file: 'name' is missing"),
    (PLAN, "name", None, "name: must be text, got null"),
    (PLAN, "time_unit", MISSING, "the file: 'time_unit' is missing"),
    (PLAN, "devices", MISSING, "the file: 'devices' is missing"),
    (PLAN, "devices", [], "devices: the plan has none, but needs at least one"),
    (PLAN, "devices", {}, "devices: must be a list, got an object"),
    (PLAN, "devices.0", "gpu0", "devices[0]: must be an object, got 'gpu0'"),
    (PLAN, "devices.0.name", "", "a device: its name is empty"),
    (PLAN, "devices.1.name", "gpu0", "devices: duplicate name 'gpu0'"),
    (PLAN, "devices.0.memory_capacity", -1, "devices[0].memory_capacity: must be at least 0, got -1"),
    (PLAN, "devices.0.memory_capacity", 4.0, "devices[0].memory_capacity: must be an integer, got 4.0"),
    (PLAN, "devices.0.static_memory", None, "devices[0].static_memory: must be an integer, got null"),
    (PLAN, "devices.0.memory", 3, "devices[0]: unknown key 'memory', choose from name, memory_capacity, static_memory"),
    (PLAN, "blocks", [], "blocks: the plan has none, but needs at least one"),
    (PLAN, "blocks.0.name", MISSING, "blocks[0]: 'name' is missing"),
    (PLAN, "blocks.0.name", "G", "blocks: duplicate name 'G'"),
    (
        PLAN,
        "blocks.0.kind",
        "sideways",
        "blocks[0].kind: must be one of forward, backward, weight, other, got '",
    ),
    (PLAN, "blocks.0.kind", ["forward"], "blocks[0].kind: must be text, got a list"),
    (PLAN, "blocks.0.devices", 0, "blocks[0].devices: must be a list, got 0"),
    (PLAN, "blocks.0.devices", [], "block F: devices is empty, but a block needs at least one"),
    (PLAN, "blocks.0.devices", [0, 0], "block F: devices names a device twice: [0, 0]"),
    (PLAN, "blocks.0.devices", [2], "block F: unknown device 2: the plan has devices 0 to 1"),
    (PLAN, "blocks.0.devices", [-1], "blocks[0].devices[0]: must be at least 0, got -1"),
    (PLAN, "blocks.0.devices", ["gpu0"], "blocks[0].devices[0]: must be an integer, got 'gpu0'"),
    (PLAN, "blocks.0.duration", 0, "blocks[0].duration: must be at least 1, got 0"),
    (PLAN, "blocks.0.duration", -3, "blocks[0].duration: must be at least 1, got -3"),
    (PLAN, "blocks.0.duration", 4.0, "blocks[0].duration: must be an integer, got 4.0"),
    (PLAN, "blocks.0.duration", True, "blocks[0].duration: must be an integer, got true"),
    (PLAN, "blocks.0.duration", "4", "blocks[0].duration: must be an integer, got '4'"),
    (PLAN, "blocks.0.duration", MISSING, "blocks[0]: 'duration' is missing"),
    (PLAN, "blocks.0.duration", 2**53 + 1, "blocks[0].duration: must be at most 2^53 in magnitude"),
    (PLAN, "blocks.0.duration", 2**53, "blocks: durations and lags sum to 9007199254740997, more than 2^53"),
    (PLAN, "blocks.0.memory", False, "blocks[0].memory: must be an integer, got false"),
    (PLAN, "blocks.0.memory", 2, "device gpu0: the memory of one micro-batch's blocks must sum to 0, it sums to 1"),
    (PLAN, "blocks.0.memory", -(2**53) - 1, "blocks[0].memory: must be at most 2^53 in magnitude"),
    (PLAN, "devices.0.static_memory", 2**53, "device gpu0: memory sums to 9007199254740994, more than 2^53"),
    (PLAN, "dependencies", None, "dependencies: must be a list, got null"),
    (PLAN, "dependencies.0.lag", -1, "dependencies[0].lag: must be at least 0, got -1"),
    (PLAN, "dependencies.0.lag", 1.0, "dependencies[0].lag: must be an integer, got 1.0"),
    (PLAN, "dependencies.0.to", "H", "dependency F -> H: unknown block 'H'"),
    (PLAN, "dependencies.0.to", "F", "dependencies: they form a cycle: F -> F"),
    (PLAN, "dependencies.2", {"from": "B", "to": "F"}, "dependencies: they form a cycle: "),
    (PLAN, "dependencies.2", {"from": "F", "to": "B", "lag": 2}, "dependencies: duplicate name 'F -> B'"),
    (
        PLAN,
        "dependencies.1",
        {"from": "B", "to": "G"},
        "device gpu0: block B can release 1 when only 0 is held: no dependency makes it wait for the blocks",
    ),
    (SCHEDULE, "version", 0, "version: tessel-schedule version 0 is not known, this program reads version 1"),
    (SCHEDULE, "plan.blocks.0.duration", 0, "plan.blocks[0].duration: must be at least 1, got 0"),
    (SCHEDULE, "plan.dependencies.0.to", "H", "plan: dependency F -> H: unknown block 'H'"),
    (SCHEDULE, "plan", None, "plan: must be an object, got null"),
    (SCHEDULE, "micro_batches", 0, "micro_batches: must be at least 1, got 0"),
    (SCHEDULE, "micro_batches", 1.0, "micro_batches: must be an integer, got 1.0"),
    (SCHEDULE, "micro_batches", 2**53, "micro_batches: 9,007,199,254,740,992 micro-batches of 3 blocks are "),
    (SCHEDULE, "runs.0.block", "H", "runs[0].block: unknown block 'H'"),
    (SCHEDULE, "runs.0.start", -1, "runs[0].start: must be at least 0, got -1"),
    (SCHEDULE, "runs.2.micro_batch", None, "runs[2].micro_batch: must be an integer, got null"),
    (SCHEDULE, "runs.0.device", 0, "runs[0]: unknown key 'device', choose from block, micro_batch, start"),
    (SCHEDULE, "repetend", [], "repetend: must be an object, got a list"),
    (
        SCHEDULE,
        "repetend",
        {"period": 0, "unroll": 1, "first_micro_batch": 0, "last_micro_batch": 1},
        "repetend.period: must be at least 1, got 0",
    ),
    (
        SCHEDULE,
        "repetend",
        {"period": 1, "unroll": 2, "first_micro_batch": 0, "last_micro_batch": 1},
        "repetend: micro-batches 0 to 1 hold no repetition of 2 micro-batches",
    ),
    (SCHEDULE, "report", MISSING, "the file: 'report' is missing"),
    (SCHEDULE, "report.status", "OPTIMAL", "report.status: must be one of PROVED_OPTIMAL, FEASIBLE, "),
    (SCHEDULE, "report.objective", "5", "report.objective: must be a finite number, got '5'"),
    (SCHEDULE, "report.bound", True, "report.bound: must be a finite number, got true"),
    (TESSEL, "ndevs", 0, "ndevs: must be at least 1, got 0"),
    (TESSEL, "ndevs", 10**9, "ndevs: must be at most 4096, got 1000000000"),
    (TESSEL, "blocks", [], "blocks: is empty"),
    (TESSEL, "blocks.0.btype", "sideways", "blocks[0].btype: must be forward or backward, got 'sideways'"),
    (TESSEL, "blocks.0.memory", 0.5, "blocks[0].memory: must be a whole number, got 0.5"),
    (TESSEL, "blocks.0.memory", 1e300, "blocks[0].memory: must be at most 2^53 in magnitude"),
    (TESSEL, "blocks.0.device", [1], "block F0: unknown device 1: the plan has devices 0 to 0"),
    (TESSEL, "blocks.0.span", 1.0, "blocks[0].span: must be an integer, got 1.0"),
    (TESSEL, "blocks.2", LATE, "blocks: 1,000,000,001 micro-batches of 2 blocks are 2,000,000,002 runs, more than"),
    (TESSEL, "blocks.1.gid", 0, "blocks[1]: differs from an earlier block with gid 0"),
]


def test_a_dependency_may_be_added() -> None:
    plan = read_text(changed(PLAN, "dependencies.1", {"from": "G", "to": "B"}), "my file")
    assert ("G", "B") in {(each.predecessor, each.successor) for each in plan.dependencies}


@pytest.mark.parametrize(("document", "path", "value", "why"), BAD_VALUES)
def test_a_wrong_value_is_said_in_one_sentence_with_its_place(
    document: dict[str, object], path: str, value: object, why: str
):
    data = changed(document, path, value)
    with pytest.raises(InputError) as raised:
        read_text(data, "my file")
    assert str(raised.value).startswith("my file: ")
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


GOOD = json.dumps(PLAN)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b" \n\t ", "is empty"),
        (GOOD[:-1].encode(), "is not JSON: "),
        (GOOD[: len(GOOD) // 2].encode(), "is not JSON: "),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not text in UTF-8 (byte 0); is it a binary file?"),
        (b"\x00\x01\x02", "is not JSON: Expecting value at line 1, column 1"),
        (GOOD.encode("utf-16"), "is not text in UTF-8 (byte 0); is it a binary file?"),
        (b"PK\x03\x04 not json", "is not JSON: "),
        (f"[{GOOD}]".encode(), "must be a JSON object, got a list"),
        (b"3", "must be a JSON object, got 3"),
        (b"null", "must be a JSON object, got null"),
        (b"[" * 200_000, "is nested too deep to be read"),
        (b'{"a": ' * 200_000, "is nested too deep to be read"),
        (GOOD.replace('"version": 1', '"version": 1, "version": 1').encode(), "JSON: key 'version' is repeated"),
        (GOOD.replace('"duration": 1', '"duration": NaN').encode(), "JSON: NaN is not allowed"),
        (GOOD.replace('"duration": 1', '"duration": -Infinity').encode(), "JSON: -Infinity is not allowed"),
        (GOOD.replace('"duration": 1', '"duration": 1' + "0" * 5000).encode(), "holds a number with too many digits"),
        (
            GOOD.replace('"duration": 1', '"duration": 1e400').encode(),
            "blocks[0].duration: must be an integer, got ",
        ),
        (
            GOOD.replace('"duration": 1', '"duration": 1e3').encode(),
            "[0].duration: must be an integer, got 1000.0",
        ),
        (GOOD.replace('"turn"', "'turn'").encode(), "is not JSON: "),
        ((GOOD + GOOD).encode(), "is not JSON: Extra data"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_document_at_all_is_said_in_one_sentence(data: bytes, why: str):
    for read in (read_text, read_plan, read_schedule):
        with pytest.raises(InputError) as raised:
            read(data, "my file")
        assert str(raised.value).startswith("my file: ")
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 300
    with pytest.raises(InputError) as raised:
        read_text(data, "my file")
    assert why in str(raised.value)


@pytest.mark.parametrize("path", ["name", "time_unit", "devices.0.name", "blocks.0.name", "dependencies.0.from"])
def test_text_that_json_can_spell_and_utf_8_cannot_hold_is_refused(path: str):
    with pytest.raises(InputError, match=r"contains half a character \(a lone surrogate\): 'a\\ud800'"):
        read_plan(changed(PLAN, path, "a\ud800"))


def test_a_memory_that_some_order_makes_negative_by_a_sum_is_refused():
    """Each release alone is covered, but both together are not. The set of both is closed under predecessors."""
    plan = deepcopy(PLAN)
    plan["blocks"] = [
        {"name": "A", "kind": "forward", "devices": [0], "duration": 1, "memory": 2},
        {"name": "C", "kind": "forward", "devices": [0], "duration": 1, "memory": 2},
        {"name": "R", "kind": "backward", "devices": [0], "duration": 1, "memory": -2},
        {"name": "S", "kind": "backward", "devices": [0], "duration": 1, "memory": -2},
    ]
    plan["dependencies"] = [{"from": "A", "to": "R"}, {"from": "A", "to": "S"}]
    with pytest.raises(
        InputError, match="gpu0: in some order that the dependencies allow, blocks release 2 more than is held"
    ):
        read_plan(json.dumps(plan).encode())


def test_a_file_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "large.json"
    path.write_text(GOOD, encoding="utf-8")
    for module in (files_module, fields_module):
        monkeypatch.setattr(module, "LARGEST_FILE", len(GOOD) - 1)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("was read"))
    with pytest.raises(InputError, match=f"has {len(GOOD)} bytes, more than the limit of {len(GOOD) - 1}"):
        read_file(path)
    with pytest.raises(InputError, match=f"upload: has {len(GOOD)} bytes, more than the limit of {len(GOOD) - 1}"):
        read_text(GOOD.encode(), "upload")


@pytest.mark.parametrize(
    ("name", "why"), [("absent.json", "No such file or directory"), (".", "is a folder, not a file")]
)
def test_a_file_that_cannot_be_read_is_said_in_one_sentence(tmp_path: Path, name: str, why: str):
    with pytest.raises(InputError) as raised:
        read_file(tmp_path / name)
    assert str(raised.value) == f"{tmp_path / name}: {why}"


def test_a_write_is_whole(tmp_path: Path):
    path = tmp_path / "plan.json"
    for text in ("old\n", "new ✓\n"):
        write_file(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, existing: bool
):
    path = tmp_path / "plan.json"
    if existing:
        path.write_text("old", encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(InputError, match=r"plan\.json: cannot be written: No space left on device"):
        write_file(path, "new")
    monkeypatch.undo()
    assert [each.name for each in tmp_path.iterdir()] == (["plan.json"] if existing else [])
    assert not existing or path.read_text(encoding="utf-8") == "old"


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files_module.check_place(path)
        write_file(path, "a plan")
        assert os.read(reader, 100) == b"a plan"
    finally:
        os.close(reader)
    assert path.is_fifo()


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path):
    (tmp_path / "far").mkdir()
    path = tmp_path / "latest.json"
    path.symlink_to(tmp_path / "far" / "plan.json")
    for content in ("old", "new"):
        write_file(path, content)
        assert path.is_symlink()
        assert (tmp_path / "far" / "plan.json").read_text(encoding="utf-8") == content
    assert [each.name for each in (tmp_path / "far").iterdir()] == ["plan.json"]


def test_a_write_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "plan.json", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", "absent/plan.json"])
def test_a_place_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path, place: str):
    for write in (files_module.check_place, lambda path: write_file(path, "text")):
        with pytest.raises(InputError) as raised:
            write(tmp_path / place)
        assert str(raised.value).startswith(f"{tmp_path / place}: ")
    assert list(tmp_path.iterdir()) == []
