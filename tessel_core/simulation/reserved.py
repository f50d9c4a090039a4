"""Memory that PyTorch's caching allocator reserves on a device. It is more than the memory in use."""

from __future__ import annotations

import numpy as np

from tessel_core.ir.transforms.expansion import DATA, EXPERT_DATA, REPLICAS, over_of
from tessel_core.simulation.trace import Trace

_COMPUTE, _GATHERING, _SCATTERING = range(3)
_POOL_OF = {"allgather": _GATHERING, "reduce_scatter": _SCATTERING}
"""Allocator pools for the outputs of FSDP's collectives. All other values are allocated on the compute stream."""


def reserved_bytes(trace: Trace) -> tuple[int, ...]:
    """Return an estimate of `torch.cuda.max_memory_reserved` of each device in bytes, without fragmentation.

    The allocator has one pool of memory per stream. Pools do not share memory, so each one keeps the most memory that
    it ever held [PyTorch, c10/cuda/CUDACachingAllocator.cpp]. FSDP gathers weights and scatters gradients into buffers
    of separate streams [PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py]. Outputs of all other
    operations belong to the compute stream.
    """
    program = trace.program
    of_value = np.zeros(len(program.types) + len(program.ops), np.int64)
    for op in program.ops:
        if op.kind in _POOL_OF and over_of(op.attributes) in (DATA, REPLICAS, EXPERT_DATA):
            of_value[list(op.outputs)] = _POOL_OF[op.kind]
    pool = of_value[np.where(trace.memory_value < 0, -1 - trace.memory_value, trace.memory_value)]
    found = []
    for device in trace.devices:
        here = trace.memory_device == device
        change = np.diff(trace.memory_bytes[here], prepend=0)
        found.append(sum(int(np.cumsum(change * (pool[here] == each)).max(initial=0)) for each in range(3)))
    return tuple(found)
