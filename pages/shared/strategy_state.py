"""The state of the Strategies page in one browser tab."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pages.shared.in_address import Address, InAddress, Read, whole_number
from tessel_core.errors import InputError

if TYPE_CHECKING:
    from tessel_core.strategies.evaluation import Configuration
    from tessel_core.strategies.form import Asked
    from tessel_core.strategies.grid import GridResult

Axes = tuple[tuple[str, str], ...]

AXES: Axes = (("peak_memory", "throughput"), ("devices", "latency"))
"""The first objectives of each picture, across and up."""


@dataclass
class StrategyState(InAddress):
    """The address alone keeps a part of it."""

    steps: ClassVar[tuple[str, ...]] = ("strategy",)
    number: int | None = None
    """The configuration that is looked at, by its place in the sweep, as the address has it; None for the best."""
    configuration: Configuration | None = None
    """The same, by which it stays when ranges change, as long as it is among them."""
    answered: Asked | None = None
    """The last question that made sense."""
    simulating: Configuration | None = None
    """The large one whose simulation somebody has asked for."""
    axes: Axes = AXES
    view: str = ""
    """Which configurations the table lists; empty for its first."""
    why: str = ""
    """The kind of reason that the table of infeasible ones is limited to; empty for all."""
    generation: int = 0
    """Part of the key of the table, which begins again where something else chooses its row."""
    seen: dict[str, object] = field(default_factory=dict)
    """By key, the selection of each widget when it was last looked at."""

    def follow(self, address: Address, read: Read) -> None:
        self.number = read(lambda: whole_number("strategy", address))
        self.axes = read(lambda: _axes(address)) or AXES

    def in_address(self) -> dict[str, str]:
        wanted = {} if self.number is None else {"strategy": str(self.number)}
        return wanted if self.axes == AXES else {**wanted, "axes": ",".join("-".join(each) for each in self.axes)}

    def step_back(self, written: Address, address: Address) -> None:
        """Look at the strategy that the browser's Back has led to."""
        now = address.get("strategy", "")
        if now != written.get("strategy", ""):
            with suppress(InputError):
                self.go_to(whole_number("strategy", address))

    def look_at(self, found: GridResult) -> int | None:
        """The number of the configuration that is looked at in this sweep; None where nothing was simulated."""
        if self.configuration is not None:
            self.number = found.numbers.get(self.configuration)
        elif self.number is not None and self.number >= len(found):
            self.number = None
        self.configuration = None if self.number is None else found.configurations[self.number]
        best = found.ranked("throughput")[:1]
        return self.number if self.number is not None else best[0] if best else None

    def go_to(self, number: int | None) -> None:
        """Look at the configuration at this place of the sweep that comes next; None for the best."""
        self.number, self.configuration = number, None
        self.generation += 1

    def choose(self, found: GridResult, number: int, *, again: bool = True) -> None:
        """Look at another one; `again` where the table must begin again to show its row."""
        if number != self.look_at(found):
            self.number, self.configuration = number, found.configurations[number]
            self.generation += again

    def news(self, key: str, number: int | None) -> bool:
        """Whether a widget has another selection than when it was last looked at."""
        before, self.seen[key] = self.seen.get(key), number
        return number is not None and number != before


def _axes(address: Address) -> Axes | None:
    """As `peak_memory-throughput,devices-latency`."""
    text = address.get("axes", "")
    if not text:
        return None
    from tessel_core.strategies.grid import OBJECTIVES

    pictures = [tuple(each.split("-")) for each in text.split(",")]
    known = len(pictures) == len(AXES) and all(len(each) == 2 and set(each) <= set(OBJECTIVES) for each in pictures)
    if not known:
        raise InputError("axes", f"must be two pairs of {', '.join(OBJECTIVES)}, got {text!r}")
    return tuple((x, y) for x, y in pictures)
