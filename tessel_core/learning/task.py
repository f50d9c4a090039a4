"""Tasks of levels.

In a puzzle, the player places runs by hand. In a knob task, the player predicts the best position of a slider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan, Schedule
from tessel_core.scheduling import DEFAULT_SCHEDULER, Question, find_scheduler
from tessel_core.units import counted, show_memory, show_time

if TYPE_CHECKING:  # imported here because pages load faster without the simulation
    from tessel_core.model import DeviceMesh
    from tessel_core.simulation import Trace

MAX_PUZZLE_RUNS, MAX_PUZZLE_DEVICES = 400, 16
"""Limits of a puzzle. A person can place this many runs by hand, and this many devices fit a screen."""

Titled = tuple[str, Schedule]
Traced = tuple["Trace", "DeviceMesh"]
"""A simulation and its mesh."""
Facts = Mapping[str, str]
"""Numbers as text, by the names in braces in the sentences of a level."""


def no_facts() -> Facts:
    """Return no facts, for levels whose sentences have no names in braces."""
    return {}


def too_large(plan: MicroBatchPlan, micro_batches: int) -> str:
    """Explain why a plan is too large for a puzzle, as a text without a full stop. Empty if it is small enough."""
    runs, devices = micro_batches * len(plan.blocks), len(plan.devices)
    if runs > MAX_PUZZLE_RUNS:
        return f"has {runs:,} runs, more than {MAX_PUZZLE_RUNS}, the limit for placing by hand: use fewer micro-batches"
    if devices > MAX_PUZZLE_DEVICES:
        return f"has {devices} devices, more than {MAX_PUZZLE_DEVICES}, the number that fits a screen"
    return ""


@dataclass(frozen=True)
class Puzzle:
    """Task: place the runs of a plan by hand in the shortest schedule that fits the memory.

    Raises InputError if the plan is too large to place by hand.
    """

    plan: MicroBatchPlan
    micro_batches: int
    beside: tuple[Question, ...] = ()
    """Search questions whose schedules are shown below the player's complete schedule."""
    order: str = ""
    """Published scheduler whose order the player must find. Empty if any shortest schedule is accepted."""

    def __post_init__(self) -> None:
        objection = too_large(self.plan, self.micro_batches)
        if objection:
            raise InputError("puzzle", objection)

    @property
    def question(self) -> Question:
        """Search question for the schedule that the player should reach."""
        config = find_scheduler(DEFAULT_SCHEDULER).config()
        return Question(DEFAULT_SCHEDULER, self.plan, self.micro_batches, config)

    @property
    def setting(self) -> str:
        """Description of the puzzle in one line."""
        unit = self.plan.time_unit
        durations = {kind: sorted({b.duration for b in self.plan.blocks if b.kind is kind}) for kind in BlockKind}
        times = [
            f"{kind} {' to '.join(show_time(ticks, unit) for ticks in dict.fromkeys((each[0], each[-1])))}"
            for kind, each in durations.items()
            if each
        ]
        capacities = {device.memory_capacity for device in self.plan.devices}
        room = capacities.pop() if len(capacities) == 1 else None
        parts = [
            f"{len(self.plan.devices)} devices",
            counted(self.micro_batches, "micro-batch"),
            ", ".join(times),
            *([f"{show_memory(room, self.plan.memory_unit)} per device"] if room is not None else []),
        ]
        return " · ".join(parts)


@dataclass(frozen=True)
class StopResult:
    """Outcome of one position of a slider."""

    value: Fraction
    """Number by which positions are compared."""
    shown: str
    """The number as text."""
    says: str
    """Sentence on the measured value, compared with a formula or a bound."""
    schedules: tuple[Titled, ...] = ()
    """Schedules to show on one time axis."""
    traced: Callable[[], Traced] | None = None
    """Simulation to show instead of schedules."""


@dataclass(frozen=True)
class Knob:
    """Task: predict which position of a slider answers the question."""

    label: str
    stops: tuple[str, ...]
    outcome: Callable[[int], StopResult]
    """Function from the index of a slider position to its outcome. It runs solvers."""
    answers: Callable[[Sequence[StopResult]], frozenset[int]]
    """Function from all outcomes to the indices of the right slider positions."""
    measure: str
    """Heading of the table's column of values."""

    @property
    def in_words(self) -> bool:
        """Whether slider positions have words as labels, which need more space than numbers."""
        return not all(stop[:1].isdigit() for stop in self.stops)


def first_below(limit: Fraction | int) -> Callable[[Sequence[StopResult]], frozenset[int]]:
    """Return a function that finds the first position with a value below `limit`."""
    return lambda outcomes: frozenset([i for i, each in enumerate(outcomes) if each.value < limit][:1])


def least(outcomes: Sequence[StopResult]) -> frozenset[int]:
    """Return the indices of the positions with the least value."""
    return frozenset(i for i, each in enumerate(outcomes) if each.value == min(one.value for one in outcomes))
