"""Colours that colour-blind people can tell apart, on light and on dark ground.

Hues by kind are from Okabe and Ito's set; blue and orange differ in lightness too, so a grey print still shows which
is which.  Backgrounds stay transparent and fonts unset, so that the page's theme decides them.
"""

from __future__ import annotations

from tessel_core.model import BlockKind

KIND_COLOURS = {
    BlockKind.FORWARD: "#0072b2",
    BlockKind.BACKWARD: "#e69f00",
    BlockKind.WEIGHT: "#009e73",
    BlockKind.OTHER: "#cc79a7",
}
PHASE_COLOURS = {"busy": "#8f9aa6", "warmup": "#56b4e9", "steady": "#d55e00", "cooldown": "#cc79a7"}

HELD = "#56b4e9"
"""Memory that micro-batches hold."""
STATIC = "#888888"
"""Memory that is held all the time."""
LIMIT = "#d55e00"
"""Capacities, and what exceeds them."""
QUIET = "rgba(128, 128, 128, 0.55)"
"""Lines and hatches that must be readable on both grounds without asking for attention."""
FAINT = "rgba(128, 128, 128, 0.13)"

_LIGHTER = (0.0, 0.22, 0.11, 0.33)
"""Shares of white for micro-batches 0, 1, 2, 3, and again: neighbours differ, and the hue stays."""


def shade(kind: BlockKind, micro_batch: int) -> str:
    """The colour of a block of `kind` in micro-batch `micro_batch`.

    >>> shade(BlockKind.FORWARD, 0), shade(BlockKind.FORWARD, 4) == shade(BlockKind.FORWARD, 0)
    ('#0072b2', True)
    """
    white = _LIGHTER[micro_batch % len(_LIGHTER)]
    channels = (round(value + (255 - value) * white) for value in _channels(KIND_COLOURS[kind]))
    return "#" + "".join(f"{value:02x}" for value in channels)


def ink(ground: str) -> str:
    """Black or white, whichever reads better on `ground`.

    >>> ink("#0072b2"), ink("#e69f00")
    ('#ffffff', '#000000')
    """
    red, green, blue = _channels(ground)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
