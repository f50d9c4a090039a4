"""The state of the Placement page in one browser tab, besides the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tessel_core.placement import PlacementQuestion
    from tessel_core.planning import JointConfig


@dataclass
class PlacementState:
    """Nothing of it is kept: it is how a person looks at things, and what they wait for."""

    of_workspace: ClassVar[bool] = True
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
