"""Costs of a program that is written for one rank, while several ranks run it (`ir/transforms/expansion.py`).

A device of such a program is a position in the pipeline. All ranks do the same there. A collective takes as long as it
does in the slowest group of ranks, and a transfer as long as on the slowest link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.transforms.expansion import Degrees, groups_of
from tessel_core.ir.types import TensorType
from tessel_core.simulation.costs import Costs, DeviceSeconds

WorkerOf = Callable[[int, int], int]
"""Returns the worker at a rank and a position in the pipeline, both counted from 0."""


@dataclass(frozen=True)
class RankCosts(Costs):
    """Costs of a program for one rank. Device p of the program is position p - 1 in the pipeline."""

    costs: Costs
    """Costs of operations on the workers."""
    degrees: Degrees
    worker_of: WorkerOf
    nodes: Sequence[int]
    """Node of each worker, beginning with worker 1."""
    _there: dict[tuple[TensorType, int], TensorType] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cache: type of the program and rank, mapped to the same type on the rank's worker."""
    _distinct_groups: dict[tuple[str, tuple[int, ...]], list[tuple[int, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def first_worker(self) -> int:
        """Worker of the first rank at the first position."""
        return self.worker_of(0, 0)

    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Return the seconds of an operation at each position in the pipeline, on its slowest ranks."""
        places = tuple(dict.fromkeys(each.device for each in (*types, *outputs)))
        if not find_operator(kind).pattern:
            found = self.costs.seconds(kind, self._at(types, 0), self._at(outputs, 0), values)
            return {place: found[self.worker_of(0, place - 1)] for place in places}
        named = {name: value for name, value in values.items() if name not in ("over", "degree")}
        slowest: DeviceSeconds = {}
        for group in self._groups(str(values.get("over", "")), places):
            taken, made = ([each for rank in group for each in self._at(some, rank)] for some in (types, outputs))
            if "to" in named:
                named["to"] = made[0].device
            found = self.costs.seconds(kind, taken, made, named)
            for place in places:
                slowest[place] = max(slowest.get(place, 0.0), found[self.worker_of(group[0], place - 1)])
        return slowest

    def _at(self, types: Types, rank: int) -> Types:
        return [self._there.get((each, rank)) or self._on(each, rank) for each in types]

    def _on(self, of_type: TensorType, rank: int) -> TensorType:
        found = self._there[of_type, rank] = of_type.on(self.worker_of(rank, of_type.device - 1))
        return found

    def _groups(self, over: str, places: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return groups of ranks that differ in how they are spread over nodes, one group of each kind."""
        if (over, places) not in self._distinct_groups:
            groups = groups_of(self.degrees, over) if over else [(rank,) for rank in range(self.degrees.count)]
            different: dict[tuple[int, ...], tuple[int, ...]] = {}
            for group in groups:
                nodes = [self.nodes[self.worker_of(rank, place - 1) - 1] for rank in group for place in places]
                number: dict[int, int] = {}
                different.setdefault(tuple(number.setdefault(node, len(number)) for node in nodes), group)
            self._distinct_groups[over, places] = list(different.values())
        return self._distinct_groups[over, places]
