"""What a simulation says: when every operation ran, and what every device held."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.program import Program


@dataclass(frozen=True)
class Trace:
    """Events as columns: event i is operation `op[i]` on device `device[i]` from `start[i]` for `seconds[i]`.

    Live memory as steps: from `memory_time[j]` on, device `memory_device[j]` holds `memory_bytes[j]`; steps of one
    device come in order.
    """

    program: Program
    devices: tuple[int, ...]
    """Workers that the program uses, in order; the host is left out."""
    op: NDArray[np.int32]
    device: NDArray[np.int32]
    start: NDArray[np.float64]
    seconds: NDArray[np.float64]
    device_end: tuple[float, ...]
    """Seconds, per device of `devices`."""
    peak_memory: tuple[int, ...]
    """Bytes, per device of `devices`."""
    memory_device: NDArray[np.int32]
    memory_time: NDArray[np.float64]
    memory_bytes: NDArray[np.int64]

    @cached_property
    def latency(self) -> float:
        """Seconds until the last device is done."""
        return max(self.device_end, default=0.0)

    @property
    def events(self) -> int:
        """How many there are; an operation is one on each of its devices."""
        return len(self.op)
