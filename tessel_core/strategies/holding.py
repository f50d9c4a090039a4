"""What stages hold, whenever it is: bytes that each run takes and frees, and those that are always there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tessel_core.strategies.amounts import Amounts, Bytes
from tessel_core.strategies.runs import Numbers, Run, StageRuns
from tessel_core.strategies.skeleton import Shape, Step


@dataclass(frozen=True)
class Changes:
    """In one direction; bytes are shaped (items, turns, configurations), or with all micro-batches in place of turns.

    What computing items free at the moment at which the next one begins is a change of that one.
    """

    started: Numbers
    at_start: Bytes
    ended: Numbers
    at_end: Bytes
    late: Bytes
    """Of rows of `Run.freed_late`, shaped (rows, 1, configurations)."""

    def some(self, columns: Numbers, micro_batches: int) -> Changes:
        """Of configurations with so many micro-batches."""
        turns = np.minimum(np.arange(micro_batches), self.at_start.shape[1] - 1)[:, None]
        at_start, at_end = (each[:, turns, columns] for each in (self.at_start, self.at_end))
        return Changes(self.started, at_start, self.ended, at_end, self.late[..., columns])


@dataclass(frozen=True)
class Holding:
    """Of a stage, forward and backward."""

    always: Bytes
    changes: tuple[Changes, Changes]

    def some(self, columns: Numbers, micro_batches: int) -> Holding:
        """Of configurations with so many micro-batches."""
        forward, backward = (each.some(columns, micro_batches) for each in self.changes)
        return Holding(self.always[columns], (forward, backward))


def holding(stage: StageRuns, amounts: Amounts) -> Holding:
    """Of a stage in all configurations, without the optimizer's state."""
    sizes = np.array([amounts.bytes_of(shape) for shape in stage.shapes])
    forward, backward = (_changes(run, stage.shapes, sizes, amounts) for run in stage.runs)
    return Holding(_inputs(stage, amounts), (forward, backward))


def _inputs(stage: StageRuns, amounts: Amounts) -> Bytes:
    """Weights, and of samples the parts of all micro-batches."""
    held = np.zeros(len(amounts.sizes), np.int64)
    parts = np.array([each.micro_batches for each in amounts.sizes], np.int64)
    for (shape, joined), count in stage.inputs.items():
        held += count * (parts if joined else 1) * amounts.bytes_of(shape)
    return held


def state(stage: StageRuns, step: Step, amounts: Amounts) -> Bytes:
    """Of the optimizer."""
    count_of = Counter(step.rest)
    for (taken, _), count in stage.weights.items():
        for shape in taken[1:-1]:
            count_of[shape] += count
    return np.asarray(sum(count * amounts.part_bytes(shape) for shape, count in count_of.items()))


def _changes(run: Run, shapes: tuple[Shape, ...], sizes: Bytes, amounts: Amounts) -> Changes:
    turns = run.turns(amounts.micro_batches)
    begins, closes = np.zeros((2, len(run.kind_of), turns, len(amounts.sizes)), np.int64)
    for (items, rows, made), changes in ((run.made_at, begins), (run.freed_alone, closes)):
        if items.size:
            changes[items] = np.add.reduceat(sizes[made], rows, axis=0)[:, None]
    for (shape, joins), items in run.combining.items():
        acquired, released = amounts.combined_bytes(shapes[shape], joins, turns)
        begins[items] += acquired
        closes[items] += released
    ones, nexts = run.at_once
    begins[nexts] -= closes[ones]
    closes[ones] = 0
    started, ended = (np.flatnonzero(each.any(axis=(1, 2))) for each in (begins, closes))
    return Changes(started, begins[started], ended, -closes[ended], -sizes[run.freed_late[:, 1]][:, None])
