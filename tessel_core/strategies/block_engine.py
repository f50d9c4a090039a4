"""Compute the step times of strategies from blocks of layers.

A stage is a sum of layers, and a schedule orders the runs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.builder import collection_paused
from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.model import DeviceMesh
from tessel_core.scheduling import BASELINES
from tessel_core.simulation.trace import shortage
from tessel_core.strategies.blocks import TURNS, BlockTable
from tessel_core.strategies.configuration import Configuration, StrategyResult
from tessel_core.strategies.layouts import balanced
from tessel_core.strategies.order_times import Order, StageTimes, counts_for, extrapolated, order_of
from tessel_core.strategies.stages import StageCosts, Stages
from tessel_core.strategies.structure import WEIGHT

_STEADY = {name for name in BASELINES if name != "gpipe"}
"""Published orders in which a device holds a limited number of micro-batches, however many there are in total."""
_MAX_RUNS = 4_000_000
"""Largest number of runs in one computation, over all configurations. Each run needs about 30 bytes."""
Column = NDArray[np.float64]
Shape = tuple[str, int, int, bool, bool, int, tuple[int, ...]]
"""Schedule, devices, stages per device, whether it trains, whether it joins outputs, the number of streams in which
runs exchange, and numbers of micro-batches."""


@dataclass(frozen=True)
class Staged:
    """A configuration with the costs of its stages."""

    asked: Configuration
    table: BlockTable
    stages: tuple[StageCosts, ...]
    lags: tuple[float, ...]
    """Seconds to send outputs to the next stage, for each stage except the last."""
    back: tuple[float, ...]
    """Seconds to send the gradients of these outputs back, for each stage except the last."""
    device_of: tuple[int, ...]
    """Device of the pipeline for each stage."""

    @property
    def joins(self) -> bool:
        """Whether some stage joins the outputs of all micro-batches into one tensor."""
        return any(way for stage in self.stages for way in stage.joined)

    @property
    def streams(self) -> int:
        """Number of streams in which each run exchanges weights or gradients of replicas; 0 if no run does."""
        exchanging = self.stages[0].exchanging
        return 0 if exchanging is None else len(exchanging.closing) - 1

    @property
    def least_seconds(self) -> float:
        """Lower bound of the step time in seconds. It holds for every order of these stages.

        Each device waits until the first micro-batch has passed the stages before its own first stage. Then it works on
        all micro-batches, and then it runs its optimizer step. The bound is the longest such time of a device. If
        backward passes are not split, the last micro-batch also has to return through the earlier stages, before the
        first device can run its optimizer step.
        """
        there, back = [0.0], [0.0]
        for stage, sending, returning, after in zip(self.stages, self.lags, self.back, self.stages[1:], strict=False):
            forward = stage.seconds[0] - stage.leads[0] + stage.onward[0] + sending - after.leads[0]
            backward = after.onward[1] + returning + stage.seconds[1] - stage.leads[1]
            there.append(max(0.0, there[-1] + forward))
            back.append(max(0.0, back[-1] + backward))
        count, found = self.asked.strategy.micro_batches, 0.0
        stages_on = {
            device: [stage for stage, place in enumerate(self.device_of) if place == device]
            for device in dict.fromkeys(self.device_of)
        }
        update = {device: sum(self.stages[stage].update for stage in mine) for device, mine in stages_on.items()}
        for device, mine in stages_on.items():
            stages = [self.stages[stage] for stage in mine]
            work = sum(count * sum(each.seconds[:3]) + (count - 1) * each.seconds[3] + each.copying for each in stages)
            end = there[mine[0]] + work
            found = max(found, end + update[device])
            if not self.asked.strategy.form.split:
                found = max(found, end + back[mine[0]] + update[self.device_of[0]])
        return found

    @property
    def least_bytes(self) -> float:
        """Lower bound of the peak memory of the fullest device in bytes.

        In 1F1B, a device holds one micro-batch for each device from itself to the last device. In any other order, it
        holds at least one micro-batch.
        """
        strategy, found = self.asked.strategy, 0.0
        steady = strategy.schedule == "1f1b" and strategy.stages_per_device == 1 and self.table.training
        for device in set(self.device_of):
            mine = [stage for s, stage in enumerate(self.stages) if self.device_of[s] == device]
            others = min(strategy.micro_batches, strategy.pipeline - device) - 1 if steady else 0
            always = sum(self.always(stage) for stage in mine)
            full = max(max(stage.peak) + others * stage.held for stage in mine) + always
            if not steady or strategy.micro_batches <= others + 1:
                # Before the peak there may be no gradients yet, but the last backward pass always has them.
                last = min(stage.peak[1] for stage in mine) + always
                full = max(full - sum(stage.parts[1] for stage in mine), last)
            found = max(found, full)
        return found

    def always(self, stage: StageCosts) -> float:
        """Return the bytes of a stage that stay in memory during the whole step."""
        return stage.static + stage.constants + stage.samples * self.asked.strategy.micro_batches


class BlockEngine:
    """Computes step times of strategies for one network on one mesh, from blocks of layers.

    Nine in ten random strategies are within 1 % of the operation-by-operation simulation, and all within 5 %
    (tests/benchmarks/blocks.py lists those with the largest differences). Stages form a chain: a stage sends all
    values at once, also those of several branches of a network.
    """

    def __init__(self, table: BlockTable) -> None:
        self.table = table
        self._least_room = least_room(table.mesh)
        self._latest: tuple[Configuration, Stages] | None = None

    def evaluate(self, configurations: Sequence[Configuration]) -> list[StrategyResult]:
        """Return the result of each configuration.

        Raises InputError if the layers cannot be divided in one of these ways.
        """
        return self.timed([self.staged(asked) for asked in configurations])

    def least_static(self, asked: Configuration) -> float:
        """Return a lower bound of the bytes that stay in memory during the whole step on the fullest device.

        The bound assumes that all devices of the pipeline have the same number of bytes. Raises InputError in the cases
        of `staged`.
        """
        return self._stages(asked).static(0) / asked.strategy.pipeline

    def with_layout(self, asked: Configuration) -> Configuration:
        """Return the configuration with the number of layers per stage that makes the slowest stage as fast as
        possible.

        If weights and activations fit into memory for some numbers of layers per stage, only these are considered.
        Raises InputError in the cases of `staged`.
        """
        strategy = asked.strategy
        if strategy.stages == 1:
            return asked
        stages = self._stages(asked)
        filled = strategy.micro_batches >= 2 * strategy.stages or strategy.micro_batches
        key = "layout", stages.keys(), strategy.schedule, strategy.pipeline, strategy.stages_per_device, filled
        layout = self.table.once(key, lambda: self._layout(stages))
        return replace(asked, strategy=replace(strategy, layout=layout))

    def _layout(self, stages: Stages) -> tuple[int, ...]:
        """Return the best number of layers of each stage, or () if all stages have the same number."""
        strategy = stages.strategy
        seconds = stages.per_stage(stages.seconds)
        found = None
        if strategy.stages_per_device == 1 and math.isfinite(self._least_room):
            count = min(strategy.micro_batches, 2 * strategy.pipeline)
            order = order_of(strategy.schedule, strategy.pipeline, count, 1, training=self.table.training)
            fits = []
            for stage, cost in enumerate(seconds):
                held = max(1 + sum(n for _, n in moment.held) for moment in order.moments[stage] if not moment.phase)
                fits.append(np.where(stages.bytes(stage, held) <= self._least_room, cost, np.inf))
            found = balanced(fits)
        found = found or balanced(seconds) or ()
        return () if found == layers_of_stages(sum(found), strategy.stages) else found

    def _stages(self, asked: Configuration) -> Stages:
        """Return the stages of any layout. The latest ones are kept, because a search asks for them in turn."""
        strategy = replace(asked.strategy, layout=()) if asked.strategy.layout else asked.strategy
        of_any = Configuration(asked.spec, strategy)
        if self._latest is None or self._latest[0] != of_any:
            with collection_paused():
                self._latest = of_any, Stages(self.table, strategy, _rows(asked))
        return self._latest[1]

    def staged(self, asked: Configuration) -> Staged:
        """Return the stages of a configuration. Raises InputError if the layers cannot be divided in this way."""
        strategy = asked.strategy
        bounds = [0, *accumulate(strategy.layout or layers_of_stages(asked.spec.layers, strategy.stages))]
        stages = self._stages(asked)
        with collection_paused():
            costs = tuple(stages.stage(s, bounds[s], bounds[s + 1]) for s in range(strategy.stages))
            onward, back = stages.sends(bounds)
        return Staged(asked, self.table, costs, tuple(onward), tuple(back), tuple(stages.places))

    def timed(self, every: Sequence[Staged]) -> list[StrategyResult]:
        """Return the result of each configuration."""
        return timed(every)


def timed(every: Sequence[Staged]) -> list[StrategyResult]:
    """Return the result of each configuration. Configurations with the same order are computed together."""
    together: dict[Shape, list[int]] = defaultdict(list)
    counts = []
    for number, each in enumerate(every):
        strategy, joins = each.asked.strategy, each.joins
        shape = strategy.pipeline, strategy.stages_per_device
        # The time to join outputs grows with each micro-batch, so times cannot be extrapolated from few micro-batches.
        repeats = strategy.schedule in _STEADY and not joins and each.table.training
        counts.append(counts_for(*shape, strategy.micro_batches, repeats=repeats))
        together[strategy.schedule, *shape, each.table.training, joins, each.streams, counts[-1].few].append(number)
    found = list[StrategyResult | None]([None] * len(every))
    for (schedule, devices, several, training, joins, _, few), alike in together.items():
        orders = [order_of(schedule, devices, count, several, training=training, joins=joins) for count in few]
        at_once = max(1, _MAX_RUNS // len(orders[-1].stage))
        for numbers in (alike[i : i + at_once] for i in range(0, len(alike), at_once)):
            members = [every[number] for number in numbers]
            times = _times(members, max(few) if joins else 0)
            known = [order.ends(times) for order in orders]
            ends = known[-1]
            if len(few) > 1:
                share = np.array([counts[number].weights[-1] - 1 for number in numbers])
                ends = extrapolated(known[0], ends, share, (few[1] - few[0]) * orders[-1].busiest(times.seconds))
            for i, number in enumerate(numbers):
                found[number] = _outcome(orders[-1], members[i], ends[:, i])
    return [each for each in found if each is not None]


def _times(members: Sequence[Staged], turns: int) -> StageTimes:
    """Return the times of the stages of configurations that all have the same number of stages.

    `turns` is the number of micro-batches whose outputs are joined, or 0 if no outputs are joined.
    """
    seconds = np.array([[(*stage.seconds, stage.copying) for stage in each.stages] for each in members])
    onward = np.array([[stage.onward for stage in each.stages] for each in members])
    sends = np.array([(each.lags, each.back) for each in members]).reshape(len(members), 2, -1)
    joining = None
    if turns:
        joining = np.zeros((len(members[0].stages), 2, turns, len(members)))
        known: dict[int, Column] = {}
        for i, each in enumerate(members):
            for s, stage in enumerate(each.stages):
                if id(stage) not in known:
                    known[id(stage)] = np.array([_joining(stage, way, turns) for way in (0, 1)])
                joining[s, :, :, i] = known[id(stage)]
    talks, trailing = None, np.array([[stage.trailing for stage in each.stages] for each in members])
    if trailing.any():
        talks = np.array([[stage.talks for stage in each.stages] for each in members]).transpose(1, 2, 0)
    leads = np.array([[stage.leads for stage in each.stages] for each in members])
    first = seconds.transpose(1, 2, 0), onward.transpose(1, 2, 0), sends.transpose(2, 1, 0), leads.transpose(1, 2, 0)
    runs = closing = None
    if members[0].streams:
        exchanges = [[stage.exchanging for stage in each.stages if stage.exchanging] for each in members]
        runs = np.stack([np.stack([each.runs for each in some]) for some in exchanges], axis=-1)
        closing = np.stack([np.array([each.closing for each in some]) for some in exchanges], axis=-1)
    return StageTimes(*first, talks, trailing.transpose(1, 2, 0), runs, closing, joining)


def _joining(stage: StageCosts, way: int, turns: int) -> Column:
    """Return an array of the seconds to join the outputs of a run, indexed by the number of earlier micro-batches."""
    found = np.zeros(turns)
    for seconds, several in Counter(each.seconds for each in stage.joined[way]).items():
        found += several * np.interp(np.arange(turns), TURNS, seconds)
    return found


def _outcome(order: Order, member: Staged, ends: Column) -> StrategyResult:
    done, peaks = list[float](), list[int]()
    for device in range(order.devices):
        mine = sorted((s for s in range(order.stages) if order.device_of[s] == device), key=lambda s: ends[s])
        reduced = 0.0
        for stage in mine:
            costs = member.stages[stage]
            reduced = max(ends[stage] + costs.tail, reduced + costs.reducing)
        end = max(reduced, *(ends[stage] for stage in mine))
        done.append(float(end + sum(member.stages[stage].update for stage in mine)))
        peaks.append(round(_peak(order, member, device, mine)))
    mesh, reason = member.table.mesh, ""
    if max(peaks) > least_room(mesh):
        reason = shortage(member.table.wiring(member.asked.strategy).ranks.spread(peaks), mesh)
    return StrategyResult(max(done), tuple(peaks), reason, tuple(done), by_blocks=True)


def _peak(order: Order, member: Staged, device: int, mine: Sequence[int]) -> float:
    """Return the peak memory of a device in bytes."""
    stages, most, joins = member.stages, 0.0, member.joins
    for moment in order.moments[device]:
        phase, stage = min(1, moment.phase), stages[moment.stage]
        held = sum(stages[s].held * count for s, count in moment.held)
        held += sum(stages[s].kept * count for s, count in moment.kept)
        if joins:
            held += sum(stages[s].joined_bytes[way] * count for (way, s), count in moment.done)
        held -= sum(stages[s].parts[1] for s in mine if s not in moment.made)
        first = moment.stage not in moment.made
        if moment.phase == WEIGHT:
            running = stage.peak_of_weights + stage.parts[1] * first
        elif phase and first and not member.asked.strategy.form.split:
            running = stage.first_peak
        else:
            running = stage.peak[phase]
        if stage.joined[phase]:
            before = dict(moment.done).get((phase, moment.stage), 0)
            running = max(running, *(each.level + before * each.bytes for each in stage.joined[phase]))
        most = max(most, held + running)
    after = sum(stages[s].after for s in mine)
    after += sum(sum(stages[s].joined_bytes) * member.asked.strategy.micro_batches for s in mine)
    return max(most, after) + sum(member.always(stages[s]) for s in mine)


def least_room(mesh: DeviceMesh) -> float:
    """Return the memory in bytes of the device that has the least. It is infinite if no device has a limit."""
    limits = (device.memory_capacity for device in mesh.devices)
    return min((limit for limit in limits if limit is not None), default=math.inf)


def _rows(asked: Configuration) -> int:
    """Return the number of samples per micro-batch."""
    return asked.spec.batch // (asked.strategy.data * asked.strategy.micro_batches)
