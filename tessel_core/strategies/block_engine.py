"""Strategies timed by blocks: stages as sums of layers, the pipeline as its schedule's order, replicas at the end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.scheduling import BASELINES
from tessel_core.simulation.trace import shortage
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration, StrategyResult
from tessel_core.strategies.layouts import balanced
from tessel_core.strategies.order_times import Order, counts_for, extrapolated, order_of
from tessel_core.strategies.stages import StageCosts, Stages

_STEADY = {name for name in BASELINES if name != "gpipe"}
"""Published orders that hold no more micro-batches, however many there are."""
Column = NDArray[np.float64]
Shape = tuple[str, int, int, tuple[int, ...]]
"""Schedule, devices of the pipeline, stages per device, numbers of micro-batches."""


@dataclass(frozen=True)
class Staged:
    """A configuration as stages."""

    asked: Configuration
    stages: tuple[StageCosts, ...]
    lags: tuple[float, ...]
    """Seconds from each stage but the last to the next."""
    device_of: tuple[int, ...]
    """Per stage."""

    @property
    def least_seconds(self) -> float:
        """Seconds below which no order of these stages is: the work of a device, and the way to its first stage.

        A device waits for its first micro-batch until the stages before have run.  After its last backward come its
        optimizer's step, and, where backward passes are whole, that of the stages before with the optimizer's step of
        the first device.
        """
        seconds = [sum(stage.seconds[:3]) for stage in self.stages]
        way = zip(self.stages, seconds, self.lags, strict=False)
        steps = [(stage.seconds[0] + lag, one - stage.seconds[0] + lag) for stage, one, lag in way]
        there, back = (list(accumulate((step[i] for step in steps), initial=0.0)) for i in (0, 1))
        count, found = self.asked.strategy.micro_batches, 0.0
        update = [
            sum(stage.update for stage, place in zip(self.stages, self.device_of, strict=True) if place == device)
            for device in range(1 + max(self.device_of))
        ]
        for device in set(self.device_of):
            mine = [stage for stage, place in enumerate(self.device_of) if place == device]
            work = sum(count * seconds[stage] + (count - 1) * self.stages[stage].seconds[3] for stage in mine)
            end = there[mine[0]] + work
            found = max(found, end + update[device])
            if not self.asked.strategy.form.split:
                found = max(found, end + back[mine[0]] + update[self.device_of[0]])
        return found

    @property
    def least_bytes(self) -> float:
        """Bytes of the fullest device below which no order of these stages is.

        1F1B holds a micro-batch for each device from there to the end; any other order holds one.
        """
        strategy, found = self.asked.strategy, 0.0
        steady = strategy.schedule == "1f1b" and strategy.stages_per_device == 1
        for device in set(self.device_of):
            mine = [stage for s, stage in enumerate(self.stages) if self.device_of[s] == device]
            others = min(strategy.micro_batches, strategy.pipeline - device) - 1 if steady else 0
            running = max(max(stage.peak) + others * stage.held for stage in mine)
            found = max(found, running + sum(stage.static for stage in mine))
        return found


class BlockEngine:
    """Times strategies of one network on one mesh by the blocks of its layers.

    Of random strategies half are within 1 % of the operation-by-operation simulation, and nine in ten within 5 %
    (tests/benchmarks/blocks.py lists those that differ most).  Stages are timed as a chain: branches of a network that
    could run side by side on different stages do not.
    """

    def __init__(self, table: BlockTable) -> None:
        self.table = table
        limits = (device.memory_capacity for device in table.mesh.devices)
        self._least_room = min((limit for limit in limits if limit is not None), default=math.inf)

    def evaluate(self, configurations: Sequence[Configuration]) -> list[StrategyResult]:
        """The outcome of each; InputError where one has layers that are not cut like this."""
        return self.timed([self.staged(asked) for asked in configurations])

    def least_static(self, asked: Configuration) -> float:
        """Bytes that stay in memory all the time, if devices of a pipeline could share them evenly.

        Raises InputError as `staged`.
        """
        return Stages(self.table, asked.strategy, _rows(asked)).whole().static / asked.strategy.pipeline

    def with_layout(self, asked: Configuration) -> Configuration:
        """The configuration with the layers of each stage chosen so that the slowest stage is fastest.

        Where layouts exist whose weights and activations fit, only those count.  Raises InputError as `staged`.
        """
        strategy = asked.strategy
        if strategy.stages == 1:
            return asked
        stages = Stages(self.table, strategy, _rows(asked))
        filled = strategy.micro_batches >= 2 * strategy.stages or strategy.micro_batches
        key = "layout", stages.keys(), strategy.schedule, strategy.pipeline, strategy.stages_per_device, filled
        layout = self.table.once(key, lambda: self._layout(stages))
        return replace(asked, strategy=replace(strategy, layout=layout))

    def _layout(self, stages: Stages) -> tuple[int, ...]:
        """Empty where equal numbers of layers are as good."""
        strategy = stages.strategy
        seconds = [stages.seconds(stage) for stage in range(strategy.stages)]
        found = None
        if strategy.stages_per_device == 1 and math.isfinite(self._least_room):
            count = min(strategy.micro_batches, 2 * strategy.pipeline)
            order = order_of(strategy.schedule, strategy.pipeline, count, 1)
            fits = []
            for stage, cost in enumerate(seconds):
                held = max(1 + sum(n for _, n in moment.held) for moment in order.moments[stage] if not moment.phase)
                fits.append(np.where(stages.bytes(stage, held) <= self._least_room, cost, np.inf))
            found = balanced(fits)
        found = found or balanced(seconds) or ()
        return () if found == layers_of_stages(sum(found), strategy.stages) else found

    def staged(self, asked: Configuration) -> Staged:
        """The stages of a configuration.  Raises InputError where layers are not cut like this."""
        strategy = asked.strategy
        bounds = [0, *accumulate(strategy.layout or layers_of_stages(asked.spec.layers, strategy.stages))]
        stages = Stages(self.table, strategy, _rows(asked))
        costs = tuple(stages.stage(s, bounds[s], bounds[s + 1]) for s in range(strategy.stages))
        return Staged(asked, costs, tuple(stages.lags(bounds)), tuple(stages.places))

    def timed(self, every: Sequence[Staged]) -> list[StrategyResult]:
        """The outcome of each, those whose orders are alike together."""
        together: dict[Shape, list[int]] = defaultdict(list)
        counts = []
        for number, each in enumerate(every):
            strategy = each.asked.strategy
            shape = strategy.pipeline, strategy.stages_per_device
            counts.append(counts_for(*shape, strategy.micro_batches, repeats=strategy.schedule in _STEADY))
            together[strategy.schedule, *shape, counts[-1].few].append(number)
        found = list[StrategyResult | None]([None] * len(every))
        for (schedule, devices, several, few), numbers in together.items():
            members = [every[number] for number in numbers]
            seconds = np.array([[stage.seconds for stage in each.stages] for each in members]).transpose(1, 2, 0)
            lags = np.array([each.lags for each in members]).reshape(len(members), -1).T
            orders = [order_of(schedule, devices, count, several) for count in few]
            known = [order.ends(seconds, lags) for order in orders]
            ends = known[-1]
            if len(few) > 1:
                share = np.array([counts[number].weights[-1] - 1 for number in numbers])
                ends = extrapolated(known[0], ends, share, (few[1] - few[0]) * orders[-1].busiest(seconds))
            for i, number in enumerate(numbers):
                found[number] = self._outcome(orders[-1], members[i], ends[:, i])
        return [each for each in found if each is not None]

    def _outcome(self, order: Order, member: Staged, ends: Column) -> StrategyResult:
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
        reason = ""
        if max(peaks) > self._least_room:
            ranks = self.table.wiring(member.asked.strategy).ranks
            reason = shortage(ranks.spread(peaks), self.table.mesh)
        return StrategyResult(max(done), tuple(peaks), reason, tuple(done))

    @staticmethod
    def _peak(order: Order, member: Staged, device: int, mine: Sequence[int]) -> float:
        most = 0.0
        for moment in order.moments[device]:
            held = sum(member.stages[stage].held * count for stage, count in moment.held)
            most = max(most, held + member.stages[moment.stage].peak[min(1, moment.phase)])
        return most + sum(member.stages[stage].static for stage in mine)


def _rows(asked: Configuration) -> int:
    """Samples of a micro-batch."""
    return asked.spec.batch // (asked.strategy.data * asked.strategy.micro_batches)
