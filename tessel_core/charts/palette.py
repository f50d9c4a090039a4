"""Colours that colour-blind people can tell apart, on light and dark backgrounds.

Hues of kinds come from Okabe and Ito's set. Blue and orange also differ in lightness, so a grey print works too.
Backgrounds are transparent and fonts unset, so that the theme of the page decides them.
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
"""Colours of the lines of one figure. The lines also differ in their symbols."""

HELD = "#56b4e9"
"""Colour of memory that micro-batches hold."""
STATIC = "#888888"
"""Colour of static memory."""
LIMIT = "#d55e00"
"""Colour of capacities, and of memory above a capacity."""
MISFIT = "#b34700"
"""Colour of text about exceeded capacities, which needs more contrast than lines.

Pages brighten it in the dark theme.
"""
QUIET = "rgba(128, 128, 128, 0.55)"
"""Colour of unobtrusive lines and hatches, readable on light and dark backgrounds."""
FAINT = "rgba(128, 128, 128, 0.13)"
TRANSFER = "#e0218a"
"""Colour of tensors between devices. No device has this hue."""
COST_SCALE = ((0.0, "#56b4e9"), (0.5, "#cc79a7"), (1.0, "#d55e00"))
"""Colour scale from low to high cost, readable on light and dark backgrounds."""

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
"""Colours of busy time, and of idle time by cause and by the change that could remove it.

All differ, and idle time that another order could remove stands out.
"""

_STEPS = (0.0, 0.22, 0.11, 0.33)
"""Shares of white or black that are mixed into the colours of micro-batches 0 to 3, and so on.

Neighbours differ and the hue stays.
"""
SHADES = len(_STEPS)
"""Number of micro-batches after which `shade` repeats."""


def shade(kind: BlockKind, micro_batch: int) -> str:
    """Return the colour of a block. Shades go towards white or black so that the best text colour does not change.

    >>> shade(BlockKind.FORWARD, 0), shade(BlockKind.FORWARD, 4) == shade(BlockKind.FORWARD, 0)
    ('#0072b2', True)
    """
    base = KIND_COLOURS[kind]
    towards = 0 if ink(base) == "#ffffff" else 255
    share = _STEPS[micro_batch % len(_STEPS)]
    return "#" + "".join(f"{round(value + (towards - value) * share):02x}" for value in channels(base))


def slot_colour(slot: int) -> str:
    """Return the n-th colour of a long series: the hues, then darker, then lighter ones, and then again.

    >>> slot_colour(0), slot_colour(6), slot_colour(18)
    ('#0072b2', '#004b75', '#0072b2')
    """
    towards, share = ((0, 0.0), (0, 0.34), (255, 0.45))[slot // len(SERIES_COLOURS) % 3]
    base = channels(SERIES_COLOURS[slot % len(SERIES_COLOURS)])
    return "#" + "".join(f"{round(value + (towards - value) * share):02x}" for value in base)


SLOTS = 3 * len(SERIES_COLOURS)
"""Number of colours after which `slot_colour` repeats."""


def ink(ground: str) -> str:
    """Return black or white, whichever has the higher contrast with `ground` [WCAG 2.2, 1.4.3].

    >>> ink("#0072b2"), ink("#e69f00")
    ('#ffffff', '#000000')
    """
    light = luminance(ground)
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000000"


def luminance(colour: str) -> float:
    """Return the relative luminance of an sRGB colour, from 0 for black to 1 for white [WCAG 2.2]."""
    parts = (value / 255 for value in channels(colour))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def channels(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`, each from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
