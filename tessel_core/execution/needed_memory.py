"""Memory that the values of a program need, computed from their types."""

from __future__ import annotations

from collections import defaultdict

from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import WIDTHS, TensorType
from tessel_core.units import show_memory

Bytes = int


def needed_memory(program: Program, *, wide_bf16: bool = False) -> dict[int, Bytes]:
    """Return the peak bytes of values on each device when operations run in the program's order.

    Temporary memory inside operations is not counted. The types give a fixed number of rows per expert. In a run, it
    may differ. With `wide_bf16`, bf16 is stored as fp32.
    """
    now, most = defaultdict[int, int](int), dict.fromkeys(program.devices, 0)
    owner, holders = list(range(len(program.types))), [0] * len(program.types)
    left = list(program.uses)
    for value in program.outputs:
        left[value] += 1

    def size(of_type: TensorType) -> int:
        return of_type.elements * (4 if wide_bf16 and of_type.dtype == "bf16" else WIDTHS[of_type.dtype])

    def hold(value: int, kept_by: int) -> None:
        """Count `value` as a user of the memory of `kept_by`, which may be `value` itself."""
        root = owner[value] = owner[kept_by]
        holders[root] += 1
        if holders[root] == 1:
            device = program.types[root].device
            now[device] += size(program.types[root])
            most[device] = max(most[device], now[device])

    def drop(value: int) -> None:
        root = owner[value]
        holders[root] -= 1
        if not holders[root]:
            now[program.types[root].device] -= size(program.types[root])

    for value in program.inputs:
        hold(value, value)
    for op in program.ops:
        for value, root in zip(op.outputs, _memory_of(op), strict=True):
            hold(value, root)
        for value in op.inputs:
            left[value] -= 1
            if not left[value]:
                drop(value)
        for value in op.outputs:
            if not left[value]:
                drop(value)
    return most


def _memory_of(op: Op) -> tuple[int, ...]:
    """Return, for each output of an operation, the value whose memory it uses."""
    operator = find_operator(op.kind)
    if operator.in_place:
        return op.inputs[: len(op.outputs)]
    return (op.inputs[0],) * len(op.outputs) if operator.view else op.outputs


def check_memory(name: str, needed: Bytes, free: Bytes, what: str = "the machine") -> None:
    """Raise InputError if `needed` exceeds the free memory of `what`."""
    if needed > free:
        why = f"needs at least {show_memory(needed, 'B')}, and {what} has {show_memory(free, 'B')} free"
        raise InputError(name, f"{why}; take a smaller network, batch or format")
