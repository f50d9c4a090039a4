"""Finished results as plotly figures: pure functions, nothing is computed that a result does not hold."""

# plotly takes pandas from sys.modules as it stands there; a search on another thread may just be importing it, and half
# a module breaks the figure.  So have it whole before any figure is drawn.
import pandas  # noqa: F401

from tessel_core.charts.bubbles import bubble_chart
from tessel_core.charts.comparison import compared
from tessel_core.charts.gantt import drawn_window, gantt
from tessel_core.charts.placement_picture import placement_picture
from tessel_core.charts.progress import gap_curve

__all__ = ["bubble_chart", "compared", "drawn_window", "gantt", "gap_curve", "placement_picture"]
