"""Convert PyTorch pipelining schedules. Their plan is a chain of stages, and each rank runs its actions in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import COMPUTING, PyTorchCsv, StageAction, cell_place
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.model.schedule import IntColumn, check_size

ASSUMED = "durations are assumed: a forward lasts 1 step, a backward 2, each of its halves 1; a forward holds 1 slot"
"""Note on schedules that were read from a file without durations."""

_STEPS = {"F": 1, "B": 2, "I": 1, "W": 1}


class Work(NamedTuple):
    """An action that computes (forward or backward) on a stage."""

    where: str
    """Place in the file, for messages."""
    action: StageAction
    begins: int = 0
    """Earliest start in the time unit of the durations."""


def csv_schedule(file: PyTorchCsv) -> Schedule:
    """Convert a file to a schedule with the `ASSUMED` durations; each run starts as early as possible.

    Sends and receives are left out.  An overlapped pair becomes a forward followed by a backward.

    Raises InputError for missing stages or actions, and, with row and column from 1, for a cell that waits for a later
    one.
    """
    rows = [
        [
            Work(f"{cell_place(row, column)}: cell '{action}'", action)
            for column, cell in enumerate(cells)
            for action in cell.actions
            if action.kind in COMPUTING
        ]
        for row, cells in enumerate(file.rows)
    ]
    return chain_schedule("pytorch-schedule", rows, lambda stage, kind: _STEPS[kind], "step")


def chain_schedule(name: str, rows: Sequence[Sequence[Work]], lasts: Callable[[int, str], int], unit: str) -> Schedule:
    """Build the schedule of a chain of stages from the actions of each rank; each starts as early as possible.

    Blocks are called F0 and B0, and W0 for a weight gradient that is split from its backward.  If only some
    micro-batches of a stage have a split backward, the others run B0 and W0 in sequence.  A forward holds one slot
    until its last backward block ends.

    Parameters
    ----------
    name : str
        Name of the plan.
    rows : Sequence
        Actions of each rank in order.
    lasts : Callable
        Returns the duration of a stage for an action F, B, I or W.
    unit : str
        Time unit of the durations.

    Raises
    ------
    InputError
        If stages or actions are missing, or an action waits for a later one.
    """
    chain = _Chain.of(rows)
    plan = _plan(name, chain, lasts, unit)
    check_size(plan, chain.micro_batches, "the file")
    turns = [list(_runs(plan, chain, row)) for row in rows]
    return Schedule.from_starts(plan, _starts(plan, chain.micro_batches, turns))


class _Chain(NamedTuple):
    """The chain of stages in a file, with the rank of each."""

    rank_of: tuple[int, ...]
    """Rank of each stage."""
    halves: tuple[bool, ...]
    """For each stage, whether some of its backward actions are split into input and weight gradients."""
    ranks: int
    micro_batches: int
    trains: bool

    @classmethod
    def of(cls, rows: Sequence[Sequence[Work]]) -> _Chain:
        """Find the stages of the actions.  Raises InputError if a stage or an action is missing."""
        done = {work.action: rank for rank, row in enumerate(rows) for work in row}
        if not done:
            raise InputError("the file", "computes nothing")
        rank_of = {action.stage: rank for action, rank in done.items()}
        micro_batches = 1 + max(action.micro_batch or 0 for action in done)
        trains = any(action.kind != "F" for action in done)
        for stage in range(1 + max(rank_of)):
            if stage not in rank_of:
                raise InputError("the file", f"lacks stage {stage} of {1 + max(rank_of)}")
            for m in range(micro_batches):
                kinds = {kind for kind in COMPUTING if StageAction(stage, kind, m) in done}
                if kinds not in ({"F", "B"}, {"F", "I", "W"}) if trains else kinds != {"F"}:
                    more = f" and either {stage}B{m} or {stage}I{m} and {stage}W{m}" if trains else ""
                    present = ", ".join(f"{stage}{kind}{m}" for kind in COMPUTING if kind in kinds) or "nothing"
                    raise InputError(
                        f"stage {stage} on rank {rank_of[stage]}", f"needs {stage}F{m}{more}, and has {present}"
                    )
        halves = {action.stage for action in done if action.kind == "I"}
        stages = range(len(rank_of))
        places = tuple(rank_of[stage] for stage in stages)
        return cls(places, tuple(stage in halves for stage in stages), len(rows), micro_batches, trains)


def _plan(name: str, chain: _Chain, lasts: Callable[[int, str], int], unit: str) -> MicroBatchPlan:
    forward, backward, weight = list[Block](), list[Block](), list[Block]()
    for stage, rank in enumerate(chain.rank_of):
        halves = chain.halves[stage]
        forward.append(Block(f"F{stage}", BlockKind.FORWARD, (rank,), lasts(stage, "F"), int(chain.trains)))
        if chain.trains:
            ticks = lasts(stage, "I" if halves else "B")
            backward.insert(0, Block(f"B{stage}", BlockKind.BACKWARD, (rank,), ticks, 0 if halves else -1))
        if halves:
            weight.append(Block(f"W{stage}", BlockKind.WEIGHT, (rank,), lasts(stage, "W"), -1))
    links = [Dependency(before.name, after.name) for before, after in pairwise((*forward, *backward))]
    links += [Dependency(block.name.replace("W", "B"), block.name) for block in weight]
    devices = tuple(PlanDevice(f"gpu{rank}") for rank in range(chain.ranks))
    return MicroBatchPlan(name, devices, (*forward, *backward, *weight), tuple(links), unit)


def blocks_of(plan: MicroBatchPlan, action: StageAction, split: Collection[int]) -> Iterator[int]:
    """Yield the blocks of a computing action in order: B and W for an unsplit backward of a stage in `split`."""
    stage, kind, _ = action
    yield plan.block_index(f"{'B' if kind == 'I' else kind}{stage}")
    if kind == "B" and stage in split:
        yield plan.block_index(f"W{stage}")


def _runs(plan: MicroBatchPlan, chain: _Chain, row: Sequence[Work]) -> Iterator[tuple[Work, int]]:
    """Yield the blocks of a rank in order, with the action of the file to which each belongs."""
    split = [stage for stage, halves in enumerate(chain.halves) if halves]
    return ((work, block) for work in row for block in blocks_of(plan, work.action, split))


def _starts(plan: MicroBatchPlan, micro_batches: int, turns: Sequence[Sequence[tuple[Work, int]]]) -> IntColumn:
    """Return the start times, shaped (micro-batches, blocks).  Raises InputError for an action that can never run."""
    ends = [[-1] * len(plan.blocks) for _ in range(micro_batches)]
    at, free, moved = [0] * len(turns), [0] * len(turns), True
    while moved:
        moved = False
        for rank, turn in enumerate(turns):
            while at[rank] < len(turn):
                work, block = turn[at[rank]]
                block_ends = ends[work.action.micro_batch or 0]
                before = [block_ends[each] for each, _ in plan.predecessors[block]]
                if -1 in before:
                    break
                free[rank] = max(free[rank], work.begins, *before) + plan.blocks[block].duration
                block_ends[block] = free[rank]
                at[rank] += 1
                moved = True
    stuck = next((rank for rank, turn in enumerate(turns) if at[rank] < len(turn)), None)
    if stuck is not None:
        raise _why_stuck(plan, [turn[reached:] for turn, reached in zip(turns, at, strict=True)], ends, stuck)
    lasts = np.array([block.duration for block in plan.blocks], dtype=np.int64)
    starts: IntColumn = np.array(ends, dtype=np.int64) - lasts
    return starts


def _why_stuck(
    plan: MicroBatchPlan, left: Sequence[Sequence[tuple[Work, int]]], ends: Sequence[Sequence[int]], rank: int
) -> InputError:
    """Explain a deadlock: follow the ranks that wait for each other until one repeats."""
    seen = set[int]()
    while True:
        seen.add(rank)
        work, block = left[rank][0]
        m = work.action.micro_batch or 0
        missing = next(each for each, _ in plan.predecessors[block] if ends[m][each] < 0)
        (other,) = plan.blocks[missing].devices
        if other in seen:
            how = "comes later on its rank" if other == rank else "waits in turn"
            return InputError(work.where, f"needs {plan.blocks[missing].name} of micro-batch {m}, which {how}")
        rank = other
