"""Idle intervals, ranges, and search within a schedule."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.moments import Moment, causes_by_tick, counted
from helpers.schedules import any_schedule
from helpers.seeds import seeds
from helpers.simulator import overlaps, peaks, runs_of, waits_for_dependencies

from tessel_core.errors import InputError
from tessel_core.inspection import (
    Cause,
    FoundHole,
    FoundPeak,
    FoundRun,
    Hole,
    Holes,
    find,
    span_of,
)
from tessel_core.model import (
    Block,
    BlockKind,
    Dependency,
    MemoryProfile,
    MicroBatchPlan,
    PlanDevice,
    Schedule,
)

F, B = BlockKind.FORWARD, BlockKind.BACKWARD


@pytest.mark.parametrize("seed", seeds(200))
def test_holes_are_the_idle_stretches(seed: int) -> None:
    schedule = any_schedule(seed)
    holes, slow, runs = Holes.of(schedule), causes_by_tick(schedule), runs_of(schedule)
    everything: list[Hole] = []
    for d, line in enumerate(slow):
        found = holes.on(d)
        everything += found
        idle = [tick for tick, cause in enumerate(line) if cause is not None]
        assert [tick for hole in found for tick in range(hole.start, hole.end)] == idle
        if found:
            assert sum(hole.share_of_device for hole in found) == 1
            assert holes.longest(d) == max(found, key=lambda hole: hole.length)
        for hole in found:
            ends = [start + schedule.plan.blocks[b].duration for b, _, start in runs]
            assert hole.before is None or (ends[hole.before] == hole.start > 0)
            assert hole.after is None or (runs[hole.after][2] == hole.end)
            touching = [row for row in (hole.before, hole.after) if row is not None]
            assert all(d in schedule.plan.blocks[runs[row][0]].devices for row in touching)
            assert (hole.before is None) == (hole.start == 0 or not schedule.plan.blocks_on[d])
            assert (hole.after is None) == (hole.end == schedule.makespan)
            assert all(each == hole for each in (holes.at(d, hole.start), holes.at(d, hole.end - 1)))
            part = counted(line[hole.start : hole.end])
            assert part[hole.cause.value] == max(part.values())
            assert [cause.value for p in hole.pieces for cause in [p.cause] * (p.end - p.start)] == line[
                hole.start : hole.end
            ]
        for tick, cause in enumerate(line):
            assert (holes.at(d, tick) is None) == (cause is None)
        assert holes.at(d, schedule.makespan) is None
    assert sum(hole.share_of_all for hole in everything) == (1 if everything else 0)
    longest = holes.longest()
    assert (longest is None) == (not everything)
    assert longest is None or longest == max(everything, key=lambda hole: hole.length)


def disturbs_nothing(schedule: Schedule, row: int, start: int) -> bool:
    """Return whether the run may start then within every capacity, if all others stay."""
    plan, runs = schedule.plan, runs_of(schedule)
    moved = [(b, m, start if i == row else when) for i, (b, m, when) in enumerate(runs)]
    room = all(
        device.memory_capacity is None or most <= device.memory_capacity
        for device, most in zip(plan.devices, peaks(plan, moved), strict=True)
    )
    return room and not overlaps(plan, moved) and waits_for_dependencies(plan, moved)


@pytest.mark.parametrize("seed", seeds(1000, 1200))
def test_what_fills_a_hole(seed: int) -> None:
    schedule = any_schedule(seed)
    holes, runs = Holes.of(schedule), runs_of(schedule)
    fits = not any(MemoryProfile.of(schedule).excess)
    for d in range(len(schedule.plan.devices)):
        for hole in holes.on(d):
            filler = holes.filler(hole)
            assert (filler is None) == all(piece.cause is not Cause.ORDER for piece in hole.pieces)
            if filler is None:
                continue
            b, m, start = runs[filler.row]
            assert hole.start <= filler.moment < hole.end <= start
            assert d in schedule.plan.blocks[b].devices
            assert Moment(schedule.plan, runs, filler.moment).lacks(b, m) == 0
            if fits:
                assert filler.undisturbed == disturbs_nothing(schedule, filler.row, filler.moment)
            if filler.undisturbed:
                continue
            for piece in hole.pieces:
                moment = Moment(schedule.plan, runs, piece.start)
                for row, (other, n, when) in enumerate(runs):
                    on = d in schedule.plan.blocks[other].devices
                    if fits and on and when > piece.start and not moment.lacks(other, n) and piece.cause is Cause.ORDER:
                        assert not disturbs_nothing(schedule, row, piece.start)


@pytest.mark.parametrize("seed", seeds(2000, 2080))
def test_a_range_has_its_own_figures(seed: int) -> None:
    schedule = any_schedule(seed)
    slow, memory = causes_by_tick(schedule), MemoryProfile.of(schedule)
    for start in range(0, schedule.makespan, 2):
        for end in range(start + 1, schedule.makespan + 1, 3):
            for d, part in enumerate(span_of(schedule, start, end)):
                wanted = counted(slow[d][start:end])
                assert {cause.value: ticks for cause, ticks in part.causes.items() if ticks} == wanted
                assert part.idle == sum(wanted.values())
                assert part.busy + part.idle == end - start
                assert part.peak_memory == memory.at(d, np.arange(start, end)).max()


PLAN = MicroBatchPlan(
    "pair",
    (PlanDevice("gpu0", 9, 2), PlanDevice("gpu 1"), PlanDevice("GPU0")),
    (Block("F0", F, (0,), 1, 1), Block("F a–b of 1", F, (1,), 2), Block("B0", B, (0,), 1, -1), Block("b0", B, (2,), 1)),
    (Dependency("F0", "F a–b of 1", 1), Dependency("F a–b of 1", "B0")),
)
SCHEDULE = Schedule.from_starts(PLAN, np.array([[0, 2, 4, 0], [1, 5, 7, 1]]))


@pytest.mark.parametrize(
    ("text", "block", "micro_batch"),
    [
        ("F0 of 1", "F0", 1),
        ("F0 1", "F0", 1),
        ("  f0   OF  0 ", "F0", 0),
        ("F a–b of 1 of 1", "F a–b of 1", 1),
        ("F a–b of 1 0", "F a–b of 1", 0),
        ("f A-b OF 1 of 0", "F a–b of 1", 0),
        ("B0 1", "B0", 1),
        ("b0 1", "b0", 1),
    ],
)
def test_a_run_is_found(text: str, block: str, micro_batch: int) -> None:
    found = find(SCHEDULE, text)
    assert isinstance(found, FoundRun)
    assert PLAN.blocks[SCHEDULE.block[found.row]].name == block
    assert SCHEDULE.micro_batch[found.row] == micro_batch


def test_a_hole_and_a_peak_are_found() -> None:
    holes = Holes.of(SCHEDULE)
    hole = find(SCHEDULE, "Longest hole on gpu0", holes)
    assert isinstance(hole, FoundHole)
    assert (hole.hole.device, hole.hole.start, hole.hole.end) == (0, 2, 4)
    assert hole.hole.cause is Cause.DATA
    assert (hole.hole.share_of_device, hole.hole.share_of_all) == (Fraction(1, 2), Fraction(2, 14))
    assert find(SCHEDULE, "longest hole on gpu 1") == FoundHole(holes.on(1)[0])
    assert find(SCHEDULE, "peak of gpu0") == FoundPeak(0, 1, 4)
    assert find(SCHEDULE, "PEAK of GPU 1") == FoundPeak(1, 0, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'find: "" is not understood; ask for "F0 of 0", "longest idle time on gpu0" or "peak of gpu0"'),
        ("F9 of 1", 'find: there is no block "F9"; ask for'),
        ("F0 of 2", "find: there is no micro-batch 2, the schedule has 0 to 1"),
        ("F0 of 99999999999999999999", "is not understood"),
        ("longest hole on gpu7", 'there is no device "gpu7"; ask for'),
        ("peak of Gpu0", 'there is no device "Gpu0"'),  # two devices read like that
        ("peak of gpu 7", 'there is no device "gpu 7"'),
        ("peak", "is not understood"),
        ("B0", "is not understood"),
        ("x" * 1000, "…"),
        ("F0 of 1\n<script>", "is not understood"),
    ],
)
def test_what_cannot_be_found_says_what_can(text: str, why: str) -> None:
    with pytest.raises(InputError) as raised:
        find(SCHEDULE, text)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 250
    assert str(raised.value).isprintable()


def test_a_device_without_a_hole() -> None:
    alone = MicroBatchPlan("alone", (PlanDevice("gpu0"),), (Block("F", F, (0,), 2),))
    busy = Schedule.from_starts(alone, np.array([[0], [2]]))
    holes = Holes.of(busy)
    assert holes.on(0) == ()
    assert holes.longest() is holes.longest(0) is holes.at(0, 1) is None
    with pytest.raises(InputError, match="find: gpu0 is never idle"):
        find(busy, "longest hole on gpu0")


@pytest.mark.parametrize(("start", "end"), [(3, 3), (4, 2), (-1, 2), (0, 9)])
def test_a_range_outside_is_refused(start: int, end: int) -> None:
    with pytest.raises(InputError, match="range: must begin before it ends and be within 0 and 8"):
        span_of(SCHEDULE, start, end)
