"""The problem that placers solve: which device runs each operator of a graph."""

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
"""Values of `objective`, `contiguous` and `branches_apart` that a problem with a `layout` must have."""


@dataclass(frozen=True)
class PlacementProblem:
    """A graph, the devices for its operators, and the rules that a placement must keep.

    If `contiguous` is true, the devices must form a chain: an order in which no tensor of the forward pass goes to an
    earlier device. Otherwise, a device may have any set of operators.

    Raises InputError if an allowance names an unknown operator or device, or if the combination of fields is not
    supported.
    """

    graph: OperatorGraph
    devices: tuple[PlacementDevice, ...]
    transfers: Transfers = OWN_COSTS
    allowances: tuple[Allowance, ...] = ()
    objective: str = THROUGHPUT
    contiguous: bool = True
    branches_apart: bool = False
    """Whether operators of two parallel branches must be on different devices."""
    by_hand: tuple[tuple[int, ...], ...] | None = None
    """Device indices of each operator in a given placement, which the placer `expert` evaluates."""
    stages_by_hand: tuple[int, ...] | None = None
    """Stage of each operator in the given placement, if `layout` asks for several stages per device.

    Stage 0 is the first.
    """
    layout: StageLayout | None = None
    """Number and order of the stages on the accelerators, if each has several stages.

    None means one stage per device.
    """
    in_flight: InFlight = USUAL
    """Rule for the number of micro-batches whose activations each stage holds in training."""
    replication: Replication | None = None
    """Cost of replicas (devices that share a stage). None if each stage has one device."""

    def __post_init__(self) -> None:
        if self.branches_apart and (self.objective, self.contiguous) != (THROUGHPUT, True):
            raise InputError("branches", f"can be kept apart only in contiguous placements for the {THROUGHPUT}")
        if self.replication is not None and (self.objective, self.contiguous) != (THROUGHPUT, True):
            raise InputError("replicas", f"need a contiguous placement for the {THROUGHPUT}")
        if self.replication is not None and self.transfers.groups is not None:
            raise InputError("replicas", "do not support tensor-parallel groups yet")
        if self.layout is not None and (self.objective, self.contiguous, self.branches_apart) != _FOR_LAYOUTS:
            why = f"need a contiguous placement for the {THROUGHPUT} that does not keep branches apart"
            raise InputError("several stages per device", why)
        if self.layout is not None and self.replication is not None:
            raise InputError("replicas", "need a placement with one stage per device")
        known = {device.name for device in self.devices}
        check_unique("allowances", (each.operator for each in self.allowances))
        for each in self.allowances:
            if each.operator not in self.graph.names:
                raise InputError("allowances", f"unknown operator {each.operator!r}")
            for name in each.devices:
                if name not in known:
                    raise InputError(f"operator {each.operator}", f"is allowed on an unknown device {name!r}")

    @classmethod
    def on_pool(cls, graph: OperatorGraph, pool: DevicePool, allowances: Sequence[Allowance] = ()) -> PlacementProblem:
        """Build the problem on equal accelerators and hosts, with the transfer costs of the graph."""
        return cls(graph, pool.devices(graph), OWN_COSTS, tuple(allowances))

    @classmethod
    def on_mesh(
        cls,
        graph: OperatorGraph,
        mesh: DeviceMesh,
        communication: Communication = Communication.OVERLAPPED,
        allowances: Sequence[Allowance] = (),
    ) -> PlacementProblem:
        """Build the problem on a mesh.

        `graph` has the memory of operators, and their times in seconds on the mesh's devices.

        Raises InputError if transfers load devices and the size of an output is unknown.
        """
        return cls(graph, mesh.placement_devices, Transfers(mesh, communication), tuple(allowances))

    @cached_property
    def transfer_costs(self) -> tuple[float, ...]:
        """Time for which moving each operator's output over the fastest link occupies a device."""
        return self.transfers.loads(self.graph, min)

    @cached_property
    def has_equal_links(self) -> bool:
        """Whether each transfer costs the same on all links, so that loads in a search are exact."""
        return self.transfers.loads(self.graph, max) == self.transfer_costs

    @cached_property
    def allowed_on(self) -> tuple[frozenset[str] | None, ...]:
        """Names of the devices on which each operator is allowed. None means that all are allowed."""
        known = {each.operator: frozenset(each.devices) for each in self.allowances}
        return tuple(known.get(operator.name) for operator in self.graph.operators)

    @cached_property
    def accelerators(self) -> tuple[PlacementDevice, ...]:
        """Devices that are not hosts."""
        return tuple(device for device in self.devices if not device.is_host)

    @property
    def held(self) -> InFlight:
        """Rule for the number of micro-batches that a stage holds. For the latency, it is `in_flight.included`."""
        return InFlight(self.in_flight.included) if self.objective == LATENCY else self.in_flight

    def for_micro_batches(self, count: int) -> PlacementProblem:
        """Return the problem with another number of micro-batches per step."""
        return replace(self, in_flight=replace(self.in_flight, micro_batches=count))

    def placement(self, assignment: Sequence[tuple[int, ...]], stages: Sequence[int] | None = None) -> Placement:
        """Return the placement with these devices of each operator and, in a layout, these stages."""
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
        """Return the placement's value of the objective, in the graph's time unit."""
        value = measure_placement(placement, self.objective)
        assert value is not None, "the objective of a problem fits its placements"
        return value

    def violations(self, placement: Placement) -> list[Violation]:
        """Return the rules of the problem that the placement breaks."""
        apart = branches_apart(placement) if self.branches_apart else ()
        broken = check_placement(placement, without=self.waived_rules)
        stages = () if self.layout is None else check_layout(placement, self.layout)
        return [*broken, *check_allowances(placement, self.allowances), *apart, *stages]

    @property
    def replicates(self) -> bool:
        """Whether several devices may share a stage, as replicas."""
        return self.replication is not None

    @property
    def waived_rules(self) -> tuple[str, ...]:
        """Names of the rules in `tessel_core.rules` that placements of this problem need not keep."""
        return () if self.contiguous else ("contiguous",)


def shared_graph(graph: OperatorGraph, mesh: DeviceMesh, tensor: int) -> tuple[OperatorGraph, DeviceGroups | None]:
    """Return the graph that one device of a tensor-parallel group runs, and the groups of `tensor` devices.

    If `tensor` is 1, return `graph` and None. Raises InputError in the cases of `on_groups`.
    """
    if tensor == 1:
        return graph, None
    from tessel_core.placement.tensor import on_groups  # imported here, because it imports all networks

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
    """Build the problem on a mesh or on a pool of devices.

    On a mesh, costs are derived for its devices. On a pool of equal devices, the costs of the graph are used. With
    `replicas`, several devices may share a stage. Pages, command line and sweeps all build the problem with this
    function.

    Raises InputError if costs cannot be derived, or if a graph with times for several kinds of accelerators is used on
    a pool.
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
