"""Build placement problems from options, and combine placement files with their graph and mesh."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tessel_core.cli import options
from tessel_core.cli.output import as_typed, option
from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import INTERCONNECTS, MESHES, find_mesh, kind_and_count
from tessel_core.costs.reductions import ReplicaOptions, replication_on
from tessel_core.errors import InputError, nearest
from tessel_core.formats import GraphFile, MeshFile, PlacementFile
from tessel_core.formats.files import read_mesh_file
from tessel_core.formats.placement_file import bound_placement, bound_pool
from tessel_core.model import Allowance, Communication, DevicePool, InFlight, LayoutShape, Placement, StageLayout
from tessel_core.options import config_from
from tessel_core.placement import PlacementProblem
from tessel_core.placement.problem import shared_graph
from tessel_core.samples import list_meshes, load_mesh
from tessel_core.workbench.placing import Placing


@dataclass(frozen=True, slots=True)
class PlacementArguments:
    """Options of a placement problem. None for each option that the user has not given."""

    mesh: options.Mesh = None
    per_node: options.PerNode = None
    accelerators: options.Accelerators = None
    cpus: options.Cpus = None
    memory: options.Memory = None
    communication: options.Transfers = None
    dtype: options.Dtype = None
    optimizer: options.Optimizer = None
    in_flight: options.InFlight = None
    micro_batches: options.PlacedMicroBatches = None
    tensor: options.TensorGroups = None
    pin: options.Pin = None
    forbid: options.Forbid = None
    replicate: options.Replicate = False
    reduce_every: options.ReduceEvery = None
    reduction_bandwidth: options.ReductionBandwidth = None
    stages_per_device: options.StagesPerDevice = None
    layout_shape: options.Shape = None

    def posed_on(self, file: GraphFile) -> Placing:
        """Return the placement question about a graph.

        Raises InputError if options exclude each other, if a mesh, operator or device is unknown, or if costs cannot be
        derived.
        """
        if self.mesh is None and self.per_node is not None:
            raise InputError("--per-node", "is for a --mesh named KIND-COUNT")
        placing = self._on_pool(file) if self.mesh is None else self._on_mesh(file, self.mesh)
        placing = replace(placing, replicas=self._replicas(), layout=self._layout)
        return replace(placing, pins=_allowances(self.pin or (), self.forbid or (), placing.problem, file.aliases))

    def _replicas(self) -> ReplicaOptions | None:
        """Return the options of replicated stages. None without `--replicate`."""
        if not self.replicate:
            for name in self._given("reduce_every", "reduction_bandwidth"):
                raise InputError(option(name), "is an option of replicated stages, so give --replicate too")
            return None
        if self.mesh is not None and self.reduction_bandwidth is not None:
            raise InputError(
                "--reduction-bandwidth", "is for identical accelerators; with --mesh, the links of the mesh decide"
            )
        given = self._given("reduce_every", "reduction_bandwidth")
        with as_typed(lambda name: option({"bandwidth": "reduction_bandwidth"}.get(name, name))):
            return config_from(
                ReplicaOptions, {name.removeprefix("reduction_"): value for name, value in given.items()}
            )

    @property
    def _layout(self) -> StageLayout | None:
        """Return the layout with several stages per device. None for one stage per device."""
        if self.stages_per_device in (None, 1):
            if self.layout_shape is not None:
                raise InputError("--layout-shape", "is for --stages-per-device 2 or more")
            return None
        return StageLayout(self.stages_per_device or 1, self.layout_shape or LayoutShape.LOOP)

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _on_pool(self, file: GraphFile) -> Placing:
        """Return the question for the devices of the options. Without such options, use those of the graph file."""
        if self.tensor is not None:
            raise InputError("--tensor", "groups devices of a mesh, so give --mesh too")
        for name in self._given("communication", "dtype", "optimizer", "in_flight"):
            raise InputError(option(name), "is an option of costs on a mesh, so give --mesh too")
        if not file.graph.kinds:  # This happens for an ONNX file, because its times depend on the mesh.
            first = file.graph.operators[0].name
            raise InputError(
                f"operator {first}",
                "has no time, nor has any other operator; give --mesh, from which times are derived",
            )
        devices = self._given("accelerators", "cpus", "memory")
        if file.pool is None and devices.keys() <= {"memory"}:
            why = "is missing: the graph has no devices of its own, so give --accelerators or --mesh"
            raise InputError("--accelerators", why)
        known = {"accelerators": 0, "cpus": 0, "memory": None} if file.pool is None else asdict(file.pool)
        return Placing(file, on_mesh=False, pool=DevicePool(**{**known, **devices}), costs=self._costs)

    @property
    def _costs(self) -> CostOptions:
        with as_typed(option):
            return config_from(CostOptions, self._given("dtype", "optimizer", "in_flight", "micro_batches", "tensor"))

    def _on_mesh(self, file: GraphFile, mesh: str) -> Placing:
        for name in self._given("accelerators", "cpus", "memory"):
            raise InputError("--mesh", f"already determines the devices, so leave out --{name}")
        if file.pool is not None:
            why = "needs a tessel-graph: a published graph has times in ms and no bytes on its edges"
            raise InputError("--mesh", why)
        found = find_mesh_file(mesh, self.per_node)
        communication = self.communication or Communication.OVERLAPPED
        return Placing(file, mesh=found, costs=self._costs, communication=communication)


def find_mesh_file(name: str, per_node: int | None = None) -> MeshFile:
    """Return the mesh of a file, or the sample, preset or KIND-COUNT of that name.

    Raises InputError for an unknown name, with the nearest known names. Raises it also if `per_node` is given for a
    mesh that is no KIND-COUNT.
    """
    path, names = Path(name), [sample.name for sample in list_meshes()]
    named = kind_and_count(name)[0] is not None and not os.path.isfile(name)
    if per_node is not None and not named:
        raise InputError("--per-node", f"is for meshes named KIND-COUNT, and {name} has nodes of its own")
    if os.path.isfile(name) or path.suffix == ".json":  # Path.is_file raises if the name is too long for a file
        return read_mesh_file(path)
    if name in names and per_node is None:
        return MeshFile.of(load_mesh(name))
    if named or name in MESHES:
        return MeshFile.of(find_mesh(name, per_node))
    hint = nearest(name, dict.fromkeys((*names, *MESHES)), f"presets are {', '.join(MESHES)}")
    why = f"is neither a file nor the name of a mesh, {hint}; or KIND-COUNT, such as h100-512, of"
    raise InputError("--mesh", f"{name!r} {why} {', '.join(INTERCONNECTS)}")


Aliases = Sequence[tuple[str, str]]
"""Other names of operators in a graph's file, as pairs (other name, name)."""


