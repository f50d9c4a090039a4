"""What a network computes: operators with their costs, and the tensors that pass between them."""

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
"""The device kind of hosts: they pay no communication and their memory is not counted."""

MOST_OPERATORS = 20_000
_COST_SLACK = 1e-6
"""Out-edges of one operator may differ by so much, as the published program allows."""


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """How long an operator takes on one kind of device, in the graph's time unit."""

    kind: str
    time: float


@dataclass(frozen=True, slots=True)
class Operator:
    """One vertex: a layer, an operator, or its backward.  None is "not known"."""

    name: str
    kind: str = ""
    times: tuple[DeviceTime, ...] = ()
    """Kinds of devices that are not here do not support the operator."""
    flops: float | None = None
    bytes: float | None = None
    """Bytes moved between the device's memory and its processors."""
    weight_bytes: int | None = None
    activation_bytes: int | None = None
    output_bytes: int | None = None
    size: float | None = None
    """Bytes that it holds on an accelerator, where a file says so in one number."""
    backward: bool = False
    colour: str | None = None
    """Operators of one colour share a device."""
    forward_of: str | None = None
    """For a backward operator, the forward operator that it belongs to; it runs on the same device."""

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
        """Time on a device of this kind; None where the operator is not supported there."""
        return next((each.time for each in self.times if each.kind == kind), None)

    @property
    def memory(self) -> float:
        """Bytes that it holds on an accelerator with one micro-batch: `size`, else weights and activations."""
        return (self.weight_bytes or 0) + (self.activation_bytes or 0) if self.size is None else self.size


@dataclass(frozen=True, slots=True)
class Edge:
    """The output of `source` is an input of `target`."""

    source: str
    target: str
    bytes: int | None = None
    cost: float | None = None
    """Time to move it between an accelerator and the host, where a file says so: the transfer then loads both."""

    def __post_init__(self) -> None:
        where = f"edge {self.source} -> {self.target}"
        if self.bytes is not None:
            check_integer(where, "bytes", self.bytes, least=0)
        if self.cost is not None:
            check_amount(where, "cost", self.cost)


