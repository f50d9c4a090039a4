"""Write docs/reality.md, which compares measured strategies with their simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import numpy as np

from tessel_core.costs.fit import KernelFit
from tessel_core.simulation.trace import worker_peaks
from tools.reality_cases import Case
from tools.reality_fitting import RATES, Calibration, Calibrations, networks, unseen_cases
from tools.reality_measuring import (
    MAX_OTHER_PROCESSORS,
    RUNS_PER_STRATEGY,
    SEED,
    STEPS,
    WARM_UP,
    Measured,
    Measurements,
)


@dataclass(frozen=True, slots=True)
class Row:
    """A strategy with its measured and its simulated values."""

    measured: Measured
    seconds: float
    """Simulated seconds."""
    peak: int
    """Simulated bytes of the process with the highest peak."""
    unseen: bool
    """Whether the strategy was held out of the calibration."""

    @property
    def case(self) -> Case:
        return self.measured.case

    @property
    def error(self) -> float:
        """Relative error of the simulated step time."""
        return self.seconds / self.measured.seconds - 1

    @property
    def memory_error(self) -> float:
        """Relative error of the simulated peak."""
        return self.peak / self.measured.peak - 1

    @property
    def processes(self) -> int:
        """Number of processes."""
        return self.case.strategy.devices


@dataclass(frozen=True, slots=True)
class Agreement:
    """Differences between simulated and measured numbers."""

    rows: int
    median: float
    """Median absolute error, relative to the measurement."""
    ninth_decile: float
    largest: float
    rank_correlation: float
    """Spearman's rank correlation."""

    @classmethod
    def of(cls, simulated: Sequence[float], measured: Sequence[float]) -> Agreement:
        """Compare simulated and measured numbers, of which there must be at least two pairs."""
        errors = [abs(one / other - 1) for one, other in zip(simulated, measured, strict=True)]
        correlation = float(np.corrcoef(_ranks(simulated), _ranks(measured))[0, 1])
        ninth = quantiles(errors, n=10, method="inclusive")[-1]
        return cls(len(errors), median(errors), ninth, max(errors), correlation)

    def __str__(self) -> str:
        """Return the cells of a table, with errors in per cent."""
        errors = (f"{100 * each:.1f}" for each in (self.median, self.ninth_decile, self.largest))
        return " | ".join((str(self.rows), *errors, f"{self.rank_correlation:.3f}"))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values in ascending order. Equal values share the mean of their ranks."""
    ordered = sorted(values)
    return [ordered.index(each) + (ordered.count(each) - 1) / 2 for each in values]


def compared(measured: Iterable[Measured], calibration: Calibration, unseen: frozenset[object]) -> list[Row]:
    """Return the simulations of measured strategies. The strategies `unseen` were held out of the calibration."""
    rows = list[Row]()
    for each in measured:
        trace = calibration.trace(each.case)
        rows.append(Row(each, trace.latency, max(worker_peaks(trace)), each.case in unseen))
    return rows


def times(rows: Sequence[Row]) -> Agreement:
    """Compare step times."""
    return Agreement.of([row.seconds for row in rows], [row.measured.seconds for row in rows])


def peaks(rows: Sequence[Row]) -> Agreement:
    """Return how well simulated and measured memory peaks agree."""
    return Agreement.of([row.peak for row in rows], [row.measured.peak for row in rows])


_PARTS: dict[str, Callable[[Row], bool]] = {
    "held out": lambda row: row.unseen,
    "held out, one process": lambda row: row.unseen and row.processes == 1,
    "held out, two processes": lambda row: row.unseen and row.processes == 2,
    "held out, MLP": lambda row: row.unseen and row.case.family_name == "mlp",
    "held out, GPT": lambda row: row.unseen and row.case.family_name == "gpt",
    "calibrated on": lambda row: not row.unseen,
}
_BY_PROCESSES: dict[str, Callable[[Row], bool]] = {
    "one process": lambda row: row.processes == 1,
    "two processes": lambda row: row.processes == 2,
}
_AGREEMENT = "strategies | median error % | 90th % | largest % | rank correlation"


def summary(rows: Sequence[Row]) -> str:
    """Return a table that summarizes the errors of all parts of the report."""
    lines = [f"| step time, {name} | {times([*filter(part, rows)])} |" for name, part in _PARTS.items()]
    lines += [f"| peak memory, {name} | {peaks([*filter(part, rows)])} |" for name, part in _BY_PROCESSES.items()]
    return _table(f" | {_AGREEMENT}", lines)


def report_text(found: Measurements, calibrations: Calibrations) -> str:
    """Return the whole report."""
    splits = [
        compared(found.rows, each, unseen_cases(found.rows, seed)) for seed, each in enumerate(calibrations.splits)
    ]
    others = [f"| seed {seed} | {times([row for row in split if row.unseen])} |" for seed, split in enumerate(splits)]
    others.append(f"| each network in turn | {times(_networks_in_turn(found, calibrations))} |")
    first, rows = calibrations.splits[0], splits[0]
    sections = (
        _introduction(found),
        summary(rows),
        "Step times under other choices of what is held out:\n",
        _table(f"held out | {_AGREEMENT}", others),
        "## What is calibrated\n",
        _calibrated(first),
        "## Strategies\n",
        _STRATEGIES,
        _table(_COLUMNS, map(line, rows)),
        _UNKNOWN,
    )
    return "\n".join(sections)


def _networks_in_turn(found: Measurements, calibrations: Calibrations) -> list[Row]:
    """Return all strategies of every network, each simulated with the costs of the other networks."""
    pairs = zip(networks(found.rows), calibrations.networks, strict=True)
    return [
        row
        for unseen, each in pairs
        for row in compared((row for row in found.rows if row.case in unseen), each, unseen)
    ]


def _introduction(found: Measurements) -> str:
    runs = sum(len(row.step_us) for row in found.rows)
    return _INTRODUCTION.format(
        strategies=len(found.rows),
        machine=found.machine,
        steps=WARM_UP + STEPS,
        seed=SEED,
        wanted=RUNS_PER_STRATEGY,
        others=f"{MAX_OTHER_PROCESSORS:.0%}",
        runs=runs,
        disturbed=found.disturbed,
        spread=f"{median(row.spread for row in found.rows):.1%}",
    )


_INTRODUCTION = """# The simulator against reality