def _allowances(
    pin: Sequence[str], forbid: Sequence[str], problem: PlacementProblem, aliases: Aliases
) -> tuple[Allowance, ...]:
    """Return the allowed devices of each operator that `--pin` or `--forbid` names."""
    devices, left = [device.name for device in problem.devices], dict[str, list[str]]()
    for operator, names in (_named("--pin", each, problem, aliases) for each in pin):
        if operator in left:
            raise InputError("--pin", f"operator {operator} is pinned twice: name all of its devices at once")
        left[operator] = names
    for operator, names in (_named("--forbid", each, problem, aliases) for each in forbid):
        left[operator] = [name for name in left.get(operator, devices) if name not in names]
        if not left[operator]:
            raise InputError("--forbid", f"leaves no device for operator {operator}")
    return tuple(Allowance(operator, tuple(names)) for operator, names in left.items())


def _named(flag: str, text: str, problem: PlacementProblem, aliases: Aliases) -> tuple[str, list[str]]:
    """Parse OPERATOR=DEVICE[,DEVICE] into operator and devices. The name of an operator may contain "="."""
    operator, _, listed = text.rpartition("=")
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not operator or not names:
        raise InputError(flag, f"must be OPERATOR=DEVICE[,DEVICE], got {text!r}")
    operator = _operator(flag, operator, problem, aliases)
    for name in names:
        if all(name != device.name for device in problem.devices):
            raise InputError(flag, f"unknown device {name!r} for operator {operator}")
    return operator, names


def _operator(flag: str, name: str, problem: PlacementProblem, aliases: Aliases) -> str:
    """Return the operator of that name, or the only operator with that other name."""
    if name in problem.graph.names:
        return name
    found = [operator for alias, operator in aliases if alias == name]
    if len(found) > 1:
        raise InputError(flag, f"several operators are called {name!r}; use an id: {', '.join(found[:5])}")
    if not found:
        raise InputError(flag, f"unknown operator {name!r}")
    return found[0]


def _known_meshes() -> Iterator[MeshFile]:
    """Yield the meshes of samples and presets."""
    yield from (MeshFile.of(load_mesh(sample.name)) for sample in list_meshes())
    yield from (MeshFile.of(find_mesh(name)) for name in MESHES)


def bind_placement(placement: PlacementFile, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]) -> Placement:
    """Combine a placement file with its graph and mesh, which are found by fingerprint.

    Use the costs under which the placement was made. Raises InputError if graph or mesh is missing, or the placement
    does not fit them.
    """
    file = next((each for each in graphs if each.fingerprint == placement.graph), None)
    if file is None:
        raise InputError("graph", f"with fingerprint {placement.graph:.16} is not among the files")
    costs, replicas = config_from(CostOptions, placement.terms.costs), placement.terms.replicas
    asked = None if replicas is None else config_from(ReplicaOptions, replicas)
    if placement.mesh is None:
        pool, in_flight = bound_pool(placement, file), InFlight(micro_batches=costs.micro_batches)
        counted = None if asked is None else replication_on(pool, asked, time_unit=file.graph.time_unit)
        return bound_placement(placement, file, in_flight=in_flight, replication=counted)
    mesh = next((each.mesh for each in (*meshes, *_known_meshes()) if each.fingerprint == placement.mesh), None)
    if mesh is None:
        raise InputError("mesh", f"with fingerprint {placement.mesh:.16} is not among the files, samples and presets")
    graph, groups = shared_graph(file.graph, mesh, costs.tensor)
    priced = costed(graph, mesh if groups is None else groups.as_mesh, costs)
    counted = None if asked is None else replication_on(mesh, asked, placement.terms.communication)
    return bound_placement(placement, replace(file, graph=priced), mesh, costs.held, groups, counted)
