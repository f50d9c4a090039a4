"""PyTorch's files: exports read back in the same order and cannot hang, and traces give measured times."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.terminal import Tessel, terminal
from helpers.torch_pipelines import every_export, random_chain

from tessel_core.deadlock import Channels, check_channels, csv_actions
from tessel_core.errors import InputError
from tessel_core.exports import EXPORTS
from tessel_core.exports.pytorch_csv import torchtitan_settings
from tessel_core.formats.files import foreign_schedule, read_known
from tessel_core.formats.pytorch_csv import PyTorchCsv, read_pytorch_csv
from tessel_core.formats.pytorch_schedule import csv_schedule
from tessel_core.formats.pytorch_trace import PipelineTrace
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.networks import SHAPES, build_shape
from tessel_core.rules import check_schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule


@pytest.fixture
def tessel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def csv_of(schedule: Schedule) -> str:
    return EXPORTS["pytorch-csv"].made(schedule, None).decode()


def csv_in(text: str) -> PyTorchCsv:
    found = read_known(text.encode(), "torch.csv")
    assert isinstance(found, PyTorchCsv)
    return found


def read_back(text: str) -> Schedule:
    schedule = foreign_schedule([csv_in(text)]).schedule
    assert not check_schedule(schedule)
    return schedule


def solved(shape: str, scheduler: str, micro_batches: int = 6, **costs: int) -> Schedule:
    plan = build_shape(shape, replace(SHAPES[shape].defaults, **costs)).with_capacity(None)
    solution = solve_schedule(scheduler, plan, micro_batches).solution
    assert solution is not None
    return solution


def test_every_export_reads_back_in_the_same_order_and_cannot_hang() -> None:
    for name, schedule in every_export(4, 4):
        text = csv_of(schedule)
        assert text[-1] == "\n", name
        assert "" not in text.splitlines(), name
        assert csv_of(read_back(text)) == text, name
        assert [len(line.split(",")) for line in text.splitlines()] == [len(schedule.runs_on(d)) for d in range(4)]
        last = max(csv_in(text).rank_of)
        assert re.findall(rf"\b{last}F(\d+)", text) == list(map(str, range(4))), "as PyTorch's losses want it"
        actions = csv_actions(csv_in(text))
        assert all(check_channels(actions, channels, 0).proceeds for channels in Channels), name


def test_any_order_of_any_chain_is_said_and_cannot_hang() -> None:
    for seed in range(20):
        text = csv_of(random_chain(seed, 2 + seed % 3, 5))
        assert csv_of(read_back(text)) == text, seed
        assert check_channels(csv_actions(csv_in(text)), Channels.PAIR, 0).proceeds, seed


def test_micro_batches_are_numbered_as_the_last_stage_runs_them() -> None:
    schedule = solved("zb-v", "zb-v")
    others = np.array([3, 0, 5, 1, 4, 2])
    shuffled = replace(schedule, micro_batch=others[schedule.micro_batch])
    assert csv_of(shuffled) == csv_of(schedule)
    assert csv_of(schedule).splitlines()[0].startswith("0F0,0F1,0F2,")


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        ("m-shape-4", "block E is on 4 devices, but a stage must be on one"),
        ("x-shape-4", "blocks dF3 and uF0 are on branches, but stages must form a chain"),
        ("v-shape-4-inference", "plan v-shape-4-inference is for inference, but each stage needs a backward block"),
        ("evoformer-4", "plan evoformer-4 has 12 forward and 4 backward blocks, but each stage needs one of both"),
    ],
)
def test_what_has_no_stages_is_refused_with_what_works(sample: str, why: str) -> None:
    schedule = solve_schedule("sequential", load_sample(sample), 2).drawable
    assert schedule is not None
    assert EXPORTS["pytorch-csv"].objection(schedule) == (
        f"{why}; this export supports V, split V, loop and ZB-V shapes; tessel run runs any schedule"
    )


def test_stages_lie_whole_on_one_rank_and_talk_with_neighbours() -> None:
    plan = solved("split-v", "zb-h1").plan

    def objection(**changes: Any) -> str:
        changed = replace(plan, **changes)
        one = np.zeros((1, len(plan.blocks)), dtype=np.int64)
        return EXPORTS["pytorch-csv"].objection(Schedule.at_starts(changed, one)).partition(";")[0]

    def moved(name: str, device: int) -> dict[str, Any]:
        free = [replace(block, memory=0) for block in plan.blocks]
        return {"blocks": tuple(replace(b, devices=(device,)) if b.name == name else b for b in free)}

    assert objection() == ""
    assert objection(**moved("B1", 2)) == "block B1 is on gpu2 and F1 on gpu1, but a stage must be on one device"
    assert objection(**moved("W3", 0)) == "block W3 is on gpu0 and F3 on gpu3, but a stage must be on one device"
    skip = replace(plan.dependencies[0], predecessor="F0", successor="F2")
    assert objection(dependencies=(*plan.dependencies, skip)) == (
        "block F2 uses a tensor of F0, but stages can only exchange tensors with their neighbours"
    )
    more = (*plan.devices, replace(plan.devices[0], name="spare"))
    assert objection(devices=more) == "device spare runs nothing, but every rank needs a stage"


def test_torchtitan_is_told_how_stages_lie_or_that_it_cannot_place_them() -> None:
    for form, said in (("v-shape", "1F1B"), ("loop", "Interleaved1F1B"), ("zb-v", "ZBVZeroBubble")):
        settings = torchtitan_settings(solved(form, "gpipe" if form == "v-shape" else "sequential"), "s.csv")
        assert settings[:3] == (
            "pipeline_parallel_degree = 4",
            f'pipeline_parallel_schedule = "{said}"',
            'pipeline_parallel_schedule_csv = "s.csv"',
        )
    turned = solved("v-shape", "1f1b")
    blocks = tuple(replace(block, devices=(block.devices[0] ^ 1,)) for block in turned.plan.blocks)
    assert torchtitan_settings(replace(turned, plan=replace(turned.plan, blocks=blocks)), "s.csv") == ()


def test_a_file_without_durations_is_timed_in_assumed_ones() -> None:
    schedule = solved("v-shape", "1f1b", forward=1, backward=2)
    read = read_back(csv_of(schedule))
    assert (read.makespan, len(read.plan.devices)) == (schedule.makespan, 4)
    assert read.starts.tolist() == schedule.starts.tolist()
    assert MemoryProfile.of(read).peaks == MemoryProfile.of(schedule).peaks
    halves = solved("zb-v", "zb-v", forward=1, backward=1, weight=1)
    assert read_back(csv_of(halves)).makespan == halves.makespan


def test_the_older_notation_is_read_as_the_newer() -> None:
    """In it, a whole backward was `BW`, and the gradient of the input `B`. The rest is the same."""
    newer = "0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1I1,1RESHARD,1W1\n"
    older = "0F0,0F1,0BW0,0B1,0W1\n1F0,1BW0,1F1,1B1,1RESHARD,1W1\n"
    found, wanted = (read_pytorch_csv(text.encode(), "s.csv") for text in (older, newer))
    assert [each for _, _, each in found.each()] == [each for _, _, each in wanted.each()]
    assert csv_schedule(found).starts.tolist() == csv_schedule(wanted).starts.tolist()
    # A file with weight gradients but no I has no whole backwards, so it uses the older notation.
    halves = read_pytorch_csv(b"0F0,0B0,0W0\n", "s.csv")
    assert [str(each) for _, _, each in halves.each()] == ["0F0", "0I0", "0W0"]
    overlapped = read_pytorch_csv(b"0F0,(0F1;0BW0)OVERLAP_F_B,0BW1\n", "s.csv")
    assert [str(each) for _, _, each in overlapped.each()] == ["0F0", "0F1", "0B0", "0B1"]
    with pytest.raises(InputError) as caught:
        read_pytorch_csv(b"0F0,0BW0,0F1,0I1,0W1\n", "s.csv")
    assert str(caught.value) == (
        "s.csv: row 1, column 4: cell '0I1' is in the newer notation, but '0BW0' in row 1, column 2 is in the older one"
    )


def test_what_other_files_of_pytorch_say_more_is_read_as_their_computing() -> None:
    plain = read_back("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    said = "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
    said += "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_REDUCE_GRAD\n"
    assert read_back(said).starts.tolist() == plain.starts.tolist()
    overlapped = read_back("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,,1B0,1F1,1B1\n")
    assert overlapped.starts.tolist() == plain.starts.tolist()
    mixed = read_back("0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1B1\n")
    assert [block.name for block in mixed.plan.blocks] == ["F0", "F1", "B1", "B0", "W0"]
    assert mixed.makespan == plain.makespan
    assert {block.memory for block in read_back("0F0\n1F0\n").plan.blocks} == {0}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0,0B0\n1F0\n", "stage 1 on rank 1: needs 1F0 and either 1B0 or 1I0 and 1W0, and has 1F0"),
        ("0F0,0B0,0F2,0B2\n", "stage 0 on rank 0: needs 0F1 and either 0B1 or 0I1 and 0W1, and has nothing"),
        ("0F0,0I0,0B0\n", "stage 0 on rank 0: needs 0F0 and either 0B0 or 0I0 and 0W0, and has 0F0, 0I0, 0B0"),
        ("0F0,2F0\n", "the file: lacks stage 1 of 3"),
        ("0B0,0F0\n", "row 1, column 1: cell '0B0': needs F0 of micro-batch 0, which comes later on its rank"),
        ("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "row 2, column 1: cell '1F1': needs F0 of micro-batch 1, which waits"),
        (",,\n", "the file: computes nothing"),
    ],
)
def test_a_file_that_is_no_whole_schedule_says_where(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        foreign_schedule([csv_in(text)])
    assert str(caught.value).startswith(complaint)


def events_of(
    schedule: Schedule, *, steps: int = 2, begin_end: bool = False, cat: str = "user_annotation"
) -> list[Any]:
    """Return the profiler's events of these runs per rank.

    A span begins when its rank is free, so it contains waits.
    """
    long, ranks = schedule.makespan + 7, []
    cells = [line.split(",") for line in csv_of(schedule).splitlines()]
    for device, row in enumerate(cells):
        events, free = list[dict[str, Any]](), 0
        for step in range(steps):
            for cell, run in zip(row, schedule.runs_on(device).tolist(), strict=True):
                end = step * long + int(schedule.end[run])
                event = {"name": f"PP:{cell}", "cat": cat, "pid": 40 + device, "tid": 1}
                if begin_end:
                    events += [event | {"ph": "B", "ts": free}, {"ph": "E", "ts": end, "pid": 40 + device, "tid": 1}]
                else:
                    events.append(event | {"ph": "X", "ts": free, "dur": end - free})
                free = end
            free = (step + 1) * long
        noise = {"ph": "X", "name": "PP:0SEND_F0", "cat": cat, "pid": 40 + device, "ts": 0, "dur": 1}
        ranks.append(
            [{"ph": "M", "name": "process_name", "pid": 40 + device}, *([noise] if device == 0 else []), *events]
        )
    return ranks


def trace_in(events: list[Any], **more: object) -> PipelineTrace:
    found = read_known(json.dumps({"traceEvents": events, **more}).encode(), "trace.json")
    assert isinstance(found, PipelineTrace)
    return found


@pytest.mark.parametrize(
    "schedule", [solved("v-shape", "1f1b", forward=3, backward=5), solved("zb-v", "zb-v")], ids=["1f1b", "zb-v"]
)
def test_a_trace_gives_back_what_ran_and_how_long(schedule: Schedule) -> None:
    ranks = events_of(schedule)
    apart = [
        trace_in(each, distributedInfo={"rank": rank}, baseTimeNanoseconds=1_790_857_026_000_000_000)
        for rank, each in enumerate(ranks)
    ]
    merged = [trace_in([event for each in ranks for event in each])]
    begun = [trace_in([event for each in events_of(schedule, begin_end=True) for event in each])]
    launched = [event | {"dur": 1} for each in ranks for event in each if "dur" in event]
    on_gpus = [event for each in events_of(schedule, cat="gpu_user_annotation") for event in each]
    for traces in (apart, apart[::-1], merged, begun, [trace_in([*launched, *on_gpus])]):
        read = foreign_schedule(traces).schedule
        assert not check_schedule(read)
        assert csv_of(read) == csv_of(schedule)
        assert read.plan.time_unit == "ns"
        assert read.makespan == 1000 * schedule.makespan
        lasts = {block.name: block.duration for block in schedule.plan.blocks}
        assert {block.name: block.duration for block in read.plan.blocks} == {
            name: 1000 * ticks for name, ticks in lasts.items()
        }


def test_damaged_traces_are_one_sentence() -> None:
    ranks = events_of(solved("v-shape", "1f1b", 2))
    every = [event for each in ranks for event in each]
    span = {"ph": "X", "name": "PP:0F0", "pid": 1, "ts": 1, "dur": 1}
    for events, complaint in (
        (
            [],
            "trace.json: traceEvents: has no pipeline span named like PP:0F0 (stage, action, ",
        ),
        ([7], "trace.json: traceEvents[0]: must be an object"),
        ([span | {"ts": "now"}], "trace.json: traceEvents[0].ts: must be a finite number, got 'now'"),
        ([span | {"dur": -1}], "trace.json: traceEvents[0].dur: must not be negative, got -1"),
        ([span | {"name": "PP:0G0"}], "trace.json: traceEvents[0]: span 'PP:0G0' is not a PyTorch action"),
        (
            [span | {"name": "PP:(0F1;0B0)OVERLAP_F_B"}],
            "trace.json: traceEvents[0]: span 'PP:(0F1;0B0)OVERLAP_F_B' overlaps",
        ),
        ([{"ph": "E", "ts": 1}], "trace.json: traceEvents[0]: ends an event that has not begun"),
        (every[:-1], "span PP:3B1: appears 1 times but PP:0F0 2 times, so a step is incomplete"),
        (ranks[0], "stage 1: is missing in the traces: open those of all ranks together, or merge them into one file"),
        ([*ranks[0], *ranks[2], *ranks[3]], "stage 1: is missing in the traces"),
        ([*every, ranks[1][1] | {"pid": 99}], "span 'PP:1F0': stage 1 computes on two ranks"),
    ):
        with pytest.raises(InputError) as caught:
            foreign_schedule([trace_in(events)])
        assert complaint in str(caught.value)
    with pytest.raises(InputError, match="baseTimeNanoseconds: must be an integer, got 'x'"):
        trace_in(every, baseTimeNanoseconds="x")


def complaint_about(content: str) -> str:
    """Return the error, or an empty string if a valid schedule is read."""
    try:
        found = read_known(content.encode(), "damaged.csv" if content[0] != "{" else "damaged.json")
        assert isinstance(found, PyTorchCsv | PipelineTrace)
        assert not check_schedule(foreign_schedule([found]).schedule)
    except InputError as error:
        return str(error)
    return ""


def test_whatever_is_damaged_is_an_answer_or_one_sentence() -> None:
    schedule = solved("zb-v", "zb-v", 4)
    events, text = [event for each in events_of(schedule) for event in each], csv_of(schedule)
    odd = (None, True, -1, 1e300, 2**70, "x", [], {}, "PP:0F0", "PP:99999999F99999999", 0, float(2**60))
    for seed in range(150):
        choose = random.Random(seed)
        damaged, letters = [dict(event) for event in events], list(text)
        for _ in range(choose.randint(1, 3)):
            choose.choice(damaged)[choose.choice(("ts", "dur", "name", "ph", "pid", "tid", "cat"))] = choose.choice(odd)
            letters[choose.randrange(len(letters))] = choose.choice('0123456789FBIW,\n;()"x ')
        trace = json.dumps({"traceEvents": damaged, "distributedInfo": {"rank": choose.choice(odd)}})
        for content in (trace, "".join(letters)):
            assert "\n" not in complaint_about(content)


def test_from_the_terminal(tessel: Tessel) -> None:
    assert tessel("samples", "zb-v-4", "--out", "p.json").code == 0
    assert tessel("schedule", "p.json", "--scheduler", "zb-v", "--micro-batches", "4", "--out", "z.json").code == 0
    ended = tessel("export", "z.json", "--to", "pytorch-csv", "--out", "z.csv", "--script", "--json")
    assert ended.code == 0
    assert ended.document["script"] == "z.py"
    assert ended.document["torchtitan"][1] == 'pipeline_parallel_schedule = "ZBVZeroBubble"'
    compile(Path("z.py").read_text(), "z.py", "exec")
    assert "with_name('z.csv')" in Path("z.py").read_text()
    again = tessel("export", "z.json", "--to", "pytorch-csv", "--out", "z.csv", "--script")
    assert (again.code, again.err) == (
        2,
        "error: z.py: exists and may hold your model, so it is not replaced. Leave out --script: the script runs the "
        "new file too\n",
    )
    assert tessel("export", "z.json", "--out", "other.pytorch.csv", "--script").out.count("\n") == 7
    assert tessel("check", "z.csv").out == "z.csv: valid\n"
    back = tessel("export", "z.csv", "--to", "pytorch-csv")
    assert (back.out, back.code) == (Path("z.csv").read_text(), 0)
    assert back.err.startswith("note: z.csv: durations are assumed: a forward lasts 1 step")
    schedule = solved("v-shape", "1f1b")
    for rank, events in enumerate(events_of(schedule)):
        Path(f"t{rank}.json").write_text(json.dumps({"traceEvents": events}))
    traces = [f"t{rank}.json" for rank in range(4)]
    assert tessel("check", *traces).out == "".join(f"{name}: valid\n" for name in traces)
    assert tessel("export", *traces, "--to", "pytorch-csv").out == csv_of(schedule)
    for words, complaint in (
        (
            ["z.csv", "z.json", "--to", "csv"],
            "error: z.json: is one file too many: only traces of ranks can be combined",
        ),
        (["t0.json", "--to", "csv"], "error: t0.json: stage 1: is missing in the traces: open those of all ranks "),
        (["z.json", "--to", "csv", "--script"], "error: --script: is for pytorch-csv, not csv\n"),
        (
            ["z.json", "--to", "pytorch-csv", "--script"],
            "error: --script: is written beside a file, so it needs --out\n",
        ),
    ):
        ended = tessel("export", *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert ended.err.startswith(complaint)
