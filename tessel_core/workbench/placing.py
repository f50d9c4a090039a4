"""Graph, devices, placement question and placement of one user, as one immutable value.

Operators and devices are indices. Pins use names instead, because pins are kept when graph or devices change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any

from tessel_core.costs.costed import CostOptions
from tessel_core.costs.meshes import find_mesh
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.editing.placement import Movable
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.formats.fields import Fields, as_integer, as_items
from tessel_core.formats.record import (
    COUNT,
    TEXT,
    Codec,
    Record,
    by_name,
    codec_of,
    list_of,
    named,
    one_of,
    options_by,
    options_of_kind,
    or_null,
)
from tessel_core.model import (
    LATENCY,
    OBJECTIVES,
    THROUGHPUT,
    Allowance,
    Communication,
    DeviceGroups,
    DeviceMesh,
    DevicePool,
    OperatorGraph,
    Placement,
    PlacementDevice,
    PlacementReport,
    StageLayout,
)
from tessel_core.model.layout import MAX_STAGES_PER_DEVICE, stages_after_move
from tessel_core.options import search_options, with_config
from tessel_core.placement import PLACERS, PlacementProblem, PlacementQuestion, find_placer
from tessel_core.placement.problem import placement_problem, shared_graph
from tessel_core.workbench.outcome import PlacerAnswer, outcome_of

FIRST_MESH = "h200-8"
_UNCHANGED = f"preset {FIRST_MESH} (unchanged)", f"preset {FIRST_MESH}, at first"
"""Sources of a mesh that the user has not chosen. Older workspace files have the second spelling."""
ALL_OBJECTIVES = (*OBJECTIVES, LATENCY)
FIRST_PLACER = next(iter(PLACERS))
FOR_REPLICAS = "need a contiguous placement for throughput with one stage per device"


@lru_cache(maxsize=1)
def first_mesh() -> MeshFile:
    """Return the mesh of a new workspace."""
    return MeshFile.of(find_mesh(FIRST_MESH))


def _assignment_from(value: object, where: str) -> tuple[tuple[int, ...], ...] | None:
    """Read the devices of each operator.

    A file has one index per operator, or a list if an operator has several devices or none.
    """
    if value is None:
        return None
    lists = ((each if isinstance(each, list) else [each], at) for each, at in as_items(value, where))
    return tuple(tuple(as_integer(*each, least=0) for each in as_items(on, at)) for on, at in lists)


def _assignment_document(assignment: tuple[tuple[int, ...], ...] | None) -> object:
    if assignment is None:
        return None
    return [on[0] if len(on) == 1 else list(on) for on in assignment]


def _sizes_from(value: object, where: str) -> Mapping[str, int]:
    fields = Fields(value, where)
    return {name: fields.integer(name, least=1) for name in fields.named()}


_SIZES = Codec(_sizes_from, dict)
_PINS = by_name(list_of(TEXT), Allowance, "operator", "devices")
_ASSIGNMENT = Codec(_assignment_from, _assignment_document)
_SUBGRAPHS = or_null(list_of(COUNT))
_REPLICAS = or_null(Codec(options_of_kind(ReplicaOptions).read, search_options)).sparse()
_LAYOUT = or_null(Codec(Record(StageLayout).read, Record(StageLayout).write)).sparse()
_CONFIGS = options_by(lambda placer: find_placer(placer).config, key="options")


@dataclass(frozen=True)
class Placing:
    """A graph, devices, a placement question, and the device of each operator.

    Annotations of fields define how a workspace file stores them. Graph and mesh are stored as separate files.
    """

    graph: GraphFile | None = None
    graph_source: str = ""
    """Origin of the graph in a few words: a sample, a file or a builder."""
    graph_sample: str = ""
    sizes: Annotated[Mapping[str, int], _SIZES] = field(default_factory=lambda: MappingProxyType({}))
    """Latest values of the symbolic sizes of ONNX models, by name."""
    mesh: MeshFile = field(default_factory=first_mesh)
    mesh_source: str = _UNCHANGED[0]
    pool: DevicePool = field(default_factory=lambda: DevicePool(4))
    on_mesh: bool = True
    """Whether the devices are those of the mesh. If not, they form a pool, and the graph itself gives the times."""
    objective: Annotated[str, one_of(ALL_OBJECTIVES)] = THROUGHPUT
    contiguous: bool = True
    branches_apart: Annotated[bool, codec_of(bool).sparse()] = False
    replicas: Annotated[ReplicaOptions | None, _REPLICAS] = None
    """Options of replicated stages. None: each stage has one device."""
    layout: Annotated[StageLayout | None, _LAYOUT] = None
    """Layout of several stages per device. None: one stage per device."""
    placer: Annotated[str, named(find_placer)] = FIRST_PLACER
    configs: Annotated[Mapping[str, Any], _CONFIGS] = field(default_factory=lambda: MappingProxyType({}))
    """Options that the user has changed, by placer."""
    costs: Annotated[CostOptions, options_of_kind(CostOptions)] = field(default_factory=CostOptions)
    communication: Communication = Communication.OVERLAPPED
    pins: Annotated[tuple[Allowance, ...], _PINS] = ()
    assignment: Annotated[tuple[tuple[int, ...], ...] | None, _ASSIGNMENT] = None
    subgraphs: Annotated[tuple[int, ...] | None, _SUBGRAPHS] = None
    """Subgraph of each operator on its device, for the objective latency."""
    stages: Annotated[tuple[int, ...] | None, _SUBGRAPHS.sparse()] = None
    """Stage of each operator, in a layout with several stages per device."""
    by_hand: bool = False
    """Whether the user has moved operators since a placer placed them."""
    outcome: PlacerAnswer | None = None
    """Latest answer of a placer to this problem. Its bound still holds after the user moves operators by hand."""

    @property
    def config(self) -> Any:
        """Options of the chosen placer."""
        return self.configs.get(self.placer) or find_placer(self.placer).config()

    @property
    def devices(self) -> tuple[PlacementDevice, ...]:
        """Devices, or groups of devices. Raises InputError if the pool or the groups do not suit graph and mesh."""
        if self.tensor > 1:
            return DeviceGroups(self.mesh.mesh, self.tensor).placement_devices
        if self.on_mesh or self.graph is None:
            return self.mesh.mesh.placement_devices
        return self.pool.devices(self.graph.graph)

    @property
    def tensor(self) -> int:
        """Number of devices per tensor-parallel group. 1 on a pool."""
        return self.costs.tensor if self.on_mesh else 1

    @property
    def problem(self) -> PlacementProblem:
        """The placement problem. A graph must be open.

        Raises InputError if devices or costs are unknown.
        """
        assert self.graph is not None
        devices = self.mesh.mesh if self.on_mesh else self.pool
        terms = (self.costs, self.communication, self.pins, self.objective, self.contiguous, self.branches_apart)
        return placement_problem(self.graph.graph, devices, *terms, replicas=self.replicas, layout=self.layout)

    @property
    def _graph(self) -> OperatorGraph:
        """The graph to place.

        For tensor-parallel groups, its times are those of one device. Raises InputError if the groups do not suit.
        """
        assert self.graph is not None
        return shared_graph(self.graph.graph, self.mesh.mesh, self.tensor)[0]

    @property
    def question(self) -> PlacementQuestion:
        """The current placement question. Raises InputError as `problem` does."""
        return self.question_to(self.placer)

    def question_to(self, placer: str) -> PlacementQuestion:
        """Return the current question with another placer and that placer's own options."""
        config = self.configs.get(placer) or find_placer(placer).config()
        return PlacementQuestion(placer, self.problem, config)

    @property
    def placement(self) -> Placement | None:
        """The placement. None before an operator is placed. Raises InputError as `problem` does."""
        if self.assignment is None:
            return None
        found = self.problem.placement(self.assignment, self.stages if self.layout is not None else None)
        return replace(found, subgraphs=self.subgraphs) if self.objective == LATENCY else found

    @property
    def mesh_is_chosen(self) -> bool:
        """Whether the user has opened or changed a mesh."""
        return self.mesh_source not in _UNCHANGED or self.mesh != first_mesh()

    # Methods that change the graph, the devices or the question.

    def with_graph(self, file: GraphFile, source: str) -> Placing:
        """Return the placement with another graph. Operators in both graphs keep their devices."""
        found = replace(self, graph=file, graph_source=source, graph_sample="", outcome=None)
        if self.tensor > 1:
            return found._cleared
        known = file.graph.names
        found = replace(found, pins=tuple(pin for pin in self.pins if pin.operator in known))
        if self.assignment is None or self.graph is None:
            return found
        names = self.graph.graph.names
        place = dict(zip(names, self.assignment, strict=True))
        subgraph = dict(zip(names, self.subgraphs or (), strict=bool(self.subgraphs)))
        stage = dict(zip(names, self.stages or (), strict=bool(self.stages)))
        return replace(
            found,
            stages=None if self.stages is None else tuple(stage.get(name, 0) for name in known),
            assignment=tuple(place.get(name, ()) for name in known),
            subgraphs=None if self.subgraphs is None else tuple(subgraph.get(name, 0) for name in known),
        )

    def opened(self, file: GraphFile, source: str, sample: str = "") -> Placing:
        """Return the placement with an unrelated graph, so that nothing is placed.

        A published graph also sets the devices.
        """
        fresh = replace(self, graph=file, graph_source=source, graph_sample=sample, pins=(), assignment=None)
        fresh = replace(fresh, subgraphs=None, stages=None, by_hand=False, outcome=None, on_mesh=file.pool is None)
        return fresh if file.pool is None else replace(fresh, pool=file.pool)

    def sized(self, sizes: Mapping[str, int]) -> Placing:
        """Return the placement with these values of symbolic sizes added to the known values."""
        return replace(self, sizes=MappingProxyType({**self.sizes, **sizes}))

    def edited(self, graph: OperatorGraph) -> Placing:
        """Return the placement with an edited graph. Raises InputError if a published format cannot express it."""
        assert self.graph is not None
        file = GraphFile.of(graph, self.graph.pool)
        return self if file == self.graph else self.with_graph(file, self.graph_source)

    def on(self, mesh: MeshFile, source: str) -> Placing:
        """Return the placement on another mesh that the user has opened."""
        return self._redeviced(replace(self, mesh=mesh, mesh_source=source, on_mesh=True))

    def with_mesh(self, mesh: DeviceMesh) -> Placing:
        """Return the placement with an edited mesh. Renamed devices keep their operators and pins."""
        before = self.mesh.mesh
        if mesh == before:
            return self
        if self.on_mesh and self.tensor == 1 and len(mesh.devices) == len(before.devices):
            names = {one.name: other.name for one, other in zip(before.devices, mesh.devices, strict=True)}
            pins = tuple(_renamed(pin, names) for pin in self.pins)
            return replace(self, pins=pins, mesh=MeshFile.of(mesh), outcome=None)
        return self.on(MeshFile.of(mesh), self.mesh_source)

    def with_devices(self, *, on_mesh: bool, pool: DevicePool) -> Placing:
        """Return the placement on the mesh, or on a pool of accelerators and hosts."""
        return self._redeviced(replace(self, on_mesh=on_mesh, pool=pool))

    def _redeviced(self, found: Placing) -> Placing:
        """Return `found` with each operator on the device of the same name.

        An operator whose device is gone loses its placement.
        """
        try:
            before, after = self.devices, found.devices
        except InputError:
            return found._cleared
        if before == after and self.on_mesh == found.on_mesh and self.mesh == found.mesh:
            return found
        if self.tensor > 1 or found.tensor > 1:
            return found._cleared
        index = {device.name: i for i, device in enumerate(after)}
        kept = (replace(pin, devices=tuple(name for name in pin.devices if name in index)) for pin in self.pins)
        found = replace(found, pins=tuple(pin for pin in kept if pin.devices), outcome=None)
        if self.layout is not None:  # A layout covers all devices, so it cannot be kept when one is gone.
            return replace(found, assignment=None, stages=None)
        if self.assignment is None:
            return found
        names = (tuple(before[device].name for device in on) for on in self.assignment)
        return replace(found, assignment=tuple(tuple(index[name] for name in on if name in index) for on in names))

    def costing(self, costs: CostOptions, communication: Communication) -> Placing:
        """Return the placement with other cost options."""
        if (costs, communication) == (self.costs, self.communication):
            return self
        found = replace(self, costs=costs, communication=communication, outcome=None)
        return found if found.tensor == self.tensor else found._cleared

    @property
    def _cleared(self) -> Placing:
        """The same question with no operator placed or pinned."""
        return replace(self, assignment=None, subgraphs=None, stages=None, pins=(), by_hand=False, outcome=None)

    def with_micro_batches(self, count: int) -> Placing:
        """Return the placement with another number of micro-batches per step."""
        return self.costing(replace(self.costs, micro_batches=count), self.communication)

    @property
    def placers(self) -> tuple[str, ...]:
        """Names of the placers that support the current question, the one that proves most first."""
        return tuple(
            name
            for name, each in PLACERS.items()
            if self.objective in each.objectives
            and self.contiguous in each.contiguous
            and (each.keeps_branches_apart or not self.branches_apart)
            and (self.replicas is not None) in each.replicates
            and each.several_stages == (self.layout is not None)
            and not each.judges
        )

    def wanting(
        self, objective: str, *, contiguous: bool, branches_apart: bool = False, layout: StageLayout | None = None
    ) -> Placing:
        """Return the placement with another objective and kind of placement, and with a placer that supports both.

        Stages can be replicated only in contiguous placements for throughput with one stage per device.
        """
        contiguous = contiguous or objective == LATENCY
        branches_apart = branches_apart and contiguous and objective == THROUGHPUT
        layout = layout if contiguous and objective == THROUGHPUT and not branches_apart else None
        asked = (objective, contiguous, branches_apart, layout)
        if asked == (self.objective, self.contiguous, self.branches_apart, self.layout):
            return self
        found = replace(self, objective=objective, contiguous=contiguous, branches_apart=branches_apart, layout=layout)
        found = replace(found, outcome=None)
        found = found if found.can_replicate else found.replicating(None)
        if layout != self.layout:  # Stages of another layout cannot be kept.
            found = replace(found, assignment=None, stages=None, by_hand=False)
        placer = self.placer if self.placer in found.placers else found.placers[0]
        if objective == LATENCY and self.subgraphs is None and self.assignment is not None:
            found = replace(found, subgraphs=(0,) * len(self.assignment))
        return replace(found, placer=placer)

    @property
    def can_replicate(self) -> bool:
        """Whether the current question allows replicated stages."""
        return self.contiguous and self.objective == THROUGHPUT and self.layout is None

    def replicating(self, replicas: ReplicaOptions | None) -> Placing:
        """Return the placement with replicated stages, or without them if the options are None.

        Choose a placer that supports this. Without replicas, a stage stays on the first of its devices.
        """
        if replicas == self.replicas:
            return self
        found = replace(self, replicas=replicas, outcome=None)
        if replicas is None and self.assignment is not None:
            found = replace(found, assignment=tuple(on[:1] for on in self.assignment))
        return replace(found, placer=found.placer if found.placer in found.placers else found.placers[0])

    def asking(self, placer: str, config: object) -> Placing:
        """Return the placement with another placer and options."""
        return replace(self, placer=placer, configs=with_config(self.configs, placer, config))

    # Methods that change the devices of operators.

    def answered(self, report: PlacementReport) -> Placing:
        """Return the placement of a placer's report.

        If the report has no placement, every operator stays where it is.
        """
        outcome = outcome_of(report)
        if report.solution is None:
            return replace(self, outcome=outcome)
        found = report.solution
        places = replace(self, assignment=found.assignment, subgraphs=found.subgraphs, stages=found.stages)
        return replace(places, by_hand=False, outcome=outcome)

    def moved(self, operators: Iterable[str], device: str) -> Placing:
        """Return the placement after moving operators, and all operators that must share their device.

        Raises InputError if one of them is pinned to another device.
        """
        names, to = [each.name for each in self.devices], self._together(operators)
        pinned = {pin.operator: pin.devices for pin in self.pins}
        for operator in sorted(to):
            name = self._graph.operators[operator].name
            if device not in pinned.get(name, (device,)):
                raise InputError(f"operator {name}", f"is pinned to {', '.join(pinned[name])}. Unpin it first")
        at = self._stage_at(names.index(device))
        before = self.assignment or ((),) * len(self._graph.operators)
        assignment = tuple(at if i in to else on for i, on in enumerate(before))
        if assignment == self.assignment:
            return self
        placement, stages = self.placement, None
        if placement is not None:
            stages = stages_after_move(placement, to, at[0])
        elif self.layout is not None:
            stages = (0,) * len(assignment)
        return replace(self, assignment=assignment, stages=stages, by_hand=True)

    def _stage_at(self, device: int) -> tuple[int, ...]:
        """Return all devices of the stage that includes this device."""
        shared = (on for on in self.assignment or () if device in on) if self.replicas is not None else ()
        return next(iter(shared), (device,))

    @property
    def movable(self) -> Movable:
        """The placement with the rules for moves. Something must be placed. Raises InputError as `problem` does."""
        assert self.placement is not None
        return Movable(self.placement, self.pins, self.contiguous, self.branches_apart)

    def dropped(self, operators: Sequence[int], device: int) -> Placing:
        """Move operators, given by index, as `moved` does.

        Raises InputError if the new placement would break a rule.
        """
        why = self.movable.why_not(operators)[device]
        names = [self._graph.operators[i].name for i in operators]
        if why:
            raise InputError(f"operator {names[0]}" + (" and others" if len(names) > 1 else ""), why)
        return self.moved(names, self.devices[device].name)

    def pinned(self, operators: Iterable[str], device: str) -> Placing:
        """Return the placement with these operators moved and pinned to a device. More pins keep a bound valid."""
        free = self.unpinned(operators)
        names = [self._graph.operators[i].name for i in sorted(self._together(operators))]
        pins = (*free.pins, *(Allowance(name, (device,)) for name in names))
        moved = free.moved(operators, device)
        return replace(moved, pins=pins, outcome=self.outcome if _stricter(pins, self.pins) else None)

    def unpinned(self, operators: Iterable[str]) -> Placing:
        """Return the placement with these operators unpinned."""
        free = {self._graph.operators[i].name for i in self._together(operators)}
        pins = tuple(pin for pin in self.pins if pin.operator not in free)
        return self if pins == self.pins else replace(self, pins=pins, outcome=None)

    def _together(self, operators: Iterable[str]) -> frozenset[int]:
        """Return these operators and all operators that must share a device with them."""
        return frozenset(self._graph.together(map(self._graph.operator_index, operators)))


