"""HTML of plans, schedules and other classes of `tessel_core.model` in notebooks.

These classes are in a lower layer than the charts, so they cannot import the charts. `tessel_core/__init__.py` sets
`draw` to the notebook export, which is imported when a notebook first shows an object.
"""

from __future__ import annotations

from collections.abc import Callable

draw: Callable[[object], str] | None = None
"""Function that returns the HTML of an object. None until the package sets it."""


class Shown:
    """Base class of objects that Jupyter shows as a picture with numbers, through `_repr_html_`."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if draw is None else draw(self)
