"""What one browser tab remembers on the way from a graph to a placement, besides the workspace."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessel_core.placement import PlacementQuestion


@dataclass
class PlacingTab:
    """Nothing of it is kept: it is how a person looks at things, and what they wait for."""

    bases: dict[str, object] = field(default_factory=dict)
    """What each table widget was given, by its key; Streamlit keeps their edits as differences to it."""
    expanded: frozenset[str] = frozenset()
    """Groups of the drawing that are opened."""
    only: frozenset[str] = frozenset()
    """Operators that are drawn, where not all are."""
    awaited: PlacementQuestion | None = None
    """The question whose answer is to move the operators."""
    comparing: bool = False
    """Whether all placers are asked, one after the other."""
    complaint: str = ""
    """Why the latest move was not made, in one sentence."""
