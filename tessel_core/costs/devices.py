"""Kinds of devices with the numbers of their data sheets: peak rates without sparsity, memory, and bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

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


def _rates(**flops: float) -> tuple[PeakRate, ...]:
    return tuple(PeakRate(dtype, rate) for dtype, rate in flops.items())


H200 = DeviceKind(
    "h200",
    "NVIDIA H200 SXM",
    150_000_000_000,
    _rates(fp8=1979e12, bf16=989e12, fp16=989e12, tf32=494e12, fp32=67e12),
    4.8e12,
    "NVIDIA H200 data sheet; 141 GiB, of which programs can use about 139",
)
B200 = DeviceKind(
    "b200",
    "NVIDIA B200 SXM",
    191_000_000_000,
    _rates(fp8=4500e12, bf16=2250e12, fp16=2250e12, tf32=1100e12, fp32=75e12),
    8e12,
    "NVIDIA DGX B200 data sheet, half of its rates with sparsity; 180 GB, of which CUDA reports 178.4 GiB",
)
H100 = DeviceKind(
    "h100",
    "NVIDIA H100 SXM, 80 GB",
    85_000_000_000,
    _rates(fp8=1979e12, bf16=989e12, fp16=989e12, tf32=494e12, fp32=67e12),
    3.35e12,
    "NVIDIA H100 data sheet; 80 GB, of which CUDA reports 79.15 GiB",
)
H100_500W = DeviceKind(
    "h100-500w-96gb",
    "NVIDIA H100 SXM, 96 GB, 500 W",
    102_000_000_000,
    _rates(fp8=1979e12, bf16=989e12, fp16=989e12, tf32=494e12, fp32=67e12),
    2.4e12,
    "torchtitan, benchmarks/llama3_h100_202412: H100 with 96 GB of HBM2e at 2.4 TB/s and a limit of 500 W; rates are "
    "those of the 700 W data sheet, which it does not hold under load; CUDA reports 95.0 GiB",
)
A100 = DeviceKind(
    "a100",
    "NVIDIA A100 SXM, 80 GB",
    85_000_000_000,
    _rates(bf16=312e12, fp16=312e12, tf32=156e12, fp32=19.5e12),
    2.039e12,
    "NVIDIA A100 data sheet; 80 GB, of which CUDA reports 79.15 GiB",
)
A100_PCIE = DeviceKind(
    "a100-pcie",
    "NVIDIA A100 PCIe, 80 GB",
    85_000_000_000,
    _rates(bf16=312e12, fp16=312e12, tf32=156e12, fp32=19.5e12),
    1.935e12,
    "NVIDIA A100 data sheet, PCIe; 80 GB, of which CUDA reports 79.15 GiB",
)
MI300X = DeviceKind(
    "mi300x",
    "AMD Instinct MI300X",
    206_000_000_000,
    _rates(fp8=2615e12, bf16=1307e12, fp16=1307e12, tf32=654e12, fp32=163.4e12),
    5.3e12,
    "AMD Instinct MI300X data sheet; 192 GB, of which ROCm reports 191.98 GiB",
)
V100 = DeviceKind(
    "v100",
    "NVIDIA V100 SXM2, 32 GB",
    34_100_000_000,
    _rates(fp16=125e12, fp32=15.7e12),
    0.9e12,
    "NVIDIA V100 data sheet; it has no bf16; CUDA reports 31.75 GiB",
)
LAPTOP_CPU = DeviceKind(
    CPU,
    "Laptop CPU, 8 cores",
    None,
    _rates(fp32=0.8e12, bf16=0.4e12, fp16=0.4e12),
    60e9,
    "8 cores x 3 GHz x 32 fp32 operations per cycle (two 256-bit FMA units), half of it for 16-bit; two DDR5 channels",
)


def _check_kind(kind: DeviceKind) -> None:
    """Raise InputError for numbers out of range, or if a rate is missing that durations are computed from."""
    rates_of(kind.device("device"), "fp32")


KINDS = (H200, H100, A100, V100, B200, H100_500W, A100_PCIE, MI300X, LAPTOP_CPU)
DEVICE_KINDS = Extended(
    "tessel.devices",
    "device kind",
    DeviceKind,
    {each.kind: each for each in KINDS},
    _check_kind,
    named="kind",
)
"""Known kinds by name. Kinds of other packages come last."""

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
