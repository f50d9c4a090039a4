"""What operators keep for their backward, where the graph does not say it."""

from __future__ import annotations

from tessel_core.model import OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.networks.graphs.gradients import Keeps, is_view, rule_of


def kept_bytes(graph: OperatorGraph) -> tuple[int | None, ...]:
    """Per operator of a forward graph, its activation bytes: given, or derived from what its kind reads again.

    A tensor that several operators keep counts at the first of them, and a view is the tensor that it shows.  What an
    operator without predecessors takes from outside is what it moves less its weights and its output.  A tensor of
    unknown size counts as nothing.
    """
    tensors, held = kept_tensors(graph), set[int]()
    found = [operator.activation_bytes for operator in graph.operators]
    for index in topological_order(graph.predecessors):
        if found[index] is not None:
            continue
        keeps_inputs = Keeps.INPUTS in rule_of(graph.operators[index]).keeps
        first = sum(size_of(graph, each) or 0 for each in tensors[index] - held)
        found[index] = first + (_from_outside(graph, index) if keeps_inputs else 0)
        held |= tensors[index]
    return tuple(found)


def kept_tensors(graph: OperatorGraph) -> tuple[set[int], ...]:
    """Per operator, the operators whose outputs its backward reads again, by its kind; of a view, what it shows."""
    roots, found = _roots(graph), []
    for index, operator in enumerate(graph.operators):
        keeps, wanted = rule_of(operator).keeps, set[int]()
        if Keeps.INPUTS in keeps:
            wanted.update(roots[before] for before in graph.predecessors[index])
        if Keeps.OUTPUT in keeps:
            wanted.add(roots[index])
        found.append(wanted)
    return tuple(found)


def size_of(graph: OperatorGraph, index: int) -> int | None:
    """Bytes of an operator's output: what its edges carry, else what it says itself."""
    carried = graph.edge_bytes[index]
    return graph.operators[index].output_bytes if carried is None else carried


def _roots(graph: OperatorGraph) -> list[int]:
    """Per operator, the one whose tensor its output is: itself but for views."""
    found = list(range(len(graph.operators)))
    for index in topological_order(graph.predecessors):
        if is_view(graph.operators[index]) and len(graph.predecessors[index]) == 1:
            found[index] = found[graph.predecessors[index][0]]
    return found


def _from_outside(graph: OperatorGraph, index: int) -> int:
    operator = graph.operators[index]
    if graph.predecessors[index] or operator.bytes is None or operator.output_bytes is None:
        return 0
    return max(0, round(operator.bytes) - (operator.weight_bytes or 0) - operator.output_bytes)
