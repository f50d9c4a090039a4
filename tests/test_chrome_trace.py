"""Chrome traces keep the rules of the format, and contain exactly the schedule."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest
from helpers.plans import plans
from helpers.seeds import examples, one_in
from helpers.simulator import peaks, runs_of
from helpers.trace_rules import Event, broken_trace_rules, of, open_slices, read_trace
from hypothesis import given, settings

from tessel_core.errors import InputError
from tessel_core.exports import export_schedule
from tessel_core.model import Dependency, MicroBatchPlan, Schedule
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.reports import evaluate

SAMPLES = one_in(3, [sample.name for sample in list_samples()])
MICROSECONDS = {"ns": Fraction(1, 1000), "us": Fraction(1), "ms": Fraction(1000), "s": Fraction(10**6)}
every_sample = pytest.mark.parametrize("sample", SAMPLES)


def scheduled(plan: MicroBatchPlan, micro_batches: int = 3) -> Schedule | None:
    """Return the sequential schedule, which suits every plan. None if one micro-batch does not fit."""
    return solve_schedule("sequential", plan, micro_batches).solution


def traced(schedule: Schedule) -> list[Event]:
    return read_trace(export_schedule("chrome-trace", schedule, evaluate(schedule, "somebody")))


@cache
def sample_trace(sample: str) -> tuple[Schedule, list[Event]]:
    schedule = scheduled(load_sample(sample))
    assert schedule is not None
    return schedule, traced(schedule)


def check(schedule: Schedule, events: list[Event]) -> None:
    """Check the rules of the format, then compare the trace with values computed from the schedule's runs."""
    assert broken_trace_rules(events) == set()
    plan, runs = schedule.plan, runs_of(schedule)
    tick = MICROSECONDS.get(plan.time_unit, Fraction(1))
    assert sorted(
        (each["pid"] - 1, each["args"]["block"], each["args"]["micro_batch"], each["ts"], each["dur"])
        for each in of(events, "X")
    ) == sorted(
        (d, plan.blocks[b].name, m, start * tick, plan.blocks[b].duration * tick)
        for b, m, start in runs
        for d in plan.blocks[b].devices
    )
    held = defaultdict(list)
    for each in of(events, "C"):
        held[int(each["pid"]) - 1] += each["args"].values()
    assert [max(held[d]) for d in range(len(plan.devices))] == peaks(plan, runs)
    assert [held[d][-1] for d in range(len(plan.devices))] == [device.static_memory for device in plan.devices]
    assert arrows(events) == {
        (dep.predecessor, dep.successor, m, receiver)
        for dep in plan.dependencies
        for m in range(schedule.micro_batches)
        for receiver in set(devices(plan, dep.successor)) - set(devices(plan, dep.predecessor))
    }
    assert len(of(events, "s")) == len(arrows(events))


def devices(plan: MicroBatchPlan, name: str) -> tuple[int, ...]:
    return next(block.devices for block in plan.blocks if block.name == name)


def arrows(events: list[Event]) -> set[tuple[str, str, int, int]]:
    """Return (from block, to block, micro-batch, receiving device) of each flow, as a viewer reads it."""
    found: dict[Decimal, list[Event]] = defaultdict(list)
    for each, enclosing in open_slices(events):
        assert enclosing is not None
        found[each["id"]].append(enclosing)
    assert all(left["args"]["micro_batch"] == entered["args"]["micro_batch"] for left, entered in found.values())
    return {
        (left["args"]["block"], entered["args"]["block"], int(entered["args"]["micro_batch"]), int(entered["pid"]) - 1)
        for left, entered in found.values()
    }


@every_sample
def test_the_trace_of_every_sample_keeps_the_rules_and_holds_the_schedule(sample: str) -> None:
    check(*sample_trace(sample))


@given(plans())
@settings(max_examples=examples(60), deadline=None)
def test_so_does_the_trace_of_any_plan(plan: MicroBatchPlan) -> None:
    schedule = scheduled(plan)
    if schedule is not None:
        check(schedule, traced(schedule))


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "step", "slot", ""])
def test_times_are_microseconds_whatever_the_plan_s_unit(unit: str) -> None:
    schedule = scheduled(replace(load_sample("nn-shape-4"), time_unit=unit))
    assert schedule is not None
    check(schedule, traced(schedule))