PLACING = Record(Placing, without=("graph", "mesh"))
"""Format of `Placing` in a workspace file, without graph and mesh."""


def placing_from(document: Mapping[str, object], graph: GraphFile | None, mesh: MeshFile | None) -> Placing:
    """Read a `Placing` from a document.

    Raises InputError for an invalid document, and for pins and indices that do not belong to graph and devices.
    """
    placing = PLACING.from_fields(Fields(dict(document), "placing"), graph=graph, mesh=mesh or first_mesh())
    _check(placing)
    # A file may name a placer that does not support its objective, such as one that only judges placements.
    return placing if placing.placer in placing.placers else replace(placing, placer=placing.placers[0])


def _check(placing: Placing) -> None:
    if placing.branches_apart and (placing.objective, placing.contiguous) != (THROUGHPUT, True):
        raise InputError("placing.branches_apart", "needs a contiguous placement for throughput")
    if placing.replicas is not None and not placing.can_replicate:
        raise InputError("placing.replicas", FOR_REPLICAS)
    if placing.layout is not None and placing.layout.stages_per_device > MAX_STAGES_PER_DEVICE:
        count = placing.layout.stages_per_device
        raise InputError("placing.layout", f"must have at most {MAX_STAGES_PER_DEVICE} stages per device, got {count}")
    if placing.graph is None:
        if placing.pins or any(each is not None for each in (placing.assignment, placing.subgraphs, placing.stages)):
            raise InputError("placing", "places operators, but the file has no graph")
        return
    graph = placing._graph
    count, devices = len(graph.operators), [device.name for device in placing.devices]
    for pin in placing.pins:
        unknown = next((name for name in pin.devices if name not in devices), None)
        if pin.operator not in graph.names or unknown is not None:
            what = "there is no such operator" if unknown is None else f"unknown device {unknown!r}"
            raise InputError(f"placing.pins.{pin.operator}", what)
    if (placing.assignment is not None and placing.layout is not None) != (placing.stages is not None):
        raise InputError(
            "placing.stages", "must be given for a placement with several stages per device, and only then"
        )
    numbers = ("subgraphs", placing.subgraphs), ("stages", placing.stages), ("assignment", placing.assignment)
    for name, each in numbers:
        if each is not None and len(each) != count:
            raise InputError(f"placing.{name}", f"has {len(each)} entries, the graph has {count} operators")
    for i, on in enumerate(placing.assignment or ()):
        if len(set(on)) < len(on) or any(device >= len(devices) for device in on):
            why = f"must name distinct devices from 0 to {len(devices) - 1}, got {list(on)}"
            raise InputError(f"placing.assignment[{i}]", why)


def _renamed(pin: Allowance, names: Mapping[str, str]) -> Allowance:
    return replace(pin, devices=tuple(names[each] for each in pin.devices))


def _stricter(pins: tuple[Allowance, ...], before: tuple[Allowance, ...]) -> bool:
    """Return whether every placement that satisfies `pins` also satisfies the pins `before`."""
    now = {pin.operator: set(pin.devices) for pin in pins}
    return all(pin.operator in now and now[pin.operator] <= set(pin.devices) for pin in before)
