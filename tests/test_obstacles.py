""" "Why not earlier" agrees with brute force, which moves one run and checks the rules."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.schedules import any_schedule
from helpers.seeds import seeds
from helpers.simulator import Run, broken_rules, overlaps, peaks, runs_of, waits_for_dependencies

from tessel_core.inspection import Obstacle, Obstacles, Reason
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule, Status
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig

F, B = BlockKind.FORWARD, BlockKind.BACKWARD


def limited(schedule: Schedule) -> list[float]:
    """Return the capacities. Devices that hold more than their capacity have no limit."""
    held = peaks(schedule.plan, runs_of(schedule))
    return [
        float("inf") if device.memory_capacity is None or most > device.memory_capacity else device.memory_capacity
        for device, most in zip(schedule.plan.devices, held, strict=True)
    ]


def legal(
    schedule: Schedule, row: int, start: int, without: tuple[Obstacle, ...] = (), rooms: list[float] | None = None
) -> bool:
    """Return whether a run may start then, if these obstacles are removed.

    Obstacles are runs, edges or limits. All other runs stay.
    """
    plan, runs = schedule.plan, runs_of(schedule)
    moved: Run = (runs[row][0], runs[row][1], start)
    others = [run for i, run in enumerate(runs) if i != row]
    gone = {each.row for each in without}
    arcs_gone = {each.row for each in without if each.reason in (Reason.DATA, Reason.COMMUNICATION)}
    places_gone = {each.row for each in without if each.reason in (Reason.DEVICE, Reason.PARTNERS)}
    assert arcs_gone <= gone
    assert places_gone <= gone
    if overlaps(plan, [moved] + [run for i, run in enumerate(runs) if i != row and i not in places_gone]):
        return False
    if not waits_for_dependencies(
        plan, [moved] + [run for i, run in enumerate(runs) if i != row and i not in arcs_gone]
    ):
        return False
    limits = limited(schedule) if rooms is None else list(rooms)
    for each in without:
        if each.reason is Reason.MEMORY:
            assert each.device is not None
            limits[each.device] = float("inf")
    return all(most <= limit for most, limit in zip(peaks(plan, [moved, *others]), limits, strict=True))


def leads_back(obstacles: Obstacles, row: int) -> bool:
    """Return whether some path of binding constraints ends at a run that starts at 0."""
    seen, ahead = {row}, [row]
    while ahead:
        here = ahead.pop()
        if not obstacles.schedule.start[here]:
            return True
        new = {each.row for each in obstacles.binding(here)} - seen
        seen |= new
        ahead += new
    return False


def keeps_the_laws(schedule: Schedule) -> set[Reason]:
    obstacles, seen = Obstacles.of(schedule), set[Reason]()
    rooms = limited(schedule)
    for row, start in enumerate(schedule.start.tolist()):
        earlier = [x for x in range(start) if legal(schedule, row, x, rooms=rooms)]
        why, binding = obstacles.why(row), obstacles.binding(row)
        seen.add(why.reason)
        assert obstacles.earliest[row] == min([*earlier, start])
        assert (why.reason is Reason.COULD) == bool(earlier)
        assert (why.reason is Reason.BEGINNING) == (start == 0)
        assert [each.reason for each in binding] == sorted((each.reason for each in binding), key=list(Reason).index)
        assert bool(binding) == (start > 0 and start - 1 not in earlier)
        if why.reason in (Reason.COULD, Reason.BEGINNING):
            assert why.row is None
            continue
        leads = [each for each in binding if leads_back(obstacles, each.row)]
        assert why == (leads or binding)[0]
        assert why.row is not None
        assert schedule.start[why.row] < start
        assert legal(schedule, row, start - 1, binding, rooms)
        for each in binding:
            rest = tuple(other for other in binding if other.row != each.row)
            assert not legal(schedule, row, start - 1, rest, rooms), "each of several binds by itself"
    return seen


@pytest.mark.parametrize("seed", seeds(500))
def test_obstacles_of_any_order(seed: int) -> None:
    keeps_the_laws(any_schedule(seed))


def test_every_reason_is_tried() -> None:
    seen = set[Reason]()
    for seed in range(60):
        seen |= keeps_the_laws(any_schedule(seed))
    assert seen == set(Reason)


@pytest.mark.parametrize("sample", ["v-shape-4", "k-shape-4", "zb-v-4", "x-shape-4"])
def test_obstacles_of_samples(sample: str) -> None:
    found = solve_schedule("tessel", load_sample(sample), 5, TesselConfig(time_limit=0.5, polish=0.0)).solution
    assert found is not None
    keeps_the_laws(Schedule.from_starts(found.plan, found.starts))


@pytest.mark.parametrize("seed", seeds(2000, 2080))
def test_chains_go_back_to_the_beginning(seed: int) -> None:
    schedule = any_schedule(seed)
    obstacles = Obstacles.of(schedule)
    for row in range(len(schedule.start)):
        chain = obstacles.chain(row)
        assert chain[0].row == row
        assert [link.obstacle for link in chain] == [obstacles.why(link.row) for link in chain]
        assert [link.row for link in chain[1:]] == [link.obstacle.row for link in chain[:-1]]
        assert chain[-1].obstacle.reason in (Reason.COULD, Reason.BEGINNING)


@pytest.mark.parametrize("seed", seeds(3000, 3080))
def test_the_device_asked_about_is_not_a_partner(seed: int) -> None:
    schedule = any_schedule(seed)
    obstacles = Obstacles.of(schedule)
    for row, block in enumerate(schedule.block.tolist()):
        for device in schedule.plan.blocks[block].devices:
            for each in obstacles.binding(row, device):
                assert (each.reason is Reason.DEVICE) <= (each.device == device)
                assert (each.reason is Reason.PARTNERS) <= (each.device != device)
            same = {(each.row, each.device) for each in obstacles.binding(row)}
            assert same == {(each.row, each.device) for each in obstacles.binding(row, device)}


TIGHT = MicroBatchPlan(
    "tight",
    (PlanDevice("gpu0", 1), PlanDevice("gpu1")),
    (Block("F0", F, (0,), 1, 1), Block("F1", F, (1,), 2), Block("B0", B, (0,), 1, -1)),
    (Dependency("F0", "F1", 1), Dependency("F1", "B0")),
)


def test_memory_is_named_where_the_gap_itself_waits_for_data() -> None:
    """gpu0 idles from 1 to 4 for F1. The second F0 could run there, except for B0's release at 5."""
    schedule = Schedule.from_starts(TIGHT, np.array([[0, 2, 4], [5, 7, 9]]))
    chain = Obstacles.of(schedule).chain(3)
    names = [TIGHT.blocks[schedule.block[link.row]].name for link in chain]
    assert names == ["F0", "B0", "F1", "F0"]
    assert [link.obstacle.reason for link in chain] == [
        Reason.MEMORY,
        Reason.DATA,
        Reason.COMMUNICATION,
        Reason.BEGINNING,
    ]
    binding = Obstacles.of(schedule).binding(3)
    assert [each.reason for each in binding] == [Reason.MEMORY, Reason.DEVICE]


