"""When stages are done and what they hold at most, from the timeline of their runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tessel_core.strategies.amounts import Amounts, Bytes, Seconds
from tessel_core.strategies.in_order import Evaluated, held_always
from tessel_core.strategies.issue import IssueOrder
from tessel_core.strategies.skeleton import Skeleton
from tessel_core.strategies.stages import BACKWARD, FORWARD, Combine, Stage, taken_by
from tessel_core.strategies.streams import Timeline, timeline


def evaluate_streams(skeleton: Skeleton, stages: Sequence[Stage], order: IssueOrder, amounts: Amounts) -> Evaluated:
    """Ends and peaks, the optimizer's step included."""
    times = timeline(skeleton, stages, order, amounts)
    found = [_Stage(skeleton, stages, s, times, amounts) for s in range(len(stages))]
    ends = [each.finish() for each in found]
    return Evaluated(np.array(ends), np.array([each.peak() for each in found]))


class _Stage:
    """What one stage holds, as changes at moments, shaped (micro-batches or 1, configurations)."""

    def __init__(self, skeleton: Skeleton, stages: Sequence[Stage], s: int, times: Timeline, amounts: Amounts) -> None:
        self._skeleton, self._stages, self._s, self._times, self._amounts = skeleton, stages, s, times, amounts
        self._stage = stages[s]
        self._released = list[tuple[Seconds, Bytes]]()
        self._acquired = list[tuple[Seconds, Bytes]]()

    def finish(self) -> Seconds:
        """Sums of gradients among replicas, as soon as each is there, and the step; when both streams are done."""
        talk, compute = self._times.talk[self._s], self._times.compute[self._s]
        several = self._amounts.several()
        for value, ready in self._gradients():
            shape = self._skeleton.shapes[value]
            start = np.maximum(talk, ready)
            end = start + self._amounts.allreduce(shape, self._s)
            size = self._amounts.bytes_of(shape) * several
            self._acquired.append((start[None], size[None]))
            self._released.append((end[None], size[None]))
            talk = np.where(several, end, talk)
            compute = np.maximum(compute, np.where(several, end, ready))
        weights = sorted(self._skeleton.weight_of[value] for value in self._stage.gradients)
        compute = compute + self._amounts.update([self._skeleton.shapes[value] for value in weights])
        return np.maximum(compute, talk)

    def _gradients(self) -> list[tuple[int, Seconds]]:
        """Each with the moment at which the last micro-batch has been added."""
        last: dict[int, int] = {}
        for i, item in enumerate(self._stage.items[BACKWARD]):
            last.update(dict.fromkeys((item.value,) if isinstance(item, Combine) else item.outputs, i))
        ends = {value: self._times.item_end(self._s, BACKWARD, last[value])[-1] for value in self._stage.gradients}
        return list(ends.items())

    def peak(self) -> Bytes:
        """The most that one of the stage's devices holds."""
        self._hold_what_runs_make()
        self._hold_what_arrives()
        times = np.concatenate([_rows(when) for when, _ in (*self._released, *self._acquired)])
        changes = [-_rows(np.broadcast_to(size, when.shape)) for when, size in self._released]
        changes += [_rows(np.broadcast_to(size, when.shape)) for when, size in self._acquired]
        # Releases stand first, and equal times keep their order.
        order = np.argsort(np.ascontiguousarray(times.T), axis=1, kind="stable")
        change = np.take_along_axis(np.ascontiguousarray(np.concatenate(changes).T), order, axis=1)
        held = held_always(self._skeleton, self._stage, self._amounts)
        return np.asarray(held + np.maximum(0, np.cumsum(change, axis=1).max(axis=1)))

    def _hold_what_runs_make(self) -> None:
        ends = self._ends_of_uses()
        for phase in (FORWARD, BACKWARD):
            for i, item in enumerate(self._stage.items[phase]):
                start = self._times.item_start(self._s, phase, i)
                if isinstance(item, Combine):
                    acquired, released = self._amounts.combined_bytes(self._skeleton.shapes[item.value], item.joins)
                    self._acquired.append((start, acquired))
                    self._released.append((self._times.item_end(self._s, phase, i), released))
                    continue
                for value in item.outputs:
                    size = self._amounts.bytes_of(self._skeleton.shapes[value])
                    self._acquired.append((start, size))
                    if value in ends:
                        self._released.append((ends[value], size))

    def _hold_what_arrives(self) -> None:
        ends = self._ends_of_uses()
        for other, phase in self._times.send_start:
            for send in self._stages[other].sends[phase]:
                if send.to == self._s:
                    size = self._amounts.bytes_of(self._skeleton.shapes[send.value])
                    self._acquired.append((self._times.send_start[other, phase], size))
                    self._released.append((ends[send.value], size))

    def _ends_of_uses(self) -> dict[int, Seconds]:
        """Per value of a micro-batch, the end of the last use, by micro-batch."""
        uses: dict[int, list[Seconds]] = defaultdict(list)
        for phase in (FORWARD, BACKWARD):
            turn = self._times.turns[self._s, phase]
            for i, item in enumerate(self._stage.items[phase]):
                for value in dict.fromkeys(taken_by(item)):
                    if value not in self._skeleton.inputs:
                        uses[value].append(self._times.item_end(self._s, phase, i)[turn])
            for send in self._stage.sends[phase]:
                uses[send.value].append(self._times.send_end[self._s, phase][turn])
        return {value: np.maximum.reduce(ends) for value, ends in uses.items()}


def _rows(found: Seconds | Bytes) -> Seconds | Bytes:
    return found.reshape(-1, found.shape[-1])
