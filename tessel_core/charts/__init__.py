"""Finished results as plotly figures: pure functions, nothing is computed that a result does not hold.

Each is imported from its own module, so that a page loads only what it draws.
"""

# plotly takes pandas from sys.modules as it stands there; a search on another thread may just be importing it, and half
# a module breaks the figure.  So have it whole before any figure is drawn.
import pandas  # noqa: F401
