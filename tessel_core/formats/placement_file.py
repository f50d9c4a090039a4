"""tessel-placement, version 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_number, header, read_with
from tessel_core.formats.graph_file import GraphFile
from tessel_core.formats.mesh_file import MeshFile
from tessel_core.formats.schedule_file import plain_number
from tessel_core.model import (
    Allowance,
    Communication,
    DeviceMesh,
    DevicePool,
    Placement,
    PlacementDevice,
    SolveReport,
    Status,
    Transfers,
)
from tessel_core.model.transfers import OWN_COSTS

FORMAT = "tessel-placement"

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class PlacementTerms:
    """What a placement was asked for besides its graph and devices; the defaults are for files that do not say."""

    communication: Communication = Communication.OVERLAPPED
    """On a mesh."""
    costs: Mapping[str, str | float] = field(default_factory=dict)
    """Options of the costs on a mesh by name; which names and values there are is not the file's business."""
    allowances: tuple[Allowance, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementFileReport:
    """What a placement file claims about itself."""

    status: Status
    objective_name: str
    objective: float | None
    bound: float | None
    wall_s: float
    placer: str
    contiguous: bool
    terms: PlacementTerms = PlacementTerms()


@dataclass(frozen=True, slots=True)
class PlacementFile:
    """A placement as it was kept: names of operators and devices, and the fingerprints of what they belong to."""

    graph: str
    mesh: str | None
    """None where devices are in a pool, and transfers cost what the graph says."""
    pool: DevicePool | None
    """The devices where no mesh names them; None where the graph's file says them."""
    assignment: tuple[tuple[str, tuple[str, ...]], ...]
    report: PlacementFileReport | None
    subgraphs: tuple[tuple[str, int], ...] | None = None
    """For a latency, operators and the indices of their subgraphs on their devices; 0 for those that are not named."""

    @property
    def terms(self) -> PlacementTerms:
        """What it was asked for."""
        return PlacementTerms() if self.report is None else self.report.terms


def read_placement(data: bytes, name: str = "placement") -> PlacementFile:
    """A placement from the bytes of a tessel-placement file; InputError names the place, `name` first."""
    return read_with(placement_from, data, name)


def placement_from(fields: Fields) -> PlacementFile:
    """A placement from a parsed document."""
    header(fields, FORMAT)
    fields.only("format", "version", "graph", "mesh", "devices", "assignment", "subgraphs", "report")
    assignment = fields.fields("assignment")
    return PlacementFile(
        fields.text("graph"),
        None if fields.is_null("mesh") else fields.text("mesh"),
        None if fields.is_null("devices") else _pool(fields.fields("devices")),
        tuple((name, _devices(assignment, name)) for name in assignment.named()),
        None if fields.is_null("report") else _report(fields.fields("report")),
        None if fields.is_null("subgraphs") else _subgraphs(fields.fields("subgraphs")),
    )


def _subgraphs(fields: Fields) -> tuple[tuple[str, int], ...]:
    return tuple((name, fields.integer(name, least=0)) for name in fields.named())


def _pool(fields: Fields) -> DevicePool:
    fields.only("accelerators", "cpus", "memory")
    return DevicePool(
        fields.integer("accelerators", least=0), fields.integer("cpus", 0, least=0), fields.amount("memory")
    )


def _devices(fields: Fields, name: str) -> tuple[str, ...]:
    """One name, or a list of names."""
    if isinstance(fields.take(name), str):
        return (fields.text(name),)
    found = []
    for each, place in fields.items(name):
        if not isinstance(each, str):
            raise InputError(place, f"must be the name of a device, got {each!r:.60}")
        found.append(each)
    return tuple(found)


def _report(fields: Fields) -> PlacementFileReport:
    fields.only(
        *("status", "objective_name", "objective", "bound", "wall_s", "placer", "contiguous"),
        *("communication", "costs", "allowances"),
    )
    return PlacementFileReport(
        _one_of(Status, fields, "status"),
        fields.text("objective_name"),
        None if fields.is_null("objective") else fields.number("objective"),
        None if fields.is_null("bound") else fields.number("bound"),
        fields.number("wall_s"),
        fields.text("placer", ""),
        fields.flag("contiguous"),
        _terms(fields),
    )


def _terms(fields: Fields) -> PlacementTerms:
    asked = PlacementTerms()
    if not fields.is_null("communication"):
        asked = replace(asked, communication=_one_of(Communication, fields, "communication"))
    if not fields.is_null("costs"):
        costs = fields.fields("costs")
        asked = replace(asked, costs={name: _option(costs.take(name), costs.place(name)) for name in costs.named()})
    if not fields.is_null("allowances"):
        allowed = fields.fields("allowances")
        each = (Allowance(operator, _devices(allowed, operator)) for operator in allowed.named())
        asked = replace(asked, allowances=tuple(each))
    return asked


def _one_of(kind: type[Word], fields: Fields, key: str) -> Word:
    found = fields.text(key)
    if found not in tuple(kind):
        raise InputError(fields.place(key), f"must be one of {', '.join(kind)}, got {found!r}")
    return kind(found)


def _option(value: object, where: str) -> str | float:
    if isinstance(value, str):
        return value
    number = as_number(value, where)
    return value if isinstance(value, int) else number


def bound_placement(kept: PlacementFile, file: GraphFile, mesh: DeviceMesh | None = None) -> Placement:
    """The kept placement on the graph and the mesh that it belongs to; the graph has its costs on the mesh already.

    Raises
    ------
    InputError
        Where it names an operator or a device that there is not, or nothing says what the devices are.
    """
    devices = _bound_devices(kept, file) if mesh is None else mesh.placement_devices
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
    transfers = OWN_COSTS if mesh is None else Transfers(mesh, kept.terms.communication)
    return Placement(file.graph, devices, tuple(found), transfers, _bound_subgraphs(kept, file))


def _bound_subgraphs(kept: PlacementFile, file: GraphFile) -> tuple[int, ...] | None:
    if kept.subgraphs is None:
        return None
    found = [0] * len(file.graph.operators)
    for operator, index in kept.subgraphs:
        if operator not in file.graph.names:
            raise InputError("subgraphs", f"unknown operator {operator!r}")
        found[file.graph.operator_index(operator)] = index
    return tuple(found)


def _bound_devices(kept: PlacementFile, file: GraphFile) -> tuple[PlacementDevice, ...]:
    pool = kept.pool or file.pool
    if pool is None:
        raise InputError("devices", "neither the placement nor its graph says what the devices are")
    return pool.devices(file.graph)


def placement_text(
    report: SolveReport[Placement],
    file: GraphFile,
    on: DevicePool | MeshFile,
    terms: PlacementTerms = PlacementTerms(),
    *,
    contiguous: bool,
) -> str:
    """The text of a tessel-placement file."""
    assert report.solution is not None, "only a placement that was found is kept"
    document = {
        "format": FORMAT,
        "version": 1,
        "graph": file.fingerprint,
        **_devices_document(on),
        "assignment": assignment_document(report.solution),
        **subgraphs_document(report.solution),
        "report": {
            "status": str(report.status),
            "objective_name": report.objective_name,
            "objective": plain_number(report.objective),
            "bound": plain_number(report.bound),
            "wall_s": round(report.wall_s, 6),
            "placer": report.solver,
            "contiguous": contiguous,
            **_terms_document(terms, on),
        },
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def _devices_document(on: DevicePool | MeshFile) -> dict[str, object]:
    if isinstance(on, MeshFile):
        return {"mesh": on.fingerprint, "devices": None}
    return {"mesh": None, "devices": {"accelerators": on.accelerators, "cpus": on.cpus, "memory": on.memory}}


def _terms_document(terms: PlacementTerms, on: DevicePool | MeshFile) -> dict[str, object]:
    """What the loads and the memory on the devices depended on, as far as it was asked for."""
    known: dict[str, object] = {}
    if isinstance(on, MeshFile):
        known = {"communication": str(terms.communication), "costs": dict(terms.costs)}
    if terms.allowances:
        known["allowances"] = {each.operator: list(each.devices) for each in terms.allowances}
    return known


def subgraphs_document(placement: Placement) -> dict[str, dict[str, int]]:
    """For a latency, operator name to the index of its subgraph on its device, 0 on hosts; else nothing."""
    if placement.subgraphs is None:
        return {}
    names = (operator.name for operator in placement.graph.operators)
    return {"subgraphs": dict(zip(names, placement.subgraphs, strict=True))}


def assignment_document(placement: Placement) -> dict[str, str | list[str]]:
    """Operator name to device name, or to a list of names for a group of devices."""
    found: dict[str, str | list[str]] = {}
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        names = [placement.devices[device].name for device in on]
        found[operator.name] = names[0] if len(names) == 1 else names
    return found
