"""What each rank is handed of a program, and what it comes back with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from tessel_core.errors import InputError
from tessel_core.execution.inputs import SeededInputs
from tessel_core.execution.stand_ins import StandIns
from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Program
from tessel_core.ir.project import RankOp, RankProgram, project

LOSS = "loss"
"""The name of the output that training makes less."""
_ALL_TOGETHER = ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast")
"""Patterns in which a whole group acts as one; the others are sends and receives."""


class Run(NamedTuple):
    """A run of a block of a plan."""

    block: int
    micro_batch: int
    text: str
    """What people call it: "F0 #3"."""
    ranks: tuple[int, ...]
    """Those that it runs on, which begin it together."""


class Span(NamedTuple):
    """Operations of a rank that are one run, by their places in its program."""

    run: Run
    first: int
    end: int


class Timed(NamedTuple):
    """A run of a block on one rank, in nanoseconds since the common start of all ranks."""

    block: int
    micro_batch: int
    start: int
    end: int


@dataclass(frozen=True)
class Share:
    """A device's part of a run."""

    program: RankProgram
    """Its `program` has types and no operations."""
    pieces: Mapping[int, Piece]
    """Per input value."""
    inputs: SeededInputs
    steps: int
    rank_of: Mapping[int, int]
    """Per device, the number of its rank."""
    groups: tuple[tuple[int, ...], ...]
    """Ranks of which some operation needs a group, of all shares."""
    carried: Mapping[int, int]
    """Per output value that the next step begins with, the input value that it is then."""
    told: Mapping[int, Piece]
    """Output values that no earlier device has as well."""
    needs: int
    """Bytes that its values take at a time, at least."""
    kept: Mapping[int, Piece]
    """Output values whose numbers are wanted at the end."""
    spans: tuple[Span, ...] | None = None
    """Runs that are timed, in order; None of a program that is not a schedule's."""
    stand_ins: StandIns | None = None
    """What the blocks of a plan do; None where they are zeros that take no time."""


class StepNews(NamedTuple):
    """What a rank tells at the end of a step."""

    step: int
    """From 0."""
    start_s: float
    """By the machine's clock, which all ranks share."""
    end_s: float
    loss: float
    """The sum of its part of the losses."""


class RankResult(NamedTuple):
    """What a rank comes back with."""

    steps: tuple[StepNews, ...]
    peak_memory: int
    """Most bytes of values at a time; on a GPU, of all that was allocated."""
    values: list[tuple[Piece, Array]]
    runs: tuple[Timed, ...]


def shares_of(
    model: Distributed,
    inputs: SeededInputs,
    steps: int,
    needs: Mapping[int, int],
    *,
    kept: Mapping[int, Piece],
    runs: Sequence[Run | None] | None = None,
    stand_ins: StandIns | None = None,
) -> list[Share]:
    """One for each device, in order.

    needs
        The bytes that each device's values take.
    runs
        Of a schedule's program, per operation the run that it belongs to.
    """
    program = model.program
    rank_of = {device: rank for rank, device in enumerate(program.devices)}
    carried, told = carried_values(model) if steps > 1 else {}, distinct_outputs(model)
    groups = dict.fromkeys(run.ranks for run in runs or () if run is not None)
    for op in program.ops:
        if find_operator(op.kind).pattern in _ALL_TOGETHER:
            groups[tuple(sorted(rank_of[device] for device in program.devices_of(op)))] = None
    types = replace(program, ops=(), names={})
    found = list[Share]()
    for device, mine in project(program).items():
        pieces = {value: model.piece_of[value] for value in mine.inputs}
        outputs = set(mine.outputs)
        found.append(
            Share(
                replace(mine, program=types),
                pieces,
                inputs.some(piece.name for piece in pieces.values()),
                steps,
                rank_of,
                tuple(group for group in groups if len(group) > 1),
                {made: given for made, given in carried.items() if made in outputs},
                {value: piece for value, piece in told.items() if value in outputs},
                needs[device],
                {value: piece for value, piece in kept.items() if value in outputs},
                None if runs is None else tuple(_spans(mine, runs)),
                stand_ins,
            )
        )
    return found


def _spans(program: RankProgram, runs: Sequence[Run | None]) -> Iterator[Span]:
    """The operations of a rank by the runs that they belong to."""
    first = 0
    for run, ops in groupby(program.ops, key=lambda each: runs[each.place]):
        end = first + sum(1 for _ in ops)
        if run is not None:
            yield Span(run, first, end)
        first = end


def with_receives_ahead(ops: Sequence[RankOp], spans: Sequence[Span], runs: int) -> tuple[list[RankOp], list[Span]]:
    """A rank's operations with each receive so many runs earlier, in the order that receives have."""
    found, moved = list[RankOp](), list[Span]()
    bounds = zip([0, *(span.end for span in spans)], [*(span.first for span in spans), len(ops)], strict=True)
    between = [ops[first:end] for first, end in bounds]
    early = [list[RankOp]() for _ in between]
    for i, some in enumerate(between):
        early[max(0, i - runs)] += filter(_is_receive, some)
    for i, some in enumerate(between):
        found += [each for each in some if not _is_receive(each)] + early[i]
        if i < len(spans):
            span, first = spans[i], len(found)
            found += ops[span.first : span.end]
            moved.append(span._replace(first=first, end=len(found)))
    return found, moved


def _is_receive(each: RankOp) -> bool:
    return each.op.kind in ("send", "delay") and not each.inputs


def carried_values(model: Distributed) -> dict[int, int]:
    """Per output that is an input changed, such as a weight after the optimizer's step, the input on the same device.

    Raises InputError where a device has an input of which only others have the changed one.
    """
    program = model.program
    given = {(piece, program.types[value].device): value for value, piece in model.piece_of.items()}
    found, changed = dict[int, int](), set[str]()
    for value, piece in zip(program.outputs, model.outputs, strict=True):
        before = given.get((piece, program.types[value].device))
        if before is not None:
            found[value] = before
            changed.add(piece.name)
    stale = given.keys() - {(model.piece_of[value], program.types[value].device) for value in found.values()}
    for piece, device in stale:
        if piece.name in changed:
            raise InputError(piece.name, f"is used on device {device} and changed elsewhere, so no second step can run")
    return found


def distinct_outputs(model: Distributed) -> dict[int, Piece]:
    """Per output value its piece, each piece once."""
    found = dict[Piece, int]()
    for value, piece in zip(model.program.outputs, model.outputs, strict=True):
        found.setdefault(piece, value)
    return {value: piece for piece, value in found.items()}


def why_not_executable(program: Program, lacking: frozenset[str]) -> str:
    """What of a program cannot be executed by an engine that lacks some formats, as one sentence; else nothing."""
    opaque = next((op for op in program.ops if op.kind == "opaque"), None)
    if opaque is not None:
        name = dict(opaque.attributes)["operator"]
        return f"has operator {name}, which is known by its costs only, so the program cannot be executed"
    value = next((value for value, each in enumerate(program.types) if each.dtype in lacking), None)
    if value is not None:
        what = f"%{program.value_name(value)} is {program.types[value].dtype}"
        return f"cannot run on PyTorch, which has no arithmetic in that format: {what}; --engine numpy runs it"
    return ""
