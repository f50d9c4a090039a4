"""Fit parameters of devices to measured times, and compute the error on measurements that were not used for the fit."""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from statistics import mean, median

import numpy as np

from tessel_core.costs.fit import CostFit, Launches, Rates
from tessel_core.costs.kernels import Work
from tessel_core.errors import InputError
from tessel_core.simulation.transfers import AllreduceFit
from tools.robust_fit import Vector, minimize

PEAK, BANDWIDTH, LAUNCH = "peak", "bandwidth", "launch"
DEVICE = (PEAK, BANDWIDTH, LAUNCH)
"""Parameters of a device.

They are factors on three numbers of every kernel class: its fraction of the peak, its fraction of the bandwidth, and
its launch time.
"""
MODES = tuple(each.name for each in fields(Launches))
"""Inference, and the forward and backward pass of training. Each has its own factor on launch times."""
COMPUTE, PER_OUTPUT = ".compute", ".per_output"
"""Suffixes for parameters of a kernel class: its fraction of the peak, and its operations per output element."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """Kernels that ran one after another, and their measured time in seconds."""

    group: Hashable
    """Name of a group of measurements, such as a model. A group is either used for the fit or predicted as a whole."""
    works: tuple[Work, ...]
    mode: str
    """Pass in which the kernels ran: an element of `MODES`."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of predictions, relative to the measured values."""

    rows: int
    mean: float
    median: float
    largest: float
    correlation: float
    """Pearson's correlation, or NaN for fewer than two rows.

    A prediction that is wrong by a constant factor can still have correlation 1, so look at the errors, too.
    """

    @classmethod
    def of(cls, predicted: Sequence[float], measured: Sequence[float]) -> Accuracy:
        """Return the errors of predictions. Raises InputError if there are none."""
        if not len(measured):
            raise InputError("accuracy", "needs at least one measured row")
        errors = [abs(one / other - 1) for one, other in zip(predicted, measured, strict=True)]
        related = float(np.corrcoef(predicted, measured)[0, 1]) if len(errors) > 1 else float("nan")
        return cls(len(errors), mean(errors), median(errors), max(errors), related)


def held_out(groups: Iterable[Hashable], seed: int, share: float = 0.5) -> frozenset[Hashable]:
    """Return a random choice of the groups that are predicted and not used for the fit.

    At least one group is left for the fit. The same seed gives the same choice. Raises InputError for fewer than two
    groups, or a share that is not between 0 and 1.
    """
    known = list(dict.fromkeys(groups))
    if len(known) < 2 or not 0 < share < 1:
        raise InputError(
            "hold-out", f"needs at least two groups and a share between 0 and 1, got {len(known)} and {share}"
        )
    random.Random(seed).shuffle(known)
    return frozenset(known[: min(len(known) - 1, max(1, round(share * len(known))))])


def calibrated(start: CostFit, runs: Sequence[KernelRun], rates: Rates, free: Collection[str] = DEVICE) -> CostFit:
    """Return parameters that were fitted to the measured runs by a robust fit of the logarithm of seconds.

    `free` names the parameters that may change: those in `DEVICE` and `MODES`, and classes of kernels. The name of a
    class frees its fraction of the bandwidth. With the suffix `COMPUTE` or `PER_OUTPUT`, it frees the parameter of that
    suffix.

    Raises InputError if there are no runs, or if a name is unknown.
    """
    products = [each.name for each in start.kernels if each.compute is not None]
    parts = (name + part for name in products for part in (COMPUTE, PER_OUTPUT))
    known = {*DEVICE, *MODES, *(each.name for each in start.kernels), *parts}
    unknown = [name for name in free if name not in known]
    if unknown or not runs:
        why = f"{unknown[0]!r} is not a parameter, choose from {', '.join(sorted(known))}" if unknown else "has no runs"
        raise InputError("calibration", why)
    names, table = list(free), _Table(runs, start)
    seconds = np.array([run.seconds for run in runs])

    def residuals(values: Vector) -> Vector:
        logs: Vector = np.log(table.seconds(_with(start, names, values), rates) / seconds)
        return logs

    return _with(start, names, minimize(residuals, np.array([_first(start, name) for name in names])))


def run_seconds(fit: CostFit, runs: Sequence[KernelRun], rates: Rates) -> list[float]:
    """Return the seconds of each run with these parameters."""
    found: list[float] = _Table(runs, fit).seconds(fit, rates).tolist()
    return found


def _first(start: CostFit, name: str) -> float:
    """Return the starting point of a free parameter.

    Factors and operations are logarithms, and fractions are logits.
    """
    if name in DEVICE:
        return 0.0
    if name in MODES:
        return float(np.log(getattr(start.launches, name)))
    kernel = start.kernel(name.partition(".")[0])
    if name.endswith(PER_OUTPUT):
        return float(np.log(max(kernel.per_output, 1.0)))
    share = min((kernel.compute or 0.0) if name.endswith(COMPUTE) else kernel.memory, 0.99)
    return float(np.log(share / (1 - share)))


