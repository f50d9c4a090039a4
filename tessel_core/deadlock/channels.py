"""Ranks that go on as far as their queues let them.

A rank does its actions one after the other.  A send puts its tensor at the end of its queue and waits while `capacity`
others there are still to be received; without capacity it waits for its own receive.  A receive takes the head of its
queue, and waits until that is meant for it.  A collective waits until all of its group are at it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tessel_core.deadlock.actions import Action, ActionKind, RankActions
from tessel_core.deadlock.certificate import Channels, Place


class Sent(NamedTuple):
    """A tensor in its queue."""

    rank: int
    position: int
    to: int


class ChannelRun:
    """How far all ranks have come, and what their queues hold."""

    def __init__(self, actions: RankActions, channels: Channels, capacity: int) -> None:
        self.actions, self.channels, self.capacity = actions, channels, capacity
        self._at = dict.fromkeys(actions, 0)
        self.queues: defaultdict[Hashable, deque[Sent]] = defaultdict(deque)
        self.mismatch: tuple[Place, Place, str] | None = None
        self._shared = channels is Channels.PAIR and capacity > 0
        self._traffic = _traffic(actions) if self._shared else {}

    def copy(self) -> ChannelRun:
        """The same state, to go on from in another way."""
        other = ChannelRun.__new__(ChannelRun)
        other.__dict__ |= self.__dict__
        other._at = dict(self._at)
        other.queues = defaultdict(deque, {key: deque(queue) for key, queue in self.queues.items()})
        return other

    @property
    def state(self) -> Hashable:
        """All that the rest of the run depends on."""
        return tuple(self._at.values()), frozenset((key, *queue) for key, queue in self.queues.items() if queue)

    @property
    def racing(self) -> list[int]:
        """Ranks whose next send could go ahead, and for whose place in the queue the other rank could be earlier.

        Where both ranks of a pair are at such sends, it is only those two: nothing else touches their queue.
        """
        if not self._shared:
            return []
        found = [rank for rank in self.actions if self._could_race(rank)]
        for rank in found:
            to = self._now(rank).ranks[0]
            if to in found and self._now(to).ranks == (rank,):
                return [rank, to]
        return found

    def _could_race(self, rank: int) -> bool:
        action = self.current(rank)
        sends = action is not None and action.kind is ActionKind.SEND
        return sends and self._room(rank, self._now(rank)) and self._races(rank, self._now(rank))

    def _now(self, rank: int) -> Action:
        return self.actions[rank][self._at[rank]]

    # How ranks go on

    def settle(self) -> None:
        """Let every rank go as far as it can, but for sends that race."""
        before = None
        while before != list(self._at.values()):  # ranks that go on may end races of others
            before, ready = list(self._at.values()), deque(self.actions)
            while ready:
                ready.extend(self._advance(ready.popleft()))
            if not self._shared:
                return

    def put(self, rank: int) -> None:
        """Put the tensor that the rank sends now into its queue, which has room."""
        to, action = self._now(rank).ranks[0], self._now(rank)
        self.queues[self.key(rank, to, action.edge)].append(Sent(rank, self._at[rank], to))
        self._at[rank] += 1

    def _advance(self, rank: int) -> set[int]:
        """Do what the rank can; returns the ranks that may go on because of it, which this one may be of."""
        mine, at, woken = self.actions[rank], self._at, set[int]()
        while at[rank] < len(mine):
            action = mine[at[rank]]
            kind = action.kind
            if kind is ActionKind.LOCAL or (kind is ActionKind.WAIT and not self.until_received(rank, action)):
                at[rank] += 1
            elif not (
                (kind is ActionKind.SEND and self._send(rank, action, woken))
                or (kind is ActionKind.RECEIVE and self._receive(rank, action, woken))
                or (kind is ActionKind.COLLECTIVE and self._meet(rank, action, woken))
            ):
                break
        return woken

    def _send(self, rank: int, action: Action, woken: set[int]) -> bool:
        to = action.ranks[0]
        if self.capacity:
            if not self._room(rank, action) or (self._shared and self._races(rank, action)):
                return False
            self.put(rank)
        else:
            taking = self.current(to)
            if to == rank or taking is None or not self._ends_meet(rank, action, taking):
                return False
            self._hand_over(Sent(rank, self._at[rank], to))
            self._at[rank] += 1
        woken.add(to)
        return True

    def _receive(self, rank: int, action: Action, woken: set[int]) -> bool:
        source = action.ranks[0]
        if self.capacity:
            queue = self.queues[self.key(source, rank, action.edge)]
            if not queue or queue[0].to != rank or queue[0].rank != source:
                return False
            self._hand_over(queue.popleft())
            if queue:
                woken.add(queue[0].to)
        else:
            giving = self.current(source)
            if source == rank or giving is None or giving.kind is not ActionKind.SEND:
                return False
            if giving.ranks[0] != rank or not self._ends_meet(source, giving, action):
                return False
            self._hand_over(Sent(source, self._at[source], rank))
            self._at[source] += 1
        woken.add(source)
        return True

    def _meet(self, rank: int, action: Action, woken: set[int]) -> bool:
        group = frozenset(action.ranks)
        for other in group:
            there = self.current(other)
            if there is None or there.kind is not ActionKind.COLLECTIVE or frozenset(there.ranks) != group:
                return False
            if there.tensor != action.tensor:
                self._note(rank, other, self._at[other], "meets")
        for other in group:
            self._at[other] += 1
        woken |= group
        return True

    def _hand_over(self, sent: Sent) -> None:
        """Let the receive that the receiving rank is at have the tensor."""
        asked, given = self._now(sent.to), self.actions[sent.rank][sent.position]
        if asked.tensor != given.tensor:
            self._note(sent.to, sent.rank, sent.position, "gets the tensor of")
        self._at[sent.to] += 1

    def _note(self, rank: int, other: int, position: int, what: str) -> None:
        """Keep the earliest mismatch, by position and rank."""
        found = self.place(rank), self.place(other, position), what
        if self.mismatch is None or (found[0].position, rank) < (self.mismatch[0].position, self.mismatch[0].rank):
            self.mismatch = found

    # What ranks find

    def current(self, rank: int) -> Action | None:
        """The action that a rank is at; None where it has come to its end, or there is no such rank."""
        mine = self.actions.get(rank, ())
        at = self._at.get(rank, 0)
        return mine[at] if at < len(mine) else None

    def _ends_meet(self, source: int, send: Action, other: Action) -> bool:
        """Whether what the receiving rank is at takes from the queue of the send."""
        takes = other.kind is ActionKind.RECEIVE and other.ranks[0] == source
        return takes and (self.channels is not Channels.EDGE or send.edge == other.edge)

    def key(self, source: int, to: int, edge: Hashable) -> Hashable:
        """The queue of what one rank sends to another."""
        match self.channels:
            case Channels.RANK:
                return source
            case Channels.PAIR:
                return (source, to) if source < to else (to, source)
            case Channels.DIRECTION:
                return source, to
            case Channels.EDGE:
                return source, to, edge

    def _room(self, rank: int, action: Action) -> bool:
        return len(self.queues[self.key(rank, action.ranks[0], action.edge)]) < self.capacity

    def _races(self, rank: int, action: Action) -> bool:
        """Whether the other rank of the pair may send into the queue before it receives what this one sends now."""
        to = action.ranks[0]
        theirs = self._traffic[ActionKind.SEND, to, rank]
        after = bisect_left(theirs, self._at.get(to, 0))
        if to == rank or after == len(theirs):
            return False
        taken = self._traffic[ActionKind.RECEIVE, to, rank]
        first = bisect_left(taken, theirs[after]) - bisect_left(taken, self._at[to])
        return first <= sum(each.rank == rank for each in self.queues[self.key(rank, to, None)])

    def until_received(self, rank: int, action: Action) -> list[Sent]:
        """What has to be received before and with the tensor that a rank waits for, which was sent."""
        queue = list(self.queues[self.key(rank, action.ranks[0], action.edge)])
        for i, each in enumerate(queue):
            if each.rank == rank and self.actions[rank][each.position].tensor == action.tensor:
                return queue[: i + 1]
        return []

    def between(self, action: Action) -> Hashable:
        """What of an action, besides its two ranks, says which queue it uses."""
        return action.edge if self.channels is Channels.EDGE else None

    def rest(self, rank: int) -> Sequence[Action]:
        """The rank's actions from the one that it is at."""
        return self.actions[rank][self._at[rank] :]

    def place(self, rank: int, position: int | None = None) -> Place:
        """A rank's action at a position, else the one that it is at."""
        position = self._at[rank] if position is None else position
        return Place(rank, position, self.actions[rank][position].text)


def _traffic(actions: RankActions) -> defaultdict[tuple[ActionKind, int, int], list[int]]:
    """Per kind, rank and other rank, the positions of sends and receives."""
    found = defaultdict[tuple[ActionKind, int, int], list[int]](list)
    for rank, mine in actions.items():
        for position, action in enumerate(mine):
            if action.kind in (ActionKind.SEND, ActionKind.RECEIVE):
                found[action.kind, rank, action.ranks[0]].append(position)
    return found
