"""Number of micro-batches in flight per pipeline stage, which decides how many activations a device holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.model.checks import check_integer, grouped

ONE_F_ONE_B, GPIPE = "1f1b", "gpipe"
MAX_IN_FLIGHT = 4096


@dataclass(frozen=True, slots=True)
class InFlight:
    """Largest number of micro-batches that a stage holds between their forward and backward passes.

    `rule` is one of:

    - `1f1b`: the k-th stage from the end holds k, as in PipeDream's 1F1B [Narayanan et al., SOSP 2019];
    - `gpipe`: every stage holds all micro-batches [Huang et al., NeurIPS 2019];
    - a number: every stage holds this many, even if the step has fewer `micro_batches`.

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
            check_integer("in flight", "the number of micro-batches", self.rule, least=1)

    @property
    def included(self) -> int:
        """Number of micro-batches whose activations `Placement.bytes_on_each` counts: the rule if a number, else 1."""
        return self.rule if isinstance(self.rule, int) else 1

    @property
    def by_position(self) -> bool:
        """Whether the number of micro-batches held depends on the position of the stage in the pipeline."""
        return self.rule == ONE_F_ONE_B

    def held_at(self, position: int) -> int:
        """Return the number of micro-batches that a stage holds. The last stage has position 1."""
        if isinstance(self.rule, int):
            return self.rule
        return min(position, self.micro_batches) if self.by_position else self.micro_batches

    def held_by(
        self, before: Sequence[Sequence[int]], excess: Callable[[int, int], float], devices: int
    ) -> tuple[int, ...]:
        """Return the number of micro-batches that each stage holds.

        `before` lists the predecessors of each stage. If several orders of the stages are possible, the function
        chooses the order with the smallest maximum of `excess(stage, number held)`. The excess may be the bytes over a
        capacity. Positions are assigned from the first stage on. Among the stages whose predecessors have positions,
        the one with the least excess comes next [Lawler, Management Science 1973].

        If tensors flow in a cycle, stages have no positions. Each stage then holds one micro-batch per device.
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
"""Default rule: 1F1B."""
