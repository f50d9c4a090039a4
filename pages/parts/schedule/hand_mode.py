"""Whether the schedule is changed by hand, as the address carries it, so that a reload goes on with it."""

from __future__ import annotations

from dataclasses import dataclass

from pages.shared.in_address import Address, InAddress, Read, choice
from pages.shared.session import workspace

ON, FINISH, FINISH_IN_ORDER = "on", "finish", "finish-in-order"
_WORDS = {word: word for word in (ON, FINISH, FINISH_IN_ORDER)}


@dataclass
class HandMode(InAddress):
    """Whether a schedule is changed by hand or only looked at, also after a change was undone."""

    token: str = ""
    """Of the workspace whose schedule is changed."""
    switched: bool = False
    """Whether the page has to run whole since it was switched on or off."""
    completes: str = ""
    """FINISH or FINISH_IN_ORDER while the schedule is completed around its pins."""
    resumes: bool = False
    """Whether the address says so, and the page has not gone on with it yet."""

    def follow(self, address: Address, read: Read) -> None:
        word = read(lambda: choice("hand", address, _WORDS)) or ""
        self.token = address.get("work", "") if word else ""
        self.completes = "" if word == ON else word
        self.resumes = bool(self.completes)

    def in_address(self) -> dict[str, str]:
        return {"hand": self.completes or ON} if self.on else {}

    def step_back(self, written: Address, address: Address) -> None:
        """It leaves no steps in the browser's history."""

    @property
    def on(self) -> bool:
        """Whether it is changed in the open workspace."""
        return self.token == workspace().token
