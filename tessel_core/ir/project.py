"""Projection: what each device has to run of a distributed program, in its order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.text import attributes_text, tag_text, typed_text


@dataclass(frozen=True, slots=True)
class RankOp:
    """A device's share of an operation."""

    place: int
    """The operation's place in the whole program, where ranks that share one meet."""
    op: Op
    inputs: tuple[int, ...]
    """The operation's inputs that lie on the device."""
    outputs: tuple[int, ...]
    group: tuple[int, ...] = ()
    """The devices of a communication, those that give before those that only take; empty otherwise."""


@dataclass(frozen=True)
class RankProgram:
    """One device's share of a program; values have the numbers and types that they have in the whole."""

    rank: int
    """The device."""
    program: Program
    inputs: tuple[int, ...]
    ops: tuple[RankOp, ...]
    outputs: tuple[int, ...]


def project(program: Program) -> dict[int, RankProgram]:
    """Per device, its program.

    Every operation is in the program of each of its devices, communications in one order on all of them, so devices
    that run their programs in order never wait for each other in a circle.
    """
    ops: dict[int, list[RankOp]] = defaultdict(list)
    for place, op in enumerate(program.ops):
        devices = program.devices_of(op)
        group = devices if find_operator(op.kind).pattern else ()
        for device in devices:
            mine = _on(program, op.inputs, device), _on(program, op.outputs, device)
            ops[device].append(RankOp(place, op, *mine, group))
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
    """The device's program for people, as `program_text` but for communications, which name their group.

    The receiving end of a send is called `receive`.
    """
    return "\n".join(text for _, text in rank_lines(rank)) + "\n"


def rank_lines(rank: RankProgram) -> Iterator[tuple[int | None, str]]:
    """The lines of `rank_text`, each with the place of its operation in the whole program; None where it is none."""
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
