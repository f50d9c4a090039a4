"""tessel-mesh, version 1."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_text, document_text, fingerprint, header, read_with
from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate
from tessel_core.model.checks import check_amount, check_rate

FORMAT = "tessel-mesh"


@dataclass(frozen=True, slots=True)
class MeshFile:
    """A mesh as it is kept."""

    mesh: DeviceMesh
    fingerprint: str
    """SHA-256 of the mesh's canonical JSON, by which placements name it."""

    @classmethod
    def of(cls, mesh: DeviceMesh) -> MeshFile:
        """The mesh with its fingerprint."""
        return cls(mesh, fingerprint(mesh_document(mesh)))


def read_mesh(data: bytes, name: str = "mesh") -> MeshFile:
    """A mesh from the bytes of a tessel-mesh file; InputError with the place and the reason, `name` first."""
    return read_with(mesh_from, data, name)


def mesh_from(fields: Fields) -> MeshFile:
    """A mesh from a parsed document."""
    header(fields, FORMAT)
    fields.only("format", "version", "name", "devices", "links", "same_node_link", "default_link", "node_uplink")
    mesh = DeviceMesh(
        fields.text("name", "mesh"),
        tuple(_device(each) for each in fields.objects("devices")),
        () if fields.is_null("links") else tuple(_connection(each) for each in fields.objects("links")),
        _shared_link(fields, "same_node_link"),
        _shared_link(fields, "default_link"),
        None if fields.is_null("node_uplink") else _uplink(fields.fields("node_uplink")),
    )
    return MeshFile.of(mesh)


def _device(fields: Fields) -> Device:
    fields.only("name", "kind", "node", "memory_capacity", "flops", "memory_bandwidth")
    return Device(
        fields.text("name"),
        fields.text("kind"),
        fields.integer("node", 0, least=0),
        fields.count("memory_capacity"),
        () if fields.is_null("flops") else _peak_rates(fields.fields("flops")),
        None if fields.is_null("memory_bandwidth") else _rate(fields, "memory_bandwidth"),
    )


def _peak_rates(fields: Fields) -> tuple[PeakRate, ...]:
    return tuple(PeakRate(dtype, _rate(fields, dtype)) for dtype in fields.named())


def _connection(fields: Fields) -> Connection:
    fields.only("between", "bandwidth", "latency")
    ends = [as_text(value, place) for value, place in fields.items("between")]
    if len(ends) != 2:
        raise InputError(fields.place("between"), f"must name two devices, got {len(ends)}")
    return Connection((ends[0], ends[1]), _link(fields))


def _shared_link(fields: Fields, key: str) -> Link | None:
    if fields.is_null(key):
        return None
    shared = fields.fields(key)
    shared.only("bandwidth", "latency")
    return _link(shared)


def _link(fields: Fields) -> Link:
    latency = fields.amount("latency") or 0.0
    check_amount(fields.where, "latency", latency)
    return Link(_rate(fields, "bandwidth"), latency)


def _uplink(fields: Fields) -> float:
    fields.only("bandwidth")
    return _rate(fields, "bandwidth")


def _rate(fields: Fields, key: str) -> float:
    """Checked here as well as in the model, as latencies are, because only here its place in the file is known."""
    found = fields.number(key)
    check_rate(fields.where, key, found)
    return found


def mesh_document(mesh: DeviceMesh) -> dict[str, object]:
    """The mesh as a JSON-ready document, every field written out; absent values are null."""
    return {
        "format": FORMAT,
        "version": 1,
        "name": mesh.name,
        "devices": [_device_document(device) for device in mesh.devices],
        "links": [{"between": list(each.between), **_link_document(each.link)} for each in mesh.connections],
        "same_node_link": mesh.same_node_link and _link_document(mesh.same_node_link),
        "default_link": mesh.default_link and _link_document(mesh.default_link),
        "node_uplink": None if mesh.node_uplink is None else {"bandwidth": float(mesh.node_uplink)},
    }


def _device_document(device: Device) -> dict[str, object]:
    return {
        "name": device.name,
        "kind": device.kind,
        "node": device.node,
        "memory_capacity": device.memory_capacity,
        "flops": {each.dtype: float(each.flops) for each in device.flops},
        "memory_bandwidth": None if device.memory_bandwidth is None else float(device.memory_bandwidth),
    }


def _link_document(link: Link) -> dict[str, float]:
    # As floats, because 2 and 2.0 are equal but are not the same canonical JSON.
    return {"bandwidth": float(link.bandwidth), "latency": float(link.latency)}


def mesh_text(mesh: DeviceMesh) -> str:
    """The mesh as the text of a tessel-mesh file, one device or link a line."""
    return document_text(mesh_document(mesh))
