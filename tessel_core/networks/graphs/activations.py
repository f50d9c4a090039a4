"""What operators keep for their backward, and which layers keep their inputs alone and run again [Chen 2016]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessel_core.model import OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.networks.graphs.gradients import Keeps, is_view, rule_of
from tessel_core.networks.graphs.layers import layer_of


def _kept_bytes(graph: OperatorGraph) -> list[int | None]:
    """Per operator of a forward graph, its activation bytes: given, or derived from what its kind reads again.

    A tensor that several operators keep counts at the first of them, and a view is the tensor that it shows.  What an
    operator without predecessors takes from outside is what it moves less its weights and its output.  A tensor of
    unknown size counts as nothing.
    """
    tensors, held = _kept_tensors(graph), set[int]()
    found = [operator.activation_bytes for operator in graph.operators]
    for index in topological_order(graph.predecessors):
        if found[index] is not None:
            continue
        keeps_inputs = Keeps.INPUTS in rule_of(graph.operators[index]).keeps
        from_outside = _from_outside(graph, index) if keeps_inputs else 0
        found[index] = _total(graph, tensors[index] - held) + from_outside
        held |= tensors[index]
    return found


def size_of(graph: OperatorGraph, index: int) -> int | None:
    """Bytes of an operator's output: what its edges carry, else what it says itself."""
    carried = graph.edge_bytes[index]
    return graph.operators[index].output_bytes if carried is None else carried


def _total(graph: OperatorGraph, tensors: Iterable[int]) -> int:
    """Bytes of the outputs of these operators."""
    return sum(size_of(graph, each) or 0 for each in tensors)


def _kept_tensors(graph: OperatorGraph) -> list[set[int]]:
    """Per operator, the operators whose outputs its backward reads again, by its kind; of a view, what it shows."""
    roots = list(range(len(graph.operators)))
    for index in topological_order(graph.predecessors):
        if is_view(graph.operators[index]) and len(graph.predecessors[index]) == 1:
            roots[index] = roots[graph.predecessors[index][0]]
    found = []
    for index, operator in enumerate(graph.operators):
        keeps, tensors = rule_of(operator).keeps, set[int]()
        if Keeps.INPUTS in keeps:
            tensors.update(roots[before] for before in graph.predecessors[index])
        if Keeps.OUTPUT in keeps:
            tensors.add(roots[index])
        found.append(tensors)
    return found


def _from_outside(graph: OperatorGraph, index: int) -> int:
    operator = graph.operators[index]
    if graph.predecessors[index] or operator.bytes is None or operator.output_bytes is None:
        return 0
    return max(0, round(operator.bytes) - (operator.weight_bytes or 0) - operator.output_bytes)


class Activations:
    """What each operator keeps; with `recompute`, layers that keep less by keeping their inputs alone do that.

    A layer is a first step of names.  A tensor counts once, where it is first kept.  What a layer takes from outside of
    the graph stays with the operators that keep it.  A layer whose output nothing takes is left as it is: its backward
    follows at once.
    """

    def __init__(self, graph: OperatorGraph, *, recompute: bool) -> None:
        self.kept = _kept_bytes(graph)
        """Bytes per operator."""
        self.recomputed = [False] * len(self.kept)
        """Whether an operator runs twice."""
        self._graph, self._tensors = graph, _kept_tensors(graph)
        self._held = set[int]()
        """Tensors that a layer before keeps."""
        self._dropped = set[int]()
        """Tensors that counted in a layer that keeps them no more."""
        layers: dict[str, list[int]] = {}
        for index in topological_order(graph.predecessors):
            layers.setdefault(layer_of(graph.operators[index]), []).append(index)
        for members in layers.values() if recompute else ():
            self._decide(members)

    def _decide(self, members: Sequence[int]) -> None:
        """Whether this layer is recomputed; layers before it have been decided."""
        whole, least = self._as_it_is(members), self._inputs_alone(members)
        inside = set(members)
        outputs = {index for index in members if any(after not in inside for after in self._graph.consumers[index])}
        tensors = set[int]().union(*(self._tensors[index] for index in members))
        shared = _total(self._graph, tensors & outputs)  # the next layer keeps its input
        again = bool(outputs) and sum(least.values()) + shared < sum(whole.values())
        for index, amount in (least if again else whole).items():
            self.kept[index], self.recomputed[index] = amount, again
        sources = {source for index in members for source in self._graph.predecessors[index]} - inside
        self._dropped |= tensors - self._held - sources if again else set()
        self._held |= sources if again else tensors

    def _as_it_is(self, members: Sequence[int]) -> dict[int, int]:
        """Also what it shares with a layer that keeps it no more."""
        found, added = dict[int, int](), set[int]()
        for index in members:
            missing = (self._tensors[index] & self._dropped) - self._held - added
            found[index] = (self.kept[index] or 0) + _total(self._graph, missing)
            added |= missing
        return found

    def _inputs_alone(self, members: Sequence[int]) -> dict[int, int]:
        inside, found, added = set(members), dict[int, int](), set[int]()
        for index in members:
            sources = set(self._graph.predecessors[index])
            outside = 0 if sources else self.kept[index] or 0
            new = sources - inside - self._held - added
            found[index] = outside + _total(self._graph, new)
            added |= new
        return found
