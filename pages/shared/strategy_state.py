"""State of the Strategies page in one browser tab."""

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
"""Default objectives of each plot: x and y axis."""


@dataclass
class StrategyState(InAddress):
    """State of the Strategies page. The address keeps a part of it."""

    steps: ClassVar[tuple[str, ...]] = ("strategy",)
    number: int | None = None
    """Number of the chosen configuration in the sweep, as in the address. None: the best."""
    configuration: Configuration | None = None
    """The chosen configuration, so that it stays chosen when ranges change but still include it."""
    answered: Asked | None = None
    """Latest valid question."""
    simulating: Configuration | None = None
    """Large configuration that the user asked to simulate."""
    axes: Axes = AXES
    view: str = ""
    """View of the table. Empty: its first."""
    why: str = ""
    """Kind of reason by which the table of infeasible configurations is filtered. Empty: all."""
    generation: int = 0
    """Part of the key of the table. A new number resets it after something else chose its row."""
    seen: dict[str, object] = field(default_factory=dict)
    """Last seen selection of each widget, by key."""

    def follow(self, address: Address, read: Read) -> None:
        self.number = read(lambda: whole_number("strategy", address))
        self.axes = read(lambda: _axes(address)) or AXES

    def in_address(self) -> dict[str, str]:
        wanted = {} if self.number is None else {"strategy": str(self.number)}
        return wanted if self.axes == AXES else {**wanted, "axes": ",".join("-".join(each) for each in self.axes)}

    def step_back(self, written: Address, address: Address) -> None:
        """Show the configuration that the browser's Back button has returned to."""
        now = address.get("strategy", "")
        if now != written.get("strategy", ""):
            with suppress(InputError):
                self.go_to(whole_number("strategy", address))

    def look_at(self, found: GridResult) -> int | None:
        """Return the number of the chosen configuration, or of the best. None if nothing was simulated."""
        if self.configuration is not None:
            self.number = found.numbers.get(self.configuration)
        elif self.number is not None and self.number >= len(found):
            self.number = None
        self.configuration = None if self.number is None else found.configurations[self.number]
        best = found.ranked("throughput")[:1]
        return self.number if self.number is not None else best[0] if best else None

    def go_to(self, number: int | None) -> None:
        """Choose a configuration by its number in the next sweep. None: the best."""
        self.number, self.configuration = number, None
        self.generation += 1

    def choose(self, found: GridResult, number: int, *, again: bool = True) -> None:
        """Choose another configuration. With `again`, the table is reset to show its row."""
        if number != self.look_at(found):
            self.number, self.configuration = number, found.configurations[number]
            self.generation += again

    def news(self, key: str, number: int | None) -> bool:
        """Return whether a widget has a new selection since the last call."""
        before, self.seen[key] = self.seen.get(key), number
        return number is not None and number != before


def _axes(address: Address) -> Axes | None:
    """Return the axes in the address, such as `peak_memory-throughput,devices-latency`. None if there are none."""
    text = address.get("axes", "")
    if not text:
        return None
    from tessel_core.strategies.grid import OBJECTIVES

    pictures = [tuple(each.split("-")) for each in text.split(",")]
    known = len(pictures) == len(AXES) and all(len(each) == 2 and set(each) <= set(OBJECTIVES) for each in pictures)
    if not known:
        raise InputError(
            "axes", f"must be two pairs such as peak_memory-throughput of {', '.join(OBJECTIVES)}, got {text!r}"
        )
    return tuple((x, y) for x, y in pictures)
