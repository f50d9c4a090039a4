"""Compute start times for a PyTorch CSV schedule. Actions run in the order of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tessel_core.deadlock.actions import Action, ActionKind
from tessel_core.deadlock.orders import csv_actions
from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import COMPUTING, PyTorchCsv, StageAction, cell_place
from tessel_core.formats.pytorch_schedule import blocks_of, csv_schedule
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.model.receives import Receives, ReceiveWait


@dataclass(frozen=True)
class AsWritten:
    """Schedule of a file under one interpretation of its receives.  Times are in the plan's time unit."""

    receives: Receives
    schedule: Schedule
    waits: tuple[ReceiveWait, ...]
    """Waits for receives, sorted by rank, then by time."""


def timed_as_written(file: PyTorchCsv, receives: Receives) -> AsWritten:
    """Compute start times for the actions of a file, in their order.

    If the file has no sends and receives, those of `csv_actions` are used.

    Durations are those of `csv_schedule`, and a transfer takes no time.  A send starts once the actions before it have
    ended, and does not block its rank.  A wait for a send blocks the rank until the receive is posted.

    Raises InputError like `csv_schedule` and `csv_actions`, for a tensor that is needed but never received, and for an
    action that waits forever.
    """
    plan = csv_schedule(file).plan
    run = _Run(file, plan, receives)
    while sum(rank.advance() for rank in run.ranks):  # unlike any(), sum() advances every rank in each round
        pass
    stuck = next((rank for rank in run.ranks if rank.left), None)
    if stuck is not None:
        raise run.why_stuck(stuck)
    lasts = np.array([block.duration for block in plan.blocks], dtype=np.int64)
    micro_batches = 1 + max(m for _, m in run.ends)
    ends = [[run.ends[b, m] for b in range(len(plan.blocks))] for m in range(micro_batches)]
    waits = tuple(wait for rank in run.ranks for wait in rank.waits)
    return AsWritten(receives, Schedule.from_starts(plan, np.array(ends, dtype=np.int64) - lasts), waits)


_Key = tuple[int, str, int]
"""A tensor: the stage that makes it, F or B, and its micro-batch."""


class _Run:
    """Execution state of all ranks of a file."""

    def __init__(self, file: PyTorchCsv, plan: MicroBatchPlan, receives: Receives) -> None:
        self.plan, self.receives = plan, receives
        self.ends = dict[tuple[int, int], int]()
        """End time of each (block, micro-batch) that has run."""
        self.sent = dict[_Key, int]()
        """Time at which each tensor was sent."""
        self.posted = dict[_Key, int]()
        """Time at which the receive of each tensor was reached."""
        self.actions = csv_actions(file)
        cells = {cell.text: cell.actions for row in file.rows for cell in row}
        computes = {text: [each for each in actions if each.kind in COMPUTING] for text, actions in cells.items()}
        received = [
            {_key(each) for each in actions if each.kind is ActionKind.RECEIVE} for actions in self.actions.values()
        ]
        split = {action.stage for actions in computes.values() for action in actions if action.kind == "I"}
        self.needs = {
            text: [self._need(act, block, received) for act in actions for block in blocks_of(plan, act, split)]
            for text, actions in computes.items()
        }
        self.ranks = [_Rank(self, rank, file.communicates) for rank in self.actions]

    def _need(self, action: StageAction, block: int, received: Sequence[set[_Key]]) -> _Need:
        """Return the tensors that a block needs from other ranks.  Raises InputError for one that is never received."""
        (rank,), m = self.plan.blocks[block].devices, action.micro_batch or 0
        tensors = list[tuple[int, _Key]]()
        for before, _ in self.plan.predecessors[block]:
            name = self.plan.blocks[before].name
            if self.plan.blocks[before].devices == (rank,):
                continue
            key = int(name[1:]), name[0], m
            if key not in received[rank]:
                why = f"needs {name} of micro-batch {m}, which the rank never receives"
                raise InputError(f"rank {rank}", f"cell '{action}' {why}")
            tensors.append((before, key))
        return _Need(block, m, tuple(tensors))

    def why_stuck(self, rank: _Rank) -> InputError:
        """Explain a deadlock: follow the ranks that wait for each other until one repeats or has already ended."""
        seen = set[int]()
        while True:
            seen.add(rank.number)
            other, what = rank.awaits()
            if other in seen or not self.ranks[other].left:
                how = "waits in turn" if self.ranks[other].left else "never comes"
                how += ", with receives in line with computing" if self.receives is Receives.IN_ORDER else ""
                return InputError(rank.place, f"cell '{rank.action.text}' waits forever for {what}, which {how}")
            rank = self.ranks[other]


