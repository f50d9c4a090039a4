"""When devices are done and what they hold at most, from the timeline of their stages' runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.strategies.amounts import Amounts, Bytes, Seconds
from tessel_core.strategies.layers import Structure
from tessel_core.strategies.orders import IssueOrder
from tessel_core.strategies.runs import NEVER, Numbers, Run, StageRuns
from tessel_core.strategies.skeleton import BACKWARD, FORWARD, Column, Shape, Step
from tessel_core.strategies.streams import Moments, Timeline, run_shapes, timeline

_MOST_EVENTS = 4_000_000
"""Changes of memory that are ordered at once; each takes some 60 bytes."""


def evaluate_streams(
    structures: Sequence[Structure], orders: Mapping[int, IssueOrder], amounts: Amounts
) -> tuple[Seconds, Bytes]:
    """When each device of the pipeline is done, and the most that it holds, shaped (devices, configurations).

    The optimizer's step is included; orders are by numbers of micro-batches.

    Each configuration has a structure, and all are alike but for the optimizer's step.  Only the order of runs, and
    what is held over it, depends on how many micro-batches there are.
    """
    stages = structures[0].stages
    shapes, held = run_shapes(stages, amounts), {stage: holding(stage, amounts) for stage in stages}
    devices = next(iter(orders.values())).devices
    updating, states = _optimizers(structures, devices, amounts)
    parts = [
        _Part(stages, timeline(stages, shapes, orders[count], amounts.some(columns), columns), held, count, columns)
        for count, columns in amounts.by_micro_batches().items()
    ]
    shape, order = (devices, len(amounts.sizes)), np.argsort(np.concatenate([part.columns for part in parts]))
    ends, peaks = np.zeros(shape), np.zeros(shape, np.int64)
    for d in range(devices):
        mine = range(d, len(stages), devices)
        when = [{s: part.times.moments(s) for s in mine} for part in parts]
        last = [part.last(d, each) for part, each in zip(parts, when, strict=True)]
        finish = _finish([stages[s] for s in reversed(mine)], d, updating[d], amounts, np.hstack(last)[:, order])
        ends[d] = finish.end
        for part, each in zip(parts, when, strict=True):
            peaks[d, part.columns] = part.peak(each, finish)
    return ends, peaks + states


def _optimizers(structures: Sequence[Structure], devices: int, amounts: Amounts) -> tuple[Seconds, Bytes]:
    """The optimizer's time and state, per device and configuration."""
    shape = devices, len(structures)
    updating, states = np.zeros(shape), np.zeros(shape, np.int64)
    for structure in dict.fromkeys(structures):
        step, columns = structure.skeleton.step, np.flatnonzero([each is structure for each in structures])
        some = amounts.some(columns)
        for d in range(devices if step is not None else 0):
            assert step is not None
            weights = sum((stage.weights for stage in structure.stages[d::devices]), Counter[Column]())
            updating[d, columns] = some.update_parts(step, weights)
            states[d, columns] = state(weights, step, some)
    return updating, states


@dataclass(frozen=True)
class _Finish:
    """The end of a device after its last run: when all streams are done, and how its memory changes."""

    end: Seconds
    moments: Seconds
    changes: Bytes


def _finish(stages: Sequence[StageRuns], d: int, updating: Seconds, amounts: Amounts, last: Seconds) -> _Finish:
    """Sums of gradients among replicas, bucket by bucket, the step, and the weights gathered again.

    `last` has when computing and communication are done and when each gradient is there, in the order of `stages`.
    """
    compute, communication, ready = last[0], last[1], last[2:]
    count = len(compute)
    if not len(ready):
        empty = np.zeros((0, count))
        return _Finish(np.maximum(compute + updating, communication), empty, empty.astype(np.int64))
    shapes = [stage.shapes[shape] for stage in stages for shape in stage.gradients[:, 1].tolist()]
    place = {shape: i for i, shape in enumerate(dict.fromkeys(shapes))}
    which = np.array([place[shape] for shape in shapes])
    sizes = np.array([amounts.bytes_of(shape) for shape in place])
    parts = np.array([amounts.part_bytes(shape) for shape in place])
    buckets = amounts.buckets(sizes, which)
    most = max(len(begins) for begins, _ in buckets)
    moments, changes = np.zeros((2 * most, count)), np.zeros((2 * most, count), np.int64)
    done, gathering = ready.max(axis=0), np.zeros(count)
    for begins, columns in buckets:
        some, whole, part = amounts.some(columns), *(each[:, columns][which] for each in (sizes, parts))
        several = some.several()
        totals = np.add.reduceat(whole, begins), np.add.reduceat(np.where(part < whole, whole, 0), begins)
        summing, gathered = some.reducing(d, *totals)
        ends = np.cumsum(summing, axis=0)
        # Each bucket waits for its gradients and for the bucket before.
        there = np.maximum.reduceat(ready[:, columns], begins)
        starts = np.maximum.accumulate(there - (ends - summing), axis=0) + ends - summing
        rows = slice(0, len(begins)), slice(most, most + len(begins))
        moments[rows[0], columns], moments[rows[1], columns] = starts, starts + summing
        changes[rows[0], columns] = np.add.reduceat(part, begins) * several
        changes[rows[1], columns] = -totals[0] * several
        done[columns] = np.where(several, starts[-1] + summing[-1], done[columns])
        gathering[columns] = gathered.sum(axis=0)
    return _Finish(np.maximum(np.maximum(compute, done) + updating + gathering, communication), moments, changes)


