"""Rules for the work of operations: FLOPs, and bytes moved between memory and processor."""

from __future__ import annotations

from tessel_core.ir.operators.operator import Types, Values, Work, WorkRule


def moved(types: Types, outputs: Types) -> float:
    """Return the total bytes of all inputs and outputs."""
    return float(sum(each.bytes for each in (*types, *outputs)))


def elementwise_work(flops: float = 1.0) -> WorkRule:
    """Return a work rule: `flops` FLOPs per element of the first output.

    Each input is read and each output written once.
    """
    return lambda types, outputs, values: Work(flops * outputs[0].elements, moved(types, outputs))


def read_work(flops: float) -> WorkRule:
    """Return a work rule: `flops` FLOPs per element of the first input.

    Each input is read and each output written once.
    """
    return lambda types, outputs, values: Work(flops * types[0].elements, moved(types, outputs))


def no_work(types: Types, outputs: Types, values: Values) -> Work:
    """Work rule: nothing to compute, nothing moved."""
    return Work()


def copying_part(types: Types, outputs: Types, values: Values) -> Work:
    """Work rule: no FLOPs. The bytes of the output are read and written."""
    return Work(0.0, moved(outputs, outputs))


def copying(types: Types, outputs: Types, values: Values) -> Work:
    """Work rule: no FLOPs. Inputs are read and outputs are written once."""
    return Work(0.0, moved(types, outputs))
