"""A schedule that runs, beside what was predicted: by the plan, or by the durations and lags of an earlier run."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.control import Control
from tessel_core.execution.fitting import Fit
from tessel_core.execution.ranks import Ranks
from tessel_core.execution.schedule_run import OnRuns, Ran, RunConfig, run_schedule
from tessel_core.execution.toy import Equality
from tessel_core.model import MeasuredRun, MemoryProfile, Schedule


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run should have been."""

    schedule: Schedule
    tick_ns: float
    """Nanoseconds of one unit of the schedule's time."""
    block_ns: tuple[float, ...]
    """Per block, how long it lasts."""
    peak_bytes: tuple[int, ...]
    source: str
    """From what it follows."""

    @classmethod
    def by_plan(cls, run: MeasuredRun) -> Prediction | None:
        """From the plan at the scale of its stand-ins; None where the blocks were others."""
        if run.tick_ns is None or run.unit_bytes is None:
            return None
        lasting = tuple(block.duration * run.tick_ns for block in run.schedule.plan.blocks)
        peaks = tuple(int(peak * run.unit_bytes) for peak in MemoryProfile.of(run.schedule).peaks)
        return cls(run.schedule, run.tick_ns, lasting, peaks, "the plan")

    @classmethod
    def by_run(cls, run: MeasuredRun) -> Prediction:
        """From the durations and lags of an earlier run: its order, every block as early as that allows."""
        return cls(Fit.of(run).timed(run.schedule), 1.0, run.block_ns, run.peak_bytes, "an earlier run")

    @property
    def makespan_ns(self) -> float:
        """Until the last run ends."""
        return self.schedule.makespan * self.tick_ns

    @property
    def idle(self) -> tuple[float, ...]:
        """Per device, as `MeasuredRun.idle`."""
        work = (sum(self.block_ns[b] for b in blocks) for blocks in self.schedule.plan.blocks_on)
        return tuple(1 - each * self.schedule.micro_batches / self.makespan_ns for each in work)


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run and what there is to hold against it."""

    run: MeasuredRun
    equality: Equality | None
    prediction: Prediction | None
    """None of a toy network that ran once."""

    @property
    def ratio(self) -> float | None:
        """The measured makespan over the predicted one."""
        return None if self.prediction is None else self.run.makespan_ns / self.prediction.makespan_ns

    @property
    def worst_blocks(self) -> tuple[tuple[str, float, float], ...]:
        """Name, predicted and measured nanoseconds of each block, the one with the largest difference first."""
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
    """Run a schedule; to measure it, twice more, so that one run is warm and predicts the last.

    Raises as `run_schedule`.
    """

    def once() -> Ran:
        return run_schedule(schedule, config, ranks, control, on_runs)

    found = once()
    if not measure:
        return RunReport(*found, Prediction.by_plan(found.run))
    prediction = Prediction.by_run(once().run)
    return RunReport(*once(), prediction)
