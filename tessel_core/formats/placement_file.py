"""The format tessel-placement, version 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from tessel_core.errors import InputError
from tessel_core.formats.fields import as_items, as_text, read_with
from tessel_core.formats.graph_file import GraphFile
from tessel_core.formats.mesh_file import MeshFile
from tessel_core.formats.record import AMOUNT, COUNT, TEXT, Codec, Record, by_name, codec_of, options_from, or_null
from tessel_core.formats.schedule_file import ScheduleFileReport
from tessel_core.model import (
    Allowance,
    Communication,
    DeviceGroups,
    DeviceMesh,
    DevicePool,
    InFlight,
    Placement,
    Replication,
    SolveReport,
    Transfers,
)
from tessel_core.model.in_flight import USUAL
from tessel_core.model.transfers import OWN_COSTS


@dataclass(frozen=True, slots=True)
class PlacementTerms:
    """Settings of a placement problem, besides the graph and the devices.

    A setting that is missing in a file has its default.
    """

    communication: Communication = Communication.OVERLAPPED
    """Mode of communication on a mesh."""
    costs: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Options of the cost model by name.

    Without a mesh, only options that affect memory. The file format does not check them.
    """
    allowances: tuple[Allowance, ...] = ()
    replicas: Mapping[str, bool | int | float | str] | None = None
    """Options of replicated stages by name, if several devices of an operator are replicas.

    None if several devices of an operator are a tensor-parallel group."""


@dataclass(frozen=True, slots=True)
class PlacementFileReport(ScheduleFileReport):
    """Claims of a placement file about its placement.  They are not checked on reading."""

    placer: str = ""
    contiguous: bool = False
    branches_apart: bool = False
    terms: PlacementTerms = PlacementTerms()


def _devices_from(value: object, where: str) -> tuple[str, ...]:
    """Read one name, or a list of names."""
    if isinstance(value, str):
        return (as_text(value, where),)
    return tuple(_device_from(*each) for each in as_items(value, where))


