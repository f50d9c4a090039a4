"""The Chrome trace of a simulation contains the simulation's data."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from helpers.simulations import SIMULATIONS, trained
from helpers.trace_rules import broken_trace_rules, of, read_trace

from tessel_core.costs.meshes import find_mesh
from tessel_core.exports.simulation_trace import simulation_trace
from tessel_core.ir import read_program
from tessel_core.simulation import simulate

every_trace = pytest.mark.parametrize("name", SIMULATIONS)


def test_a_program_that_does_nothing_has_a_trace_too() -> None:
    for text in ("%x: int8[3]@1\nreturn %x", "%x: int8[3]@0\nreturn %x"):
        trace = simulate(read_program(f"program p\n{text}\n"))
        assert broken_trace_rules(read_trace(simulation_trace(trace))) == set()


@every_trace
def test_the_chrome_trace_keeps_the_format_s_rules(name: str) -> None:
    trace = SIMULATIONS[name]()
    events = read_trace(simulation_trace(trace))
    assert broken_trace_rules(events) == set()
    slices = of(events, "X")
    assert len(slices) == int(np.isin(trace.device, trace.devices).sum())
    ends = max(each["ts"] + each["dur"] for each in slices)
    assert ends == Decimal(round(trace.latency * 1e9)) / 1000
    for i, peak in enumerate(trace.peak_memory if name != "distir" else ()):
        held = [each["args"]["B"] for each in of(events, "C") if each["pid"] == i + 1]
        assert max(held, default=0) == peak


def test_arrows_lead_over_sends_and_lags() -> None:
    for name in ("streams", "plan 1", "plan 4"):
        trace = SIMULATIONS[name]()
        events = read_trace(simulation_trace(trace))
        crossing = [
            op
            for op in trace.program.ops
            if op.kind in ("send", "delay")
            and trace.program.types[op.inputs[0]].device != trace.program.types[op.outputs[0]].device
        ]
        assert len(of(events, "s")) == len(of(events, "f")) <= len(crossing)
        assert bool(crossing) == bool(of(events, "s"))


def test_devices_are_called_as_in_the_mesh_and_slices_say_their_formula() -> None:
    mesh = find_mesh("h200-8")
    document = json.loads(simulation_trace(simulate(trained(1, 1, 2, 2), mesh), mesh))
    names = [each["args"]["name"] for each in document["traceEvents"] if each["name"] == "process_name"]
    assert names == ["gpu0", "gpu1"]
    sends = [each for each in document["traceEvents"] if each["name"] == "send" and each["ph"] == "X"]
    assert {each["args"]["formula"] for each in sends} == {"4.1 kB ÷ 450 GB/s + 2 µs"}
    assert {each["args"]["stage"] for each in sends} == {0, 1}
