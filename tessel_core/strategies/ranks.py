"""Rank orders: how the devices of a strategy are numbered, and which process groups follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import TYPE_CHECKING, TypeVar

from tessel_core.errors import InputError

if TYPE_CHECKING:  # Pages that only group devices need no programs, so this import comes late.
    from tessel_core.ir.distributed import Distributed
    from tessel_core.ir.transforms.expansion import Degrees

T = TypeVar("T")
RankOrder = tuple[str, ...]
"""Names of dimensions, innermost first.

Ranks that differ by one along the innermost dimension are neighbouring devices.
"""

DEFAULT_RANK_ORDER: RankOrder = ("tensor", "context", "expert", "data", "pipeline")
"""Rank order of torchtitan and Megatron-LM."""
DISTIR_RANK_ORDER: RankOrder = ("pipeline", "tensor", "data")
"""Rank order of DistIR: worker 1 + d·H·P + h·P + p."""

CUT_DIMENSIONS = ("tensor", "data", "pipeline")
"""Dimensions that every rank order must name. It may leave out the other dimensions of `DEFAULT_RANK_ORDER`."""


def read_rank_order(text: str, where: str = "rank order") -> RankOrder:
    """Return the rank order in a text. Raises InputError if a dimension is repeated, missing or unknown.

    >>> read_rank_order("pipeline, tensor, data")
    ('pipeline', 'tensor', 'data')
    """
    found = tuple(each.strip() for each in text.split(","))
    known = ", ".join(DEFAULT_RANK_ORDER)
    for name in found:
        if name not in DEFAULT_RANK_ORDER:
            raise InputError(where, f"{name!r} is not a dimension; dimensions are {known}")
        if found.count(name) > 1:
            raise InputError(where, f"names {name} {found.count(name)} times")
    missing = [name for name in CUT_DIMENSIONS if name not in found]
    if missing:
        raise InputError(where, f"must name each of {', '.join(CUT_DIMENSIONS)} once, but misses {', '.join(missing)}")
    return found


def rank_order_words(order: RankOrder) -> str:
    """Return the dimensions of `CUT_DIMENSIONS` in this order as a text, such as "tensor, data, pipeline"."""
    return ", ".join(name for name in order if name in CUT_DIMENSIONS)


def every_rank_order() -> tuple[RankOrder, ...]:
    """Return all orders of `CUT_DIMENSIONS`. The default order comes first."""
    places = sorted(permutations(CUT_DIMENSIONS), key=lambda order: order != CUT_DIMENSIONS)
    return (DEFAULT_RANK_ORDER, *places[1:])


@dataclass(frozen=True)
class Ranks:
    """Numbers `data` x `context` x `tensor` x `pipeline` devices in a rank order. Worker numbers begin with 1."""

    data: int
    tensor: int
    pipeline: int
    order: RankOrder = DEFAULT_RANK_ORDER
    context: int = 1
    expert: int = 1

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """Dimensions that number the devices, innermost first.

        If the order leaves out context, it comes after tensor.
        """
        named = [name for name in self.order if name in (*CUT_DIMENSIONS, "context")]
        if "context" not in named:
            named.insert(named.index("tensor") + 1, "context")
        return tuple(named)

    @cached_property
    def _stride(self) -> dict[str, int]:
        """For each dimension, the difference between the worker numbers of neighbours along it."""
        found, stride = {}, 1
        for name in self.dimensions:
            found[name] = stride
            stride *= getattr(self, name)
        return found

    def stride(self, dimension: str) -> int:
        """Return the difference between the worker numbers of neighbours along a dimension."""
        return self._stride[dimension]

    @property
    def count(self) -> int:
        """Number of devices."""
        return self.data * self.context * self.tensor * self.pipeline

    @cached_property
    def degrees(self) -> Degrees:
        """Number of devices along each dimension except the pipeline."""
        from tessel_core.ir.transforms.expansion import Degrees

        return Degrees(self.tensor, self.context, self.data, self.expert)

    def worker(self, data: int, tensor: int, pipeline: int, context: int = 0) -> int:
        """Return the worker with these coordinates."""
        at = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context}
        return 1 + sum(at[name] * stride for name, stride in self._stride.items())

    def worker_of(self, rank: int, place: int) -> int:
        """Return the worker that is rank `rank` of `degrees` at position `place` of the pipeline."""
        data, rest = divmod(rank, self.tensor * self.context)
        context, tensor = divmod(rest, self.tensor)
        return self.worker(data, tensor, place, context)

    def coordinate(self, worker: int, dimension: str) -> int:
        """Return the coordinate of a worker along a dimension."""
        return (worker - 1) // self._stride[dimension] % int(getattr(self, dimension))

    def groups(self, dimension: str) -> list[tuple[int, ...]]:
        """Return the workers of each process group of a dimension. Each group is sorted by the coordinate along it."""
        if dimension == "expert":
            from tessel_core.ir.transforms.expansion import EXPERT, groups_of

            pairs = product(range(self.pipeline), groups_of(self.degrees, EXPERT))
            return [tuple(self.worker_of(rank, place) for rank in group) for place, group in pairs]
        others = [name for name in reversed(self.dimensions) if name != dimension]
        places = product(*(range(getattr(self, name)) for name in others))
        along, stride = range(getattr(self, dimension)), self._stride
        firsts = [1 + sum(i * stride[name] for i, name in zip(at, others, strict=True)) for at in places]
        return [tuple(first + i * stride[dimension] for i in along) for first in firsts]

    def spread(self, of_place: Sequence[T]) -> list[T]:
        """Return the element of `of_place` at the pipeline position of each worker, from worker 1 on."""
        return [of_place[self.coordinate(worker, "pipeline")] for worker in range(1, self.count + 1)]

    def numbered(self, model: Distributed) -> Distributed:
        """Return the model with its devices numbered in the rank order.

        In `model`, device 1 + r·P + p is rank r at position p of the pipeline.
        """
        if self.order[: len(DISTIR_RANK_ORDER)] == DISTIR_RANK_ORDER or self.count == 1:
            return model
        pairs = product(range(self.degrees.count), range(self.pipeline))
        worker_of = [0, *(self.worker_of(rank, place) for rank, place in pairs)]
        return model.on_devices(worker_of.__getitem__)


def distinct_orders(
    orders: Sequence[RankOrder],
    data: int,
    tensor: int,
    pipeline: int,
    nodes: Sequence[int],
    context: int = 1,
    expert: int = 1,
) -> list[RankOrder]:
    """Return the orders that spread process groups over the nodes in different ways.

    If several orders spread them in the same way, only the first of them is returned.

    `nodes` has the node of each device. Expert groups count only if their degree divides the number of ranks.
    """
    divides = data * context * tensor % expert == 0
    names = (*CUT_DIMENSIONS, "context", *(["expert"] if divides else []))
    found: dict[object, RankOrder] = {}
    for order in orders:
        ranks = Ranks(data, tensor, pipeline, order, context, expert if divides else 1)
        groups_on_nodes = [
            sorted((ranks.coordinate(group[0], "pipeline"), _nodes_of(group, nodes)) for group in ranks.groups(name))
            for name in names
        ]
        found.setdefault(repr(groups_on_nodes), order)
    return list(found.values())


def _nodes_of(group: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Return the node of each device of a group. Nodes are numbered in the order of their first device."""
    seen: dict[int, int] = {}
    return [seen.setdefault(nodes[worker - 1], len(seen)) for worker in group]
