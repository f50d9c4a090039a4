"""Seconds of links between devices, alone and in collectives: NVLink inside a node of eight, InfiniBand between nodes.

Bandwidths are those of data sheets; latencies are the usual figures, not measured here.  Transfers do not slow each
other down.
"""

from __future__ import annotations

from tessel_core.model import Link

DEVICES_PER_NODE = 8

NVLINK = Link(450e9, 2e-6)
"""NVLink 4 carries 900 GB/s per device, both ways together, all to all by NVSwitch [NVIDIA H200 data sheet]."""

INFINIBAND = Link(50e9, 5e-6)
"""One NDR port of 400 Gb/s beside each device of a node [NVIDIA DGX H200 data sheet]."""


NVLINK_3 = Link(300e9, 2e-6)
"""600 GB/s per device, both ways together, by NVSwitch [NVIDIA A100 data sheet]."""

NVLINK_2 = Link(150e9, 2e-6)
"""Six links of 25 GB/s each way per device [NVIDIA V100 data sheet], as if one switch joined them; in the cube mesh of
a DGX-1 one or two of them join a pair directly."""

INFINIBAND_HDR = Link(25e9, 5e-6)
"""One HDR port of 200 Gb/s beside each device of a node [NVIDIA DGX A100 data sheet]."""

INFINIBAND_EDR = Link(12.5e9, 5e-6)
"""One of four EDR ports of 100 Gb/s that eight devices share [NVIDIA DGX-1 system architecture, WP-08437-001]."""


def all_reduce_seconds(link: Link, amount: float, devices: int) -> float:
    """Sum `amount` bytes over `devices` by a ring: 2 (n - 1) steps of amount / n bytes each [Patarasuk 2009].

    >>> round(all_reduce_seconds(NVLINK, 4.5e9, 4) * 1e3, 3)  # 6 steps of 2.5 ms and 2 µs
    15.012
    """
    return 2 * (devices - 1) * link.seconds(amount / devices)


def all_gather_seconds(link: Link, amount: float, devices: int) -> float:
    """Give all `devices` the `amount` bytes of which each has an equal share: n - 1 steps of amount / n bytes."""
    return (devices - 1) * link.seconds(amount / devices)


def broadcast_seconds(link: Link, amount: float, devices: int) -> float:
    """`amount` bytes from one device to all others, along a chain in pieces: n - 1 latencies + amount / bandwidth.

    >>> round(broadcast_seconds(NVLINK, 4.5e9, 4) * 1e3, 3)
    10.006
    """
    return (devices - 1) * link.latency + amount / link.bandwidth


def hop_seconds(amount: float, sender: int, receiver: int, group: int = 1) -> float:
    """`amount` bytes from one stage of a pipeline to another, where stage s is devices s·group … s·group + group - 1.

    Every device of a tensor-parallel group holds all of the output, so each sends its share to its mate, and the
    receiving group gathers the shares over NVLink [Narayanan 2021, section 4.1].
    """
    nodes = {stage * group // DEVICES_PER_NODE for stage in (sender, receiver)}
    link = NVLINK if len(nodes) == 1 else INFINIBAND
    return link.seconds(amount / group) + all_gather_seconds(NVLINK, amount, group)
