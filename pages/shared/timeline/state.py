"""View of the timeline (zoom, selection, colours), as the address keeps it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from pages.shared.in_address import Address, InAddress, Read
from tessel_core.errors import InputError
from tessel_core.workbench.messages.timeline import PLACE

TIMELINE, PICTURE, TABLE = DRAWINGS = "Timeline", "Picture", "Table"

_MAX_VIEWS = 100
_TICK = "[0-9]{1,16}"
_SPAN = f"{_TICK}-{_TICK}"
PARTS: Mapping[str, tuple[str, str]] = {
    "time": (_SPAN, "two numbers of ticks, as in 120-480"),
    "at": (PLACE, "a run as in 3.17, an idle time as in g2.718 or a range as in r120-480"),
    "on": ("[1-9][0-9]{0,2}", "the number of a schedule"),
    "colour": ("kind|micro-batch|block|chunk", "one of kind, micro-batch, block, chunk"),
    "lanes": ("capacity|held", "one of capacity, held"),
    "marks": (rf"{_SPAN}(\.{_SPAN}){{0,7}}", "up to eight time ranges, as in 120-480.500-600"),
}
"""Maps each key of the address to the pattern of its value and a description of it."""


@dataclass
class TimelineState(InAddress):
    """State of the timeline. The address keeps a part of it, and the browser reports changes."""

    look: dict[str, str] = field(default_factory=dict)
    """Settings that differ from the defaults, by the keys of `PARTS`."""
    known: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings of this tab for each schedule so far, by `of`. The browser keeps them too, and reports only changes."""
    of: str = ""
    """Digest of the schedule that the browser reported last."""
    asked: str = ""
    """Number and text of the user's search. The number makes a repeated search a new one."""
    drawing: str = TIMELINE
    """Shown drawing, one of `DRAWINGS`."""
    failed: str = ""
    """Why this browser could not draw the timeline. Empty if it could."""

    def follow(self, address: Address, read: Read) -> None:
        found = {key: read(partial(_part, key, address)) for key in PARTS}
        self.look = {key: value for key, value in found.items() if value}
        named = {each.lower(): each for each in DRAWINGS}
        self.drawing = named.get(address.get("drawing", ""), TIMELINE)

    def in_address(self) -> dict[str, str]:
        return {**({} if self.drawing == TIMELINE else {"drawing": self.drawing.lower()}), **self.look}

    def step_back(self, written: Address, address: Address) -> None:
        """Do nothing: zoom and selection add no entries to the browser's history."""

    def seen(self, reported: Mapping[str, object]) -> None:
        """Set the state from a message of the browser. Invalid parts are ignored."""
        self.of, self.asked = str(reported.get("of") or ""), str(reported.get("ask") or "")
        given = {key: str(reported.get(key) or "") for key in PARTS}
        self.look = {key: value for key, value in given.items() if re.fullmatch(PARTS[key][0], value)}
        self.known.pop(self.of, None)
        self.known[self.of] = self.look
        for oldest in list(self.known)[:-_MAX_VIEWS]:
            del self.known[oldest]

    def about(self, digests: Collection[str]) -> None:
        """Switch to these schedules, and restore their latest settings."""
        if self.of and self.of not in digests:
            before = [of for of in self.known if of in digests]
            self.of, self.asked = before[-1] if before else "", ""
            self.look = self.known.get(self.of, {})

    @property
    def on(self) -> int:
        """Number of the schedule with the selected place, from 0."""
        return int(self.look.get("on", "1")) - 1

    @property
    def selected(self) -> str:
        """Selected place. Empty if none is."""
        return self.look.get("at", "")


def _part(key: str, address: Address) -> str:
    form, words = PARTS[key]
    value = address.get(key, "")
    if value and not re.fullmatch(form, value):
        raise InputError(key, f"must be {words}, got {value!r}")
    return value
