"""Attribution of memory to tensors, of time to operations, and of waits to their causes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.programs import chain_schedule
from helpers.simulations import SIMULATIONS, trained

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir import read_program
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.simulation import device_times, memory_shares, simulate, why_waiting
from tessel_core.simulation.attribution import holdings, peak_time

every_trace = pytest.mark.parametrize("name", SIMULATIONS)


@every_trace
def test_what_is_held_adds_up_at_every_step(name: str) -> None:
    trace = SIMULATIONS[name]()
    for device, peak in zip(trace.devices, trace.peak_memory, strict=True):
        found = holdings(trace, device)
        assert sum(each.bytes for each in found) == peak == sum(each.bytes for each in memory_shares(trace, device))
        assert len({each.value for each in found}) == len(found)
        assert all(trace.program.types[each.value].device == device for each in found)
        mine = trace.memory_device == device
        for time in np.unique(trace.memory_time[mine])[:40]:
            held = trace.memory_bytes[mine][trace.memory_time[mine] <= time][-1]
            assert sum(each.bytes for each in holdings(trace, device, time)) == held
        if name != "distir" and peak:  # on DistIR's clocks several steps happen at once, with the peak between them
            assert sum(each.bytes for each in holdings(trace, device, peak_time(trace, device))) == peak


def test_values_are_told_by_what_they_are() -> None:
    """GPipe holds the activations of all micro-batches before it frees the first."""
    schedule = chain_schedule(2, 3, "gpipe")
    program = read_program(
        "program p\n%w: int8[5]@1\n"
        "%a: int8[0]@1, %b: int8[7]@1 = block(%w) {bytes=(7), devices=(1), on=(1), seconds=1} "
        "; stage 0 micro-batch 0 forward\n"
        "%c: int8[0]@1, %d: int8[3]@1 = block(%w, %b) {bytes=(3), devices=(1), on=(1), seconds=1} "
        "; stage 0 micro-batch 0 backward\n"
        "%e: int8[0]@1 = block(%d) {bytes=(), devices=(1), on=(), seconds=1}\nreturn %e\n"
    )
    trace = simulate(program)
    assert [(each.title, each.bytes, each.values) for each in memory_shares(trace, 1)] == [
        ("activations, stage 0, micro-batch 0", 7, 1),
        ("weights and inputs", 5, 1),
        ("gradients, stage 0, micro-batch 0", 3, 1),
    ]
    assert [each.name for each in holdings(trace, 1, 2.5)] == ["w", "d"]
    trace = simulate(schedule_program(schedule))
    assert memory_shares(trace, 1) == ()
    with pytest.raises(InputError, match="device 7: is not used by program chain, which uses 1, 2"):
        holdings(trace, 7)


@every_trace
def test_time_adds_up(name: str) -> None:
    trace = SIMULATIONS[name]()
    for each in device_times(trace):
        mine = trace.device == each.device
        edges = np.unique(np.concatenate((trace.start[mine], (trace.start + trace.seconds)[mine], [trace.latency])))
        middles, busy, both = (edges[:-1] + edges[1:]) / 2, 0.0, 0.0
        for middle, width in zip(middles, np.diff(edges), strict=True):
            now = mine & (trace.start < middle) & (trace.start + trace.seconds > middle)
            busy += width * bool(now.any())
            both += width * bool((now & trace.communicates).any() and (now & ~trace.communicates).any())
        assert each.neither == pytest.approx(trace.latency - busy, abs=1e-9 * trace.latency)
        assert each.both == pytest.approx(both, abs=1e-9 * trace.latency)
        assert each.computing + each.communicating - each.both + each.neither == pytest.approx(trace.latency)


@every_trace
def test_waits_add_up_to_the_time_without_computing(name: str) -> None:
    trace = SIMULATIONS[name]()
    for device in trace.devices:
        computed = np.flatnonzero((trace.device == device) & ~trace.communicates)
        last = (trace.start + trace.seconds)[computed].max(initial=0.0)
        waits = why_waiting(trace, device)
        assert sum(each.seconds for each in waits) == pytest.approx(
            last - trace.seconds[computed].sum(), abs=1e-9 * trace.latency
        )
        assert all(each.seconds >= 0 for each in waits)
        assert not [each for each in waits if not each.what and each.seconds > 1e-9 * trace.latency]
        merged = why_waiting(trace, device, by_micro_batch=False)
        assert sum(each.seconds for each in merged) == pytest.approx(sum(each.seconds for each in waits))


def test_waits_are_told_by_stage_and_micro_batch() -> None:
    """Two stages of one second and a lag of half a second.

    The second stage waits for the first one and its transfer.
    """
    text = (
        "program p\n%w: int8[1]@1\n%v: int8[1]@2\n"
        "%a: int8[0]@1 = block(%w) {bytes=(), devices=(1), on=(), seconds=1} ; stage 0 micro-batch 5 forward\n"
        "%b: int8[0]@2 = delay(%a) {seconds=0.5, to=2} ; stage 0 micro-batch 5 forward\n"
        "%c: int8[0]@2 = block(%v, %b) {bytes=(), devices=(2), on=(), seconds=1} ; stage 1 micro-batch 5 forward\n"
        "%d: int8[0]@2 = delay(%c) {seconds=2, to=2} ; stage 1 micro-batch 6 wait\n"
        "%e: int8[0]@2 = block(%d) {bytes=(), devices=(2), on=(), seconds=1} ; stage 1 micro-batch 6 forward\n"
        "return %e\n"
    )
    trace = simulate(read_program(text))
    assert [(each.title, each.seconds) for each in why_waiting(trace, 2)] == [
        ("its turn in the schedule", 2),
        ("stage 0's forward of micro-batch 5", 1),
        ("stage 0's delay of micro-batch 5", 0.5),
    ]
    assert why_waiting(trace, 1) == ()
    assert [each.neither for each in device_times(trace)] == [4.5, 3.5]


def test_a_program_that_never_frees_is_told() -> None:
    text = (
        "program p\n%x: fp32[250]@1\n%y: fp32[250]@1 = relu(%x)\n%z: fp32[250]@1 = relu(%x)\n"
        "%u: fp32[250]@1 = relu(%x)\nreturn %u\n"
    )
    trace = simulate(read_program(text), find_mesh("h200-1"))
    assert trace.warnings == (
        "No operation uses %y (and 1 like it), so a system that frees values after their last use keeps these 2 kB.",
    )
    assert simulate(trained(1, 1, 2, 2), find_mesh("h200-2")).warnings == ()
