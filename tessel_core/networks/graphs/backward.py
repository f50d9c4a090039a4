"""Estimate the backward pass of a graph without a program, such as a graph from a file, from its kinds of operators.

For a program, `ir/transforms/gradients.py` derives the exact backward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.model.layers import layer_of

_FLOPS_BOUND = 50.0
"""An unknown operator with more FLOPs per byte than this counts as a matrix product."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Cost of the backward pass of a kind of operator, as multiples of the forward's FLOPs, bytes and time."""

    inputs: float
    """Factor for the gradients of the operator's inputs."""
    weights: float = 0.0
    """Factor for the gradient of the operator's weights, if a separate kernel computes it."""
    keeps: str = "inputs"
    """Tensors that the backward pass reads again: "inputs", "output" or "both"."""


_PRODUCT, _PRODUCT_OF_TWO = _Rule(1, 1), _Rule(2)
_KINDS: tuple[tuple[_Rule, str], ...] = (
    # Five products instead of two: the scores are computed again [Dao 2022, arXiv 2205.14135].
    (_Rule(2.5, keeps="inputs output"), "attention multi_head_attention"),
    # Memory-bound operators read input and gradient and write one gradient. Elementwise products write two. Norms read
    # input and gradient twice.
    (_Rule(2.5), "layer_norm simplified_layer_norm rms_norm batch_norm group_norm instance_norm lrn"),
    (_Rule(1.5, keeps="output"), "softmax log_softmax relu sigmoid tanh exp sqrt reciprocal"),
    (_Rule(1.5), "gelu silu swish elu selu leaky_relu prelu softplus softsign hard_sigmoid hard_swish mish"),
    (_Rule(1.5), "erf log sin cos abs clip"),
    (_Rule(5 / 3), "gate gated_gelu mul div pow max min"),
    (_Rule(1), "cross_entropy softmax_cross_entropy_loss max_pool"),
    # The gradient of each term of a sum equals the gradient of the sum.
    (_Rule(0, 1, keeps=""), "add sub sum"),
    (_Rule(0, 1, keeps=""), "embedding"),
    (_Rule(1, keeps=""), "transpose concat split slice pad gather roll copy cast tile expand resize neg dropout"),
    (_Rule(1, keeps=""), "reduce_mean reduce_sum mean average_pool global_average_pool all_reduce all_gather"),
    (_Rule(1, keeps=""), "reshape flatten squeeze unsqueeze identity output"),
)
_PRODUCTS = frozenset(
    ("matmul", "matmul_transposed", "grouped_matmul", "linear", "gemm", "conv", "conv_transpose", "einsum")
)
_RULES = {kind: rule for rule, kinds in _KINDS for kind in kinds.split()}


def _rule_of(operator: Operator) -> _Rule:
    """Return the backward rule of an operator.

    An operator of unknown kind costs as much as two forward passes if it has weights, if it has more than
    `_FLOPS_BOUND` FLOPs per byte, or if neither its FLOPs nor its bytes are known. Otherwise it costs as much as one.
    """
    if operator.kind in _PRODUCTS:
        return _PRODUCT if operator.weight_bytes else _PRODUCT_OF_TWO
    if operator.kind in _RULES:
        return _RULES[operator.kind]
    if _is_view(operator):
        return _RULES["reshape"]
    if operator.weight_bytes:
        return _PRODUCT
    nothing_known = operator.flops is None and operator.bytes is None
    heavy = (operator.flops or 0.0) > _FLOPS_BOUND * (operator.bytes or 0.0)
    return _PRODUCT_OF_TWO if nothing_known or heavy else _Rule(1)


def _is_view(operator: Operator) -> bool:
    """Return whether the operator does no work, so that its output shares the memory of its input."""
    return operator.flops == 0 and operator.bytes == 0


def size_of(graph: OperatorGraph, index: int) -> int | None:
    """Return the bytes of an operator's output, from its outgoing edges or else from `output_bytes`.

    None if unknown.
    """
    carried = graph.edge_bytes[index]
    return graph.operators[index].output_bytes if carried is None else carried


