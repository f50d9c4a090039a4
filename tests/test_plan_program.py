"""A schedule lowered to a program simulates to itself: every start, the makespan, and every device's peak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.plans import random_plan
from helpers.seeds import one_in, seeds

from tessel_core.errors import InputError
from tessel_core.ir import read_program
from tessel_core.ir.text import program_text
from tessel_core.ir.verify import verify
from tessel_core.model import Block, BlockKind, Dependency, MemoryProfile, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.registry import NoOptions
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.simulation import simulate
from tessel_core.simulation.trace import Trace
from tessel_core.units import TICKS_PER_SECOND

BASELINES = [name for name, scheduler in SCHEDULERS.items() if scheduler.config is NoOptions]


def simulated(schedule: Schedule) -> Trace:
    return simulate(schedule_program(schedule))


def obeys_the_law(schedule: Schedule) -> bool:
    """Assert that starts and makespan agree to 1e-12 of the makespan, and peaks exactly."""
    trace, per_second = simulated(schedule), TICKS_PER_SECOND.get(schedule.plan.time_unit, 1.0)
    blocks = {i for i, op in enumerate(trace.program.ops) if op.kind == "block"}
    wanted = [
        (start, d + 1)
        for b, start in zip(schedule.block, schedule.start, strict=True)
        for d in schedule.plan.blocks[b].devices
    ]
    assert {int(op) for op in trace.op} == blocks
    order = np.lexsort((trace.device, trace.start))
    found = trace.start[order] * per_second
    expected = np.array(sorted(wanted))
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-12 * schedule.makespan, rtol=0)
    assert trace.latency * per_second == pytest.approx(schedule.makespan, rel=1e-12)
    assert trace.devices == tuple(d + 1 for d in range(len(schedule.plan.devices)))
    return trace.peak_memory == MemoryProfile.of(schedule).peaks


@pytest.mark.parametrize("name", one_in(3, [sample.name for sample in list_samples()]))
def test_every_sample(name: str) -> None:
    plan = load_sample(name)
    for scheduler in BASELINES:
        if not SCHEDULERS[scheduler].why_not(plan, 6):
            schedule = solve_schedule(scheduler, plan, 6).drawable
            assert schedule is not None
            assert obeys_the_law(schedule), scheduler


@pytest.mark.parametrize("name", ["v-shape-4", "m-shape-4", "gpt-1m-vocab-v-4"])
def test_searched_schedules(name: str) -> None:
    """They keep a repetend, so some runs start later than necessary."""
    schedule = solve_schedule("tessel", load_sample(name), 8).drawable
    assert schedule is not None
    assert obeys_the_law(schedule)


def delayed(schedule: Schedule, draw: np.random.Generator) -> Schedule:
    """Return the same order with random pauses in which nothing starts."""
    pauses = np.cumsum(draw.integers(0, 3, schedule.makespan + 1) * draw.integers(0, 2))
    return replace(schedule, start=schedule.start + pauses[schedule.start], repetend=None)


@pytest.mark.parametrize("seed", seeds(150))
def test_random_plans_with_lags_and_idle_time(seed: int) -> None:
    draw = np.random.default_rng(seed)
    plan = replace(random_plan(seed), time_unit=str(draw.choice(["step", "ns", "us"])))
    schedule = solve_schedule("sequential", plan, int(draw.integers(1, 4))).drawable
    assert schedule is not None
    assert obeys_the_law(schedule)
    assert obeys_the_law(delayed(schedule, draw))


@pytest.mark.parametrize("seed", seeds(20))
def test_random_starts_in_any_legal_order(seed: int) -> None:
    """Runs are drawn one by one, and start as early as possible or a little later."""
    draw = np.random.default_rng(seed)
    assert obeys_the_law(_drawn(random_plan(seed, blocks=(4, 5, 6), devices=(2, 3)), 4, draw))


def _drawn(plan: MicroBatchPlan, micro_batches: int, draw: np.random.Generator) -> Schedule:
    ends: dict[tuple[int, int], int] = {}
    free = [0] * len(plan.devices)
    starts = np.zeros((micro_batches, len(plan.blocks)), dtype=np.int64)
    while len(ends) < starts.size:
        able = [
            (m, b)
            for m, b in np.ndindex(starts.shape)
            if (m, b) not in ends and all((m, before) in ends for before, _ in plan.predecessors[b])
        ]
        m, b = able[draw.integers(len(able))]
        ready = [ends[m, before] + lag for before, lag in plan.predecessors[b]]
        starts[m, b] = max([0, *ready, *(free[d] for d in plan.blocks[b].devices)]) + draw.integers(0, 2)
        ends[m, b] = int(starts[m, b]) + plan.blocks[b].duration
        for d in plan.blocks[b].devices:
            free[d] = ends[m, b]
    return Schedule.from_starts(plan, starts)


@pytest.mark.parametrize("name", ["v-shape-4", "m-shape-4", "gpt-1m-vocab-m-4", "flava-4"])
def test_the_program_is_well_formed_and_can_be_read_back(name: str) -> None:
    schedule = solve_schedule("sequential", load_sample(name), 3).drawable
    assert schedule is not None
    program = schedule_program(schedule)
    verify(program)
    assert read_program(program_text(program)) == program
    runs = [op for op in program.ops if op.kind == "block"]
    assert [(op.tag.micro_batch, op.tag.phase) for op in runs] == [
        (m, str(schedule.plan.blocks[b].kind)) for b, m in zip(schedule.block, schedule.micro_batch, strict=True)
    ]


def test_what_is_held_is_released_in_parts_and_by_name() -> None:
    """F acquires 3 on both devices. B frees 1 of it on the first, C the rest everywhere."""
    blocks = (
        Block("F 0", BlockKind.FORWARD, (0, 1), 2, 3),
        Block("B", BlockKind.BACKWARD, (0,), 1, -1),
        Block("C", BlockKind.OTHER, (1,), 1, -3),
        Block("D", BlockKind.WEIGHT, (0,), 1, -2),
    )
    links = (Dependency("F 0", "B", 1), Dependency("F 0", "C"), Dependency("B", "D"))
    plan = MicroBatchPlan("parts", (PlanDevice("a", None, 5), PlanDevice("b")), blocks, links)
    program = schedule_program(Schedule.from_starts(plan, np.array([[0, 3, 2, 4]])))
    held = {program.value_name(v): program.types[v].bytes for v in range(len(program.types)) if program.types[v].bytes}
    assert held == {"static0": 5, "block0.m0.held0": 3, "block0.m0.held1": 1, "block0.m0.held2": 2}
    assert simulate(program).peak_memory == (8, 3)


def test_a_broken_schedule_is_refused() -> None:
    plan = load_sample("v-shape-4")
    starts = np.zeros((1, len(plan.blocks)), dtype=np.int64)
    with pytest.raises(InputError, match="starts at 0"):
        schedule_program(Schedule.from_starts(plan, starts))


def test_an_operation_that_says_nothing_needs_a_mesh() -> None:
    program = read_program("program p\n%x: fp32[4]@1\n%y: fp32[4]@1 = relu(%x)\nreturn %y\n")
    with pytest.raises(InputError, match=r"^relu: does not state its duration, so it needs a mesh"):
        simulate(program)
