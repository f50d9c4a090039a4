"""Projection of a distributed program onto its devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.text import attributes_text, tag_text, typed_text


@dataclass(frozen=True, slots=True)
class RankOp:
    """A device's part of one operation."""

    place: int
    """Index of the operation in the whole program. Ranks that share a communication meet at this index."""
    op: Op
    inputs: tuple[int, ...]
    """Inputs of the operation that the device holds."""
    outputs: tuple[int, ...]
    group: tuple[int, ...] = ()
    """Devices of a communication, senders before devices that only receive. Empty for other operations."""


@dataclass(frozen=True)
class RankProgram:
    """The part of a program that one device runs. Values keep their numbers and types."""

    rank: int
    """Device number."""
    program: Program
    inputs: tuple[int, ...]
    ops: tuple[RankOp, ...]
    outputs: tuple[int, ...]


def project(program: Program) -> dict[int, RankProgram]:
    """Return the program of each device.

    Every operation is in the program of each of its devices, and communications are in the same order on all of them.
    So devices that run their programs in order never wait for each other in a cycle.
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
    """Return the text of a device's program. It is like `program_text`, but communications name their group.

    The receiving end of a send is called `receive`.
    """
    return "\n".join(text for _, text in rank_lines(rank)) + "\n"


def rank_lines(rank: RankProgram) -> Iterator[tuple[int | None, str]]:
    """Yield the lines of `rank_text`, each with its operation's index in the whole program, or None."""
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
