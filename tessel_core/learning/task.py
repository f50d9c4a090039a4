"""The tasks of levels: a puzzle that is placed by hand, or a knob whose stops are predicted, and what they share."""

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

MOST_RUNS, MOST_DEVICES = 400, 16
"""Of a puzzle: what a person places by hand, and what a screen shows at once."""

Titled = tuple[str, Schedule]
Traced = tuple["Trace", "DeviceMesh"]
"""A simulation, and the mesh whose devices it ran on."""
Facts = Mapping[str, str]
"""Numbers by the names that a level's sentences use for them."""


def no_facts() -> Facts:
    """Of sentences without numbers."""
    return {}


def too_large(plan: MicroBatchPlan, micro_batches: int) -> str:
    """Why this is no puzzle, without its full stop; empty where it is one."""
    runs, devices = micro_batches * len(plan.blocks), len(plan.devices)
    if runs > MOST_RUNS:
        return f"has {runs:,} runs, more than the {MOST_RUNS} that one places by hand: take fewer micro-batches"
    if devices > MOST_DEVICES:
        return f"has {devices} devices, more than the {MOST_DEVICES} that fit a screen"
    return ""


@dataclass(frozen=True)
class Puzzle:
    """A plan whose runs are placed by hand, against the shortest schedule that fits the memory.

    Raises InputError for a plan that is too large to be placed by hand.
    """

    plan: MicroBatchPlan
    micro_batches: int
    beside: tuple[Question, ...] = ()
    """Schedules to look at beside one's own when that is complete."""
    order: str = ""
    """The published scheduler whose order is to be found; empty where every shortest schedule will do."""

    def __post_init__(self) -> None:
        objection = too_large(self.plan, self.micro_batches)
        if objection:
            raise InputError("puzzle", objection)

    @property
    def question(self) -> Question:
        """The search for the schedule to be reached."""
        config = find_scheduler(DEFAULT_SCHEDULER).config()
        return Question(DEFAULT_SCHEDULER, self.plan, self.micro_batches, config)

    @property
    def setting(self) -> str:
        """What is to be placed, in one line."""
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
            *([f"{show_memory(room, self.plan.memory_unit)} a device"] if room is not None else []),
        ]
        return " · ".join(parts)


@dataclass(frozen=True)
class StopResult:
    """What one stop of a knob leads to, with how that is known."""

    value: Fraction
    """By which stops are judged."""
    shown: str
    """The value, as people read it."""
    says: str
    """One sentence: the measured value, beside the formula or the bound that it is held against."""
    schedules: tuple[Titled, ...] = ()
    """To look at, on one axis of time."""
    traced: Callable[[], Traced] | None = None
    """A simulation to look at, in the place of schedules."""


@dataclass(frozen=True)
class Knob:
    """A question whose answer is a stop of a knob: predicted first, then shown."""

    label: str
    stops: tuple[str, ...]
    outcome: Callable[[int], StopResult]
    """Of a stop by its position, solved."""
    answers: Callable[[Sequence[StopResult]], frozenset[int]]
    """The positions of the stops that answer the question, given the outcomes of all."""
    measure: str
    """What the values are, as the heading of their column."""

    @property
    def in_words(self) -> bool:
        """Whether stops are words that have to be read beside each other, rather than numbers in a row."""
        return not all(stop[:1].isdigit() for stop in self.stops)


def first_below(limit: Fraction | int) -> Callable[[Sequence[StopResult]], frozenset[int]]:
    """The first stop whose value is less than that."""
    return lambda outcomes: frozenset([i for i, each in enumerate(outcomes) if each.value < limit][:1])


def least(outcomes: Sequence[StopResult]) -> frozenset[int]:
    """The stops of least value."""
    return frozenset(i for i, each in enumerate(outcomes) if each.value == min(one.value for one in outcomes))
