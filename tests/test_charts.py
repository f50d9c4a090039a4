"""Figures hold what the results hold: tested on their data, never on pixels."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import plotly.graph_objects as go
import pytest

from tessel_core.charts import bubble_chart, compared, drawn_window, gantt, gap_curve, placement_picture
from tessel_core.charts.bars import MOST_BARS, MOST_LABELS, spans_of
from tessel_core.charts.palette import KIND_COLOURS, ink, shade
from tessel_core.control import Progress
from tessel_core.model import BlockKind, BubbleBreakdown, MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.networks import SHAPES, ShapeParameters, build_shape
from tessel_core.scheduling import SCHEDULERS, solve_schedule


def drawn(plan: MicroBatchPlan, micro_batches: int = 6, scheduler: str = "sequential") -> Schedule:
    schedule = solve_schedule(scheduler, plan, micro_batches).drawable
    assert schedule is not None
    return schedule


def runs_of(figure: go.Figure, axis: str = "y") -> Iterator[tuple[go.Bar, int]]:
    """Every bar that stands for a run, as (trace, position)."""
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


def test_phases_are_named_and_their_ground_follows_the_bubble_breakdown() -> None:
    schedule = drawn(build_shape("v-shape"), 12, "1f1b")
    figure = gantt(schedule)
    notes = " ".join(note.text for note in figure.layout.annotations)
    assert all(name in notes for name in ("warmup", "repetend, every 4 steps", "cooldown"))
    grounds = {trace.name: trace for trace in figure.data if trace.name in ("warmup", "cooldown")}
    bubbles = BubbleBreakdown.of(schedule)
    assert all(width >= idle for width, idle in zip(grounds["warmup"].x, bubbles.warmup, strict=True))
    assert all(width >= idle for width, idle in zip(grounds["cooldown"].x, bubbles.cooldown, strict=True))


def test_a_schedule_in_which_nothing_repeats_has_no_phases() -> None:
    schedule = drawn(build_shape("v-shape"), 1)
    assert schedule.repetend is None
    assert not {trace.name for trace in gantt(schedule).data} & {"warmup", "cooldown"}


def test_labels_stop_before_they_slow_the_browser() -> None:
    few, many = (drawn(build_shape("v-shape"), n) for n in (MOST_LABELS // 8, MOST_LABELS // 8 + 1))
    assert all(trace.text is not None for trace, _ in runs_of(gantt(few)))
    assert all(trace.text is None for trace, _ in runs_of(gantt(many)))


def test_a_huge_schedule_is_drawn_from_its_beginning_or_in_a_window() -> None:
    schedule = drawn(build_shape("v-shape"), 2_000, "sequential")
    opens, closes = drawn_window(schedule)
    assert (opens, closes) != (0, schedule.makespan)
    assert MOST_BARS * 0.9 <= len(list(runs_of(gantt(schedule)))) <= MOST_BARS * 1.1
    late = gantt(schedule, window=(closes, closes + 100))
    assert all(trace.base[i] + trace.x[i] > closes and trace.base[i] < closes + 100 for trace, i in runs_of(late))
    assert list(late.layout.xaxis.range) == [closes, closes + 100]
    assert drawn_window(schedule, 1.0)[1] == schedule.makespan
    small = drawn(build_shape("v-shape"))
    assert drawn_window(small) == (0, small.makespan)


def test_two_schedules_share_one_axis() -> None:
    long, short = (drawn(build_shape("v-shape"), 8, name) for name in ("sequential", "1f1b"))
    figure = compared(long, short, ("one by one", "1F1B"))
    assert figure.layout.xaxis.matches == "x2"
    ends = [max(trace.base[i] + trace.x[i] for trace, i in runs_of(figure, axis)) for axis in ("y", "y2")]
    assert ends == [long.makespan, short.makespan]
    notes = [note.text for note in figure.layout.annotations]
    assert {"one by one", "1F1B"} <= set(notes)
    assert f"<b>{short.makespan} steps</b>" in notes


def test_the_placement_picture_names_the_blocks() -> None:
    plan = build_shape("nn-shape")
    figure = placement_picture(drawn(plan, 1))
    assert {trace.text[i] for trace, i in runs_of(figure)} == {block.name for block in plan.blocks}


def test_bubble_bars_fill_the_makespan_on_every_device() -> None:
    schedule = drawn(build_shape("m-shape"), 8, "1f1b+")
    figure = bubble_chart(BubbleBreakdown.of(schedule), schedule.plan)
    totals = np.sum([trace.x for trace in figure.data], axis=0)
    assert totals == pytest.approx([100] * len(schedule.plan.devices))


def test_the_gap_curve_follows_incumbent_and_bound_to_the_end() -> None:
    history = (
        Progress(0.1, "period", None, Fraction(5)),
        Progress(0.5, "period", Fraction(8), Fraction(5)),
        Progress(0.9, "period", Fraction(16, 3), Fraction(16, 3)),
    )
    best, bound = gap_curve(history, "step", 1.0).data
    assert list(best.x) == [0.5, 0.9, 1.0]
    assert list(bound.y) == pytest.approx([5, 5, 16 / 3, 16 / 3])


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
    figure = compared(schedule, None, ("known", "…"))
    assert {trace.yaxis or "y" for trace, _ in runs_of(figure)} == {"y"}
    assert figure.layout.height == compared(schedule, schedule, ("known", "found")).layout.height


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
    assert "<a" not in bubble_chart(BubbleBreakdown.of(drawn(hostile)), hostile).to_json()


def test_spans_cover_exactly_the_devices() -> None:
    for devices in ((0,), (3, 1, 2), (0, 2, 4), (7, 0, 1, 5, 4)):
        covered = [d for span in spans_of(devices) for d in range(span.first, span.last + 1)]
        assert sorted(covered) == sorted(devices)


def test_labels_are_readable_on_every_shade() -> None:
    """Contrast of at least 4.5 : 1 against the ink that is chosen [WCAG 2.2, 1.4.3], and neighbours differ."""
    for kind in KIND_COLOURS:
        for micro_batch in range(4):
            ground = shade(kind, micro_batch)
            lighter, darker = sorted((_luminance(ground), _luminance(ink(ground))), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (kind, micro_batch)
            assert ground != shade(kind, micro_batch + 1)


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_scheduler_of_the_table_can_be_drawn() -> None:
    for name, scheduler in SCHEDULERS.items():
        for plan in (build_shape("v-shape"), build_shape("m-shape")):
            if not scheduler.objection(plan):
                gantt(drawn(plan, 4, name))
