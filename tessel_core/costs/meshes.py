"""Links between devices, and common meshes: nodes of eight GPUs, and a laptop.

Bandwidths are those of data sheets. Latencies are typical values that were not measured here. Transfers do not slow
each other down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from tessel_core.costs.devices import DEVICE_KINDS, LAPTOP_CPU, Interconnect, find_device_kind
from tessel_core.errors import InputError, nearest
from tessel_core.model import CPU, Connection, DeviceMesh, Link
from tessel_core.model.checks import check_integer
from tessel_core.model.mesh import MAX_DEVICES

DEVICES_PER_NODE = 8

NVLINK = Link(450e9, 2e-6)
"""NVLink 4 with NVSwitch: 450 GB/s per device and direction, between all devices [NVIDIA H200 data sheet]."""

INFINIBAND = Link(50e9, 5e-6)
"""One NDR port of 400 Gb/s per device [NVIDIA DGX H200 data sheet]."""

NVLINK_3 = Link(300e9, 2e-6)
"""NVLink 3 with NVSwitch: 300 GB/s per device and direction [NVIDIA A100 data sheet]."""

NVLINK_2 = Link(150e9, 2e-6)
"""NVLink 2: six links of 25 GB/s per device and direction [NVIDIA V100 data sheet].

They are modelled as one switch. In a DGX-1, one or two of these links directly connect a pair of devices.
"""

NVLINK_5 = Link(900e9, 2e-6)
"""NVLink 5 with NVSwitch: 900 GB/s per device and direction [NVIDIA DGX B200 data sheet]."""

PCIE_4 = Link(30e9, 5e-6)
"""Sixteen lanes of PCIe 4.0 between the cards of one host: 32 GB/s per direction, minus packet overhead [PCI-SIG]."""

INFINITY_FABRIC = Link(448e9, 2e-6)
"""Seven links of 64 GB/s per direction, one to every other device of the node [AMD Instinct MI300X data sheet]."""

INFINIBAND_HDR = Link(25e9, 5e-6)
"""One HDR port of 200 Gb/s per device [NVIDIA DGX A100 data sheet]."""

INFINIBAND_EDR = Link(12.5e9, 5e-6)
"""One of four EDR ports of 100 Gb/s, which eight devices share [NVIDIA DGX-1 architecture, WP-08437-001]."""


_HOPPER = "NVIDIA DGX H100 data sheet: NVLink 4, 900 GB/s both ways; eight NDR ports of 400 Gb/s"

INTERCONNECTS: dict[str, Interconnect] = {
    "h200": Interconnect(
        NVLINK, INFINIBAND, 8, "NVIDIA DGX H200 data sheet: NVLink 4, 900 GB/s both ways; eight NDR ports of 400 Gb/s"
    ),
    "h100": Interconnect(NVLINK, INFINIBAND, 8, _HOPPER),
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
        "NVIDIA DGX-1 system architecture, WP-08437-001: NVLink 2, 300 GB/s per GPU both ways, modelled as a switch "
        "that joins all pairs; four EDR ports of 100 Gb/s",
    ),
    "b200": Interconnect(
        NVLINK_5, INFINIBAND, 8, "NVIDIA DGX B200 data sheet: NVLink 5, 1.8 TB/s both ways; eight ports of 400 Gb/s"
    ),
    "h100-500w-96gb": Interconnect(NVLINK, INFINIBAND, 8, f"{_HOPPER}; assumed to be the same"),
    "a100-pcie": Interconnect(
        PCIE_4,
        INFINIBAND_HDR,
        1,
        "sixteen lanes of PCIe 4.0 per card; one HDR port of 200 Gb/s per host, as SimuMax's system file has it",
    ),
    "mi300x": Interconnect(
        INFINITY_FABRIC,
        INFINIBAND,
        8,
        "AMD Instinct MI300X platform data sheet: seven Infinity Fabric links of 128 GB/s both ways per device; eight "
        "ports of 400 Gb/s",
    ),
    **{name: kind.interconnect for name, kind in DEVICE_KINDS.added.items() if kind.interconnect is not None},
}
"""Links by kind of GPU. Latencies are typical values: 2 µs inside a node and 5 µs between nodes."""


@dataclass(frozen=True, slots=True)
class MeshPreset:
    """A mesh with a name. The mesh is built only when it is needed."""

    name: str
    title: str
    source: str
    build: Callable[[], DeviceMesh]


def uniform_mesh(kind: str, nodes: int, per_node: int, name: str = "") -> DeviceMesh:
    """Return a mesh of `nodes` nodes with `per_node` devices of one kind each. Its links are those of the published
    node.

    Raises InputError for an unknown kind, for devices whose links are unknown, and for numbers out of range.
    """
    device_kind, count = find_device_kind(kind), nodes * per_node
    for what, number in (("nodes", nodes), ("devices per node", per_node)):
        check_integer("mesh", what, number, least=1)
    if per_node > DEVICES_PER_NODE or count > MAX_DEVICES:
        why = f"must have at most {DEVICES_PER_NODE} devices per node and {MAX_DEVICES:,} in all"
        raise InputError("mesh", f"{why}, got {nodes} nodes of {per_node}")
    if count > 1 and kind not in INTERCONNECTS:
        why = (
            f"has no known links between devices of the kind {kind!r}; kinds with links are {', '.join(INTERCONNECTS)}"
        )
        raise InputError("mesh", why)
    wires = INTERCONNECTS.get(kind)
    prefix = "cpu" if kind == CPU else "gpu"
    # Set only the links that devices use, so that no other link is displayed.
    return DeviceMesh(
        name or f"{kind}-{count}",
        tuple(device_kind.device(f"{prefix}{i}", i // per_node) for i in range(count)),
        same_node_link=wires.inside if wires and per_node > 1 else None,
        default_link=wires.between if wires and nodes > 1 else None,
        node_uplink=wires.uplink(per_node) if wires and nodes > 1 else None,
    )


def mixed_mesh(fast: str, slow: str) -> DeviceMesh:
    """Return a mesh of two nodes of eight GPUs, each of another kind. The network is that of the slower kind."""
    kinds, wires, count = (find_device_kind(fast), find_device_kind(slow)), INTERCONNECTS[slow], DEVICES_PER_NODE
    devices = [kind.device(f"gpu{node * count + i}", node) for node, kind in enumerate(kinds) for i in range(count)]
    slower = [device.name for device in devices if device.kind == slow]
    return DeviceMesh(
        f"{fast}-{count}-{slow}-{count}",
        tuple(devices),
        tuple(Connection(pair, wires.inside) for pair in combinations(slower, 2)),
        INTERCONNECTS[fast].inside,
        wires.between,
        wires.uplink(count),
    )


_LISTED = ("h200", "h100", "a100", "v100")
"""Kinds that menus list in all common sizes. Other kinds are listed with one and with eight nodes."""


def _presets() -> Iterator[MeshPreset]:
    for kind, wires in INTERCONNECTS.items():
        title, source = find_device_kind(kind).title, f"{find_device_kind(kind).source}; {wires.source}"
        for count in (1, 2, 4) if kind in _LISTED else ():
            several = "one GPU" if count == 1 else f"{count} GPUs of one node"
            yield MeshPreset(f"{kind}-{count}", f"{title}, {several}", source, partial(uniform_mesh, kind, 1, count))
        for nodes in (1, 2, 4, 8, 16) if kind in _LISTED else (1, 8):
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
"""Presets of meshes by name."""


def find_mesh(name: str, per_node: int | None = None) -> DeviceMesh:
    """Return the preset with this name, or a mesh named KIND-COUNT, such as h100-512.

    A mesh KIND-COUNT has nodes of `per_node` devices, 8 by default. If COUNT is below `per_node`, it has one node.
    Raises InputError if COUNT does not fill its nodes, or if a preset is given together with `per_node`. For an unknown
    name, the error lists the most similar known names.
    """
    kind, count = kind_and_count(name)
    if kind is not None:
        each = DEVICES_PER_NODE if per_node is None else per_node
        check_integer("mesh", "devices per node", each, least=1)
        if count > MAX_DEVICES:
            raise InputError(f"mesh {name}", f"has {count:,} devices, more than {MAX_DEVICES:,}")
        if count > each and count % each:
            why = f"{count:,} devices do not fill nodes of {each}; the nearest that do are {count - count % each:,}"
            raise InputError(f"mesh {name}", f"{why} and {count - count % each + each:,}")
        return uniform_mesh(kind, max(1, count // each), min(count, each), name)
    if name not in MESHES:
        hint, kinds = nearest(name, MESHES, f"choose from {', '.join(MESHES)}"), ", ".join(INTERCONNECTS)
        raise InputError("mesh", f"{name!r} is not known, {hint}; or use KIND-COUNT, where KIND is one of {kinds}")
    if per_node is not None:
        raise InputError("devices per node", f"cannot be chosen, because the preset {name} fixes them")
    return MESHES[name].build()


def kind_and_count(name: str) -> tuple[str | None, int]:
    """Return the kind and the number of devices of a name like h100-512. For any other name, return (None, 0).

    >>> kind_and_count("h100-500w-96gb-64"), kind_and_count("laptop-cpu")
    (('h100-500w-96gb', 64), (None, 0))
    """
    kind, _, digits = name.rpartition("-")
    known = kind in INTERCONNECTS and _COUNT.fullmatch(digits) is not None
    return (kind, int(digits)) if known else (None, 0)


_COUNT = re.compile("0*[1-9][0-9]{0,8}")
"""A count has at most nine digits, because Python refuses to parse very long numbers."""


def all_reduce_seconds(link: Link, amount: float, devices: int) -> float:
    """Return the seconds to sum `amount` bytes on a ring: 2 (n - 1) steps of amount / n bytes each [Patarasuk 2009].

    >>> round(all_reduce_seconds(NVLINK, 4.5e9, 4) * 1e3, 3)  # 6 steps of 2.5 ms and 2 µs
    15.012
    """
    return 2 * (devices - 1) * link.seconds(amount / devices)


def all_gather_seconds(link: Link, amount: float, devices: int) -> float:
    """Return the seconds to gather `amount` bytes, of which each of the n devices has an equal part.

    The ring takes n - 1 steps of amount / n bytes each.
    """
    return (devices - 1) * link.seconds(amount / devices)


def broadcast_seconds(link: Link, amount: float, devices: int) -> float:
    """Return the seconds to send `amount` bytes along a chain of n devices: n - 1 latencies + amount / bandwidth.

    >>> round(broadcast_seconds(NVLINK, 4.5e9, 4) * 1e3, 3)
    10.006
    """
    return (devices - 1) * link.latency + amount / link.bandwidth


def hop_seconds(amount: float, sender: int, receiver: int, group: int = 1) -> float:
    """Return the seconds to send `amount` bytes between two pipeline stages of `group` devices each.

    Stage s has the devices s·group … s·group + group - 1. Every device of a tensor-parallel group has the whole output.
    So each device sends an equal part to one device of the other group. This group then gathers the parts over NVLink
    [Narayanan 2021, section 4.1].
    """
    nodes = {stage * group // DEVICES_PER_NODE for stage in (sender, receiver)}
    link = NVLINK if len(nodes) == 1 else INFINIBAND
    return link.seconds(amount / group) + all_gather_seconds(NVLINK, amount, group)
