"""Check whether ranks can hang by trying every order of their steps: slow and simple."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

from tessel_core.deadlock import Action, ActionKind, Channels

SEND, RECEIVE, MEET = ActionKind.SEND, ActionKind.RECEIVE, ActionKind.COLLECTIVE
Lists = list[list[Action]]
Message = tuple[int, int]
"""Rank and position of a send."""
Queues = tuple[tuple[object, tuple[Message, ...]], ...]
State = tuple[tuple[int, ...], Queues, bool]
"""Positions of the ranks, contents of the queues, and whether any tensor was mismatched."""


def send(to: int, tensor: str, edge: str = "") -> Action:
    return Action(SEND, f"send of {tensor} to rank {to}", (to,), tensor, edge or tensor)


def receive(source: int, tensor: str, edge: str = "") -> Action:
    return Action(RECEIVE, f"receive of {tensor} from rank {source}", (source,), tensor, edge or tensor)


def meet(*group: int, tensor: str = "sum") -> Action:
    return Action(MEET, f"{tensor} of {group}", group, tensor)


def wait(to: int, tensor: str, edge: str = "") -> Action:
    return Action(ActionKind.WAIT, f"wait for {tensor}", (to,), tensor, edge or tensor)


def some_lists(choose: random.Random) -> Lists:
    """Return random actions of two to four ranks in a common order, with some random swaps and omissions."""
    lists: Lists = [[] for _ in range(choose.choice((2, 2, 3, 3, 4)))]
    for number in range(choose.randint(2, 5)):
        group = choose.sample(range(len(lists)), choose.choice((2, 2, 2, len(lists))))
        if choose.random() < 0.2:
            for rank in group:
                lists[rank].append(meet(*sorted(group), tensor=f"sum{number}"))
            continue
        one, other = group[:2]
        edge = choose.choice("ef")
        lists[one].append(send(other, f"t{number}", edge))
        lists[other].append(receive(one, f"t{number}", edge))
        if choose.random() < 0.2:
            lists[one].append(wait(other, f"t{number}", edge))
    for mine in lists:
        if any(action.kind is ActionKind.WAIT for action in mine):  # a wait must stay after its send
            continue
        for _ in range(choose.choice((0, 1, 2)) if len(mine) > 1 else 0):
            i = choose.randrange(len(mine) - 1)
            mine[i], mine[i + 1] = mine[i + 1], mine[i]
        if mine and choose.random() < 0.06:
            mine.pop(choose.randrange(len(mine)))
    return lists


class Everything:
    """All states that are reachable in some order."""

    def __init__(self, lists: Lists, channels: Channels, capacity: int) -> None:
        self.lists, self.channels, self.capacity = lists, channels, capacity
        start: State = ((0,) * len(lists), (), False)
        reached, waiting = {start}, [start]
        self.ends = list[State]()
        """States in which no rank can continue."""
        while waiting:
            state = waiting.pop()
            after = list(self.steps(state))
            if not after:
                self.ends.append(state)
            for each in after:
                if each not in reached:
                    reached.add(each)
                    waiting.append(each)

    def key(self, source: int, to: int, edge: object) -> object:
        return {
            Channels.RANK: source,
            Channels.PAIR: frozenset((source, to)),
            Channels.DIRECTION: (source, to),
            Channels.EDGE: (source, to, edge),
        }[self.channels]

    def now(self, at: tuple[int, ...], rank: int) -> Action | None:
        return self.lists[rank][at[rank]] if at[rank] < len(self.lists[rank]) else None

    def steps(self, state: State) -> Iterator[State]:
        """Yield the states after one step of one rank, or of several ranks in a collective."""
        at, held, wrong = state
        queues = dict(held)
        for rank in range(len(self.lists)):
            action = self.now(at, rank)
            if action is None:
                continue
            if action.kind is MEET:
                there = [self.now(at, other) for other in action.ranks]
                if all(each and each.kind is MEET and set(each.ranks) == set(action.ranks) for each in there):
                    unlike = len({each.tensor for each in there if each}) > 1
                    yield self.moved(at, action.ranks), held, wrong or unlike
                continue
            (other,) = action.ranks
            if action.kind is ActionKind.WAIT:
                mine = queues.get(self.key(rank, other, action.edge), ())
                if not any(r == rank and self.lists[r][p].tensor == action.tensor for r, p in mine):
                    yield self.moved(at, (rank,)), held, wrong
            elif action.kind is SEND and self.capacity:
                key = self.key(rank, other, action.edge)
                if len(queues.get(key, ())) < self.capacity:
                    yield (
                        self.moved(at, (rank,)),
                        frozen({**queues, key: (*queues.get(key, ()), (rank, at[rank]))}),
                        wrong,
                    )
            elif action.kind is SEND:
                taking = self.now(at, other)
                same = taking and (self.channels is not Channels.EDGE or taking.edge == action.edge)
                if taking and taking.kind is RECEIVE and taking.ranks == (rank,) and same:
                    yield self.moved(at, (rank, other)), held, wrong or taking.tensor != action.tensor
            elif self.capacity:
                key = self.key(other, rank, action.edge)
                head = queues.get(key, ())[:1]
                if head and head[0][0] == other and self.sent(head[0]).ranks == (rank,):
                    unlike = self.sent(head[0]).tensor != action.tensor
                    yield self.moved(at, (rank,)), frozen({**queues, key: queues[key][1:]}), wrong or unlike

    def sent(self, message: Message) -> Action:
        return self.lists[message[0]][message[1]]

    def moved(self, at: tuple[int, ...], ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(place + (rank in ranks) for rank, place in enumerate(at))

    def finished(self, state: State) -> bool:
        return all(at == len(mine) for at, mine in zip(state[0], self.lists, strict=True)) and not state[1]

    def fewest_that_wait(self, state: State) -> int:
        """Return the size of the smallest set of ranks that stays blocked whatever the others do; 0 if there is none.

        The other ranks do all their remaining actions in order, without waiting.
        """
        blocked = [rank for rank in range(len(self.lists)) if self.now(state[0], rank)]
        for size in range(1, len(blocked) + 1):
            if any(self.stay(state, set(few)) for few in combinations(blocked, size)):
                return size
        return 0

    def stay(self, state: State, few: set[int]) -> bool:
        """Whether the ranks in `few` stay blocked although the other end of each of their actions is still to come."""
        at, held, _ = state
        helped = {key: list(queue) for key, queue in held}
        for key, queue in helped.items():
            taken = dict.fromkeys(((a, b) for a in range(len(at)) for b in range(len(at))), 0)
            while queue and (to := self.sent(queue[0]).ranks[0]) not in few:
                taken[queue[0][0], to] += 1
                if taken[queue[0][0], to] > self.left(at, to, RECEIVE, queue[0][0], key):
                    break
                queue.pop(0)
        return all(self.stays(at, helped, rank, few) for rank in few)

    def left(self, at: tuple[int, ...], rank: int, kind: ActionKind, other: int, key: object) -> int:
        """Count the remaining sends or receives of a rank with another rank on a queue."""
        return sum(
            action.kind is kind and action.ranks == (other,) and key == self.key(*ends, action.edge)
            for action in self.lists[rank][at[rank] :]
            for ends in [(rank, other) if kind is SEND else (other, rank)]
        )

    def held_up(self, at: tuple[int, ...], queue: list[Message], key: object, few: set[int]) -> bool:
        """Whether a rank in `few` still has to receive a message of that part of a queue."""
        for i, message in enumerate(queue):
            to = self.sent(message).ranks[0]
            before = sum(m[0] == message[0] and self.sent(m).ranks == (to,) for m in queue[:i])
            if to in few and self.left(at, to, RECEIVE, message[0], key) > before:
                return True
        return False

    def stays(self, at: tuple[int, ...], helped: dict[object, list[Message]], rank: int, few: set[int]) -> bool:
        action = self.now(at, rank)
        assert action
        if action.kind is MEET:
            return any(
                other in few
                and not ((each := self.now(at, other)) and each.kind is MEET and set(each.ranks) == set(action.ranks))
                and any(
                    later.kind is MEET and set(later.ranks) == set(action.ranks)
                    for later in self.lists[other][at[other] :]
                )
                for other in action.ranks
            )
        (other,) = action.ranks
        if action.kind is RECEIVE:
            key = self.key(other, rank, action.edge)
            queue = helped.get(key, [])
            mine = next((i for i, m in enumerate(queue) if m[0] == other and self.sent(m).ranks == (rank,)), len(queue))
            unsent = mine == len(queue) and other in few and self.left(at, other, SEND, rank, key) > 0
            return unsent or self.held_up(at, queue[:mine], key, few)
        key = self.key(rank, other, action.edge)
        if not self.capacity:
            return other in few and self.left(at, other, RECEIVE, rank, key) > 0
        queue = helped.get(key, [])
        if action.kind is ActionKind.WAIT:
            own = [i for i, m in enumerate(queue) if m[0] == rank and self.sent(m).tensor == action.tensor]
            return bool(own) and self.held_up(at, queue[: own[0] + 1], key, few)
        return len(queue) >= self.capacity and self.held_up(at, queue[:1], key, few)


def frozen(queues: dict[object, tuple[Message, ...]]) -> Queues:
    return tuple(sorted(((key, queue) for key, queue in queues.items() if queue), key=lambda each: each[1]))
