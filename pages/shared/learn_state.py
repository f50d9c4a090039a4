"""Which level is open in this tab, as the address keeps it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pages.shared.in_address import Address, InAddress, Read
from tessel_core.errors import InputError
from tessel_core.workbench.workspace import OWN


@dataclass
class LearnState(InAddress):
    """The page *Learn*."""

    level: str = ""
    """A number, or the open plan itself; empty for the first level that is not solved."""
    goes: bool = False
    """Whether the slides that are open go on by themselves, as somebody asked where they came from."""
    said: str = ""
    """Why the last thing that somebody asked for was not done."""
    steps: ClassVar[tuple[str, ...]] = ("level",)

    def follow(self, address: Address, read: Read) -> None:
        self.level = read(lambda: _level(address.get("level", ""))) or ""

    def in_address(self) -> dict[str, str]:
        return {"level": self.level} if self.level else {}

    def step_back(self, written: Address, address: Address) -> None:
        if address.get("level", "") != written.get("level", ""):
            self.level = address.get("level", "")

    def open(self, level: str, *, goes: bool = False) -> None:
        """Turn to a level, or to slides, which may go on by themselves."""
        self.level, self.goes, self.said = level, goes, ""


WORDS, DECK, OWN_SLIDES = "words", "slides-", "slides"
"""The glossary, in the place of a level; what the names of decks begin with there; and the slides of one's own."""


def _level(text: str) -> str:
    if text and text not in (OWN, WORDS, OWN_SLIDES) and not re.fullmatch(f"[1-9][0-9]?|{DECK}[a-z-]{{1,40}}", text):
        raise InputError("level", f"{text[:40]!r} is no level of this course and none of its slides")
    return text
