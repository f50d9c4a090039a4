"""Checks that a program is well-formed."""

from __future__ import annotations

from collections.abc import Iterator

from tessel_core.errors import InputError
from tessel_core.ir.operators import inferred
from tessel_core.ir.program import Op, Program


def verify(program: Program) -> None:
    """Raise InputError at the first error, with the name of the operation.

    Every value must be defined exactly once, before its first use, so there are no cycles. Every operator must be
    known. The types of its outputs must be those that its inputs imply.
    """
    defined, sound, types = set[int](), set[object](), program.types
    for value in program.inputs:
        _define(program, defined, value)
    for i, op in enumerate(program.ops):
        if not defined.issuperset(op.inputs):
            value = next(value for value in op.inputs if value not in defined)
            later = any(value in each.outputs for each in program.ops[i:])
            name = program.value_name(value)
            why = f"uses %{name} before it is defined" if later else f"uses the undefined value %{name}"
            raise InputError(_place(i, op), why)
        for value in op.outputs:
            _define(program, defined, value, i)
        # Equal types are usually the same object, so a cache infers equal operations only once.
        key = (op.kind, op.attributes, len(op.inputs), *[id(types[value]) for value in op.inputs + op.outputs])
        if key not in sound:
            _check_types(program, op, _place(i, op))
            sound.add(key)
    for value in program.outputs:
        if value not in defined:
            raise InputError("outputs", f"include the undefined value %{program.value_name(value)}")
    undefined = next((value for value in range(len(program.types)) if value not in defined), None)
    if undefined is not None:
        raise InputError("types", f"include %{program.value_name(undefined)}, which no operation defines")


def _place(number: int, op: Op) -> str:
    return f"operation {number} ({op.kind})"


def _define(program: Program, defined: set[int], value: int, number: int = -1) -> None:
    """Record that operation `number` defines the value. `number` is -1 for program inputs."""
    if value not in defined and 0 <= value < len(program.types):
        defined.add(value)
        return
    what = f"%{program.value_name(value)} a second time" if value in defined else f"value {value}, which has no type"
    raise InputError("inputs" if number < 0 else _place(number, program.ops[number]), f"defines {what}")


def _check_types(program: Program, op: Op, where: str) -> None:
    try:
        wanted = inferred(op.kind, program.types_of(op.inputs), op.attributes)
    except InputError as error:
        raise InputError(where, error.why) from None
    found = program.types_of(op.outputs)
    if found != wanted:
        shown = ", ".join(map(str, found)), ", ".join(map(str, wanted))
        raise InputError(where, f"outputs {shown[0] or 'nothing'}, but its inputs imply {shown[1] or 'nothing'}")


def unfreed(program: Program) -> Iterator[int]:
    """Yield the values that no operation uses and that are no output. Nothing ever frees their memory."""
    outputs = set(program.outputs)
    for op in program.ops:
        for value in op.outputs:
            if not program.uses[value] and value not in outputs:
                yield value