Written by `python tools/measure_reality.py`; do not edit. The measurements are in `reality.json`, and the calibrated
parameters in `reality_fit.json`.

The engine of `tessel run` ran {strategies} strategies of MLPs and GPTs in fp32 on PyTorch, each rank a process with one
thread. The default simulation ([simulation.md](simulation.md)) predicts the same programs. Costs were calibrated on
half of the strategies, chosen with seed 0, and the other half is held out.
The machine: {machine}, gloo on loopback.

A run has {steps} steps with numbers of seed {seed}, and the first does not count. A strategy runs up to {wanted} times,
minutes apart, each time at another place in the order. Its step time is the median over runs of the median step, from
the first rank's start to the last one's end.

Other processes shared the machine, and two ranks need both of its cores. So a run counts only if the kernel's counters
gave others at most {others} of a core beside it, give or take a few hundredths. {runs} runs count, and {disturbed} do
not.
The longest run of a strategy is longer than its shortest by {spread} of its step time in the median.

Peak memory is the most that the values of one process take at a time. It is that of the process that holds most, in the
median run.

## How far the simulation is from what was measured
"""


def _calibrated(found: Calibration) -> str:
    lines = [_kernel_line(each) for each in found.fit.kernels if each.name not in _UNUSED]
    table = _table("class of kernels | GB/s | GFLOP/s | operations per output element", lines)
    return _CALIBRATED.format(
        table=table,
        send=_show_start(found.latency, found.per_byte),
        allreduce=_show_start(found.allreduce_latency, found.allreduce_per_byte),
    )


def _kernel_line(kernel: KernelFit) -> str:
    bandwidth = RATES.bandwidth * kernel.memory / 1e9
    compute = "– | –"
    if kernel.compute is not None:
        compute = f"{RATES.matrix * kernel.compute / 1e9:.1f} | {kernel.per_output:.0f}"
    return f"| {kernel.name} | {bandwidth:.1f} | {compute} |"


def _show_start(seconds: float, per_byte: float) -> str:
    return f"{seconds * 1e3:.2f} ms + bytes ÷ {1e-9 / per_byte:.2f} GB/s"


_CALIBRATED = """The form is that of [cost_model.md](cost_model.md) with p = 1: a process has one thread, so nothing
runs ahead of it. Launches are 0, since they do not show in steps this long. These are fitted on steps of one process
(`tools/calibrate.py`):

- one bandwidth for all classes, except the optimizer (Adam), normalisation, its backward and the activation's backward,
  which have their own;
- the rates of products, of attention and of its backward;
- the cost of an output element of a product.

Then the link is fitted, on simulated steps of two processes.

{table}
A send takes {send}, an all-reduction of two processes
{allreduce}. Other collectives go around the ring as sends. A process either computes or
communicates (`overlap=False`), because gloo copies bytes on the cores that compute.
"""
_UNUSED = ("softmax", "collective")
"""Classes of kernels without an operation in these networks."""
_STRATEGIES = """D/T/P/K are replicas, devices that share tensors, stages and micro-batches. Errors are relative to the
measurement.
"""
_COLUMNS = (
    "network | strategy | part | measured ms | spread % | simulated ms | error % | measured MB | simulated MB | error %"
)


def line(row: Row) -> str:
    """Return a strategy's line of the table."""
    measured = row.measured
    cells = (
        row.case.network.removesuffix(", fp32"),
        str(row.case.strategy),
        "held out" if row.unseen else "calibrated on",
        f"{measured.seconds * 1e3:.1f}",
        f"{measured.spread * 100:.1f}",
        f"{row.seconds * 1e3:.1f}",
        f"{row.error * 100:+.1f}",
        f"{measured.peak / 1e6:.2f}",
        f"{row.peak / 1e6:.2f}",
        f"{row.memory_error * 100:+.1f}",
    )
    return f"| {' | '.join(cells)} |"


_UNKNOWN = """## What is not known

- Runs of one strategy differ by more than most errors here. Those of two processes differ most, because gloo's threads
  share the cores with the computation.
- Pipelines of the widest MLPs are simulated up to a quarter too long. One latency is fitted for sends and for the
  collectives of ZeRO. Fitted on pipelines alone, it would be less than half of that of ZeRO alone, because gloo lets a
  sender go on while collectives wait for both ranks. The rest may be half of a network's weights staying in a core's
  cache.
- Classes of kernels that always come together cannot be told apart well. One then gets too much time, and another too
  little.
- Peaks are simulated too high for large inputs: the simulation holds them always, and a run frees samples after
  their last use. With 1F1B they are simulated too low: a run holds a tensor that it sends until it has arrived.
- Memory inside operations, such as the scores of attention, is in neither number.
- Steps of less than 50 ms, more than two processes, other formats and other machines were not measured.
"""


def _table(columns: str, lines: Iterable[str]) -> str:
    rule = "|---" * (columns.count("|") + 1) + "|"
    return "\n".join((f"| {columns} |", rule, *lines)) + "\n"
