"""Whether what devices hold at most fits their memory."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.model import DeviceMesh
from tessel_core.simulation.trace import Trace
from tessel_core.units import show_memory


def worker_peaks(trace: Trace) -> tuple[int, ...]:
    """Bytes that workers 1, 2 … hold at most; 0 for one that the program leaves out."""
    held = dict(zip(trace.devices, trace.peak_memory, strict=True))
    return tuple(held.get(worker, 0) for worker in range(1, max(held, default=0) + 1))


def shortage(peaks: Sequence[int], mesh: DeviceMesh) -> str:
    """By how much the first device whose memory does not do is short of it; empty where all do.

    `peaks` are those of the mesh's first devices, in order.
    """
    for device, peak in zip(mesh.devices, peaks, strict=False):
        if device.memory_capacity is not None and peak > device.memory_capacity:
            missing, held = show_memory(peak - device.memory_capacity, "B"), show_memory(peak, "B")
            return f"the memory of {device.name} is {missing} short of the {held} that it has to hold"
    return ""
