"""How long a PyTorch CSV takes with its sends and receives, in the order in which the file says them."""

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
    """A file's schedule under one reading of its receives; starts and waits are in the plan's units of time."""

    receives: Receives
    schedule: Schedule
    waits: tuple[ReceiveWait, ...]
    """By rank, then by time."""


def timed_as_written(found: PyTorchCsv, receives: Receives) -> AsWritten:
    """The file's own order with its sends and receives; a file that leaves them out gets those of `csv_actions`.

    Durations are those of `csv_schedule`, and a transfer takes no time.  A send leaves once the actions before it have
    ended and does not hold up its rank; a wait for a send holds it up until the receive is posted.

    Raises InputError as `csv_schedule` and `csv_actions` do, for a tensor that is needed and never received, and for
    an action that waits forever.
    """
    plan = csv_schedule(found).plan
    run = _Run(found, plan, receives)
    while sum(rank.advance() for rank in run.ranks):  # each rank in every round, so that there are few
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
    """The ranks of a file on their way."""

    def __init__(self, found: PyTorchCsv, plan: MicroBatchPlan, receives: Receives) -> None:
        self.plan, self.receives = plan, receives
        self.ends = dict[tuple[int, int], int]()
        """Per block and micro-batch, once it has run."""
        self.sent = dict[_Key, int]()
        self.posted = dict[_Key, int]()
        """When a receive was reached."""
        self.actions = csv_actions(found)
        cells = {cell.text: cell.actions for row in found.rows for cell in row}
        computes = {text: [each for each in said if each.kind in COMPUTING] for text, said in cells.items()}
        received = [{_key(each) for each in mine if each.kind is ActionKind.RECEIVE} for mine in self.actions.values()]
        split = {action.stage for said in computes.values() for action in said if action.kind == "I"}
        self.needs = {
            text: [self._need(action, block, received) for action in said for block in blocks_of(plan, action, split)]
            for text, said in computes.items()
        }
        self.ranks = [_Rank(self, rank, found.communicates) for rank in self.actions]

    def _need(self, action: StageAction, block: int, received: Sequence[set[_Key]]) -> _Need:
        """What a block of an action needs.  InputError for a tensor that never comes."""
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
        """What a rank waits for, or the rank that it waits for, and so on, to one that was seen before."""
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
    """A run, and the tensors of other ranks that it takes, with the blocks that make them."""

    block: int
    micro_batch: int
    tensors: tuple[tuple[int, _Key], ...]


@dataclass(slots=True)
class _Rank:
    """One rank, as far as it has come."""

    run: _Run
    number: int
    by_cell: bool
    """Whether its actions are the cells of its row."""
    at: int = 0
    clock: int = 0
    waits: list[ReceiveWait] = field(default_factory=list)
    open: list[ReceiveWait] = field(default_factory=list)
    """Waits after which nothing has been computed yet."""
    receives: dict[_Key, str] = field(default_factory=dict)

    @property
    def left(self) -> bool:
        return self.at < len(self.run.actions[self.number])

    @property
    def action(self) -> Action:
        return self.run.actions[self.number][self.at]

    @property
    def place(self) -> str:
        """Of the present action, for messages."""
        return cell_place(self.number, self.at) if self.by_cell else f"rank {self.number}"

    def advance(self) -> bool:
        """Do what can be done; whether anything could."""
        begun = self.at
        while self.left and self._do(self.action):
            self.at += 1
        if not self.left:
            self.waits += self.open
            self.open = []
        return self.at > begun

    def _do(self, action: Action) -> bool:
        """Do one action; False where it has to wait for another rank."""
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
        """All blocks of a cell in turn, or as many as can run."""
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
        """The rank that the present action waits for, and the cell of that rank, in words."""
        run, action = self.run, self.action
        if action.kind is ActionKind.WAIT:
            return action.ranks[0], f"a receive of what rank {self.number} sends"
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
    """Of a send, its wait and its receive."""
    assert isinstance(action.edge, tuple)
    assert isinstance(action.tensor, tuple)
    maker, direction = action.edge
    return maker, direction, action.tensor[2] or 0
