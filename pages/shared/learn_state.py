"""State of the Learn page in one browser tab: the open level, which the address keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pages.shared.in_address import Address, InAddress, Read
from tessel_core.errors import InputError
from tessel_core.workbench.workspace import OWN


@dataclass
class LearnState(InAddress):
    """State of the page *Learn*."""

    level: str = ""
    """Number of a level, `OWN`, `WORDS`, `OWN_SLIDES`, or `DECK` and the name of a deck. Empty: the next level."""
    goes: bool = False
    """Whether the open slides advance by themselves."""
    said: str = ""
    """Reason why the requested level could not be opened."""
    steps: ClassVar[tuple[str, ...]] = ("level",)

    def follow(self, address: Address, read: Read) -> None:
        self.level = read(lambda: _level(address.get("level", ""))) or ""

    def in_address(self) -> dict[str, str]:
        return {"level": self.level} if self.level else {}

    def step_back(self, written: Address, address: Address) -> None:
        if address.get("level", "") != written.get("level", ""):
            self.level = address.get("level", "")

    def open(self, level: str, *, goes: bool = False) -> None:
        """Open a level or a deck. With `goes`, slides advance by themselves."""
        self.level, self.goes, self.said = level, goes, ""


WORDS, DECK, OWN_SLIDES = "words", "slides-", "slides"
"""Values of `LearnState.level`: the glossary, the prefix of a deck's name, and the user's own slides."""


def _level(text: str) -> str:
    if text and text not in (OWN, WORDS, OWN_SLIDES) and not re.fullmatch(f"[1-9][0-9]?|{DECK}[a-z-]{{1,40}}", text):
        raise InputError("level", f"there is no level and no deck named {text[:40]!r}")
    return text
