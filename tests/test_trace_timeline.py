"""A simulation on the timeline: the browser gets every operation and every byte, and the cause of every start."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.simulations import SIMULATIONS, trained
from helpers.timeline_script import answers

from tessel_core.charts.timeline import timeline_frames
from tessel_core.charts.trace_timeline import trace_data
from tessel_core.costs.fit import kind_fit
from tessel_core.costs.meshes import find_mesh
from tessel_core.ir import read_program
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.trace import kind_of
from tessel_core.simulation.waiting import came_after, waited_for
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.operation import about_operation, operation_at, place_of

every_trace = pytest.mark.parametrize("name", SIMULATIONS)


def ticks(seconds: float) -> int:
    return round(seconds * 1e9)


@every_trace
def test_the_buffer_holds_every_operation_on_its_stream(name: str) -> None:
    trace = SIMULATIONS[name]()
    ((header, columns),) = timeline_frames(trace_data(trace))
    kinds = [kind for kind, _ in header["kinds"]]
    found = {
        (
            header["lanes"][lane]["name"],
            int(op),
            int(start),
            header["durations"][lasts],
            kinds[header["blocks"][b]["kind"]],
        )
        for lane, op, start, lasts, b in zip(
            *(columns[each] for each in ("lane", "operation", "start", "duration", "block")), strict=True
        )
    }
    wanted = set()
    for event in np.flatnonzero(np.isin(trace.device, trace.devices) & (trace.seconds > 0)).tolist():
        lane = f"device {trace.device[event]}" + (" ⇄" if trace.communicates[event] else "")
        op, kind = int(trace.op[event]), str(kind_of(trace.program.ops[trace.op[event]]))
        wanted.add((lane, op, ticks(trace.start[event]), ticks(trace.seconds[event]), kind))
    updates = {"update", "other"}  # the timeline has one name for operations that change weights
    same = lambda each: (*each[:4], "other" if each[4] in updates else each[4])  # noqa: E731
    assert set(map(same, found)) == set(map(same, wanted))
    assert header["makespan"] == ticks(trace.latency)


@every_trace
def test_the_script_finds_every_run_and_what_devices_hold(name: str) -> None:
    trace = SIMULATIONS[name]()
    named, memory = answers(trace_data(trace), ("named", None), ("memory", None))
    assert [row for _, row in named] == list(range(len(named)))
    assert {(op, trace.devices[device]) for (op, device), _ in named} == {
        (int(op), int(device))
        for op, device, seconds in zip(trace.op, trace.device, trace.seconds, strict=True)
        if seconds > 0 and device in trace.devices
    }
    for device, peak, (times, levels) in zip(trace.devices, trace.peak_memory, memory, strict=True):
        assert times[0] == 0
        assert times == sorted(set(times)), "each moment once"
        mine = trace.memory_device == device
        moments = map(ticks, trace.memory_time[mine].tolist())
        last = dict(zip(moments, trace.memory_bytes[mine].tolist(), strict=True))
        assert dict(zip(times, levels, strict=True)) == pytest.approx({0: 0} | last, rel=1e-6)
        assert max(levels) <= peak * (1 + 1e-6)


def test_capacities_are_told_and_exceeding_one_is_said() -> None:
    trace, mesh = SIMULATIONS["streams"](), find_mesh("h200-8")
    ((header, _),) = timeline_frames(trace_data(trace, mesh))
    assert [each["name"] for each in header["devices"]] == [each.name for each in mesh.devices[: len(trace.devices)]]
    assert {each["capacity"] for each in header["devices"]} == {mesh.devices[0].memory_capacity}
    assert header["misfit"] == ""
    ((header, _),) = timeline_frames(trace_data(trace, mesh.with_capacity(max(trace.peak_memory) - 1)))
    fullest = mesh.devices[trace.devices[int(np.argmax(trace.peak_memory))] - 1].name
    assert header["misfit"].startswith(f"does not fit: {fullest} would hold {show_memory(max(trace.peak_memory), 'B')}")


def test_the_words_tell_the_formula_with_its_numbers() -> None:
    mesh = find_mesh("h200-8")
    trace = simulate(trained(2, 1, 2, 4), mesh)

    def told(priced: DeviceMesh | None) -> dict[str, str]:
        lines = [dict(about_operation(trace, f"{op}.0", priced).lines) for op in range(len(trace.program.ops))]
        return {op.kind: str(line["Why so long"][0]) for op, line in zip(trace.program.ops, lines, strict=True)}

    by_mesh = told(mesh)
    assert by_mesh["send"] == "1.02 kB ÷ 450 GB/s + 2 µs"
    assert by_mesh["allreduce"] == "16.4 kB ÷ 450 GB/s + 4 µs of a ring"
    launch = kind_fit("h200").launches.forward * kind_fit("h200").kernel("matmul").launch
    assert by_mesh["matmul"].endswith(f"; launch {show_time(launch, 's')}")
    assert by_mesh["matmul"].startswith("32.8 kFLOP ÷ ")  # 2 · 4 · 64 · 64
    assert "moved" in told(None)["matmul"], "where the mesh did not make the times"


def held_up_by(trace: Trace, op: int) -> list[int]:
    """Return the operation, the one that delayed it, the one that delayed that, and so on."""
    found = [op]
    while True:
        before = next(iter(waited_for(trace, found[-1])), None)
        if before is None or before.gap > 0:
            return found
        found.append(before.op)


@every_trace
def test_why_not_earlier_leads_back_link_by_link(name: str) -> None:
    trace = SIMULATIONS[name]()
    for op in range(0, len(trace.program.ops), max(1, len(trace.program.ops) // 25)):
        known, chain = about_operation(trace, f"{op}.0"), held_up_by(trace, op)
        lit = [(number, int(place.split(".")[1])) for number in chain if (place := place_of(trace, number))]
        assert list(known.chain) == lit
        assert {run[0] for run in known.after} == {x.op for x in came_after(trace, op) if place_of(trace, x.op)}
        why = dict(known.lines)["Why not earlier"]
        assert [part for part in why if not isinstance(part, str)] == [run for run in lit if run[0] in chain[1:5]]
        begins = trace.start_of(chain[-1]) <= 0
        assert str(why[-1]).endswith("starts at time 0." if begins else "waits for nothing that ends just then.")


def test_a_program_that_does_nothing_has_empty_lanes() -> None:
    ((header, columns),) = timeline_frames(trace_data(simulate(read_program("program p\n%x: int8[3]@1\nreturn %x\n"))))
    assert [lane["name"] for lane in header["lanes"]] == ["device 1"]
    assert len(columns["operation"]) == 0


@every_trace
def test_places_name_operations(name: str) -> None:
    trace = SIMULATIONS[name]()
    for op in range(len(trace.program.ops)):
        lasts = any(trace.seconds[event] > 0 for event in trace.events_of(op))
        assert operation_at(place_of(trace, op)) == (op if lasts else None)
    assert operation_at("r3-5") is None
    assert about_operation(trace, f"{len(trace.program.ops)}.0").lines == ()
    assert about_operation(trace, "").lines == ()
