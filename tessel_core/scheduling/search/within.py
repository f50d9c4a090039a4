"""Is there a schedule no longer than this?  Asked of all runs at once, without an objective.

With a hard horizon, memory as precedences and no linear relaxations, one worker of CP-SAT answers in seconds for
hundreds of runs, either way, where a model that minimises the makespan neither finds nor proves as much in minutes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.rules import check_schedule
from tessel_core.scheduling.search.compaction import compacted
from tessel_core.scheduling.search.devices_model import MOST_RUNS, DevicesModel, quantum_of


def schedule_within(
    plan: MicroBatchPlan, micro_batches: int, makespan: int, effort: Effort, control: Control
) -> tuple[Verdict, Schedule | None]:
    """A schedule of `makespan` ticks or less, or the verdict that there is none.

    Fine costs are rounded down to quanta and the answer is timed exactly, so it may be longer by a few of them.
    """
    devices = frozenset(range(len(plan.devices)))
    if micro_batches * len(plan.blocks) > MOST_RUNS:
        return Verdict.UNKNOWN, None
    quantum = quantum_of(plan)
    model = DevicesModel(plan, micro_batches, devices, quantum, makespan // quantum)
    answer = ask(model.cp, replace(effort, workers=1, relaxation=False), control)
    if not answer.verdict.found:
        return answer.verdict, None
    starts = np.zeros((micro_batches, len(plan.blocks)), dtype=np.int64)
    for (b, m), start in model.start.items():
        starts[m, b] = answer.value(start)
    found = Schedule.from_starts(plan, starts)
    exact = Schedule.from_starts(plan, compacted(found))
    return (Verdict.FOUND, exact) if not check_schedule(exact) else (Verdict.UNKNOWN, None)
