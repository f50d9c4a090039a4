"""Strategies as they ran: what is measured of each, how, and the file that keeps it."""

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
"""Steps of a run that do not count, and that do."""
RUNS = 3
"""Of each strategy."""
MOST_OTHERS = 0.05
"""A run counts where other processes took at most so many processors beside it."""
SEED = 0
"""Of the numbers that are computed with, and of the order in which strategies run."""
_LOOK_S = 0.4
"""For so long the machine must be quiet before a run begins."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A strategy, and its runs, which lie minutes apart."""

    case: Case
    step_us: tuple[tuple[int, ...], ...]
    """Per run, the microseconds of each step that counts."""
    peaks: tuple[int, ...]
    """Per run, the most bytes of values that one of its processes held."""

    @property
    def seconds(self) -> float:
        """The median over runs of the median step of each."""
        return median(self._of_runs)

    @property
    def spread(self) -> float:
        """From the shortest run to the longest one, as a share of the median."""
        return (max(self._of_runs) - min(self._of_runs)) / self.seconds

    @property
    def peak(self) -> float:
        """Bytes in the median run."""
        return median(self.peaks)

    @property
    def _of_runs(self) -> list[float]:
        return [median(each) / 1e6 for each in self.step_us]


@dataclass(frozen=True)
class Measurements:
    """What was measured, and on which machine."""

    machine: str
    disturbed: int
    """Runs that do not count, because other processes worked beside them."""
    rows: tuple[Measured, ...]


_FILE = Record(
    Measurements,
    format="tessel-reality",
    rows=list_of(Record(Measured, without=("case",), inline={"case": Record(Case)})),
)


def read_measurements(path: Path) -> Measurements:
    """Those of a file; raises InputError for one that is not such a file."""
    return read_with(_FILE.from_fields, path.read_bytes(), path.name)


def measurements_text(found: Measurements) -> str:
    """The text of a file."""
    return document_text(_FILE.write(found))


def measure(cases: Sequence[Case], until_s: float, on_run: Callable[[str], None]) -> Iterator[Measurements]:
    """Run all cases in turn, each time in another order on fresh processes, until each has `RUNS` that count.

    Yields what there is after each turn; stops after `until_s` seconds.
    """
    steps, peaks = defaultdict[Case, list[tuple[int, ...]]](list), defaultdict[Case, list[int]](list)
    draw, end, disturbed = random.Random(SEED), time.monotonic() + until_s, 0
    while (missing := [case for case in cases if len(steps[case]) < RUNS]) and time.monotonic() < end:
        for many in sorted({case.strategy.devices for case in missing}):
            here = [case for case in missing if case.strategy.devices == many]
            with Ranks(many) as ranks:
                for case in draw.sample(here, len(here)):
                    _wait_for_quiet(ranks, end)
                    run, others = _run(case, ranks)
                    on_run(f"{case.network}, {case.strategy}: other processes took {others:.2f} processors")
                    if others > MOST_OTHERS:
                        disturbed += 1
                        continue
                    steps[case].append(tuple(round(each.wall_s * 1e6) for each in run.steps[WARM_UP:]))
                    peaks[case].append(max(run.peak_memory or ()))
        rows = (Measured(each, tuple(steps[each]), tuple(peaks[each])) for each in cases if steps[each])
        yield Measurements(_machine(), disturbed, tuple(rows))


def _run(case: Case, ranks: Ranks) -> tuple[ProgramRun, float]:
    """The run, and how many processors other processes took beside it."""
    began, before = time.monotonic(), _others_s(ranks)
    run = run_program(Asked(case.whole, case.spread, SEED, WARM_UP + STEPS), Engine.TORCH, Control(), ranks=ranks)
    return run, (_others_s(ranks) - before) / (time.monotonic() - began)


def _wait_for_quiet(ranks: Ranks, end: float) -> None:
    while time.monotonic() < end:
        before = _others_s(ranks)
        time.sleep(_LOOK_S)
        if _others_s(ranks) - before <= MOST_OTHERS * _LOOK_S:
            return


def _others_s(ranks: Ranks) -> float:
    """Seconds of processors that all processes but this one and the ranks have taken since the machine started."""
    user, nice, system, _, _, _, _, stolen = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    taken = (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")
    return taken - time.process_time() - sum(ranks.run(_own_s, [None] * ranks.count))


def _own_s(rank: Rank, nothing: None) -> float:
    return time.process_time()


def _machine() -> str:
    import torch

    return f"{os.cpu_count()} cores, PyTorch {torch.__version__.split('+')[0]}"
