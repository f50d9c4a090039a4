"""The referee: for each rule legal and illegal examples, then mutations of valid schedules."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers.brute_force import fits
from helpers.plans import random_plan
from helpers.seeds import one_in, reaching, seeds
from helpers.simulator import Run, broken_rules, runs_of

from tessel_core.errors import RefereeError
from tessel_core.model import (
    Block,
    BlockKind,
    Dependency,
    MicroBatchPlan,
    PlanDevice,
    Schedule,
    Status,
    SteadyState,
)
from tessel_core.rules import check_claims, check_schedule, insist
from tessel_core.rules.referee import RULES
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig

F, B = BlockKind.FORWARD, BlockKind.BACKWARD
ROOMY = PlanDevice("gpu0", 2), PlanDevice("gpu1", 2), PlanDevice("gpu2", 2)

TURN = MicroBatchPlan(
    "turn",
    (PlanDevice("gpu0", 3, 1),),
    (Block("F", F, (0,), 1, 1), Block("B", B, (0,), 2, -1)),
    (Dependency("F", "B"),),
)
"""One device with 1 unit of static memory and room for two micro-batches."""
LAGGED = MicroBatchPlan(
    "lagged",
    ROOMY[:2],
    (Block("F", F, (0,), 1), Block("G", F, (1,), 1)),
    (Dependency("F", "G", lag=2),),
)
WIDE = MicroBatchPlan("wide", ROOMY, (Block("A", F, (0, 1), 2), Block("C", F, (1, 2), 2)))
"""Two blocks on different pairs of three devices, which only share the middle one."""


@dataclass(frozen=True)
class Example:
    """Runs of a plan that are legal, or that break one rule."""

    name: str
    plan: MicroBatchPlan
    micro_batches: int
    runs: list[tuple[str, int, int]]
    broken: str | None = None
    steady: SteadyState | None = None
    why: str = ""

    @property
    def schedule(self) -> Schedule:
        rows = [(self.plan.block_index(name), m, start) for name, m, start in self.runs]
        return schedule_of(self.plan, self.micro_batches, rows, self.steady)


def schedule_of(
    plan: MicroBatchPlan, micro_batches: int, runs: list[Run], steady: SteadyState | None = None
) -> Schedule:
    block, micro_batch, start = np.array(runs, dtype=np.int64).reshape(-1, 3).T
    return Schedule(plan, micro_batches, block, micro_batch, start, steady)


def every(period: int, unroll: int = 1, first: int = 0, last: int = 2) -> SteadyState:
    return SteadyState(period, unroll, first, last)


IN_TURN = [("F", 0, 0), ("B", 0, 1), ("F", 1, 3), ("B", 1, 4)]
BOTH_HELD = [("F", 0, 0), ("F", 1, 1), ("B", 0, 2), ("B", 1, 4)]
THREE = [*IN_TURN, ("F", 2, 6), ("B", 2, 7)]
LAG_KEPT = [("F", 0, 0), ("G", 0, 3)]
SIDE_BY_SIDE = [("A", 0, 0), ("C", 0, 2)]

EXAMPLES = (
    Example("one micro-batch at a time", TURN, 2, IN_TURN),
    Example("a run is missing", TURN, 2, IN_TURN[:3], "coverage", why="block B of micro-batch 1: never runs"),
    Example("a run is repeated", TURN, 1, [*IN_TURN[:2], ("B", 0, 3)], "coverage", why="runs 2 times"),
    Example("a micro-batch too many", TURN, 1, IN_TURN, "coverage", why="has micro-batches 0 to 0 only"),
    Example("it starts before 0", TURN, 1, [("F", 0, -1), ("B", 0, 0)], "coverage", why="starts 1 before time 0"),
    Example("nothing runs", TURN, 1, [], "coverage", why="block F of micro-batch 0: never runs"),
    Example("a device takes turns", TURN, 2, BOTH_HELD),
    Example(
        "a device runs two blocks at once",
        TURN,
        2,
        [("F", 0, 0), ("B", 0, 1), ("F", 1, 2), ("B", 1, 3)],
        "no overlap",
        why="device gpu0, block F of micro-batch 1: starts at 2 while the device is busy until 3",
    ),
    Example(
        "nanoseconds that differ are told apart",
        replace(TURN, time_unit="ns", blocks=tuple(replace(each, duration=1_234_567) for each in TURN.blocks)),
        2,
        [("F", 0, 0), ("B", 0, 1_234_567), ("F", 1, 2_469_000), ("B", 1, 9_000_000)],
        "no overlap",
        why="block F of micro-batch 1: starts at 2.469 ms while the device is busy until 2.4691 ms",
    ),
    Example("blocks on several devices take turns on the one they share", WIDE, 1, SIDE_BY_SIDE),
    Example(
        "blocks on several devices meet on one",
        WIDE,
        1,
        [("A", 0, 0), ("C", 0, 1)],
        "no overlap",
        why="device gpu1, block C of micro-batch 0",
    ),
    Example("a lag is kept", LAGGED, 1, LAG_KEPT),
    Example(
        "a lag is cut short",
        LAGGED,
        1,
        [("F", 0, 0), ("G", 0, 2)],
        "dependency",
        why="block G of micro-batch 0: starts at 2, but F lets it start at 3 at the earliest",
    ),
    Example("a dependency is of its own micro-batch only", LAGGED, 2, [*LAG_KEPT, ("F", 1, 4), ("G", 1, 7)]),
    Example(
        "a successor goes first", LAGGED, 2, [*LAG_KEPT, ("G", 1, 0), ("F", 1, 1)], "dependency", why="starts at 0"
    ),
    Example("as much as there is room for", TURN, 2, BOTH_HELD),
    Example(
        "three at once where static memory leaves room for two",
        TURN,
        3,
        [("F", 0, 0), ("F", 1, 1), ("F", 2, 2), ("B", 0, 3), ("B", 1, 5), ("B", 2, 7)],
        "memory",
        why="device gpu0: holds 4 at 2 and 4 at its peak, capacity 3",
    ),
    Example(
        "a release comes first on a tie",
        TURN,
        3,
        [("F", 0, 0), ("F", 1, 1), ("B", 0, 2), ("F", 2, 4), ("B", 1, 5), ("B", 2, 7)],
    ),
    Example("what is said to repeat does", TURN, 3, THREE, steady=every(3)),
    Example(
        "what is outside need not repeat",
        TURN,
        3,
        [*IN_TURN, ("F", 2, 7), ("B", 2, 9)],
        steady=every(3, last=1),
    ),
    Example("every other micro-batch repeats", TURN, 3, [*BOTH_HELD, ("F", 2, 6), ("B", 2, 8)], steady=every(6, 2)),
    Example(
        "one block is late",
        TURN,
        3,
        [*THREE[:5], ("B", 2, 8)],
        "repetend repeats",
        every(3),
        "block B of micro-batch 2: starts at 8, not one period of 3 after 4",
    ),
    Example("the period is another", TURN, 3, THREE, "repetend repeats", every(4), "not one period of 4 after 0"),
    Example(
        "the stretch ends after the schedule",
        TURN,
        2,
        IN_TURN,
        "repetend repeats",
        every(3),
        "repetend: last_micro_batch is 2, but the schedule ends with 1",
    ),
)
legal = pytest.mark.parametrize("example", [e for e in EXAMPLES if not e.broken], ids=lambda e: e.name)
illegal = pytest.mark.parametrize("example", [e for e in EXAMPLES if e.broken], ids=lambda e: e.name)


def test_every_rule_has_an_illegal_example():
    assert {example.broken for example in EXAMPLES if example.broken} == set(RULES)


@legal
def test_a_legal_example_passes(example: Example):
    assert check_schedule(example.schedule) == []
    assert broken_rules(example.schedule) == set()
    insist(example.schedule, "nobody")


@illegal
def test_an_illegal_example_is_caught_by_its_rule_alone(example: Example):
    violations = check_schedule(example.schedule)
    assert {violation.rule for violation in violations} == {example.broken} == broken_rules(example.schedule)
    assert example.why in str(violations[0])
    assert check_schedule(example.schedule, without=[str(example.broken)]) == []
    with pytest.raises(RefereeError, match="somebody returned an invalid schedule"):
        insist(example.schedule, "somebody")


Mutation = Callable[[random.Random, Schedule], Schedule]


def moved(choose: random.Random, schedule: Schedule) -> Schedule:
    """Move one run some ticks earlier or later."""
    runs = runs_of(schedule)
    row = choose.randrange(len(runs))
    b, m, start = runs[row]
    runs[row] = b, m, start + choose.choice((-1, 1)) * choose.randint(1, schedule.plan.busiest_work)
    return schedule_of(schedule.plan, schedule.micro_batches, runs, schedule.repetend)


def dropped(choose: random.Random, schedule: Schedule) -> Schedule:
    """Remove one run."""
    runs = runs_of(schedule)
    del runs[choose.randrange(len(runs))]
    return schedule_of(schedule.plan, schedule.micro_batches, runs, schedule.repetend)


def duplicated(choose: random.Random, schedule: Schedule) -> Schedule:
    """Duplicate one run."""
    runs = runs_of(schedule)
    b, m, start = choose.choice(runs)
    again = choose.choice((start, start + schedule.makespan))
    return schedule_of(schedule.plan, schedule.micro_batches, [*runs, (b, m, again)], schedule.repetend)


def swapped(choose: random.Random, schedule: Schedule) -> Schedule:
    """Swap the runs of one block between two micro-batches."""
    runs = runs_of(schedule)
    block = choose.choice(runs)[0]
    one, other = choose.sample(range(schedule.micro_batches), 2)
    turned = {one: other, other: one}
    runs = [(b, turned.get(m, m) if b == block else m, start) for b, m, start in runs]
    return schedule_of(schedule.plan, schedule.micro_batches, runs, schedule.repetend)


def exchanged(choose: random.Random, schedule: Schedule) -> Schedule:
    """Swap the starts of two runs."""
    runs = runs_of(schedule)
    one, other = choose.sample(range(len(runs)), 2)
    (b, m, start), (c, n, later) = runs[one], runs[other]
    runs[one], runs[other] = (b, m, later), (c, n, start)
    return schedule_of(schedule.plan, schedule.micro_batches, runs, schedule.repetend)


def claimed(choose: random.Random, schedule: Schedule) -> Schedule:
    """Claim another period, or a longer repetend."""
    steady = schedule.repetend or SteadyState(schedule.plan.busiest_work, 1, 0, schedule.micro_batches - 1)
    if choose.random() < 0.5:
        return replace(schedule, repetend=replace(steady, period=steady.period + choose.choice((-1, 1)) or 2))
    return replace(
        schedule,
        repetend=replace(
            steady,
            first_micro_batch=max(0, steady.first_micro_batch - 1),
            last_micro_batch=steady.last_micro_batch + choose.randint(0, 2),
        ),
    )


MUTATIONS: tuple[Mutation, ...] = (moved, dropped, duplicated, swapped, exchanged, claimed)


def same_verdict(schedule: Schedule) -> bool:
    """Return whether the runs are valid, after a check that referee and simulator name the same rules."""
    found, simulated = {violation.rule for violation in check_schedule(schedule)}, broken_rules(schedule)
    runs = [(b, m) for b, m, _ in runs_of(schedule)]
    if len(set(runs)) < len(runs) or schedule.start.min() < 0:  # the meaning of such runs for other rules is open
        assert "coverage" in found & simulated
        return False
    assert found == simulated
    return not found


@pytest.mark.parametrize("name", one_in(6, [sample.name for sample in list_samples()]))
def test_mutations_of_sample_schedules_are_caught(name: str):
    plan = load_sample(name)
    for scheduler, config in (("tessel", TesselConfig(max_unroll=1, time_limit=0.1, polish=0.0)), ("sequential", None)):
        solution = solve_schedule(scheduler, plan, 6, config).solution
        assert solution is not None
        assert same_verdict(solution)
        for seed in range(3):
            choose = random.Random(f"{name} {seed}")
            for mutate in MUTATIONS:
                valid = same_verdict(mutate(choose, solution))
                assert not (valid and mutate in (dropped, duplicated))


@pytest.mark.parametrize("seed", seeds(40))
def test_mutations_of_random_schedules_are_caught(seed: int):
    """Memory is tight and there are lags, so that every rule matters."""
    choose, plan = random.Random(seed), random_plan(reaching(seed, lambda each: fits(random_plan(each))))
    solution = solve_schedule("tessel", plan, 4, TesselConfig(max_unroll=2, time_limit=0.5, polish=0.0)).solution
    assert solution is not None
    assert same_verdict(solution)
    for _ in range(10):
        for mutate in MUTATIONS:
            same_verdict(mutate(choose, solution))


def test_mutations_break_every_rule():
    """Otherwise the tests above would compare little."""
    broken: set[str] = set()
    for seed in range(60):
        choose, plan = random.Random(seed), random_plan(seed)
        solution = solve_schedule("sequential", plan, 3).solution
        if solution is not None:
            broken |= {rule for mutate in MUTATIONS for rule in broken_rules(mutate(choose, solution))}
    assert broken == set(RULES)


@pytest.mark.parametrize(
    ("status", "name", "objective", "bound", "why"),
    [
        (Status.PROVED_OPTIMAL, "makespan", 6, 6, ""),
        (Status.FEASIBLE, "makespan", 6, 5, ""),
        (Status.FEASIBLE, "period", 3, 3, ""),
        (Status.FEASIBLE, "makespan", None, None, ""),
        (Status.FEASIBLE, "makespan", 5, 5, "claims a makespan of 5, but the schedule's is 6"),
        (Status.FEASIBLE, "period", 2, 2, "claims a period of 2, but the schedule's is 3"),
        (Status.FEASIBLE, "makespan", 6, 7, "is 7, above the objective of 6"),
        (Status.PROVED_OPTIMAL, "makespan", 6, 5, "says optimal, but the bound does not meet the objective"),
        (Status.PROVED_OPTIMAL, "makespan", 6, None, "says optimal"),
    ],
)
def test_claims_are_held_against_the_schedule(
    status: Status, name: str, objective: float | None, bound: float | None, why: str
):
    schedule = Example("", TURN, 2, IN_TURN, steady=every(3, last=1)).schedule
    found = list(check_claims(schedule, status, name, objective, bound))
    assert len(found) == (1 if why else 0)
    assert all(violation.rule == "claims" and why in violation.why for violation in found)
