"""Benchmark of the parts of the schedule search: each part is switched off in turn, and compared with the full search.

    python tests/benchmarks/ablation.py                       # all parts, many hours on one core
    python tests/benchmarks/ablation.py --off circles windows --questions tight --seeds 0 1
    python tests/benchmarks/ablation.py --file results.jsonl  # adds results to a file, and reads those that are there

All results of one file need the same `--seconds`.

Every search has one worker. Its clock counts CPU time, and its slices and calls of CP-SAT have limits in work, so that
a busy machine changes little. A part that the full search never calls cannot change its answer, and is not run without
it. The row `seed + 1` compares the full search with itself under the next seed. Smaller differences are chance.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from finish import moved
from rich.console import Console
from rich.table import Table
from schedules import MAKESPANS, TIGHT, plan_of
from uneven import SAMPLES, uneven

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.samples import load_sample
from tessel_core.scheduling import finish, solve_schedule, time_optimal
from tessel_core.scheduling.finish import Finish
from tessel_core.scheduling.kernels.warm import warm
from tessel_core.scheduling.search import (
    circle_search,
    completion,
    list_search,
    period_search,
    portfolio,
    quick,
    runs_model,
)
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.scheduling.time_optimal import TimeOptimalConfig

MICRO_BATCHES = 32
CLOCK_RATE = 0.5
"""Seconds on the clock of a search per second of CPU time. So limits in work end most searches before their clock."""
SLACK = 20
"""Calls of CP-SAT count wall time. They may take this many times what is left on the clock of the search."""
OTHER_SEED = "seed + 1"
"""Row that compares the full search with itself."""


def _nothing(*_args: object, **_options: object) -> None: ...


def _least(*args: Any, **_options: object) -> Any:
    """Replace a bound of (plan, [micro-batches, periods,] least, effort, control) by `least`."""
    return args[-3]


def _no_lists(self: portfolio.Portfolio, control: Control) -> bool:
    self._queue, self.lists = [], []
    return True


def _no_improvement(self: circle_search.CircleSearch, candidate: Any) -> None:
    candidate.slices, candidate.idle_slices = candidate.slices + 1, candidate.idle_slices + 1


Site = tuple[Any, str, Callable[..., Any]]
"""A module, class or table, the name of a function in it, and what replaces that function."""
CIRCLES = circle_search.CircleSearch
PARTS: dict[str, tuple[Site, ...]] = {
    "lists": ((portfolio.METHODS, "list", _nothing), (portfolio.Portfolio, "begin", _no_lists)),
    "insertions": ((list_search.InsertionSearch, "_insert", _nothing), (list_search, "all_tied", lambda _: [])),
    "orders": ((portfolio.METHODS, "order", _nothing), (time_optimal._Search, "_reorder", _nothing)),
    "horizons": ((portfolio.METHODS, "horizon", _nothing),),
    "devices": ((portfolio.METHODS, "devices", _nothing),),
    "circles": ((CIRCLES, "advance", _nothing), (CIRCLES, "close_long", _nothing)),
    "windows": ((CIRCLES, "_close", lambda *_: []),),
    "whole lists": ((CIRCLES, "_close_whole", lambda *_: []),),
    "long lists": ((CIRCLES, "close_long", lambda self, *_: self.best),),
    "timetables": ((CIRCLES, "_tabulate", lambda *_: True),),
    "tabu on circles": ((CIRCLES, "_improve", _no_improvement),),
    "modulo models": ((period_search.PeriodSearch, "_ask", lambda *_: False),),
    "states": ((period_search, "states_bound", _least),),
    "exact periods": ((period_search, "exact_period", _nothing),),
    "ends": ((completion, "ends_bound", _least),),
    "mirror": ((completion, "find_mirror", lambda _: {}),),
    "other repetends": ((completion.Completion, "compact_another", _nothing),),
    "periodic middle": ((completion.Completion, "_middle", lambda *_: False),),
    "polishing": ((completion.Completion, "polish", _nothing),),
    "all runs": ((runs_model, "minimise_all_runs", _nothing),),
    "published orders": tuple((each, "published_starts", lambda *_: iter(())) for each in (completion, quick)),
    "beams": ((finish.Finish, "_beams", _nothing),),
}


class WorkControl(Control):
    """A control that leaves calls of CP-SAT enough wall time to reach their limits in work."""

    @property
    def remaining_s(self) -> float:
        return SLACK * super().remaining_s


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found and proved, in ticks, and the parts that it called."""

    makespan: int
    steady: int
    """Makespan of the schedule that keeps the period."""
    makespan_bound: int
    period: float
    """Per micro-batch."""
    period_bound: float
    cpu_s: float
    used: tuple[str, ...] = ()

    @property
    def proofs(self) -> list[bool]:
        """Whether period, makespan, and the makespan of the steady schedule meet their bounds."""
        return [
            self.period <= self.period_bound,
            *(each <= self.makespan_bound for each in (self.makespan, self.steady)),
        ]

    def times_of(self, full: Answer) -> list[float]:
        """Return the ratios of the makespans and the period to those of the full search."""
        return [self.makespan / full.makespan, self.steady / full.steady, self.period / full.period]


