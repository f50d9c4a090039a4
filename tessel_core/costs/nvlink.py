"""Seconds between devices of one H200 node, which NVSwitch connects all to all."""

from __future__ import annotations

BANDWIDTH = 450e9
"""Bytes per second each way: NVLink 4 carries 900 GB/s per device, both ways together [NVIDIA H200 data sheet]."""

LATENCY = 2e-6
"""Seconds until the first byte arrives: the usual figure for one hop through NVSwitch; not measured here."""


def send_seconds(amount: float) -> float:
    """`amount` bytes from one device to another: latency + amount / bandwidth."""
    return LATENCY + amount / BANDWIDTH


def all_reduce_seconds(amount: float, devices: int) -> float:
    """Sum `amount` bytes over `devices` by a ring: 2 (n - 1) steps of amount / n bytes each [Patarasuk 2009].

    >>> round(all_reduce_seconds(4.5e9, 4) * 1e3, 3)  # 6 steps of 2.5 ms and 2 µs
    15.012
    """
    return 2 * (devices - 1) * send_seconds(amount / devices)


def broadcast_seconds(amount: float, devices: int) -> float:
    """`amount` bytes from one device to all others along a chain, in pieces: (n - 1) latencies + amount / bandwidth.

    >>> round(broadcast_seconds(4.5e9, 4) * 1e3, 3)
    10.006
    """
    return (devices - 1) * LATENCY + amount / BANDWIDTH
