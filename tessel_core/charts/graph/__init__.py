"""The layered drawing of an operator graph."""

from tessel_core.charts.graph.chart import graph_chart, selected_operators
from tessel_core.charts.graph.groups import Mark, MarkedGraph, marked, overview
from tessel_core.charts.graph.view import ColourBy, GraphView, GroupBy

__all__ = [
    "ColourBy",
    "GraphView",
    "GroupBy",
    "Mark",
    "MarkedGraph",
    "graph_chart",
    "marked",
    "overview",
    "selected_operators",
]