class _Part:
    """Configurations with one number of micro-batches; `columns` says which of all they are."""

    def __init__(
        self,
        stages: Sequence[StageRuns],
        times: Timeline,
        held: Mapping[StageRuns, Holding],
        count: int,
        columns: Numbers,
    ) -> None:
        self._stages, self.times, self.columns = stages, times, columns
        self._held = {stage: each.some(columns, count) for stage, each in held.items()}

    def last(self, d: int, when: Mapping[int, tuple[Moments, Moments]]) -> Seconds:
        """When a device's computing and communication are done, and when each gradient is there; a row each.

        Gradients come in the order in which they are complete: later stages end before earlier ones.
        """
        ready = [when[s][BACKWARD].last_ends(self._stages[s].gradients[:, 0]) for s in reversed(list(when))]
        return np.concatenate(([self.times.compute[d], self.times.communication[d]], *ready))

    def peak(self, when: Mapping[int, tuple[Moments, Moments]], finish: _Finish) -> Bytes:
        """The most that a device holds, from the moments of each of its stages."""
        changes = [(finish.moments[:, self.columns], finish.changes[:, self.columns])]
        for s, moments_of in when.items():
            changes += self._arriving(s)
            for phase in (FORWARD, BACKWARD):
                changes += self._changing(s, phase, moments_of[phase])
        moments, bytes_ = (np.concatenate([_rows(pair[i]) for pair in changes]).T for i in (0, 1))
        end, step = finish.end[self.columns], max(1, _MOST_EVENTS // moments.shape[1])
        slices = (slice(i, i + step) for i in range(0, len(end), step))
        parts = [_most(moments[some], bytes_[some], end[some]) for some in slices]
        always = sum(self._held[self._stages[s]].always for s in when)
        return np.asarray(always + np.concatenate(parts))

    def _changing(self, s: int, phase: int, when: Moments) -> Iterator[tuple[Seconds, Bytes]]:
        """Moments, and how many bytes the items of a direction take or free then."""
        run, changes = self._stages[s].runs[phase], self._held[self._stages[s]].changes[phase]
        yield when.starts(changes.started), changes.at_start
        yield when.ends(changes.ended), changes.at_end
        late = run.freed_late
        if late.size:
            # What communication takes too is freed by whichever use ends last.
            last = np.maximum(*(_ends(late[:, stream], when) for stream in (2, 3)))
            sent = late[:, 4] > 0
            if sent.any():
                last[sent] = np.maximum(last[sent], self.times.send_end[s, phase])
            yield last, np.broadcast_to(changes.late, last.shape)

    def _arriving(self, s: int) -> Iterator[tuple[Seconds, Bytes]]:
        """Moments and bytes of what other stages send to this one."""
        for (other, phase), start in self.times.send_start.items():
            for shape, ahead in self._stages[other].sends[phase]:
                if other + ahead == s:
                    size = self.times.amounts.bytes_of(self._stages[other].shapes[shape])
                    yield start, np.broadcast_to(size, start.shape)


def _ends(items: Numbers, when: Moments) -> Seconds:
    """When items end, some of which are NEVER."""
    return np.where((items == NEVER)[:, None, None], -np.inf, when.ends(items))


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(-1, array.shape[-1])


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


@dataclass(frozen=True)
class Changes:
    """Changes of memory in one direction, shaped (items, turns or all micro-batches, configurations).

    What computing items free at the moment at which the next one begins is a change of that one.
    """

    started: Numbers
    at_start: Bytes
    ended: Numbers
    at_end: Bytes
    late: Bytes
    """Changes for the rows of `Run.freed_late`, shaped (rows, 1, configurations)."""

    def some(self, columns: Numbers, micro_batches: int) -> Changes:
        """The part that belongs to configurations with so many micro-batches."""
        turns = np.minimum(np.arange(micro_batches), self.at_start.shape[1] - 1)[:, None]
        at_start, at_end = (each[:, turns, columns] for each in (self.at_start, self.at_end))
        return Changes(self.started, at_start, self.ended, at_end, self.late[..., columns])


@dataclass(frozen=True)
class Holding:
    """The memory of a stage, and how it changes forward and backward."""

    always: Bytes
    changes: tuple[Changes, Changes]

    def some(self, columns: Numbers, micro_batches: int) -> Holding:
        """The part that belongs to configurations with so many micro-batches."""
        forward, backward = (each.some(columns, micro_batches) for each in self.changes)
        return Holding(self.always[columns], (forward, backward))


def holding(stage: StageRuns, amounts: Amounts) -> Holding:
    """The memory of a stage in all configurations, without the optimizer's state."""
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


def state(weights: Counter[Column], step: Step, amounts: Amounts) -> Bytes:
    """The bytes of the optimizer's state for these weights."""
    count_of = Counter(step.rest)
    for (taken, _), count in weights.items():
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
