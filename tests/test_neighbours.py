"""One operation of a simulation closely: what it waited for explains when it starts, and the lines of its rank."""

from __future__ import annotations

import pytest
from helpers.simulations import SIMULATIONS

from tessel_core.charts.trace import selected_operation, trace_chart
from tessel_core.ir.project import project, rank_text
from tessel_core.simulation import Trace
from tessel_core.simulation.trace import listing
from tessel_core.simulation.waiting import came_after, runs_of, waited_for

every_trace = pytest.mark.parametrize("name", SIMULATIONS)


def ends(trace: Trace, op: int) -> float:
    """The latest moment at which it is done with anything."""
    made = [float(trace.ready[value]) for value in trace.program.ops[op].outputs]
    return max([run.start + run.seconds for run in runs_of(trace, op)] + made)


@every_trace
def test_what_is_waited_for_last_is_why_an_operation_starts_when_it_does(name: str) -> None:
    trace = SIMULATIONS[name]()
    for op in range(len(trace.program.ops)):
        runs = runs_of(trace, op)
        if not runs:
            continue
        found = waited_for(trace, op)
        start = runs[0].start
        if start > trace.latency * 1e-9:
            assert found[0].gap == pytest.approx(0.0, abs=trace.latency * 1e-9)
            assert ends(trace, found[0].op) >= start - trace.latency * 1e-9
        assert all(each.gap >= 0 for each in found)
        makers = {int(trace.made_by[value]) for value in trace.program.ops[op].inputs} - {-1}
        assert makers <= {each.op for each in found}


@every_trace
def test_what_came_after_is_what_waited(name: str) -> None:
    trace = SIMULATIONS[name]()
    ops = range(0, len(trace.program.ops), max(1, len(trace.program.ops) // 25))
    before = {op: {each.op: each for each in waited_for(trace, op)} for op in range(len(trace.program.ops))}
    for op in ops:
        found = {each.op: each.gap for each in came_after(trace, op)}
        assert found == {other: befores[op].gap for other, befores in before.items() if op in befores}


@every_trace
def test_the_listing_is_the_rank_with_its_times(name: str) -> None:
    trace = SIMULATIONS[name]()
    for rank in project(trace.program).values():
        lines = listing(trace, rank)
        assert [line.text for line in lines] == rank_text(rank).splitlines()
        assert [line.op for line in lines if line.op is not None] == [each.place for each in rank.ops]
        times = {(line.op, line.start, line.seconds) for line in lines if line.start is not None}
        mine = trace.device == rank.rank
        columns = (trace.op[mine].tolist(), trace.start[mine].tolist(), trace.seconds[mine].tolist())
        assert times == set(zip(*columns, strict=True))


@every_trace
def test_bars_say_which_operation_they_are_and_frames_lie_on_them(name: str) -> None:
    trace = SIMULATIONS[name]()
    bars = [bar for bar in trace_chart(trace).data if bar.type == "bar" and bar.customdata is not None]
    told = [(each, bar.y[i]) for bar in bars for i, each in enumerate(bar.customdata)]
    chosen, _ = told[len(told) // 2]
    op = selected_operation([{"customdata": list(chosen)}])
    assert op is not None
    frame = next(bar for bar in trace_chart(trace, marked=op).data if bar.name == "selected")
    lanes = sorted(lane for each, lane in told if selected_operation([{"customdata": list(each)}]) == op)
    assert sorted(frame.y) == lanes
    assert len(lanes) == sum(run.seconds > 0 for run in runs_of(trace, op) if run.device in trace.devices)
    assert selected_operation([{"customdata": None}, {}]) is None
