"""Stages as sums of blocks: seconds of a micro-batch, memory, and the traffic of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.types import TensorType
from tessel_core.strategies.blocks import Blocks, BlockTable, Weight
from tessel_core.strategies.strategy import Strategy

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What replicas exchange for one layer, in seconds; and the bytes of it that one of them has."""

    gather: float
    """To gather the weights, where each replica has a part."""
    scatter: float
    """To scatter the gradients of a micro-batch, where each replica has a part."""
    reduce: float
    """To reduce its gradients at the end of the step."""
    update: float
    """To gather the updated weights at the end of the step."""
    weights: float
    gradients: float
    state: float
    numbers: float
    """Numbers of weights that a replica updates."""


@dataclass(frozen=True, slots=True)
class StageCosts:
    """A stage on one device of its place."""

    seconds: tuple[float, float, float, float]
    """Of a micro-batch: forward, backward, gradients of weights where they are apart, and adding gradients up."""
    tail: float
    """Seconds from the end of the last backward to the end of its reductions, where nothing else holds them up."""
    reducing: float
    """Seconds of all its reductions."""
    update: float
    """Seconds of the optimizer's step, and to gather what it has updated."""
    static: float
    """Bytes of weights, gradients and the optimizer's state."""
    held: float
    """Bytes of a micro-batch between its forward and its backward."""
    peak: tuple[float, float]
    """Bytes of the running micro-batch at its fullest moment, in its forward and in its backward."""
    busy: float
    """Seconds of computing for a micro-batch."""


class Stages:
    """Makes the stages of one strategy."""

    def __init__(self, table: BlockTable, strategy: Strategy, rows: int) -> None:
        self._table, self.strategy, self._rows = table, strategy, rows
        form, devices = strategy.form, strategy.pipeline
        self._places = [form.device_of(stage, devices) for stage in range(strategy.stages)]

    def blocks(self, stage: int) -> Blocks:
        """The blocks of a stage's device."""
        return self._table.blocks(self.strategy, self._rows, self._places[stage])

    @cached_property
    def several(self) -> bool:
        """Whether gradients of several micro-batches are added up."""
        return self.strategy.micro_batches > 1

    def traffic(self, stage: int) -> list[Traffic]:
        """Per layer of the short network."""
        table, strategy, blocks, place = self._table, self.strategy, self.blocks(stage), self._places[stage]
        sharing = strategy.zero, strategy.scatters_at_once, strategy.bucket_bytes
        key = id(blocks), sharing, table.replicas_lie(strategy, place)
        return table.once(key, lambda: [_traffic(table, strategy, place, each) for each in blocks.weights])

    def stage(self, stage: int, first: int, last: int) -> StageCosts:
        """The stage of the layers from `first` to before `last`."""
        blocks, strategy = self.blocks(stage), self.strategy
        layers, rows = blocks.layers, blocks.stands_for[first:last].tolist()
        traffic = self.traffic(stage)
        mine, cut = [traffic[row] for row in rows], slice(first, last)
        forward, backward, weight = layers.forward[cut], layers.backward[cut], layers.weight[cut]
        adding = layers.adding[cut] / self._parts if self.several else np.zeros(len(mine))
        tail = reducing = 0.0
        ready = weight if strategy.form.split else backward
        if strategy.scatters_at_once:
            scatter = np.array([each.scatter for each in mine])
            gather = np.array([each.gather for each in mine])
            forward = np.maximum(forward, np.append(gather[1:], gather[0]))
            again = np.append(gather[:1], gather[:-1]) if strategy.reshard else np.zeros(len(mine))
            if strategy.zero == 3:
                exchanging = np.append(scatter[1:], 0.0) + again
                backward, tail = np.maximum(backward, exchanging - adding), float(scatter[0])
            elif self.several:
                stretch = max(1.0, float(scatter.sum() / (backward + weight + adding).sum()))
                backward, tail = backward * stretch, float(scatter[0])
            else:
                tail, reducing = _reductions(ready, scatter.tolist())
        else:
            tail, reducing = _reductions(ready + adding, [each.reduce for each in mine])
        update = sum(each.numbers for each in mine) * blocks.update + sum(each.update for each in mine)
        static = sum(each.weights + each.state for each in mine)
        seconds = float(forward.sum()), float(backward.sum()), float(weight.sum()), float(adding.sum())
        gradients = np.array([each.gradients for each in mine])
        peak, extra = self._peaks(blocks, cut, gradients)
        held, busy = float(layers.held[cut].sum()), float(layers.busy[cut].sum())
        return StageCosts(seconds, tail, reducing, update, static + extra, held, peak, busy)

    @property
    def _parts(self) -> int:
        """Parts of gradients that replicas add up on their own."""
        return self.strategy.data * self.strategy.context if self.strategy.scatters_at_once else 1

    def _peaks(self, blocks: Blocks, cut: slice, gradients: Column) -> tuple[tuple[float, float], float]:
        """Bytes of the running micro-batch at most, and those of gradients that stay from one to the next."""
        layers, strategy = blocks.layers, self.strategy
        held = np.cumsum(layers.held[cut])
        forward = held - layers.held[cut] + layers.space_forward[cut]
        backward = held + layers.space_backward[cut]
        gathered = 0.0
        if strategy.zero == 3 and strategy.scatters_at_once:
            whole = layers.weights[cut]
            two = whole + np.append(whole[1:], 0.0)
            gathered = float(two.max() if strategy.reshard else whole.sum())
        if self.several:
            extra = float(gradients.sum())
        else:
            later = np.cumsum(gradients[::-1])[::-1] - gradients
            backward, extra = backward + later, 0.0
        return (float(forward.max()) + gathered, float(backward.max()) + gathered), extra

    def lags(self, bounds: list[int]) -> list[float]:
        """Per stage but the last, seconds until what it makes has reached the next one."""
        found = []
        for stage, last in enumerate(bounds[1:-1]):
            blocks = self.blocks(stage)
            tensors = blocks.crossing[blocks.stands_for[last - 1]]
            places = self._places[stage], self._places[stage + 1]
            found.append(self._table.send(self.strategy, *places, tensors) if places[0] != places[1] else 0.0)
        return found


