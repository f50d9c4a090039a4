"""One rank walks its list of actions: runs of blocks, sends, receives, in the order that was derived for it.

Sends and receives are asynchronous, so computing goes on beside them.  With gloo a receive is posted two runs before
the rank comes to it, since gloo begins to send when the other end is there; nccl keeps to the order in which sends and
receives of two ranks are posted, which is that of the list.  Blocks on several devices begin together.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from tessel_core.execution.actions import Action, ActionKind
from tessel_core.execution.rank_process import Rank
from tessel_core.model import MicroBatchPlan

_AHEAD = 2
"""Runs before which what they need is asked for."""
_NEWS_NS = 200_000_000
_START_NS = 30_000_000
"""From the moment at which all ranks are there to the common start."""


class Timed(NamedTuple):
    """A run of a block, in nanoseconds since the common start of all ranks."""

    block: int
    micro_batch: int
    start: int
    end: int


class Blocks(Protocol):
    """What the blocks of a plan do on one rank."""

    held: int
    """Bytes."""

    def buffer(self, arc: int) -> Any:
        """An empty tensor for what comes along a dependency."""

    def wait(self, arc: int, micro_batch: int, carried: Any) -> None:
        """Until the dependency lets the next block begin; `carried` came along it."""

    def run(self, block: int, micro_batch: int, taken: dict[int, Any]) -> tuple[int, dict[int, Any]]:
        """Run a block on what came by dependency.

        Returns when it ended, on the monotonic clock, and what goes along each of the dependencies behind it.
        """

    def result(self) -> Any:
        """What is handed back at the end."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one rank does in turn, for `walk`."""

    plan: MicroBatchPlan
    actions: Sequence[Action]
    micro_batches: int


@dataclass(slots=True)
class Walked:
    """What became of it on one rank."""

    runs: list[Timed]
    peak: int
    """Most bytes held at a time."""
    result: Any


@dataclass(slots=True)
class _Post:
    """Tensors on their way: those that are awaited by (dependency, micro-batch), and those that left."""

    rank: Rank
    blocks: Blocks
    micro_batches: int
    awaited: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)
    left: deque[tuple[Any, Any]] = field(default_factory=deque)

    def receive(self, action: Action) -> None:
        import torch.distributed as dist

        arc, m = _pair(action)
        buffer = self.blocks.buffer(arc)
        self.awaited[arc, m] = dist.irecv(buffer, action.ranks[0], tag=arc * self.micro_batches + m), buffer

    def send(self, action: Action, tensor: Any) -> None:
        import torch.distributed as dist

        arc, m = _pair(action)
        self.left.append((dist.isend(tensor, action.ranks[0], tag=arc * self.micro_batches + m), tensor))
        while self.left and self.left[0][0].is_completed():
            self.left.popleft()[0].wait()

    def take(self, arc: int, micro_batch: int) -> Any:
        work, buffer = self.awaited.pop((arc, micro_batch))
        work.wait()
        return buffer

    def finish(self) -> None:
        for work, _ in self.left:
            work.wait()


def walk(rank: Rank, order: Order, blocks: Blocks) -> Walked:
    """Do all actions of a rank; every rank of the plan walks at the same time."""
    plan, actions = order.plan, order.actions
    post = _Post(rank, blocks, order.micro_batches)
    groups = rank.groups(block.devices for block in plan.blocks if len(block.devices) > 1)
    incoming = [[a for a, (_, after, _) in enumerate(plan.arcs) if after == b] for b in range(len(plan.blocks))]
    uses, posted, runs = _uses(order, incoming), _posts(actions, _AHEAD if rank.device == "cpu" else 0), list[Timed]()
    made = dict[tuple[int, int], Any]()
    peak, told, news = blocks.held, 0, 0
    begin = _common_start(rank)

    def used(key: tuple[int, int]) -> Any:
        uses[key] -= 1
        return made[key] if uses[key] else made.pop(key)

    for i, action in enumerate(actions):
        rank.at(action.text)
        for receive in posted.get(i, ()):
            post.receive(receive)
        if action.kind is ActionKind.SEND:
            post.send(action, used(_pair(action)))
        elif action.kind in (ActionKind.LOCAL, ActionKind.COLLECTIVE):
            b, m = _pair(action)
            taken = dict[int, Any]()
            for arc in incoming[b]:
                taken[arc] = post.take(arc, m) if (arc, m) in post.awaited else used((arc, m))
            for arc, carried in taken.items():
                blocks.wait(arc, m, carried)
            if action.kind is ActionKind.COLLECTIVE:
                _meet(rank, groups[tuple(sorted(action.ranks))])
            start = time.monotonic_ns()
            end, carried_on = blocks.run(b, m, taken)
            made |= {(arc, m): tensor for arc, tensor in carried_on.items() if uses[arc, m]}
            runs.append(Timed(b, m, start - begin, end - begin))
            peak = max(peak, blocks.held)
            if end - told > _NEWS_NS:
                rank.tell(runs[news:])
                told, news = end, len(runs)
    post.finish()
    rank.tell(runs[news:])
    rank.at("the end")
    return Walked(runs, peak, blocks.result())


def _pair(action: Action) -> tuple[int, int]:
    """Dependency or block, and micro-batch."""
    return cast(tuple[int, int], action.tensor)


def _uses(order: Order, incoming: Sequence[Sequence[int]]) -> Counter[tuple[int, int]]:
    """How often what goes along a dependency is used on this rank: sent, or taken by a block here."""
    received = {action.tensor for action in order.actions if action.kind is ActionKind.RECEIVE}
    uses = Counter[tuple[int, int]]()
    for action in order.actions:
        one, m = _pair(action)
        if action.kind is ActionKind.SEND:
            uses[one, m] += 1
        elif action.kind is not ActionKind.RECEIVE:
            uses.update((arc, m) for arc in incoming[one] if (arc, m) not in received)
    return uses


def _posts(actions: Sequence[Action], ahead: int) -> dict[int, list[Action]]:
    """The receives to post before each action, by its position: so many runs ahead, in the order of the list."""
    runs = [0]
    found = dict[int, list[Action]]()
    for i, action in enumerate(actions):
        if action.kind is ActionKind.RECEIVE:
            found.setdefault(runs[-ahead:][0] if ahead else i, []).append(action)
        elif action.kind is not ActionKind.SEND:
            runs.append(i)
    return found


def _meet(rank: Rank, group: Any) -> None:
    """Go on when all of a group are here."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.zeros(1, device=rank.device), group=group)


def _common_start(rank: Rank) -> int:
    """The moment at which all ranks begin, once they are all here; on the clock that they share."""
    import torch
    import torch.distributed as dist

    moment = torch.zeros(1, dtype=torch.int64, device=rank.device)
    dist.all_reduce(moment)
    moment += time.monotonic_ns() + _START_NS
    dist.all_reduce(moment, op=dist.ReduceOp.MAX)
    begin = int(moment.item())
    sleep_until(begin)
    return begin


_SPIN_NS = 80_000
"""A sleep ends so late at most, so the rest is waited for awake."""


def sleep_until(moment: int) -> None:
    """Until a moment of the monotonic clock, to some microseconds."""
    left = moment - time.monotonic_ns()
    if left > _SPIN_NS:
        time.sleep((left - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < moment:
        pass
