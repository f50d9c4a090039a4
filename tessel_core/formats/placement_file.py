"""tessel-placement, version 1."""

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
    """The rest of a placement's question, besides graph and devices; the defaults are for files that do not say."""

    communication: Communication = Communication.OVERLAPPED
    """On a mesh."""
    costs: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Options of the costs by name, on a pool those that its memory depends on; which names and values there are is not
    the file's business."""
    allowances: tuple[Allowance, ...] = ()
    replicas: Mapping[str, bool | int | float | str] | None = None
    """Options of replicated stages by name, where several devices of an operator are replicas; None where they are a
    tensor-parallel group."""


@dataclass(frozen=True, slots=True)
class PlacementFileReport(ScheduleFileReport):
    """The claims of a placement file about itself."""

    placer: str = ""
    contiguous: bool = False
    branches_apart: bool = False
    terms: PlacementTerms = PlacementTerms()


def _devices_from(value: object, where: str) -> tuple[str, ...]:
    """One name, or a list of names."""
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
    """A placement as it was kept: names of operators and devices, and the fingerprints of what they belong to."""

    graph: str
    mesh: str | None
    """None where devices are in a pool, and transfers cost what the graph says."""
    pool: DevicePool | None
    """The devices where no mesh names them; None where the graph's file says them."""
    assignment: Annotated[tuple[tuple[str, tuple[str, ...]], ...], _ASSIGNMENT]
    report: PlacementFileReport | None
    subgraphs: Annotated[tuple[tuple[str, int], ...] | None, _SUBGRAPHS] = None
    """For a latency, operators and the indices of their subgraphs on their devices; 0 for those that are not named."""
    stages: Annotated[tuple[tuple[str, int], ...] | None, _SUBGRAPHS] = None
    """Where devices have several stages, operators and their stages; 0 for those that are not named."""

    @property
    def terms(self) -> PlacementTerms:
        """The terms of the report, or the defaults."""
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
    """A placement from the bytes of a tessel-placement file; InputError names the place, `name` first."""
    return read_with(PLACEMENT.from_fields, data, name)


def bound_placement(
    kept: PlacementFile,
    file: GraphFile,
    mesh: DeviceMesh | None = None,
    in_flight: InFlight = USUAL,
    groups: DeviceGroups | None = None,
    replication: Replication | None = None,
) -> Placement:
    """The kept placement on the graph and the mesh that it belongs to; the graph has its costs on the mesh already.

    Where devices are shared in `groups`, operators are on these.  `replication` is how the replicas that its terms ask
    for are counted.

    Raises InputError where it names an operator or a device that there is not, or nothing says what the devices are.
    """
    if groups is not None:
        kept, mesh = _on_groups(kept, groups), groups.as_mesh
    devices = bound_pool(kept, file).devices(file.graph) if mesh is None else mesh.placement_devices
    index = {device.name: i for i, device in enumerate(devices)}
    found: list[tuple[int, ...]] = [()] * len(file.graph.operators)
    allowed = ((each.operator, each.devices) for each in kept.terms.allowances)
    for where, named in (("report.allowances", allowed), ("assignment", kept.assignment)):
        for operator, names in named:
            if operator not in file.graph.names:
                raise InputError(where, f"unknown operator {operator!r}")
            for name in names:
                if name not in index:
                    raise InputError(f"{where}.{operator}", f"unknown device {name!r}")
    for operator, names in kept.assignment:
        found[file.graph.operator_index(operator)] = tuple(index[name] for name in names)
    transfers = OWN_COSTS if mesh is None else Transfers(mesh, kept.terms.communication, groups)
    subgraphs = _bound_numbers("subgraphs", kept.subgraphs, file)
    stages = _bound_numbers("stages", kept.stages, file)
    return Placement(file.graph, devices, tuple(found), transfers, subgraphs, in_flight, replication, stages)


def _on_groups(kept: PlacementFile, groups: DeviceGroups) -> PlacementFile:
    """The file with a group's name where it names its devices."""
    found = []
    for operator, names in kept.assignment:
        group = groups.group_of(names)
        if group is None and names:
            why = f"is on {', '.join(names)}, which are no group of {groups.size} neighbours"
            raise InputError(f"assignment.{operator}", why)
        found.append((operator, () if group is None else (groups.names[group],)))
    return replace(kept, assignment=tuple(found))


def _bound_numbers(where: str, numbers: tuple[tuple[str, int], ...] | None, file: GraphFile) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    found = [0] * len(file.graph.operators)
    for operator, index in numbers:
        if operator not in file.graph.names:
            raise InputError(where, f"unknown operator {operator!r}")
        found[file.graph.operator_index(operator)] = index
    return tuple(found)


def bound_pool(kept: PlacementFile, file: GraphFile) -> DevicePool:
    """The devices of a placement that is on no mesh; InputError where neither it nor its graph says them."""
    pool = kept.pool or file.pool
    if pool is None:
        raise InputError("devices", "neither the placement nor its graph says what the devices are")
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
    """The text of a tessel-placement file."""
    assert report.solution is not None, "only a placement that was found is kept"
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
    """As a file says it: operator name to device name, or to a list of names for a group of devices.

    For a latency there are `subgraphs` beside it: operator name to the index on its device, 0 on hosts.  In a layout
    with several stages per device there are `stages`: operator name to stage.
    """
    found = {"assignment": _ASSIGNMENT.write(_named_devices(placement))}
    numbered = ("subgraphs", placement.subgraphs), ("stages", placement.stages)
    more = {name: _SUBGRAPHS.write(_named_numbers(placement, each)) for name, each in numbered if each is not None}
    return {**found, **more}
