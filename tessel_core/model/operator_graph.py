"""Operator graphs: operators with their costs, and edges for the tensors that pass between them."""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from dataclasses import dataclass, field
from functools import cached_property

from tessel_core.errors import InputError
from tessel_core.model.checks import (
    check_amount,
    check_integer,
    check_name,
    check_unique,
    find_cycle,
    grouped,
    joined,
    path_text,
    quotient,
)
from tessel_core.shown import Shown

CPU = "cpu"
"""Device kind of hosts, which pay no communication and whose memory is not counted."""

MAX_OPERATORS = 20_000
_COST_SLACK = 1e-6
"""Largest allowed difference between the costs of the edges that leave one operator."""


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Time of an operator on one kind of device, in the graph's time unit."""

    kind: str
    time: float


@dataclass(frozen=True, slots=True)
class Operator:
    """A vertex of the graph: a forward or backward operator, or a whole layer. A field of None means unknown."""

    name: str
    kind: str = ""
    times: tuple[DeviceTime, ...] = ()
    """Time on each kind of device that supports the operator."""
    flops: float | None = None
    bytes: float | None = None
    """Bytes moved between the device's memory and its processors."""
    weight_bytes: int | None = None
    activation_bytes: int | None = None
    output_bytes: int | None = None
    size: float | None = None
    """Bytes that the operator holds on an accelerator, if its file does not distinguish weights and activations."""
    backward: bool = False
    colour: str | None = None
    """Operators of the same colour share a device."""
    forward_of: str | None = None
    """For a backward operator: the name of its forward operator, which runs on the same device."""

    def __post_init__(self) -> None:
        check_name("an operator", self.name)
        where = f"operator {self.name}"
        check_unique(f"{where}, time", (each.kind for each in self.times))
        for each in self.times:
            check_name(f"{where}, time", each.kind)
            check_amount(where, f"time on {each.kind}", each.time)
        for what, amount in (("flops", self.flops), ("bytes", self.bytes), ("size", self.size)):
            if amount is not None:
                check_amount(where, what, amount)
        for what in ("weight_bytes", "activation_bytes", "output_bytes"):
            if getattr(self, what) is not None:
                check_integer(where, what, getattr(self, what), least=0)

    def time_on(self, kind: str) -> float | None:
        """Return the time on a kind of device, or None if it does not support the operator."""
        return next((each.time for each in self.times if each.kind == kind), None)

    @property
    def memory(self) -> float:
        """Bytes held on an accelerator with one micro-batch: `size` if it is given, else weights plus activations."""
        return (self.weight_bytes or 0) + (self.activation_bytes or 0) if self.size is None else self.size


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from an operator to one that takes its output as input."""

    source: str
    target: str
    bytes: int | None = None
    cost: float | None = None
    """Time to move the output between an accelerator and the host, if the file gives it.

    The transfer occupies both of them.
    """

    def __post_init__(self) -> None:
        where = f"edge {self.source} -> {self.target}"
        if self.bytes is not None:
            check_integer(where, "bytes", self.bytes, least=0)
        if self.cost is not None:
            check_amount(where, "cost", self.cost)


@dataclass(frozen=True)
class OperatorGraph(Shown):
    """A directed acyclic graph of operators, in which forward operators never wait for backward ones.

    All edges that leave one operator have the same cost. Operators that must share a device (by colour, or as backward
    and forward operator) form no cycle along forward edges.

    Raises InputError, which names the operator or edge at fault.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()
    time_unit: str = "s"
    batch_size: int = 1
    network: str = ""
    """Network family and options that the graph was built from, such as `gpt layers=3 training=True`, else empty."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("graph", self.name)
        check_name("time_unit", self.time_unit)
        check_integer("graph", "batch_size", self.batch_size, least=1)
        if not self.operators:
            raise InputError("operators", "the graph has none, but needs at least one")
        if len(self.operators) > MAX_OPERATORS:
            why = f"there are {len(self.operators):,}, more than the {MAX_OPERATORS:,} allowed"
            raise InputError("operators", why)
        check_unique("operators", (operator.name for operator in self.operators))
        object.__setattr__(self, "_index", {operator.name: i for i, operator in enumerate(self.operators)})
        self._check_edges()
        self._check_mates()
        cycle = find_cycle(self.predecessors)
        if cycle:
            raise InputError("edges", f"they form a cycle: {path_text(self.operators[v].name for v in cycle)}")
        self._check_colocation()

    def _check_edges(self) -> None:
        check_unique("edges", (f"{edge.source} -> {edge.target}" for edge in self.edges))
        first: dict[str, Edge] = {}
        for edge in self.edges:
            where = f"edge {edge.source} -> {edge.target}"
            for name in (edge.source, edge.target):
                if name not in self._index:
                    raise InputError(where, f"unknown operator {name!r}")
            if self.operator(edge.source).backward and not self.operator(edge.target).backward:
                raise InputError(where, "leads from a backward operator to a forward operator")
            known = first.setdefault(edge.source, edge)
            if (known.cost is None) != (edge.cost is None) or abs((known.cost or 0) - (edge.cost or 0)) > _COST_SLACK:
                cost = f"costs {edge.cost}, but another edge from {edge.source} costs {known.cost}"
                raise InputError(where, f"{cost}; one output has one cost")
            if known.bytes != edge.bytes:
                size = f"carries {edge.bytes} bytes, but another edge from {edge.source} {known.bytes}"
                raise InputError(where, f"{size}; one output has one size")

    def _check_mates(self) -> None:
        for operator in self.operators:
            if operator.forward_of is None:
                continue
            where = f"operator {operator.name}"
            if operator.forward_of not in self._index:
                raise InputError(where, f"forward_of names an unknown operator {operator.forward_of!r}")
            if not operator.backward or self.operator(operator.forward_of).backward:
                raise InputError(where, "forward_of must name the forward operator of a backward operator")

    def _check_colocation(self) -> None:
        """Raise InputError if forward edges form a cycle between groups of operators that must share a device.

        No placement of such a graph could run as a pipeline.
        """
        forward = ((one, other) for one, other in self.arcs if not self.operators[other].backward)
        between = ((self.group_of[one], self.group_of[other]) for one, other in forward)
        cycle = find_cycle(quotient(len(self.colocated), between))
        if cycle:
            names = path_text(self.operators[self.colocated[group][0]].name for group in cycle)
            raise InputError("operators", f"sets that must share a device (colour, forward_of) form a cycle: {names}")

    @property
    def names(self) -> KeysView[str]:
        """Names of the operators, in order, as a set-like view."""
        return self._index.keys()

    def operator(self, name: str) -> Operator:
        """Return the operator called `name`. Raises KeyError if there is none."""
        return self.operators[self._index[name]]

    def operator_index(self, name: str) -> int:
        """Return the position of the operator called `name`. Raises KeyError if there is none."""
        return self._index[name]

    @cached_property
    def arcs(self) -> tuple[tuple[int, int], ...]:
        """Edges as pairs (source, target) of operator indices."""
        return tuple((self._index[edge.source], self._index[edge.target]) for edge in self.edges)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the operators whose outputs each operator takes."""
        return grouped(len(self.operators), ((target, source) for source, target in self.arcs))

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the operators that take each operator's output."""
        return grouped(len(self.operators), self.arcs)

    @cached_property
    def output_cost(self) -> tuple[float, ...]:
        """Time to move each operator's output between an accelerator and the host, or 0 if no edge has a cost."""
        costs = {edge.source: edge.cost or 0.0 for edge in reversed(self.edges)}
        return tuple(costs.get(name, 0.0) for name in self.names)

    @cached_property
    def edge_bytes(self) -> tuple[int | None, ...]:
        """Bytes on the out-edges of each operator, or None if no edge has them."""
        return tuple(map({edge.source: edge.bytes for edge in self.edges}.get, self.names))

    @cached_property
    def is_training(self) -> bool:
        """Whether the graph has backward operators."""
        return any(operator.backward for operator in self.operators)

    @cached_property
    def kept_bytes(self) -> tuple[int, ...]:
        """Bytes of each operator's activations that a micro-batch keeps until its backward pass, or 0 without one."""
        waited_for = {operator.forward_of for operator in self.operators}
        return tuple((each.activation_bytes or 0) if each.name in waited_for else 0 for each in self.operators)

    def lasting_bytes(self, included: int, replicas: int = 1) -> tuple[float, ...]:
        """Return the bytes of each operator that do not depend on the number of micro-batches in flight.

        That is its `memory` without the kept bytes of the `included` micro-batches. On one of several `replicas`, the
        activations that no backward operator needs are divided by their number.
        """

        def lasting(each: Operator, kept: int) -> float:
            if kept:
                return max(0.0, each.memory - included * kept)
            divided = min(each.memory, float(included * (each.activation_bytes or 0)))
            return each.memory - divided * (1 - 1 / replicas)

        return tuple(map(lasting, self.operators, self.kept_bytes))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Device kinds for which some operator has a time, in alphabetical order."""
        return tuple(sorted({each.kind for operator in self.operators for each in operator.times}))

    @cached_property
    def colocated(self) -> tuple[tuple[int, ...], ...]:
        """Sets of operators that must share a device, ordered by their first operators. Most sets have one operator."""
        links = [(i, self._index[each.forward_of]) for i, each in enumerate(self.operators) if each.forward_of]
        first: dict[str, int] = {}
        for i, operator in enumerate(self.operators):
            if operator.colour is not None:
                links.append((i, first.setdefault(operator.colour, i)))
        return joined(len(self.operators), links)

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Index of each operator's set in `colocated`."""
        group_of = {member: group for group, members in enumerate(self.colocated) for member in members}
        return tuple(group_of[i] for i in range(len(self.operators)))

    def together(self, operators: Iterable[int]) -> tuple[int, ...]:
        """Return `operators` and all operators that must share a device with them, as ascending indices."""
        groups = {self.group_of[i] for i in operators}
        return tuple(sorted(member for group in groups for member in self.colocated[group]))

    @cached_property
    def flow(self) -> tuple[tuple[int, int], ...]:
        """Pairs (a, b) of `colocated` sets: in a pipeline, set a is in the stage of set b or in an earlier one.

        These are the forward edges, and the reversed backward edges of sets without a forward operator. The backward
        pass visits the stages in reverse, so its edges give such sets a place in the forward order.
        """
        forward = {self.group_of[i] for i, operator in enumerate(self.operators) if not operator.backward}
        pairs = dict[tuple[int, int], None]()
        for source, target in self.arcs:
            one, other = self.group_of[source], self.group_of[target]
            if one == other:
                continue
            if not self.operators[target].backward:
                pairs[one, other] = None
            elif self.operators[source].backward and not (one in forward and other in forward):
                pairs[other, one] = None
        return tuple(pairs)
