"""List the values in a device's memory, one by one or summed by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.simulation.live_memory import workspace_of
from tessel_core.simulation.trace import Trace

GIVEN, CACHE, STATE, WORKSPACE = "weights and inputs", "KV cache", "optimizer state", "workspaces of operations"
_KIND_OF_PHASE = {"forward": "activations", "backward": "gradients", "weight": "gradients", "update": "updates"}
"""Kind of the values that operations of each phase compute."""
_UPDATE, _WRITE = "update", "write"
"""Phase of the optimizer, and the operator that writes into a cache."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A value that a device holds."""

    value: int
    name: str
    bytes: int
    op: int | None
    """Operation that computes the value. None for an input."""
    what: str
    """Kind of value: `GIVEN`, `CACHE`, `STATE`, `WORKSPACE`, activations, gradients, updates or other."""
    stage: int | None
    micro_batch: int | None


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """Memory of all values of one kind, stage and micro-batch."""

    what: str
    stage: int | None
    micro_batch: int | None
    bytes: int
    values: int

    @property
    def title(self) -> str:
        """Description, such as "activations, stage 1, micro-batch 3"."""
        stage = "" if self.stage is None else f", stage {self.stage}"
        return self.what + stage + ("" if self.micro_batch is None else f", micro-batch {self.micro_batch}")


def peak_time(trace: Trace, device: int) -> float:
    """Return the time, in seconds, at which a device first reaches its peak memory."""
    steps = _steps_of(trace, device)
    return float(trace.memory_time[steps[trace.memory_bytes[steps].argmax()]]) if len(steps) else 0.0


def holdings(trace: Trace, device: int, time: float | None = None) -> tuple[Holding, ...]:
    """Return the values that a device holds, largest first.

    The time is that of the device's peak, or `time` in seconds. All memory steps at exactly this time are included.
    Raises InputError for a device that the program does not use.
    """
    steps = _steps_of(trace, device)
    if time is None:
        steps = steps[: trace.memory_bytes[steps].argmax() + 1] if len(steps) else steps
    else:
        steps = steps[: np.searchsorted(trace.memory_time[steps], time, side="right")]
    moved = trace.memory_value[steps]
    held = np.setdiff1d(moved[moved >= 0], -1 - moved[moved < 0])
    special = _special_inputs(trace.program)
    found = [_holding(trace, value, special) for value in held.tolist()]
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.value)))


def memory_shares(trace: Trace, device: int) -> tuple[MemoryShare, ...]:
    """Return the values that a device holds at its peak, summed by kind, stage and micro-batch, largest first."""
    held = holdings(trace, device)
    return _summed(MemoryShare(each.what, each.stage, each.micro_batch, each.bytes, 1) for each in held)


def memory_parts(trace: Trace, device: int) -> dict[str, int]:
    """Return the bytes that a device holds at its peak, by kind of value, largest first."""
    shares: dict[str, int] = {}
    for each in memory_shares(trace, device):
        shares[each.what] = shares.get(each.what, 0) + each.bytes
    return dict(sorted(shares.items(), key=lambda each: -each[1]))


def over_micro_batches(shares: Sequence[MemoryShare]) -> tuple[MemoryShare, ...]:
    """Return the shares summed over micro-batches, largest first."""
    return _summed(replace(each, micro_batch=None) for each in shares)


def _summed(shares: Iterable[MemoryShare]) -> tuple[MemoryShare, ...]:
    sizes: dict[tuple[str, int | None, int | None], list[int]] = defaultdict(lambda: [0, 0])
    for each in shares:
        total = sizes[each.what, each.stage, each.micro_batch]
        total[0] += each.bytes
        total[1] += each.values
    found = (MemoryShare(*group, *total) for group, total in sizes.items())
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.title)))


def _steps_of(trace: Trace, device: int) -> NDArray[np.int64]:
    if device not in trace.devices:
        known = ", ".join(map(str, trace.devices))
        raise InputError(f"device {device}", f"is not used by program {trace.program.name}, which uses {known}")
    return np.flatnonzero(trace.memory_device == device)


@lru_cache(maxsize=8)
def _special_inputs(program: Program) -> dict[int, str]:
    """Return the kind of each input that is neither a weight nor a sample.

    Such inputs are caches, which layers write, and state, which only the optimizer uses.
    """
    found: dict[int, str] = {}
    computes = set[int]()
    for op in program.ops:
        changed = op.inputs[: len(op.outputs)] if find_operator(op.kind).in_place else ()
        if op.tag.phase == _UPDATE:
            found.update(dict.fromkeys(changed, STATE))
        else:
            computes.update(op.inputs)
            if op.kind == _WRITE:
                found.update(dict.fromkeys(changed, CACHE))
    return {value: what for value, what in found.items() if what == CACHE or value not in computes}


def _holding(trace: Trace, value: int, special: Mapping[int, str]) -> Holding:
    program, behind = trace.program, value - len(trace.program.types)
    if behind >= 0:
        held = program.ops[behind]
        name, size = f"workspace of {held.tag.name or held.kind}", workspace_of(program, held)
        return Holding(value, name, size, behind, WORKSPACE, held.tag.stage, held.tag.micro_batch)
    op = int(trace.made_by[value])
    name, size = program.value_name(value), program.types[value].bytes
    if op < 0:
        return Holding(value, name, size, None, special.get(value, GIVEN), None, None)
    tag = program.ops[op].tag
    return Holding(value, name, size, op, _KIND_OF_PHASE.get(tag.phase, "other"), tag.stage, tag.micro_batch)
