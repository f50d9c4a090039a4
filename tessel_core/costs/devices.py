"""Kinds of devices, by their data sheets: peak rates without sparsity, memory, bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import find
from tessel_core.model import CPU, Device, DeviceMesh, PeakRate


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """The data sheet of one kind of device."""

    kind: str
    title: str
    memory_capacity: int | None
    """Bytes that programs can use; None for hosts, whose memory is not counted."""
    flops: tuple[PeakRate, ...]
    memory_bandwidth: float
    """Bytes per second."""
    source: str

    def device(self, name: str, node: int = 0) -> Device:
        """One of them."""
        return Device(name, self.kind, node, self.memory_capacity, self.flops, self.memory_bandwidth)


def _rates(**flops: float) -> tuple[PeakRate, ...]:
    return tuple(PeakRate(dtype, rate) for dtype, rate in flops.items())


H200 = DeviceKind(
    "h200",
    "NVIDIA H200 SXM",
    150_000_000_000,
    _rates(bf16=989e12, fp16=989e12, tf32=494e12, fp32=67e12),
    4.8e12,
    "NVIDIA H200 data sheet; 141 GiB, of which programs can use about 139",
)
H100 = DeviceKind(
    "h100",
    "NVIDIA H100 SXM, 80 GB",
    80_000_000_000,
    _rates(bf16=989e12, fp16=989e12, tf32=494e12, fp32=67e12),
    3.35e12,
    "NVIDIA H100 data sheet",
)
A100 = DeviceKind(
    "a100",
    "NVIDIA A100 SXM, 80 GB",
    80_000_000_000,
    _rates(bf16=312e12, fp16=312e12, tf32=156e12, fp32=19.5e12),
    2.039e12,
    "NVIDIA A100 data sheet",
)
V100 = DeviceKind(
    "v100",
    "NVIDIA V100 SXM2, 32 GB",
    32_000_000_000,
    _rates(fp16=125e12, fp32=15.7e12),
    0.9e12,
    "NVIDIA V100 data sheet; it has no bf16",
)
LAPTOP_CPU = DeviceKind(
    CPU,
    "Laptop CPU, 8 cores",
    None,
    _rates(fp32=0.8e12, bf16=0.4e12, fp16=0.4e12),
    60e9,
    "8 cores x 3 GHz x 32 fp32 operations a cycle (two 256-bit FMA units), half of it for 16-bit; two DDR5 channels",
)

DEVICE_KINDS: dict[str, DeviceKind] = {each.kind: each for each in (H200, H100, A100, V100, LAPTOP_CPU)}
"""Every known kind by name."""


def find_device_kind(kind: str) -> DeviceKind:
    """The kind of that name; InputError with the known names where there is none."""
    return find(DEVICE_KINDS, kind, "device kind")


def origin_of_times(mesh: DeviceMesh) -> str:
    """Whether the cost model's times on a mesh are fitted; other kinds take an H200's shares of their own peaks."""
    others = sorted({device.kind for device in mesh.devices} - {H200.kind})
    return f"times estimated for {', '.join(others)}" if others else "times fitted on an H200"
