"""When stages are done and what they hold at most, from the timeline of their runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.strategies.amounts import Amounts, Bytes, Seconds
from tessel_core.strategies.in_order import Evaluated, held_always
from tessel_core.strategies.issue import IssueOrder
from tessel_core.strategies.skeleton import Skeleton
from tessel_core.strategies.stages import BACKWARD, FORWARD, Combine, Stage
from tessel_core.strategies.streams import Timeline, timeline
from tessel_core.strategies.uses import NEVER, Flags, Held, held_by

_MOST_EVENTS = 4_000_000
"""Changes of memory that are ordered at once; each takes some 60 bytes."""


def evaluate_streams(skeleton: Skeleton, stages: Sequence[Stage], order: IssueOrder, amounts: Amounts) -> Evaluated:
    """Ends and peaks, the optimizer's step included."""
    times = timeline(skeleton, stages, order, amounts)
    found = [_Stage(skeleton, stages, s, times, amounts) for s in range(len(stages))]
    ends = [each.finish() for each in found]
    return Evaluated(np.array(ends), np.array([each.peak(end) for each, end in zip(found, ends, strict=True)]))


class _Stage:
    """What one stage holds, as changes at moments, both shaped (changes, configurations)."""

    def __init__(self, skeleton: Skeleton, stages: Sequence[Stage], s: int, times: Timeline, amounts: Amounts) -> None:
        self._skeleton, self._stages, self._s, self._times, self._amounts = skeleton, stages, s, times, amounts
        self._stage = stages[s]
        self._moments = list[Seconds]()
        self._changes = list[Bytes]()

    def finish(self) -> Seconds:
        """Sums of gradients among replicas, as soon as each is there, and the step; when both streams are done."""
        talk, compute = self._times.talk[self._s], self._times.compute[self._s]
        several, gradients = self._amounts.several(), self._gradients()
        starts, ends = list[Seconds](), list[Seconds]()
        for value, ready in gradients:
            starts.append(np.maximum(talk, ready))
            ends.append(starts[-1] + self._amounts.summing(self._skeleton.shapes[value], self._s))
            talk = np.where(several, ends[-1], talk)
            compute = np.maximum(compute, np.where(several, ends[-1], ready))
        shapes = [self._skeleton.shapes[value] for value, _ in gradients]
        if gradients:
            self._change(np.array(starts), np.array([self._amounts.part_bytes(shape) for shape in shapes]) * several)
            self._change(np.array(ends), -self._sizes([value for value, _ in gradients])[:, 0] * several)
        if self._skeleton.step is not None:
            compute = compute + self._amounts.update(self._skeleton.step, self._stage.weights)
        gathers = (self._amounts.gathering(shape, self._s) for shape in shapes)
        return sum(gathers, np.maximum(compute, talk))

    def _gradients(self) -> list[tuple[int, Seconds]]:
        """Each with the moment at which the last micro-batch has been added."""
        last: dict[int, int] = {}
        for i, item in enumerate(self._stage.items[BACKWARD]):
            last.update(dict.fromkeys((item.value,) if isinstance(item, Combine) else item.outputs, i))
        return [(value, self._times.last_end(self._s, BACKWARD, last[value])) for value in self._stage.gradients]

    def peak(self, end: Seconds) -> Bytes:
        """The most that one of the stage's devices holds."""
        for phase, held in zip((FORWARD, BACKWARD), held_by(self._skeleton, self._stage), strict=True):
            self._hold(phase, held)
        self._hold_what_arrives()
        moments, changes = np.concatenate(self._moments).T, np.concatenate(self._changes).T
        step = max(1, _MOST_EVENTS // moments.shape[1])
        parts = [
            _most(moments[i : i + step], changes[i : i + step], end[i : i + step]) for i in range(0, len(moments), step)
        ]
        return held_always(self._skeleton, self._stage, self._amounts) + np.concatenate(parts)

    def _hold(self, phase: int, held: Held) -> None:
        """What the items of a direction make and free; what happens at one moment anyway is one change."""
        if not self._stage.items[phase]:
            return
        starts, ends = self._times.items(self._s, phase)
        begins = np.zeros(starts.shape, np.int64)
        np.add.at(begins, held.maker, self._sizes(held.made))
        closes = np.zeros(starts.shape, np.int64)
        alone = (held.last_talk == NEVER) & ~held.sent
        sizes = self._sizes(held.freed)
        np.subtract.at(closes, held.last_compute[alone], sizes[alone])
        self._free_after_talks(phase, held, ends, sizes, ~alone)
        for i, item in enumerate(self._stage.items[phase]):
            if isinstance(item, Combine):
                shape = self._skeleton.shapes[item.value]
                acquired, released = self._amounts.combined_bytes(shape, item.joins, self._amounts.micro_batches)
                begins[i] += acquired
                closes[i] -= released
        ones, nexts = held.computes[:-1], held.computes[1:]
        at_once = (ends[ones] == starts[nexts]).all(axis=(1, 2))
        begins[nexts[at_once]] += closes[ones[at_once]]
        closes[ones[at_once]] = 0
        changing = closes.any(axis=(1, 2))
        self._change(starts, begins)
        self._change(ends[changing], closes[changing])

    def _free_after_talks(self, phase: int, held: Held, ends: Seconds, sizes: Bytes, which: Flags) -> None:
        """What communication takes too is freed by whichever use ends last."""
        if not which.any():
            return
        ends = np.concatenate((ends, np.full((1, *ends.shape[1:]), -np.inf)))
        last = np.maximum(ends[held.last_compute[which]], ends[held.last_talk[which]])
        sent = held.sent[which]
        if sent.any():
            last[sent] = np.maximum(last[sent], self._times.send_end[self._s, phase])
        self._change(last, -sizes[which])

    def _hold_what_arrives(self) -> None:
        for (other, phase), start in self._times.send_start.items():
            for send in self._stages[other].sends[phase]:
                if send.to == self._s:
                    self._change(start, self._amounts.bytes_of(self._skeleton.shapes[send.value])[None])

    def _sizes(self, values: Sequence[int]) -> Bytes:
        """Shaped (values, 1, configurations)."""
        shapes, number = self._skeleton.distinct_shapes
        sizes = np.array([self._amounts.bytes_of(shape) for shape in shapes])
        return sizes[number[list(values)]][:, None]

    def _change(self, moments: Seconds, change: Bytes) -> None:
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