def _with(start: CostFit, names: Sequence[str], values: Vector) -> CostFit:
    factor = dict.fromkeys(DEVICE, 1.0) | dict(zip(names, np.exp(values).tolist(), strict=True))
    share = dict(zip(names, (1 / (1 + np.exp(-values))).tolist(), strict=True))
    kernels = (
        replace(
            each,
            launch=each.launch * factor[LAUNCH],
            memory=share.get(each.name, each.memory * factor[BANDWIDTH]),
            compute=share.get(each.name + COMPUTE, None if each.compute is None else each.compute * factor[PEAK]),
            per_output=factor.get(each.name + PER_OUTPUT, each.per_output),
        )
        for each in start.kernels
    )
    launches = {mode: factor.get(mode, getattr(start.launches, mode)) for mode in MODES}
    return replace(start, launches=Launches(**launches), kernels=tuple(kernels))


class _Table:
    """Runs as columns with one row per kernel. A fit can so evaluate thousands of kernels at once."""

    def __init__(self, runs: Sequence[KernelRun], fit: CostFit) -> None:
        place = {each.name: i for i, each in enumerate(fit.kernels)}
        works = [(i, work, place[work.kernel]) for i, run in enumerate(runs) for work in run.works]
        self._run = np.array([i for i, _, _ in works])
        self._kernel = np.array([kernel for _, _, kernel in works])
        self._flops = np.array([work.flops for _, work, _ in works])
        self._bytes = np.array([work.bytes for _, work, _ in works])
        self._outputs = np.array([work.outputs for _, work, _ in works])
        evened = (1 + fit.kernels[kernel].even_head / work.head_size for _, work, kernel in works)
        self._products = self._flops * np.fromiter(evened, float, len(works))
        self._mode = np.array([MODES.index(run.mode) for run in runs])

    def seconds(self, fit: CostFit, rates: Rates) -> Vector:
        """Return the seconds of each run: `CostFit.joined` of its launches and its busy time."""
        of = self._kernel
        compute = np.array([each.compute or np.nan for each in fit.kernels])[of]
        operations = self._products + np.array([each.per_output for each in fit.kernels])[of] * self._outputs
        computing = np.where(np.isnan(compute), self._flops / rates.vector, operations / (rates.matrix * compute))
        moving = self._bytes / (rates.bandwidth * np.array([each.memory for each in fit.kernels])[of])
        launch = np.array([each.launch for each in fit.kernels])[of]
        count = len(self._mode)
        serial = np.array([each.serial for each in fit.kernels])[of]
        busy = np.bincount(self._run, np.where(serial, computing + moving, np.maximum(computing, moving)), count)
        factors = np.array([getattr(fit.launches, mode) for mode in MODES])
        launching = factors[self._mode] * np.bincount(self._run, launch, count)
        found: Vector = (launching**fit.overlap + busy**fit.overlap) ** (1 / fit.overlap)
        return found


@dataclass(frozen=True, slots=True)
class AllreduceRow:
    """One measurement of an all-reduce: number of devices, bytes on each device, and seconds."""

    devices: int
    bytes: float
    seconds: float


def fit_allreduce(rows: Sequence[AllreduceRow]) -> AllreduceFit:
    """Fit the coefficients by least squares of relative errors.

    b and c are at least 0. If all measurements have the same number of devices, b is 0.

    Raises InputError if there are fewer than two numbers of bytes for a number of devices, or if more bytes do not take
    longer.
    """
    groups = sorted({row.devices for row in rows})
    if not groups:
        raise InputError("allreduce", "has no measured rows")
    for group in groups:
        if len({row.bytes for row in rows if row.devices == group}) < 2:
            raise InputError(f"allreduce of {group} devices", "needs measurements of at least two sizes")
    starts = [1, 0] if len(groups) > 1 else [0]
    while True:
        slopes, found = _solved(rows, groups, starts)
        negative = [name for name, value in zip(starts, found, strict=True) if value < 0]
        if not negative:
            break
        starts = [name for name in starts if name not in negative]
    for group, slope in zip(groups, slopes, strict=True):
        if slope <= 0:
            raise InputError(f"allreduce of {group} devices", "must take longer for more bytes")
    known = dict(zip(starts, found, strict=True))
    return AllreduceFit(dict(zip(groups, slopes, strict=True)), known.get(1, 0.0), known.get(0, 0.0))


def _solved(
    rows: Sequence[AllreduceRow], groups: Sequence[int], powers: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Return the slope for each number of devices, and the coefficients of `powers` of the number of devices."""
    columns = [[row.bytes * (row.devices == group) / row.seconds for row in rows] for group in groups]
    columns += [[row.devices**power / row.seconds for row in rows] for power in powers]
    matrix = np.array(columns).T
    size = np.linalg.norm(matrix, axis=0)  # Bytes and seconds differ by many orders of magnitude.
    found = (np.linalg.lstsq(matrix / size, np.ones(len(rows)), rcond=None)[0] / size).tolist()
    return found[: len(groups)], found[len(groups) :]
