"""Levels in which the player reorders the actions of ranks until no rank waits forever."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from tessel_core.deadlock import Channels, HangCertificate, check_channels
from tessel_core.deadlock.actions import Action, ActionKind
from tessel_core.errors import InputError

Order = tuple[tuple[int, ...], ...]
"""Order of the actions of each rank, as positions in its original list."""
Step = tuple[int, int]
"""A move: a rank, and the position of an action that swaps places with the next action."""


@dataclass(frozen=True)
class Ordering:
    """Task: lists of actions for each rank. It also states which actions need an earlier action of the same rank."""

    names: tuple[str, ...]
    """Names of the ranks."""
    lists: tuple[tuple[Action, ...], ...]
    needs: tuple[tuple[int, int, int], ...]
    """Dependencies between actions as (rank, first, then).

    `first` and `then` are positions in the rank's list, and `then` needs `first`.
    """
    channels: Channels = Channels.PAIR

    @property
    def start(self) -> Order:
        """The order in which the level starts."""
        return tuple(tuple(range(len(actions))) for actions in self.lists)

    def order_of(self, kept: Sequence[Sequence[int]]) -> Order:
        """Return the saved order. Return `start` if it does not fit this task."""
        order = tuple(tuple(row) for row in kept)
        same = [sorted(row) for row in order] == [sorted(row) for row in self.start]
        return order if same and not self._broken(order) else self.start

    def moved(self, order: Order, step: Step) -> Order:
        """Return the order with two neighbouring actions swapped.

        Raises InputError if the second action needs the first.
        """
        rank, at = step
        row = list(order[rank])
        row[at], row[at + 1] = row[at + 1], row[at]
        found = (*order[:rank], tuple(row), *order[rank + 1 :])
        broken = self._broken(found)
        if broken:
            raise InputError(self.names[rank], broken)
        return found

    def _broken(self, order: Order) -> str:
        for rank, first, then in self.needs:
            if order[rank].index(first) > order[rank].index(then):
                one, other = (self.lists[rank][each].text for each in (then, first))
                return f"cannot {one} before this action: {other}"
        return ""

    def check(self, order: Order) -> HangCertificate:
        """Check whether all ranks reach the end of their lists if each send waits for its receive."""
        actions = {rank: [self.lists[rank][each] for each in row] for rank, row in enumerate(order)}
        return check_channels(actions, self.channels)

    def stops(self, found: HangCertificate) -> dict[int, int]:
        """Return the position at which each rank that waits forever has stopped."""
        return {each.rank: each.position for each in found.places}

    def crossed(self, order: Order, found: HangCertificate) -> dict[tuple[int, int], str]:
        """Return (rank, position) of each send and receive that met with different tensors.

        The entry of a receive has a sentence.
        """
        stops, crossed = self.stops(found), dict[tuple[int, int], str]()
        for sender, receiver in permutations(range(len(order)), 2):
            sends = self._handed(order, sender, receiver, ActionKind.SEND)
            receives = self._handed(order, receiver, sender, ActionKind.RECEIVE)
            for (out, sent), (into, taken) in zip(sends, receives, strict=False):
                met = out <= stops.get(sender, len(order[sender])) and into <= stops.get(receiver, len(order[receiver]))
                if met and sent.tensor != taken.tensor:
                    names = self.names[receiver], taken.text, self.names[sender], sent.text
                    crossed |= {(sender, out): "", (receiver, into): "{} would {} while {} would {}".format(*names)}
        return crossed

    def _handed(self, order: Order, rank: int, other: int, kind: ActionKind) -> list[tuple[int, Action]]:
        """Return the sends of a rank to another rank, or its receives from it, with their positions."""
        actions = ((at, self.lists[rank][each]) for at, each in enumerate(order[rank]))
        return [(at, action) for at, action in actions if action.kind is kind and other in action.ranks]

    def says(self, order: Order, found: HangCertificate) -> str:
        """Describe the result of the check in a sentence. If tensors are mismatched, the sentence is about them."""
        if found.proceeds:
            return "All devices reach the end of their lists."
        mistaken = [each for each in self.crossed(order, found).values() if each]
        if mistaken:
            return f"Mismatched: {' and '.join(mistaken)}, so the wrong tensor would arrive."
        waits = [f"{self.names[each.rank]} waits forever to {each.action}" for each in found.places]
        return f"{str(found.verdict).capitalize()}: {' and '.join(waits)}."

    def steps(self, order: Order) -> Iterator[tuple[Step, Order]]:
        """Yield all allowed moves, each with the order that results."""
        for rank, row in enumerate(order):
            for at in range(len(row) - 1):
                try:
                    yield (rank, at), self.moved(order, (rank, at))
                except InputError:
                    continue

    def way_out(self, order: Order) -> tuple[Step, ...]:
        """Return the shortest sequence of moves after which no rank waits forever. Empty if none waits forever now."""
        return _way_out(self, order)


@lru_cache(maxsize=64)
def _way_out(task: Ordering, order: Order) -> tuple[Step, ...]:
    front, seen = deque([(order, tuple[Step, ...]())]), {order}
    while front:
        now, way = front.popleft()
        if task.check(now).proceeds:
            return way
        for step, after in task.steps(now):
            if after not in seen:
                seen.add(after)
                front.append((after, (*way, step)))
    raise AssertionError("every level has an order that does not hang")
