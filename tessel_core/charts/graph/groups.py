"""Views of an operator graph, and groups of operators as the marks of a drawing, without cycles."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import takewhile

from tessel_core.model import CPU, OperatorGraph, Placement
from tessel_core.model.checks import circles, quotient

OVERVIEW_ABOVE = 150
"""Number of operators above which a graph is first shown in groups."""
_MIN_OVERVIEW_MARKS = 4
"""Least number of marks of a useful overview."""


class GroupBy(StrEnum):
    """Property by which operators are grouped into marks of the drawing."""

    OPERATOR = "operator"
    LAYER = "layer"
    """First parts of the operators' names, up to a depth."""
    COLOUR = "colour class"
    DEVICE = "device"
    """Devices of a placement. Without a placement, operators are not grouped."""


class ColourBy(StrEnum):
    """Property of an operator that a mark's colour shows."""

    DIRECTION = "direction"
    DEVICE = "device"
    KIND = "kind"
    COLOUR = "colour class"
    TIME = "time"
    FLOPS = "FLOPs"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class GraphView:
    """Settings of a drawing: grouping, colours and selection. Sets of names contain operators, except in `expanded`."""

    group_by: GroupBy = GroupBy.OPERATOR
    depth: int = 1
    """Number of name parts that identify a layer, counted from where the graph's names begin to differ."""
    expanded: frozenset[str] = frozenset()
    """Keys of expanded groups. A layer shows its sublayers; another group shows its operators."""
    colour_by: ColourBy = ColourBy.DIRECTION
    highlight: frozenset[str] = frozenset()
    """Operators to highlight. If the set is not empty, all other operators are dimmed."""
    pinned: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    """Operators to draw. If the set is empty, all operators are drawn."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of the drawing: an operator, or a group of operators of one direction."""

    name: str
    key: str
    """Key of the group, for `GraphView.expanded`. Empty for a single operator."""
    members: tuple[int, ...]
    """Operator indices, ascending."""
    backward: bool


@dataclass(frozen=True)
class MarkedGraph:
    """Marks of a graph, and arcs between them.

    Marks are in the order of their first operators. Arcs are unique and form no cycle.
    """

    graph: OperatorGraph
    marks: tuple[Mark, ...]

    @cached_property
    def mark_of(self) -> dict[int, int]:
        """Index of the mark that shows each drawn operator."""
        return {member: i for i, mark in enumerate(self.marks) for member in mark.members}

    @cached_property
    def arcs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of marks. A tensor goes from the first mark to the second."""
        return tuple(dict.fromkeys(self.arc_of.values()))

    @cached_property
    def arc_of(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Pair of marks for each arc of the graph that connects two different marks."""
        at = self.mark_of
        pairs = ((arc, (at.get(arc[0], -1), at.get(arc[1], -1))) for arc in self.graph.arcs)
        return {arc: ends for arc, ends in pairs if min(ends) >= 0 and ends[0] != ends[1]}

    @cached_property
    def mates(self) -> tuple[tuple[int, ...], ...]:
        """Forward marks that each backward mark mirrors.

        They follow from `forward_of`, or else from the colocated operators.
        """
        found: list[set[int]] = [set() for _ in self.marks]
        operators, graph = self.graph.operators, self.graph
        for member, mark in self.mark_of.items():
            operator = operators[member]
            if not operator.backward:
                continue
            together = graph.colocated[graph.group_of[member]]
            ahead = [graph.operator_index(operator.forward_of)] if operator.forward_of else together
            found[mark] |= {self.mark_of[i] for i in ahead if i in self.mark_of and not operators[i].backward}
        return tuple(tuple(sorted(each)) for each in found)


def marked(graph: OperatorGraph, view: GraphView, placement: Placement | None = None) -> MarkedGraph:
    """Group the graph as `view` says.

    Forward and backward operators are never in one mark. Marks that would form a cycle are cut into consecutive
    pieces.
    """
    shown = [i for i, operator in enumerate(graph.operators) if not view.only or operator.name in view.only]
    keys = _keys(graph, view, placement)
    labels = {i: (keys[i], graph.operators[i].backward, "" if keys[i] else graph.operators[i].name) for i in shown}
    groups: dict[tuple[str, bool, str], list[int]] = defaultdict(list)
    for i in shown:
        groups[labels[i]].append(i)
    pieces = [piece for members in _without_circles(graph, list(groups.values())) for piece in members]
    cuts = dict.fromkeys(groups, 0)
    marks = []
    for piece in sorted(pieces):
        label = labels[piece[0]]
        cuts[label] += 1
        marks.append(_mark(graph, label, tuple(piece), cuts[label], whole=len(piece) == len(groups[label])))
    return MarkedGraph(graph, tuple(marks))