def _reductions(backward: Column, reduce: list[float]) -> tuple[float, float]:
    """Seconds by which reductions end after the backward, layer after layer from the last; and of all of them."""
    done = now = 0.0
    for seconds, wanted in zip(backward[::-1].tolist(), reduce[::-1], strict=True):
        now += seconds
        done = max(done, now) + wanted
    total = sum(reduce)
    return (done - now if total else 0.0), total


def _traffic(table: BlockTable, strategy: Strategy, place: int, weights: tuple[Weight, ...]) -> Traffic:
    """The traffic of one layer."""
    degrees = table.ranks(strategy).degrees
    sums = dict.fromkeys(("gather", "scatter", "reduce", "update"), 0.0)
    sizes = dict.fromkeys(("weights", "gradients", "state", "numbers"), 0.0)
    at_once, shared = strategy.scatters_at_once, strategy.zero > 0
    for over in dict.fromkeys(each.over for each in weights):
        mine, degree = [each for each in weights if each.over == over], degrees.of(over)
        for each in mine:
            part = degree if shared else 1
            cut = degree if at_once and strategy.zero == 3 else 1
            sizes["weights"] += each.type.bytes / cut
            sizes["gradients"] += each.gradient.bytes / (degree if at_once else 1)
            sizes["state"] += each.state / part
            sizes["numbers"] += each.gradient.elements / part
        whole = TensorType("uint8", (sum(each.type.bytes for each in mine),), 1)
        made = TensorType("uint8", (sum(each.gradient.bytes for each in mine),), 1)
        if at_once:
            sums["scatter"] += table.collective(strategy, place, "reduce_scatter", over, made)
            if strategy.zero == 3:
                sums["gather"] += table.collective(strategy, place, "allgather", over, whole)
            else:
                sums["update"] += table.collective(strategy, place, "allgather", over, whole)
            continue
        for bucket in _buckets(mine, strategy.bucket_bytes):
            of_type = TensorType("uint8", (bucket,), 1)
            kind = "reduce_scatter" if shared else "allreduce"
            sums["reduce"] += table.collective(strategy, place, kind, over, of_type)
        if shared:
            sums["update"] += table.collective(strategy, place, "allgather", over, whole)
    return Traffic(**sums, **sizes)


def _buckets(weights: list[Weight], most: int) -> list[int]:
    """Bytes of gradients that are reduced together, in the order in which they are made."""
    found, held = list[int](), 0
    for each in weights:
        held += each.gradient.bytes
        if held >= max(1, most):
            found.append(held)
            held = 0
    return found + ([held] if held else [])
