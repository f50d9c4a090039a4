"""Whether a program is well-formed, and what is wrong where."""

from __future__ import annotations

from collections.abc import Iterator

from tessel_core.errors import InputError
from tessel_core.ir.operators import inferred
from tessel_core.ir.program import Op, Program


def verify(program: Program) -> None:
    """Raise InputError, naming the operation, for the first thing that is wrong.

    Every value is made once, before it is taken (so there is no circle); every operation is known and its outputs
    have the types that follow from its inputs.
    """
    made, sound, types = set[int](), set[object](), program.types
    for value in program.inputs:
        _make(program, made, value)
    for i, op in enumerate(program.ops):
        if not made.issuperset(op.inputs):
            value = next(value for value in op.inputs if value not in made)
            later = any(value in each.outputs for each in program.ops[i:])
            what = "before it is made" if later else "which nothing makes"
            raise InputError(_place(i, op), f"takes %{program.value_name(value)} {what}")
        for value in op.outputs:
            _make(program, made, value, i)
        # Equal types are mostly one object, so operations that are alike are inferred once.
        key = (op.kind, op.attributes, len(op.inputs), *[id(types[value]) for value in op.inputs + op.outputs])
        if key not in sound:
            _check_types(program, op, _place(i, op))
            sound.add(key)
    for value in program.outputs:
        if value not in made:
            raise InputError("outputs", f"names %{program.value_name(value)}, which nothing makes")
    unmade = next((value for value in range(len(program.types)) if value not in made), None)
    if unmade is not None:
        raise InputError("types", f"name %{program.value_name(unmade)}, which nothing makes")


def _place(number: int, op: Op) -> str:
    return f"operation {number} ({op.kind})"


def _make(program: Program, made: set[int], value: int, number: int = -1) -> None:
    """Note that a value is made, by the operation of that number or as an input."""
    if value not in made and 0 <= value < len(program.types):
        made.add(value)
        return
    what = f"%{program.value_name(value)} a second time" if value in made else f"value {value}, which has no type"
    raise InputError("inputs" if number < 0 else _place(number, program.ops[number]), f"makes {what}")


def _check_types(program: Program, op: Op, where: str) -> None:
    try:
        wanted = inferred(op.kind, program.types_of(op.inputs), op.attributes)
    except InputError as error:
        raise InputError(where, error.why) from None
    found = program.types_of(op.outputs)
    if found != wanted:
        shown = ", ".join(map(str, found)), ", ".join(map(str, wanted))
        raise InputError(where, f"makes {shown[0] or 'nothing'}, from its inputs it makes {shown[1] or 'nothing'}")


def unfreed(program: Program) -> Iterator[int]:
    """Values that nothing takes and that are no output: what they hold is never freed."""
    outputs = set(program.outputs)
    for op in program.ops:
        for value in op.outputs:
            if not program.uses[value] and value not in outputs:
                yield value
