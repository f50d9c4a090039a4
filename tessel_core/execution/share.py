"""The part of a program that each rank receives (its share), and the result that the rank returns."""

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
"""Name of the output that training minimizes."""
_GROUP_PATTERNS = ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast")
"""Communication patterns that use a process group.  The others use sends and receives."""


class Run(NamedTuple):
    """One block of a plan for one micro-batch."""

    block: int
    micro_batch: int
    text: str
    """Text for messages, such as "F0 #3"."""
    ranks: tuple[int, ...]
    """Ranks on which the block runs. They start at the same time."""


class Span(NamedTuple):
    """A run, and the range of its operations in the rank's program."""

    run: Run
    first: int
    end: int


class Timed(NamedTuple):
    """Start and end of a run on one rank, in nanoseconds since the common start of all ranks."""

    block: int
    micro_batch: int
    start: int
    end: int


@dataclass(frozen=True)
class Share:
    """One device's part of a program, with the data that its rank needs to run it."""

    program: RankProgram
    """Operations of this device.  The whole program in its field `program` contains only types."""
    pieces: Mapping[int, Piece]
    """Piece of an undistributed tensor for each input value."""
    inputs: SeededInputs
    steps: int
    rank_of: Mapping[int, int]
    """Rank of each device."""
    groups: tuple[tuple[int, ...], ...]
    """Process groups that some operation of any rank needs, as tuples of ranks."""
    carried: Mapping[int, int]
    """Output values that are inputs of the next step, each with its input value."""
    own_outputs: Mapping[int, Piece]
    """Output values that no device before this one has."""
    needs: int
    """Lower bound on the peak bytes of its values."""
    kept: Mapping[int, Piece]
    """Output values whose numbers are returned at the end."""
    spans: tuple[Span, ...] | None = None
    """Timed runs in order; None if the program does not come from a schedule."""
    stand_ins: StandIns | None = None
    """How the blocks of a plan behave. None if blocks return zeros at once."""


class StepNews(NamedTuple):
    """Message of a rank at the end of a step."""

    step: int
    """Number of the step, from 0."""
    start_s: float
    """Seconds on the machine's monotonic clock, which all ranks share."""
    end_s: float
    loss: float
    """Sum of the losses on this rank."""


class RankResult(NamedTuple):
    """Result of a rank."""

    steps: tuple[StepNews, ...]
    peak_memory: int
    """Peak bytes of values; on a GPU, the peak of all allocated memory."""
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
    """Return the share of each device, in order.

    Parameters
    ----------
    model : Distributed
        The program, spread over devices.
    inputs : SeededInputs
        Inputs of the undistributed network.
    steps : int
        Number of steps to run.
    needs : Mapping
        Lower bound on the peak bytes of each device's values.
    kept : Mapping
        Output values whose numbers are returned at the end.
    runs : Sequence
        For the program of a schedule, the run to which each operation belongs.
    stand_ins : StandIns
        Behaviour of the blocks of a plan.
    """
    program = model.program
    rank_of = {device: rank for rank, device in enumerate(program.devices)}
    carried, own_outputs = carried_values(model) if steps > 1 else {}, distinct_outputs(model)
    groups = dict.fromkeys(run.ranks for run in runs or () if run is not None)
    for op in program.ops:
        if find_operator(op.kind).pattern in _GROUP_PATTERNS:
            groups[tuple(sorted(rank_of[device] for device in program.devices_of(op)))] = None
    types = replace(program, ops=(), names={})
    shares = list[Share]()
    for device, part in project(program).items():
        pieces = {value: model.piece_of[value] for value in part.inputs}
        outputs = set(part.outputs)
        shares.append(
            Share(
                replace(part, program=types),
                pieces,
                inputs.some(piece.name for piece in pieces.values()),
                steps,
                rank_of,
                tuple(group for group in groups if len(group) > 1),
                {made: given for made, given in carried.items() if made in outputs},
                {value: piece for value, piece in own_outputs.items() if value in outputs},
                needs[device],
                {value: piece for value, piece in kept.items() if value in outputs},
                None if runs is None else tuple(_spans(part, runs)),
                stand_ins,
            )
        )
    return shares


def _spans(program: RankProgram, runs: Sequence[Run | None]) -> Iterator[Span]:
    """Yield a `Span` for each run: the range of its operations in a rank's program."""
    first = 0
    for run, ops in groupby(program.ops, key=lambda each: runs[each.place]):
        end = first + sum(1 for _ in ops)
        if run is not None:
            yield Span(run, first, end)
        first = end


def with_receives_ahead(ops: Sequence[RankOp], spans: Sequence[Span], runs: int) -> tuple[list[RankOp], list[Span]]:
    """Move each receive up to `runs` runs earlier.  Returns the new operations and their spans.

    Receives keep their order.
    """
    reordered, moved = list[RankOp](), list[Span]()
    bounds = zip([0, *(span.end for span in spans)], [*(span.first for span in spans), len(ops)], strict=True)
    between = [ops[first:end] for first, end in bounds]
    early = [list[RankOp]() for _ in between]
    for i, some in enumerate(between):
        early[max(0, i - runs)] += filter(_is_receive, some)
    for i, some in enumerate(between):
        reordered += [each for each in some if not _is_receive(each)] + early[i]
        if i < len(spans):
            span, first = spans[i], len(reordered)
            reordered += ops[span.first : span.end]
            moved.append(span._replace(first=first, end=len(reordered)))
    return reordered, moved


def _is_receive(each: RankOp) -> bool:
    return each.op.kind in ("send", "delay") and not each.inputs


def carried_values(model: Distributed) -> dict[int, int]:
    """Return the outputs that replace an input in the next step, such as updated weights.

    Keys are output values, and entries are the input values that they replace.

    Raises InputError if a device uses an input that is updated only on other devices.
    """
    program = model.program
    given = {(piece, program.types[value].device): value for value, piece in model.piece_of.items()}
    carried, changed = dict[int, int](), set[str]()
    for value, piece in zip(program.outputs, model.outputs, strict=True):
        before = given.get((piece, program.types[value].device))
        if before is not None:
            carried[value] = before
            changed.add(piece.name)
    stale = given.keys() - {(model.piece_of[value], program.types[value].device) for value in carried.values()}
    for piece, device in stale:
        if piece.name in changed:
            raise InputError(piece.name, f"is used on device {device} and changed elsewhere, so no second step can run")
    return carried


def distinct_outputs(model: Distributed) -> dict[int, Piece]:
    """Return the piece of each output value.  If several values hold one piece, only the first is included."""
    value_of = dict[Piece, int]()
    for value, piece in zip(model.program.outputs, model.outputs, strict=True):
        value_of.setdefault(piece, value)
    return {value: piece for piece, value in value_of.items()}


def why_not_executable(program: Program, lacking: frozenset[str]) -> str:
    """Return the reason why an engine that lacks the number formats `lacking` cannot execute a program.

    Empty if it can.
    """
    opaque = next((op for op in program.ops if op.kind == "opaque"), None)
    if opaque is not None:
        name = dict(opaque.attributes)["operator"]
        return f"has operator {name}, which is known by its costs only, so the program cannot be executed"
    value = next((value for value, each in enumerate(program.types) if each.dtype in lacking), None)
    if value is not None:
        what = f"%{program.value_name(value)} is {program.types[value].dtype}"
        return f"cannot run on PyTorch, which has no arithmetic in that format: {what}; --engine numpy runs it"
    return ""