def test_a_gap_before_the_run_before_is_an_earlier_start() -> None:
    roomy = TIGHT.with_capacity(2)
    schedule = Schedule.from_starts(roomy, np.array([[0, 2, 4], [5, 7, 9]]))
    obstacles = Obstacles.of(schedule)
    assert obstacles.why(3).reason is Reason.COULD
    assert obstacles.earliest[3] == 1
    assert [each.reason for each in obstacles.binding(3)] == [Reason.DEVICE]


def test_the_critical_path_goes_through_the_order_of_runs() -> None:
    schedule = Schedule.from_starts(TIGHT.with_capacity(2), np.array([[0, 2, 4], [5, 7, 9]]))
    path = Obstacles.of(schedule).critical_path()
    assert [int(schedule.start[link.row]) for link in path] == [9, 7, 5, 4, 2, 0]
    assert path[-1].obstacle.reason is Reason.BEGINNING
    assert not broken_rules(schedule)


@pytest.mark.parametrize("name", ["v-shape-4", "x-shape-4", "m-shape-4", "k-shape-4", "split-v-4", "mt5-v-4"])
def test_the_critical_path_of_what_is_proved_begins_at_time_0(name: str) -> None:
    """No run on the path of a shortest schedule can be earlier, whichever of several obstacles is named."""
    report = solve_schedule("tessel", load_sample(name), 16)
    schedule = report.solution
    assert schedule is not None
    path = Obstacles.of(schedule).critical_path()
    assert schedule.end[path[0].row] == schedule.makespan
    assert path[-1].obstacle.reason is Reason.BEGINNING or report.status is not Status.PROVED_OPTIMAL
