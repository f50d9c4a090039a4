"""What a person wants to see of an operator graph."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GroupBy(StrEnum):
    """What one mark of the drawing stands for."""

    OPERATOR = "operator"
    LAYER = "layer"
    """The folders that operators' names begin with, up to a depth."""
    COLOUR = "colour class"
    DEVICE = "device"
    """The devices of a placement; without one, operators."""


class ColourBy(StrEnum):
    """What the colour of a mark says."""

    DIRECTION = "direction"
    DEVICE = "device"
    KIND = "kind"
    COLOUR = "colour class"
    TIME = "time"
    FLOPS = "FLOPs"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class GraphView:
    """Which operators are drawn, as what, and what stands out; all names are operators' except those of `expanded`."""

    group_by: GroupBy = GroupBy.OPERATOR
    depth: int = 1
    """For layers: how many folders deep, counted from where the names of a graph begin to differ."""
    expanded: frozenset[str] = frozenset()
    """Keys of groups that are opened: a folder shows what is in it, any other group its operators."""
    colour_by: ColourBy = ColourBy.DIRECTION
    kind: str | None = None
    """The kind of device whose times are meant; None is the first accelerator that the graph has times for."""
    highlight: frozenset[str] = frozenset()
    """Where there are any, all others are dimmed."""
    pinned: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    """Where there are any, nothing else is drawn: a close look at a selection."""
