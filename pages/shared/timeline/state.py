"""What a person sees of the timeline, as the address keeps it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from pages.shared.in_address import Address, InAddress, Read
from tessel_core.errors import InputError
from tessel_core.workbench.messages.timeline import PLACE

TIMELINE, PICTURE, TABLE = DRAWINGS = "Timeline", "Picture", "Table"

_KEPT = 100
_TICK = "[0-9]{1,16}"
_SPAN = f"{_TICK}-{_TICK}"
PARTS: Mapping[str, tuple[str, str]] = {
    "time": (_SPAN, "two numbers of ticks, as in 120-480"),
    "at": (PLACE, "a run as in 3.17, a hole as in g2.718 or a range as in r120-480"),
    "on": ("[1-9][0-9]{0,2}", "the number of a schedule"),
    "colour": ("kind|micro-batch|block|chunk", "one of kind, micro-batch, block, chunk"),
    "lanes": ("capacity|held", "one of capacity, held"),
    "marks": (rf"{_SPAN}(\.{_SPAN}){{0,7}}", "up to eight stretches of time, as in 120-480.500-600"),
}
"""Of the address, by key: the form of the value, and how to say that."""


@dataclass
class TimelineState(InAddress):
    """The address alone keeps a part of it; the timeline itself says what changes."""

    look: dict[str, str] = field(default_factory=dict)
    """What differs from the beginning, by the keys of `PARTS`."""
    known: dict[str, dict[str, str]] = field(default_factory=dict)
    """The looks of this tab so far, by `of`; the browser keeps them too, and tells what changes only."""
    of: str = ""
    """The timeline's word for the schedule that was reported."""
    asked: str = ""
    """What is to be found, as it was typed; it begins with a number, so that the same may be asked again."""
    drawing: str = TIMELINE
    """Which of `DRAWINGS` is shown."""
    failed: str = ""
    """Why this tab's browser could not draw the timeline; empty where it could."""

    def follow(self, address: Address, read: Read) -> None:
        found = {key: read(partial(_part, key, address)) for key in PARTS}
        self.look = {key: value for key, value in found.items() if value}
        named = {each.lower(): each for each in DRAWINGS}
        self.drawing = named.get(address.get("drawing", ""), TIMELINE)

    def in_address(self) -> dict[str, str]:
        return {**({} if self.drawing == TIMELINE else {"drawing": self.drawing.lower()}), **self.look}

    def step_back(self, written: Address, address: Address) -> None:
        """What is seen leaves no steps in the browser's history."""

    def seen(self, reported: Mapping[str, object]) -> None:
        """Take over what the timeline tells; what has not the form of an address is left out."""
        self.of, self.asked = str(reported.get("of") or ""), str(reported.get("ask") or "")
        given = {key: str(reported.get(key) or "") for key in PARTS}
        self.look = {key: value for key, value in given.items() if re.fullmatch(PARTS[key][0], value)}
        self.known.pop(self.of, None)
        self.known[self.of] = self.look
        for oldest in list(self.known)[:-_KEPT]:
            del self.known[oldest]

    def about(self, digests: Collection[str]) -> None:
        """From now on it is about these schedules, and as they were seen last."""
        if self.of and self.of not in digests:
            before = [of for of in self.known if of in digests]
            self.of, self.asked = before[-1] if before else "", ""
            self.look = self.known.get(self.of, {})

    @property
    def on(self) -> int:
        """Which of several schedules is selected in, from 0."""
        return int(self.look.get("on", "1")) - 1

    @property
    def selected(self) -> str:
        """The place that is selected; empty where none is."""
        return self.look.get("at", "")


def _part(key: str, address: Address) -> str:
    form, words = PARTS[key]
    value = address.get(key, "")
    if value and not re.fullmatch(form, value):
        raise InputError(key, f"must be {words}, got {value!r}")
    return value
