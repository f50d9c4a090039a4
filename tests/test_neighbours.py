"""Details of one simulated operation: the causes of its start, and the program lines of its rank."""

from __future__ import annotations

import pytest
from helpers.simulations import SIMULATIONS

from tessel_core.ir.project import project, rank_text
from tessel_core.simulation import Trace
from tessel_core.simulation.trace import listing
from tessel_core.simulation.waiting import came_after, runs_of, waited_for

every_trace = pytest.mark.parametrize("name", SIMULATIONS)


def ends(trace: Trace, op: int) -> float:
    """Return the latest end of the device on any stream."""
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
