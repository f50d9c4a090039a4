"""The default simulation for many configurations at once: `simulate_streams`, with the two streams of each stage.

A run of a stage turns the moments at which its streams are free and its input arrives into those at which its
operations start and end; each is the latest of three, each a fixed time after one of them (max-plus linear).  So
the operations are looked at once, and runs are a few additions of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tessel_core.strategies.amounts import Amounts, Seconds
from tessel_core.strategies.issue import Issue, IssueOrder
from tessel_core.strategies.skeleton import Skeleton
from tessel_core.strategies.stages import BACKWARD, FORWARD, Combine, Item, Stage, taken_by, talks

COMPUTE, TALK, ARRIVAL = 0, 1, 2
"""What a run begins from."""

_FROM = np.where(np.eye(3, dtype=bool), 0.0, -np.inf)[:, :, None, None]
"""Right away after each of the three."""


@dataclass(frozen=True)
class RunShape:
    """A stage's runs in one direction; arrays are shaped (3, `Stage.turns`, configurations), seconds after each of
    what the run begins from."""

    start: Seconds
    """Shaped (items, 3, turns, configurations)."""
    end: Seconds
    compute: Seconds
    talk: Seconds
    """When the streams are free again."""
    sent: Seconds
    """When what it sends is ready; `compute` where it sends nothing."""

    @cached_property
    def outcome(self) -> Seconds:
        """What the next runs need, shaped (3, 3, turns, configurations)."""
        return np.array((self.compute, self.talk, self.sent))


def run_shape(
    skeleton: Skeleton, stage: Stage, s: int, phase: int, arriving: frozenset[int], amounts: Amounts
) -> RunShape:
    """All operations of a run, one after the other on their streams."""
    turns = stage.turns(phase, amounts.micro_batches)
    shape = (3, turns, len(amounts.sizes))
    compute, talk, arrival = (np.broadcast_to(each, shape) for each in _FROM)
    ready: dict[int, Seconds] = dict.fromkeys(arriving, arrival)
    starts, ends = list[Seconds](), list[Seconds]()
    for item in stage.items[phase]:
        start = talk if talks(item) else compute
        for value in taken_by(item):
            if value in ready:
                start = np.maximum(start, ready[value])
        end = start + _seconds(skeleton, item, s, turns, amounts)
        if talks(item):
            talk = end
        else:
            compute = end
        starts.append(start)
        ends.append(end)
        # What is combined is taken by no other item, so the whole is ready under the part's name.
        ready.update(dict.fromkeys((item.value,) if isinstance(item, Combine) else item.outputs, end))
    sends = stage.sends[phase]
    sent = ready[sends[0].value] if sends else compute
    return RunShape(np.array(starts), np.array(ends), compute, talk, sent)


def _seconds(skeleton: Skeleton, item: Item, s: int, turns: int, amounts: Amounts) -> Seconds:
    if isinstance(item, Combine):
        return amounts.combining(skeleton.shapes[item.value], item.joins, turns)
    return amounts.seconds_of(item.kind, s)


@dataclass(frozen=True)
class Timeline:
    """When everything happens, per stage and direction."""

    shapes: tuple[tuple[RunShape, RunShape], ...]
    begins: tuple[tuple[Seconds, Seconds], ...]
    """Shaped (micro-batches in turn, 3, configurations)."""
    send_start: dict[tuple[int, int], Seconds]
    """Shaped (micro-batches in turn, configurations), where a stage sends something."""
    send_end: dict[tuple[int, int], Seconds]
    compute: list[Seconds]
    talk: list[Seconds]
    """When the streams are free after the last run, per stage."""

    def items(self, stage: int, phase: int) -> tuple[Seconds, Seconds]:
        """When items start and end, shaped (items, micro-batches in turn, configurations)."""
        shape, begins = self.shapes[stage][phase], self.begins[stage][phase]
        return _when(shape.start, begins), _when(shape.end, begins)

    def last_end(self, stage: int, phase: int, item: int) -> Seconds:
        """When an item of the last run ends."""
        after = self.shapes[stage][phase].end[item, :, -1]
        return np.asarray((after + self.begins[stage][phase][-1]).max(axis=0))


def _when(after: Seconds, begins: Seconds) -> Seconds:
    """The latest of the three; `after` has a row for each turn, of which the last stands for all that follow."""
    turns = np.minimum(np.arange(len(begins)), after.shape[2] - 1)
    found = after[:, COMPUTE, turns] + begins[:, COMPUTE]
    for which in (TALK, ARRIVAL):
        if after[:, which, -1].max(initial=-np.inf) > -np.inf:
            found = np.maximum(found, after[:, which, turns] + begins[:, which])
    return found


def timeline(skeleton: Skeleton, stages: Sequence[Stage], order: IssueOrder, amounts: Amounts) -> Timeline:
    """All runs and transfers in the order of the program."""
    known: dict[object, RunShape] = {}
    shapes = list[tuple[RunShape, RunShape]]()
    for s, stage in enumerate(stages):
        pair = list[RunShape]()
        for phase in (FORWARD, BACKWARD):
            arriving = frozenset(send.value for other in stages for send in other.sends[phase] if send.to == s)
            key = stage.likeness, amounts.patterns(s), phase
            if key not in known:
                known[key] = run_shape(skeleton, stage, s, phase, arriving, amounts)
            pair.append(known[key])
        shapes.append((pair[FORWARD], pair[BACKWARD]))
    return _walk(skeleton, stages, order, amounts, tuple(shapes))


def _walk(
    skeleton: Skeleton,
    stages: Sequence[Stage],
    order: IssueOrder,
    amounts: Amounts,
    shapes: tuple[tuple[RunShape, RunShape], ...],
) -> Timeline:
    count, turns = len(amounts.sizes), amounts.micro_batches
    free = np.zeros((len(stages), 2, count))
    begins = tuple((np.zeros((turns, 3, count)), np.zeros((turns, 3, count))) for _ in stages)
    ready, arrived = dict[Issue | tuple[int, int], Seconds](), dict[tuple[int, int, int], Seconds]()
    send_start: dict[tuple[int, int], Seconds] = {}
    send_end: dict[tuple[int, int], Seconds] = {}
    for issue in order.issues:
        s, phase, here = issue.stage, issue.phase, (issue.stage, issue.phase)
        if not issue.sends:
            begin = begins[s][phase][issue.turn]
            begin[:ARRIVAL] = free[s]
            begin[ARRIVAL] = arrived.pop((s, phase, issue.micro_batch), 0.0)
            outcome = shapes[s][phase].outcome
            after = (outcome[:, :, min(issue.turn, outcome.shape[2] - 1)] + begin).max(axis=1)
            free[s], ready[here] = after[:2], after[2]
            continue
        for send in stages[s].sends[phase]:
            start = np.maximum(np.maximum(free[s, TALK], free[send.to, TALK]), ready[here])
            end = start + amounts.send(skeleton.shapes[send.value], s, send.to)
            free[s, TALK] = free[send.to, TALK] = arrived[send.to, phase, issue.micro_batch] = end
            send_start.setdefault(here, np.zeros((turns, count)))[issue.turn] = start
            send_end.setdefault(here, np.zeros((turns, count)))[issue.turn] = end
    compute, talk = list(free[:, COMPUTE]), list(free[:, TALK])
    return Timeline(shapes, begins, send_start, send_end, compute, talk)
