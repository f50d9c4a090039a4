"""How nouns show themselves in notebooks: they ask for their HTML here, and the package says who makes it.

The nouns lie below everything that draws, so they cannot import it.  `tessel_core/__init__.py` sets `draw` to the
export for notebooks, which is imported when the first noun is shown.
"""

from __future__ import annotations

from collections.abc import Callable

draw: Callable[[object], str] | None = None
"""Makes the HTML of a noun; None before the package has said who does."""


class Shown:
    """A noun that Jupyter, and what follows its protocol, shows as a picture with its numbers."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if draw is None else draw(self)
