"""Finished results as plotly figures: pure functions, nothing is computed that a result does not hold."""

# plotly takes pandas from sys.modules as it stands there; a search on another thread may just be importing it, and half
# a module breaks the figure.  So have it whole before any figure is drawn.
import pandas  # noqa: F401

from tessel_core.charts.bars import MOST_BARS
from tessel_core.charts.bubbles import bubble_chart, mean_bubbles
from tessel_core.charts.comparison import Shown, compared
from tessel_core.charts.curves import count_curves, memory_curve
from tessel_core.charts.gantt import SHARES_TOLD, Detail, detail_of, gantt
from tessel_core.charts.graph import ColourBy, GraphView, GroupBy, graph_chart, overview, selected_operators
from tessel_core.charts.pareto import pareto_chart
from tessel_core.charts.placement_bars import load_bars, memory_bars
from tessel_core.charts.placement_picture import placement_picture
from tessel_core.charts.progress import gap_curve
from tessel_core.charts.trace import memory_chart, trace_chart
from tessel_core.charts.trace_lanes import selected_operation
from tessel_core.charts.windows import EVERYTHING, TimeAxis

__all__ = [
    "EVERYTHING",
    "MOST_BARS",
    "SHARES_TOLD",
    "ColourBy",
    "Detail",
    "GraphView",
    "GroupBy",
    "Shown",
    "TimeAxis",
    "bubble_chart",
    "compared",
    "count_curves",
    "detail_of",
    "gantt",
    "gap_curve",
    "graph_chart",
    "load_bars",
    "mean_bubbles",
    "memory_bars",
    "memory_chart",
    "memory_curve",
    "overview",
    "pareto_chart",
    "placement_picture",
    "selected_operation",
    "selected_operators",
    "trace_chart",
]
