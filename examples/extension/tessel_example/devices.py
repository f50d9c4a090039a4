"""A device kind with the links of its node."""

from __future__ import annotations

from tessel_core.costs.devices import DeviceKind, Interconnect
from tessel_core.model import Link, PeakRate

_RATES = {"fp8": 733e12, "bf16": 362e12, "fp16": 362e12, "tf32": 183e12, "fp32": 91.6e12}

L40S = DeviceKind(
    "l40s",
    "NVIDIA L40S, 48 GB",
    48_000_000_000,
    tuple(PeakRate(dtype, flops) for dtype, flops in _RATES.items()),
    864e9,
    "NVIDIA L40S data sheet, rates without sparsity",
    Interconnect(Link(30e9, 5e-6), Link(25e9, 5e-6), 2, "PCIe 4.0 x16 inside a node; two HDR ports between nodes"),
)
