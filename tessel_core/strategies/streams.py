"""The default simulation for many configurations at once: `simulate_streams`, with the streams of each device.

A run of a stage takes two streams of its device, computing and the collectives of those that share its layers.  It
turns the moments at which these are free and its input arrives into those at which its operations start and end; each
is the latest of three, each a fixed time after one of them (max-plus linear).  So the operations are looked at once,
and runs are a few additions of arrays.  Sends have streams of their own, one per direction between two devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.strategies.amounts import Amounts, Seconds
from tessel_core.strategies.orders import IssueOrder
from tessel_core.strategies.runs import ARRIVES, NEVER, Numbers, Run, StageRuns
from tessel_core.strategies.skeleton import Shape

COMPUTE, COMMUNICATION, ARRIVAL = 0, 1, 2
"""Rows of the moments that a run begins from."""

_FROM = np.where(np.eye(3, dtype=bool), 0.0, -np.inf)[:, :, None, None]
"""A start right after each of the three."""


@dataclass(frozen=True)
class RunShape:
    """A stage's runs in one direction, by turns (`Run.turns`) and configurations, the last axes of all arrays.

    An item starts when the items before it on its stream would be done without a pause, and a lag, which all items have
    in common between two waits.  Lags are seconds after each of what the run begins from.
    """

    run: Run
    before: Seconds
    after: Seconds
    """Shaped (items, turns, configurations): the items before each on its stream, without it and with it."""
    lags: Seconds
    """Shaped (pieces, 3, turns, configurations)."""

    def some(self, columns: Numbers, amounts: Amounts) -> RunShape:
        """The part that belongs to some configurations, which are `amounts`."""
        turns = self.run.turns(amounts.micro_batches)
        arrays = (array[..., :turns, :][..., columns] for array in (self.before, self.after, self.lags))
        return RunShape(self.run, *arrays)

    @cached_property
    def outcome(self) -> Seconds:
        """When the streams are free again and what is sent is ready, shaped (3, 3, turns, configurations).

        Where nothing is sent that is when the computing is done.
        """
        piece_of, _, last = self.run.pieces
        streams = zip(last, (self.run.computes, self.run.communicating), strict=True)
        free = [self.lags[piece] + (self.after[items[-1]] if items.size else 0.0) for piece, items in streams]
        sender = self.run.sender
        return np.array((*free, free[0] if sender == NEVER else self.lags[piece_of[sender]] + self.after[sender]))


RunShapes = tuple[RunShape, RunShape]
"""Forward and backward."""


def run_shape(run: Run, shapes: Sequence[Shape], s: int, amounts: Amounts) -> RunShape:
    """All operations of a run, one after the other on their streams."""
    seconds = _seconds(run, shapes, s, amounts)
    before, after = np.zeros_like(seconds), np.zeros_like(seconds)
    for stream in (run.computes, run.communicating):
        after[stream] = np.cumsum(seconds[stream], axis=0)
        before[stream[1:]] = after[stream[:-1]]
    shape = (3, *seconds.shape[1:])
    compute, communication, arrival = (np.broadcast_to(each, shape) for each in _FROM)
    lags = [compute, communication]
    for wait in run.pieces[1]:
        ready = arrival if wait.maker == ARRIVES else lags[wait.of_maker] + after[wait.maker]
        lags.append(np.maximum(lags[wait.before], ready - before[wait.item]))
    return RunShape(run, before, after, np.array(lags))


def _seconds(run: Run, shapes: Sequence[Shape], s: int, amounts: Amounts) -> Seconds:
    """Shaped (items, turns, configurations)."""
    turns = run.turns(amounts.micro_batches)
    of_kind = np.array([*(amounts.seconds_of(kind, s) for kind in run.kinds), np.zeros(len(amounts.sizes))])
    found = of_kind[run.kind_of][:, None]
    if run.combining:
        found = np.repeat(found, turns, axis=1)
    for (shape, joins), items in run.combining.items():
        found[items] = amounts.combining(shapes[shape], joins, turns)
    return found


@dataclass(frozen=True)
class Timeline:
    """When everything happens, per stage and direction."""

    amounts: Amounts
    shapes: tuple[RunShapes, ...]
    begins: tuple[tuple[Seconds, Seconds], ...]
    """Shaped (micro-batches in turn, 3, configurations)."""
    send_start: dict[tuple[int, int], Seconds]
    """Shaped (micro-batches in turn, configurations), where a stage sends something."""
    send_end: dict[tuple[int, int], Seconds]
    compute: Seconds
    """When the computing of each device is done, shaped (devices, configurations)."""
    communication: Seconds
    """When its sharing of layers and its sends are done, shaped alike."""

    def moments(self, stage: int) -> tuple[Moments, Moments]:
        """The moments of a stage's items, forward and backward."""
        pairs = zip(self.shapes[stage], self.begins[stage], strict=True)
        forward, backward = (Moments(shape, _when(shape.lags, begins)) for shape, begins in pairs)
        return forward, backward


