"""What is asked of a placer, and what every placer is: a function from problem, config and control to a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tessel_core.control import Control
from tessel_core.model import DevicePool, OperatorGraph, PlacementDevice, PlacementReport

THROUGHPUT = "throughput"
"""The objective: least largest load of a device, which is the time per sample in a pipeline."""


@dataclass(frozen=True)
class PlacementProblem:
    """A graph and the devices that its operators may go to, for a pipeline with one stage a device."""

    graph: OperatorGraph
    pool: DevicePool

    @cached_property
    def devices(self) -> tuple[PlacementDevice, ...]:
        """Accelerators first, then hosts."""
        return self.pool.devices(self.graph)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The config of a placer that has nothing to choose."""

    def __post_init__(self) -> None:
        """Nothing to check."""


Solve = Callable[[PlacementProblem, Any, Control], PlacementReport]


@dataclass(frozen=True, slots=True)
class Placer:
    """One entry of the table of placers; every placement that `solve` returns is contiguous."""

    name: str
    title: str
    source: str
    solve: Solve
    config: type = NoOptions
