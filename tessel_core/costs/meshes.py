"""Meshes that people have: nodes of eight GPUs of one kind, parts of a node, two kinds together, a laptop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import combinations

from tessel_core.costs.devices import LAPTOP_CPU, find_device_kind
from tessel_core.costs.links import (
    DEVICES_PER_NODE,
    INFINIBAND,
    INFINIBAND_EDR,
    INFINIBAND_HDR,
    NVLINK,
    NVLINK_2,
    NVLINK_3,
)
from tessel_core.errors import InputError
from tessel_core.model import CPU, Connection, DeviceMesh, Link
from tessel_core.model.checks import check_integer
from tessel_core.model.mesh import MOST_DEVICES


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How the published node of eight devices of a kind is wired."""

    inside: Link
    """Between devices of one node."""
    between: Link
    """Between devices of different nodes."""
    ports: int
    """To other nodes, shared by the devices of a node."""
    source: str

    def uplink(self, per_node: int) -> float:
        """Bytes per second that `per_node` devices share on the way to other nodes: a port each, as far as they go."""
        return min(self.ports, per_node) * self.between.bandwidth


INTERCONNECTS: dict[str, Interconnect] = {
    "h200": Interconnect(
        NVLINK, INFINIBAND, 8, "NVIDIA DGX H200 data sheet: NVLink 4, 900 GB/s both ways; eight NDR ports of 400 Gb/s"
    ),
    "h100": Interconnect(
        NVLINK, INFINIBAND, 8, "NVIDIA DGX H100 data sheet: NVLink 4, 900 GB/s both ways; eight NDR ports of 400 Gb/s"
    ),
    "a100": Interconnect(
        NVLINK_3,
        INFINIBAND_HDR,
        8,
        "NVIDIA DGX A100 data sheet: NVLink 3, 600 GB/s both ways; eight HDR ports of 200 Gb/s",
    ),
    "v100": Interconnect(
        NVLINK_2,
        INFINIBAND_EDR,
        4,
        "NVIDIA DGX-1 system architecture, WP-08437-001: NVLink 2, 300 GB/s a GPU both ways, here as if a switch "
        "joined all pairs; four EDR ports of 100 Gb/s",
    ),
}
"""Per kind of GPU; latencies are the usual figures, 2 µs inside a node and 5 µs between nodes."""


@dataclass(frozen=True, slots=True)
class MeshPreset:
    """A mesh to start from; it is built when it is asked for."""

    name: str
    title: str
    source: str
    build: Callable[[], DeviceMesh]


def uniform_mesh(kind: str, nodes: int, per_node: int, name: str = "") -> DeviceMesh:
    """`nodes` nodes with `per_node` devices of one kind each, wired as the published node of that kind.

    Raises
    ------
    InputError
        For a kind that is not known, or whose devices have no known links between them; for numbers out of range.
    """
    device_kind, count = find_device_kind(kind), nodes * per_node
    for what, number in (("nodes", nodes), ("devices per node", per_node)):
        check_integer("mesh", what, number, least=1)
    if per_node > DEVICES_PER_NODE or count > MOST_DEVICES:
        why = f"must have at most {DEVICES_PER_NODE} devices per node and {MOST_DEVICES:,} in all"
        raise InputError("mesh", f"{why}, got {nodes} nodes of {per_node}")
    if count > 1 and kind not in INTERCONNECTS:
        why = f"links between devices of the kind {kind!r} are not known, only of {', '.join(INTERCONNECTS)}"
        raise InputError("mesh", why)
    wires = INTERCONNECTS.get(kind)
    prefix = "cpu" if kind == CPU else "gpu"
    # Links only where there are devices to link, so that none is shown that nothing uses.
    return DeviceMesh(
        name or f"{kind}-{count}",
        tuple(device_kind.device(f"{prefix}{i}", i // per_node) for i in range(count)),
        same_node_link=wires.inside if wires and per_node > 1 else None,
        default_link=wires.between if wires and nodes > 1 else None,
        node_uplink=wires.uplink(per_node) if wires and nodes > 1 else None,
    )


def mixed_mesh(fast: str, slow: str) -> DeviceMesh:
    """A node of eight GPUs of each of two kinds; between them, the network of the slower one."""
    kinds, wires = (find_device_kind(fast), find_device_kind(slow)), INTERCONNECTS[slow]
    devices = [
        kind.device(f"gpu{node * DEVICES_PER_NODE + i}", node)
        for node, kind in enumerate(kinds)
        for i in range(DEVICES_PER_NODE)
    ]
    slower = [device.name for device in devices if device.kind == slow]
    return DeviceMesh(
        f"{fast}-{DEVICES_PER_NODE}-{slow}-{DEVICES_PER_NODE}",
        tuple(devices),
        tuple(Connection(pair, wires.inside) for pair in combinations(slower, 2)),
        INTERCONNECTS[fast].inside,
        wires.between,
        wires.uplink(DEVICES_PER_NODE),
    )


def _presets() -> Iterator[MeshPreset]:
    for kind, wires in INTERCONNECTS.items():
        title, source = find_device_kind(kind).title, f"{find_device_kind(kind).source}; {wires.source}"
        for count in (1, 2, 4):
            several = "one GPU" if count == 1 else f"{count} GPUs of one node"
            yield MeshPreset(f"{kind}-{count}", f"{title}, {several}", source, partial(uniform_mesh, kind, 1, count))
        for nodes in (1, 2, 4, 8, 16):
            count = nodes * DEVICES_PER_NODE
            several = "one node of eight" if nodes == 1 else f"{nodes} nodes of eight"
            build = partial(uniform_mesh, kind, nodes, DEVICES_PER_NODE)
            yield MeshPreset(f"{kind}-{count}", f"{title}, {several}", source, build)
    yield MeshPreset(
        "h200-8-a100-8",
        "A node of eight H200s and a node of eight A100s",
        f"{INTERCONNECTS['h200'].source}; {INTERCONNECTS['a100'].source}; the HDR network between the two",
        partial(mixed_mesh, "h200", "a100"),
    )
    yield MeshPreset("laptop-cpu", LAPTOP_CPU.title, LAPTOP_CPU.source, partial(uniform_mesh, CPU, 1, 1, "laptop-cpu"))


MESHES: dict[str, MeshPreset] = {preset.name: preset for preset in _presets()}
"""Every mesh to start from, by name."""


def find_mesh(name: str) -> DeviceMesh:
    """The mesh of that name; InputError with the nearest names, if any, where there is none."""
    if name not in MESHES:
        close = get_close_matches(name, MESHES)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(MESHES)}"
        raise InputError("mesh", f"{name!r} is not known, {hint}")
    return MESHES[name].build()
