"""State of the Placement page in one browser tab, besides the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tessel_core.placement import PlacementQuestion
    from tessel_core.planning import JointConfig
    from tessel_core.workbench.placing import Placing


@dataclass
class PlacementState:
    """View settings and the awaited search. None of it is saved."""

    of_workspace: ClassVar[bool] = True
    awaited: PlacementQuestion | None = None
    """Question whose result will be applied when its search ends."""
    comparing: bool = False
    """Whether all placers run, one after the other."""
    joint: JointConfig | None = None
    """Options of the joint search. None: the defaults."""
    split_weights: bool = False
    """Whether weight gradients become separate blocks of a plan."""
    complaint: str = ""
    """Why the latest move was refused, in one sentence."""
    dropped: str = ""
    """Effect of the latest drop in the lanes, or why it was refused."""
    refused: bool = False
    """Whether the latest drop was refused."""
    left: Placing | None = None
    """Placement after the latest drop. `dropped` is shown only while the placement is still this one."""
