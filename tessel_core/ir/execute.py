"""Reference execution of a program in NumPy. One process runs the operations of all devices in program order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.arrays import NUMPY_TYPES
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Op, Program


def execute(
    program: Program, given: Mapping[int, Array], before_each: Callable[[Op], None] = lambda op: None
) -> tuple[Array, ...]:
    """Run a program and return its outputs. `arrays` holds one array for each program input, by value number.

    `before_each` is called with every operation before it runs. It may raise an exception to stop the run. Raises
    InputError if an input is missing or its shape differs from its type.
    """
    known: dict[int, Array] = {}
    for value in program.inputs:
        name = f"%{program.value_name(value)}"
        if value not in given:
            raise InputError("inputs", f"{name} is missing")
        array, wanted = np.asarray(given[value]), program.types[value]
        if array.shape != wanted.shape:
            raise InputError("inputs", f"{name} must have shape {wanted.shape}, got {array.shape}")
        known[value] = array.astype(NUMPY_TYPES[wanted.dtype])
    left, kept = list(program.uses), set(program.outputs)
    for op in program.ops:
        before_each(op)
        arrays = [known[value] for value in op.inputs]
        made = find_operator(op.kind).compute(arrays, dict(op.attributes))
        known.update(zip(op.outputs, made, strict=True))
        for value in op.inputs:
            left[value] -= 1
            if not left[value] and value not in kept:
                known.pop(value, None)
    return tuple(known[value] for value in program.outputs)
