"""The problem that placers solve: a graph and the devices that its operators may go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.reductions import ReplicaOptions, replication_on
from tessel_core.errors import InputError
from tessel_core.model import (
    LATENCY,
    THROUGHPUT,
    Allowance,
    Communication,
    DeviceGroups,
    DeviceMesh,
    DevicePool,
    InFlight,
    OperatorGraph,
    Placement,
    PlacementDevice,
    Replication,
    StageLayout,
    Transfers,
    measure_placement,
)
from tessel_core.model.checks import check_unique
from tessel_core.model.in_flight import USUAL
from tessel_core.model.transfers import OWN_COSTS
from tessel_core.placement.branches import branches_apart
from tessel_core.rules import Violation, check_allowances, check_layout, check_placement

_FOR_LAYOUTS = (THROUGHPUT, True, False)
"""The objective, whether placements are contiguous, and whether branches are apart, with several stages per device."""


@dataclass(frozen=True)
class PlacementProblem:
    """A graph and the devices that its operators may go to, for a pipeline with one stage per device or several.

    `contiguous` asks that the devices' forward operators form a chain of ideals; else any sets will do.

    Raises InputError where an allowance names an operator or a device that there is not, and for branches that are to
    be apart, or replicas, in other placements than contiguous ones for the throughput.
    """

    graph: OperatorGraph
    devices: tuple[PlacementDevice, ...]
    transfers: Transfers = OWN_COSTS
    allowances: tuple[Allowance, ...] = ()
    objective: str = THROUGHPUT
    contiguous: bool = True
    branches_apart: bool = False
    """Whether no device may have operators of two branches that run side by side."""
    by_hand: tuple[tuple[int, ...], ...] | None = None
    """Per operator its devices, as a person placed it: the placement that the placer `expert` evaluates."""
    stages_by_hand: tuple[int, ...] | None = None
    """In a layout, per operator its stage as a person chose it."""
    layout: StageLayout | None = None
    """How several stages per device lie on the accelerators, in the order of these; None for one stage per device."""
    in_flight: InFlight = USUAL
    """How many micro-batches' activations each stage holds in training."""
    replication: Replication | None = None
    """How replicas are counted where a stage may have several devices; None where it has one."""

    def __post_init__(self) -> None:
        if self.branches_apart and (self.objective, self.contiguous) != (THROUGHPUT, True):
            raise InputError("branches", f"are kept apart in contiguous placements for the {THROUGHPUT} only")
        if self.replication is not None and (self.objective, self.contiguous) != (THROUGHPUT, True):
            raise InputError("replicas", f"are for contiguous placements for the {THROUGHPUT} only")
        if self.replication is not None and self.transfers.groups is not None:
            raise InputError("replicas", "are single devices, and not tensor-parallel groups yet")
        if self.layout is not None and (self.objective, self.contiguous, self.branches_apart) != _FOR_LAYOUTS:
            why = f"are for contiguous placements for the {THROUGHPUT} that may mix branches"
            raise InputError("several stages per device", why)
        if self.layout is not None and self.replication is not None:
            raise InputError("replicas", "are for placements with one stage per device")
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
        return self.transfers.loads(self.graph, min)

    @cached_property
    def has_equal_links(self) -> bool:
        """Whether every transfer costs `transfer_costs` between any two devices: then loads in a search are exact."""
        return self.transfers.loads(self.graph, max) == self.transfer_costs

    @cached_property
    def allowed_on(self) -> tuple[frozenset[str] | None, ...]:
        """Per operator, the names of the devices that it may go to; None is all."""
        known = {each.operator: frozenset(each.devices) for each in self.allowances}
        return tuple(known.get(operator.name) for operator in self.graph.operators)

    @cached_property
    def accelerators(self) -> tuple[PlacementDevice, ...]:
        """The devices that are not hosts."""
        return tuple(device for device in self.devices if not device.is_host)

    @property
    def held(self) -> InFlight:
        """How many micro-batches' activations each stage holds; one where the objective is the time of one sample."""
        return InFlight(self.in_flight.included) if self.objective == LATENCY else self.in_flight

    def for_micro_batches(self, count: int) -> PlacementProblem:
        """The same problem for so many micro-batches a step."""
        return replace(self, in_flight=replace(self.in_flight, micro_batches=count))

    def placement(self, assignment: Sequence[tuple[int, ...]], stages: Sequence[int] | None = None) -> Placement:
        """The placement with these devices per operator, and in a layout these stages."""
        return Placement(
            self.graph,
            self.devices,
            tuple(assignment),
            self.transfers,
            in_flight=self.in_flight,
            replication=self.replication,
            stages=None if stages is None else tuple(stages),
        )

    def measure(self, placement: Placement) -> float:
        """The objective's value, in the graph's time unit."""
        found = measure_placement(placement, self.objective)
        assert found is not None, "a placer returns what its objective can be measured on"
        return found

    def violations(self, placement: Placement) -> list[Violation]:
        """The rules of the problem that a placement breaks."""
        apart = branches_apart(placement) if self.branches_apart else ()
        broken = check_placement(placement, without=self.waived_rules)
        stages = () if self.layout is None else check_layout(placement, self.layout)
        return [*broken, *check_allowances(placement, self.allowances), *apart, *stages]

    @property
    def replicates(self) -> bool:
        """Whether a stage may have several devices."""
        return self.replication is not None

    @property
    def waived_rules(self) -> tuple[str, ...]:
        """The referee's rules that placements need not keep."""
        return () if self.contiguous else ("contiguous",)


def shared_graph(graph: OperatorGraph, mesh: DeviceMesh, tensor: int) -> tuple[OperatorGraph, DeviceGroups | None]:
    """What one device of a tensor-parallel group does, and the groups; the graph itself and None where none share.

    Raises InputError as `on_groups`.
    """
    if tensor == 1:
        return graph, None
    from tessel_core.placement.tensor import on_groups  # late: it builds networks

    return on_groups(graph, mesh, tensor)


@lru_cache(maxsize=16)
def placement_problem(
    graph: OperatorGraph,
    devices: DeviceMesh | DevicePool,
    costs: CostOptions | None = None,
    communication: Communication = Communication.OVERLAPPED,
    allowances: tuple[Allowance, ...] = (),
    objective: str = THROUGHPUT,
    contiguous: bool = True,
    branches_apart: bool = False,
    replicas: ReplicaOptions | None = None,
    layout: StageLayout | None = None,
) -> PlacementProblem:
    """The problem on a mesh, with costs derived there, or on equal accelerators and hosts, with the graph's own.

    With `replicas` a stage may have several devices.  Pages, command line and sweeps pose it here; `solve_placement`
    and `plan_of` lead on from it to `solve_schedule`.

    Raises InputError where costs cannot be derived, and on a pool for times of several kinds of accelerators.
    """
    costs = costs or CostOptions()
    if isinstance(devices, DevicePool):
        problem = PlacementProblem.on_pool(graph, devices, allowances)
        problem = problem.for_micro_batches(costs.micro_batches)
    else:
        graph, on = shared_graph(graph, devices, costs.tensor)
        mesh = devices if on is None else on.as_mesh
        problem = PlacementProblem.on_mesh(costed(graph, mesh, costs), mesh, communication, allowances)
        transfers = replace(problem.transfers, groups=on)
        problem = replace(problem, in_flight=costs.held, transfers=transfers)
    unit = graph.time_unit
    return replace(
        problem,
        objective=objective,
        contiguous=contiguous,
        branches_apart=branches_apart,
        replication=None if replicas is None else replication_on(devices, replicas, communication, unit),
        layout=layout,
    )
