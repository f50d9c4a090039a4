"""Parts of some work that are given to devices by hand; the simulator says how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.learning.solved import percent
from tessel_core.learning.task import Traced
from tessel_core.units import show_time

if TYPE_CHECKING:  # levels load no simulation before they are played
    from tessel_core.simulation import Trace

Given = tuple[tuple[int, ...], ...]
"""For each part, the devices that have it, counted from 0."""


@dataclass(frozen=True)
class Assignment:
    """Parts of some work, which are given to devices so that a simulated program ends first."""

    devices: tuple[str, ...]
    parts: tuple[str, ...]
    """Each with its size in words."""
    room: int
    """Most parts on one device."""
    start: Given
    best: Given
    """An assignment in which all devices compute equally long, so no other is faster."""
    simulate: Callable[[Given], Traced]
    copies: bool = False
    """Whether several devices may have a part; each then does an equal share of its work."""

    def given_of(self, kept: Sequence[Sequence[int]]) -> Given:
        """The assignment that somebody left, complete or not, or the start where it is none of these parts."""
        given = tuple(tuple(sorted(set(row))) for row in kept)
        numbers = range(len(self.devices))
        fits = all(set(row) <= set(numbers) and (self.copies or len(row) < 2) for row in given)
        return given if fits and len(given) == len(self.parts) else self.start

    def check(self, given: Given) -> None:
        """Raise InputError for a part that no device has, and for a device with more parts than it has room for."""
        for part, row in zip(self.parts, given, strict=True):
            if not row:
                raise InputError(part, "is on no device")
        for number, device in enumerate(self.devices):
            held = sum(number in row for row in given)
            if held > self.room:
                raise InputError(device, f"has {held} parts, and room for {self.room}")

    def helped(self, given: Given) -> Given:
        """The first part that is elsewhere in the best assignment moved there; unchanged where none is."""
        moved = next((i for i, row in enumerate(given) if row != self.best[i]), None)
        return given if moved is None else (*given[:moved], self.best[moved], *given[moved + 1 :])


@dataclass(frozen=True)
class Assigned:
    """What an assignment leads to."""

    reached: bool
    """Whether it takes no longer than the best one."""
    sentence: str
    """Its time, its idle time, and how far the best one is."""
    traced: Traced


def judge_assignment(task: Assignment, given: Given) -> Assigned:
    """An assignment against the best one, both simulated; raises InputError as `Assignment.check` does."""
    from tessel_core.simulation.idle import idle_of

    task.check(given)
    traced = task.simulate(given)
    took, least = nanoseconds(traced[0]), nanoseconds(task.simulate(task.best)[0])
    idle = idle_of(traced[0])
    assert idle is not None
    split = idle.split
    said = f"{show_time(took, 'ns')}, {percent(split.idle)} idle, of which {percent(split.imbalance)} is imbalance"
    if took <= least:
        return Assigned(True, f"{said}: no assignment is faster, since all devices compute equally long.", traced)
    longer = f"{show_time(least, 'ns')} is possible, so this takes {took / least - 1:.1%} longer than it has to"
    return Assigned(False, f"{said}. {longer}.", traced)


def nanoseconds(trace: Trace) -> int:
    """The time of a simulated program."""
    return round(1e9 * trace.latency)
