"""Benchmark of *Finish from here*: a micro-batch is moved and pinned, and the rest is completed. Compared with CP-SAT.

    python tests/benchmarks/finish.py            # two minutes

Each schedule is the shortest that `tessel` finds, with two runs of one micro-batch moved to random times, so that it is
longer. That micro-batch is then pinned. The peer is one CP-SAT model of the same question with presolve, on two workers
for the target time. The exit status is 1 if an answer is longer than before, or does not keep its pins. Seconds are
shown and never judged.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from statistics import median

from rich.console import Console
from rich.table import Table

from tessel_core.control import Control
from tessel_core.cpsat import Effort, ask
from tessel_core.editing.schedule import reordered
from tessel_core.errors import InputError
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.finish import Finish
from tessel_core.scheduling.kernels.warm import warm
from tessel_core.scheduling.search.runs_model import RunsModel

QUESTIONS = {"m-shape-4": (16, 20, 2.0), "v-shape-4": (16, 10, 2.0), "gpt-6.7b-v-8": (32, 4, 20.0)}
"""Micro-batches, number of schedules, and target in seconds, for each sample."""
COLUMNS = "sample", "N", "reach s", "s", "most", "proved", "over searched", "by CP-SAT", "ours : CP-SAT"


def moved(schedule: Schedule, count: int) -> Iterator[tuple[Schedule, int]]:
    """Yield `count` longer schedules, each with the micro-batch that was moved in it."""
    longest = max(block.duration for block in schedule.plan.blocks)
    seed = 0
    while count:
        seed += 1
        chance = random.Random(seed)
        m, changed = chance.randrange(schedule.micro_batches), schedule
        for _ in range(2):
            b = chance.randrange(len(schedule.plan.blocks))
            to = int(changed.starts[m, b]) + chance.randrange(-5 * longest, 10 * longest)
            try:
                changed = reordered(changed, (b, m), to)
            except InputError:  # memory does not allow it
                continue
        if changed.makespan > schedule.makespan:
            count -= 1
            yield changed, m


def by_cpsat(question: Finish, before: Schedule, seconds: float) -> int:
    """Return the makespan that one CP-SAT model reaches."""
    plan, pinned = question.plan, {(b, m): int(before.starts[m, b]) for b, m in question.pins}
    model = RunsModel(plan, before.micro_batches, before.makespan, pinned=pinned)
    model.hint(before.starts)
    model.minimise_makespan(question.least)
    answer = ask(model.cp, Effort(seconds, 2, 0), Control())
    return Schedule.at_starts(plan, model.starts(answer)).makespan if answer.verdict.found else before.makespan


def main() -> int:
    warm()
    table, wrong = Table(), 0
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "sample" else "right")
    for sample, (micro_batches, count, reach) in QUESTIONS.items():
        report: ScheduleReport = solve_schedule("tessel", load_sample(sample), micro_batches)
        assert report.solution is not None
        best = report.solution.makespan
        took, proved, ours, theirs = list[float](), 0, list[float](), list[float]()
        for before, m in moved(report.solution, count):
            pins = frozenset((b, m) for b in range(len(before.plan.blocks)))
            question = Finish.of(before, pins, least=report.makespan_bound)
            began = time.perf_counter()
            done = question.solve(Control())
            took.append(time.perf_counter() - began)
            after = done.report.solution
            assert after is not None
            wrong += after.makespan > before.makespan or any(after.starts[m] != before.starts[m])
            proved += done.proved
            ours.append(after.makespan / best)
            theirs.append(by_cpsat(question, before, reach) / best)
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        figures = f"{reach:g}", f"{median(took):.2f}", f"{max(took):.2f}", f"{proved} of {count}"
        table.add_row(
            sample, str(micro_batches), *figures, f"{median(ours):.3f}", f"{median(theirs):.3f}", f"{ratio:.3f}"
        )
    Console(width=120).print(table)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
