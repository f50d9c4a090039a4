"""Split a distributed program into one program per device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.text import attributes_text, tag_text, typed_text


@dataclass(frozen=True, slots=True)
class RankOp:
    """The part of an operation that one device runs."""

    place: int
    """Index of the operation in the whole program. All ranks of a communication have the same index."""
    op: Op
    inputs: tuple[int, ...]
    """Inputs of the operation that this device holds."""
    outputs: tuple[int, ...]
    group: tuple[int, ...] = ()
    """Devices of a communication. Devices that only receive come last. Empty for other operations."""


@dataclass(frozen=True)
class RankProgram:
    """The part of a program that one device runs. Values have the same numbers and types as in the whole program."""

    rank: int
    """Device number."""
    program: Program
    inputs: tuple[int, ...]
    ops: tuple[RankOp, ...]
    outputs: tuple[int, ...]


def project(program: Program) -> dict[int, RankProgram]:
    """Return the program of each device.

    An operation is part of the program of each device that takes part in it. All devices have their communications in
    the same order, so devices that run their programs in order cannot deadlock.
    """
    ops: dict[int, list[RankOp]] = defaultdict(list)
    for place, op in enumerate(program.ops):
        devices = program.devices_of(op)
        group = devices if find_operator(op.kind).pattern else ()
        for device in devices:
            inputs, outputs = _on(program, op.inputs, device), _on(program, op.outputs, device)
            ops[device].append(RankOp(place, op, inputs, outputs, group))
    return {
        device: RankProgram(
            device,
            program,
            _on(program, program.inputs, device),
            tuple(ops[device]),
            _on(program, program.outputs, device),
        )
        for device in program.devices
    }


def _on(program: Program, values: tuple[int, ...], device: int) -> tuple[int, ...]:
    return tuple(value for value in values if program.types[value].device == device)


def rank_text(rank: RankProgram) -> str:
    """Return the text of a device's program.

    The format is that of `program_text`, except that communications also name their group, and the receiving side of a
    send is called `receive`.
    """
    return "\n".join(text for _, text in rank_lines(rank)) + "\n"


def rank_lines(rank: RankProgram) -> Iterator[tuple[int | None, str]]:
    """Yield the lines of `rank_text`, each with its operation's index in the whole program or None."""
    program = rank.program
    yield None, f"program {program.name} rank {rank.rank}"
    yield from ((None, typed_text(program, value)) for value in rank.inputs)
    for each in rank.ops:
        op = each.op
        made = ", ".join(typed_text(program, value) for value in each.outputs)
        taken = ", ".join(f"%{program.value_name(value)}" for value in each.inputs)
        kind = "receive" if op.kind == "send" and not each.inputs else op.kind
        group = f" among {' '.join(map(str, each.group))}" if each.group else ""
        line = f"{made} = {kind}({taken})" if made else f"{kind}({taken})"
        yield each.place, line + attributes_text(op.attributes) + group + tag_text(op.tag)
    yield None, f"return {', '.join(f'%{program.value_name(value)}' for value in rank.outputs)}".rstrip()
