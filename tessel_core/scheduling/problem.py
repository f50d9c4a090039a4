"""What every scheduler is: a function from plan, number of micro-batches, config and control to a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, ScheduleReport

Solve = Callable[[MicroBatchPlan, int, Any, Control], ScheduleReport]


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The config of a scheduler that follows a published order: nothing to choose."""

    def __post_init__(self) -> None:
        """Nothing to check."""


def always(plan: MicroBatchPlan) -> str:
    """No reason against any plan."""
    return ""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One entry of the table of schedulers.

    `solve` may assume a plan to which `objection` has nothing to say, at least one micro-batch and a config of type
    `config`.  `objection` says in one sentence why a plan does not suit, or is empty.
    """

    name: str
    title: str
    source: str
    solve: Solve
    config: type = NoOptions
    objection: Callable[[MicroBatchPlan], str] = always
