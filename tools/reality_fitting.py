"""Fit the parameters of a process and of the link between two processes to measured strategies.

First fit the kernels to steps of one process, then the link to simulated steps of two processes. A process has one
thread, so launch and work run in sequence (p = 1), and it either computes or communicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from tessel_core.costs.costed import operator_work
from tessel_core.costs.fit import FIT, CostFit, KernelFit, Launches, rates_of
from tessel_core.costs.kernels import KERNEL_CLASSES, Work, launches_of
from tessel_core.costs.operations import as_operator, format_of
from tessel_core.formats.fields import document_text, read_with
from tessel_core.formats.record import Record, list_of
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.transfers import AllreduceFit
from tools.calibrate import BANDWIDTH, COMPUTE, PER_OUTPUT, KernelRun, calibrated, held_out
from tools.cost_fitting import rounded, short
from tools.reality_cases import Case
from tools.reality_measuring import Measured
from tools.robust_fit import Vector, minimize

PROCESS = Device("process0", "process", 0, None, (PeakRate("fp32", 128e9),), 200e9)
"""A process as a device. The fit finds which shares of its rates kernels reach."""
RATES = rates_of(PROCESS, "fp32")
_PRODUCTS = ("matmul", "attention", "attention_backward", "general")
START = CostFit(
    1.0,
    1.0,
    Launches(1, 1, 1),
    tuple(
        KernelFit(name, 0.0, 0.3, 0.5, 100.0) if name in _PRODUCTS else KernelFit(name, 0.0, 0.3)
        for name in KERNEL_CLASSES
    ),
)
FREE = (
    *(BANDWIDTH, "optimizer", "normalisation", "normalisation_backward", "activation_backward"),
    *("matmul" + COMPUTE, "matmul" + PER_OUTPUT, "attention" + COMPUTE, "attention_backward" + COMPUTE),
)
"""Free parameters. Classes that are not named share one bandwidth."""
SPLITS = 5
"""Number of random choices of held-out strategies, with seeds from 0. The main table uses the first choice."""


@dataclass(frozen=True)
class Calibration:
    """All fitted parameters."""

    fit: CostFit
    latency: float = 1e-3
    """Seconds of a transfer between two processes, whatever its size."""
    per_byte: float = 1e-9
    allreduce_latency: float = 1e-3
    """Seconds of an all-reduction of two processes, whatever its size."""
    allreduce_per_byte: float = 2e-9

    @cached_property
    def costs(self) -> MeshCosts:
        """Costs of two processes."""
        link = Link(1 / self.per_byte, self.latency)
        mesh = DeviceMesh("processes", (PROCESS, replace(PROCESS, name="process1")), same_node_link=link)
        allreduce = AllreduceFit({2: self.allreduce_per_byte}, 0.0, self.allreduce_latency)
        return MeshCosts(mesh, self.fit, allreduce=allreduce)

    def trace(self, case: Case) -> Trace:
        """Simulate a strategy."""
        return simulate(case.spread.program, self.costs.mesh, self.costs, overlap=False)


@dataclass(frozen=True)
class Calibrations:
    """One calibration for each choice of held-out strategies."""

    splits: tuple[Calibration, ...]
    """Calibrations on half of the strategies, by the seed of the choice."""
    networks: tuple[Calibration, ...]
    """Calibrations without each network, in the order of the networks."""


_CALIBRATION = list_of(Record(Calibration, fit=FIT))
_FILE = Record(Calibrations, format="tessel-reality-fit", splits=_CALIBRATION, networks=_CALIBRATION)


def read_calibrations(path: Path) -> Calibrations:
    """Read a file of calibrations. Raises InputError for any other file."""
    return read_with(_FILE.from_fields, path.read_bytes(), path.name)


def calibrations_text(found: Calibrations) -> str:
    """Return the text of a file of calibrations."""
    return document_text(_FILE.write(found))


def unseen_cases(rows: Sequence[Measured], seed: int) -> frozenset[object]:
    """Return a random half of the strategies, to be held out."""
    return held_out((row.case for row in rows), seed)


def networks(rows: Sequence[Measured]) -> list[frozenset[object]]:
    """Return the strategies of each network."""
    names = dict.fromkeys(row.case.network for row in rows)
    return [frozenset(row.case for row in rows if row.case.network == name) for name in names]


def calibrate(rows: Sequence[Measured]) -> Calibrations:
    """Fit all calibrations, which takes two minutes."""

    def without(unseen: frozenset[object]) -> Calibration:
        return calibrated_on([row for row in rows if row.case not in unseen])

    halves = (unseen_cases(rows, seed) for seed in range(SPLITS))
    return Calibrations(tuple(map(without, halves)), tuple(map(without, networks(rows))))


def calibrated_on(rows: Sequence[Measured]) -> Calibration:
    """Fit the parameters to these strategies."""
    runs = [
        KernelRun(row.case, tuple(_works(row.case.spread.program)), "inference", row.seconds)
        for row in rows
        if row.case.strategy.devices == 1
    ]
    alone = Calibration(rounded(calibrated(START, runs, RATES, FREE)))
    return _with_link(alone, [row for row in rows if row.case.strategy.devices > 1])


def _works(program: Program) -> Iterator[Work]:
    """Yield every launch of a kernel, on one device."""
    for op in program.ops:
        types, outputs, operator = program.types_of(op.inputs), program.types_of(op.outputs), find_operator(op.kind)
        if operator.pattern or operator.view:
            continue
        asked = as_operator(op.kind, types, outputs, dict(op.attributes))
        whole, many = operator_work(asked, format_of((*types, *outputs))), launches_of(asked.kind)
        yield from repeat(Work(whole.kernel, whole.flops / many, whole.bytes / many, whole.outputs / many), many)


def _with_link(alone: Calibration, rows: Sequence[Measured]) -> Calibration:
    seconds = np.array([row.seconds for row in rows])
    names = ("latency", "per_byte", "allreduce_latency", "allreduce_per_byte")

    def made(values: Vector) -> Calibration:
        found: dict[str, Any] = dict(zip(names, map(short, np.exp(values)), strict=True))
        return replace(alone, **found)

    def residuals(values: Vector) -> Vector:
        found = made(values)
        logs: Vector = np.log(np.array([found.trace(row.case).latency for row in rows]) / seconds)
        return logs

    return made(minimize(residuals, np.log([getattr(alone, name) for name in names]), rounds=40))