def with_backward(graph: OperatorGraph, *, recompute: bool = False, split_weights: bool = False) -> OperatorGraph:
    """Return the training graph: every operator gets a backward operator `NAME/backward` on its device.

    A backward operator reads the tensors that its forward operator keeps. An edge connects the two. The size of its
    output is that of the largest gradient of its inputs. If an output has several consumers, its gradient passes from
    the last consumer to the first. Each of them adds its own gradient, so that only one tensor leaves a stage. These
    additions cost nothing. If no operator before an operator has weights, no gradient is computed for its inputs. If
    the weights are unknown, the operator counts as one with weights.

    Parameters
    ----------
    graph : OperatorGraph
        The forward graph.
    recompute : bool
        Keep only the inputs of each layer, and repeat its forward pass before its backward pass. A layer is the first
        part of an operator's name. Layers of one operator, and layers without a successor, are not recomputed.
    split_weights : bool
        Compute gradients of weights in separate operators, `NAME/weight_gradient`, for which no other operator waits.

    Raises
    ------
    InputError
        If the graph already has backward operators, or a name is already used.
    """
    if graph.is_training:
        raise InputError(f"graph {graph.name}", "already has backward operators")
    return _Backward(graph, recompute, split_weights).training_graph()


def with_weights_apart(graph: OperatorGraph) -> OperatorGraph:
    """Split each backward operator of a training graph into an input-gradient and a weight-gradient operator.

    `NAME/backward` keeps its name and computes the gradient of the input. `NAME/weight_gradient` is on the same devices
    and computes the gradient of the weights. The costs of both add up to the former cost. Operators that are already
    split do not change, and neither do merged operators and unknown kinds.
    """
    forward, split = {each.name: each for each in graph.operators if not each.backward}, dict[str, Operator]()
    names, operators = set(graph.names), list[Operator]()
    for each in graph.operators:
        of = forward.get(each.forward_of or "")
        name = "" if of is None else f"{of.name}/weight_gradient"
        share = 0.0 if of is None or not each.backward or name in names else _weights_share(of, each)
        if of is None or not share or each.name != f"{of.name}/backward":
            operators.append(each)
            continue
        apart = _scaled(each, share, name, f"{of.kind}_weight_gradient", of.weight_bytes)
        whole = _scaled(each, 1 - share, each.name, f"{of.kind}_input_gradient", each.output_bytes)
        operators += [whole, apart]
        split[each.name] = apart
    copied = (replace(edge, target=split[edge.target].name) for edge in graph.edges if edge.target in split)
    return replace(graph, operators=tuple(operators), edges=(*graph.edges, *copied))


def _weights_share(forward: Operator, backward: Operator) -> float:
    """Return the fraction of a backward operator's work that computes weight gradients, or 0 if it is unknown."""
    rule, known = _rule_of(forward), forward.kind in _PRODUCTS or forward.kind in _RULES
    if not (forward.weight_bytes and rule.weights and known):
        return 0.0
    if not rule.inputs:
        return 1.0
    pairs = ((forward.flops, backward.flops), (forward.bytes, backward.bytes), (1.0, rule.inputs / rule.weights + 1))
    return next((min(1.0, rule.weights * part / whole) for part, whole in pairs if part and whole), 0.0)


def _scaled(operator: Operator, share: float, name: str, kind: str, output_bytes: int | None) -> Operator:
    """Return a backward operator with `share` times the costs of `operator`."""
    return Operator(
        name,
        kind,
        tuple(DeviceTime(each.kind, each.time * share) for each in operator.times),
        flops=None if operator.flops is None else operator.flops * share,
        bytes=None if operator.bytes is None else operator.bytes * share,
        output_bytes=output_bytes,
        backward=True,
        forward_of=operator.forward_of or operator.name,
    )


