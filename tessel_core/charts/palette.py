"""Colours that colour-blind people can tell apart, on light and on dark ground.

Hues by kind are from Okabe and Ito's set; blue and orange differ in lightness too, so a grey print still shows which
is which.  Backgrounds stay transparent and fonts unset, so that the page's theme decides them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.inspection import BUSY, Cause
from tessel_core.model import BlockKind

KIND_COLOURS = {
    BlockKind.FORWARD: "#0072b2",
    BlockKind.BACKWARD: "#e69f00",
    BlockKind.WEIGHT: "#009e73",
    BlockKind.OTHER: "#cc79a7",
}

SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Lines of one figure; symbols differ too."""

HELD = "#56b4e9"
"""Memory that micro-batches hold."""
STATIC = "#888888"
"""Memory that is held all the time."""
LIMIT = "#d55e00"
"""Capacities, and what exceeds them."""
MISFIT = "#b34700"
"""Words about what exceeds a capacity, which need more contrast than lines; pages brighten it on dark ground."""
QUIET = "rgba(128, 128, 128, 0.55)"
"""Lines and hatches that must be readable on both grounds without asking for attention."""
FAINT = "rgba(128, 128, 128, 0.13)"
TRANSFER = "#e0218a"
"""Tensors that move between devices: no device has this hue."""
COST_SCALE = ((0.0, "#56b4e9"), (0.5, "#cc79a7"), (1.0, "#d55e00"))
"""From little to much, through hues that stand out from both grounds."""

PART_COLOURS: Mapping[str, str] = {
    BUSY: "#8f9aa6",
    "imbalance": "#4b4fa8",
    "unavoidable": "#7a8b1f",
    "open": "#b01030",
    "bubble": "#8c5a2b",
    Cause.WARMUP: "#56b4e9",
    Cause.COOLDOWN: "#cc79a7",
    Cause.ORDER: "#d55e00",
    Cause.MEMORY: "#e69f00",
    Cause.PARTNERS: "#0072b2",
    Cause.COMMUNICATION: TRANSFER,
    Cause.DATA: "#009e73",
}
"""Of busy time, of idle time by what could change it, and by what a device waits for; what another order could remove
stands out, and no two have one colour."""

_STEPS = (0.0, 0.22, 0.11, 0.33)
"""Shares of white or black for micro-batches 0, 1, 2, 3, and again: neighbours differ, and the hue stays."""
SHADES = len(_STEPS)
"""Micro-batches before `shade` begins again."""


def shade(kind: BlockKind, micro_batch: int) -> str:
    """The colour of a block of `kind` in micro-batch `micro_batch`; a hue goes to the side where its ink stays.

    >>> shade(BlockKind.FORWARD, 0), shade(BlockKind.FORWARD, 4) == shade(BlockKind.FORWARD, 0)
    ('#0072b2', True)
    """
    base = KIND_COLOURS[kind]
    towards = 0 if ink(base) == "#ffffff" else 255
    share = _STEPS[micro_batch % len(_STEPS)]
    return "#" + "".join(f"{round(value + (towards - value) * share):02x}" for value in channels(base))


def slot_colour(slot: int) -> str:
    """The colour of the n-th of many like things: the series' hues, then darker, then lighter ones, and again.

    >>> slot_colour(0), slot_colour(6), slot_colour(18)
    ('#0072b2', '#004b75', '#0072b2')
    """
    towards, share = ((0, 0.0), (0, 0.34), (255, 0.45))[slot // len(SERIES_COLOURS) % 3]
    base = channels(SERIES_COLOURS[slot % len(SERIES_COLOURS)])
    return "#" + "".join(f"{round(value + (towards - value) * share):02x}" for value in base)


SLOTS = 3 * len(SERIES_COLOURS)
"""Colours before `slot_colour` begins again."""


def ink(ground: str) -> str:
    """Black or white, whichever has the higher contrast with `ground` [WCAG 2.2, 1.4.3].

    >>> ink("#0072b2"), ink("#e69f00")
    ('#ffffff', '#000000')
    """
    light = luminance(ground)
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000000"


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour, 0 for black to 1 for white [WCAG 2.2]."""
    parts = (value / 255 for value in channels(colour))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
