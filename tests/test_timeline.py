"""The timeline: its buffer contains the schedule, and its script computes the same as the core."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.plans import random_plan
from helpers.seeds import seeds
from helpers.timeline_script import answers

from pages.shared.timeline.state import PARTS
from tessel_core.charts.bars import spans_of
from tessel_core.charts.palette import KIND_COLOURS, ink, luminance, shade
from tessel_core.charts.raster import busy_shares
from tessel_core.charts.timeline import Look, timeline_data, timeline_frames, timeline_height
from tessel_core.charts.timeline_script import timeline_module
from tessel_core.model import Block, BlockKind, MemoryProfile, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.networks import SHAPES, ShapeParameters, build_shape
from tessel_core.scheduling import solve_schedule
from tessel_core.units import show_memory, show_time

HOSTILE = '<img src=x onerror=alert(1)> "&amp; \u0645\u0631\u062d\u0628\u0627'


def scheduled(plan: MicroBatchPlan, micro_batches: int = 6, scheduler: str = "sequential") -> Schedule:
    schedule = solve_schedule(scheduler, plan, micro_batches).drawable
    assert schedule is not None
    return schedule


def lists(plan: MicroBatchPlan, micro_batches: int = 6) -> Schedule:
    """Return a list schedule, which is denser than a sequential one, if it fits."""
    found = solve_schedule("list-scheduling", plan, micro_batches).drawable
    return found if found is not None else scheduled(plan.with_capacity(None), micro_batches)


def framed(schedule: Schedule) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the columns that the browser gets for a schedule alone."""
    (frame,) = timeline_frames(timeline_data([("", schedule)]))
    return frame


