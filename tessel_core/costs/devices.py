"""Kinds of devices with the numbers of their data sheets: peak rates without sparsity, memory, and bandwidth."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

from tessel_core.costs.fit import MEASURED_KINDS, rates_of
from tessel_core.extensions import Extended
from tessel_core.model import CPU, Device, DeviceMesh, Link, PeakRate


@dataclass(frozen=True, slots=True)
class Interconnect:
    """Links of the published node of a kind of device. The node has eight devices."""

    inside: Link
    """Link between devices of one node."""
    between: Link
    """Link between devices of different nodes."""
    ports: int
    """Number of ports to other nodes, shared by the devices of a node."""
    source: str

    def uplink(self, per_node: int) -> float:
        """Return the bytes per second that `per_node` devices together can send to other nodes.

        Each device uses at most one port.
        """
        return min(self.ports, per_node) * self.between.bandwidth


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Numbers from the data sheet of a kind of device."""

    kind: str
    title: str
    memory_capacity: int | None
    """Bytes that programs can use. None for hosts, whose memory is not counted."""
    flops: tuple[PeakRate, ...]
    memory_bandwidth: float
    """Bytes per second."""
    source: str
    interconnect: Interconnect | None = None
    """Links of the node, for a kind that another package defines.

    The links of our own kinds are in `meshes.INTERCONNECTS`.
    """

    def device(self, name: str, node: int = 0) -> Device:
        """Return a device of this kind."""
        return Device(name, self.kind, node, self.memory_capacity, self.flops, self.memory_bandwidth)


def _own_kinds() -> dict[str, DeviceKind]:
    """Return the rows of data/device_kinds.csv by kind."""
    text = files("tessel_core.costs").joinpath("data/device_kinds.csv").read_text("ascii")
    found = dict[str, DeviceKind]()
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        rates = (each.split("=") for each in row["flops"].split())
        flops = tuple(PeakRate(dtype, float(rate)) for dtype, rate in rates)
        memory = int(row["memory"]) if row["memory"] else None
        found[row["kind"]] = DeviceKind(
            row["kind"], row["title"], memory, flops, float(row["memory_bandwidth"]), row["source"]
        )
    return found


def _check_kind(kind: DeviceKind) -> None:
    """Raise InputError for numbers out of range, or if a rate is missing that durations are computed from."""
    rates_of(kind.device("device"), "fp32")


DEVICE_KINDS = Extended("tessel.devices", "device kind", DeviceKind, _own_kinds(), _check_kind, named="kind")
"""Known kinds by name. Kinds of other packages come last."""
H200, LAPTOP_CPU = DEVICE_KINDS["h200"], DEVICE_KINDS[CPU]

find_device_kind = DEVICE_KINDS.find


def origin_of_times(mesh: DeviceMesh) -> str:
    """Describe where the times of the cost model for this mesh come from.

    The parameters may be fitted on an H200. They may use fractions of the peak that were measured on the same kind of
    device. Otherwise the fractions of an H200 are applied to the peaks of the kind.
    """
    others = sorted({device.kind for device in mesh.devices} - {H200.kind})
    measured = [kind for kind in others if kind in MEASURED_KINDS]
    estimated = [kind for kind in others if kind not in MEASURED_KINDS]
    words = [f"times from measured fractions of the peak of {', '.join(measured)}"] * bool(measured)
    words += [f"times estimated for {', '.join(estimated)}"] * bool(estimated)
    return "; ".join(words) or "times fitted on an H200"
