"""HTML of plans, schedules and other nouns in notebooks.

The modules of the nouns are in a lower layer than the modules that draw, so they cannot import them.
`tessel_core/__init__.py` sets `draw` to the notebook export, which is imported when the first noun is shown.
"""

from __future__ import annotations

from collections.abc import Callable

draw: Callable[[object], str] | None = None
"""Function that returns the HTML of a noun; None until the package sets it."""


class Shown:
    """Base class of nouns that Jupyter shows as a picture with figures, through `_repr_html_`."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if draw is None else draw(self)
