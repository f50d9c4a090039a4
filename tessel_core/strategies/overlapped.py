"""When stages are done and what they hold at most, from the timeline of their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.strategies.amounts import Amounts, Bytes, Seconds
from tessel_core.strategies.in_order import Evaluated
from tessel_core.strategies.issue import IssueOrder
from tessel_core.strategies.layers import Structure
from tessel_core.strategies.runs import Numbers, StageRuns
from tessel_core.strategies.skeleton import Step
from tessel_core.strategies.stages import BACKWARD, FORWARD
from tessel_core.strategies.streams import COMPUTE, TALK, Moments, Timeline, run_shapes, timeline
from tessel_core.strategies.uses import NEVER

_MOST_EVENTS = 4_000_000
"""Changes of memory that are ordered at once; each takes some 60 bytes."""


def evaluate_streams(structure: Structure, orders: Mapping[int, IssueOrder], amounts: Amounts) -> Evaluated:
    """Ends and peaks, the optimizer's step included; orders by numbers of micro-batches.

    Only the order of runs, and what is held over it, depends on how many micro-batches there are.
    """
    stages, step, parts = structure.stages, structure.skeleton.step, amounts.by_micro_batches()
    shapes = run_shapes(stages, amounts)
    some = [amounts.some(columns) for columns in parts.values()]
    times = [
        timeline(stages, shapes, orders[count], few, columns)
        for (count, columns), few in zip(parts.items(), some, strict=True)
    ]
    shape = len(stages), len(amounts.sizes)
    ends, peaks = np.zeros(shape), np.zeros(shape, np.int64)
    for s, stage in enumerate(stages):
        held = [_Held(structure, s, when, few) for when, few in zip(times, some, strict=True)]
        joined = np.argsort(np.concatenate([*parts.values()]))
        last = np.concatenate([each.last() for each in held], axis=1)[:, joined]
        finish = _finish(stage, s, step, amounts, last)
        ends[s] = finish.end
        for each, columns in zip(held, parts.values(), strict=True):
            each.change(finish.moments[:, columns], finish.changes[:, columns])
            peaks[s, columns] = each.peak(finish.end[columns])
    return Evaluated(ends, peaks)


@dataclass(frozen=True)
class _Finish:
    """What a stage does after the last run: when both streams are done, and how what it holds changes."""

    end: Seconds
    moments: Seconds
    changes: Bytes


def _finish(stage: StageRuns, s: int, step: Step | None, amounts: Amounts, last: Seconds) -> _Finish:
    """Sums of gradients among replicas, as soon as each is there, the step, and the weights gathered again.

    `last` has when the streams are free and when each gradient is there.
    """
    compute, talk, ready = last[COMPUTE], last[TALK], last[2:]
    several, gathering = amounts.several(), np.zeros_like(talk)
    moments, changes = np.zeros((0, len(talk))), np.zeros((0, len(talk)), np.int64)
    if len(ready):
        distinct, which = np.unique(stage.gradients[:, 1], return_inverse=True)
        shapes = [stage.shapes[shape] for shape in distinct]
        summing = np.array([amounts.summing(shape, s) for shape in shapes])[which]
        done = np.cumsum(summing, axis=0)
        # Each sum waits for its gradient and for the sum before.
        waited = np.maximum(talk, np.maximum.accumulate(ready - (done - summing), axis=0))
        moments = np.concatenate((waited + done - summing, waited + done))
        whole, part = (
            np.array([of(shape) for shape in shapes])[which] for of in (amounts.bytes_of, amounts.part_bytes)
        )
        changes = np.concatenate((part, -whole)) * several
        talk = np.where(several, waited[-1] + done[-1], talk)
        compute = np.maximum(compute, np.where(several, talk, ready.max(axis=0)))
        gathering = np.array([amounts.gathering(shape, s) for shape in shapes])[which].sum(axis=0)
    if step is not None:
        compute = compute + amounts.update_parts(step, stage.weights)
    return _Finish(np.asarray(np.maximum(compute, talk) + gathering), moments, changes)


class _Held:
    """What one stage holds, as changes at moments, both shaped (changes, configurations)."""

    def __init__(self, structure: Structure, s: int, times: Timeline, amounts: Amounts) -> None:
        self._stages, self._stage, self._step = structure.stages, structure.stages[s], structure.skeleton.step
        self._s, self._times, self._amounts = s, times, amounts
        self._items = times.moments(s)
        self._bytes = np.array([amounts.bytes_of(shape) for shape in self._stage.shapes])
        self._moments = list[Seconds]()
        self._changes = list[Bytes]()

    def last(self) -> Seconds:
        """When its streams are free after the last run, and when each gradient is there; a row each."""
        ready = self._items[BACKWARD].last_ends(self._stage.gradients[:, 0])
        return np.concatenate(([self._times.compute[self._s], self._times.talk[self._s]], ready))

    def peak(self, end: Seconds) -> Bytes:
        """The most that one of the stage's devices holds."""
        for phase in (FORWARD, BACKWARD):
            self._hold(phase)
        self._hold_what_arrives()
        moments, changes = np.concatenate(self._moments).T, np.concatenate(self._changes).T
        step = max(1, _MOST_EVENTS // moments.shape[1])
        parts = [
            _most(moments[i : i + step], changes[i : i + step], end[i : i + step]) for i in range(0, len(moments), step)
        ]
        return self._held_always() + np.concatenate(parts)

    def _held_always(self) -> Bytes:
        """Inputs of the program: weights, the optimizer's state, and of samples the parts of all micro-batches."""
        amounts, held = self._amounts, np.zeros(len(self._amounts.sizes), np.int64)
        for (shape, joined), count in self._stage.inputs.items():
            held += count * (amounts.micro_batches if joined else 1) * amounts.bytes_of(shape)
        if self._step is not None:
            state = Counter(self._step.rest)
            for (taken, _), count in self._stage.weights.items():
                for shape in taken[1:-1]:
                    state[shape] += count
            for shape, count in state.items():
                held += count * amounts.part_bytes(shape)
        return held

    def _hold(self, phase: int) -> None:
        """What the items of a direction make and free; what happens at one moment anyway is one change."""
        run, when = self._stage.runs[phase], self._items[phase]
        if not run.kind_of.size:
            return
        turns, count = run.turns(self._amounts.micro_batches), len(self._amounts.sizes)
        begins, closes = np.zeros((2, len(run.kind_of), turns, count), np.int64)
        for (items, rows, shapes), changes in ((run.made_at, begins), (run.freed_alone, closes)):
            if items.size:
                changes[items] = np.add.reduceat(self._bytes[shapes], rows, axis=0)[:, None]
        for (shape, joins), items in run.combining.items():
            acquired, released = self._amounts.combined_bytes(self._stage.shapes[shape], joins, turns)
            begins[items] += acquired
            closes[items] += released
        ones, nexts = run.at_once
        begins[nexts] -= closes[ones]
        closes[ones] = 0
        for changes, moments in ((begins, when.starts), (-closes, when.ends)):
            changing = np.flatnonzero(changes.any(axis=(1, 2)))
            self.change(moments(changing), when.turned(changes[changing]))
        self._free_after_talks(phase, run.freed_late, when)

    def _free_after_talks(self, phase: int, late: Numbers, when: Moments) -> None:
        """What communication takes too is freed by whichever use ends last."""
        if not late.size:
            return
        last = np.maximum(*(self._ends(late[:, stream], when) for stream in (2, 3)))
        sent = late[:, 4] > 0
        if sent.any():
            last[sent] = np.maximum(last[sent], self._times.send_end[self._s, phase])
        self.change(last, -self._bytes[late[:, 1]][:, None])

    def _ends(self, items: Numbers, when: Moments) -> Seconds:
        """Of items, some of which are NEVER."""
        return np.where((items == NEVER)[:, None, None], -np.inf, when.ends(items))

    def _hold_what_arrives(self) -> None:
        for (other, phase), start in self._times.send_start.items():
            for shape, ahead in self._stages[other].sends[phase]:
                if other + ahead == self._s:
                    self.change(start, self._amounts.bytes_of(self._stages[other].shapes[shape])[None])

    def change(self, moments: Seconds, change: Bytes) -> None:
        """At moments, of as many axes."""
        shape = -1, moments.shape[-1]
        self._moments.append(moments.reshape(shape))
        self._changes.append(np.broadcast_to(change, moments.shape).reshape(shape))


def _most(moments: NDArray[np.float64], changes: Bytes, end: Seconds) -> Bytes:
    """The highest sum of changes after any moment; times that lie close together are one moment."""
    moments = np.ascontiguousarray(moments)
    order = np.argsort(moments, axis=1)
    order += np.arange(0, order.size, order.shape[1])[:, None]
    ordered = moments.ravel()[order]
    level = np.cumsum(np.ascontiguousarray(changes).ravel()[order], axis=1)
    inside = np.diff(ordered, axis=1) <= end[:, None] * SAME_MOMENT
    level[:, :-1][inside] = 0
    return np.asarray(np.maximum(0, level.max(axis=1)))
