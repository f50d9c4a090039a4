"""Check whether ranks that send, receive and join collectives, each in its own order, can deadlock.

Ranks are sequential and queues are first in, first out. An action that can run remains able to run, whatever other
ranks do. So all orders of execution give the same verdict, and one is enough. The only exception is a queue that two
ranks share (`pair`), because both may compete for its next entry. The check then tries every order. If the actions
complete with capacity 0, they complete with every capacity, so no orders are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace

from tessel_core.deadlock.actions import Action, ActionKind, RankActions
from tessel_core.deadlock.certificate import Channels, HangCertificate, Place, Verdict
from tessel_core.deadlock.channels import ChannelRun, Sent
from tessel_core.errors import InputError

_MAX_RACE_STATES = 3_000
"""Largest number of states to visit when every order of competing sends is tried."""
_NOBODY_SENDS = "waits forever: nobody sends that tensor"
_NOBODY_RECEIVES = "waits forever: nobody receives the tensor"
_HANGS = (Verdict.CIRCLE, Verdict.NEVER_SATISFIED)


def check_channels(actions: RankActions, channels: Channels, capacity: int = 0) -> HangCertificate:
    """Check whether `actions` can hang, and return a certificate of the verdict.

    Parameters
    ----------
    actions : Mapping
        Actions of each rank in order.
    channels : Channels
        Which sends share a queue.
    capacity : int
        Number of sends that may be outstanding in each queue.  With 0, a send waits for its receive.

    Raises
    ------
    InputError
        If the capacity is negative.
    """
    if capacity < 0:
        raise InputError("capacity", f"must be at least 0, got {capacity}")
    run = ChannelRun(actions, channels, capacity)
    run.settle()
    if not run.racing:
        return _certificate(run)
    strict = check_channels(actions, channels)
    if strict.verdict not in _HANGS:
        return replace(strict, capacity=capacity)
    why = f"with {capacity}, ranks can send in too many different orders to check"
    return _worst_race(run) or replace(strict, why=why if strict.verdict is Verdict.CIRCLE else strict.why)


def _worst_race(start: ChannelRun) -> HangCertificate | None:
    """Return the certificate of an order of competing sends that hangs, or of any order if none hangs.

    The result is None if there are too many orders to try.
    """
    certificate: HangCertificate | None = None
    waiting, seen = [start], {start.state}
    while waiting:
        run = waiting.pop()
        racing = run.racing
        if not racing:
            certificate = _certificate(run)
            if certificate.verdict in _HANGS:
                return certificate
        for rank in racing:
            chosen = run.copy()
            chosen.put(rank)
            chosen.settle()
            if chosen.state not in seen:
                seen.add(chosen.state)
                waiting.append(chosen)
        if len(seen) > _MAX_RACE_STATES:
            return None
    return certificate


def _certificate(run: ChannelRun) -> HangCertificate:
    """Return the certificate of a run in which no rank can proceed."""

    def certified(verdict: Verdict, places: tuple[Place, ...] = (), why: str = "") -> HangCertificate:
        return HangCertificate(run.channels, run.capacity, verdict, places, why)

    waits = _Waits(run)
    circle = _shortest_circle(waits.by_rank())
    if circle:
        return certified(Verdict.CIRCLE, tuple(run.place(rank) for rank in circle))
    if waits.never:
        place, why = min(waits.never)
        return certified(Verdict.NEVER_SATISFIED, (place,), why)
    if run.mismatch:
        expecting, given, how = run.mismatch
        return certified(Verdict.MISMATCHED, (expecting, given), f"{how} {given}")
    return certified(Verdict.PROCEEDS)


class _Waits:
    """Finds the ranks for which each blocked rank waits."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self._blocked = {rank: action for rank in run.actions if (action := run.current(rank)) is not None}
        self._left = _still_to_come(run, self._blocked)
        self.never = list[tuple[Place, str]]()
        """Actions that can never complete, each with the reason."""

    def by_rank(self) -> dict[int, list[int]]:
        """Return, for each blocked rank, all ranks that must proceed before it can proceed. Also fill `never`."""
        for queue in self._run.queues.values():
            self._receivers(list(queue))
        return {rank: self._of(rank, action) for rank, action in self._blocked.items()}

    def _of(self, rank: int, action: Action) -> list[int]:
        run, other = self._run, action.ranks[0]
        if action.kind is ActionKind.COLLECTIVE:
            return self._missing(rank, action)
        if action.kind is ActionKind.WAIT:
            return self._receivers(run.until_received(rank, action))
        if action.kind is ActionKind.RECEIVE:
            queue = list(run.queues[run.key(other, rank, action.edge)])
            place = next((i for i, sent in enumerate(queue) if (sent.rank, sent.to) == (other, rank)), None)
            sender = self._peer(rank, ActionKind.SEND, other, rank, action, _NOBODY_SENDS) if place is None else []
            return self._receivers(queue[:place]) + sender
        if run.capacity:
            return self._receivers(list(run.queues[run.key(rank, other, action.edge)])[:1])
        return self._peer(rank, ActionKind.RECEIVE, rank, other, action, _NOBODY_RECEIVES)

    def _peer(self, rank: int, kind: ActionKind, source: int, to: int, action: Action, why: str) -> list[int]:
        """Return the rank that still has the matching send or receive for the current action of `rank`.

        If no rank has it, return nothing and record the action in `never`.
        """
        if self._left[kind, source, to, self._run.between(action)]:
            return [source if kind is ActionKind.SEND else to]
        self.never.append((self._run.place(rank), why))
        return []

    def _missing(self, rank: int, action: Action) -> list[int]:
        """Return the ranks of the group that have not reached the collective yet.

        If a rank has no such collective left, records the action in `never`.
        """
        group, missing = frozenset(action.ranks), []
        for other in sorted(group):
            current = self._blocked.get(other)
            if current and current.kind is ActionKind.COLLECTIVE and frozenset(current.ranks) == group:
                continue
            if self._left[ActionKind.COLLECTIVE, other, group]:
                missing.append(other)
            else:
                self.never.append((self._run.place(rank), f"waits forever: rank {other} never joins"))
        return missing

    def _receivers(self, queue: list[Sent]) -> list[int]:
        """Return the ranks that must receive the given tensors.  Records tensors without a receive in `never`."""
        seen, receivers = Counter[Hashable](), []
        for sent in queue:
            edge = self._run.between(self._run.actions[sent.rank][sent.position])
            flow = ActionKind.RECEIVE, sent.rank, sent.to, edge
            seen[flow] += 1
            if seen[flow] <= self._left[flow]:
                receivers.append(sent.to)
            else:
                self.never.append((self._run.place(sent.rank, sent.position), _NOBODY_RECEIVES))
        return receivers


