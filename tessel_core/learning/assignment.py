"""Levels in which the player assigns parts of work to devices. A simulation gives the time of the assignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.learning.solved import percent
from tessel_core.learning.task import Traced
from tessel_core.units import show_time

if TYPE_CHECKING:  # imported here because pages load faster without the simulation
    from tessel_core.simulation import Trace

Given = tuple[tuple[int, ...], ...]
"""Devices of each part of the work. Devices count from 0."""


@dataclass(frozen=True)
class Assignment:
    """Task: assign parts of work to devices so that a simulated program ends as early as possible."""

    devices: tuple[str, ...]
    parts: tuple[str, ...]
    """Labels of the parts, which state their sizes."""
    room: int
    """Largest number of parts per device."""
    start: Given
    best: Given
    """An optimal assignment, in which all devices compute equally long."""
    simulate: Callable[[Given], Traced]
    copies: bool = False
    """Whether a part may be on several devices, which then share its work equally."""

    def given_of(self, kept: Sequence[Sequence[int]]) -> Given:
        """Return the saved assignment, which may be incomplete. Return `start` if it does not fit this task."""
        given = tuple(tuple(sorted(set(row))) for row in kept)
        numbers = range(len(self.devices))
        fits = all(set(row) <= set(numbers) and (self.copies or len(row) < 2) for row in given)
        return given if fits and len(given) == len(self.parts) else self.start

    def check(self, given: Given) -> None:
        """Raise InputError if a part is on no device, or a device has too many parts."""
        for part, row in zip(self.parts, given, strict=True):
            if not row:
                raise InputError(part, "is not on any device")
        for number, device in enumerate(self.devices):
            held = sum(number in row for row in given)
            if held > self.room:
                raise InputError(device, f"has {held} parts, but room for only {self.room}")

    def helped(self, given: Given) -> Given:
        """Return the assignment with its first wrong part moved to the devices of the best assignment."""
        moved = next((i for i, row in enumerate(given) if row != self.best[i]), None)
        return given if moved is None else (*given[:moved], self.best[moved], *given[moved + 1 :])


@dataclass(frozen=True)
class Assigned:
    """Evaluation of an assignment."""

    reached: bool
    """Whether the assignment is as fast as the best one."""
    sentence: str
    """Sentence on the assignment's time, its idle time, and its distance from the best assignment."""
    traced: Traced


def judge_assignment(task: Assignment, given: Given) -> Assigned:
    """Simulate an assignment and compare it with the best one. Raises InputError as `Assignment.check` does."""
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
    longer = f"{show_time(least, 'ns')} is possible, so this takes {took / least - 1:.1%} longer than necessary"
    return Assigned(False, f"{said}. {longer}.", traced)


def nanoseconds(trace: Trace) -> int:
    """Return the latency of a simulated program in ns."""
    return round(1e9 * trace.latency)
