"""Finished results as plotly figures: pure functions, nothing is computed that a result does not hold."""

from tessel_core.charts.bubbles import bubble_chart
from tessel_core.charts.comparison import compared
from tessel_core.charts.gantt import drawn_window, gantt
from tessel_core.charts.placement_picture import placement_picture
from tessel_core.charts.progress import gap_curve

__all__ = ["bubble_chart", "compared", "drawn_window", "gantt", "gap_curve", "placement_picture"]
