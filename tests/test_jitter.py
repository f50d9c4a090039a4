"""Jitter: agreement with an event-by-event simulation, and properties of the draws."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import pytest
from helpers.schedules import any_schedule
from helpers.seeds import seeds

from tessel_core.charts.jitter import jitter_chart
from tessel_core.errors import InputError
from tessel_core.inspection import Jitter, Jittered, OrderGraph, jitter, under_jitter
from tessel_core.inspection.jitter import DEVICE, RUN, durations_of, equal_work, makespans
from tessel_core.model import Block, BlockKind, MemoryProfile, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.workbench.messages.jitter import jitter_sentences

Run = tuple[int, int]


def built(scheduler: str, sample: str = "v-shape-4", micro_batches: int = 8) -> Schedule:
    found = solve_schedule(scheduler, load_sample(sample), micro_batches).drawable
    assert found is not None
    return found


def simulated(schedule: Schedule, lasting: list[float]) -> dict[Run, tuple[float, float]]:
    """Return start and end of every run. A run starts once it is first on its devices and all its inputs are there."""
    plan = schedule.plan
    runs = list(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True))
    takes = dict(zip(runs, lasting, strict=True))
    lines = [deque(run for run in runs if d in plan.blocks[run[0]].devices) for d in range(len(plan.devices))]
    spans, ended, moments = dict[Run, tuple[float, float]](), set[Run](), [0.0]
    while moments:
        now = heappop(moments)
        for run in [run for run, (_, end) in spans.items() if end <= now and run not in ended]:
            ended.add(run)
            for d in plan.blocks[run[0]].devices:
                assert lines[d].popleft() == run
        for run in [line[0] for line in lines if line]:
            block, waits = plan.blocks[run[0]], plan.predecessors[run[0]]
            turn = all(lines[d][0] == run for d in block.devices)
            if run in spans or not turn or not all((before, run[1]) in ended for before, _ in waits):
                continue
            ready = max((spans[before, run[1]][1] + lag for before, lag in waits), default=0.0)
            if ready <= now:
                spans[run] = now, now + takes[run]
            heappush(moments, ready if ready > now else now + takes[run])
    assert len(ended) == len(runs)
    return spans


def peaks(schedule: Schedule, spans: dict[Run, tuple[float, float]]) -> tuple[int, ...]:
    """Return the peak of each device, change by change. Releases come first at equal times."""
    changes = [
        (start if block.memory > 0 else end, block.memory, block.devices)
        for block, (start, end) in ((schedule.plan.blocks[b], span) for (b, _), span in spans.items())
    ]
    held = [device.static_memory for device in schedule.plan.devices]
    most = list(held)
    for _, memory, devices in sorted(changes):
        for d in devices:
            held[d] += memory
            most[d] = max(most[d], held[d])
    return tuple(most)


@pytest.mark.parametrize("of", [RUN, DEVICE])
@pytest.mark.parametrize("seed", seeds(60))
def test_draws_are_what_a_simulation_says_and_hold_no_more(seed: int, of: str) -> None:
    schedule, varied = any_schedule(seed), Jitter(0.5, of, draws=4, seed=seed)
    drawn = makespans(OrderGraph.of(schedule), varied)
    for makespan, lasting in zip(drawn, durations_of(schedule, varied)(4).T.tolist(), strict=True):
        spans = simulated(schedule, lasting)
        assert makespan == pytest.approx(max(end for _, end in spans.values()), rel=1e-12)
        assert peaks(schedule, spans) == MemoryProfile.of(schedule).peaks


@pytest.mark.parametrize("of", [RUN, DEVICE])
@pytest.mark.parametrize("seed", seeds(1000, 1030))
def test_without_spread_every_draw_is_the_order_from_earliest_starts(seed: int, of: str) -> None:
    schedule = any_schedule(seed)
    (found,) = under_jitter([schedule], Jitter(0.0, of, draws=3))
    least = max(end for _, end in simulated(schedule, schedule.duration.tolist()).values())
    assert (found.nominal, found.mean, found.p50, found.p95) == (least, least, least, least)
    assert least <= schedule.makespan


def test_a_schedule_of_earliest_starts_is_itself_without_spread() -> None:
    schedule = built("1f1b", "gpt-6.7b-v-4", 12)
    assert under_jitter([schedule], Jitter(0.0, draws=2))[0].p95 == schedule.makespan


@pytest.mark.parametrize("of", [RUN, DEVICE])
def test_the_seed_decides_and_chunks_do_not(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    graph, varied = OrderGraph.of(built("1f1b")), Jitter(of=of, draws=50)
    drawn = makespans(graph, varied)
    np.testing.assert_array_equal(makespans(graph, varied), drawn)
    assert not (makespans(graph, replace(varied, seed=2)) == drawn).any()
    np.testing.assert_array_equal(makespans(graph, replace(varied, draws=20)), drawn[:20])
    for most in ("_CACHED_DURATIONS", "_MAX_DURATIONS"):
        monkeypatch.setattr(jitter, most, 3 * len(graph.schedule.start))
    np.testing.assert_array_equal(makespans(graph, varied), drawn)


def factors(schedule: Schedule, varied: Jitter) -> dict[tuple[Block, int], tuple[float, ...]]:
    """Return for each (block, micro-batch) the factor on the plan's duration in each draw."""
    shares = durations_of(schedule, varied)(varied.draws) / schedule.duration[:, None]
    runs = zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)
    return {
        (schedule.plan.blocks[b], m): tuple(map(float, row)) for (b, m), row in zip(runs, shares.round(9), strict=True)
    }


