"""Bytes and seconds of a skeleton's operations, a number per configuration."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.program import Attributes
from tessel_core.ir.transforms import part_shape
from tessel_core.ir.types import WIDTHS, TensorType
from tessel_core.simulation import Costs
from tessel_core.strategies.places import Group, Places
from tessel_core.strategies.skeleton import Column, Kind, Shape, Step

Seconds = NDArray[np.float64]
Bytes = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a skeleton's sizes are in one configuration."""

    numbers: Mapping[str, int]
    """By the names that the family gives them."""
    data: int
    dtype: str
    micro_batches: int
    shares: int = 1
    """Parts into which replicas cut the optimizer's state, and gradients and weights for it; 1 without ZeRO."""

    def type_of(self, shape: Shape, device: int) -> TensorType:
        """Of a tensor on a device."""
        sizes = [self.numbers[name] for name in shape.sizes]
        if shape.joined > 1:
            sizes[0] *= shape.joined
        return TensorType(shape.dtype or self.dtype, tuple(sizes), device)

    def part_of(self, shape: Shape, device: int, parts: int) -> TensorType:
        """What is left of it where it is cut into so many."""
        whole = self.type_of(shape, device)
        return whole if parts == 1 else whole.shaped(part_shape(whole.shape, parts))


class CostTable:
    """Asks the costs once per question and sizes, and remembers."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._answers: dict[Hashable, dict[Hashable, float]] = defaultdict(dict)

    def answers(self, question: Hashable) -> dict[Hashable, float]:
        """What is known of a question, by sizes."""
        return self._answers[question]

    def seconds(
        self, kind: str, taken: Sequence[TensorType], made: Sequence[TensorType], attributes: Attributes = ()
    ) -> float:
        """Of an operation, on the device of its first input."""
        return self._costs.seconds(kind, taken, made, dict(attributes))[taken[0].device]


@dataclass(frozen=True)
class Amounts:
    """The configurations of one group, in order; arrays are shaped (configurations,) unless said otherwise."""

    table: CostTable
    sizes: tuple[Sizes, ...]
    places: tuple[Places, ...]
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def micro_batches(self) -> int:
        """The most that a configuration has."""
        return max(each.micro_batches for each in self.sizes)

    def by_micro_batches(self) -> dict[int, NDArray[np.int64]]:
        """Which configurations have so many."""
        counts = np.array([each.micro_batches for each in self.sizes], np.int64)
        return {int(count): np.flatnonzero(counts == count) for count in np.unique(counts)}

    def some(self, columns: NDArray[np.int64]) -> Amounts:
        """Of these configurations only."""
        sizes, places = (tuple(each[i] for i in columns) for each in (self.sizes, self.places))
        return Amounts(self.table, sizes, places)

    def patterns(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """How the devices lie that share the layers of a stage; stages that differ in it take different times."""
        return tuple(each.tensor[stage].pattern for each in self.places)

    def several(self) -> Flags:
        """Whether there are several replicas."""
        return np.array([each.data > 1 for each in self.sizes])

    def bytes_of(self, shape: Shape) -> Bytes:
        """Of one tensor."""
        found: Bytes | None = self._known.get(shape)
        if found is None:
            found = np.array([WIDTHS[shape.dtype or each.dtype] for each in self.sizes], np.int64)
            for name in shape.sizes:
                found = found * np.array(self._column(name), np.int64)
            self._known[shape] = found
        return found

    def cuts(self, shape: Shape) -> Bytes:
        """Into how many parts replicas cut a weight of this shape; 1 where no axis divides."""
        question = "cuts", shape.sizes
        found: Bytes | None = self._known.get(question)
        if found is None:
            shares = np.array([each.shares for each in self.sizes], np.int64)
            found, divides = np.ones_like(shares), np.zeros(len(shares), bool)
            if (shares > 1).any():
                for name in shape.sizes:
                    divides |= np.array(self._column(name), np.int64) % shares == 0
                found = np.where(divides, shares, 1)
            self._known[question] = found
        return found

    def part_bytes(self, shape: Shape) -> Bytes:
        """Of what a replica has of a weight, its gradient or its state where they are cut."""
        question = "part", shape
        found: Bytes | None = self._known.get(question)
        if found is None:
            found = self._known[question] = self.bytes_of(shape) // self.cuts(shape)
        return found

    def seconds_of(self, kind: Kind, stage: int) -> Seconds:
        """Of one run; a collective is among all devices that share a layer."""
        if kind.talks:
            return self._asked((kind, "tensor", stage), kind, [each.tensor[stage] for each in self.places])
        return self._asked(kind, kind)

    def send(self, shape: Shape, one: int, other: int) -> Seconds:
        """Between neighbours."""
        known: Seconds | None = self._known.get((shape, one, other))
        if known is None:
            kind = Kind("send", (shape,), (shape,), (("to", 2),), talks=True)
            pairs = [each.onward[min(one, other)] for each in self.places]
            known = self._asked((shape, one, other), kind, pairs)
        return known

    def summing(self, shape: Shape, stage: int) -> Seconds:
        """Of a gradient among replicas, each of which is left with all of it or with a part; 0 where there is one."""
        known: Seconds | None = self._known.get(("summing", shape, stage))
        if known is None:
            cut, several = self.cuts(shape) > 1, self.several()
            known = self._among_replicas("allreduce", shape, stage, several & ~cut)
            if cut.any():
                known = known + self._among_replicas("reduce_scatter", shape, stage, cut)
            self._known["summing", shape, stage] = known
        return known

    def gathering(self, shape: Shape, stage: int) -> Seconds:
        """Of a weight from its parts; 0 where replicas do not cut it."""
        known: Seconds | None = self._known.get(("gathering", shape, stage))
        if known is None:
            known = self._among_replicas("allgather_in_place", shape, stage, self.cuts(shape) > 1)
            self._known["gathering", shape, stage] = known
        return known

    def _among_replicas(self, name: str, shape: Shape, stage: int, which: Flags) -> Seconds:
        kind = Kind(name, (shape,), (shape,), talks=True)
        return self._asked((name, shape, "data", stage), kind, [each.data[stage] for each in self.places], which)

    def update_parts(self, step: Step, weights: Counter[Column]) -> Seconds:
        """The optimizer's step on these weights, which replicas may cut, and whose costs add up."""
        names = sorted({name for taken, _ in weights for shape in taken for name in shape.sizes})
        keys = zip(self._dtypes, (each.shares for each in self.sizes), *map(self._column, names), strict=True)

        def ask(i: int) -> float:
            taken, made = _of_step(step, weights, self.sizes[i])
            return self.table.seconds(step.kind.name, taken, made, step.kind.attributes)

        question = "update", step.kind.name, step.kind.attributes, frozenset(weights.items())
        return self._answered(question, keys, ask)

    def combining(self, shape: Shape, joins: bool, turns: int) -> Seconds:
        """Of the parts of the first so many micro-batches, shaped (turns, configurations); the first is only copied."""
        question = "combining", shape, joins, turns
        known: Seconds | None = self._known.get(question)
        if known is None:
            rows = [self._combine(shape, joins, before) for before in range(turns if joins else 2)]
            known = self._known[question] = np.array([rows[min(n, len(rows) - 1)] for n in range(turns)])
        return known

    def combined_bytes(self, shape: Shape, joins: bool, turns: int) -> tuple[Bytes, Bytes]:
        """What combining acquires, and the whole that it releases besides the part, shaped as `combining`."""
        size, turn = self.bytes_of(shape), np.arange(turns)[:, None]
        return ((turn + 1) * size, turn * size) if joins else (0 * turn + size, np.minimum(turn, 1) * size)

    def _combine(self, shape: Shape, joins: bool, before: int) -> Seconds:
        """To what so many micro-batches made before."""
        if not before:
            return self._asked(("identity", shape), Kind("identity", (shape,), (shape,)))
        if not joins:
            return self._asked(("add", shape), Kind("add", (shape, shape), (shape,)))
        kind = Kind("concat", (shape.times(before), shape), (shape.times(before + 1),), (("axis", 0),))
        return self._asked(kind, kind, None, np.array([each.micro_batches > before for each in self.sizes]))

    def _asked(
        self, question: Hashable, kind: Kind, groups: Sequence[Group] | None = None, which: Flags | None = None
    ) -> Seconds:
        """Of one run, where the groups communicate, by configuration; 0 for all but those `which` matter."""
        found: Seconds | None = self._known.get(question)
        if found is None and which is not None and not which.any():
            found = self._known[question] = np.zeros(len(self.sizes))
        if found is None:
            # Operations whose own sizes are equal cost the same.
            keys: Iterable[Hashable] = zip(self._dtypes, *map(self._column, kind.names), strict=True)
            if groups is not None:
                keys = zip(keys, (group.pattern for group in groups), strict=True)
            devices = [(1,)] * len(self.sizes) if groups is None else [group.devices for group in groups]
            found = self._answered(kind, keys, lambda i: self._ask(kind, self.sizes[i], devices[i]), which)
            self._known[question] = found
        return found

    def _answered(
        self, question: Hashable, keys: Iterable[Hashable], ask: Callable[[int], float], which: Flags | None = None
    ) -> Seconds:
        """Per configuration, what is known by its key, else what asking says."""
        answers, seconds = self.table.answers(question), list[float]()
        wanted = repeat(True) if which is None else which.tolist()
        for i, (key, matters) in enumerate(zip(keys, wanted, strict=False)):
            answer = answers.get(key) if matters else 0.0
            if answer is None:
                answer = answers[key] = ask(i)
            seconds.append(answer)
        return np.array(seconds)

    @property
    def _dtypes(self) -> list[str]:
        return [each.dtype for each in self.sizes]

    def _column(self, name: str) -> list[int]:
        known: list[int] | None = self._known.get(name)
        if known is None:
            known = self._known[name] = [each.numbers[name] for each in self.sizes]
        return known

    def _ask(self, kind: Kind, sizes: Sizes, devices: tuple[int, ...]) -> float:
        sources, targets = (devices[:1], devices[1:]) if kind.name == "send" else (devices, devices)
        if not targets or (kind.talks and len(devices) == 1):
            return 0.0
        parts = len(devices) if kind.name == "allgather_in_place" else 1
        # Most of what an operation makes is like what it takes.
        types: dict[tuple[Shape, int], TensorType] = {}
        for shape in (*kind.taken, *kind.made):
            for device in (*sources, *targets):
                if (shape, device) not in types:
                    types[shape, device] = sizes.part_of(shape, device, parts)
        taken = [types[shape, device] for shape in kind.taken for device in sources]
        made = [types[shape, device] for shape in kind.made for device in targets]
        sized = tuple((name, sizes.numbers[name]) for name in kind.sized)
        return self.table.seconds(kind.name, taken, made, (*kind.attributes, *sized))


def _of_step(step: Step, weights: Counter[Column], sizes: Sizes) -> tuple[list[TensorType], list[TensorType]]:
    """What the optimizer takes and makes; tensors that are alike are one, as deep networks have many."""

    def all_of(shape: Shape, count: int) -> TensorType:
        part = sizes.part_of(shape, 1, sizes.shares)
        return part.shaped((count, *part.shape))

    pairs = {(shape, count) for (taken, _), count in weights.items() for shape in taken}
    known = {pair: all_of(*pair) for pair in pairs}
    taken = [known[shape, count] for (shapes, _), count in weights.items() for shape in shapes]
    made = [known[shape, count] for (_, shapes), count in weights.items() for shape in shapes]
    return [*taken, *(sizes.type_of(shape, 1) for shape in step.rest)], made
