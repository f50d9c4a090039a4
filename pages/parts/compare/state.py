"""The state of the Compare page in one browser tab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pages.shared.in_address import Address, InAddress, Read, choice
from tessel_core.inspection import Jitter
from tessel_core.scheduling.comparison import Pair

TIMELINES, IDLE, JITTER, COUNTS, MEMORY = "Timelines", "Idle time", "Jitter", "Against micro-batches", "Against memory"
DIFFERENCE, WHAT_IF = "Difference", "What if"
VIEWS = {
    "timelines": TIMELINES,
    "difference": DIFFERENCE,
    "bubbles": IDLE,
    "idle": IDLE,
    "jitter": JITTER,
    "what-if": WHAT_IF,
    "micro-batches": COUNTS,
    "memory": MEMORY,
}


@dataclass
class CompareState(InAddress):
    """The address alone keeps a part of it."""

    view: str = ""
    """Which of `VIEWS` is shown; empty for the first."""
    jitter: Jitter = field(default_factory=Jitter)
    filled: int = 0
    """How often the list was filled from one model: each time what asks for it closes."""
    missing: tuple[Sequence[Pair], Sequence[str]] = ((), ())
    """The pairs as the list was filled, and what is not among them."""

    def follow(self, address: Address, read: Read) -> None:
        self.view = read(lambda: choice("compare", address, VIEWS)) or ""

    def in_address(self) -> dict[str, str]:
        keys = {view: key for key, view in VIEWS.items()}
        return {"compare": keys[self.view]} if self.view else {}