class _Backward:
    """Builds the training graph of a forward graph."""

    def __init__(self, graph: OperatorGraph, recompute: bool, split_weights: bool) -> None:
        self._graph, self._split = graph, split_weights
        self._rules = list(map(_rule_of, graph.operators))
        self._order = topological_order(graph.predecessors)
        self._layers = list(map(layer_of, graph.operators))
        sizes = Counter(self._layers)
        followed = {self._layers[one] for one, other in graph.arcs if self._layers[one] != self._layers[other]}
        self._recomputed = [recompute and sizes[each] > 1 and each in followed for each in self._layers]
        """Whether each operator is recomputed, by index."""

    def training_graph(self) -> OperatorGraph:
        """Return the forward graph with backward operators and their edges."""
        pairs = zip(self._graph.operators, self._kept(), strict=True)
        forward = [replace(operator, activation_bytes=amount) for operator, amount in pairs]
        added = [each for index in reversed(self._order) for each in self._operators(index)]
        edges = dict.fromkeys(edge for index in self._order for edge in self._edges(index))
        name = f"{self._graph.name}-training"
        operators = (*forward, *added)
        return replace(self._graph, name=name, operators=operators, edges=(*self._graph.edges, *edges), network="")

    def _kept(self) -> list[int]:
        """Return the activation bytes of each operator. Unless the graph gives them, they are estimated.

        The estimate is the size of the tensors that the backward pass reads again. A tensor that several operators keep
        counts only for the first of them. A view counts as the tensor of which it is a view. A tensor of unknown size
        counts as 0 bytes.
        """
        graph, roots, held = self._graph, list(range(len(self._graph.operators))), set[int]()
        kept = [each.activation_bytes or 0 for each in graph.operators]
        for index in self._order:
            operator, sources, keeps = graph.operators[index], graph.predecessors[index], self._rules[index].keeps
            if _is_view(operator) and len(sources) == 1:
                roots[index] = roots[sources[0]]
            if self._recomputed[index]:
                tensors, keeps = {each for each in sources if self._layers[each] != self._layers[index]}, "inputs"
            elif operator.activation_bytes is not None:
                continue
            else:
                tensors = {roots[each] for each in sources if "inputs" in keeps}
                tensors |= {roots[index]} if "output" in keeps else set()
            kept[index] = sum(size_of(graph, each) or 0 for each in tensors - held)
            if not sources and "inputs" in keeps:
                kept[index] += _input_bytes(operator)
            held |= tensors
        return kept

    @cached_property
    def _learns(self) -> list[bool]:
        """Return, for each operator, whether its output depends on weights. Only then a gradient is needed."""
        learns = [False] * len(self._graph.operators)
        for index in self._order:
            has_weights = self._graph.operators[index].weight_bytes != 0
            learns[index] = has_weights or any(learns[before] for before in self._graph.predecessors[index])
        return learns

    @cached_property
    def _chains(self) -> list[list[int]]:
        """Return the consumers of each operator, last first. Empty if the gradient of its output is not needed."""
        rank = {index: place for place, index in enumerate(self._order)}
        pairs = zip(self._graph.consumers, self._learns, strict=True)
        return [sorted(consumers, key=lambda each: -rank[each]) if learns else [] for consumers, learns in pairs]

    def _wanted(self, index: int) -> list[int]:
        """Return the predecessors of an operator whose outputs need a gradient."""
        return [before for before in self._graph.predecessors[index] if self._learns[before]]

    def _is_split(self, index: int) -> bool:
        return self._split and self._rules[index].weights > 0 and bool(self._graph.operators[index].weight_bytes)

    def _operators(self, index: int) -> Iterable[Operator]:
        operator, rule, split = self._graph.operators[index], self._rules[index], self._is_split(index)
        may_learn = not self._graph.predecessors[index] and operator.weight_bytes is None
        by_inputs = rule.inputs if self._wanted(index) or may_learn else 0.0
        by_weights = rule.weights if operator.weight_bytes else 0.0
        share, half = by_inputs + self._recomputed[index], "input_gradient" if split else "backward"
        share += 0.0 if split else by_weights
        sent, kind = self._sent(index)[0], f"{operator.kind}_" if operator.kind else ""
        yield _scaled(operator, share, f"{operator.name}/backward", f"{kind}{half}", sent)
        if split:
            name = f"{operator.name}/weight_gradient"
            yield _scaled(operator, by_weights, name, f"{kind}weight_gradient", operator.weight_bytes)

    def _sent(self, index: int) -> tuple[int | None, float | None]:
        """Return the bytes of the largest gradient that a backward operator returns, and the largest transfer cost."""
        wanted = self._wanted(index)
        sizes = [size_of(self._graph, before) for before in wanted]
        costs = [self._graph.output_cost[before] for before in wanted]
        has_costs = any(edge.cost is not None for edge in self._graph.edges)
        size = None if None in sizes else max((each or 0 for each in sizes), default=0)
        return size, max(costs, default=0.0) if has_costs else None

    def _edges(self, index: int) -> Iterable[Edge]:
        name, split, chain = self._graph.operators[index].name, self._is_split(index), self._chains[index]
        names = [f"{self._graph.operators[each].name}/backward" for each in chain]
        for (one, source), (_, target) in pairwise(zip(chain, names, strict=True)):
            yield Edge(source, target, *self._sent(one))
        mate, weights = f"{name}/backward", f"{name}/weight_gradient"
        has_costs = self._sent(index)[1] is not None
        for target in (mate, weights) if split else (mate,):
            yield Edge(name, target, size_of(self._graph, index), self._graph.output_cost[index] if has_costs else None)
            if chain:
                yield Edge(names[-1], target, *self._sent(chain[-1]))
        if split and self._recomputed[index]:  # The backward operator also produces the recomputed tensors.
            yield Edge(mate, weights, *self._sent(index))


def _input_bytes(operator: Operator) -> int:
    """Return the input bytes of an operator without predecessors: bytes moved, minus weights, minus output."""
    if operator.bytes is None or operator.output_bytes is None:
        return 0
    return max(0, round(operator.bytes) - (operator.weight_bytes or 0) - operator.output_bytes)
