"""The dynamic program over ideals for latency. The program assumes that subgraphs run one after another.

A group is a set of operators that must share a device. A class has interchangeable devices. An ideal is a set of groups
that contains all predecessors of its members. A chain is a sequence of growing ideals. The groups that one ideal has
more than the ideal before are a stage, which runs on one accelerator, or is a single group on a host.

A split gives each unit of operators a slot (one subgraph of one accelerator) or a host, which is a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.ideals import (
    Bits,
    Ideals,
    all_ideals,
    bit_set,
    depth_first,
    members_of,
    prefixes,
    promising_orders,
)
from tessel_core.placement.latency.task import HOST, LatencyTask, Slots
from tessel_core.placement.pipeline import Floats, Pipeline, has_unplaceable, within_memory
from tessel_core.placement.steps import StageLoads

_ROWS_PER_BLOCK = 128
"""Number of ideals whose entries in the table are computed at once."""
_MAX_STATES = 400
"""Largest number of states. A state has the number of used subgraphs of each device class.

With more states, which come from many device classes, the table is too large.
"""
_HOST_STEP = -1
_Stage = tuple[NDArray[np.int64], int]
"""A stage of a chain: its groups, and the index of its device class. The class is HOST for a single group on a host."""
_MAX_SOURCES = 256
"""Largest number of ideals from which stages to another ideal are tried: those with the least sum of stage times."""
_ORDERS_PER_ROUND, _MAX_ROUNDS = 20, 50
"""Number of random orders per round, and largest number of rounds."""


def sequential_splits(
    task: LatencyTask, most_ideals: int, seed: int, control: Control, more_than: int = 0
) -> Iterator[Slots]:
    """Yield the valid splits with the least sum of stage times, one for each number of subgraphs per device class.

        best[n][I] = min(best[n - c][I'] + stage I less I' on c over ideals I' within I, best[n][I less v] + v on a
      host)

    Here n has the number of used subgraphs of each device class, n - c has one subgraph of class c less, and v is a
    group. best[n][I] is the least sum of stage times for the groups of ideal I. It is the latency of a sample if
    nothing runs in parallel. If there are more ideals than `most_ideals`, only ideals along some orders of the groups
    are searched. If there are at most `more_than` ideals, nothing is yielded. Training graphs have no such chain,
    because a backward operator stays with its forward operator.
    """
    if task.problem.graph.is_training or not task.accelerators:
        return
    # The program counts each transfer at both of its ends, but a delay must count once.
    costs = task.moved if task.pays_transfers else [each / 2 for each in task.moved]
    pipeline = within_memory(pipeline_of(task.problem, costs))
    if has_unplaceable(pipeline):
        return
    bits = _family(pipeline, most_ideals, seed)
    if len(bits) <= more_than:
        return
    program = _Program(task, pipeline, bits)
    if program.states > _MAX_STATES or not program.fill(control):
        return
    for chain in program.chains():
        slots = _slots(task, pipeline, chain)
        if slots is not None and task.keeps_rules(slots):
            yield slots


def _family(pipeline: Pipeline, most: int, seed: int) -> Bits:
    """Return all ideals. If there are more than `most`, return about `most` ideals along promising and random orders.

    Random orders are depth first, so that few branches are begun but not finished. The same holds at most stage
    boundaries of good chains.
    """
    bits = all_ideals(pipeline, most)
    if bits is not None:
        return bits
    choose = Random(seed)

    def shuffled(ready: list[int]) -> list[int]:
        choose.shuffle(ready)
        return ready

    bits, count = prefixes(promising_orders(pipeline)), len(pipeline.members)
    for _ in range(_MAX_ROUNDS):
        more = prefixes([depth_first(count, pipeline.arcs, shuffled) for _ in range(_ORDERS_PER_ROUND)])
        bits = np.unique(np.concatenate([bits, more]), axis=0)
        if len(bits) >= most:
            break
    return bits


class _Program:
    """The table `best[state][ideal]` of `sequential_splits`.

    A state has the number of used subgraphs of each device class.

    Ideals are in the order of their memory. So the ideals from which a stage to an ideal fits in memory are
    consecutive.
    """

    def __init__(self, task: LatencyTask, pipeline: Pipeline, bits: Bits) -> None:
        self._pipeline = pipeline
        count = len(pipeline.members)
        # Whole bytes, because rounding errors of fractions could sort an ideal after a larger one.
        self._ideals = Ideals.of(pipeline, bits, np.ceil(pipeline.memory))
        self._stages = StageLoads(pipeline, self._ideals)
        self._kinds = [i for i, each in enumerate(pipeline.classes) if each.pays]
        most = [min(len(pipeline.classes[kind].devices) * task.subgraphs, count) for kind in self._kinds]
        self._used = list(product(*(range(each + 1) for each in most)))
        self._host = np.min(
            [np.full(count, np.inf), *(each.time for each in pipeline.classes if not each.pays)], axis=0
        )
        index = {used: state for state, used in enumerate(self._used)}
        self._fewer = [
            np.array([index.get(_less(used, position), -1) for used in self._used])
            for position in range(len(self._kinds))
        ]

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self._used)

    def fill(self, control: Control) -> bool:
        """Fill the table from the empty ideal on. Return False if `control` stopped."""
        shape = self.states, len(self._ideals)
        self._best = np.full(shape, np.inf)
        self._least = np.full(len(self._ideals), np.inf)
        self._source = np.zeros(shape, dtype=np.int64)
        self._step = np.full(shape, _HOST_STEP)
        self._best[self._used.index((0,) * len(self._kinds)), 0] = 0.0
        host_steps = self._host_steps()
        for first in range(0, len(self._ideals), _ROWS_PER_BLOCK):
            if control.stopped:
                return False
            self._extend(np.arange(first, min(first + _ROWS_PER_BLOCK, len(self._ideals))), host_steps)
        return True

    def _host_steps(self) -> list[list[tuple[int, int]]]:
        """Return, for each ideal, pairs (row of the ideal without one group, that group), if a host supports it."""
        bits, count = self._ideals.bits, len(self._pipeline.members)
        # Zobrist hashing: the key of an ideal is the XOR of the random numbers of its groups.
        numbers = np.random.default_rng(0).integers(0, 2**63, count, dtype=np.uint64)
        keys = np.zeros(len(bits), dtype=np.uint64)
        for group in range(count):
            keys[bits[:, group // 64] & bit_set((group,), count)[group // 64] != 0] ^= numbers[group]
        order = np.argsort(keys)
        ordered = keys[order]
        steps: list[list[tuple[int, int]]] = [[] for _ in range(len(bits))]
        for group in np.flatnonzero(np.isfinite(self._host)).tolist():
            one = bit_set((group,), count)
            rows = np.flatnonzero(bits[:, group // 64] & one[group // 64])
            at = np.minimum(np.searchsorted(ordered, keys[rows] ^ numbers[group]), len(order) - 1)
            same = (bits[order[at]] == bits[rows] ^ one).all(axis=1)
            for row, source in zip(rows[same].tolist(), order[at[same]].tolist(), strict=True):
                steps[row].append((source, group))
        return steps

    def _extend(self, targets: NDArray[np.int64], host_steps: list[list[tuple[int, int]]]) -> None:
        capacity = max((self._pipeline.classes[kind].capacity for kind in self._kinds), default=0.0)
        least = self._ideals.work[targets[0]] - capacity - len(self._pipeline.members)
        sources = np.arange(int(np.searchsorted(self._ideals.work, least)), targets[-1] + 1)
        outside = self._stages.leaves(sources, targets) | (sources >= targets[:, None])
        transfers = self._stages.transfers(sources, targets)
        loads = [self._stages.work(kind, sources, targets) + transfers for kind in self._kinds]
        for row, target in enumerate(targets.tolist()):
            for position, load in enumerate(loads):
                near = np.flatnonzero(np.isfinite(load[row]) & ~outside[row])
                if len(near):
                    self._after_stage(position, target, sources[near], load[row, near])
            for source, group in host_steps[target]:
                self._after_host(target, source, group)
            self._least[target] = self._best[:, target].min()

    def _after_stage(self, position: int, target: int, near: NDArray[np.int64], load: Floats) -> None:
        if len(near) > _MAX_SOURCES:
            some = np.argpartition(self._least[near] + load, _MAX_SOURCES)[:_MAX_SOURCES]
            near, load = near[some], load[some]
        sums = self._best[:, near] + load
        at = sums.argmin(axis=1)
        least = sums[np.arange(self.states), at]
        for state, fewer in enumerate(self._fewer[position]):
            if fewer >= 0 and least[fewer] < self._best[state, target]:
                self._best[state, target] = least[fewer]
                self._source[state, target] = near[at[fewer]]
                self._step[state, target] = position

    def _after_host(self, target: int, source: int, group: int) -> None:
        sums = self._best[:, source] + self._host[group]
        better = sums < self._best[:, target]
        self._best[better, target] = sums[better]
        self._source[better, target] = source
        self._step[better, target] = _HOST_STEP

    def chains(self) -> Iterator[list[_Stage]]:
        """Yield the stages of the best chain of each state, in the order of the sums of stage times."""
        last = len(self._ideals) - 1
        for end in np.argsort(self._best[:, last], kind="stable"):
            if not np.isfinite(self._best[end, last]):
                return
            state, at, stages = int(end), last, list[_Stage]()
            while at:
                source, step = int(self._source[state, at]), int(self._step[state, at])
                groups = members_of(self._ideals.bits[at] & ~self._ideals.bits[source], len(self._pipeline.members))
                stages.append((np.flatnonzero(groups), HOST if step == _HOST_STEP else self._kinds[step]))
                state = state if step == _HOST_STEP else int(self._fewer[step][state])
                at = source
            yield stages[::-1]


def _less(used: tuple[int, ...], position: int) -> tuple[int, ...]:
    return tuple(count - (each == position) for each, count in enumerate(used))


def _slots(task: LatencyTask, pipeline: Pipeline, chain: list[_Stage]) -> Slots | None:
    """Return the slot of each unit, or None if a stage does not fit in memory.

    Stages go to devices of their class by first fit, from the stage with the most memory on.
    """
    slots = [HOST] * len(task.units)
    room = {device: task.capacity[device] for device in task.accelerators}
    taken: dict[int, list[int]] = {device: [] for device in task.accelerators}
    memory = [float(pipeline.memory[groups].sum()) for groups, _ in chain]
    for at in sorted(range(len(chain)), key=lambda each: -memory[each]):
        _, kind = chain[at]
        if kind == HOST:
            continue
        devices = pipeline.classes[kind].devices
        fits = (each for each in devices if len(taken[each]) < task.subgraphs and memory[at] <= room[each])
        device = next(fits, None)
        if device is None:
            return None
        room[device] -= memory[at]
        taken[device].append(at)
    for device, stages in taken.items():
        for index, at in enumerate(sorted(stages)):
            for operator in (i for group in chain[at][0] for i in pipeline.members[group]):
                slots[task.unit_of[operator]] = task.accelerators.index(device) * task.subgraphs + index
    return tuple(slots)
