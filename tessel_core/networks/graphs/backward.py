"""The backward graph of a forward graph: gradients flow against its edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.networks.graphs.activations import Activations, size_of
from tessel_core.networks.graphs.gradients import FORWARD, NO_WORK, Share, is_known_kind, rule_of


def with_backward(graph: OperatorGraph, *, recompute: bool = False, split_weights: bool = False) -> OperatorGraph:
    """The training graph: every operator has a `NAME/backward` on its device, by the table in `gradients.py`.

    A backward operator reads what its forward kept, hence an edge between the two, and sends each predecessor the
    gradient of its output, as large as that output.  Several different gradients leave through operators without work,
    `NAME/backward/to_PREDECESSOR`.  Gradients of an output with several consumers are summed on the way from the last
    of them to the first, as they are computed, so that one tensor leaves a stage; each sum moves 3 tensors, and its
    additions are not counted.  Where nothing before an operator has weights, no gradient is computed for its inputs;
    weights that are not known may be there.

    Parameters
    ----------
    recompute
        Layers keep their inputs alone and their backward runs the forward again.
    split_weights
        Gradients of weights are operators of their own, `NAME/weight_gradient`, for which nothing waits.

    Raises InputError where the graph has backward operators already, or a name is taken.
    """
    if graph.is_training:
        raise InputError(f"graph {graph.name}", "has backward operators already")
    return _Backward(graph, recompute, split_weights).training_graph()


def with_weights_apart(graph: OperatorGraph) -> OperatorGraph:
    """A training graph whose whole backward operators are halves, where the table of kinds says what each half does.

    `NAME/backward` keeps its name and computes the gradient of the input, and `NAME/weight_gradient` on the same
    devices that of the weights; both together cost what the whole did.  What is in halves already stays, and so does
    what several operators were merged into.
    """
    forward, found = {each.name: each for each in graph.operators if not each.backward}, dict[str, Operator]()
    names, operators = set(graph.names), list[Operator]()
    for each in graph.operators:
        of = forward.get(each.forward_of or "")
        name = "" if of is None else f"{of.name}/weight_gradient"
        share = 0.0 if of is None or not each.backward or name in names else _weights_share(of, each)
        if of is None or not share or each.name != f"{of.name}/backward":
            operators.append(each)
            continue
        apart = _part_of(each, share, name, f"{of.kind}_weight_gradient", of.weight_bytes)
        whole = _part_of(each, 1 - share, each.name, f"{of.kind}_input_gradient", each.output_bytes)
        operators += [whole, apart]
        found[each.name] = apart
    taken = (replace(edge, target=found[edge.target].name) for edge in graph.edges if edge.target in found)
    return replace(graph, operators=tuple(operators), edges=(*graph.edges, *taken))


def _weights_share(forward: Operator, backward: Operator) -> float:
    """How much of a whole backward is the gradient of the weights; 0 where nothing says it."""
    rule = rule_of(forward)
    if not forward.weight_bytes or not rule.apart or rule.weights == NO_WORK or not is_known_kind(forward):
        return 0.0
    if rule.inputs == NO_WORK and not rule.passes_on:
        return 1.0
    pairs = (
        (rule.weights.flops_of(forward), backward.flops),
        (rule.weights.bytes_of(forward), backward.bytes),
        (rule.weights.time, rule.weights.time + rule.inputs.time),
    )
    return next((min(1.0, part / whole) for part, whole in pairs if part and whole), 0.0)


def _part_of(whole: Operator, share: float, name: str, kind: str, output_bytes: int | None) -> Operator:
    return replace(
        whole,
        name=name,
        kind=kind,
        times=tuple(DeviceTime(each.kind, each.time * share) for each in whole.times),
        flops=None if whole.flops is None else whole.flops * share,
        bytes=None if whole.bytes is None else whole.bytes * share,
        output_bytes=output_bytes,
    )


@dataclass(frozen=True)
class _Backward:
    graph: OperatorGraph
    recompute: bool
    split_weights: bool

    def training_graph(self) -> OperatorGraph:
        kept = zip(self.graph.operators, self.activations.kept, strict=True)
        forward = tuple(replace(operator, activation_bytes=amount) for operator, amount in kept)
        order = topological_order(self.graph.predecessors)
        added = [each for index in reversed(order) for each in self._operators(index)]
        edges = dict.fromkeys(edge for index in order for edge in self._edges(index))
        name = f"{self.graph.name}-training"
        return replace(self.graph, name=name, operators=(*forward, *added), edges=(*self.graph.edges, *edges))

    @cached_property
    def activations(self) -> Activations:
        return Activations(self.graph, recompute=self.recompute)

    @cached_property
    def learns(self) -> list[bool]:
        """Per operator, whether its output depends on weights, so that a gradient of it is wanted."""
        found = [False] * len(self.graph.operators)
        for index in topological_order(self.graph.predecessors):
            has_weights = self.graph.operators[index].weight_bytes != 0
            found[index] = has_weights or any(found[before] for before in self.graph.predecessors[index])
        return found

    @cached_property
    def has_costs(self) -> bool:
        """Whether edges say what a transfer costs."""
        return any(edge.cost is not None for edge in self.graph.edges)

    @cached_property
    def chains(self) -> list[list[int]]:
        """Per operator, its consumers from the last to the first, if a gradient of its output is wanted."""
        rank = {index: place for place, index in enumerate(topological_order(self.graph.predecessors))}
        pairs = zip(self.graph.consumers, self.learns, strict=True)
        return [sorted(consumers, key=lambda each: -rank[each]) if learns else [] for consumers, learns in pairs]

    def _inputs(self, index: int) -> list[int]:
        """Predecessors that want a gradient."""
        return [before for before in self.graph.predecessors[index] if self.learns[before]]

    def _operators(self, index: int) -> Iterator[Operator]:
        operator, inputs = self.graph.operators[index], self._inputs(index)
        by_input, by_weight = self._shares(index)
        again = FORWARD if self.activations.recomputed[index] else NO_WORK
        split = self._is_split(index)
        share = by_input + again + (NO_WORK if split else by_weight)
        sent, ports = self._sent(index), self._has_ports(index)
        half, summed = "input_gradient" if split else "backward", 0.0 if ports else self._summed(index, inputs)
        yield self._gradient(operator, "backward", half, share, sent, summed)
        if split:
            yield self._gradient(operator, "weight_gradient", "weight_gradient", by_weight, operator.weight_bytes)
        for before in inputs if ports else ():
            yield Operator(
                self._sender(index, before),
                "gradient",
                NO_WORK.times_of(operator),
                flops=0.0,
                bytes=self._summed(index, [before]),
                output_bytes=size_of(self.graph, before),
                backward=True,
                forward_of=operator.name,
            )

    def _gradient(
        self, operator: Operator, name: str, kind: str, share: Share, sent: int | None, summed: float = 0.0
    ) -> Operator:
        moved = share.bytes_of(operator)
        return Operator(
            f"{operator.name}/{name}",
            f"{operator.kind}_{kind}" if operator.kind else kind,
            share.times_of(operator),
            flops=share.flops_of(operator),
            bytes=None if moved is None else moved + summed,
            output_bytes=sent,
            backward=True,
            forward_of=operator.name,
        )

    def _shares(self, index: int) -> tuple[Share, Share]:
        """Work for the inputs' gradients and for the weights'."""
        operator = self.graph.operators[index]
        rule = rule_of(operator)
        wanted = bool(self._inputs(index)) or (not self.graph.predecessors[index] and operator.weight_bytes is None)
        by_input = rule.inputs if wanted else NO_WORK
        if wanted and rule.passes_on and not self._passes_on(index):
            by_input = FORWARD  # summed over what was broadcast
        return by_input, rule.weights if operator.weight_bytes else NO_WORK

    def _passes_on(self, index: int) -> bool:
        """Whether one tensor is the gradient of every input."""
        inputs = {self._tensor(each) for each in self._inputs(index)}
        sizes = {size_of(self.graph, each) for each in (index, *self._inputs(index))}
        sums = any(self.chains[each][0] != index for each in self._inputs(index))
        return rule_of(self.graph.operators[index]).passes_on and len(inputs) == len(sizes) == 1 and not sums

    def _has_ports(self, index: int) -> bool:
        return len(self._inputs(index)) > 1 and not self._passes_on(index)

    def _is_split(self, index: int) -> bool:
        operator = self.graph.operators[index]
        rule = rule_of(operator)
        return self.split_weights and rule.apart and bool(operator.weight_bytes) and rule.weights != NO_WORK

    def _sender(self, index: int, before: int) -> str:
        """The operator that sends `before` the gradient of its output."""
        name = f"{self.graph.operators[index].name}/backward"
        return f"{name}/to_{self.graph.operators[before].name}" if self._has_ports(index) else name

    def _tensor(self, index: int) -> tuple[int | None, float | None]:
        """Bytes of an operator's output, and the cost to move it where the graph says it."""
        return size_of(self.graph, index), self.graph.output_cost[index] if self.has_costs else None

    def _sent(self, index: int) -> int | None:
        """Bytes of all gradients that leave a backward operator."""
        sizes = [size_of(self.graph, before) for before in self._inputs(index)]
        if not self._has_ports(index):
            sizes = sizes[:1]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _summed(self, index: int, inputs: Iterable[int]) -> float:
        """Bytes moved to add what later consumers of the inputs have sent."""
        later = (each for each in inputs if self.chains[each][0] != index)
        return 3.0 * sum(size_of(self.graph, each) or 0 for each in later)

    def _edges(self, index: int) -> Iterator[Edge]:
        name = self.graph.operators[index].name
        mate, weights = f"{name}/backward", f"{name}/weight_gradient"
        split, chain = self._is_split(index), self.chains[index]
        for one, other in pairwise(chain):
            yield Edge(self._sender(one, index), self._sender(other, index), *self._tensor(index))
        for target in (mate, weights) if split else (mate,):
            yield Edge(name, target, *self._tensor(index))
            if chain:
                yield Edge(self._sender(chain[-1], index), target, *self._tensor(index))
        if self._has_ports(index):
            for before in self._inputs(index):
                yield Edge(mate, self._sender(index, before), *self._output(index))
        if split and self.activations.recomputed[index]:  # what the forward kept exists again
            yield Edge(mate, weights, *self._output(index))

    def _output(self, index: int) -> tuple[int | None, float | None]:
        """What leaves a backward operator: the gradient of an input, or all of them on their way to the ports."""
        if self._inputs(index) and not self._has_ports(index):
            return self._tensor(self._inputs(index)[0])
        return self._sent(index), 0.0 if self.has_costs else None
