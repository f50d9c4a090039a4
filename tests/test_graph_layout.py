"""Laws of the layered drawing: positions of marks, lines between them, and the operators of each mark."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from helpers.graphs import random_graph
from helpers.seeds import seeds
from helpers.transformers import OPERATORS_PER_LAYER, transformer

from tessel_core.charts.graph.groups import GraphView, GroupBy, marked, overview
from tessel_core.charts.graph.layout import Frame, Layout, _layout, layout_of
from tessel_core.model import DevicePool, Edge, Operator, OperatorGraph, Placement
from tessel_core.model.checks import find_cycle
from tessel_core.networks.graphs.files import read_graph_file

DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement" / "throughput"


def plain_graph(count: int, arcs: set[tuple[int, int]]) -> OperatorGraph:
    return OperatorGraph(
        "plain",
        tuple(Operator(f"o{i}") for i in range(count)),
        tuple(Edge(f"o{a}", f"o{b}") for a, b in sorted(arcs)),
    )


def tangled(count: int, seed: int) -> OperatorGraph:
    """Return a graph with twice as many edges as operators, some of them long."""
    choose = Random(seed)
    arcs = set()
    while len(arcs) < 2 * count:
        source = choose.randrange(count - 1)
        arcs.add((source, min(count - 1, source + 1 + int(choose.expovariate(1 / 20)))))
    return plain_graph(count, arcs)


GRAPHS = {
    "one": plain_graph(1, set()),
    "apart": plain_graph(300, set()),
    "chain": plain_graph(700, {(i, i + 1) for i in range(699)}),
    "star": plain_graph(200, {(0, i) for i in range(1, 200)}),
    "tangled": tangled(200, 3),
    "inference": transformer(8),
    "training": transformer(5, training=True),
    **{f"random {seed}": random_graph(seed, 12) for seed in range(12)},
}


def columns(layout: Layout) -> list[int]:
    """Return the columns, counted through all rows."""
    tops = [row.top for row in layout.rows]
    rows = np.searchsorted(tops, layout.y, side="right") - 1
    return [layout.rows[row].first + x for row, x in zip(rows.tolist(), layout.x.tolist(), strict=True)]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("aspect", [0.5, 2.5])
def test_marks_stand_apart_and_tensors_go_on(name: str, aspect: float) -> None:
    graph = GRAPHS[name]
    shown = marked(graph, GraphView())
    layout = layout_of(shown, Frame(aspect))
    assert len(set(zip(layout.x.tolist(), layout.y.tolist(), strict=True))) == len(graph.operators)
    assert layout.x.min() >= 0
    assert layout.y.min() >= 0
    assert layout.x.max() < layout.width
    assert layout.y.max() < layout.height
    column = columns(layout)
    for source, target in graph.arcs:
        ends = graph.operators[source], graph.operators[target]
        if not any(each.backward for each in ends):
            assert column[source] < column[target]
        if all(each.backward for each in ends):
            assert column[source] != column[target]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_arc_is_drawn_from_its_source_to_its_target(name: str) -> None:
    graph = GRAPHS[name]
    shown = marked(graph, GraphView())
    layout = layout_of(shown, Frame(2))
    arcs, lines = layout.arc_of_line
    for number, (source, target) in enumerate(shown.arcs):
        along = layout.lines[lines[arcs == number]]
        ends = {tuple(end) for line in along.tolist() for end in (line[:2], line[2:])}
        assert (layout.x[source], layout.y[source]) in ends
        assert (layout.x[target], layout.y[target]) in ends


def test_the_backward_pass_comes_back_straight_below() -> None:
    graph = transformer(5, training=True)
    layout = layout_of(marked(graph, GraphView()), Frame(2))
    column = columns(layout)
    tops = np.searchsorted([row.top for row in layout.rows], layout.y, side="right") - 1
    for i, operator in enumerate(graph.operators):
        if operator.forward_of:
            mate = graph.operator_index(operator.forward_of)
            assert column[i] == column[mate]
            assert layout.y[mate] < layout.rows[tops[i]].middle <= layout.y[i]


def test_a_backward_pass_with_the_arcs_of_the_forward_one_runs_along_with_it() -> None:
    """Published layer graphs have such a backward pass, and do not mark the loss."""
    names = [f"f{i}" for i in range(5)]
    operators = [Operator(name) for name in names]
    operators += [Operator(f"{name}'", backward=True, forward_of=name) for name in names]
    arcs = [(f"f{i}", f"f{i + 1}") for i in range(4)]
    edges = [Edge(a, b) for a, b in arcs] + [Edge(f"{a}'", f"{b}'") for a, b in arcs]
    layout = layout_of(marked(OperatorGraph("copied", tuple(operators), tuple(edges)), GraphView()), Frame(9))
    assert layout.x.tolist() == [0, 1, 2, 3, 4] * 2


def test_long_chains_are_folded_like_text() -> None:
    layout = layout_of(marked(GRAPHS["chain"], GraphView()), Frame(2))
    assert 0.5 < layout.width / layout.height / 2 < 2
    lengths = [row.columns for row in layout.rows]
    assert sum(lengths) == 700
    assert max(lengths) <= 1.4 * min(lengths)


def test_what_is_large_enough_is_not_folded() -> None:
    shown = marked(transformer(1), GraphView())
    assert len(layout_of(shown, Frame(2.5)).rows) > 1
    assert len(layout_of(shown, Frame(2.5, enough=0.1)).rows) == 1


def test_parallel_chains_do_not_cross() -> None:
    """Three chains of thirty operators with shuffled names, from one source to one sink."""
    order = Random(5).sample(range(90), 90)
    arcs = {(order[i], order[i + 1]) for i in range(89) if i % 30 != 29}
    arcs |= {(90, order[i]) for i in (0, 30, 60)} | {(order[i], 91) for i in (29, 59, 89)}
    layout = layout_of(marked(plain_graph(92, arcs), GraphView()), Frame(40))
    assert len(layout.rows) == 1
    assert not any(_cross(one, other) for one, other in combinations(layout.lines.tolist(), 2))


def _cross(one: list[float], other: list[float]) -> bool:
    """Return whether two lines over the same columns cross."""
    if one[0] != other[0] or one[2] != other[2]:
        return False
    return bool((one[1] - other[1]) * (one[3] - other[3]) < 0)


def test_long_drawings_do_not_drift() -> None:
    layout = layout_of(marked(transformer(60), GraphView()), Frame(40))
    assert max(row.bottom - row.top for row in layout.rows) <= 6, "a layer alone takes four lanes"


@pytest.mark.parametrize("name", ["tangled", "training"])
def test_the_same_graph_is_drawn_the_same_way(name: str) -> None:
    shown = marked(GRAPHS[name], GraphView())
    first = layout_of(shown, Frame(2))
    _layout.cache_clear()
    again = layout_of(shown, Frame(2))
    assert first is not again
    assert (first.x == again.x).all()
    assert (first.y == again.y).all()
    assert (first.lines == again.lines).all()


def foldered(seed: int) -> OperatorGraph:
    """Return a random graph whose operators are in random folders, two levels deep."""
    choose, graph = Random(seed), random_graph(seed, 12)
    names = {each.name: f"{choose.choice('ab')}/{choose.choice('cd')}/{each.name}" for each in graph.operators}
    operators = [
        replace(each, name=names[each.name], forward_of=names[each.forward_of] if each.forward_of else None)
        for each in graph.operators
    ]
    edges = [replace(each, source=names[each.source], target=names[each.target]) for each in graph.edges]
    return replace(graph, operators=tuple(operators), edges=tuple(edges))


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("by", GroupBy)
def test_groups_hold_every_operator_once_and_form_no_circle(seed: int, by: GroupBy) -> None:
    graph = foldered(seed)
    devices = DevicePool(3).devices(transformer(1))
    placement = Placement(graph, devices, tuple((Random(seed + i).randrange(3),) for i in range(len(graph.operators))))
    shown = marked(graph, GraphView(by), placement)
    members = [member for mark in shown.marks for member in mark.members]
    assert sorted(members) == list(range(len(graph.operators)))
    before: list[list[int]] = [[] for _ in shown.marks]
    for source, target in shown.arcs:
        before[target].append(source)
    assert not find_cycle(before)
    for mark in shown.marks:
        assert {graph.operators[i].backward for i in mark.members} == {mark.backward}
        if by is GroupBy.DEVICE:
            assert len({placement.assignment[i] for i in mark.members}) == 1
        if by is GroupBy.LAYER:
            first = graph.operators[mark.members[0]]
            assert (first.forward_of or first.name).startswith(f"{mark.key}/")
    layout = layout_of(shown, Frame(2))
    assert len(set(zip(layout.x.tolist(), layout.y.tolist(), strict=True))) == len(shown.marks)


def test_layers_are_whole_where_that_forms_no_circle() -> None:
    graph = transformer(6, training=True)
    shown = marked(graph, GraphView(GroupBy.LAYER))
    sizes = {mark.name: len(mark.members) for mark in shown.marks}
    assert sizes["layer3"] == sizes["layer3 backward"] == OPERATORS_PER_LAYER
    assert len(shown.marks) == 2 * (6 + 2)
    deeper = marked(graph, GraphView(GroupBy.LAYER, depth=2))
    assert "layer3/mlp" in {mark.name for mark in deeper.marks}


def test_a_group_that_would_form_a_circle_is_cut_in_consecutive_pieces() -> None:
    operators = tuple(Operator(name) for name in ("a/1", "b/1", "a/2", "a/3"))
    graph = OperatorGraph("circle", operators, (Edge("a/1", "b/1"), Edge("b/1", "a/2"), Edge("a/2", "a/3")))
    shown = marked(graph, GraphView(GroupBy.LAYER))
    assert [(mark.name, mark.members) for mark in shown.marks] == [("a · 1", (0,)), ("b/1", (1,)), ("a · 2", (2, 3))]


def test_groups_open_folder_by_folder() -> None:
    graph = transformer(3)
    half = marked(graph, GraphView(GroupBy.LAYER, expanded=frozenset({"layer1"})))
    assert {"layer0", "layer1/attention", "layer1/mlp", "layer2"} <= {mark.key for mark in half.marks}
    opened = marked(graph, GraphView(GroupBy.LAYER, expanded=frozenset({"layer1", "layer1/mlp"})))
    names = {mark.name for mark in opened.marks}
    assert {"layer1/mlp/up", "layer1/attention", "layer0"} <= names
    assert "layer1/mlp" not in names


def test_only_what_is_asked_for_is_drawn() -> None:
    graph = transformer(3)
    wanted = frozenset(name for name in graph.names if name.startswith("layer1/mlp"))
    shown = marked(graph, GraphView(only=wanted))
    assert {mark.name for mark in shown.marks} == wanted
    assert len(shown.arcs) == 4


def test_an_overview_is_taken_in_at_a_glance() -> None:
    assert overview(transformer(2)) == GraphView()
    assert overview(transformer(40)).group_by is GroupBy.LAYER
    assert overview(plain_graph(400, {(i, i + 1) for i in range(399)})) == GraphView(), "names that say nothing"


@pytest.mark.skipif(not DATA.is_dir(), reason="the published inputs are not here")
@pytest.mark.parametrize("path", sorted(DATA.rglob("*.json")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_published_graphs_fit_a_screen(path: Path) -> None:
    graph = read_graph_file(path).graph
    layout = layout_of(marked(graph, GraphView()), Frame(2))
    assert len(set(zip(layout.x.tolist(), layout.y.tolist(), strict=True))) == len(graph.operators)
    assert layout.width * layout.height < 12 * len(graph.operators) + 40, "a mark has a dozen places at most"
