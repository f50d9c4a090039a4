"""Execution of ranks that communicate through queues of limited capacity.

A rank runs its actions in order.  A send appends its tensor to its queue, and waits while the queue holds `capacity`
tensors; with capacity 0 it waits for its receive.  A receive removes the head of its queue, and waits until the head
is addressed to it.  A collective waits until all ranks of its group have reached it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tessel_core.deadlock.actions import Action, ActionKind, RankActions
from tessel_core.deadlock.certificate import Channels, Place


class Sent(NamedTuple):
    """A tensor in a queue: its sender, the position of the send action, and the receiver."""

    rank: int
    position: int
    to: int


class ChannelRun:
    """State of an execution: the position of each rank in its actions, and the contents of the queues."""

    def __init__(self, actions: RankActions, channels: Channels, capacity: int) -> None:
        self.actions, self.channels, self.capacity = actions, channels, capacity
        self._at = dict.fromkeys(actions, 0)
        self.queues: defaultdict[Hashable, deque[Sent]] = defaultdict(deque)
        self.mismatch: tuple[Place, Place, str] | None = None
        self._shared = channels is Channels.PAIR and capacity > 0
        self._traffic = _traffic(actions) if self._shared else {}

    def copy(self) -> ChannelRun:
        """Return a copy that can continue independently of this run."""
        other = ChannelRun.__new__(ChannelRun)
        other.__dict__ |= self.__dict__
        other._at = dict(self._at)
        other.queues = defaultdict(deque, {key: deque(queue) for key, queue in self.queues.items()})
        return other

    @property
    def state(self) -> Hashable:
        """Positions and queue contents, on which the rest of the run depends."""
        return tuple(self._at.values()), frozenset((key, *queue) for key, queue in self.queues.items() if queue)

    @property
    def racing(self) -> list[int]:
        """Ranks that can send now, and compete with their peer for the next entry of a shared queue.

        If both ranks of a pair can send, only these two are returned, because no other rank uses their queue.
        """
        if not self._shared:
            return []
        racing = [rank for rank in self.actions if self._could_race(rank)]
        for rank in racing:
            to = self._current(rank).ranks[0]
            if to in racing and self._current(to).ranks == (rank,):
                return [rank, to]
        return racing

    def _could_race(self, rank: int) -> bool:
        action = self.current(rank)
        sends = action is not None and action.kind is ActionKind.SEND
        return sends and self._room(rank, self._current(rank)) and self._races(rank, self._current(rank))

    def _current(self, rank: int) -> Action:
        return self.actions[rank][self._at[rank]]

    # Progress of ranks

    def settle(self) -> None:
        """Advance every rank as far as possible. Stop before sends that compete for an entry of a queue."""
        before = None
        while before != list(self._at.values()):  # progress of one rank may end the competition between others
            before, ready = list(self._at.values()), deque(self.actions)
            while ready:
                ready.extend(self._advance(ready.popleft()))
            if not self._shared:
                return

    def put(self, rank: int) -> None:
        """Execute the current send of `rank`, whose queue must have room."""
        to, action = self._current(rank).ranks[0], self._current(rank)
        self.queues[self.key(rank, to, action.edge)].append(Sent(rank, self._at[rank], to))
        self._at[rank] += 1

    def _advance(self, rank: int) -> set[int]:
        """Advance a rank as far as possible. Return the ranks that may be able to proceed now."""
        actions, at, woken = self.actions[rank], self._at, set[int]()
        while at[rank] < len(actions):
            action = actions[at[rank]]
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
            receive = self.current(to)
            if to == rank or receive is None or not self._matches(rank, action, receive):
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
            send = self.current(source)
            if source == rank or send is None or send.kind is not ActionKind.SEND:
                return False
            if send.ranks[0] != rank or not self._matches(source, send, action):
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
        """Complete the current receive of the destination with this tensor."""
        expected, given = self._current(sent.to), self.actions[sent.rank][sent.position]
        if expected.tensor != given.tensor:
            self._note(sent.to, sent.rank, sent.position, "gets the tensor of")
        self._at[sent.to] += 1

    def _note(self, rank: int, other: int, position: int, what: str) -> None:
        """Record a mismatch. Only the earliest, by position and then by rank, is kept."""
        mismatch = self.place(rank), self.place(other, position), what
        if self.mismatch is None or (mismatch[0].position, rank) < (self.mismatch[0].position, self.mismatch[0].rank):
            self.mismatch = mismatch

    # Queries of the state

    def current(self, rank: int) -> Action | None:
        """Return the next action of a rank, or None if all are complete or the rank does not exist."""
        actions = self.actions.get(rank, ())
        at = self._at.get(rank, 0)
        return actions[at] if at < len(actions) else None

    def _matches(self, source: int, send: Action, other: Action) -> bool:
        """Return whether `other` is a receive from the queue of `send`."""
        receives = other.kind is ActionKind.RECEIVE and other.ranks[0] == source
        return receives and (self.channels is not Channels.EDGE or send.edge == other.edge)

    def key(self, source: int, to: int, edge: Hashable) -> Hashable:
        """Return the key of the queue for sends from one rank to another."""
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
        """Return whether the peer may send into the shared queue before it receives the current send of `rank`."""
        to = action.ranks[0]
        peer_sends = self._traffic[ActionKind.SEND, to, rank]
        next_send = bisect_left(peer_sends, self._at.get(to, 0))
        if to == rank or next_send == len(peer_sends):
            return False
        peer_receives = self._traffic[ActionKind.RECEIVE, to, rank]
        receives_before = bisect_left(peer_receives, peer_sends[next_send]) - bisect_left(peer_receives, self._at[to])
        return receives_before <= sum(sent.rank == rank for sent in self.queues[self.key(rank, to, None)])

    def until_received(self, rank: int, action: Action) -> list[Sent]:
        """Return the queue up to and including the sent tensor for which `action` waits; empty if it was received."""
        queue = list(self.queues[self.key(rank, action.ranks[0], action.edge)])
        for i, sent in enumerate(queue):
            if sent.rank == rank and self.actions[rank][sent.position].tensor == action.tensor:
                return queue[: i + 1]
        return []

    def between(self, action: Action) -> Hashable:
        """Return the part of a queue's key that is not a rank: the edge, or None if edges share queues."""
        return action.edge if self.channels is Channels.EDGE else None

    def rest(self, rank: int) -> Sequence[Action]:
        """Return the remaining actions of a rank, including the current one."""
        return self.actions[rank][self._at[rank] :]

    def place(self, rank: int, position: int | None = None) -> Place:
        """Return the place of the action at `position`, or of the current action."""
        position = self._at[rank] if position is None else position
        return Place(rank, position, self.actions[rank][position].text)


def _traffic(actions: RankActions) -> defaultdict[tuple[ActionKind, int, int], list[int]]:
    """Return the positions of sends and receives for each (kind, rank, other rank)."""
    positions = defaultdict[tuple[ActionKind, int, int], list[int]](list)
    for rank, own_actions in actions.items():
        for position, action in enumerate(own_actions):
            if action.kind in (ActionKind.SEND, ActionKind.RECEIVE):
                positions[action.kind, rank, action.ranks[0]].append(position)
    return positions
