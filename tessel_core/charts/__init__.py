"""Finished results as plotly figures: pure functions, nothing is computed that a result does not hold.

Each is imported from its own module, so that a page loads only what it draws.
"""
