"""What the referee says of one broken rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, at one place."""

    rule: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why} [{self.rule}]"
