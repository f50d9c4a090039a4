"""Run strategies, measure their times, and keep the results in a file."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tessel_core.control import Control
from tessel_core.execution.program_run import Asked, Engine, ProgramRun, run_program
from tessel_core.execution.rank_process import Rank
from tessel_core.execution.ranks import Ranks
from tessel_core.formats.fields import document_text, read_with
from tessel_core.formats.record import Record, list_of
from tools.reality_cases import Case

WARM_UP, STEPS = 1, 5
"""Number of first steps of a run that do not count, and number of steps that count."""
RUNS_PER_STRATEGY = 3
MAX_OTHER_PROCESSORS = 0.05
"""A run counts only if other processes used at most this many processors during it."""
SEED = 0
"""Seed of the input numbers, and of the order in which strategies run."""
_QUIET_SECONDS = 0.4
"""Seconds for which the machine must be quiet before a run begins."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A strategy and its runs. The runs are minutes apart."""

    case: Case
    step_us: tuple[tuple[int, ...], ...]
    """Microseconds of each counted step, for each run."""
    peaks: tuple[int, ...]
    """Largest bytes of values that a process of the run held, for each run."""

    @property
    def seconds(self) -> float:
        """Median over runs of the median step, in seconds."""
        return median(self._of_runs)

    @property
    def spread(self) -> float:
        """Longest minus shortest run, as a share of the median."""
        return (max(self._of_runs) - min(self._of_runs)) / self.seconds

    @property
    def peak(self) -> float:
        """Peak bytes in the median run."""
        return median(self.peaks)

    @property
    def _of_runs(self) -> list[float]:
        return [median(each) / 1e6 for each in self.step_us]


@dataclass(frozen=True)
class Measurements:
    """All measurements, and a description of the machine."""

    machine: str
    disturbed: int
    """Number of runs that do not count, because other processes were busy."""
    rows: tuple[Measured, ...]


_FILE = Record(
    Measurements,
    format="tessel-reality",
    rows=list_of(Record(Measured, without=("case",), inline={"case": Record(Case)})),
)


def read_measurements(path: Path) -> Measurements:
    """Read a file of measurements. Raises InputError for any other file."""
    return read_with(_FILE.from_fields, path.read_bytes(), path.name)


def measurements_text(found: Measurements) -> str:
    """Return the text of a file of measurements."""
    return document_text(_FILE.write(found))


def measure(cases: Sequence[Case], until_s: float, on_run: Callable[[str], None]) -> Iterator[Measurements]:
    """Run all cases in turn, in random order on fresh processes, until each has `RUNS_PER_STRATEGY` counted runs.

    Yields the measurements so far after each turn, and stops after `until_s` seconds.
    """
    steps, peaks = defaultdict[Case, list[tuple[int, ...]]](list), defaultdict[Case, list[int]](list)
    draw, end, disturbed = random.Random(SEED), time.monotonic() + until_s, 0
    while (missing := [case for case in cases if len(steps[case]) < RUNS_PER_STRATEGY]) and time.monotonic() < end:
        for many in sorted({case.strategy.devices for case in missing}):
            here = [case for case in missing if case.strategy.devices == many]
            with Ranks(many) as ranks:
                for case in draw.sample(here, len(here)):
                    _wait_for_quiet(ranks, end)
                    run, others = _run(case, ranks)
                    on_run(f"{case.network}, {case.strategy}: other processes took {others:.2f} processors")
                    if others > MAX_OTHER_PROCESSORS:
                        disturbed += 1
                        continue
                    steps[case].append(tuple(round(each.wall_s * 1e6) for each in run.steps[WARM_UP:]))
                    peaks[case].append(max(run.peak_memory or ()))
        rows = (Measured(each, tuple(steps[each]), tuple(peaks[each])) for each in cases if steps[each])
        yield Measurements(_machine(), disturbed, tuple(rows))


def _run(case: Case, ranks: Ranks) -> tuple[ProgramRun, float]:
    """Run a strategy. Return the run, and how many processors other processes used during it."""
    began, before = time.monotonic(), _others_s(ranks)
    run = run_program(Asked(case.whole, case.spread, SEED, WARM_UP + STEPS), Engine.TORCH, Control(), ranks=ranks)
    return run, (_others_s(ranks) - before) / (time.monotonic() - began)


def _wait_for_quiet(ranks: Ranks, end: float) -> None:
    while time.monotonic() < end:
        before = _others_s(ranks)
        time.sleep(_QUIET_SECONDS)
        if _others_s(ranks) - before <= MAX_OTHER_PROCESSORS * _QUIET_SECONDS:
            return


def _others_s(ranks: Ranks) -> float:
    """Return the processor seconds of all processes but this one and the ranks, since the machine started."""
    user, nice, system, _, _, _, _, stolen = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    taken = (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")
    return taken - time.process_time() - sum(ranks.run(_own_s, [None] * ranks.count))


def _own_s(rank: Rank, nothing: None) -> float:
    return time.process_time()


def _machine() -> str:
    import torch

    return f"{os.cpu_count()} cores, PyTorch {torch.__version__.split('+')[0]}"
