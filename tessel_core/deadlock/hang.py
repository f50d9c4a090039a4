"""Whether ranks that send, receive and meet, each in its own order, can wait forever.

Ranks are sequential and queues keep their order, so what can go on still can after whatever others do, and one run
decides for all.  Only the two ranks that share the queue of a `pair` can race for its next place: there every order is
tried, unless the answer without capacity settles it, since what proceeds without proceeds with any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace

from tessel_core.deadlock.actions import Action, ActionKind, RankActions
from tessel_core.deadlock.certificate import Channels, HangCertificate, Place, Verdict
from tessel_core.deadlock.channels import ChannelRun, Sent
from tessel_core.errors import InputError

_MOST_STATES = 3_000
"""Of a race, that are looked at."""
_NOBODY_SENDS = "waits forever: nobody sends that tensor"
_NOBODY_RECEIVES = "waits forever: nobody receives the tensor"
_HANGS = (Verdict.CIRCLE, Verdict.NEVER_SATISFIED)


def check_channels(actions: RankActions, channels: Channels, capacity: int = 0) -> HangCertificate:
    """Whether `actions` can hang on those channels, with so many sends outstanding in each queue.

    Raises InputError for a negative capacity.
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
    why = f"with {capacity}, ranks race for places in too many orders to try"
    return _worst_race(run) or replace(strict, why=why if strict.verdict is Verdict.CIRCLE else strict.why)


def _worst_race(start: ChannelRun) -> HangCertificate | None:
    """The certificate of an order of racing sends that hangs, else of any order; None where there are too many."""
    found: HangCertificate | None = None
    waiting, seen = [start], {start.state}
    while waiting:
        run = waiting.pop()
        racing = run.racing
        if not racing:
            found = _certificate(run)
            if found.verdict in _HANGS:
                return found
        for rank in racing:
            chosen = run.copy()
            chosen.put(rank)
            chosen.settle()
            if chosen.state not in seen:
                seen.add(chosen.state)
                waiting.append(chosen)
        if len(seen) > _MOST_STATES:
            return None
    return found


def _certificate(run: ChannelRun) -> HangCertificate:
    """The verdict on a run in which no rank can go on."""

    def certified(verdict: Verdict, places: tuple[Place, ...] = (), why: str = "") -> HangCertificate:
        return HangCertificate(run.channels, run.capacity, verdict, places, why)

    waits = _Waits(run)
    circle = _shortest_circle(waits.found())
    if circle:
        return certified(Verdict.CIRCLE, tuple(run.place(rank) for rank in circle))
    if waits.never:
        place, why = min(waits.never)
        return certified(Verdict.NEVER_SATISFIED, (place,), why)
    if run.mismatch:
        asks, gets, what = run.mismatch
        return certified(Verdict.MISMATCHED, (asks, gets), f"{what} {gets}")
    return certified(Verdict.PROCEEDS)


class _Waits:
    """What each rank that cannot go on waits for."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run
        self._blocked = {rank: action for rank in run.actions if (action := run.current(rank)) is not None}
        self._left = _still_to_come(run, self._blocked)
        self.never = list[tuple[Place, str]]()
        """Actions whose other end does not come, and what that means for them."""

    def found(self) -> dict[int, list[int]]:
        """Per rank that is blocked, those that have to go on before it can, every one of them."""
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
            mine = next((i for i, each in enumerate(queue) if (each.rank, each.to) == (other, rank)), None)
            sender = self._comes(rank, ActionKind.SEND, other, rank, action, _NOBODY_SENDS) if mine is None else []
            return self._receivers(queue[:mine]) + sender
        if run.capacity:
            return self._receivers(list(run.queues[run.key(rank, other, action.edge)])[:1])
        return self._comes(rank, ActionKind.RECEIVE, rank, other, action, _NOBODY_RECEIVES)

    def _comes(self, rank: int, kind: ActionKind, source: int, to: int, action: Action, why: str) -> list[int]:
        """The rank that still has the other end of what `rank` is at; else that is noted."""
        if self._left[kind, source, to, self._run.between(action)]:
            return [source if kind is ActionKind.SEND else to]
        self.never.append((self._run.place(rank), why))
        return []

    def _missing(self, rank: int, action: Action) -> list[int]:
        """Those of the group that are not at the collective yet; where one has none left, that is noted."""
        group, missing = frozenset(action.ranks), []
        for other in sorted(group):
            there = self._blocked.get(other)
            if there and there.kind is ActionKind.COLLECTIVE and frozenset(there.ranks) == group:
                continue
            if self._left[ActionKind.COLLECTIVE, other, group]:
                missing.append(other)
            else:
                self.never.append((self._run.place(rank), f"waits forever: rank {other} does not come"))
        return missing

    def _receivers(self, queue: list[Sent]) -> list[int]:
        """The ranks that have to receive what is at the head of a queue; what is never received is noted."""
        seen, found = Counter[Hashable](), []
        for each in queue:
            flow = (
                ActionKind.RECEIVE,
                each.rank,
                each.to,
                self._run.between(self._run.actions[each.rank][each.position]),
            )
            seen[flow] += 1
            if seen[flow] <= self._left[flow]:
                found.append(each.to)
            else:
                self.never.append((self._run.place(each.rank, each.position), _NOBODY_RECEIVES))
        return found


def _still_to_come(run: ChannelRun, blocked: Mapping[int, Action]) -> Counter[Hashable]:
    """How many sends, receives and collectives blocked ranks have from here on, by whom they concern."""
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
    """The fewest ranks of which each waits for the next and the last for the first; none where there is no circle.

    A rank whose own shortest circle is known is taken out.
    """
    if not waits:
        return []
    import networkx as nx  # late: most ranks come to their end, and it takes a tenth of a second to load

    graph = nx.DiGraph((rank, other) for rank, others in waits.items() for other in sorted(others) if other in waits)
    best = list[int]()
    for rank in filter(graph.has_node, waits):
        shorter = len(best) - 2 if best else None  # edges of a path that closes a shorter circle
        paths: Mapping[int, list[int]] = nx.single_source_shortest_path(graph, rank, shorter)
        best = min((path for last, path in paths.items() if graph.has_edge(last, rank)), key=len, default=best)
        graph.remove_node(rank)
        if len(best) == 1 or nx.is_directed_acyclic_graph(graph):
            break
    return best
