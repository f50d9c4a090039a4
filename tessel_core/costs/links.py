"""Seconds between H200s: NVLink inside a node of eight, InfiniBand between nodes."""

from __future__ import annotations

from dataclasses import dataclass

DEVICES_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Link:
    """What carries bytes between two devices; transfers do not slow each other down."""

    bandwidth: float
    """Bytes per second each way."""
    latency: float
    """Seconds until the first byte arrives; the usual figure, not measured here."""

    def send_seconds(self, amount: float) -> float:
        """`amount` bytes from one device to another: latency + amount / bandwidth."""
        return self.latency + amount / self.bandwidth

    def all_reduce_seconds(self, amount: float, devices: int) -> float:
        """Sum `amount` bytes over `devices` by a ring: 2 (n - 1) steps of amount / n bytes each [Patarasuk 2009].

        >>> round(NVLINK.all_reduce_seconds(4.5e9, 4) * 1e3, 3)  # 6 steps of 2.5 ms and 2 µs
        15.012
        """
        return 2 * (devices - 1) * self.send_seconds(amount / devices)

    def all_gather_seconds(self, amount: float, devices: int) -> float:
        """Give all `devices` the `amount` bytes of which each has an equal share: n - 1 steps of amount / n bytes."""
        return (devices - 1) * self.send_seconds(amount / devices)

    def broadcast_seconds(self, amount: float, devices: int) -> float:
        """`amount` bytes from one device to all others, along a chain in pieces: n - 1 latencies + amount / bandwidth.

        >>> round(NVLINK.broadcast_seconds(4.5e9, 4) * 1e3, 3)
        10.006
        """
        return (devices - 1) * self.latency + amount / self.bandwidth


NVLINK = Link(450e9, 2e-6)
"""NVLink 4 carries 900 GB/s per device, both ways together, all to all by NVSwitch [NVIDIA H200 data sheet]."""

INFINIBAND = Link(50e9, 5e-6)
"""One NDR port of 400 Gb/s beside each device of a node [NVIDIA DGX H200 data sheet]."""


def hop_seconds(amount: float, sender: int, receiver: int, group: int = 1) -> float:
    """`amount` bytes from one stage of a pipeline to another, where stage s is devices s·group … s·group + group - 1.

    Every device of a tensor-parallel group holds all of the output, so each sends its share to its mate, and the
    receiving group gathers the shares over NVLink [Narayanan 2021, section 4.1].
    """
    nodes = {stage * group // DEVICES_PER_NODE for stage in (sender, receiver)}
    link = NVLINK if len(nodes) == 1 else INFINIBAND
    return link.send_seconds(amount / group) + NVLINK.all_gather_seconds(amount, group)