def test_equal_blocks_share_their_draws_whatever_else_their_plans_have() -> None:
    """A forward block of the V and of the M has the same draws. Blocks of only one plan have their own."""
    varied = Jitter(0.3, draws=5)
    one, two, other = (
        factors(built(*which), varied)
        for which in (("1f1b", "v-shape-4"), ("sequential", "v-shape-4"), ("1f1b+", "m-shape-4"))
    )
    assert one == two
    of_v, of_m = (
        {(block.name, block.kind, block.devices, m): drawn for (block, m), drawn in each.items()}
        for each in (one, other)
    )
    common = of_v.keys() & of_m.keys()
    assert common
    assert all(of_v[key] == of_m[key] for key in common)
    assert len(set((of_v | of_m).values())) == len(of_v | of_m), "no others share theirs"


def test_a_device_is_equally_fast_in_all_its_runs_and_a_group_as_fast_as_its_slowest() -> None:
    found = factors(built("1f1b+", "m-shape-4"), Jitter(0.3, DEVICE, draws=5))
    alone = {block.devices[0]: drawn for (block, _), drawn in found.items() if len(block.devices) == 1}
    assert len(set(alone.values())) == 4
    for (block, _), drawn in found.items():
        assert drawn == tuple(max(each) for each in zip(*(alone[d] for d in block.devices), strict=True))


@pytest.mark.parametrize("spread", [0.05, 0.3, 1.0])
def test_the_mean_is_the_plans_and_the_spread_is_what_is_asked(spread: float) -> None:
    schedule = built("1f1b")
    share = durations_of(schedule, Jitter(spread))(10_000) / schedule.duration[:, None]
    error = spread / math.sqrt(share.size)
    assert share.mean() == pytest.approx(1, abs=4 * error)
    assert share.std() == pytest.approx(spread, rel=0.02)
    assert share.min() > 0


def line(*blocks: int) -> Schedule:
    """Return three blocks on one device, one after another in this order."""
    plan = MicroBatchPlan(
        "line", (PlanDevice("d"),), tuple(Block(f"b{i}", BlockKind.OTHER, (0,), i + 2) for i in range(3))
    )
    starts = np.zeros((1, 3), dtype=np.int64)
    for before, after in pairwise(blocks):
        starts[0, after] = starts[0, before] + plan.blocks[before].duration
    return Schedule.from_starts(plan, starts)


def test_ties_are_split() -> None:
    """One device takes equally long in any order, up to rounding of sums."""
    chances = [each.chance for each in under_jitter([line(0, 1, 2), line(2, 1, 0), line(1, 2, 0)], Jitter(0.4))]
    assert chances == pytest.approx([1 / 3] * 3, abs=1e-12)


