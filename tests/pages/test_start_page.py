"""The Start page: the first picture, and the three ways to start."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers.seeds import one_in

from tessel_core.formats import plan_text, schedule_text
from tessel_core.networks import SHAPES, build_shape
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.comparison import Made
from tessel_core.workbench.messages.timeline import about

PLAN = build_shape("m-shape")


def schedule_file(break_it: bool = False) -> bytes:
    report = solve_schedule("1f1b+", PLAN, 6)
    assert report.solution is not None
    document = json.loads(schedule_text(report.solution, report))
    if break_it:
        document["runs"][-1]["start"] = 0
    return json.dumps(document).encode()


def test_the_first_screen_compares_and_leads_on(app) -> None:
    tab = app()
    upper, lower = tab.timelines()
    assert "1F1B, V-shaped placement: GPUs idle" in upper["title"]
    assert (len(lower["devices"]), len(lower["block"])) == (4, 0), "shown before the search has ended"
    tab.wait(lambda: any("faster" in text.value for text in tab.test.markdown))
    again, found = tab.timelines()
    assert again["digest"] == upper["digest"]
    assert "Searched, M-shaped placement: GPUs idle" in found["title"]
    assert 0 < found["makespan"] < upper["makespan"]
    assert not tab.test.get("plotly_chart"), "a browser takes seconds to load what draws those"
    ratio = next(text.value for text in tab.test.markdown if "faster" in text.value)
    assert float(ratio.split("[")[1].split("×")[0]) > 1.2
    tab.press("Open the searched schedule")
    assert tab.work.sample == "gpt-1m-vocab-m-4"
    assert tab.says("period is proved optimal"), "the searched schedule is there at once"


@pytest.mark.parametrize("name", ["v-shape-4", "mt5-nn-8"])
def test_a_sample_opens(app, name: str) -> None:
    tab = app("start").pick("Sample", name).press("Open sample")
    assert tab.work.plan.name == name


def test_every_sample_is_offered_with_a_picture_of_its_own(app) -> None:
    """Each group has small, well-formed pictures."""
    tab, offered = app("start"), dict[str, str]()
    for family in tab.test.selectbox[0].options:
        tab.choose("Sample, group", family)
        galleries = [each.proto for each in tab.test.get("bidi_component") if "gallery" in each.proto.component_name]
        offered |= {name: svg for name, _, svg, _ in json.loads(galleries[0].bytes)["samples"]}
    assert set(offered) == {sample.name for sample in list_samples()}
    assert all(ElementTree.fromstring(svg).tag.endswith("svg") and len(svg) < 8_000 for svg in offered.values())
    assert len({offered[f"{shape}-shape-8"] for shape in "vxmk"}) == 4


@pytest.mark.parametrize("name", one_in(4, SHAPES))
def test_every_shape_opens(app, name: str) -> None:
    tab = app("start").choose("Shape", name).choose("Devices", 6).press("Open shape")
    assert tab.work.plan == build_shape(name, SHAPES[name].defaults.__class__(**{**asdict(name), "devices": 6}))


def asdict(name: str) -> dict[str, object]:
    defaults = SHAPES[name].defaults
    return {field: getattr(defaults, field) for field in defaults.__dataclass_fields__}


def test_a_shape_that_cannot_be_built_says_why(app) -> None:
    tab = app("start").choose("Shape", "k-shape").choose("Devices", 5).press("Open shape")
    assert tab.says("needs an even number, got 5")


def test_a_plan_is_uploaded(app) -> None:
    tab = app("start")
    tab.test.file_uploader[0].upload("mine.json", plan_text(PLAN).encode(), "application/json")
    tab.run()
    assert tab.work.plan == PLAN
    assert tab.work.source == "file mine.json"


def test_a_schedule_is_uploaded_judged_and_shown(app) -> None:
    tab = app("start")
    tab.test.file_uploader[0].upload("mine.json", schedule_file(), "application/json")
    tab.run()
    assert tab.work.micro_batches == 6
    assert tab.numbers()["Makespan"]
    tab.go("schedule").look_at("Plan").edit("blocks", 1, "duration", 7).look_at("Schedule")
    assert tab.says("this schedule was opened")


def test_an_opened_schedule_stands_before_a_kept_answer_until_something_is_searched(app) -> None:
    """The Compare page also adds the opened schedule, unchanged."""
    tab = app("schedule", sample="v-shape-4", n="6").press("Search")
    assert tab.numbers()["Makespan"] == "36 steps"
    slow = solve_schedule("sequential", load_sample("v-shape-4"), 6)
    assert slow.solution is not None
    tab = app("start")
    tab.test.file_uploader[0].upload("slow.json", schedule_text(slow.solution, slow).encode(), "application/json")
    tab.run().go("schedule")
    assert tab.numbers()["Makespan"] == "96 steps"
    tab.look_at("Plan").choose("Micro-batches", 5).choose("Micro-batches", 6).look_at("Schedule")
    assert tab.numbers()["Makespan"] == "96 steps", "nobody has asked for a search"
    (made,) = tab.press("Add to Compare").work.comparison.pairs
    assert isinstance(made, Made)
    assert made.starts == tuple(map(tuple, slow.solution.starts.tolist()))
    assert tab.press("Search").numbers()["Makespan"] == "36 steps"


def test_pytorch_s_schedule_opens_in_durations_that_are_said_to_be_assumed(app) -> None:
    tab = app("start")
    tab.test.file_uploader[0].upload("torch.csv", b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "text/csv")
    tab.run()
    assert tab.says("Read from a PyTorch schedule: durations are assumed: a forward lasts 1 step, a backward 2, ")
    assert tab.go("schedule").numbers()["Makespan"] == "9 steps"


EARLY_RECEIVE = b"""\
0F0,0SEND_F0,0F1,2RECV_F0,2F0,0SEND_F1,2RECV_F1,2F1
1RECV_F0,1F0,1RECV_F1,1SEND_F0,1F1,1SEND_F1
"""


def test_a_schedule_whose_ranks_wait_for_each_other_says_so_until_it_is_changed(app) -> None:
    """The timeline draws the circular wait, also after the workspace is opened again."""
    tab = app("start")
    tab.test.file_uploader[0].upload("torch.csv", EARLY_RECEIVE, "text/csv")
    tab.run().go("schedule")
    circle = "Circle: rank 0 at position 3 (2RECV_F0) waits for rank 1 at position 2 (1RECV_F1), which waits for the fi"
    assert tab.says(f"Ranks that follow this file wait forever. {circle}")
    names = [f"{tab.work.plan.blocks[run.block].name} #{run.micro_batch}" for run in tab.work.hang.runs]
    assert names == ["F2 #0", "F1 #1"]
    tab.go("run")
    assert next(each for each in tab.test.button if each.label == "Run").disabled
    again = app("schedule", work=tab.work.token)
    assert again.work.hang == tab.work.hang
    assert again.says(circle)
    assert not tab.go("schedule").press("Search").says(circle)


def receive(tab: Any, receives: str) -> Any:
    next(group for group in tab.test.button_group if group.label == "Receives wait").set_value(receives)
    return tab.run()


def test_receives_wait_on_streams_or_in_line_with_computing(app) -> None:
    """The switch shows either case. An idle interval names its receive. Compare has both schedules."""
    tab = app("start")
    text = b"0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1RECV_F1,1F0,1F1\n"
    tab.test.file_uploader[0].upload("torch.csv", text, "text/csv")
    tab.run().go("schedule").look_at("Schedule")
    assert tab.numbers()["Makespan"] == "3 steps"
    assert receive(tab, "in-order").numbers()["Makespan"] == "4 steps"
    work = tab.work
    line = dict(about(work.opened.solution, "g1.0", work.written_as(work.opened.solution).waits).lines)["Receives"]
    assert line == (
        "Rank 1 waits 1 step at 0 for 1RECV_F0, and 1F0 after it; rank 1 waits 1 step at 1 for 1RECV_F1, and 1F0 "
        "after it.",
    )
    assert work.comparison.labels() == ("Receives on separate streams", "Receives in line with computing")
    again = app("schedule", work=work.token).look_at("Schedule")
    assert again.numbers()["Makespan"] == "4 steps"
    assert receive(again, "stream").numbers()["Makespan"] == "3 steps"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EARLY_RECEIVE.replace(b"2RECV_F0,2F0,0SEND_F1", b"0SEND_F1,2RECV_F0,2F0"), ""),
        (b"0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1F1,1RECV_F0,1F0\n", "receive other tensors than they expect"),
        (b"0F0,0SEND_F0\n1F0\n", "position 1 (0SEND_F0) waits forever: nobody receives"),
        (
            b"0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_F0\n",
            "cannot run: row 2, column 3: cell '1SEND_F0' exchanges a tensor",
        ),
    ],
    ids=["proceeds", "mismatched", "never satisfied", "no such stage"],
)
def test_what_goes_wrong_with_sends_and_receives_of_a_file_is_one_sentence(app, text: bytes, said: str) -> None:
    tab = app("start")
    tab.test.file_uploader[0].upload("torch.csv", text, "text/csv")
    tab.run().go("schedule")
    assert tab.work.hang is None if not said else tab.says(said)


BAD = {
    "empty": (b"", "is empty"),
    "binary": (b"\x00\xff\x10binary", "is it a binary file?"),
    "truncated": (b"{", "is not JSON"),
    "deep": (b"[" * 200_000, "nested too deep"),
    "version": (b'{"format": "tessel-plan", "version": 2}', "version 2 is not known"),
    "repeated": (b'{"format": "tessel-plan", "format": "x"}', "is repeated"),
    "nan": (plan_text(PLAN).replace('"duration": 3', '"duration": NaN').encode(), "NaN is not allowed"),
    "float": (plan_text(PLAN).replace('"duration": 3', '"duration": 3.0').encode(), "must be an integer, got 3.0"),
    "cut": (plan_text(PLAN)[:200].encode(), "is not JSON"),
    "PyTorch's": (b"0F0,,0B0\n,1B0,1F0\n", "row 2, column 2: cell '1B0': needs F1 of micro-batch 0"),
    "trace": (b'{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": "now"}]}', "traceEvents[0].ts: must be a finite"),
    "rule": (schedule_file(break_it=True), "(rule: "),
    "large": (b"x" * 64_000_001, "more than the limit of 64,000,000"),
}


def test_a_bad_upload_is_told_in_one_sentence_and_nothing_is_lost(app) -> None:
    tab = app("start", sample="v-shape-4")
    before = tab.work
    for name, (content, complaint) in BAD.items():
        tab.test.file_uploader[0].upload(f"{name}.json", content, "application/json")
        tab.run()
        assert len(tab.says(complaint)) == 1
        assert tab.says(complaint)[0].startswith(f"{name}.json: ")
        assert tab.work == before
