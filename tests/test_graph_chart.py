"""The drawing of an operator graph contains the data of the graph and the placement."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from helpers.transformers import transformer

from tessel_core.charts.device_bars import memory_bars
from tessel_core.charts.graph.chart import graph_chart, selected_operators
from tessel_core.charts.graph.groups import ColourBy, GraphView, GroupBy, marked
from tessel_core.charts.graph.labels import labels_of
from tessel_core.charts.graph.layout import Frame, layout_of
from tessel_core.charts.palette import slot_colour
from tessel_core.model import (
    DevicePool,
    Edge,
    Operator,
    OperatorGraph,
    Placement,
    PlacementDevice,
    PlacementLoads,
)
from tessel_core.model.loads import PassLoads
from tessel_core.samples import load_graph

MEGABYTES_2 = 2_000_000


def halves(graph: OperatorGraph, parts: int = 2) -> Placement:
    """Place forward operators in equal parts, in the order of the graph.

    Backward operators follow their forward ones.
    """
    forward = [operator.name for operator in graph.operators if not operator.backward]
    part = {name: i * parts // len(forward) for i, name in enumerate(forward)}
    on = tuple((part[operator.forward_of or operator.name],) for operator in graph.operators)
    return Placement(graph, tuple(PlacementDevice(f"gpu{i}", "h200") for i in range(parts)), on)


def points_of(figure: go.Figure) -> Iterator[tuple[go.Scatter, int, int]]:
    """Return each point that stands for a mark, as (trace, position, index of its first operator)."""
    for trace in figure.data:
        if trace.customdata is not None:
            yield from ((trace, at, int(first)) for at, first in enumerate(trace.customdata))


def at(values: Any, position: int) -> Any:
    """Return the value of a property at a position. All points may share one value."""
    return values if isinstance(values, int | float | str) else values[position]


def trace_of(figure: go.Figure, name: str) -> go.Scatter:
    return next(trace for trace in figure.data if trace.name == name)


@pytest.mark.parametrize("colour_by", ColourBy)
@pytest.mark.parametrize("group_by", GroupBy)
def test_every_operator_can_be_selected_once(group_by: GroupBy, colour_by: ColourBy) -> None:
    graph = transformer(4, training=True)
    view, placement = GraphView(group_by, colour_by=colour_by), halves(graph)
    figure = graph_chart(graph, view, placement)
    points = [{"customdata": first} for _, _, first in points_of(figure)]
    assert len(points) == len(marked(graph, view, placement).marks)
    assert selected_operators(points, graph, view, placement) == tuple(graph.names)


def test_a_group_selects_all_its_members_and_strange_points_nothing() -> None:
    graph = transformer(3)
    view = GraphView(GroupBy.LAYER)
    inside = graph.operator_index("layer1/mlp/up")
    layer = tuple(name for name in graph.names if name.startswith("layer1/"))
    assert selected_operators([{"customdata": inside}, {"x": 3}, {"customdata": "layer2"}], graph, view) == layer
    assert selected_operators([{"customdata": 10_000}], graph, view) == ()


def test_colours_are_those_of_the_devices() -> None:
    graph = transformer(4, training=True)
    placement = halves(graph, 3)
    for trace, _, first in points_of(graph_chart(graph, GraphView(colour_by=ColourBy.DEVICE), placement)):
        (device,) = placement.assignment[first]
        assert trace.marker.color == slot_colour(device)
        assert trace.name == f"gpu{device}"


@pytest.mark.parametrize(("devices", "listed"), [(16, 16), (18, 18), (19, 0)])
def test_the_legend_names_as_many_devices_as_there_are_colours(devices: int, listed: int) -> None:
    graph = transformer(20)
    figure = graph_chart(graph, GraphView(GroupBy.OPERATOR, colour_by=ColourBy.DEVICE), halves(graph, devices))
    names = [trace.name for trace in figure.data if trace.showlegend and trace.name.startswith("gpu")]
    assert sorted(names) == sorted(f"gpu{d}" for d in range(listed))


def test_many_devices_take_few_traces() -> None:
    graph = transformer(20)
    figure = graph_chart(graph, GraphView(colour_by=ColourBy.DEVICE), halves(graph, 64))
    assert len(figure.data) < 25
    assert len(list(points_of(figure))) == len(graph.operators)


@pytest.mark.parametrize(
    ("colour_by", "amount"),
    [
        (ColourBy.TIME, lambda operator: 1e3 * operator.time_on("h200")),
        (ColourBy.MEMORY, lambda operator: operator.memory / 1e6),
        (ColourBy.FLOPS, lambda operator: operator.flops / 1e9),
    ],
)
def test_gradients_are_of_the_operators_amounts(colour_by: ColourBy, amount: Any) -> None:
    graph = transformer(2)
    shown = {
        first: (at(trace.marker.color, position), trace.marker.colorbar.title.text)
        for trace, position, first in points_of(graph_chart(graph, GraphView(colour_by=colour_by)))
    }
    assert {title for _, title in shown.values()} <= {"ms on h200", "MB", "GFLOP"}
    for i, operator in enumerate(graph.operators):
        assert shown[i][0] == pytest.approx(amount(operator), rel=1e-6)


def test_amounts_that_are_not_known_are_grey() -> None:
    graph = OperatorGraph("bare", (Operator("a", flops=2e6), Operator("b")), (Edge("a", "b"),))
    figure = graph_chart(graph, GraphView(colour_by=ColourBy.FLOPS))
    assert trace_of(figure, "not known").customdata == (1,)
    assert len(list(points_of(graph_chart(graph, GraphView(colour_by=ColourBy.TIME))))) == 2


def test_groups_tell_their_sums() -> None:
    graph = transformer(3)
    figure = graph_chart(graph, GraphView(GroupBy.LAYER), halves(graph))
    told = {
        trace.hovertext[position].split("<br>")[0]: trace.hovertext[position]
        for trace, position, _ in points_of(figure)
    }
    assert "14 operators, forward" in told["<b>layer1</b>"]
    assert "140 ms on cpu, 105 ms on h200" in told["<b>layer1</b>"]
    assert "91 GFLOP" in told["<b>layer1</b>"]
    assert "weights 91 MB, activations 14 MB, outputs 14 MB" in told["<b>layer1</b>"]
    assert "on gpu0, gpu1" in told["<b>layer1</b>"]


def test_names_are_shown_literally() -> None:
    graph = OperatorGraph("bold", (Operator("<b>up</b>", kind="<i>", colour="<u>"), Operator("x")), ())
    figure = graph_chart(graph, GraphView(colour_by=ColourBy.KIND))
    text = next(trace.hovertext[i] for trace, i, first in points_of(figure) if first == 0)
    assert text.startswith("<b>&lt;b&gt;up&lt;/b&gt;</b><br>&lt;i&gt;, forward")
    assert "&lt;u&gt;" in text
    shown = " ".join(str(trace.name) + " ".join(trace.text or ()) for trace in figure.data)
    assert "<" not in shown


def test_a_search_dims_all_others_and_pins_are_dotted() -> None:
    graph = transformer(2, training=True)
    found, pinned = frozenset({"layer0/mlp/up"}), frozenset({"layer1/mlp/down", "layer1/mlp/down'"})
    bright, dotted = set(), set()
    for trace, position, first in points_of(graph_chart(graph, GraphView(highlight=found, pinned=pinned))):
        name = graph.operators[first].name
        bright |= {name} if at(trace.marker.opacity, position) == 1 else set()
        symbol = at(trace.marker.symbol, position)
        dotted |= {name} if symbol >= 200 else set()
        assert symbol % 200 == (2 if graph.operators[first].backward else 0)
    assert bright == found
    assert dotted == pinned


def test_lines_between_devices_stand_out() -> None:
    graph = OperatorGraph(
        "chain", tuple(Operator(f"o{i}") for i in range(6)), tuple(Edge(f"o{i}", f"o{i + 1}") for i in range(5))
    )
    devices = tuple(PlacementDevice(name, "h200") for name in "ab")
    placement = Placement(graph, devices, ((0,), (0,), (0,), (1,), (1,), (1,)))
    figure = graph_chart(graph, GraphView(), placement)
    moved, kept = trace_of(figure, "between devices"), trace_of(figure, "tensors")
    assert moved.line.color != kept.line.color
    assert moved.line.width > kept.line.width
    shown = marked(graph, GraphView(), placement)
    layout = layout_of(shown, Frame(1_150 / 420, 1, 46 / 420))
    ends = [tuple(pair) for pair in zip(moved.x, moved.y, strict=True) if not np.isnan(pair[0])]
    assert set(ends) == {(layout.x[2], layout.y[2]), (layout.x[3], layout.y[3])}
    assert "between devices" not in {trace.name for trace in graph_chart(graph).data}


def test_a_group_on_two_devices_has_both_colours() -> None:
    graph = transformer(3)
    trace, position, _ = next(
        point
        for point in points_of(graph_chart(graph, GraphView(GroupBy.LAYER, colour_by=ColourBy.DEVICE), halves(graph)))
        if point[2] == graph.operator_index("layer1/attention/norm")
    )
    assert trace.marker.color == slot_colour(0)
    outline = trace.marker.line
    share = (at(outline.color, position) - outline.cmin) / (outline.cmax - outline.cmin)
    below = max(stop for stop, _ in outline.colorscale if stop < share)
    above = min(stop for stop, _ in outline.colorscale if stop > share)
    assert (below, slot_colour(1)) in outline.colorscale
    assert (above, slot_colour(1)) in outline.colorscale


@pytest.mark.parametrize("layers", [1, 7, 12])
@pytest.mark.parametrize("group_by", [GroupBy.OPERATOR, GroupBy.LAYER])
def test_labels_on_a_lane_do_not_touch(layers: int, group_by: GroupBy) -> None:
    shown = marked(transformer(layers), GraphView(group_by))
    layout = layout_of(shown, Frame(2.5))
    column_px = 1_150 / layout.width
    labels = labels_of(shown, layout, column_px, 30.0)
    assert any(labels)
    boxes = [
        (y, x * column_px - 3 * len(label), x * column_px + 3 * len(label))
        for label, x, y in zip(labels, layout.x.tolist(), layout.y.tolist(), strict=True)
        if label
    ]
    boxes.sort()
    for (lane, _, right), (next_lane, left, _) in pairwise(boxes):
        assert lane != next_lane or right <= left
    assert not any(labels_of(shown, layout, column_px, 8.0)), "no room below"


def test_backward_marks_are_named_where_their_forward_ones_do_not_do_it() -> None:
    graph = load_graph("gpt2-xl-training")
    shown = marked(graph, GraphView(GroupBy.OPERATOR))
    layout = layout_of(shown, Frame(2.5))
    labels = dict(zip((mark.name for mark in shown.marks), labels_of(shown, layout, 60.0, 30.0), strict=True))
    assert labels["layer0"] == "layer0"
    assert "backward" not in labels.values()
    back = frozenset(operator.name for operator in graph.operators if operator.backward)
    alone = marked(graph, GraphView(GroupBy.OPERATOR, only=back))
    assert "backward" in labels_of(alone, layout_of(alone, Frame(2.5)), 60.0, 30.0)


def test_rows_of_many_operators_name_their_layers() -> None:
    texts = [each.text for each in graph_chart(transformer(30)).layout.annotations]
    assert {f"layer{i}" for i in range(1, 30)} <= set(texts)
    assert not graph_chart(transformer(2)).layout.annotations


@pytest.mark.parametrize(
    ("operators", "colour_by"),
    [
        (2_000, ColourBy.TIME),
        (8_000, ColourBy.DEVICE),
        pytest.param(19_900, ColourBy.DEVICE, marks=pytest.mark.more),
        pytest.param(19_900, ColourBy.TIME, marks=pytest.mark.more),
    ],
)
def test_pictures_stay_below_two_megabytes(operators: int, colour_by: ColourBy) -> None:
    graph = transformer(operators // 28, training=True)
    some = frozenset(list(graph.names)[::7])
    figure = graph_chart(graph, GraphView(colour_by=colour_by, highlight=some, pinned=some), halves(graph, 16))
    assert len(list(points_of(figure))) == len(graph.operators)
    assert len(figure.to_json()) < MEGABYTES_2


def test_a_hairball_says_what_it_leaves_out() -> None:
    count = 6_000
    arcs = {(i, (i * 7919 + k * 104_729) % count) for i in range(count) for k in range(6)}
    edges = tuple(Edge(f"o{a}", f"o{b}") for a, b in sorted(arcs) if a < b)
    graph = OperatorGraph("hairball", tuple(Operator(f"o{i}") for i in range(count)), edges)
    figure = graph_chart(graph)
    assert any("lines left out" in trace.name for trace in figure.data if trace.mode == "lines")
    assert len(figure.to_json()) < MEGABYTES_2


def test_nothing_to_draw_is_an_empty_picture() -> None:
    assert not graph_chart(transformer(1), GraphView(only=frozenset({"no such operator"}))).data


def test_memory_bars_show_what_exceeds_the_capacity() -> None:
    devices = (PlacementDevice("a", "h200", 3e9), PlacementDevice("b", "h200", 3e9), PlacementDevice("host", "cpu"))
    passes = PassLoads((1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    loads = PlacementLoads(passes, passes, (2e9, 5e9, 4e9), (0.0,) * 3)
    held, over, limits = memory_bars(loads, devices).data
    assert held.x == (2, 3, 4)
    assert over.x == (0, 2, 0)
    assert (limits.x, limits.y) == ((3, 3), (0, 1))
    assert held.customdata[1] == "b: 5 GB of 3 GB"


def test_many_devices_keep_a_tick_for_some() -> None:
    devices = DevicePool(200).devices(OperatorGraph("one", (Operator("a"),)))
    passes = PassLoads((1.0,) * 200, (0.0,) * 200)
    loads = PlacementLoads(passes, passes, (0.0,) * 200, (0.0,) * 200)
    figure = memory_bars(loads, devices)
    assert 50 <= len(figure.layout.yaxis.tickvals) <= 150
