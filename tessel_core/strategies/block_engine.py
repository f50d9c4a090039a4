"""Strategies timed by blocks: stages as sums of layers, the pipeline as its schedule's order, replicas at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.scheduling import BASELINES
from tessel_core.simulation.trace import shortage
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration, Outcome
from tessel_core.strategies.order_times import Order, counts_for, order_of
from tessel_core.strategies.stages import StageCosts, Stages

Column = NDArray[np.float64]
Shape = tuple[str, int, int, int]
"""Schedule, devices of the pipeline, micro-batches, stages per device."""


@dataclass(frozen=True)
class _Staged:
    """A configuration as stages."""

    number: int
    asked: Configuration
    stages: tuple[StageCosts, ...]
    lags: tuple[float, ...]


class BlockEngine:
    """Times strategies of one network on one mesh by the blocks of its layers.

    It follows the operation-by-operation simulation within 1 % but for a few configurations
    (tests/benchmarks/blocks.py lists them); it takes about a thousandth of the time.
    """

    def __init__(self, table: BlockTable) -> None:
        self.table = table

    def evaluate(self, configurations: Sequence[Configuration]) -> list[Outcome]:
        """The outcome of each; InputError where one has layers that are not cut like this."""
        found: list[Outcome | None] = [None] * len(configurations)
        together: dict[Shape, list[_Staged]] = defaultdict(list)
        for number, asked in enumerate(configurations):
            strategy = asked.strategy
            shape = strategy.schedule, strategy.pipeline, strategy.micro_batches, strategy.stages_per_device
            together[shape].append(self._staged(number, asked))
        for shape, members in together.items():
            for member, outcome in zip(members, self._timed(shape, members), strict=True):
                found[member.number] = outcome
        return [each for each in found if each is not None]

    def _staged(self, number: int, asked: Configuration) -> _Staged:
        strategy, spec = asked.strategy, asked.spec
        rows = spec.batch // (strategy.data * strategy.micro_batches)
        bounds = [0, *accumulate(strategy.layout or layers_of_stages(spec.layers, strategy.stages))]
        stages = Stages(self.table, strategy, rows)
        costs = tuple(stages.stage(s, bounds[s], bounds[s + 1]) for s in range(strategy.stages))
        return _Staged(number, asked, costs, tuple(stages.lags(bounds)))

    def _timed(self, shape: Shape, members: Sequence[_Staged]) -> list[Outcome]:
        schedule, devices, micro_batches, several = shape
        counts = counts_for(schedule, devices, micro_batches, several, schedule in BASELINES)
        seconds = np.array([[stage.seconds for stage in each.stages] for each in members]).transpose(1, 2, 0)
        lags = np.array([each.lags for each in members]).reshape(len(members), -1).T
        ends, order = np.zeros((devices * several, len(members))), None
        for count, weight in zip(counts.few, counts.weights, strict=True):
            order = order_of(schedule, devices, count, several)
            ends += weight * order.ends(seconds, lags)
        assert order is not None, "there is at least one number of micro-batches"
        return [self._outcome(order, each, ends[:, i]) for i, each in enumerate(members)]

    def _outcome(self, order: Order, member: _Staged, ends: Column) -> Outcome:
        done, peaks = list[float](), list[int]()
        for device in range(order.devices):
            mine = sorted((s for s in range(order.stages) if order.device_of[s] == device), key=lambda s: ends[s])
            reduced = 0.0
            for stage in mine:
                costs = member.stages[stage]
                reduced = max(ends[stage] + costs.tail, reduced + costs.reducing)
            end = max(reduced, *(ends[stage] for stage in mine))
            done.append(float(end + sum(member.stages[stage].update for stage in mine)))
            peaks.append(round(self._peak(order, member, device, mine)))
        ranks = self.table.ranks(member.asked.strategy)
        reason = shortage(ranks.spread(peaks), self.table.mesh) if max(peaks) > self._least_room else ""
        return Outcome(max(done), tuple(peaks), reason, tuple(done))

    @property
    def _least_room(self) -> float:
        limits = (device.memory_capacity for device in self.table.mesh.devices)
        return min((limit for limit in limits if limit is not None), default=np.inf)

    @staticmethod
    def _peak(order: Order, member: _Staged, device: int, mine: Sequence[int]) -> float:
        most = 0.0
        for moment in order.moments[device]:
            held = sum(member.stages[stage].held * count for stage, count in moment.held)
            most = max(most, held + member.stages[moment.stage].peak[min(1, moment.phase)])
        return most + sum(member.stages[stage].static for stage in mine)
