"""The state of the Compare page in one browser tab."""

from __future__ import annotations

from dataclasses import dataclass

from pages.shared.in_address import Address, InAddress, Read, choice

TIMELINES, IDLE, COUNTS, MEMORY = "Timelines", "Idle time", "Against micro-batches", "Against memory"
VIEWS = {"timelines": TIMELINES, "bubbles": IDLE, "idle": IDLE, "micro-batches": COUNTS, "memory": MEMORY}


@dataclass
class CompareState(InAddress):
    """The address alone keeps a part of it."""

    view: str = ""
    """Which of `VIEWS` is shown; empty for the first."""

    def follow(self, address: Address, read: Read) -> None:
        self.view = read(lambda: choice("compare", address, VIEWS)) or ""

    def in_address(self) -> dict[str, str]:
        keys = {view: key for key, view in VIEWS.items()}
        return {"compare": keys[self.view]} if self.view else {}
