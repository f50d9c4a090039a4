"""Idle time of programs: both splits are exact, and the causes agree with a check of every moment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from helpers.programs import spread
from helpers.schedules import any_schedule
from helpers.seeds import seeds
from helpers.simulations import SIMULATIONS
from helpers.training import mlp_training

from tessel_core.charts.palette import PART_COLOURS
from tessel_core.charts.trace_bars import trace_cause_chart
from tessel_core.costs.meshes import find_mesh
from tessel_core.inspection import CAUSES, Cause, IdleCauses, IdleSplit, idle_causes
from tessel_core.ir import read_program
from tessel_core.networks.mlp import MlpSpec
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.simulation import Trace, device_times, simulate
from tessel_core.simulation.idle import ProgramIdle, idle_of
from tessel_core.workbench.messages.idle import percent
from tessel_core.workbench.messages.program import idle_sentence, program_numbers

COMPUTE, COMMUNICATION = 0, 1
Event = tuple[int, int, float, float]
"""Device, stream, start, seconds."""

_EMPTY = np.zeros(0)


def traced(events: list[Event], devices: tuple[int, ...], latency: float) -> Trace:
    """Return a trace with arbitrary events."""
    program = read_program(
        "program p\n%x: int8[1]@1\n%y: int8[1]@1 = relu(%x)\n%z: int8[1]@2 = send(%y) {to=2}\nreturn %z\n"
    )
    device, op, start, seconds = (np.array(column) for column in zip(*events, strict=True)) if events else [_EMPTY] * 4
    columns = op.astype(np.int32), device.astype(np.int32), start.astype(float), seconds.astype(float)
    memory = _EMPTY.astype(np.int32), _EMPTY, _EMPTY.astype(np.int64), _EMPTY.astype(np.int32)
    ends = (latency, *(0.0,) * (len(devices) - 1)) if devices else ()
    return Trace(program, devices, *columns, _EMPTY, ends, (0,) * len(devices), *memory)


def random_events(seed: int) -> tuple[list[Event], tuple[int, ...], int]:
    """Draw events of whole seconds: streams in turn, some without duration, idle devices, a busy host."""
    choose = random.Random(seed)
    devices, found = tuple(sorted(choose.sample(range(1, 9), choose.randint(1, 4)))), list[Event]()
    for device in (0, *devices):
        for stream in (COMPUTE, COMMUNICATION):
            now = 0
            for _ in range(choose.choice((0, 0, 1, 3, 6))):
                now += choose.choice((0, 0, 1, 4))
                seconds = choose.choice((0, 1, 2, 5))
                found.append((device, stream, now, seconds))
                now += seconds
    choose.shuffle(found)
    of_workers = [start + seconds for device, _, start, seconds in found if device]
    return found, devices, max([1, *of_workers]) + choose.choice((0, 0, 3))


def cause_at(events: list[Event], device: int, moment: float) -> Cause | None:
    """Return the cause at a moment; None if the device computes. It only uses names of `tessel_core.inspection`."""
    mine = [(stream, start, start + seconds) for d, stream, start, seconds in events if d == device and seconds]
    now = {stream for stream, start, end in mine if start <= moment < end}
    if COMPUTE in now:
        return None
    if mine and moment < min(start for _, start, _ in mine):
        return Cause.WARMUP
    if mine and moment >= max(end for _, _, end in mine):
        return Cause.COOLDOWN
    return Cause.COMMUNICATION if COMMUNICATION in now else Cause.DATA


def pieces(causes: IdleCauses) -> Iterator[tuple[int, int, int, Cause]]:
    columns = (causes.device, causes.start, causes.end)
    for (d, start, end), cause in zip(zip(*(c.tolist() for c in columns), strict=True), causes.cause, strict=True):
        yield d, start, end, CAUSES[cause]


def found_in(trace: Trace) -> ProgramIdle:
    """Return the idle time, after a check that its parts sum to it exactly."""
    idle = idle_of(trace)
    assert idle is not None
    split, causes = idle.split, idle.causes
    assert split.idle == split.imbalance + split.bubble == sum(causes.shares.values())
    assert sum(causes.shares_of(split.busiest).values()) == split.bubble
    assert min(split.imbalance, split.bubble, *causes.shares.values()) >= 0
    assert (split.bound, split.open, split.unavoidable) == (None, None, None)
    assert split.length == causes.length
    assert causes.length * idle.tick == trace.latency
    assert len(split.work) == len(trace.devices) == causes.devices
    return idle


@pytest.mark.parametrize("seed", seeds(600))
def test_every_second_of_any_trace(seed: int) -> None:
    """All times are whole seconds, so nothing is rounded, and results are exactly equal."""
    events, devices, latency = random_events(seed)
    trace = traced(events, devices, latency)
    idle, wanted = found_in(trace), Counter[Cause]()
    seen = {}
    for d, start, end, cause in pieces(idle.causes):
        first, last = start * idle.tick, end * idle.tick
        assert (first.is_integer(), last.is_integer()) == (True, True)
        seen.update({(devices[d], second): cause for second in range(int(first), int(last))})
    busy = dict.fromkeys(devices, 0)
    for device in devices:
        for second in range(latency):
            cause = cause_at(events, device, second)
            assert seen.get((device, second)) == cause
            busy[device] += cause is None
            wanted.update([] if cause is None else [cause])
    whole = len(devices) * latency
    assert idle.causes.shares == {cause: Fraction(wanted[cause], whole) for cause in CAUSES}
    assert [work * idle.tick for work in idle.split.work] == list(busy.values())
    assert idle.split.idle == 1 - Fraction(sum(busy.values()), whole)
    assert idle.split.bubble == 1 - Fraction(max(busy.values()), latency)


def test_every_cause_of_a_program_is_tried() -> None:
    seen = set[Cause | None]()
    for seed in range(40):
        events, devices, latency = random_events(seed)
        seen |= {cause_at(events, device, second) for device in devices for second in range(latency)}
    assert seen == {None, Cause.WARMUP, Cause.COOLDOWN, Cause.COMMUNICATION, Cause.DATA}


SHARED = {"shared uplinks": lambda: shared(overlap=True), "one stream, shared": lambda: shared(overlap=False)}


def shared(*, overlap: bool) -> Trace:
    program = spread(mlp_training(MlpSpec(4, 256, 64, "fp32")), 2, 2, 4, 2).program
    return simulate(program, find_mesh("h200-16"), overlap=overlap, link_sharing=True)


@pytest.mark.parametrize("name", [*SIMULATIONS, *SHARED])
def test_every_moment_of_a_simulation(name: str) -> None:
    """Nothing changes between two neighbouring starts or ends. Times are floats, so seconds agree up to rounding."""
    trace = {**SIMULATIONS, **SHARED}[name]()
    idle = found_in(trace)
    stream = trace.communicates.astype(int).tolist()
    columns = trace.device.tolist(), stream, trace.start.tolist(), trace.seconds.tolist()
    events = list(zip(*columns, strict=True))
    for d, device in enumerate(trace.devices):
        own = [event for event in events if event[0] == device]
        times = sorted({0.0, trace.latency, *(t for _, _, start, seconds in own for t in (start, start + seconds))})
        wanted = Counter[Cause | None]()
        for a, b in pairwise(times):
            wanted[cause_at(own, device, (a + b) / 2)] += b - a
        for cause, ticks in idle.causes.ticks(d).items():
            assert ticks * idle.tick == pytest.approx(wanted[cause], abs=1e-9 * trace.latency)
    for each, work in zip(device_times(trace), idle.split.work, strict=True):
        assert work * idle.tick == pytest.approx(each.computing)


@pytest.mark.parametrize("seed", seeds(200))
def test_a_schedule_idles_as_its_program_does(seed: int) -> None:
    """Lags keep no device busy, so idle time outside of warmup and cooldown is *data*."""
    schedule = any_schedule(seed)
    trace = simulate(schedule_program(schedule))
    program, causes, split = found_in(trace), idle_causes(schedule), IdleSplit.of(schedule)
    assert trace.devices == tuple(range(1, causes.devices + 1))
    assert (program.split.idle, program.split.imbalance) == (split.idle, split.imbalance)
    shares = program.causes.shares
    assert all(shares[cause] == causes.shares[cause] for cause in (Cause.WARMUP, Cause.COOLDOWN))
    assert sum(shares[cause] for cause in (Cause.WARMUP, Cause.COOLDOWN, Cause.DATA)) == split.idle


HIDDEN: list[Event] = [
    (1, COMPUTE, 0, 3),
    (1, COMMUNICATION, 3, 2),  # after a second of computing
    (2, COMMUNICATION, 3, 2),
    (1, COMPUTE, 3, 1),
    (2, COMPUTE, 0, 1),
    (2, COMPUTE, 5, 2),
]
"""Communication behind computation. Device 3 holds a value and does nothing."""


def test_communication_behind_computing_is_not_idle() -> None:
    trace = traced(HIDDEN, (1, 2, 3), 7)
    idle = found_in(trace)
    seconds = [{str(c): ticks * idle.tick for c, ticks in idle.causes.ticks(d).items() if ticks} for d in range(3)]
    assert seconds == [{"communication": 1, "cooldown": 2}, {"data": 2, "communication": 2}, {"data": 7}]
    assert idle.split.idle == 1 - Fraction(7, 21)
    assert (idle.split.imbalance, idle.split.bubble) == (Fraction(5, 21), Fraction(3, 7))
    assert idle_sentence(idle) == (
        "Devices are idle 66.7% of the time (imbalance 23.8% + bubble 42.9%): "
        "cooldown 9.5%, communication 14.3%, data 42.9%."
    )


def test_a_program_without_time_or_without_devices() -> None:
    still = found_in(traced([], (1, 2), 0))
    assert (still.split.idle, set(still.causes.shares.values())) == (0, {0})
    assert idle_sentence(still) == "Devices are idle 0.0% of the time (imbalance 0.0% + bubble 0.0%)."
    assert idle_of(traced([(0, COMPUTE, 0, 3)], (), 0)) is None, "the host is no device that is counted"


@pytest.mark.parametrize("exponent", [-60, -1, 0, 40])
def test_ticks_are_as_fine_as_floats_at_any_scale(exponent: int) -> None:
    scale = 2.0**exponent
    events = [(d, s, start * scale, seconds * scale) for d, s, start, seconds in HIDDEN]
    idle, whole = found_in(traced(events, (1, 2, 3), 7 * scale)), found_in(traced(HIDDEN, (1, 2, 3), 7))
    assert idle.causes.shares == whole.causes.shares
    assert idle.tick == whole.tick * scale


def test_thousands_of_devices_do_not_overflow() -> None:
    count, length = 5000, 2**52 - 1
    column = np.arange(count), np.zeros(count, np.int64), np.full(count, length), np.full(count, 6)
    causes = IdleCauses(length, count, *column)
    assert causes.shares[Cause.DATA] == 1


def test_rounding_alone_is_no_share() -> None:
    assert percent(Fraction(1, 10**10)) == percent(Fraction(0)) == "0.0%"
    assert percent(Fraction(1, 10**8)) == "<0.1%"


def test_the_picture_has_the_shares_the_names_and_the_colours() -> None:
    trace = SIMULATIONS["streams"]()
    idle, mesh = found_in(trace), find_mesh("h200-8")
    figure = trace_cause_chart(trace, idle, mesh)
    assert np.sum([bars.x for bars in figure.data], axis=0) == pytest.approx([100] * len(trace.devices))
    for bars in figure.data:
        assert bars.marker.color == PART_COLOURS[bars.name]
        if bars.name != "busy":
            shares = [idle.causes.shares_of([d])[Cause(bars.name)] for d in range(len(trace.devices))]
            assert list(bars.x) == pytest.approx([float(100 * share) for share in shares])
    names = [label for label in figure.layout.yaxis.ticktext if label]
    assert names == [mesh.devices[device - 1].name for device in trace.devices]
    (busy,) = [bars for bars in figure.data if bars.name == "busy"]
    assert busy.customdata[0].startswith(f"{names[0]}: ")
    assert busy.customdata[0].endswith(" µs"), "in seconds, not in ticks"


def test_the_time_of_a_sample_is_shown_where_samples_are_known() -> None:
    trace = SIMULATIONS["streams"]()
    idle = found_in(trace)
    assert [number.label for number in program_numbers(trace.latency, idle)] == ["Idle"]
    headline, per_sample = program_numbers(0.064, idle, 32)
    assert (headline.value, headline.beside) == (
        percent(idle.split.idle),
        f"imbalance {percent(idle.split.imbalance)} + bubble {percent(idle.split.bubble)}",
    )
    assert (per_sample.label, per_sample.value) == ("Time per sample", "2 ms")