def test_an_abstract_unit_says_what_it_is_drawn_as() -> None:
    schedule, _ = sample_trace("v-shape-4")
    data = export_schedule("chrome-trace", schedule, evaluate(schedule, "somebody"))
    assert b'"time": "1 step is drawn as 1 microsecond"' in data
    assert b'"verdict": "' in data


def test_nanoseconds_are_exact_however_long_the_schedule() -> None:
    plan = load_sample("v-shape-4")
    slow = tuple(replace(block, duration=2**44 + i) for i, block in enumerate(plan.blocks))
    schedule = scheduled(replace(plan, blocks=slow, time_unit="ns"))
    assert schedule is not None
    check(schedule, traced(schedule))


def test_a_schedule_of_centuries_is_refused_in_one_sentence() -> None:
    plan = load_sample("v-shape-4")
    slow = tuple(replace(block, duration=2**48) for block in plan.blocks)
    schedule = scheduled(replace(plan, blocks=slow, time_unit="s"), 1)
    assert schedule is not None
    with pytest.raises(InputError, match="export chrome-trace: the schedule lasts more than 292 years"):
        traced(schedule)


def test_names_from_files_stay_text() -> None:
    plan = load_sample("v-shape-4")
    evil = '"}},\\ö'
    hostile = MicroBatchPlan(
        f"plan{evil}",
        tuple(replace(device, name=device.name + evil) for device in plan.devices),
        tuple(replace(block, name=block.name + evil) for block in plan.blocks),
        tuple(Dependency(dep.predecessor + evil, dep.successor + evil, dep.lag) for dep in plan.dependencies),
        f"step{evil}",
        f"slot{evil}",
    )
    schedule = scheduled(hostile)
    assert schedule is not None
    events = traced(schedule)
    check(schedule, events)
    names = [each["args"]["name"] for each in of(events, "M") if each["name"] == "process_name"]
    assert names == [device.name for device in hostile.devices]
    assert set(first(events, "C")["args"]) == {f"slot{evil}s"}


def spoilt(change: Callable[[list[Event]], object]) -> list[Event]:
    """Return a valid trace with one field changed."""
    events = copy.deepcopy(sample_trace("m-shape-4")[1])
    change(events)
    return events


def first(events: list[Event], phase: str, **wanted: object) -> Event:
    return next(each for each in of(events, phase) if all(each[key] == value for key, value in wanted.items()))


SPOILT: dict[str, tuple[str, Callable[[list[Event]], object]]] = {
    "an event without its duration": ("keys", lambda events: first(events, "X").pop("dur")),
    "an unknown phase": ("keys", lambda events: first(events, "C").update(ph="Q")),
    "a flow without an id": ("keys", lambda events: first(events, "s").pop("id")),
    "a time before 0": ("numbers", lambda events: first(events, "C").update(ts=Decimal(-1))),
    "a time as text": ("numbers", lambda events: first(events, "M").update(ts="0")),
    "process 0": ("numbers", lambda events: [each.update(pid=each["pid"] - 1) for each in events]),
    "a process without a name": ("metadata", lambda events: events.remove(first(events, "M", name="process_name"))),
    "a process with two names": ("metadata", lambda events: events.append(first(events, "M", name="process_name"))),
    "unknown metadata": ("metadata", lambda events: first(events, "M", name="thread_name").update(name="thread")),
    "slices that overlap": ("nesting", lambda events: first(events, "X").update(dur=Decimal("1.5"))),
    "a counter that goes back": ("counters", lambda events: events.reverse()),
    "a counter of text": ("counters", lambda events: first(events, "C").update(args={"slots": "3"})),
    "a flow that never arrives": ("flows", lambda events: events.remove(first(events, "f"))),
    "a flow that never leaves": ("flows", lambda events: events.remove(first(events, "s"))),
    "a flow that binds to what follows": ("flows", lambda events: first(events, "f").pop("bp")),
    "a flow with the id of another": (
        "flows",
        lambda events: [each.update(id=Decimal(1)) for each in of(events, "s", "f")],
    ),
    "a flow that leaves too late": ("flows", lambda events: first(events, "s").update(ts=Decimal(10**6))),
    "a flow before its slice in the file": (
        "flows",
        lambda events: events.sort(key=lambda each: each["ph"] != "f"),
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_each_rule_of_the_checker_catches_what_breaks_it(name: str) -> None:
    rule, change = SPOILT[name]
    assert broken_trace_rules(spoilt(lambda events: None)) == set()
    assert rule in broken_trace_rules(spoilt(change))
