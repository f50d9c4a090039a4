"""Mode of the Schedule page: whether the user changes the schedule by hand.

The address keeps it, so that it survives a reload.
"""

from __future__ import annotations

from dataclasses import dataclass

from pages.shared.in_address import Address, InAddress, Read, choice
from pages.shared.session import workspace

ON, FINISH, FINISH_IN_ORDER = "on", "finish", "finish-in-order"
_WORDS = {word: word for word in (ON, FINISH, FINISH_IN_ORDER)}


@dataclass
class HandMode(InAddress):
    """Whether the schedule is being changed by hand. Undo does not change this."""

    token: str = ""
    """Token of the workspace whose schedule is being changed."""
    switched: bool = False
    """Whether the mode has just been switched, so that the whole page must run."""
    completes: str = ""
    """FINISH or FINISH_IN_ORDER while the schedule is completed around its pins."""
    resumes: bool = False
    """Whether the address asks for a completion that this page has not started yet."""

    def follow(self, address: Address, read: Read) -> None:
        word = read(lambda: choice("hand", address, _WORDS)) or ""
        self.token = address.get("work", "") if word else ""
        self.completes = "" if word == ON else word
        self.resumes = bool(self.completes)

    def in_address(self) -> dict[str, str]:
        return {"hand": self.completes or ON} if self.on else {}

    def step_back(self, written: Address, address: Address) -> None:
        """Do nothing. The mode adds no entry to the browser's history, so Back does not change it."""

    @property
    def on(self) -> bool:
        """Whether changes by hand are on in the open workspace."""
        return self.token == workspace().token
