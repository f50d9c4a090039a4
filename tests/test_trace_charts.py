"""Pictures and files of simulations hold what the simulation holds."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import plotly.graph_objects as go
import pytest
from helpers.simulations import SIMULATIONS, trained
from helpers.trace_rules import broken_trace_rules, of, read_trace

from tessel_core.charts.bars import MOST_BARS
from tessel_core.charts.trace import memory_chart, trace_chart
from tessel_core.charts.trace_memory import memory_lane
from tessel_core.costs.fit import h200_fit
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.exports.simulation_trace import simulation_trace
from tessel_core.ir import read_program
from tessel_core.simulation import Trace, memory_shares, simulate
from tessel_core.simulation.trace import kind_of
from tessel_core.units import show_memory, show_time, time_scale

every_trace = pytest.mark.parametrize("name", SIMULATIONS)


def worked(trace: Trace) -> np.ndarray:
    """Events that last, on workers."""
    return np.flatnonzero(np.isin(trace.device, trace.devices) & (trace.seconds > 0))


@every_trace
def test_every_event_is_a_bar_in_its_lane(name: str) -> None:
    trace = SIMULATIONS[name]()
    figure, (divisor, _) = trace_chart(trace), time_scale(trace.latency, "s")
    lanes = figure.layout.yaxis.ticktext
    found = {
        (lanes[bar.y[i]], round(bar.base[i] * divisor, 12), round(bar.x[i] * divisor, 12), bar.name)
        for bar in figure.data
        if isinstance(bar, go.Bar) and bar.customdata is not None
        for i in range(len(bar.x))
    }
    wanted = set()
    for event in worked(trace).tolist():
        device = f"device {trace.device[event]}" + (" ⇄" if trace.communicates[event] else "")
        kind = str(kind_of(trace.program.ops[trace.op[event]]))
        wanted.add((device, round(trace.start[event], 12), round(trace.seconds[event], 12), kind))
    assert found == wanted


@every_trace
def test_memory_lanes_reach_the_peaks(name: str) -> None:
    trace = SIMULATIONS[name]()
    for device, peak in zip(trace.devices, trace.peak_memory, strict=True):
        lane = memory_lane(trace, device, (0.0, trace.latency))
        assert lane.held.max() == peak
        assert (np.diff(lane.time) >= 0).all()
        figure = memory_chart(trace, device)
        bars = next((each for each in figure.data if each.name == "at the peak"), None)
        assert bars is not None
        assert sum(values for _, values in bars.customdata) == sum(each.values for each in memory_shares(trace, device))
        if peak:
            assert bars.customdata[0][0] == show_memory(memory_shares(trace, device)[0].bytes, "B")
    titles = trace_chart(trace).layout.yaxis2.ticktext
    assert titles == tuple(
        f"device {device}  {show_memory(peak, 'B')}"
        for device, peak in zip(trace.devices, trace.peak_memory, strict=True)
    )


def long_trace() -> Trace:
    """Forty thousand events on two devices."""
    head = "program long\n%x: int8[7]@1\n%y: int8[7]@2\n"
    lines, last = [], ["%x", "%y"]
    for i in range(40_000):
        d, size = i % 2, 1 + i * 7919 % 1000
        said = f"bytes=({size}), devices=({d + 1}), on=({d + 1}), seconds={1e-5 + i % 3 * 1e-6}"
        made = f"%{i}: int8[0]@{d + 1}, %{i}h: int8[{size}]@{d + 1}"
        lines.append(f"{made} = block({last[d]}) {{{said}}} ; stage {d} forward")
        last[d] = f"%{i}, %{i}h"
    return simulate(read_program(head + "\n".join(lines) + f"\nreturn {last[0]}\n"))


def test_forty_thousand_events_are_a_small_picture() -> None:
    trace = long_trace()
    figure = trace_chart(trace)
    assert len(figure.to_json()) < 2_000_000
    (picture,) = [each for each in figure.data if isinstance(each, go.Heatmap)]
    forward = np.asarray(picture.customdata)[..., 0].astype(float)
    shares = forward.mean(axis=1) / 100
    for lane, device in enumerate((1, 2)):
        assert shares[lane] == pytest.approx(trace.seconds[trace.device == device].sum() / trace.latency, abs=0.006)
    close = trace_chart(trace, window=(trace.latency / 2, trace.latency / 2 + 1e-3))
    bars = [each for each in close.data if isinstance(each, go.Bar) and each.customdata is not None]
    assert 100 < sum(len(each.x) for each in bars) < MOST_BARS
    lane = memory_lane(trace, 1, (0.0, trace.latency), 2)
    assert len(lane.held) == 3_000
    assert lane.held.max() == trace.peak_memory[0]


def test_hover_tells_the_formula_with_its_numbers() -> None:
    mesh = find_mesh("h200-8")
    trace = simulate(trained(2, 1, 2, 4), mesh)
    told = {
        each.customdata[i][0].split()[0]: each.customdata[i]
        for each in trace_chart(trace, mesh).data
        if isinstance(each, go.Bar) and each.customdata is not None
        for i in range(len(each.x))
    }
    assert told["send"][5] == "1.02 kB ÷ 450 GB/s + 2 µs"
    assert told["send"][4] == "2 µs"
    assert told["allreduce"][5] == "2 × (8.19 kB ÷ 450 GB/s + 2 µs)"
    launch = h200_fit().launches.inference * h200_fit().kernel("matmul").launch
    assert told["matmul"][5].endswith(f"; launch {show_time(launch, 's')}")
    assert told["matmul"][5].startswith("32.8 kFLOP ÷ ")  # 2 · 4 · 64 · 64
    assert "stage 1 · micro-batch" in told["loss"][1]
    assert trace_chart(trace, mesh).layout.yaxis2.ticktext[0].endswith(" / 150 GB")
    plain = trace_chart(trace)
    assert any("moved" in row[5] for each in plain.data if each.name == "forward" for row in each.customdata or ())


def test_a_program_that_does_nothing_is_drawn_too() -> None:
    for text in ("%x: int8[3]@1\nreturn %x", "%x: int8[3]@0\nreturn %x"):
        trace = simulate(read_program(f"program p\n{text}\n"))
        figure = trace_chart(trace)
        assert len(figure.layout.yaxis.ticktext) == len(trace.devices)
        assert broken_trace_rules(read_trace(simulation_trace(trace))) == set()


@pytest.mark.parametrize("window", [(1.0, 1.0), (2.0, 1.0)])
def test_an_empty_window_is_refused(window: tuple[float, float]) -> None:
    with pytest.raises(InputError, match=r"^window: must end after it begins"):
        trace_chart(SIMULATIONS["streams"](), window=window)


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
