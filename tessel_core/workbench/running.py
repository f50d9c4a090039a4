"""Run a schedule on processes, and compare the measurement with a prediction from the plan or from an earlier run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tessel_core.control import Control
from tessel_core.execution.fitting import Fit, expected
from tessel_core.execution.ranks import Ranks
from tessel_core.execution.schedule_run import Equality, OnRuns, Ran, RunConfig, run_schedule
from tessel_core.execution.share import Timed
from tessel_core.model import Expected, MeasuredRun, MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.scheduling.search.timing import compacted

MAX_KEPT = 5_000
"""Largest measured run that a workspace stores, in runs of blocks. An export has no limit."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted times and memory of a run."""

    schedule: Schedule
    tick_ns: float
    """Nanoseconds per unit of the schedule's time."""
    block_ns: tuple[float, ...]
    """Duration of each block in nanoseconds."""
    peak_bytes: tuple[int, ...]
    source: str
    """Origin of the prediction, in words."""

    @classmethod
    def by_plan(cls, run: MeasuredRun) -> Prediction | None:
        """Predict times and memory from the plan, at the time scale of the stand-in blocks.

        None if the blocks were not stand-ins.
        """
        if run.tick_ns is None or run.unit_bytes is None:
            return None
        lasting = tuple(block.duration * run.tick_ns for block in run.schedule.plan.blocks)
        peaks = tuple(int(peak * run.unit_bytes) for peak in MemoryProfile.of(run.schedule).peaks)
        return cls(run.schedule, run.tick_ns, lasting, peaks, "the plan")

    @classmethod
    def by_run(cls, schedule: Schedule, found: Expected) -> Prediction:
        """Predict times and memory from the durations and lags of an earlier run.

        Every block starts as early as the order allows.
        """
        retimed = Fit.of(schedule.plan, found).timed(schedule)
        return cls(retimed, 1.0, found.block_ns, found.peak_bytes, "an earlier run")

    @classmethod
    def of(cls, run: MeasuredRun) -> Prediction | None:
        """Predict from an earlier run if one exists, or else from the plan."""
        return cls.by_plan(run) if run.expected is None else cls.by_run(run.schedule, run.expected)

    @property
    def makespan_ns(self) -> float:
        """Predicted makespan in nanoseconds."""
        return self.schedule.makespan * self.tick_ns

    def start_of(self, block: int, micro_batch: int) -> float:
        """Return the predicted start of a run in nanoseconds."""
        return float(self.schedule.starts[micro_batch, block] * self.tick_ns)

    @property
    def idle(self) -> tuple[float, ...]:
        """Predicted idle share of each device, as in `MeasuredRun.idle`."""
        work = (sum(self.block_ns[b] for b in blocks) for blocks in self.schedule.plan.blocks_on)
        return tuple(1 - each * self.schedule.micro_batches / self.makespan_ns for each in work)


def measured_plan(run: MeasuredRun) -> MicroBatchPlan:
    """Return the plan with measured durations and lags in nanoseconds, so that a search can use them."""
    return Fit.of(run.schedule.plan, expected(run)).plan


def in_the_order_of(found: Schedule, plan: MicroBatchPlan) -> Schedule:
    """Return a schedule with the order of the given one and the durations of `plan`.

    Every run starts as early as possible.
    """
    order = Schedule(plan, found.micro_batches, found.block, found.micro_batch, np.arange(len(found.start)))
    return Schedule.at_starts(plan, compacted(order))


@dataclass(frozen=True, slots=True)
class RunReport:
    """A measured run with its prediction and the comparison with one process."""

    run: MeasuredRun
    equality: Equality | None
    prediction: Prediction | None
    """Prediction of the run. None for a toy network that ran only once."""

    @classmethod
    def of(cls, run: MeasuredRun, equality: Equality | None = None) -> RunReport:
        """Build the report of a run that was just measured or read from a file."""
        return cls(run, equality, Prediction.of(run))

    @property
    def plan_tick_ns(self) -> float:
        """Nanoseconds per time unit of the plan.

        If not given, chosen so that the plan's total work equals the measured work.
        """
        if self.run.tick_ns is not None:
            return self.run.tick_ns
        return sum(self.run.block_ns) / sum(block.duration for block in self.run.schedule.plan.blocks)

    @property
    def ratio(self) -> float | None:
        """Measured makespan divided by predicted makespan. None without a prediction."""
        return None if self.prediction is None else self.run.makespan_ns / self.prediction.makespan_ns

    @property
    def worst_blocks(self) -> tuple[tuple[str, float, float], ...]:
        """Name, predicted and measured duration in nanoseconds of each block, largest difference first."""
        if self.prediction is None:
            return ()
        names = [block.name for block in self.run.schedule.plan.blocks]
        found = zip(names, self.prediction.block_ns, self.run.block_ns, strict=True)
        return tuple(sorted(found, key=lambda each: -abs(each[2] - each[1])))


def run_and_report(
    schedule: Schedule,
    config: RunConfig,
    ranks: Ranks,
    control: Control | None = None,
    on_runs: OnRuns = lambda rank, runs: None,
    *,
    measure: bool = False,
) -> RunReport:
    """Run a schedule and report its times.

    With `measure`, run it three times. The second run, which is warm, predicts the third. Raises the errors of
    `run_schedule`.
    """

    def once() -> Ran:
        return run_schedule(schedule, config, ranks, control, on_runs)

    found = once()
    if not measure:
        return RunReport.of(*found)
    before = expected(once().run)
    found = once()
    return RunReport.of(replace(found.run, expected=before), found.equality)


@dataclass(frozen=True)
class RunQuestion:
    """Question for a run of a schedule.

    Measured times differ at each repetition, so each repetition has another `number`.
    """

    schedule: Schedule
    config: RunConfig
    measure: bool = False
    number: int = 0

    def solve(self, control: Control) -> RunReport:
        """Run the schedule on new processes.

        Deliver each finished run of a block with its rank. Raises the errors of `run_schedule`.
        """
        with Ranks(len(self.schedule.plan.devices)) as ranks:

            def deliver(rank: int, runs: Sequence[Timed]) -> None:
                control.deliver((rank, tuple(runs)))

            return run_and_report(self.schedule, self.config, ranks, control, deliver, measure=self.measure)

    def latest(self, parts: Iterable[tuple[int, Sequence[Timed]]]) -> list[tuple[int, int, int, int]]:
        """Return the delivered runs of the newest round. Each has its row of the schedule, rank, start and end."""
        schedule, done = self.schedule, self._done(parts)
        named = zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)
        rows, newest = {name: row for row, name in enumerate(named)}, self._newest(done)
        return [
            (rows[b, m], rank, start, end)
            for rank, runs in done.items()
            for b, m, start, end in runs[newest * len(schedule.runs_on(rank)) :]
        ]

    def round_of(self, parts: Iterable[tuple[int, Sequence[Timed]]]) -> int:
        """Return the number of the current round of measurement. The first round is 0."""
        return self._newest(self._done(parts))

    def _done(self, parts: Iterable[tuple[int, Sequence[Timed]]]) -> dict[int, list[Timed]]:
        done = defaultdict[int, list[Timed]](list)
        for rank, runs in parts:
            done[rank] += runs
        return done

    def _newest(self, done: Mapping[int, Sequence[Timed]]) -> int:
        rounds = ((len(runs) - 1) // len(self.schedule.runs_on(rank)) for rank, runs in done.items() if runs)
        return max(rounds, default=0)
