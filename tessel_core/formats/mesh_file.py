"""The format tessel-mesh, version 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_amount, as_number, document_text, fingerprint, read_with
from tessel_core.formats.record import COUNT, TEXT, Codec, Record, by_name, list_of, or_null
from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate
from tessel_core.model.checks import check_amount, check_rate


@dataclass(frozen=True, slots=True)
class MeshFile:
    """A mesh and its fingerprint."""

    mesh: DeviceMesh
    fingerprint: str
    """SHA-256 of the mesh's canonical JSON.  Placements refer to the mesh by it."""

    @classmethod
    def of(cls, mesh: DeviceMesh) -> MeshFile:
        """Compute the fingerprint of a mesh."""
        return cls(mesh, fingerprint(MESH.write(mesh)))


def _checked(number: Callable[[object, str], float], check: Callable[[str, str, object], None]) -> Codec:
    """Return the codec of a number that `check` checks. Errors of the check then name the place in the file.

    Numbers are written as floats, because 2 and 2.0 are equal but differ in canonical JSON.
    """

    def read(value: object, where: str) -> float:
        checked, (place, _, key) = number(value, where), where.rpartition(".")
        check(place, key, checked)
        return checked

    return Codec(read, float)


def _between_from(value: object, where: str) -> tuple[str, ...]:
    ends: tuple[str, ...] = list_of(TEXT).read(value, where)
    if len(ends) != 2:
        raise InputError(where, f"must name two devices, got {len(ends)}")
    return ends


def _uplink_from(value: object, where: str) -> float:
    fields = Fields(value, where)
    fields.only("bandwidth")
    rate: float = _RATE.read(fields.take("bandwidth"), fields.place("bandwidth"))
    return rate


_RATE = _checked(as_number, check_rate)
_LINK = Record(Link, bandwidth=_RATE, latency=or_null(_checked(as_amount, check_amount), 0.0))
_DEVICE = Record(
    Device,
    node=COUNT,
    memory_capacity=or_null(COUNT),
    flops=or_null(by_name(_RATE, PeakRate, "dtype", "flops"), ()),
    memory_bandwidth=or_null(_RATE),
)
MESH = Record(
    DeviceMesh,
    format="tessel-mesh",
    name=TEXT.unless_absent("mesh"),
    devices=list_of(_DEVICE),
    connections=or_null(
        list_of(Record(Connection, between=Codec(_between_from, list), inline={"link": _LINK})), ()
    ).under("links"),
    same_node_link=or_null(_LINK),
    default_link=or_null(_LINK),
    node_uplink=or_null(Codec(_uplink_from, lambda bandwidth: {"bandwidth": float(bandwidth)})),
)
"""Codec of a mesh document. Every field is written. Missing values are null."""


def read_mesh(data: bytes, name: str = "mesh") -> MeshFile:
    """Read the bytes of a tessel-mesh file.  Raises InputError with `name`, the place and the reason."""
    return read_with(mesh_from, data, name)


def mesh_from(fields: Fields) -> MeshFile:
    """Read a mesh from a parsed document."""
    return MeshFile.of(MESH.from_fields(fields))


def mesh_text(mesh: DeviceMesh) -> str:
    """Return the text of a tessel-mesh file, with one line per device or link."""
    return document_text(MESH.write(mesh))
