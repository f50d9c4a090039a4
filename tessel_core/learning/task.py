"""Tasks of levels: puzzles (place runs by hand) and knobs (predict the best stop)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan, Schedule
from tessel_core.scheduling import DEFAULT_SCHEDULER, Question, find_scheduler
from tessel_core.units import counted, show_memory, show_time

if TYPE_CHECKING:  # levels load no simulation before they are played
    from tessel_core.model import DeviceMesh
    from tessel_core.simulation import Trace

MAX_PUZZLE_RUNS, MAX_PUZZLE_DEVICES = 400, 16
"""Limits of a puzzle: a person places the runs by hand, and all devices fit a screen."""

Titled = tuple[str, Schedule]
Traced = tuple["Trace", "DeviceMesh"]
"""A simulation and its mesh."""
Facts = Mapping[str, str]
"""Numbers as text, by the names that sentences of a level use."""


def no_facts() -> Facts:
    """Return no facts, for sentences without numbers."""
    return {}


def too_large(plan: MicroBatchPlan, micro_batches: int) -> str:
    """Explain why a plan is too large for a puzzle, without a full stop; empty if it is not."""
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
    """Questions whose schedules are shown beside the player's complete schedule."""
    order: str = ""
    """Published scheduler whose order is required; empty if any shortest schedule is accepted."""

    def __post_init__(self) -> None:
        objection = too_large(self.plan, self.micro_batches)
        if objection:
            raise InputError("puzzle", objection)

    @property
    def question(self) -> Question:
        """Search for the schedule to reach."""
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
    """Outcome of one stop of a knob."""

    value: Fraction
    """Value by which stops are compared."""
    shown: str
    """The value as text."""
    says: str
    """Sentence with the measured value, and the formula or bound that it is compared with."""
    schedules: tuple[Titled, ...] = ()
    """Schedules to show on one time axis."""
    traced: Callable[[], Traced] | None = None
    """Simulation to show in place of schedules."""


@dataclass(frozen=True)
class Knob:
    """Task: predict which stop of a knob answers the question."""

    label: str
    stops: tuple[str, ...]
    outcome: Callable[[int], StopResult]
    """Function from the position of a stop to its outcome, which runs solvers."""
    answers: Callable[[Sequence[StopResult]], frozenset[int]]
    """Function from all outcomes to the positions of the right stops."""
    measure: str
    """Heading of the column of values."""

    @property
    def in_words(self) -> bool:
        """Whether stops are words, which need more space than numbers."""
        return not all(stop[:1].isdigit() for stop in self.stops)


def first_below(limit: Fraction | int) -> Callable[[Sequence[StopResult]], frozenset[int]]:
    """Return a function that finds the first stop with a value below `limit`."""
    return lambda outcomes: frozenset([i for i, each in enumerate(outcomes) if each.value < limit][:1])


def least(outcomes: Sequence[StopResult]) -> frozenset[int]:
    """Return the stops with the least value."""
    return frozenset(i for i, each in enumerate(outcomes) if each.value == min(one.value for one in outcomes))
