"""Bytes and seconds of a skeleton's operations, a number per configuration."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from itertools import repeat
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.costs.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from tessel_core.ir.program import Attributes
from tessel_core.ir.transforms.update import part_shape
from tessel_core.ir.types import WIDTHS, TensorType
from tessel_core.simulation.costs import MeshCosts
from tessel_core.strategies.places import Group, Places
from tessel_core.strategies.skeleton import Column, Kind, Shape, Step

T = TypeVar("T")
Arguments = ParamSpec("Arguments")
Seconds = NDArray[np.float64]
Bytes = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The values of a skeleton's sizes in one configuration."""

    numbers: Mapping[str, int]
    """Sizes by the names that the family gives them."""
    data: int
    dtype: str
    micro_batches: int
    bucket_bytes: int = 1
    """Gradients that replicas sum together; with 1, each on its own."""
    shares: int = 1
    """Parts into which replicas cut the optimizer's state, and gradients and weights for it; 1 without ZeRO."""

    def type_of(self, shape: Shape, device: int) -> TensorType:
        """The type of a tensor on a device."""
        sizes = [self.numbers[name] for name in shape.sizes]
        if shape.joined > 1:
            sizes[0] *= shape.joined
        return TensorType(shape.dtype or self.dtype, tuple(sizes), device)

    def part_of(self, shape: Shape, device: int, parts: int) -> TensorType:
        """The type of one part of a tensor that is cut into so many."""
        whole = self.type_of(shape, device)
        return whole if parts == 1 else whole.shaped(part_shape(whole.shape, parts))


class CostTable:
    """Seconds of operations, asked of the costs once per question and sizes."""

    def __init__(self, costs: MeshCosts) -> None:
        self._costs = costs
        self._answers: dict[Hashable, dict[Hashable, float]] = defaultdict(dict)
        self._collectives: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}

    def collective(self, pattern: str, group: Group) -> tuple[float, float]:
        """Latency and seconds per byte of a collective of a group."""
        key = pattern, group.pattern
        if key not in self._collectives:
            one = self._costs.collective(pattern, group.devices, 1.0)
            self._collectives[key] = one.latency, one.amount / one.bandwidth
        return self._collectives[key]

    def answers(self, question: Hashable) -> dict[Hashable, float]:
        """The known answers to a question, by sizes."""
        return self._answers[question]

    def seconds(
        self, kind: str, taken: Sequence[TensorType], made: Sequence[TensorType], attributes: Attributes = ()
    ) -> float:
        """The time of an operation on the device of its first input."""
        return self._costs.seconds(kind, taken, made, dict(attributes))[taken[0].device]


def _remembered(method: Callable[Concatenate[Amounts, Arguments], T]) -> Callable[Concatenate[Amounts, Arguments], T]:
    """A method that is called once for the same arguments, which are given by position."""

    @wraps(method)
    def asked(self: Amounts, /, *args: Arguments.args, **named: Arguments.kwargs) -> T:
        question = method.__name__, *args
        found: T | None = self._known.get(question)
        if found is None:
            found = self._known[question] = method(self, *args, **named)
        return found

    return asked


