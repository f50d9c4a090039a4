"""Bytes and seconds of a skeleton's operations, a number per configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators.operator import Values
from tessel_core.ir.types import WIDTHS, TensorType
from tessel_core.simulation import Costs
from tessel_core.strategies.skeleton import Kind, Shape

Seconds = NDArray[np.float64]
Bytes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a skeleton's sizes are in one configuration; operations of equal sizes cost the same."""

    rows: int
    width: int
    shard: int
    tensor: int
    data: int
    dtype: str

    def concrete(self, shape: Shape, joined: int = 1) -> TensorType:
        """The type on device 1, of so many micro-batches that are joined."""
        sizes = [getattr(self, name) for name in shape.sizes]
        if joined > 1:
            sizes[0] *= joined
        return TensorType(shape.dtype or self.dtype, tuple(sizes), 1)


class CostTable:
    """Asks the costs once per kind and sizes, on the first devices: the mesh is uniform."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[object, float] = {}

    def seconds(self, kind: str, taken: Sequence[TensorType], made: Sequence[TensorType], values: Values) -> float:
        """Of an operation on device 1, among others for what communicates."""
        return self._costs.seconds(kind, taken, made, values)[1]

    def of(self, key: object, ask: Callable[[], float]) -> float:
        """The known answer, or a new one."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = ask()
        return found


@dataclass(frozen=True)
class Amounts:
    """The configurations of one group, in order; arrays are shaped (configurations,) unless said otherwise."""

    table: CostTable
    sizes: tuple[Sizes, ...]
    micro_batches: int

    @cached_property
    def _different(self) -> tuple[list[Sizes], NDArray[np.int64]]:
        """Per different sizes one, and which of them each configuration has."""
        number: dict[Sizes, int] = {}
        which = [number.setdefault(each, len(number)) for each in self.sizes]
        return list(number), np.array(which)

    def bytes_of(self, shape: Shape) -> Bytes:
        """Of one tensor."""
        width = np.array([WIDTHS[shape.dtype or each.dtype] for each in self._different[0]], np.int64)
        for name in shape.sizes:
            width = width * np.array([getattr(each, name) for each in self._different[0]], np.int64)
        return np.asarray(width[self._different[1]])

    def seconds_of(self, kind: Kind) -> Seconds:
        """Of one run; a collective is among all devices that share a layer."""

        def ask(each: Sizes) -> float:
            taken, made = map(each.concrete, kind.taken), map(each.concrete, kind.made)
            if not kind.talks:
                return self.table.seconds(kind.name, list(taken), list(made), dict(kind.attributes))
            return self.table.seconds(
                kind.name,
                [of_type.on(device) for of_type in taken for device in range(1, each.tensor + 1)],
                [of_type.on(device) for of_type in made for device in range(1, each.tensor + 1)],
                dict(kind.attributes),
            )

        return self._asked(kind, ask)

    def send(self, shape: Shape) -> Seconds:
        """To a neighbour."""

        def ask(each: Sizes) -> float:
            of_type = each.concrete(shape)
            return self.table.seconds("send", [of_type], [of_type.on(2)], {"to": 2})

        return self._asked(("send", shape), ask)

    def allreduce(self, shape: Shape) -> Seconds:
        """Among replicas; 0 where there is one."""

        def ask(each: Sizes) -> float:
            types = [each.concrete(shape).on(device) for device in range(1, each.data + 1)]
            return self.table.seconds("allreduce", types, types, {}) if each.data > 1 else 0.0

        return self._asked(("replicas", shape), ask)

    def update(self, weights: Sequence[Shape]) -> Seconds:
        """The optimizer's step on these weights."""

        def ask(each: Sizes) -> float:
            types = list(map(each.concrete, weights))
            return self.table.seconds("sgd", [*types, *types], types, {"rate": 0.01})

        return self._asked(("sgd", tuple(weights)), ask)

    def combining(self, shape: Shape, joins: bool) -> Seconds:
        """Of each micro-batch's part: shaped (micro-batches, configurations), the first of them is only copied."""
        different = [
            self._asked(("combine", shape, joins, n), self._combiner(shape, n, joins)) for n in self._turns(joins)
        ]
        return np.array([different[min(n, len(different) - 1)] for n in range(self.micro_batches)])

    def combined_bytes(self, shape: Shape, joins: bool) -> tuple[Bytes, Bytes]:
        """What combining acquires, and the whole that it releases besides the part, shaped as `combining`."""
        size, turn = self.bytes_of(shape), np.arange(self.micro_batches)[:, None]
        return ((turn + 1) * size, turn * size) if joins else (0 * turn + size, np.minimum(turn, 1) * size)

    def _turns(self, joins: bool) -> range:
        """Joining more takes longer; adding takes as long every time."""
        return range(self.micro_batches if joins else 2)

    def _combiner(self, shape: Shape, before: int, joins: bool) -> Callable[[Sizes], float]:
        def ask(each: Sizes) -> float:
            one = each.concrete(shape)
            if not before:
                return self.table.seconds("identity", [one], [one], {})
            if not joins:
                return self.table.seconds("add", [one, one], [one], {})
            known, whole = each.concrete(shape, before), each.concrete(shape, before + 1)
            return self.table.seconds("concat", [known, one], [whole], {"axis": 0})

        return ask

    def _asked(self, what: object, ask: Callable[[Sizes], float]) -> Seconds:
        different, which = self._different
        found = [self.table.of((what, each), lambda each=each: ask(each)) for each in different]  # type: ignore[misc]
        return np.array(found)[which]
