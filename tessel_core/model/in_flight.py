"""How many micro-batches' activations each stage of a pipeline holds, and so what its device holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.model.checks import check_integer, grouped

ONE_F_ONE_B, GPIPE = "1f1b", "gpipe"
MOST_IN_FLIGHT = 4096


@dataclass(frozen=True, slots=True)
class InFlight:
    """Which micro-batches are under way between their forward and their backward on a stage, at most.

    `1f1b`: the k-th stage from the end holds k of them, as PipeDream's 1F1B does [Narayanan et al., SOSP 2019];
    `gpipe`: every stage holds all [Huang et al., NeurIPS 2019]; a number: every stage holds so many.  No more are held
    than there are `micro_batches`, unless a number says so.

    >>> [InFlight("1f1b", micro_batches=3).held_at(k) for k in (1, 2, 3, 4)]
    [1, 2, 3, 3]
    """

    rule: str | int = ONE_F_ONE_B
    micro_batches: int = 32

    def __post_init__(self) -> None:
        check_integer("in flight", "micro-batches", self.micro_batches, least=1)
        if self.rule not in (ONE_F_ONE_B, GPIPE):
            if isinstance(self.rule, str):
                raise InputError("in flight", f"must be {ONE_F_ONE_B}, {GPIPE} or a number, got {self.rule!r}")
            check_integer("in flight", "the number", self.rule, least=1)

    @property
    def included(self) -> int:
        """Micro-batches whose activations `Operator.memory` has in it: a graph is costed with a number of them."""
        return self.rule if isinstance(self.rule, int) else 1

    @property
    def by_position(self) -> bool:
        """Whether stages differ in how many they hold."""
        return self.rule == ONE_F_ONE_B

    def held_at(self, position: int) -> int:
        """Number of micro-batches that the stage at `position` from the end, which is 1 for the last one, holds."""
        if isinstance(self.rule, int):
            return self.rule
        return min(position, self.micro_batches) if self.by_position else self.micro_batches

    def held_by(
        self, before: Sequence[Sequence[int]], excess: Callable[[int, int], float], devices: int
    ) -> tuple[int, ...]:
        """Per stage, the micro-batches that it holds; `before` has the stages whose outputs it takes.

        Stages that may change places do so where that makes the largest excess(stage, number held), such as bytes over
        a capacity, least: of those that may come next, the one of least excess does [Lawler, Management Science 1973].
        Where tensors flow in a circle, stages have no positions: as many micro-batches as there are `devices` may then
        be under way at once, and each stage holds them all.
        """
        if not self.by_position:
            return (self.held_at(1),) * len(before)
        after = grouped(len(before), ((source, stage) for stage, sources in enumerate(before) for source in sources))
        waits = [len(sources) for sources in before]
        ready, held = [stage for stage, count in enumerate(waits) if not count], [0] * len(before)
        for position in range(len(before), 0, -1):
            if not ready:
                return (self.held_at(devices),) * len(before)
            number = self.held_at(position)
            _, first = min((excess(stage, number), stage) for stage in ready)
            ready.remove(first)
            held[first] = number
            for stage in after[first]:
                waits[stage] -= 1
                if not waits[stage]:
                    ready.append(stage)
        return tuple(held)


USUAL = InFlight()
"""What holds where nothing is said."""
