"""In which order runs and transfers are issued; it depends on stages, micro-batches and scheduler only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from tessel_core.ir.transforms.pipeline import stage_runs
from tessel_core.model import BlockKind
from tessel_core.strategies.orders import stage_order


@dataclass(frozen=True, slots=True)
class Issue:
    """A run of a stage, or, where `sends`, the transfers after it."""

    stage: int
    phase: int
    micro_batch: int
    turn: int
    """How many micro-batches the stage has run before in this direction."""
    sends: bool


@dataclass(frozen=True)
class IssueOrder:
    """Everything in the order of the program."""

    issues: tuple[Issue, ...]
    in_turn: bool
    """Whether every stage runs next to the micro-batches that it has run another, in both directions."""


@lru_cache(maxsize=1024)
def issue_order(scheduler: str, stages: int, micro_batches: int, training: bool = True) -> IssueOrder:
    """Runs that start together, then the transfers after them; InputError where the scheduler finds no order."""
    issues, ran, in_turn = list[Issue](), defaultdict[tuple[int, int], set[int]](set), True
    order = stage_order(scheduler, stages, micro_batches, training)
    for _, together in groupby(stage_runs(order), key=lambda run: run[0]):
        step = list[Issue]()
        for _, stage, kind, micro_batch in together:
            phase = int(kind is BlockKind.BACKWARD)
            before = ran[stage, phase]
            in_turn = in_turn and (not before or not before.isdisjoint((micro_batch - 1, micro_batch + 1)))
            step.append(Issue(stage, phase, micro_batch, len(before), sends=False))
            before.add(micro_batch)
        issues += [*step, *(replace(issue, sends=True) for issue in step)]
    return IssueOrder(tuple(issues), in_turn)
