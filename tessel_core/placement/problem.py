"""The problem of placing a graph on devices, and placers: functions from problem, config and control to a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions, costed
from tessel_core.errors import InputError
from tessel_core.model import (
    THROUGHPUT,
    Allowance,
    Communication,
    DeviceMesh,
    DevicePool,
    OperatorGraph,
    Placement,
    PlacementDevice,
    PlacementReport,
    Transfers,
    measure_placement,
)
from tessel_core.model.checks import check_unique
from tessel_core.model.transfers import OWN_COSTS


@dataclass(frozen=True)
class PlacementProblem:
    """A graph and the devices that its operators may go to, for a pipeline with one stage a device.

    `contiguous` asks that the devices' forward operators form a chain of ideals; else any sets will do.

    Raises InputError where an allowance names an operator or a device that there is not.
    """

    graph: OperatorGraph
    devices: tuple[PlacementDevice, ...]
    transfers: Transfers = OWN_COSTS
    allowances: tuple[Allowance, ...] = ()
    objective: str = THROUGHPUT
    contiguous: bool = True
    by_hand: tuple[tuple[int, ...], ...] | None = None
    """Per operator its devices, as a person placed it: the placement that the placer `expert` evaluates."""

    def __post_init__(self) -> None:
        known = {device.name for device in self.devices}
        check_unique("allowances", (each.operator for each in self.allowances))
        for each in self.allowances:
            if each.operator not in self.graph.names:
                raise InputError("allowances", f"unknown operator {each.operator!r}")
            for name in each.devices:
                if name not in known:
                    raise InputError(f"operator {each.operator}", f"is for an unknown device {name!r}")

    @classmethod
    def on_pool(cls, graph: OperatorGraph, pool: DevicePool, allowances: Sequence[Allowance] = ()) -> PlacementProblem:
        """On so many equal accelerators and hosts; the graph's own transfer costs."""
        return cls(graph, pool.devices(graph), OWN_COSTS, tuple(allowances))

    @classmethod
    def on_mesh(
        cls,
        graph: OperatorGraph,
        mesh: DeviceMesh,
        communication: Communication = Communication.OVERLAPPED,
        allowances: Sequence[Allowance] = (),
    ) -> PlacementProblem:
        """On a mesh's devices; `graph` has times for their kinds, in seconds, and the memory that operators hold.

        Raises InputError where a transfer would load devices, and the size of an output is not known.
        """
        return cls(graph, mesh.placement_devices, Transfers(mesh, communication), tuple(allowances))

    @cached_property
    def transfer_costs(self) -> tuple[float, ...]:
        """Per operator, what moving its output loads a device with at least."""
        return self.transfers.least(self.graph)

    @cached_property
    def has_equal_links(self) -> bool:
        """Whether every transfer costs `transfer_costs` between any two devices: then loads in a search are exact."""
        return self.transfers.most(self.graph) == self.transfer_costs

    @cached_property
    def allowed_on(self) -> tuple[frozenset[str] | None, ...]:
        """Per operator, the names of the devices that it may go to; None is all."""
        known = {each.operator: frozenset(each.devices) for each in self.allowances}
        return tuple(known.get(operator.name) for operator in self.graph.operators)

    @cached_property
    def accelerators(self) -> tuple[PlacementDevice, ...]:
        """The devices that are not hosts."""
        return tuple(device for device in self.devices if not device.is_host)

    def placement(self, assignment: Sequence[tuple[int, ...]]) -> Placement:
        """The placement with these devices per operator."""
        return Placement(self.graph, self.devices, tuple(assignment), self.transfers)

    def measure(self, placement: Placement) -> float:
        """The objective's value, in the graph's time unit."""
        found = measure_placement(placement, self.objective)
        assert found is not None, "a placer returns what its objective can be measured on"
        return found

    @property
    def waived_rules(self) -> tuple[str, ...]:
        """The referee's rules that placements need not keep."""
        return () if self.contiguous else ("contiguous",)


@lru_cache(maxsize=16)
def placement_problem(
    graph: OperatorGraph,
    devices: DeviceMesh | DevicePool,
    costs: CostOptions | None = None,
    communication: Communication = Communication.OVERLAPPED,
    allowances: tuple[Allowance, ...] = (),
    objective: str = THROUGHPUT,
    contiguous: bool = True,
) -> PlacementProblem:
    """The problem on a mesh, with costs derived there, or on equal accelerators and hosts, with the graph's own.

    Pages, command line and sweeps pose it here; `solve_placement`, `plan_of` and `solve_schedule` lead on from it.

    Raises InputError where costs cannot be derived, and on a pool for times of several kinds of accelerators.
    """
    if isinstance(devices, DevicePool):
        problem = PlacementProblem.on_pool(graph, devices, allowances)
    else:
        priced = costed(graph, devices, costs or CostOptions())
        problem = PlacementProblem.on_mesh(priced, devices, communication, allowances)
    return replace(problem, objective=objective, contiguous=contiguous)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The config of a placer that has nothing to choose."""


Solve = Callable[[PlacementProblem, Any, Control], PlacementReport]


@dataclass(frozen=True, slots=True)
class Placer:
    """One entry of the table of placers."""

    name: str
    title: str
    source: str
    solve: Solve
    config: type = NoOptions
    objectives: tuple[str, ...] = (THROUGHPUT,)
    """The objectives that it serves."""
    contiguous: tuple[bool, ...] = (True,)
    """Whether it serves problems that ask for contiguous placements, those that take any, or both."""
    judges: bool = False
    """Whether it judges the problem's placement by hand instead of making one."""

    def serves(self, problem: PlacementProblem) -> bool:
        """Whether it has answers to what the problem asks for."""
        return problem.objective in self.objectives and problem.contiguous in self.contiguous

    def check_serves(self, problem: PlacementProblem) -> None:
        """Raise InputError where the problem asks for what the placer has no answer to."""
        if problem.objective not in self.objectives:
            why = f"does not serve the objective {problem.objective}, it serves {' and '.join(self.objectives)}"
            raise InputError(f"placer {self.name}", why)
        if problem.contiguous not in self.contiguous:
            kind = "non-contiguous" if problem.contiguous else "contiguous"
            raise InputError(f"placer {self.name}", f"is for {kind} placements only")