def test_the_chance_to_win_counts_draws() -> None:
    schedules = [built("1f1b"), built("sequential"), built("list-scheduling")]
    varied = Jitter(0.2, draws=500)
    first = np.array([makespans(OrderGraph.of(each), varied) for each in schedules])
    wins = [0.0] * 3
    for draw in first.T.tolist():
        best = [i for i, each in enumerate(draw) if math.isclose(each, min(draw), rel_tol=1e-9)]
        for i in best:
            wins[i] += 1 / len(best) / 500
    found = under_jitter(schedules, varied)
    assert [each.chance for each in found] == pytest.approx(wins)
    for each, row in zip(found, first, strict=True):
        assert (each.mean, each.p50, each.p95) == pytest.approx((row.mean(), *np.quantile(row, [0.5, 0.95])))


def test_who_does_not_fit_or_has_other_work_has_no_chance() -> None:
    fits, misfits, other = built("1f1b"), built("gpipe"), built("1f1b+", "m-shape-4")
    chances = [each.chance for each in under_jitter([fits, misfits, other, built("sequential")], Jitter(draws=50))]
    assert chances == [1.0, None, None, 0.0]
    assert [each.chance for each in under_jitter([fits, other], Jitter(draws=5))] == [None, None]
    assert under_jitter([], Jitter()) == ()


def test_work_is_equal_up_to_the_rounding_of_durations() -> None:
    def works(*ticks: int) -> list[Schedule]:
        blocks = [(Block("b", BlockKind.OTHER, (0,), each),) for each in ticks]
        plans = [MicroBatchPlan("p", (PlanDevice("d"),), each, time_unit="ns") for each in blocks]
        return [Schedule.from_starts(plan, np.zeros((1, 1), dtype=np.int64)) for plan in plans]

    assert equal_work(works(1_000_005, 2_000_000, 1_000_000)) == ((2, 0), (1,))
    assert equal_work(works(100, 101)) == ((0,), (1,))


@pytest.mark.parametrize("wrong", [{"spread": -0.1}, {"spread": math.nan}, {"of": "stage"}, {"draws": 0}, {"seed": -1}])
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Jitter(**wrong)  # type: ignore[arg-type]


def test_large_schedules_get_fewer_draws_and_that_is_said() -> None:
    small, large = built("1f1b"), built("1f1b", micro_batches=2_000)
    assert Jitter().affordable([small]) == Jitter()
    fewer = Jitter().affordable([large] * 2)
    assert fewer.draws == 625
    assert Jitter().affordable([large] * 2_000).draws == 100
    said = jitter_sentences([large] * 2, fewer)
    assert said[0].startswith("625 draws")
    assert said[1] == "There are fewer than 10,000 draws, because the schedules have 32,000 runs in all."
    assert len(jitter_sentences([small], Jitter(draws=625))) == 1


def test_what_is_not_compared_is_said() -> None:
    said = jitter_sentences([built("1f1b"), built("gpipe"), built("1f1b+", "m-shape-4")], Jitter(0.25, DEVICE))
    assert "every device has a random speed" in said[0]
    assert "a spread of 25 %" in said[0]
    assert said[1].endswith("128 steps in v-shape-4; 192 steps in m-shape-4.")
    fine = replace(load_sample("v-shape-4"), time_unit="ns")
    longer = replace(fine, blocks=tuple(replace(each, duration=each.duration + 1_001_000) for each in fine.blocks))
    longest = replace(fine, blocks=tuple(replace(each, duration=each.duration + 1_002_100) for each in fine.blocks))
    ordered = [solve_schedule("1f1b", each, 8).solution for each in (longer, longest)]
    works = jitter_sentences(ordered, Jitter())[-1]
    assert works.endswith("Work over all devices: 64.06 ms in v-shape-4; 64.13 ms in v-shape-4.")
    assert said[2] == "A schedule that does not fit in memory has no chance to win."


def test_the_chart_draws_the_quantiles_and_says_the_chances() -> None:
    rows = [
        ("<b>one</b>", Jittered(nominal=40, mean=45, p50=44, p95=50, chance=0.75)),
        ("two", Jittered(nominal=41, mean=47, p50=46, p95=48, chance=None)),
    ]
    figure = jitter_chart(rows, "step")
    bars, strokes = figure.data
    assert (list(bars.base), list(bars.x), list(strokes.x)) == ([44, 46], [6, 2], [40, 41])
    assert [note.text for note in figure.layout.annotations] == ["chance to win", "<b>75.0%</b>"]
    assert figure.layout.yaxis.ticktext[0] == "&lt;b&gt;one&lt;/b&gt;"
    assert "p95: 50 steps" in bars.customdata[0]
