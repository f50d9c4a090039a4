"""Convert a device mesh to three editable tables: devices, rates of each kind, and links between two devices.

Tables use GB, GB/s, µs and TFLOP/s. Edits are stored as differences to the shown rows, so other values stay
bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tessel_core.errors import InputError
from tessel_core.formats.tables import Cells, Row, TableEdits
from tessel_core.model import Connection, Device, DeviceMesh, DevicePool, Link, PeakRate

GIGA, TERA, MICRO = 1e9, 1e12, 1e-6
DEVICE_COLUMNS = ("device", "kind", "node", "memory (GB)")
LINK_COLUMNS = ("from", "to", "bandwidth (GB/s)", "latency (µs)")
BANDWIDTH = "memory bandwidth (GB/s)"
RATE = " (TFLOP/s)"
"""Suffix of the titles of rate columns, one per number format."""
_DEFAULT_DTYPES = ("bf16", "fp16", "fp32")


def device_rows(mesh: DeviceMesh) -> tuple[Row, ...]:
    """Return one row per device."""
    return tuple(
        {"device": each.name, "kind": each.kind, "node": each.node, "memory (GB)": _shown(each.memory_capacity, GIGA)}
        for each in mesh.devices
    )


def kind_columns(mesh: DeviceMesh) -> tuple[str, ...]:
    """Return the column titles of kinds: the default number formats, and all others for which a device has a rate."""
    dtypes = (*_DEFAULT_DTYPES, *(rate.dtype for device in mesh.devices for rate in device.flops))
    return ("kind", *(f"{dtype}{RATE}" for dtype in dict.fromkeys(dtypes)), BANDWIDTH)


def kind_rows(mesh: DeviceMesh) -> tuple[Row, ...]:
    """Return one row per kind of device.  Devices of one kind have equal rates."""
    first = {each.kind: each for each in reversed(mesh.devices)}
    return tuple({column: _kind_cell(first[kind], column) for column in kind_columns(mesh)} for kind in mesh.kinds)


def _kind_cell(device: Device, column: str) -> object:
    if column == "kind":
        return device.kind
    if column == BANDWIDTH:
        return _shown(device.memory_bandwidth, GIGA)
    return _shown(device.peak(column.removesuffix(RATE)), TERA)


def link_rows(mesh: DeviceMesh) -> tuple[Row, ...]:
    """Return one row per link between two devices."""
    rows = ((*each.between, *shown_link(each.link)) for each in mesh.connections)
    return tuple(dict(zip(LINK_COLUMNS, row, strict=True)) for row in rows)


def shown_link(link: Link) -> tuple[float, float]:
    """Return the bandwidth of a link in GB/s and its latency in µs."""
    return link.bandwidth / GIGA, link.latency / MICRO


@dataclass(frozen=True, slots=True)
class SharedLinks:
    """Default links, for pairs of devices that have no link of their own. Units are GB/s and µs.

    `inside` is for devices of one node, `between` for devices of different nodes.  A bandwidth of None means no link.
    """

    inside_bandwidth: float | None
    inside_latency: float | None
    between_bandwidth: float | None
    between_latency: float | None
    uplink: float | None


def shared_links(mesh: DeviceMesh) -> SharedLinks:
    """Return the shared links of a mesh."""
    links = mesh.same_node_link, mesh.default_link
    inside, between = ((None, None) if link is None else shown_link(link) for link in links)
    return SharedLinks(inside[0], inside[1], between[0], between[1], _shown(mesh.node_uplink, GIGA))


def with_shared_links(mesh: DeviceMesh, wanted: SharedLinks) -> DeviceMesh:
    """Return the mesh with other shared links.  Values that did not change stay bit-identical.

    Raises InputError for a bandwidth of 0, or if two devices would have no link.
    """
    uplink = None if wanted.uplink is None else wanted.uplink * GIGA
    return replace(
        mesh,
        same_node_link=_typed_link(mesh.same_node_link, wanted.inside_bandwidth, wanted.inside_latency),
        default_link=_typed_link(mesh.default_link, wanted.between_bandwidth, wanted.between_latency),
        node_uplink=mesh.node_uplink if wanted.uplink == _shown(mesh.node_uplink, GIGA) else uplink,
    )


def _typed_link(before: Link | None, bandwidth: float | None, latency: float | None) -> Link | None:
    if (bandwidth, latency) == ((None, None) if before is None else shown_link(before)):
        return before
    return None if bandwidth is None else Link(bandwidth * GIGA, (latency or 0.0) * MICRO)


def shown_pool(pool: DevicePool) -> float | None:
    """Return the memory of an accelerator in GB; None if it is unlimited."""
    return _shown(pool.memory, GIGA)


def typed_pool(accelerators: int, cpus: int, memory: float | None) -> DevicePool:
    """Return a pool with the memory per accelerator in GB.  Raises InputError if it has no device."""
    return DevicePool(accelerators, cpus, None if memory is None else memory * GIGA)


def _shown(amount: float | None, unit: float) -> float | None:
    return None if amount is None else amount / unit


def with_devices(mesh: DeviceMesh, edits: TableEdits, sheets: Mapping[str, Device]) -> DeviceMesh:
    """Apply edits of `device_rows` to a mesh.  Rates of a new kind are looked up in `sheets`.

    If a device is renamed or deleted, its links are renamed or deleted too.

    Raises InputError with the device and the column, or with the rule that the whole mesh breaks.
    """
    alike = {**sheets, **{each.kind: each for each in reversed(mesh.devices)}}
    devices: list[Device | None] = list(mesh.devices)
    renamed: dict[str, str] = {}
    for row, cells in edits.changed.items():
        before = mesh.devices[row]
        after = _device(before, Cells(cells, f"device {before.name}"), alike)
        devices[row], renamed[before.name] = after, after.name
    for row in edits.deleted:
        devices[row] = None
    gone = {mesh.devices[row].name for row in edits.deleted}
    last, count = mesh.devices[-1].kind, len(mesh.devices)
    added = [_added(cells, alike, last, count + i) for i, cells in enumerate(edits.filled)]
    connections = (
        replace(
            each, between=(renamed.get(each.between[0], each.between[0]), renamed.get(each.between[1], each.between[1]))
        )
        for each in mesh.connections
        if not gone & set(each.between)
    )
    kept = (each for each in devices if each is not None)
    return replace(mesh, devices=(*kept, *added), connections=tuple(connections))


def _added(row: Row, alike: Mapping[str, Device], default_kind: str, number: int) -> Device:
    """Return a new device.  Without a kind it gets `default_kind`, without a name it is called gpu and `number`."""
    kind = str(row.get("kind") or default_kind)
    name = str(row.get("device") or f"gpu{number}")
    pattern = alike.get(kind, Device(name, kind))
    return _device(replace(pattern, name=name, node=0), Cells(row, f"device {name}"), alike)


def _device(device: Device, cells: Cells, alike: Mapping[str, Device]) -> Device:
    """Return `device` with the values of a row.  A device of a new kind gets the rates of that kind."""
    changed = device
    for column in cells.columns:
        changed = _DEVICE_READERS[column](changed, cells, column)
    if changed.kind == device.kind:
        return changed
    pattern = alike.get(changed.kind, Device(changed.name, changed.kind))
    memory = changed.memory_capacity if "memory (GB)" in cells.columns else pattern.memory_capacity
    return replace(changed, flops=pattern.flops, memory_bandwidth=pattern.memory_bandwidth, memory_capacity=memory)


_DEVICE_READERS: dict[str, Callable[[Device, Cells, str], Device]] = {
    "device": lambda device, cells, column: replace(device, name=cells.text(column)),
    "kind": lambda device, cells, column: replace(device, kind=cells.text(column)),
    "node": lambda device, cells, column: replace(device, node=cells.integer(column, 0, default=0)),
    "memory (GB)": lambda device, cells, column: replace(device, memory_capacity=_bytes(cells, column)),
}


def _bytes(cells: Cells, column: str) -> int | None:
    amount = cells.amount(column)
    return None if amount is None else round(amount * GIGA)


def with_kinds(mesh: DeviceMesh, edits: TableEdits) -> DeviceMesh:
    """Apply edits of `kind_rows` to all devices of each kind.  Raises InputError like `with_devices`."""
    changed = {mesh.kinds[row]: cells for row, cells in edits.changed.items()}
    return replace(mesh, devices=tuple(_with_rates(each, changed.get(each.kind, {})) for each in mesh.devices))


def _with_rates(device: Device, row: Row) -> Device:
    cells = Cells(row, f"kind {device.kind}")
    rates = {each.dtype: each.flops for each in device.flops}
    bandwidth = device.memory_bandwidth
    for column in (each for each in row if each != "kind"):
        amount = cells.amount(column)
        if column == BANDWIDTH:
            bandwidth = None if amount is None else amount * GIGA
        elif amount is None:
            rates.pop(column.removesuffix(RATE), None)
        else:
            rates[column.removesuffix(RATE)] = amount * TERA
    flops = tuple(PeakRate(dtype, flops) for dtype, flops in rates.items())
    return replace(device, flops=flops, memory_bandwidth=bandwidth)


def with_links(mesh: DeviceMesh, edits: TableEdits) -> DeviceMesh:
    """Apply edits of `link_rows` to a mesh.  Raises InputError like `with_devices`."""
    rows = link_rows(mesh)
    links: list[Connection | None] = list(mesh.connections)
    for row, cells in edits.changed.items():
        one, other = mesh.connections[row].between
        links[row] = _connection(Cells({**rows[row], **cells}, f"link {one} - {other}"), cells, mesh.connections[row])
    for row in edits.deleted:
        links[row] = None
    added = (_connection(Cells(row, "the new link"), row, None) for row in edits.filled)
    return replace(mesh, connections=(*(each for each in links if each is not None), *added))


def _connection(cells: Cells, typed: Row, before: Connection | None) -> Connection:
    """Return the link after an edit.  Cells that were not changed keep their exact values."""
    values: dict[str, Any] = {}
    for name, column, unit in (("bandwidth", LINK_COLUMNS[2], GIGA), ("latency", LINK_COLUMNS[3], MICRO)):
        amount = cells.amount(column)
        if before is not None and column not in typed:
            values[name] = getattr(before.link, name)
        elif amount is not None:
            values[name] = amount * unit
    if "bandwidth" not in values:
        raise InputError(cells.place(LINK_COLUMNS[2]), "is empty")
    return Connection((cells.text("from"), cells.text("to")), Link(**values))
