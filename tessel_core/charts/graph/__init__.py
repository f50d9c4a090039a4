"""The layered drawing of an operator graph."""

from tessel_core.charts.graph.chart import graph_chart, selected_operators
from tessel_core.charts.graph.groups import ColourBy, GraphView, GroupBy, marked, overview

__all__ = [
    "ColourBy",
    "GraphView",
    "GroupBy",
    "graph_chart",
    "marked",
    "overview",
    "selected_operators",
]