@dataclass(frozen=True, slots=True)
class _Need:
    """One block of one micro-batch, and the tensors that it needs from other ranks."""

    block: int
    micro_batch: int
    tensors: tuple[tuple[int, _Key], ...]
    """Pairs (block that makes the tensor, tensor)."""


@dataclass(slots=True)
class _Rank:
    """Execution state of one rank."""

    run: _Run
    number: int
    by_cell: bool
    """Whether the actions are cells of the file. False if sends and receives were inserted."""
    at: int = 0
    clock: int = 0
    waits: list[ReceiveWait] = field(default_factory=list)
    open: list[ReceiveWait] = field(default_factory=list)
    """Waits since the last block that the rank computed, for which the next block is not known yet."""
    receives: dict[_Key, str] = field(default_factory=dict)

    @property
    def left(self) -> bool:
        return self.at < len(self.run.actions[self.number])

    @property
    def action(self) -> Action:
        return self.run.actions[self.number][self.at]

    @property
    def place(self) -> str:
        """Place of the current action in the file, for messages."""
        return cell_place(self.number, self.at) if self.by_cell else f"rank {self.number}"

    def advance(self) -> bool:
        """Run actions until one has to wait.  Returns whether at least one ran."""
        first = self.at
        while self.left and self._do(self.action):
            self.at += 1
        if not self.left:
            self.waits += self.open
            self.open = []
        return self.at > first

    def _do(self, action: Action) -> bool:
        """Run one action.  Returns False if it has to wait for another rank."""
        run = self.run
        if action.kind is ActionKind.SEND:
            run.sent[_key(action)] = self.clock
        elif action.kind is ActionKind.RECEIVE:
            key = _key(action)
            run.posted.setdefault(key, self.clock)
            self.receives[key] = action.text
            if run.receives is Receives.IN_ORDER:
                if key not in run.sent:
                    return False
                self._wait_until(run.sent[key], action.text)
        elif action.kind is ActionKind.WAIT:
            key = _key(action)
            if key not in run.posted:
                return False
            self._wait_until(run.posted[key], action.text)
        else:
            return self._compute(action.text)
        return True

    def _compute(self, text: str) -> bool:
        """Run the blocks of a cell in order.  Returns False if one has to wait for a tensor."""
        for need in self.run.needs.get(text, ()):
            if (need.block, need.micro_batch) in self.run.ends:
                continue
            for _, key in need.tensors:
                if key not in self.run.sent:
                    return False
                self._wait_until(self.run.sent[key], self.receives[key])
            self.waits += (ReceiveWait(w.rank, w.receive, text, w.start, w.end) for w in self.open)
            self.open = []
            self.clock += self.run.plan.blocks[need.block].duration
            self.run.ends[need.block, need.micro_batch] = self.clock
        return True

    def _wait_until(self, sent: int, receive: str) -> None:
        if sent > self.clock:
            self.open.append(ReceiveWait(self.number, receive, "", self.clock, sent))
            self.clock = sent

    def awaits(self) -> tuple[int, str]:
        """Return the rank for which the current action waits, and a description of the send or receive."""
        run, action = self.run, self.action
        if action.kind is ActionKind.WAIT:
            return action.ranks[0], f"a receive of the tensor that rank {self.number} sends"
        if action.kind is ActionKind.RECEIVE:
            return action.ranks[0], f"the send of rank {action.ranks[0]}"
        missing = next(
            before
            for need in run.needs[action.text]
            for before, key in need.tensors
            if (need.block, need.micro_batch) not in run.ends and key not in run.sent
        )
        (other,) = run.plan.blocks[missing].devices
        return other, f"the send of {run.plan.blocks[missing].name} by rank {other}"


def _key(action: Action) -> _Key:
    """Return the tensor of an action. It is equal for a send, the wait for that send, and the receive."""
    assert isinstance(action.edge, tuple)
    assert isinstance(action.tensor, tuple)
    maker, direction = action.edge
    return maker, direction, action.tensor[2] or 0
