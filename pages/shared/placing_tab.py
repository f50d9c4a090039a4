"""What one browser tab remembers on the way from a graph to a placement, besides the workspace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every tab remembers this, and other pages load no searches for it
    from tessel_core.placement import PlacementQuestion
    from tessel_core.planning import JointConfig


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
    joint: JointConfig | None = None
    """What the search for placement and schedule together may spend; None before anybody has changed that."""
    split_weights: bool = False
    """Whether weight gradients become blocks of their own in a plan."""
    complaint: str = ""
    """Why the latest move was not made, in one sentence."""