Question = Callable[[int, float], ScheduleReport]
"""Solves one question with a seed and a time limit in seconds, which also sets the number of slices."""


def by_tessel(plan: MicroBatchPlan, micro_batches: int, seed: int, limit_s: float) -> ScheduleReport:
    """Run the two-phase search."""
    config = TesselConfig(time_limit=limit_s, workers=1, seed=seed)
    return solve_schedule("tessel", plan, micro_batches, config, WorkControl())


def by_time_optimal(plan: MicroBatchPlan, seed: int, limit_s: float) -> ScheduleReport:
    """Run the search over all runs."""
    config = TimeOptimalConfig(time_limit=limit_s, workers=1, seed=seed)
    return solve_schedule("time-optimal", plan, 4, config, WorkControl())


@cache
def moved_in(sample: str, number: int) -> tuple[Schedule, int, int]:
    """Return a schedule in which a micro-batch was moved, that micro-batch, and a bound on the makespan."""
    report = solve_schedule("tessel", load_sample(sample), 16, TesselConfig(workers=1), Control())
    assert report.shortest is not None
    before, m = list(moved(report.shortest, number + 1))[number]
    return before, m, report.makespan_bound


def by_finish(sample: str, number: int, seed: int, limit_s: float) -> ScheduleReport:
    """Complete a schedule around a micro-batch that was moved. The bound is that of all schedules with the pins."""
    before, m, least = moved_in(sample, number)
    pins = frozenset((b, m) for b in range(len(before.plan.blocks)))
    question = replace(Finish.of(before, pins, least=least), time_limit=limit_s, workers=1, seed=seed)
    done = question.solve(WorkControl())
    return replace(done.report, makespan_bound=done.bound)


def sample_question(name: str, seed: int, limit_s: float) -> ScheduleReport:
    """Solve a sample."""
    return by_tessel(load_sample(name), MICRO_BATCHES, seed, limit_s)


def random_question(number: int, seed: int, limit_s: float) -> ScheduleReport:
    """Solve a random uneven plan."""
    return by_tessel(*uneven(number), seed, limit_s)


