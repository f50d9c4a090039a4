"""The backward pass of graphs that show no program, as those from files or changed by hand: by the kinds of operators.

The backward pass of a program is derived (`ir/transforms/gradients.py`).
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
"""FLOPs per byte above which an operator of an unknown kind is taken for a product of matrices."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """The backward of one kind of operators, in multiples of the forward's FLOPs, bytes and time."""

    inputs: float
    """For the gradients of its inputs."""
    weights: float = 0.0
    """For the gradient of its weights, where it has any and another kernel computes it."""
    keeps: str = "inputs"
    """The tensors that it reads again."""


_PRODUCT, _PRODUCT_OF_TWO = _Rule(1, 1), _Rule(2)
_KINDS: tuple[tuple[_Rule, str], ...] = (
    # Five products where the forward has two: the scores are computed again [Dao 2022, arXiv 2205.14135].
    (_Rule(2.5, keeps="inputs output"), "attention multi_head_attention"),
    # Bound by memory: input and gradient are read and a gradient is written, two for products of elements; norms read
    # both twice.
    (_Rule(2.5), "layer_norm simplified_layer_norm rms_norm batch_norm group_norm instance_norm lrn"),
    (_Rule(1.5, keeps="output"), "softmax log_softmax relu sigmoid tanh exp sqrt reciprocal"),
    (_Rule(1.5), "gelu silu swish elu selu leaky_relu prelu softplus softsign hard_sigmoid hard_swish mish"),
    (_Rule(1.5), "erf log sin cos abs clip"),
    (_Rule(5 / 3), "gate gated_gelu mul div pow max min"),
    (_Rule(1), "cross_entropy softmax_cross_entropy_loss max_pool"),
    # The gradient of a sum is that of each of its terms.
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
    """The rule of its kind.

    Of kinds that are not in the table, those with weights, those with more than `_FLOPS_BOUND` FLOPs per byte and those
    of which neither FLOPs nor bytes are known cost two forwards, all others one.
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
    """Whether it does no work, so that its output is its input under another name."""
    return operator.flops == 0 and operator.bytes == 0


def size_of(graph: OperatorGraph, index: int) -> int | None:
    """Bytes of an operator's output: what its edges carry, else what it says itself."""
    carried = graph.edge_bytes[index]
    return graph.operators[index].output_bytes if carried is None else carried


def with_backward(graph: OperatorGraph, *, recompute: bool = False, split_weights: bool = False) -> OperatorGraph:
    """The training graph: every operator has a `NAME/backward` on its device, by the table of kinds.

    A backward operator reads what its forward kept, hence an edge between the two.  What it sends is as large as the
    largest gradient of its inputs.  Gradients of an output with several consumers pass from the last of them to the
    first, which adds them up, so that one tensor leaves a stage; the additions are not counted.  Where nothing before
    an operator has weights, no gradient is computed for its inputs; weights that are not known may be there.

    Parameters
    ----------
    recompute
        Layers, named by the first steps of names, keep their inputs alone and their backward runs the forward again;
        those of one operator and those that nothing follows stay as they are.
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
        apart = _scaled(each, share, name, f"{of.kind}_weight_gradient", of.weight_bytes)
        whole = _scaled(each, 1 - share, each.name, f"{of.kind}_input_gradient", each.output_bytes)
        operators += [whole, apart]
        found[each.name] = apart
    taken = (replace(edge, target=found[edge.target].name) for edge in graph.edges if edge.target in found)
    return replace(graph, operators=tuple(operators), edges=(*graph.edges, *taken))


def _weights_share(forward: Operator, backward: Operator) -> float:
    """How much of a whole backward is the gradient of the weights; 0 where nothing says it."""
    rule, known = _rule_of(forward), forward.kind in _PRODUCTS or forward.kind in _RULES
    if not (forward.weight_bytes and rule.weights and known):
        return 0.0
    if not rule.inputs:
        return 1.0
    pairs = ((forward.flops, backward.flops), (forward.bytes, backward.bytes), (1.0, rule.inputs / rule.weights + 1))
    return next((min(1.0, rule.weights * part / whole) for part, whole in pairs if part and whole), 0.0)


def _scaled(operator: Operator, share: float, name: str, kind: str, output_bytes: int | None) -> Operator:
    """An operator of the backward pass that does `share` of the work of another one."""
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
    def __init__(self, graph: OperatorGraph, recompute: bool, split_weights: bool) -> None:
        self._graph, self._split = graph, split_weights
        self._rules = list(map(_rule_of, graph.operators))
        self._order = topological_order(graph.predecessors)
        self._layers = list(map(layer_of, graph.operators))
        sizes = Counter(self._layers)
        followed = {self._layers[one] for one, other in graph.arcs if self._layers[one] != self._layers[other]}
        self._again = [recompute and sizes[each] > 1 and each in followed for each in self._layers]
        """Per operator, whether it runs twice."""

    def training_graph(self) -> OperatorGraph:
        pairs = zip(self._graph.operators, self._kept(), strict=True)
        forward = [replace(operator, activation_bytes=amount) for operator, amount in pairs]
        added = [each for index in reversed(self._order) for each in self._operators(index)]
        edges = dict.fromkeys(edge for index in self._order for edge in self._edges(index))
        name = f"{self._graph.name}-training"
        every = (*forward, *added)
        return replace(self._graph, name=name, operators=every, edges=(*self._graph.edges, *edges), network="")

    def _kept(self) -> list[int]:
        """Per operator, its activation bytes: given, or what its backward reads again.

        A tensor that several operators keep counts at the first of them, and a view is the tensor that it shows.  A
        tensor of unknown size counts as nothing.
        """
        graph, roots, held = self._graph, list(range(len(self._graph.operators))), set[int]()
        found = [each.activation_bytes or 0 for each in graph.operators]
        for index in self._order:
            operator, sources, keeps = graph.operators[index], graph.predecessors[index], self._rules[index].keeps
            if _is_view(operator) and len(sources) == 1:
                roots[index] = roots[sources[0]]
            if self._again[index]:
                tensors, keeps = {each for each in sources if self._layers[each] != self._layers[index]}, "inputs"
            elif operator.activation_bytes is not None:
                continue
            else:
                tensors = {roots[each] for each in sources if "inputs" in keeps}
                tensors |= {roots[index]} if "output" in keeps else set()
            found[index] = sum(size_of(graph, each) or 0 for each in tensors - held)
            if not sources and "inputs" in keeps:
                found[index] += _from_outside(operator)
            held |= tensors
        return found

    @cached_property
    def _learns(self) -> list[bool]:
        """Per operator, whether its output depends on weights, so that a gradient of it is wanted."""
        found = [False] * len(self._graph.operators)
        for index in self._order:
            has_weights = self._graph.operators[index].weight_bytes != 0
            found[index] = has_weights or any(found[before] for before in self._graph.predecessors[index])
        return found

    @cached_property
    def _chains(self) -> list[list[int]]:
        """Per operator, its consumers from the last to the first, if a gradient of its output is wanted."""
        rank = {index: place for place, index in enumerate(self._order)}
        pairs = zip(self._graph.consumers, self._learns, strict=True)
        return [sorted(consumers, key=lambda each: -rank[each]) if learns else [] for consumers, learns in pairs]

    def _wanted(self, index: int) -> list[int]:
        """Predecessors that want a gradient."""
        return [before for before in self._graph.predecessors[index] if self._learns[before]]

    def _is_split(self, index: int) -> bool:
        return self._split and self._rules[index].weights > 0 and bool(self._graph.operators[index].weight_bytes)

    def _operators(self, index: int) -> Iterable[Operator]:
        operator, rule, split = self._graph.operators[index], self._rules[index], self._is_split(index)
        may_learn = not self._graph.predecessors[index] and operator.weight_bytes is None
        by_inputs = rule.inputs if self._wanted(index) or may_learn else 0.0
        by_weights = rule.weights if operator.weight_bytes else 0.0
        share, half = by_inputs + self._again[index], "input_gradient" if split else "backward"
        share += 0.0 if split else by_weights
        sent, kind = self._sent(index)[0], f"{operator.kind}_" if operator.kind else ""
        yield _scaled(operator, share, f"{operator.name}/backward", f"{kind}{half}", sent)
        if split:
            name = f"{operator.name}/weight_gradient"
            yield _scaled(operator, by_weights, name, f"{kind}weight_gradient", operator.weight_bytes)

    def _sent(self, index: int) -> tuple[int | None, float | None]:
        """Bytes of the largest gradient that leaves a backward operator, and what it costs to move the dearest."""
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
        if split and self._again[index]:  # what the forward kept exists again
            yield Edge(mate, weights, *self._sent(index))


def _from_outside(operator: Operator) -> int:
    """What an operator without predecessors takes: all that it moves, less its weights and its output."""
    if operator.bytes is None or operator.output_bytes is None:
        return 0
    return max(0, round(operator.bytes) - (operator.weight_bytes or 0) - operator.output_bytes)