@dataclass(frozen=True)
class Moments:
    """When items start and end, shaped (items asked for, micro-batches in turn, configurations)."""

    shape: RunShape
    lags: Seconds
    """Shaped (pieces, micro-batches in turn, configurations)."""

    def starts(self, items: Numbers) -> Seconds:
        """When these items start."""
        return self._at(items, self.shape.before)

    def ends(self, items: Numbers) -> Seconds:
        """When these items end."""
        return self._at(items, self.shape.after)

    def last_ends(self, items: Numbers) -> Seconds:
        """When these items end in the last run, shaped (items, configurations)."""
        return np.asarray(self.shape.after[items, -1] + self.lags[self.shape.run.pieces[0][items], -1])

    def turned(self, by_turn: NDArray[Any]) -> NDArray[Any]:
        """An entry for each micro-batch instead of each turn, of which the last stands for all that follow."""
        return by_turn[:, np.minimum(np.arange(self.lags.shape[1]), by_turn.shape[1] - 1)]

    def _at(self, items: Numbers, done: Seconds) -> Seconds:
        return np.asarray(self.turned(done[items]) + self.lags[self.shape.run.pieces[0][items]])


def _when(after: Seconds, begins: Seconds) -> Seconds:
    """The latest of the three; `after` has a row for each turn, of which the last stands for all that follow."""
    turns = np.minimum(np.arange(len(begins)), after.shape[2] - 1)
    found = after[:, COMPUTE, turns] + begins[:, COMPUTE]
    for which in (COMMUNICATION, ARRIVAL):
        if after[:, which, -1].max(initial=-np.inf) > -np.inf:
            found = np.maximum(found, after[:, which, turns] + begins[:, which])
    return found


def run_shapes(stages: Sequence[StageRuns], amounts: Amounts) -> list[RunShapes]:
    """The shapes of each stage; one object for all that are alike."""
    known: dict[object, RunShapes] = {}
    for s, stage in enumerate(stages):
        key = stage, amounts.patterns(s)
        if key not in known:
            forward, backward = (run_shape(run, stage.shapes, s, amounts) for run in stage.runs)
            known[key] = forward, backward
    return [known[stage, amounts.patterns(s)] for s, stage in enumerate(stages)]


def timeline(
    stages: Sequence[StageRuns], shapes: Sequence[RunShapes], order: IssueOrder, amounts: Amounts, columns: Numbers
) -> Timeline:
    """All runs and transfers in the order of the program, of those columns of `shapes` that are `amounts`."""
    few = {id(pair): (pair[0].some(columns, amounts), pair[1].some(columns, amounts)) for pair in shapes}
    parts = tuple(few[id(pair)] for pair in shapes)
    count, turns = len(amounts.sizes), amounts.micro_batches
    free, sending = np.zeros((order.devices, 2, count)), dict[tuple[int, int], Seconds]()
    begins = tuple((np.zeros((turns, 3, count)), np.zeros((turns, 3, count))) for _ in stages)
    ready, arrived = dict[tuple[int, int], Seconds](), dict[tuple[int, int, int], Seconds]()
    send_start: dict[tuple[int, int], Seconds] = {}
    send_end: dict[tuple[int, int], Seconds] = {}
    for issue in order.issues:
        s, phase, here = issue.stage, issue.phase, (issue.stage, issue.phase)
        device = s % order.devices
        if not issue.sends:
            begin = begins[s][phase][issue.turn]
            begin[:ARRIVAL] = free[device]
            begin[ARRIVAL] = arrived.pop((s, phase, issue.micro_batch), 0.0)
            outcome = parts[s][phase].outcome
            after = (outcome[:, :, min(issue.turn, outcome.shape[2] - 1)] + begin).max(axis=1)
            free[device], ready[here] = after[:2], after[2]
            continue
        for shape, ahead in stages[s].sends[phase]:
            to, way = s + ahead, (device, (s + ahead) % order.devices)
            start = np.maximum(sending[way], ready[here]) if way in sending else ready[here]
            end = start + amounts.send(stages[s].shapes[shape], s, to)
            sending[way] = arrived[to, phase, issue.micro_batch] = end
            send_start.setdefault(here, np.zeros((turns, count)))[issue.turn] = start
            send_end.setdefault(here, np.zeros((turns, count)))[issue.turn] = end
    communication = free[:, COMMUNICATION]
    for way, end in sending.items():
        communication[list(way)] = np.maximum(communication[list(way)], end)
    return Timeline(amounts, parts, begins, send_start, send_end, free[:, COMPUTE], communication)
