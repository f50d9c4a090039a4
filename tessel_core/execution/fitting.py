"""A plan's durations and lags as a run had them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from tessel_core.model import MeasuredRun, MicroBatchPlan


def fitted(run: MeasuredRun) -> MicroBatchPlan:
    """The plan of a run with measured durations and lags, in nanoseconds.

    A run begins some time after the last thing it waits for: the run before it on a device, or a dependency.  The
    median of the first counts to the duration of the block before, that of the second is the lag of the dependency.  A
    dependency that no run waited for last has the usual lag between devices, at most what there was always room for.
    """
    plan = run.schedule.plan
    after_run, after_arc, room = _gaps(run)
    turns = {b: int(median(gaps)) for b, gaps in after_run.items()}
    usual = sorted(int(median(gaps)) for gaps in after_arc.values())
    otherwise = usual[len(usual) // 2] if usual else 0
    blocks = tuple(
        replace(block, duration=max(1, lasting + turns.get(b, 0)))
        for b, (block, lasting) in enumerate(zip(plan.blocks, run.block_ns, strict=True))
    )
    arcs = []
    for a, ((before, after, _), arc) in enumerate(zip(plan.arcs, plan.dependencies, strict=True)):
        crosses = not set(plan.blocks[before].devices) >= set(plan.blocks[after].devices)
        found = median(after_arc[a]) if a in after_arc else min(otherwise if crosses else 0, room.get(a, 0))
        arcs.append(replace(arc, lag=max(0, int(found) - turns.get(before, 0))))
    return replace(plan, blocks=blocks, dependencies=tuple(arcs), time_unit="ns")


def _gaps(run: MeasuredRun) -> tuple[Mapping[int, Sequence[int]], Mapping[int, Sequence[int]], Mapping[int, int]]:
    """Per block, the gaps from its runs to the next that waited for them last; per dependency, the same, and the least
    time between its ends."""
    schedule, plan = run.schedule, run.schedule.plan
    after_run, after_arc, room = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list), dict[int, int]()
    ended = dict[tuple[int, int], int]()
    last = dict[int, tuple[int, int]]()
    incoming = [[a for a, (_, after, _) in enumerate(plan.arcs) if after == b] for b in range(len(plan.blocks))]
    for b, m, start, end in zip(
        schedule.block.tolist(), schedule.micro_batch.tolist(), run.start.tolist(), run.end.tolist(), strict=True
    ):
        by_arc = [(ended[plan.arcs[a][0], m], a) for a in incoming[b]]
        by_device = [last[d] for d in plan.blocks[b].devices if d in last]
        for moment, a in by_arc:
            room[a] = min(room.get(a, start - moment), start - moment)
        newest, arc = max(by_arc, default=(-1, -1))
        turn, before = max(by_device, default=(-1, -1))
        if turn >= newest and before >= 0:
            after_run[before].append(max(0, start - turn))
        elif arc >= 0:
            after_arc[arc].append(max(0, start - newest))
        ended[b, m] = end
        last |= dict.fromkeys(plan.blocks[b].devices, (end, b))
    return after_run, after_arc, room
