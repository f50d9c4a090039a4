"""Figures contain the data of the results. No test looks at pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from helpers.plans import random_plan
from helpers.seeds import one_in

from tessel_core.charts.bars import MAX_BARS, MAX_LABELS, spans_of
from tessel_core.charts.comparison import Shown, compared
from tessel_core.charts.device_bars import cause_chart, idle_chart, mean_cause_chart, savings_chart
from tessel_core.charts.gantt import TimeAxis, gantt
from tessel_core.charts.palette import KIND_COLOURS, PART_COLOURS, SLOTS, ink, shade, slot_colour
from tessel_core.charts.progress import at_moment, gap_curve, played, standing
from tessel_core.charts.raster import _MIXES, _mix_numbers, busy_shares, raster_trace
from tessel_core.control import Progress
from tessel_core.inspection import IdleSplit, OrderGraph, idle_causes, steadiest, steady_idle_causes
from tessel_core.model import BlockKind, MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.networks import SHAPES, ShapeParameters, build_shape
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule


def drawn(plan: MicroBatchPlan, micro_batches: int = 6, scheduler: str = "sequential") -> Schedule:
    schedule = solve_schedule(scheduler, plan, micro_batches).drawable
    assert schedule is not None
    return schedule


def runs_of(figure: go.Figure, axis: str = "y") -> Iterator[tuple[go.Bar, int]]:
    """Return each bar that stands for a run, as (trace, position)."""
    for trace in figure.data:
        if isinstance(trace, go.Bar) and trace.customdata is not None and (trace.yaxis or "y") == axis:
            yield from ((trace, i) for i in range(len(trace.x)))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_run_is_drawn_once_where_it_runs(shape: str) -> None:
    schedule = drawn(build_shape(shape))
    found = set()
    for trace, i in runs_of(gantt(schedule)):
        middle, height = trace.y[i], trace.width[i]
        lanes = [d for d in range(len(schedule.plan.devices)) if abs(d - middle) < height / 2]
        block, micro_batch = trace.customdata[i][:2]
        assert trace.name == schedule.plan.blocks[schedule.plan.block_index(block)].kind
        assert trace.marker.color[i] == shade(BlockKind(trace.name), int(micro_batch))
        for d in lanes:
            found.add((block, int(micro_batch), d, int(trace.base[i]), int(trace.base[i] + trace.x[i])))
    blocks = schedule.plan.blocks
    assert found == {
        (blocks[b].name, m, d, start, start + blocks[b].duration)
        for b, m, start in runs_in_order(schedule)
        for d in blocks[b].devices
    }


def test_hover_tells_what_is_held_after_each_run() -> None:
    schedule = drawn(build_shape("v-shape"), 6, "1f1b")
    profile = MemoryProfile.of(schedule)
    for trace, i in runs_of(gantt(schedule)):
        device = int(trace.y[i])
        block = schedule.plan.blocks[schedule.plan.block_index(trace.customdata[i][0])]
        held = int(profile.at(device, np.array([trace.base[i]]))[0]) + min(0, block.memory)
        assert trace.customdata[i][6].split(" ", 1)[1].split()[0] == str(held)
        assert "%{x}" not in trace.hovertemplate, "with a base, x would be told as the end"


def test_clicking_a_bar_does_not_fade_the_others() -> None:
    bars = [trace for trace, _ in runs_of(gantt(drawn(build_shape("m-shape"))))]
    assert all(trace.unselected.marker.opacity == 1 for trace in bars)


def test_memory_lanes_share_the_time_axis_and_reach_the_peaks() -> None:
    schedule = drawn(build_shape("v-shape", ShapeParameters(capacity=5)), 8, "1f1b")
    figure = gantt(schedule)
    assert figure.layout.xaxis.matches == "x2"
    outline = next(trace for trace in figure.data if trace.name == "memory held")
    told = [(name, int(held.split()[0])) for name, held, _ in outline.customdata if name]
    for device, peak in zip(schedule.plan.devices, MemoryProfile.of(schedule).peaks, strict=True):
        assert max(held for name, held in told if name == device.name) == peak
    labels = figure.layout.yaxis2.ticktext
    assert labels == tuple(f"gpu{d}  {4 - d}/5" for d in range(4))
    limits = next(trace for trace in figure.data if trace.name == "memory capacity")
    assert len([x for x in limits.x if x is not None]) == 2 * len(schedule.plan.devices)


def test_a_plan_without_capacities_has_no_capacity_lines() -> None:
    figure = gantt(drawn(build_shape("v-shape").with_capacity(None)))
    limits = next(trace for trace in figure.data if trace.name == "memory capacity")
    assert not limits.x
    assert not limits.showlegend


def test_a_schedule_that_does_not_fit_says_so_and_shows_the_excess() -> None:
    schedule = drawn(build_shape("v-shape"), 8, "gpipe")
    figure = gantt(schedule)
    assert any("does not fit" in note.text and "8 slots of 4 slots" in note.text for note in figure.layout.annotations)
    assert any(trace.name == "exceeds the capacity" for trace in figure.data)
    fitting = gantt(drawn(build_shape("v-shape"), 8, "1f1b"))
    assert not any("does not fit" in note.text for note in fitting.layout.annotations)
    assert not any(trace.name == "exceeds the capacity" for trace in fitting.data)


def test_phases_are_named_and_their_ground_begins_and_ends_with_the_repetend() -> None:
    schedule = drawn(build_shape("v-shape"), 12, "1f1b")
    figure = gantt(schedule)
    notes = " ".join(note.text for note in figure.layout.annotations)
    assert all(name in notes for name in ("warmup", "repetend: every 4 steps", "cooldown"))
    grounds = {trace.name: trace for trace in figure.data if trace.name in ("warmup", "cooldown")}
    opens, closes = zip(*schedule.repetend_windows, strict=True)
    assert list(grounds["warmup"].x) == list(opens)
    assert list(grounds["cooldown"].base) == list(closes)


def test_a_schedule_in_which_nothing_repeats_has_no_phases() -> None:
    schedule = drawn(build_shape("v-shape"), 1)
    assert schedule.repetend is None
    assert not {trace.name for trace in gantt(schedule).data} & {"warmup", "cooldown"}


def test_labels_stop_before_they_slow_the_browser() -> None:
    few, many = (drawn(build_shape("v-shape"), n) for n in (MAX_LABELS // 8, MAX_LABELS // 8 + 1))
    assert all(trace.text is not None for trace, _ in runs_of(gantt(few)))
    assert all(trace.text is None for trace, _ in runs_of(gantt(many)))


def heatmap(figure: go.Figure) -> go.Heatmap | None:
    return next((trace for trace in figure.data if isinstance(trace, go.Heatmap)), None)


def test_what_a_browser_cannot_draw_as_bars_is_drawn_as_shares() -> None:
    schedule = drawn(build_shape("v-shape"), MAX_BARS // 8 + 1, "1f1b")
    assert heatmap(gantt(schedule)) is not None
    assert not list(runs_of(gantt(schedule)))
    fewer = drawn(build_shape("v-shape"), MAX_BARS // 8, "1f1b")
    assert heatmap(gantt(fewer)) is None
    assert len(list(runs_of(gantt(fewer)))) == MAX_BARS


def test_a_window_holds_the_runs_that_overlap_it_and_no_others() -> None:
    schedule = drawn(build_shape("v-shape"), 2_000, "1f1b")
    opens, closes = schedule.makespan // 2, schedule.makespan // 2 + 100
    figure = gantt(schedule, window=(opens, closes))
    found = sorted(int(trace.base[i]) for trace, i in runs_of(figure))
    inside = (schedule.start < closes) & (schedule.end > opens)
    assert found == sorted(schedule.start[inside].tolist())
    assert list(figure.layout.xaxis.range) == [opens, closes]


@pytest.mark.parametrize("seed", one_in(2, range(10)))
def test_shares_are_the_ticks_that_devices_work(seed: int) -> None:
    """The expected shares are counted tick by tick."""
    schedule = drawn(random_plan(seed), 5, "time-optimal")
    kinds = list(BlockKind)
    edges = np.linspace(0, schedule.makespan, 8)  # in sevenths of a tick, every edge is at a whole number
    ticks = np.zeros((len(kinds), len(schedule.plan.devices), schedule.makespan * 7))
    for b, _, start in runs_in_order(schedule):
        block = schedule.plan.blocks[b]
        for d in block.devices:
            ticks[kinds.index(block.kind), d, start * 7 : (start + block.duration) * 7] = 1
    wanted = ticks.reshape(len(kinds), len(schedule.plan.devices), 7, schedule.makespan).mean(axis=-1)
    assert busy_shares(schedule, edges) == pytest.approx(wanted)


def test_mixes_of_kinds_never_fill_a_column_twice() -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(5), (40, 50)).transpose(2, 0, 1)[:4]
    trace = raster_trace(drawn(build_shape("v-shape"), 50), 1.0, (0, 800))
    assert 0 <= trace.z.min() <= trace.z.max() <= trace.zmax
    assert (np.abs(np.array(mixes_of(shares)) / 6 - shares) <= 1 / 6 + 1e-9).all()


def mixes_of(shares: np.ndarray) -> np.ndarray:
    numbers = _mix_numbers(shares)
    return np.moveaxis(np.array(_MIXES)[numbers], -1, 0)


def test_memory_of_a_huge_schedule_keeps_its_peaks() -> None:
    schedule = drawn(build_shape("v-shape"), 20_000, "1f1b")
    outline = next(trace for trace in gantt(schedule).data if trace.name == "memory held")
    assert len(outline.x) < 10_000
    told = [(name, int(held.split()[0])) for name, held, _ in outline.customdata if name]
    for device, peak in zip(schedule.plan.devices, MemoryProfile.of(schedule).peaks, strict=True):
        assert max(held for name, held in told if name == device.name) == peak


@pytest.mark.parametrize("seed", one_in(2, range(10)))
def test_most_between_edges_is_the_most_that_is_held_there(seed: int) -> None:
    profile = MemoryProfile.of(drawn(random_plan(seed), 5, "time-optimal"))
    end = max(int(times[-1]) for times in profile.times) + 2
    edges = np.unique(np.linspace(0, end, 6).astype(np.int64))
    for d in range(len(profile.plan.devices)):
        levels = profile.at(d, np.arange(end))
        wanted = [int(levels[a:b].max()) for a, b in pairwise(edges.tolist())]
        assert profile.most_between(d, edges).tolist() == wanted


def test_the_json_of_any_picture_is_small() -> None:
    plans = [build_shape("v-shape", ShapeParameters(devices=d, capacity=d)) for d in (8, 64)]
    for plan, micro_batches in zip(plans, (4_000, 500), strict=True):  # 64,000 runs: 3 MB of bars
        assert len(gantt(drawn(plan, micro_batches, "1f1b")).to_json()) <= 2_000_000


def test_phases_are_windows_that_follow_each_other() -> None:
    schedule = drawn(build_shape("v-shape"), 40, "1f1b")
    windows = TimeAxis.of([schedule]).windows
    assert list(windows) == ["Everything", "Warmup", "Repetend", "Cooldown"]
    assert windows["Everything"] == (0, schedule.makespan)
    assert windows["Warmup"][0] == 0
    assert windows["Cooldown"][1] == schedule.makespan
    assert windows["Repetend"][1] - windows["Repetend"][0] == 3 * schedule.repetend.period
    for phase, (opens, closes) in list(windows.items())[1:]:
        inside = (schedule.start < closes) & (schedule.end > opens)
        assert phase.lower() in {str(each) for each in schedule.phase[inside]}


def test_a_window_chosen_on_the_axis_comes_back_in_ticks() -> None:
    axis = TimeAxis.of([drawn(build_shape("v-shape"), 40, "1f1b")])
    for window in ((0, axis.longest), (3, 9), (axis.longest - 1, axis.longest)):
        assert axis.window(axis.shown(window)) == window
    assert axis.window((5.0, 5.0)) == (5, 6), "never empty"


def test_schedules_share_one_axis() -> None:
    long, short = (drawn(build_shape("v-shape"), 8, name) for name in ("sequential", "1f1b"))
    figure = compared([Shown("one by one", long), Shown("1F1B", short), Shown("again", short)])
    assert figure.layout.xaxis.matches == figure.layout.xaxis2.matches == "x3"
    ends = [max(trace.base[i] + trace.x[i] for trace, i in runs_of(figure, axis)) for axis in ("y", "y2", "y3")]
    assert ends == [long.makespan, short.makespan, short.makespan]
    notes = [note.text for note in figure.layout.annotations]
    assert {"one by one", "1F1B", "again"} <= set(notes)
    assert notes.count(f"<b>{short.makespan} steps</b>") == 2


def test_compared_schedules_may_have_their_memory_below_them() -> None:
    schedule = drawn(build_shape("v-shape"), 8, "1f1b")
    figure = compared([Shown("1F1B", schedule), Shown("again", schedule)], memory=True)
    lanes = [trace.yaxis for trace in figure.data if trace.name == "memory held"]
    assert lanes == ["y2", "y4"]
    domains = [figure.layout[f"yaxis{i}"].domain for i in ("", 2, 3, 4)]
    assert all(upper[0] > lower[1] for upper, lower in pairwise(domains)), "no picture over another"
    assert domains[0][1] == pytest.approx(1)
    assert domains[3][0] == pytest.approx(0)


def test_compared_schedules_that_do_not_fit_say_so() -> None:
    gpipe = drawn(build_shape("v-shape"), 8, "gpipe")
    figure = compared([Shown("GPipe", gpipe)])
    assert any("does not fit" in note.text for note in figure.layout.annotations)


def test_idle_time_of_several_schedules_is_the_mean_over_their_devices() -> None:
    schedules = [drawn(build_shape("v-shape"), 8, name) for name in ("sequential", "1f1b")]
    splits = [IdleSplit.of(schedule) for schedule in schedules]
    for figure in (
        idle_chart(list(zip(("a", "b"), splits, strict=True))),
        mean_cause_chart([(name, idle_causes(each)) for name, each in zip(("a", "b"), schedules, strict=True)]),
    ):
        busy = next(trace for trace in figure.data if trace.name == "busy")
        assert list(busy.x) == pytest.approx([float(100 * (1 - each.idle)) for each in splits])
        assert [sum(trace.x[i] for trace in figure.data) for i in range(2)] == pytest.approx([100, 100])


def test_the_bubble_of_a_schedule_that_does_not_fit_is_not_split() -> None:
    split = IdleSplit.of(drawn(build_shape("v-shape"), 12, "gpipe"), 60)
    assert split.bound is None
    assert [trace.name for trace in idle_chart([("gpipe", split)]).data] == ["busy", "bubble"]


@pytest.mark.parametrize("plan", [build_shape("m-shape"), build_shape("v-shape")], ids=lambda plan: plan.name)
def test_busy_time_and_causes_fill_the_time_of_every_device(plan: MicroBatchPlan) -> None:
    schedule = drawn(plan, 8, "sequential")
    steady = steadiest(solve_schedule("sequential", plan, 8))
    assert steady is not None
    for causes in (idle_causes(schedule), steady_idle_causes(steady)):
        totals = np.sum([trace.x for trace in cause_chart(causes, schedule.plan).data], axis=0)
        assert totals == pytest.approx([100] * len(schedule.plan.devices))


def savings_of(schedule: Schedule) -> tuple[go.Figure, list[str], list[float]]:
    """Return the chart of savings by faster blocks, its names from the top, and the length of each bar."""
    figure = savings_chart(schedule, OrderGraph.of(schedule).savings())
    return figure, list(figure.layout.yaxis.ticktext), np.sum([trace.x for trace in figure.data], axis=0).tolist()


def test_blocks_that_save_most_are_on_top_each_with_what_it_saves() -> None:
    schedule = drawn(build_shape("v-shape"), 16, "1f1b")
    saved = dict(zip((b.name for b in schedule.plan.blocks), OrderGraph.of(schedule).savings(), strict=True))
    figure, names, lengths = savings_of(schedule)
    assert set(names) == set(saved)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths == pytest.approx([float(100 * saved[name] / schedule.makespan) for name in names])
    kinds = {trace.name: {names[i] for i, x in enumerate(trace.x) if x} for trace in figure.data}
    assert kinds == {"backward": {"B0", "B1", "B2", "B3"}, "forward": {"F0", "F1", "F2", "F3"}}


def test_blocks_that_save_less_than_twelve_others_share_a_row() -> None:
    schedule = drawn(load_sample("gpt-6.7b-v-16"), 16, "1f1b")
    saved = sorted((float(100 * each / schedule.makespan) for each in OrderGraph.of(schedule).savings()), reverse=True)
    figure, names, lengths = savings_of(schedule)
    assert (names[0], names[-1]) == ("B14 · layers 28–30", "20 others, at most")
    assert lengths == pytest.approx(saved[:13])
    assert figure.data[-1].name == "others"


def test_blocks_that_save_nothing_are_counted_and_have_no_bar() -> None:
    figure, names, lengths = savings_of(drawn(build_shape("m-shape"), 16, "1f1b+"))
    assert (names[-1], lengths[-1]) == ("2 others, nothing", 0)
    assert all(lengths[:-1])
    assert {trace.name for trace in figure.data} == {"forward", "backward"}


def test_the_gap_curve_follows_incumbent_and_bound_to_the_end() -> None:
    history = (
        Progress(0.1, "period", None, Fraction(5)),
        Progress(0.5, "period", Fraction(8), Fraction(5)),
        Progress(0.9, "period", Fraction(16, 3), Fraction(16, 3)),
    )
    best, bound = gap_curve(history, "step", 1.0).data
    assert list(best.x) == [0.5, 0.9, 1.0]
    assert list(bound.y) == pytest.approx([5, 5, 16 / 3, 16 / 3])


def test_each_step_has_the_mark_of_what_found_it() -> None:
    """The mark is on the curve that moved: the best or the bound. The legend has each method once."""
    history = (
        Progress(0.1, "period", Fraction(6), Fraction(5), "list"),
        Progress(0.2, "period", Fraction(5), Fraction(5), "modulo"),
        Progress(0.3, "makespan", Fraction(60), Fraction(50), "list"),
        Progress(0.4, "makespan", Fraction(58), Fraction(50), "order"),
        Progress(0.5, "makespan", Fraction(58), Fraction(52), "ends bound"),
        Progress(0.6, "makespan", Fraction(58), Fraction(52), "nothing new"),
    )
    figure = gap_curve(history, "step", 1.0)
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    found = {(trace.yaxis, trace.name): (list(trace.x), list(trace.y)) for trace in marks if trace.x}
    assert found == {
        ("y", "list"): ([0.1], [6]),
        ("y", "modulo"): ([0.2], [5]),
        ("y2", "list"): ([0.3], [60]),
        ("y2", "order"): ([0.4], [58]),
        ("y2", "ends bound"): ([0.5], [52]),
    }
    told = [trace.name for trace in marks if trace.showlegend]
    assert told == ["list", "modulo", "order", "ends bound"]
    assert len({(trace.marker.symbol, trace.marker.color) for trace in marks}) == 5
    assert all(f"by {trace.name}" in trace.hovertemplate for trace in marks)
    assert list(figure.data[0].x)[-1] == 1.0, "what is known of an objective holds to the end"


def test_a_curve_plays_what_was_known_by_each_piece_of_news() -> None:
    history = (
        Progress(0.1, "period", Fraction(8), Fraction(5)),
        Progress(0.4, "period", Fraction(6), Fraction(5)),
        Progress(0.9, "period", Fraction(6), Fraction(6)),
    )
    whole = gap_curve(history, "step", 1.0)
    seen = [at_moment(whole, news.wall_s) for news in played(history)]
    assert [(list(line.x), list(line.y)) for line in seen[0].data] == [([0.1, 0.1], [8, 8]), ([0.1, 0.1], [5, 5])]
    assert [(list(line.x), list(line.y)) for line in seen[1].data] == [
        ([0.1, 0.4, 0.4], [8, 6, 6]),
        ([0.1, 0.4, 0.4], [5, 5, 5]),
    ]
    assert len({tuple(each.layout.yaxis.range) for each in seen}) == 1, "axes stay"
    assert all(each.layout.height == whole.layout.height for each in seen)
    assert at_moment(whole, 0.0).data[0].x == (None,), "it keeps its place in the legend"
    assert at_moment(whole).data[0].y == whole.data[0].y
    assert [standing(news, "step").split(" · ")[-1] for news in history] == ["gap 37.50%", "gap 16.67%", "proved"]
    assert standing(history[0], "step") == "after 0.10 s · period · best 8 steps · bound 5 steps · gap 37.50%"


def test_a_long_search_plays_in_forty_steps_to_its_end() -> None:
    history = tuple(Progress(i, "period", Fraction(9999 - i), Fraction(5)) for i in range(900))
    assert len(played(history)) == 40
    assert (played(history)[0], played(history)[-1]) == (history[0], history[-1])
    assert played(history[:1]) == history[:1]


def test_first_answers_far_above_the_last_do_not_flatten_the_rest() -> None:
    history = (
        Progress(0.1, "makespan", Fraction(400), Fraction(50), "sequential"),
        Progress(0.2, "makespan", Fraction(100), Fraction(50), "list"),
        Progress(0.3, "makespan", Fraction(55), Fraction(50), "order"),
    )
    best = gap_curve(history, "step", 1.0).data[0]
    assert list(best.y) == [100, 55, 55]


def test_each_phase_of_a_search_has_a_row_of_its_own() -> None:
    history = (
        Progress(0.1, "repetend", Fraction(6), Fraction(6)),
        Progress(0.5, "completion", Fraction(60), Fraction(55)),
    )
    figure = gap_curve(history, "step", 1.0)
    assert [trace.yaxis for trace in figure.data] == ["y", "y", "y2", "y2"]
    assert [note.text for note in figure.layout.annotations] == ["repetend", "completion"]
    assert list(figure.data[0].x) == [0.1, 0.1], "a phase ends with its last news"


def test_the_lower_half_of_a_comparison_may_still_be_missing() -> None:
    schedule = drawn(build_shape("v-shape"), 4)
    figure = compared([Shown("known", schedule), Shown("…", None)])
    assert {trace.yaxis or "y" for trace, _ in runs_of(figure)} == {"y"}
    assert figure.layout.height == compared([Shown("known", schedule), Shown("found", schedule)]).layout.height


def test_an_empty_history_makes_an_empty_curve() -> None:
    assert all(not trace.x for trace in gap_curve((), "ns", 0.0).data)


def test_time_axes_use_a_readable_unit() -> None:
    plan = build_shape("v-shape", ShapeParameters(forward=1_000_000, backward=1_000_000))
    plan = MicroBatchPlan(plan.name, plan.devices, plan.blocks, plan.dependencies, "ns", "B")
    figure = gantt(drawn(plan, 4))
    assert figure.layout.xaxis2.title.text == "time (ms)"
    assert max(trace.base[i] + trace.x[i] for trace, i in runs_of(figure)) == pytest.approx(32)


def test_names_from_files_are_shown_literally() -> None:
    plan = build_shape("v-shape", ShapeParameters(devices=2))
    hostile = MicroBatchPlan(
        "x",
        tuple(type(d)(f"<a href='javascript:0'>{d.name}</a>", 4) for d in plan.devices),
        plan.blocks,
        plan.dependencies,
    )
    assert "<a" not in gantt(drawn(hostile)).to_json()
    assert "<a" not in cause_chart(idle_causes(drawn(hostile)), hostile).to_json()
    marked = replace(plan, blocks=tuple(replace(block, label="<a href='javascript:0'>") for block in plan.blocks))
    assert "<a" not in savings_of(drawn(marked))[0].to_json()


def test_spans_cover_exactly_the_devices() -> None:
    for devices in ((0,), (3, 1, 2), (0, 2, 4), (7, 0, 1, 5, 4)):
        covered = [d for span in spans_of(devices) for d in range(span.first, span.last + 1)]
        assert sorted(covered) == sorted(devices)


def test_labels_are_readable_on_every_shade() -> None:
    """The contrast with the ink is at least 4.5 : 1 [WCAG 2.2, 1.4.3], and neighbouring colours differ."""
    for kind in KIND_COLOURS:
        for micro_batch in range(4):
            assert _contrast_of_ink(shade(kind, micro_batch)) >= 4.5, (kind, micro_batch)
            assert shade(kind, micro_batch) != shade(kind, micro_batch + 1)
    for ground in (*(slot_colour(slot) for slot in range(SLOTS)), *PART_COLOURS.values()):
        assert _contrast_of_ink(ground) >= 4.5, ground


def _contrast_of_ink(ground: str) -> float:
    lighter, darker = sorted((_luminance(ground), _luminance(ink(ground))), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_scheduler_of_the_table_can_be_drawn() -> None:
    for name, scheduler in SCHEDULERS.items():
        for plan in (build_shape("v-shape"), build_shape("m-shape")):
            if not scheduler.objection(plan):
                gantt(drawn(plan, 4, name))