def pipeline(blocks: int) -> Schedule:
    """Return 1F1B on eight devices with about this many blocks."""
    return scheduled(build_shape("v-shape", ShapeParameters(devices=8, capacity=8)), blocks // 16, "1f1b")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_buffer_holds_every_run_and_the_plan(shape: str) -> None:
    schedule = scheduled(build_shape(shape))
    header, columns = framed(schedule)
    assert [*zip(*(columns[name].tolist() for name in ("block", "micro_batch", "start")), strict=True)] == [
        *runs_in_order(schedule)
    ]
    assert [(each["name"], each["duration"], each["memory"]) for each in header["blocks"]] == [
        (block.name, block.duration, block.memory) for block in schedule.plan.blocks
    ]
    assert header["dependencies"] == [list(arc) for arc in schedule.plan.arcs]
    assert header["makespan"] == schedule.makespan


@pytest.mark.parametrize("apart", [1, 255, 256, 70_000, 2**32 - 1, 2**32, 2**50])
def test_starts_are_exact_however_far_apart(apart: int) -> None:
    plan = MicroBatchPlan("p", (PlanDevice("d"),), (Block("b", BlockKind.FORWARD, (0,), 1),))
    schedule = Schedule(plan, 3, [0, 0, 0], [0, 1, 2], [0, apart, 2 * apart])
    _, columns = framed(schedule)
    assert columns["start"].tolist() == [0, apart, 2 * apart]


def test_two_hundred_thousand_blocks_take_less_than_four_megabytes() -> None:
    assert len(timeline_data([("", pipeline(200_000))])) <= 4_000_000


def test_equal_schedules_have_one_digest_and_others_another() -> None:
    plan = build_shape("v-shape")
    one, again, other = (framed(scheduled(plan, n))[0]["digest"] for n in (4, 4, 5))
    assert one == again != other


def test_schedules_share_a_buffer_and_the_screen() -> None:
    few, many = (scheduled(build_shape("v-shape", ShapeParameters(devices=d)), 5) for d in (2, 8))
    shown = [("few", few), ("many", many), ("many again", many)]
    data = timeline_data(shown)
    frames = timeline_frames(data)
    assert [header["title"] for header, _ in frames] == ["few", "many", "many again"]
    for (header, columns), (_, schedule) in zip(frames, shown, strict=True):
        assert header["digest"] == framed(schedule)[0]["digest"], "as alone"
        assert columns["start"].tolist() == schedule.start.tolist()
    assert frames[0][0]["laneHeight"] > frames[1][0]["laneHeight"]
    assert timeline_height(data) < 3 * timeline_height(timeline_data([("", many)]))
    bare = timeline_data(shown, memory=False)
    assert [header["memoryHeight"] for header, _ in timeline_frames(bare)] == [0, 0, 0]
    assert timeline_height(bare) < timeline_height(data)


def test_some_of_several_are_of_the_past() -> None:
    schedule = solve_schedule("1f1b", build_shape("v-shape"), 2).solution
    assert schedule is not None
    frames = timeline_frames(timeline_data([("a", schedule), ("b", schedule)], look=Look(past=frozenset({1}))))
    assert [header.get("past") for header, _ in frames] == [None, True]


@pytest.mark.parametrize("devices", [1, 4, 64, 1_000])
def test_the_height_stays_within_what_a_page_can_show(devices: int) -> None:
    block = Block("b", BlockKind.FORWARD, tuple(range(devices)), 1)
    schedule = scheduled(MicroBatchPlan("p", tuple(PlanDevice(f"d{i}") for i in range(devices)), (block,)), 1)
    header, _ = framed(schedule)
    assert header["laneHeight"] >= header["memoryHeight"] >= 2
    assert timeline_height(timeline_data([("", schedule)])) <= 376 + max(54, 4 * devices, 1_700)


def test_the_script_has_no_name_twice_and_loads_nothing() -> None:
    """Its modules are joined into one, so all of them share one set of names."""
    script = timeline_module()
    names = [line.split()[1].split("(")[0] for line in script.splitlines() if line.startswith(("function", "const "))]
    assert len(set(names)) == len(names)
    script = script.replace("http://www.w3.org/2000/svg", "")  # the name of SVG's elements, which nothing loads
    for word in ("import ", "fetch(", "innerHTML", "http:", "https:", "eval("):
        assert word not in script


def script(schedule: Schedule, *questions: tuple[str, Any]) -> list[Any]:
    """Return the answer of the timeline's script about a schedule."""
    return answers(timeline_data([("", schedule)]), *questions)


@pytest.mark.parametrize("seed", seeds(64))
def test_the_script_derives_what_the_core_does(seed: int) -> None:
    schedule = lists(random_plan(seed))
    plan, profile = schedule.plan, MemoryProfile.of(schedule)
    lanes, half = range(len(plan.devices)), schedule.makespan // 2
    window = (half // 2, max(half, half // 2 + 1))
    told = (("runs", None), ("memory", None), ("around", None), ("idle", None), ("path", 1))
    runs, memory, after, idle, path, busy, most = script(schedule, *told, ("busy", window), ("most", window))
    columns = (schedule.block, schedule.micro_batch, schedule.start, schedule.end)
    assert runs == [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    assert memory == [[profile.times[d].tolist(), profile.levels[d].tolist()] for d in lanes]
    assert after == [profile.after_runs(schedule, d).tolist() for d in lanes]
    shares = busy_shares(schedule, np.array(window, dtype=float)).sum(axis=0)[:, 0]
    assert busy == pytest.approx((shares * (window[1] - window[0])).tolist())
    assert most == [int(profile.most_between(d, np.array(window))[0]) for d in lanes]
    work = sum(int(schedule.duration[schedule.runs_on(d)].sum()) for d in lanes)
    assert idle == schedule.makespan * len(lanes) - work
    assert path == [b for b, m, _ in runs_in_order(schedule) if m == 1]


@pytest.mark.parametrize("seed", seeds(100, 132))
def test_walking_along_dependencies_follows_the_plan(seed: int) -> None:
    schedule = lists(random_plan(seed))
    plan = schedule.plan
    row_of = {(b, m): row for row, (b, m, _) in enumerate(runs_in_order(schedule))}
    (steps,) = script(schedule, ("steps", None))
    for (b, m), row in row_of.items():
        ends = {row_of[before, m]: schedule.end[row_of[before, m]] + lag for before, lag in plan.predecessors[b]}
        starts = {row_of[after, m]: schedule.start[row_of[after, m]] for after, _ in plan.successors[b]}
        back, on = steps[row]
        assert ends[back] == max(ends.values()) if ends else back == -1
        assert starts[on] == min(starts.values()) if starts else on == -1


@pytest.mark.parametrize("seed", seeds(200, 232))
def test_every_tick_is_in_a_run_or_in_one_hole(seed: int) -> None:
    schedule = lists(random_plan(seed), 3)
    lanes = range(len(schedule.plan.devices))
    ticks = [(d, tick) for d in lanes for tick in range(schedule.makespan)]
    found = script(schedule, *(("hole", [d, tick + 0.5]) for d, tick in ticks))
    busy = {(d, t) for d in lanes for row in schedule.runs_on(d) for t in range(schedule.start[row], schedule.end[row])}
    for (d, tick), hole in zip(ticks, found, strict=True):
        assert (hole is None) == ((d, tick) in busy)
        if hole is not None:
            inside = {(d, t) for t in range(int(hole["from"]), int(hole["to"]))}
            assert not inside & busy
            for beyond in (int(hole["from"]) - 1, int(hole["to"])):
                assert beyond in (-1, schedule.makespan) or (d, beyond) in busy


@pytest.mark.parametrize("least", [0, 3, 1e9])
@pytest.mark.parametrize("width", [37, 800])
def test_blocks_and_shares_together_are_the_busy_time(least: float, width: int) -> None:
    """At every level of detail: some blocks are drawn alone, the rest as columns."""
    schedule = pipeline(2_000)
    window = (schedule.makespan // 3, schedule.makespan // 2)
    (found,) = script(schedule, ("split", [*window, width, least]))
    per_tick = width / (window[1] - window[0])
    drawn = np.zeros(8)
    for d, _, left, right in found["alone"]:
        assert right - left >= least
        drawn[d] += min(right, width) - max(left, 0)
    shares = np.array(found["busy"])
    assert ((shares > -1e-5) & (shares < 1 + 1e-5)).all()
    busy = busy_shares(schedule, np.array(window, dtype=float)).sum(axis=0)[:, 0] * width
    assert drawn + shares.sum(axis=1) == pytest.approx(busy, rel=1e-4)
    assert bool(found["alone"]) == (schedule.duration.max() * per_tick >= least)


def test_zoom_keeps_what_is_under_the_pointer_and_stays_within() -> None:
    schedule = pipeline(160)
    whole = schedule.makespan
    asked = [[{"from": 10, "to": 50}, at, factor] for at in (10, 23.5, 50) for factor in (0.5, 0.9, 1.3)]
    for (view, at, factor), found in zip(asked, script(schedule, *(("zoomed", each) for each in asked)), strict=True):
        assert 0 <= found["from"] < found["to"] <= whole
        before = (at - view["from"]) / (view["to"] - view["from"])
        if found["from"] > 0 and found["to"] < whole:
            assert (at - found["from"]) / (found["to"] - found["from"]) == pytest.approx(before)
            assert found["to"] - found["from"] == pytest.approx(40 * factor)
    far = [[{"from": 0, "to": whole}, 5, 1e-12], [{"from": 3, "to": 4}, 3, 1e12]]
    near, all_of_it = script(schedule, *(("zoomed", each) for each in far))
    assert near["to"] - near["from"] == pytest.approx(1), "never less than a tick"
    assert (all_of_it["from"], all_of_it["to"]) == (0, whole)


def test_numbers_are_told_as_the_core_tells_them() -> None:
    times = [(n, unit) for unit in ("ns", "ms", "step", "steps") for n in (0, 1, 2, 999, 1_000, 1_234_567, 2**40)]
    amounts = [(n, unit) for unit in ("B", "slot", "GB") for n in (0, 1, 7, 1_000, 1_500_000_000, 2**45)]
    inks, shades, told, held = script(
        pipeline(160), ("inks", None), ("shades", None), ("times", times), ("memories", amounts)
    )
    plain = lambda text: text.replace(",", "").replace("e+03", "000")  # noqa: E731
    for (n, unit), text in zip(times, told, strict=True):
        if unit == "step" or n < 2**40:
            expected = show_time(n, unit)
            assert plain(text) == plain(expected) or "e+" in expected
    assert [plain(text) for text in held] == [plain(show_memory(*each)) for each in amounts]
    assert inks == [ink(colour) for colour in KIND_COLOURS.values()]
    channels = [[int(shade(kind, m)[at : at + 2], 16) for at in (1, 3, 5)] for kind in BlockKind for m in range(4)]
    assert [text[4:-1].split(", ") for text in shades] == [[str(each) for each in rgb] for rgb in channels]


def test_what_is_written_on_a_block_can_be_read_over_its_second_cue() -> None:
    """The contrast is at least 4.5 : 1 in every colouring, also where lines of the second cue are under the letters."""
    (grounds,) = script(pipeline(160), ("labelled", None))
    for *ground, written in grounds:
        lights = [luminance(written), luminance("#" + "".join(f"{round(each):02x}" for each in ground))]
        assert (max(lights) + 0.05) / (min(lights) + 0.05) >= 4.5, (ground, written)
    assert len(grounds) > 30


@pytest.mark.parametrize("unit", ["ns", "step"])
@pytest.mark.parametrize("pixels", [200, 1_200])
def test_ticks_differ_and_have_room(unit: str, pixels: int) -> None:
    schedule = pipeline(160)
    for span in ([0, 7], [0, 3e9], [1_000_000_000, 1_000_000_040], [0, 1], [12, 13]):
        (labels,) = script(schedule, ("ticks", [*span, pixels, unit]))
        assert len(set(labels)) == len(labels) <= pixels // 90 + 1
        assert len(labels) >= 1


def test_what_is_seen_survives_the_address() -> None:
    schedule = pipeline(1_600)
    seen = {"from": 12, "to": 48, "at": "3.5", "on": 2, "colour": "chunk", "lanes": "held"}
    seen["marks"] = [{"from": 12, "to": 48}, {"from": 50, "to": schedule.makespan}]
    bad = "time=9-3&at=x&on=0&colour=red&lanes=&marks=1-2-3&more=1"
    told, wrong = script(schedule, ("address", seen), ("look", bad))
    assert list(told) == list(PARTS), "the server writes them in this order"
    assert all(re.fullmatch(PARTS[key][0], value) for key, value in told.items())
    query = "&".join(f"{key}={value}" for key, value in told.items())
    again, choices = script(schedule, ("look", query), ("choices", None))
    assert again == seen
    assert wrong == {
        "from": 0,
        "to": schedule.makespan,
        "at": "",
        "on": 1,
        "colour": "kind",
        "lanes": "capacity",
        "marks": [],
    }
    assert ["|".join(each) for each in choices] == [PARTS["colour"][0], PARTS["lanes"][0]], "the server knows them all"


def test_marks_of_an_address_lie_in_the_schedule_and_are_few() -> None:
    schedule = pipeline(1_600)
    ten = ".".join(f"{i}-{i + 1}" for i in range(10))
    beyond = f"{schedule.makespan - 1}-{schedule.makespan + 1}.4-4.9-3.2-7"
    looks = script(schedule, *(("look", f"marks={text}") for text in (ten, beyond, "x.1-2", "")))
    few, inside, right, none = (look["marks"] for look in looks)
    assert few == [{"from": i, "to": i + 1} for i in range(8)]
    assert inside == [{"from": 2, "to": 7}]
    assert right == [{"from": 1, "to": 2}]
    assert none == []
    assert re.fullmatch(PARTS["marks"][0], ten[: ten.index(".8-9")])
    assert not re.fullmatch(PARTS["marks"][0], ten)


@pytest.mark.parametrize("devices", [[0], [0, 1, 2], [0, 2], [1, 2, 5, 6, 9]])
def test_neighbouring_devices_are_one_piece(devices: list[int]) -> None:
    (found,) = script(pipeline(160), ("spans", devices))
    assert found == [[span.first, span.last] for span in spans_of(tuple(devices))]


def test_names_stay_text_and_do_not_turn_their_neighbours_round() -> None:
    plan = build_shape("v-shape")
    names = {block.name: f"{HOSTILE}{i}" for i, block in enumerate(plan.blocks)}
    hostile = replace(
        plan,
        blocks=tuple(replace(block, name=names[block.name]) for block in plan.blocks),
        dependencies=tuple(
            replace(each, predecessor=names[each.predecessor], successor=names[each.successor])
            for each in plan.dependencies
        ),
    )
    header, _ = framed(scheduled(hostile))
    assert [each["name"] for each in header["blocks"]] == list(names.values())
    short, long = script(scheduled(hostile), ("isolated", HOSTILE), ("isolated", "x" * 500))
    assert (short[0], short[1:-1], short[-1]) == ("\u2068", HOSTILE, "\u2069")
    assert long[1:-1] == "x" * 59 + "…"


@pytest.mark.parametrize("seed", seeds(6))
def test_play_says_what_each_device_does_and_what_it_waits_for(seed: int) -> None:
    schedule = lists(random_plan(seed), 4)
    plan, runs = (
        schedule.plan,
        [*zip(schedule.block.tolist(), schedule.start.tolist(), schedule.end.tolist(), strict=True)],
    )
    end_of = {(b, m): end for (b, _, end), m in zip(runs, schedule.micro_batch.tolist(), strict=True)}
    moments = sorted({0, schedule.makespan, *schedule.start.tolist(), *schedule.end.tolist()})
    onwards, back, doing = answers(timeline_data([("", schedule)]), ("moments", 1), ("moments", -1), ("doing", moments))
    assert onwards == moments == back[::-1]
    profiles = MemoryProfile.of(schedule)
    for tick, lanes in zip(moments, doing, strict=True):
        for device, does in enumerate(lanes):
            on = [row for row, (b, _, _) in enumerate(runs) if device in plan.blocks[b].devices]
            assert [does["runs"]] == [r for r in on if runs[r][1] <= tick < runs[r][2]] if "runs" in does else True
            later = [row for row in on if runs[row][1] > tick]
            if "runs" in does:
                continue
            assert ("next" in does) is bool(later)
            if not later:
                continue
            assert runs[does["next"]][1] == min(runs[row][1] for row in later)
            block, m = plan.blocks[runs[does["next"]][0]], int(schedule.micro_batch[does["next"]])
            needs = [(end_of[b, m], lag) for b, lag in plan.predecessors[runs[does["next"]][0]]]
            ended, sent = all(end <= tick for end, _ in needs), all(end + lag <= tick for end, lag in needs)
            assert ("needs" in does or "sent" in does) is not sent
            if "needs" in does:
                assert not ended
                assert runs[does["needs"]][2] > tick
            if "full" in does:
                capacity = plan.devices[does["full"]].memory_capacity
                assert int(profiles.at(does["full"], np.array([tick]))[0]) + block.memory > capacity


def test_play_tells_it_in_words() -> None:
    schedule = scheduled(build_shape("v-shape"), 2, "1f1b")
    (told,) = answers(timeline_data([("", schedule)]), ("told", 5))
    assert told == [
        ["gpu0", "waits for B0 of 0: B1 of 0 has not ended on gpu1"],
        ["gpu1", "waits for B1 of 0: B2 of 0 has not ended on gpu2"],
        ["gpu2", "waits for B2 of 0: B3 of 0 has not ended on gpu3"],
        ["gpu3", "runs B3 of 0"],
    ]