def _still_to_come(run: ChannelRun, blocked: Mapping[int, Action]) -> Counter[Hashable]:
    """Count the remaining sends, receives and collectives of blocked ranks, by kind and by the ranks that take part."""
    left = Counter[Hashable]()
    for rank in blocked:
        for action in run.rest(rank):
            if action.kind is ActionKind.SEND:
                left[action.kind, rank, action.ranks[0], run.between(action)] += 1
            elif action.kind is ActionKind.RECEIVE:
                left[action.kind, action.ranks[0], rank, run.between(action)] += 1
            elif action.kind is ActionKind.COLLECTIVE:
                left[action.kind, rank, frozenset(action.ranks)] += 1
    return left


def _shortest_circle(waits: Mapping[int, list[int]]) -> list[int]:
    """Return a shortest cycle of ranks, each of which waits for the next; empty if there is none."""
    if not waits:
        return []
    import networkx as nx  # imported here: it takes a tenth of a second, and most checks find no blocked rank

    graph = nx.DiGraph((rank, other) for rank, others in waits.items() for other in sorted(others) if other in waits)
    best = list[int]()
    for rank in filter(graph.has_node, waits):
        shorter = len(best) - 2 if best else None  # most edges of a path that closes a shorter cycle
        paths: Mapping[int, list[int]] = nx.single_source_shortest_path(graph, rank, shorter)
        best = min((path for last, path in paths.items() if graph.has_edge(last, rank)), key=len, default=best)
        graph.remove_node(rank)  # the shortest cycle through this rank is known
        if len(best) == 1 or nx.is_directed_acyclic_graph(graph):
            break
    return best
