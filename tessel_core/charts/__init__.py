"""Plotly figures and timeline data of finished results.

All are pure functions that run no solver. Import each chart from its own module, so that a page loads only the charts
that it draws.
"""
