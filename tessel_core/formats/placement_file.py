"""tessel-placement, version 1."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, header, read_with
from tessel_core.formats.graph_file import GraphFile
from tessel_core.formats.schedule_file import plain_number
from tessel_core.model import DevicePool, Placement, SolveReport, Status

FORMAT = "tessel-placement"


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


@dataclass(frozen=True, slots=True)
class PlacementFile:
    """A placement as it was kept: names of operators and devices, and the fingerprint of the graph they belong to."""

    graph: str
    mesh: str | None
    pool: DevicePool | None
    """The devices where no mesh names them; None where the graph's file says them."""
    assignment: tuple[tuple[str, tuple[str, ...]], ...]
    report: PlacementFileReport | None


def read_placement(data: bytes, name: str = "placement") -> PlacementFile:
    """A placement from the bytes of a tessel-placement file; InputError names the place, `name` first."""
    return read_with(placement_from, data, name)


def placement_from(fields: Fields) -> PlacementFile:
    """A placement from a parsed document."""
    header(fields, FORMAT)
    fields.only("format", "version", "graph", "mesh", "devices", "assignment", "report")
    assignment = fields.fields("assignment")
    return PlacementFile(
        fields.text("graph"),
        None if fields.is_null("mesh") else fields.text("mesh"),
        None if fields.is_null("devices") else _pool(fields.fields("devices")),
        tuple((name, _devices(assignment, name, value)) for name, value in assignment.entries()),
        None if fields.is_null("report") else _report(fields.fields("report")),
    )


def _pool(fields: Fields) -> DevicePool:
    fields.only("accelerators", "cpus", "memory")
    return DevicePool(
        fields.integer("accelerators", least=0), fields.integer("cpus", 0, least=0), fields.amount("memory")
    )


def _devices(fields: Fields, name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (fields.text(name),)
    found = []
    for each, place in fields.items(name):
        if not isinstance(each, str):
            raise InputError(place, f"must be the name of a device, got {each!r:.60}")
        found.append(each)
    return tuple(found)


def _report(fields: Fields) -> PlacementFileReport:
    fields.only("status", "objective_name", "objective", "bound", "wall_s", "placer", "contiguous")
    status = fields.text("status")
    if status not in tuple(Status):
        raise InputError(fields.place("status"), f"must be one of {', '.join(Status)}, got {status!r}")
    return PlacementFileReport(
        Status(status),
        fields.text("objective_name"),
        None if fields.is_null("objective") else fields.number("objective"),
        None if fields.is_null("bound") else fields.number("bound"),
        fields.number("wall_s"),
        fields.text("placer", ""),
        fields.flag("contiguous"),
    )


def bound_placement(kept: PlacementFile, file: GraphFile) -> Placement:
    """The kept placement on the graph that it belongs to.

    Raises
    ------
    InputError
        Where it names an operator or a device that there is not, or nothing says what the devices are.
    """
    pool = kept.pool or file.pool
    if pool is None:
        raise InputError("devices", "neither the placement nor its graph says what the devices are")
    devices = pool.devices(file.graph)
    index = {device.name: i for i, device in enumerate(devices)}
    found: list[tuple[int, ...]] = [()] * len(file.graph.operators)
    for operator, names in kept.assignment:
        if operator not in file.graph.names:
            raise InputError("assignment", f"unknown operator {operator!r}")
        for name in names:
            if name not in index:
                raise InputError(f"assignment.{operator}", f"unknown device {name!r}")
        found[file.graph.operator_index(operator)] = tuple(index[name] for name in names)
    return Placement(file.graph, devices, tuple(found))


def placement_text(report: SolveReport[Placement], file: GraphFile, pool: DevicePool, *, contiguous: bool) -> str:
    """The text of a tessel-placement file."""
    assert report.solution is not None, "only a placement that was found is kept"
    document = {
        "format": FORMAT,
        "version": 1,
        "graph": file.fingerprint,
        "mesh": None,
        "devices": {"accelerators": pool.accelerators, "cpus": pool.cpus, "memory": pool.memory},
        "assignment": assignment_document(report.solution),
        "report": {
            "status": str(report.status),
            "objective_name": report.objective_name,
            "objective": plain_number(report.objective),
            "bound": plain_number(report.bound),
            "wall_s": round(report.wall_s, 6),
            "placer": report.solver,
            "contiguous": contiguous,
        },
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def assignment_document(placement: Placement) -> dict[str, str | list[str]]:
    """Operator name to device name, or to a list of names for a group of devices."""
    found: dict[str, str | list[str]] = {}
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        names = [placement.devices[device].name for device in on]
        found[operator.name] = names[0] if len(names) == 1 else names
    return found
