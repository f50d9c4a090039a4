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


def any_plan(plan: MicroBatchPlan) -> str:
    """No reason against any plan."""
    return ""


def any_count(plan: MicroBatchPlan, micro_batches: int) -> str:
    """No reason against any number of micro-batches."""
    return ""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One entry of the table of schedulers.

    `solve` may assume a plan to which `objection` has nothing to say, at least one micro-batch, a number to which
    `count_objection` has nothing to say, and a config of type `config`.  Each objection is one sentence without its
    full stop on why a plan, or a number of micro-batches for a plan that suits, does not do; or it is empty.
    """

    name: str
    title: str
    source: str
    solve: Solve
    config: type = NoOptions
    objection: Callable[[MicroBatchPlan], str] = any_plan
    count_objection: Callable[[MicroBatchPlan, int], str] = any_count

    def why_not(self, plan: MicroBatchPlan, micro_batches: int) -> str:
        """Either objection."""
        return self.objection(plan) or self.count_objection(plan, micro_batches)