def few_question(number: int, seed: int, limit_s: float) -> ScheduleReport:
    """Solve a random uneven plan with so few micro-batches that one model of all runs may prove the makespan."""
    plan, _ = uneven(number)
    return by_tessel(plan, FEW_RUNS // len(plan.blocks), seed, limit_s)


def published_question(short: str, devices: int, capacity: int, seed: int, limit_s: float) -> ScheduleReport:
    """Solve a shape with its published times."""
    return by_tessel(plan_of(short, devices, capacity), MICRO_BATCHES, seed, limit_s)


FEW_RUNS = 288
RANDOM = (1, 2, 3, 5, 6, 7, 10, 12, 14, 15, 16, 22, 26, 33)
FEW = (3, 5, 7, 10, 12)
"""Random plans, of all shapes, grains and up to 24 devices."""
QUESTIONS: dict[str, Question] = {
    **{f"published {s} {d} @{c}": partial(published_question, s, d, c) for s, d, c, _ in MAKESPANS},
    **{f"tight {s} {d} @{c}": partial(published_question, s, d, c) for s, d, c, _, _ in TIGHT},
    **{f"sample {name}": partial(sample_question, name) for name in SAMPLES},
    **{f"random {number}": partial(random_question, number) for number in RANDOM},
    **{f"few {number}": partial(few_question, number) for number in FEW},
    **{f"time-optimal {s}": partial(by_time_optimal, plan_of(s, 4, c)) for s, c in (("V", 4), ("M", 6), ("NN", 6))},
    **{f"finish {name} {i}": partial(by_finish, name, i) for name in ("m-shape-4", "v-shape-4") for i in range(4)},
}


def replaced(site: Site, by: Callable[..., Any]) -> Any:
    """Return a context in which a function is replaced."""
    owner, name, _ = site
    if isinstance(owner, dict):
        return patch.dict(owner, {name: replace(owner[name], task=by)})
    return patch.object(owner, name, by)


@contextmanager
def noticed(used: set[str]) -> Iterator[None]:
    """Add the names of the parts that are called meanwhile to `used`."""

    def notice(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noticing(*args: Any, **options: Any) -> Any:
            used.add(part)
            return function(*args, **options)

        return noticing

    with ExitStack() as stack:
        for part, sites in PARTS.items():
            for site in sites:
                owner, name, _ = site
                known = owner[name].task if isinstance(owner, dict) else getattr(owner, name)
                stack.enter_context(replaced(site, notice(part, known)))
        yield


def answer(question: Question, seed: int, limit_s: float, off: str = "") -> Answer:
    """Solve a question with a part switched off, or with the full search."""
    used: set[str] = set()
    with ExitStack() as stack:
        if off:
            for site in PARTS[off]:
                stack.enter_context(replaced(site, site[2]))
        else:
            stack.enter_context(noticed(used))
        began = time.process_time()
        clock = SimpleNamespace(monotonic=lambda: CLOCK_RATE * time.process_time())
        stack.enter_context(patch("tessel_core.control.time", clock))
        report = question(seed, limit_s)
        cpu_s = time.process_time() - began
    shortest = report.shortest or report.solution
    assert shortest is not None
    steady, period = report.steady or shortest, report.period_per_micro_batch or Fraction(shortest.makespan)
    bounds = report.makespan_bound, float(period), float(report.period_bound)
    return Answer(shortest.makespan, steady.makespan, *bounds, cpu_s, tuple(sorted(used)))


class Results:
    """Answers by question, seed and the part that was off. Each is added to a file, if there is one."""

    def __init__(self, limit_s: float, file: Path | None) -> None:
        self.limit_s, self.file = limit_s, file
        self.known: dict[tuple[str, int, str], Answer] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                name, seed, off, found = json.loads(line)
                self.known[name, seed, off] = Answer(**{**found, "used": tuple(found["used"])})

    def find(self, name: str, seed: int, off: str = "") -> Answer:
        """Return the answer to a question, which is searched unless it is known."""
        if (name, seed, off) not in self.known:
            found = self.known[name, seed, off] = answer(QUESTIONS[name], seed, self.limit_s, off)
            line = json.dumps([name, seed, off, asdict(found)])
            sys.stderr.write(f"{line}\n")
            if self.file is not None:
                with self.file.open("a") as out:
                    out.write(f"{line}\n")
        return self.known[name, seed, off]


def row(part: str, pairs: Iterable[tuple[Answer, Answer]]) -> tuple[str, ...]:
    """Return the row of a part from pairs of answers: without it, and with the full search."""
    pairs = list(pairs)
    proofs = [(a, b) for without, full in pairs for a, b in zip(without.proofs, full.proofs, strict=True)]
    changes = [ratio - 1 for without, full in pairs for ratio in without.times_of(full)] or [0.0]
    bounds = [without.makespan_bound / full.makespan_bound - 1 for without, full in pairs]
    bounds += [without.period_bound / full.period_bound - 1 for without, full in pairs]
    cpu = sum(full.cpu_s for _, full in pairs)
    return (
        part,
        str(len(pairs)),
        str(sum(b and not a for a, b in proofs)),
        str(sum(a and not b for a, b in proofs)),
        f"{max(changes):+.1%}",
        f"{min(changes):+.1%}",
        f"{sum(changes) / len(changes):+.2%}",
        f"{min(bounds, default=0):+.1%}",
        f"{sum(without.cpu_s for without, _ in pairs) / cpu:.2f}" if cpu else "",
    )


COLUMNS = "off", "used on", "proofs lost", "gained", "longest", "shortest", "mean", "bound", "CPU"


def main() -> None:
    """Print one row per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--off", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--questions", nargs="+", metavar="PREFIX", default=[""], help="only questions that begin so")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of each search, 10 by default")
    parser.add_argument("--file", type=Path, help="file of results, one JSON line each")
    arguments = parser.parse_args()
    warm()
    results = Results(arguments.seconds, arguments.file)
    asked = [
        (name, seed) for name in QUESTIONS if name.startswith(tuple(arguments.questions)) for seed in arguments.seeds
    ]
    pairs: dict[str, list[tuple[Answer, Answer]]] = {part: [] for part in (OTHER_SEED, *arguments.off)}
    for name, seed in asked:
        full = results.find(name, seed)
        if seed + 1 in arguments.seeds:
            pairs[OTHER_SEED].append((results.find(name, seed + 1), full))
        for part in arguments.off:
            if part in full.used:
                pairs[part].append((results.find(name, seed, part), full))
    table = Table(*COLUMNS, title=f"{len(asked)} searches, each part off in turn, against the full search", box=None)
    for part, answers in pairs.items():
        table.add_row(*row(part, answers))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