def _device_from(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(where, f"must be the name of a device, got {value!r:.60}")
    return value


_ASSIGNMENT = by_name(Codec(_devices_from, lambda names: names[0] if len(names) == 1 else list(names)))
_SUBGRAPHS = or_null(by_name(COUNT)).sparse()
_TERMS = Record(
    PlacementTerms,
    communication=or_null(codec_of(Communication), Communication.OVERLAPPED),
    costs=or_null(Codec(options_from, dict), {}),
    allowances=or_null(by_name(Codec(_devices_from, list), Allowance, "operator", "devices"), ()).sparse(),
    replicas=or_null(Codec(options_from, dict)).sparse(),
)
_REPORT = Record(PlacementFileReport, inline={"terms": _TERMS}, branches_apart=codec_of(bool).sparse())


@dataclass(frozen=True, slots=True)
class PlacementFile:
    """Contents of a placement file: names of operators and devices, and fingerprints of the graph and the mesh."""

    graph: str
    """Fingerprint of the graph."""
    mesh: str | None
    """Fingerprint of the mesh; None if the devices are a pool and the graph gives the costs of transfers."""
    pool: DevicePool | None
    """Devices if there is no mesh; None if the graph's file contains them."""
    assignment: Annotated[tuple[tuple[str, tuple[str, ...]], ...], _ASSIGNMENT]
    report: PlacementFileReport | None
    subgraphs: Annotated[tuple[tuple[str, int], ...] | None, _SUBGRAPHS] = None
    """Index of each operator's subgraph on its device, in placements for latency.  Missing operators have index 0."""
    stages: Annotated[tuple[tuple[str, int], ...] | None, _SUBGRAPHS] = None
    """Stage of each operator if devices have several stages.  Missing operators are in stage 0."""

    @property
    def terms(self) -> PlacementTerms:
        """Terms of the report, or the defaults."""
        return PlacementTerms() if self.report is None else self.report.terms


_POOL = Record(DevicePool, accelerators=COUNT, cpus=COUNT, memory=or_null(AMOUNT))
PLACEMENT = Record(
    PlacementFile,
    *("graph", "mesh", "pool", "assignment", "subgraphs", "stages"),
    format="tessel-placement",
    mesh=or_null(TEXT).unless_absent(None),
    pool=or_null(_POOL).under("devices").unless_absent(None),
    report=or_null(_REPORT).unless_absent(None),
)


def read_placement(data: bytes, name: str = "placement") -> PlacementFile:
    """Read the bytes of a tessel-placement file.  Raises InputError with `name`, the place and the reason."""
    return read_with(PLACEMENT.from_fields, data, name)


def bound_placement(
    kept: PlacementFile,
    file: GraphFile,
    mesh: DeviceMesh | None = None,
    in_flight: InFlight = USUAL,
    groups: DeviceGroups | None = None,
    replication: Replication | None = None,
) -> Placement:
    """Build the placement that a file describes, from its graph and its devices.

    Parameters
    ----------
    kept : PlacementFile
        The placement file.
    file : GraphFile
        The graph, with its costs on the mesh.
    mesh : DeviceMesh
        The mesh; None for a pool.
    in_flight : InFlight
        Number of micro-batches in flight on each stage.
    groups : DeviceGroups
        Tensor-parallel groups of devices, which become the devices of the placement.
    replication : Replication
        Cost model of replicas, if the terms ask for replicated stages.

    Raises
    ------
    InputError
        If the file names an unknown operator or device, or neither file contains the devices.
    """
    if groups is not None:
        kept, mesh = _on_groups(kept, groups), groups.as_mesh
    devices = bound_pool(kept, file).devices(file.graph) if mesh is None else mesh.placement_devices
    index = {device.name: i for i, device in enumerate(devices)}
    assignment: list[tuple[int, ...]] = [()] * len(file.graph.operators)
    allowed = ((each.operator, each.devices) for each in kept.terms.allowances)
    for where, named in (("report.allowances", allowed), ("assignment", kept.assignment)):
        for operator, names in named:
            if operator not in file.graph.names:
                raise InputError(where, f"unknown operator {operator!r}")
            for name in names:
                if name not in index:
                    raise InputError(f"{where}.{operator}", f"unknown device {name!r}")
    for operator, names in kept.assignment:
        assignment[file.graph.operator_index(operator)] = tuple(index[name] for name in names)
    transfers = OWN_COSTS if mesh is None else Transfers(mesh, kept.terms.communication, groups)
    subgraphs = _bound_numbers("subgraphs", kept.subgraphs, file)
    stages = _bound_numbers("stages", kept.stages, file)
    return Placement(file.graph, devices, tuple(assignment), transfers, subgraphs, in_flight, replication, stages)


def _on_groups(kept: PlacementFile, groups: DeviceGroups) -> PlacementFile:
    """Return the file with the names of devices replaced by the name of their group."""
    assignment = []
    for operator, names in kept.assignment:
        group = groups.group_of(names)
        if group is None and names:
            why = f"is on {', '.join(names)}, which are not a group of {groups.size} neighbours"
            raise InputError(f"assignment.{operator}", why)
        assignment.append((operator, () if group is None else (groups.names[group],)))
    return replace(kept, assignment=tuple(assignment))


def _bound_numbers(where: str, numbers: tuple[tuple[str, int], ...] | None, file: GraphFile) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    of_operator = [0] * len(file.graph.operators)
    for operator, index in numbers:
        if operator not in file.graph.names:
            raise InputError(where, f"unknown operator {operator!r}")
        of_operator[file.graph.operator_index(operator)] = index
    return tuple(of_operator)


def bound_pool(kept: PlacementFile, file: GraphFile) -> DevicePool:
    """Return the devices of a placement without a mesh.  Raises InputError if neither file contains them."""
    pool = kept.pool or file.pool
    if pool is None:
        raise InputError("devices", "neither the placement nor its graph contains the devices")
    return pool


def placement_text(
    report: SolveReport[Placement],
    file: GraphFile,
    on: DevicePool | MeshFile,
    terms: PlacementTerms = PlacementTerms(),
    *,
    contiguous: bool,
    branches_apart: bool = False,
) -> str:
    """Return the text of a tessel-placement file."""
    assert report.solution is not None, "a report without a placement cannot be written"
    claims = PlacementFileReport.of(
        report, placer=report.solver, contiguous=contiguous, branches_apart=branches_apart, terms=terms
    )
    mesh, pool = (on.fingerprint, None) if isinstance(on, MeshFile) else (None, on)
    named, placement = _named_devices(report.solution), report.solution
    subgraphs, stages = (_named_numbers(placement, each) for each in (placement.subgraphs, placement.stages))
    kept = PlacementFile(file.fingerprint, mesh, pool, named, claims, subgraphs, stages)
    document = PLACEMENT.write(kept)
    if kept.mesh is None:
        del document["report"]["communication"]
        if not terms.costs:
            del document["report"]["costs"]
    return json.dumps(document, ensure_ascii=False) + "\n"


def _named_devices(placement: Placement) -> tuple[tuple[str, tuple[str, ...]], ...]:
    placement = placement.on_members
    names = [device.name for device in placement.devices]
    placed = zip(placement.graph.operators, placement.assignment, strict=True)
    return tuple((operator.name, tuple(names[device] for device in on)) for operator, on in placed)


def _named_numbers(placement: Placement, numbers: tuple[int, ...] | None) -> tuple[tuple[str, int], ...] | None:
    if numbers is None:
        return None
    operators = (operator.name for operator in placement.graph.operators)
    return tuple(zip(operators, numbers, strict=True))


def assignment_document(placement: Placement) -> dict[str, Any]:
    """Return the placement as a JSON object, as it is written to a file.

    It maps the name of an operator to the name of its device, or to a list of names if it has several.

    For a latency, `subgraphs` maps the name of an operator to the index of its subgraph on its device (0 on hosts). For
    layouts with several stages per device, `stages` maps the name of an operator to its stage.
    """
    assignment = {"assignment": _ASSIGNMENT.write(_named_devices(placement))}
    numbered = ("subgraphs", placement.subgraphs), ("stages", placement.stages)
    more = {name: _SUBGRAPHS.write(_named_numbers(placement, each)) for name, each in numbered if each is not None}
    return {**assignment, **more}