def overview(graph: OperatorGraph) -> GraphView:
    """Return the view in which a graph is first shown.

    A small graph shows operators, and a large graph shows layers or colour classes.
    """
    whole = GraphView()
    if len(graph.operators) <= OVERVIEW_ABOVE:
        return whole
    candidates = [GraphView(GroupBy.LAYER, depth) for depth in (1, 2)] + [GraphView(GroupBy.COLOUR)]
    counts = {view: len(marked(graph, view).marks) for view in candidates}
    telling = [view for view in candidates if _MIN_OVERVIEW_MARKS <= counts[view] <= OVERVIEW_ABOVE]
    if telling:
        return telling[0]
    fewest = min(candidates, key=counts.__getitem__)
    return fewest if 1 < counts[fewest] <= len(graph.operators) / 2 else whole


def layer_names(graph: OperatorGraph) -> list[str]:
    """Return the layer of each operator, taken from its name. Empty if the name contains no layer."""
    return _folder_keys(graph, GraphView())


def accelerator_kind(graph: OperatorGraph) -> str:
    """Return the first kind of accelerator with times in the graph, or else the host's kind."""
    return next((kind for kind in graph.kinds if kind != CPU), CPU)


def _mark(
    graph: OperatorGraph, label: tuple[str, bool, str], members: tuple[int, ...], piece: int, whole: bool
) -> Mark:
    key, backward, single = label
    if single or (len(members) == 1 and whole):
        return Mark(graph.operators[members[0]].name, key, members, backward)
    return Mark(key + (" backward" if backward else "") + ("" if whole else f" · {piece}"), key, members, backward)


def _keys(graph: OperatorGraph, view: GraphView, placement: Placement | None) -> list[str]:
    """Return the key of each operator's group. The key is empty if the operator is a mark by itself."""
    if view.group_by is GroupBy.LAYER:
        return _folder_keys(graph, view)
    keys = [""] * len(graph.operators)
    if view.group_by is GroupBy.COLOUR:
        keys = [operator.colour or "" for operator in graph.operators]
    elif view.group_by is GroupBy.DEVICE and placement is not None:
        keys = [", ".join(placement.devices[d].name for d in on) for on in placement.assignment]
    return ["" if key in view.expanded else key for key in keys]


def _folder_keys(graph: OperatorGraph, view: GraphView) -> list[str]:
    """Return the layer of each operator at the view's depth. A backward operator has its forward operator's layer."""
    paths = [_parts(operator.forward_of or operator.name)[:-1] for operator in graph.operators]
    filed = [path for path in paths if path]
    common = _shared_length(min(filed), max(filed)) if filed else 0
    return [_opened(path, common + max(1, view.depth), view.expanded) for path in paths]


def _shared_length(one: list[str], other: list[str]) -> int:
    """Return the number of leading parts that two paths share.

    If paths are sorted, the first and the last path share only what all paths share.
    """
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _opened(path: list[str], depth: int, expanded: frozenset[str]) -> str:
    """Return the key of the first layer at `depth` or deeper that is not expanded. Empty if all layers are expanded."""
    for deep in range(depth, max(depth, len(path)) + 1):
        key = "/".join(path[:deep])
        if key not in expanded:
            return key
    return ""


def _parts(name: str) -> list[str]:
    """Return the parts of a name.

    >>> _parts("/layers.0/mlp/up"), _parts("layers.0.mlp.up"), _parts("42")
    (['layers.0', 'mlp', 'up'], ['layers', '0', 'mlp', 'up'], ['42'])
    """
    return [part for part in name.split("/" if "/" in name else ".") if part] or [name]


def short_name(name: str) -> str:
    """Return the last part of a name, which is unique within its layer."""
    return _parts(name)[-1]


def _without_circles(graph: OperatorGraph, groups: Sequence[list[int]]) -> list[list[list[int]]]:
    """Cut each group into pieces that form no cycle with other groups. A group on no cycle stays whole."""
    group_of = {member: g for g, members in enumerate(groups) for member in members}
    arcs = [(group_of[a], group_of[b]) for a, b in graph.arcs if a in group_of and b in group_of]
    pieces = [[members] for members in groups]
    for circle in circles(quotient(len(groups), arcs)):
        runs = _runs(graph, group_of, {member for g in circle for member in groups[g]})
        for g in circle:
            pieces[g] = [sorted(run) for run in runs if group_of[run[0]] == g]
    return pieces


def _runs(graph: OperatorGraph, group_of: dict[int, int], within: set[int]) -> list[list[int]]:
    """Return the operators `within` in topological order, cut where the group changes.

    Such pieces form no cycle. The order stays in one group as long as possible.
    """
    waiting = {i: sum(before in within for before in graph.predecessors[i]) for i in sorted(within)}
    ready: dict[int, deque[int]] = {}
    for i, count in waiting.items():
        if count == 0:
            ready.setdefault(group_of[i], deque()).append(i)
    runs = []
    while ready:
        group = min(ready, key=lambda g: ready[g][0])
        run: list[int] = []
        while ready.get(group):
            run.append(ready[group].popleft())
            for after in graph.consumers[run[-1]]:
                if after not in within:
                    continue
                waiting[after] -= 1
                if waiting[after] == 0:
                    ready.setdefault(group_of[after], deque()).append(after)
        del ready[group]
        runs.append(run)
    return runs