@dataclass(frozen=True)
class OperatorGraph(Shown):
    """A directed acyclic graph of operators; forward operators never wait for backward ones.

    Every graph that exists is well-formed: what must share a device (a colour, a backward operator and its forward
    one) does not force a cycle among the forward operators, and one output costs the same wherever it goes.

    Raises InputError naming the operator or edge and what is wrong with it.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()
    time_unit: str = "s"
    batch_size: int = 1
    network: str = ""
    """The network whose program it shows, as a family and its options: `gpt layers=3 training=True`; else empty."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("graph", self.name)
        check_name("time_unit", self.time_unit)
        check_integer("graph", "batch_size", self.batch_size, least=1)
        if not self.operators:
            raise InputError("operators", "the graph has none, it needs at least one")
        if len(self.operators) > MOST_OPERATORS:
            why = f"there are {len(self.operators):,}, more than the {MOST_OPERATORS:,} allowed"
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
                raise InputError(where, "leads from a backward operator to a forward one")
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
                raise InputError(where, "forward_of is for a backward operator and names its forward one")

    def _check_colocation(self) -> None:
        """Groups that must share a device form no cycle through forward edges: no split could run as a pipeline."""
        forward = ((one, other) for one, other in self.arcs if not self.operators[other].backward)
        between = ((self.group_of[one], self.group_of[other]) for one, other in forward)
        cycle = find_cycle(quotient(len(self.colocated), between))
        if cycle:
            names = path_text(self.operators[self.colocated[group][0]].name for group in cycle)
            raise InputError("operators", f"what must share a device (colour, forward_of) forms a cycle: {names}")

    @property
    def names(self) -> KeysView[str]:
        """The operators' names, to look one up in."""
        return self._index.keys()

    def operator(self, name: str) -> Operator:
        """The operator called `name`; raises KeyError where there is none."""
        return self.operators[self._index[name]]

    def operator_index(self, name: str) -> int:
        """Position of the operator called `name`; raises KeyError where there is none."""
        return self._index[name]

    @cached_property
    def arcs(self) -> tuple[tuple[int, int], ...]:
        """Edges as (source, target) in operator indices."""
        return tuple((self._index[edge.source], self._index[edge.target]) for edge in self.edges)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, those whose output it takes."""
        return grouped(len(self.operators), ((target, source) for source, target in self.arcs))

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, those that take its output."""
        return grouped(len(self.operators), self.arcs)

    @cached_property
    def output_cost(self) -> tuple[float, ...]:
        """Per operator, the time to move its output between an accelerator and the host; 0 where no edge has one."""
        costs = {edge.source: edge.cost or 0.0 for edge in reversed(self.edges)}
        return tuple(costs.get(name, 0.0) for name in self.names)

    @cached_property
    def edge_bytes(self) -> tuple[int | None, ...]:
        """Per operator, the bytes that each of its out-edges carries; None where no edge says it."""
        return tuple(map({edge.source: edge.bytes for edge in self.edges}.get, self.names))

    @cached_property
    def is_training(self) -> bool:
        """Whether it has backward operators."""
        return any(operator.backward for operator in self.operators)

    @cached_property
    def kept_bytes(self) -> tuple[int, ...]:
        """Per operator, the activations that each micro-batch in flight keeps until the backward; 0 where none does."""
        waited_for = {operator.forward_of for operator in self.operators}
        return tuple((each.activation_bytes or 0) if each.name in waited_for else 0 for each in self.operators)

    def lasting_bytes(self, included: int, replicas: int = 1) -> tuple[float, ...]:
        """Per operator, what it holds besides, where its `memory` has the kept bytes of so many micro-batches in it.

        On one of several `replicas`, which divide micro-batches: activations that no backward waits for are divided.
        """

        def lasting(each: Operator, kept: int) -> float:
            if kept:
                return max(0.0, each.memory - included * kept)
            divided = min(each.memory, float(included * (each.activation_bytes or 0)))
            return each.memory - divided * (1 - 1 / replicas)

        return tuple(map(lasting, self.operators, self.kept_bytes))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Device kinds that any operator has a time for, in alphabetical order."""
        return tuple(sorted({each.kind for operator in self.operators for each in operator.times}))

    @cached_property
    def colocated(self) -> tuple[tuple[int, ...], ...]:
        """Sets of operators that must share a device, by their first operators; most are of one."""
        links = [(i, self._index[each.forward_of]) for i, each in enumerate(self.operators) if each.forward_of]
        first: dict[str, int] = {}
        for i, operator in enumerate(self.operators):
            if operator.colour is not None:
                links.append((i, first.setdefault(operator.colour, i)))
        return joined(len(self.operators), links)

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Per operator, its set among `colocated`."""
        found = {member: group for group, members in enumerate(self.colocated) for member in members}
        return tuple(found[i] for i in range(len(self.operators)))

    def together(self, operators: Iterable[int]) -> tuple[int, ...]:
        """The operators and whatever must share a device with them, ascending."""
        groups = {self.group_of[i] for i in operators}
        return tuple(sorted(member for group in groups for member in self.colocated[group]))

    @cached_property
    def flow(self) -> tuple[tuple[int, int], ...]:
        """Pairs of `colocated` sets, the first of which runs no later on a pipeline's way forward.

        Forward edges, and the mirror images of backward edges at sets that have no forward operator: the backward
        pass takes the way back, so a set that only has a place there has one on the way forward too.
        """
        forward = {self.group_of[i] for i, operator in enumerate(self.operators) if not operator.backward}
        found = dict[tuple[int, int], None]()
        for source, target in self.arcs:
            one, other = self.group_of[source], self.group_of[target]
            if one == other:
                continue
            if not self.operators[target].backward:
                found[one, other] = None
            elif self.operators[source].backward and not (one in forward and other in forward):
                found[other, one] = None
        return tuple(found)
