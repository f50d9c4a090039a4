"""The state of the Placement page in one browser tab, besides the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tessel_core.placement import PlacementQuestion
    from tessel_core.planning import JointConfig
    from tessel_core.workbench.placing import Placing


@dataclass
class PlacementState:
    """View settings and the awaited search; none of it is kept."""

    of_workspace: ClassVar[bool] = True
    awaited: PlacementQuestion | None = None
    """The question whose answer is to move the operators."""
    comparing: bool = False
    """Whether all placers are asked, one after the other."""
    joint: JointConfig | None = None
    """The config of the joint search; None until somebody changes it."""
    split_weights: bool = False
    """Whether weight gradients become blocks of their own in a plan."""
    complaint: str = ""
    """Why the latest move was not made, in one sentence."""
    dropped: str = ""
    """What the latest drop in the lanes did, or why it was not made."""
    refused: bool = False
    """Whether it was not made."""
    left: Placing | None = None
    """What the drop left, of which alone it speaks."""