@dataclass(frozen=True)
class Amounts:
    """The configurations of one group, in order; arrays are shaped (configurations,) unless said otherwise."""

    table: CostTable
    sizes: tuple[Sizes, ...]
    places: tuple[Places, ...]
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def micro_batches(self) -> int:
        """The largest number of micro-batches of a configuration."""
        return max(each.micro_batches for each in self.sizes)

    def by_micro_batches(self) -> dict[int, NDArray[np.int64]]:
        """Configurations by number of micro-batches."""
        counts = np.array([each.micro_batches for each in self.sizes], np.int64)
        return {int(count): np.flatnonzero(counts == count) for count in np.unique(counts)}

    def some(self, columns: NDArray[np.int64]) -> Amounts:
        """The amounts of these configurations only."""
        sizes, places = (tuple(each[i] for i in columns) for each in (self.sizes, self.places))
        return Amounts(self.table, sizes, places)

    def patterns(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """How the devices lie that share the layers of a stage; stages that differ in it take different times."""
        return tuple(group.pattern for group in self._sharing(stage))

    def _sharing(self, stage: int) -> list[Group]:
        """The devices that share the layers of a stage."""
        return [each.tensor[stage % len(each.tensor)] for each in self.places]

    def several(self) -> Flags:
        """Whether there are several replicas."""
        return np.array([each.data > 1 for each in self.sizes])

    @_remembered
    def bytes_of(self, shape: Shape) -> Bytes:
        """The size of one tensor."""
        found = np.array([WIDTHS[shape.dtype or each.dtype] for each in self.sizes], np.int64)
        for name in shape.sizes:
            found = found * np.array(self._column(name), np.int64)
        return found

    @_remembered
    def cuts(self, shape: Shape) -> Bytes:
        """The number of parts into which replicas cut a weight of this shape; 1 where no axis divides."""
        shares = np.array([each.shares for each in self.sizes], np.int64)
        if not (shares > 1).any():
            return np.ones_like(shares)
        divides = np.zeros(len(shares), bool)
        for name in shape.sizes:
            divides |= np.array(self._column(name), np.int64) % shares == 0
        return np.where(divides, shares, 1)

    @_remembered
    def part_bytes(self, shape: Shape) -> Bytes:
        """The size of a replica's part of a weight, its gradient or its state where they are cut."""
        return self.bytes_of(shape) // self.cuts(shape)

    @_remembered
    def seconds_of(self, kind: Kind, stage: int) -> Seconds:
        """The time of one run; a collective is among all devices that share a layer."""
        if kind.communicates:
            return self._asked(kind, self._sharing(stage))
        return self._of_kind(kind)

    @_remembered
    def _of_kind(self, kind: Kind) -> Seconds:
        """The time of an operation on one device, whichever stage it belongs to."""
        return self._asked(kind)

    @_remembered
    def send(self, shape: Shape, one: int, other: int) -> Seconds:
        """The time of a transfer between neighbouring stages."""
        kind = Kind("send", (shape,), (shape,), (("to", 2),), communicates=True)
        return self._asked(kind, [each.onward[min(one, other) % len(each.onward)] for each in self.places])

    def buckets(self, sizes: Bytes, which: NDArray[np.int64]) -> list[tuple[list[int], NDArray[np.int64]]]:
        """Where each bucket of gradients begins, and the configurations of which that is so.

        `sizes` has the bytes of each shape, and `which` the shape of each gradient in the order in which they come.
        """
        limits = np.array([each.bucket_bytes for each in self.sizes], np.int64)
        different, alike = np.unique(np.vstack((sizes, limits)), axis=1, return_inverse=True)
        found = []
        for i, column in enumerate(different.T.tolist()):
            *of_shape, limit = column
            begins, held = [0], 0
            for place, shape in enumerate(which.tolist()):
                if held >= limit:
                    begins.append(place)
                    held = 0
                held += of_shape[shape]
            found.append((begins, np.flatnonzero(alike.ravel() == i)))
        return found

    def reducing(self, device: int, whole: Bytes, cut: Bytes) -> tuple[Seconds, Seconds]:
        """The time to sum buckets among replicas, and to gather the weights again, shaped (buckets, configurations).

        `whole` has the bytes of each bucket, `cut` those of them that each replica is left with a part of.
        """
        both = np.array([self._among_replicas(each, device) for each in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)])
        latency, per_byte = both[:, 0], both[:, 1]

        def seconds(way: int, amount: Bytes) -> Seconds:
            return np.asarray(np.where(amount > 0, latency[way] + amount * per_byte[way], 0.0))

        return seconds(0, whole - cut) + seconds(1, cut), seconds(2, cut)

    def _among_replicas(self, pattern: str, device: int) -> Seconds:
        """Latency and seconds per byte of a collective among replicas, shaped (2, configurations); 0 for one."""
        groups = [each.data[device] for each in self.places]
        found = (self.table.collective(pattern, group) if len(group.devices) > 1 else (0.0, 0.0) for group in groups)
        return np.array(list(found)).T

    def update_parts(self, step: Step, weights: Counter[Column]) -> Seconds:
        """The optimizer's step on these weights, which replicas may cut, and whose costs add up."""
        names = sorted({name for taken, _ in weights for shape in taken for name in shape.sizes})
        keys = zip(self._dtypes, (each.shares for each in self.sizes), *map(self._column, names), strict=True)

        def ask(i: int) -> float:
            taken, made = _of_step(step, weights, self.sizes[i])
            return self.table.seconds(step.kind.name, taken, made, step.kind.attributes)

        question = "update", step.kind.name, step.kind.attributes, frozenset(weights.items())
        return self._answered(question, keys, ask)

    @_remembered
    def combining(self, shape: Shape, joins: bool, turns: int) -> Seconds:
        """The time of combining the first micro-batches, shaped (turns, configurations); the first is only copied."""
        rows = [self._combine(shape, joins, before) for before in range(turns if joins else min(turns, 2))]
        return np.array([rows[min(n, len(rows) - 1)] for n in range(turns)])

    def combined_bytes(self, shape: Shape, joins: bool, turns: int) -> tuple[Bytes, Bytes]:
        """Bytes that combining acquires, and of the whole that it releases besides the part, shaped as `combining`."""
        size, turn = self.bytes_of(shape), np.arange(turns)[:, None]
        return ((turn + 1) * size, turn * size) if joins else (0 * turn + size, np.minimum(turn, 1) * size)

    @_remembered
    def _combine(self, shape: Shape, joins: bool, before: int) -> Seconds:
        """The time of combining with so many micro-batches before."""
        if not before:
            return self._asked(Kind("identity", (shape,), (shape,)))
        if not joins:
            return self._asked(Kind("add", (shape, shape), (shape,)))
        kind = Kind("concat", (shape.times(before), shape), (shape.times(before + 1),), (("axis", 0),))
        return self._asked(kind, None, np.array([each.micro_batches > before for each in self.sizes]))

    def _asked(self, kind: Kind, groups: Sequence[Group] | None = None, which: Flags | None = None) -> Seconds:
        """The time of one run, where the groups communicate, by configuration; 0 for all but those `which` matter."""
        if which is not None and not which.any():
            return np.zeros(len(self.sizes))
        # Operations whose own sizes are equal cost the same.
        keys: Iterable[Hashable] = zip(self._dtypes, *map(self._column, kind.names), strict=True)
        if groups is not None:
            keys = zip(keys, (group.pattern for group in groups), strict=True)
        devices = [(1,)] * len(self.sizes) if groups is None else [group.devices for group in groups]
        return self._answered(kind, keys, lambda i: self._ask(kind, self.sizes[i], devices[i]), which)

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

    @_remembered
    def _column(self, name: str) -> list[int]:
        return [each.numbers[name] for each in self.sizes]

    def _ask(self, kind: Kind, sizes: Sizes, devices: tuple[int, ...]) -> float:
        sources, targets = (devices[:1], devices[1:]) if kind.name == "send" else (devices, devices)
        if not targets or (kind.communicates and len(devices) == 1):
            return 0.0
        # Most of what an operation makes is like what it takes.
        types: dict[tuple[Shape, int], TensorType] = {}
        for shape in (*kind.taken, *kind.made):
            for device in (*sources, *targets):
                if (shape, device) not in types:
                    types[shape, device] = sizes.type_of(shape, device)
        taken = [types[shape, device] for shape in kind.taken for device in sources]
        made = [types[shape, device] for shape in kind.made for device in targets]
        sized = tuple((name, sizes.numbers[name]) for name in kind.sized)
        return self.table.seconds(kind.name, taken, made, (*kind.attributes, *sized))


def _of_step(step: Step, weights: Counter[Column], sizes: Sizes) -> tuple[list[TensorType], list[TensorType]]:
    """Inputs and outputs of the optimizer; tensors that are alike are one, as deep networks have many."""

    def all_of(shape: Shape, count: int) -> TensorType:
        part = sizes.part_of(shape, 1, sizes.shares)
        return part.shaped((count, *part.shape))

    pairs = {(shape, count) for (taken, _), count in weights.items() for shape in taken}
    known = {pair: all_of(*pair) for pair in pairs}
    taken = [known[shape, count] for (shapes, _), count in weights.items() for shape in shapes]
    made = [known[shape, count] for (_, shapes), count in weights.items() for shape in shapes]
    return [*taken, *(sizes.type_of(shape, 1) for shape in step.rest)], made
