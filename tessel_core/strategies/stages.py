"""Stages as sums of blocks: seconds of a micro-batch, memory, and the traffic of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.expansion import DATA, EXPERT_DATA, REPLICAS
from tessel_core.strategies.blocks import Blocks, BlockTable, Weight
from tessel_core.strategies.layouts import Matrix, maxima, sums
from tessel_core.strategies.strategy import Strategy
from tessel_core.strategies.wiring import Wiring

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What replicas exchange for one layer, in seconds; and the bytes of it that one of them has."""

    gather: float
    """To gather the weights, where each replica has a part, but for the root's."""
    copy: float
    """To copy these out of their buffers."""
    root: float
    """To gather the root's weights and to copy them, which is done once for both directions."""
    scatter: float
    """To scatter the gradients of a micro-batch, where each replica has a part."""
    first: float
    """To scatter its first part, which nothing hides at the beginning of the next micro-batch."""
    reduce: float
    """To reduce its gradients at the end of the step."""
    update: float
    """To gather the updated weights at the end of the step."""
    adding: float
    """To add up the gradients of a micro-batch, or a replica's part of them."""
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
    parts: tuple[float, float, float]
    """Bytes of weights, of gradients that stay, and of the optimizer's state: together `static`."""
    held: float
    """Bytes of a micro-batch between its forward and its backward."""
    peak: tuple[float, float]
    """Bytes of the running micro-batch at its fullest moment, in its forward and in its backward."""


class Stages:
    """Makes the stages of one strategy."""

    def __init__(self, table: BlockTable, strategy: Strategy, rows: int) -> None:
        self._table, self.strategy, self._rows = table, strategy, rows
        form, devices = strategy.form, strategy.pipeline
        self._wiring = table.wiring(strategy)
        self.places = [form.device_of(stage, devices) for stage in range(strategy.stages)]
        """Per stage, its device of the pipeline."""
        self._classes = [self._wiring.classes[place] for place in self.places]
        self.several = strategy.micro_batches > 1
        """Whether gradients of several micro-batches are added up."""
        self._blocks = {place: table.blocks(strategy, rows, place) for place in dict.fromkeys(self._classes)}
        sharing = strategy.zero, strategy.reshard, strategy.scatters_at_once, strategy.bucket_bytes, form.split
        self._keys = {place: (id(each), *sharing, *self._lie(place)) for place, each in self._blocks.items()}
        """What the stages at a place depend on besides their layers."""

    def _lie(self, place: int) -> list[object]:
        """How many replicas there are, and how they lie on nodes, for weights and for experts."""
        strategy, degrees = self.strategy, self._wiring.ranks.degrees
        overs = (REPLICAS if strategy.context > 1 else DATA, *([EXPERT_DATA] if strategy.expert > 1 else ()))
        return [(over, degrees.of(over), self._wiring.pattern(over, place)) for over in overs]

    def blocks(self, stage: int) -> Blocks:
        """The blocks of a stage's device."""
        return self._blocks[self._classes[stage]]

    def traffic(self, stage: int) -> list[Traffic]:
        """Per layer of the short network."""
        place = self._classes[stage]
        key, rows = ("traffic", self._keys[place]), self._blocks[place].weights
        least = self._blocks[place].least_add
        return self._table.once(key, lambda: [_traffic(self._wiring, self.strategy, place, r, least) for r in rows])

    def stage(self, stage: int, first: int, last: int) -> StageCosts:
        """The stage of the layers from `first` to before `last`."""
        rows = self.blocks(stage).stands_for[first:last].tobytes()
        key = "stage", self._keys[self._classes[stage]], self.several, rows
        return self._table.once(key, lambda: self._stage(stage, first, last))

    def keys(self) -> tuple[object, ...]:
        """What the layout of the stages depends on."""
        return tuple(self._keys[place] for place in self._classes) if len(self._keys) > 1 else (*self._keys.values(),)

    def whole(self) -> StageCosts:
        """All layers as one stage."""
        return self.stage(0, 0, len(self.blocks(0).stands_for))

    def seconds(self, stage: int) -> Matrix:
        """Seconds of a micro-batch in a stage of the layers from i to before j, as [i, j], without traffic."""
        layers = self.blocks(stage).layers
        each = layers.forward + layers.backward + layers.weight + (layers.adding if self.several else 0.0)
        return sums(each)

    def bytes(self, stage: int, held: int) -> Matrix:
        """Bytes of a stage of the layers from i to before j that holds so many micro-batches, as [i, j]."""
        layers, traffic = self.blocks(stage).layers, self.traffic(stage)
        rows = self.blocks(stage).stands_for
        kept = np.array([each.weights + each.state + each.gradients for each in traffic])[rows]
        space = np.maximum(layers.space_forward, layers.space_backward)
        return sums(kept + held * layers.held) + maxima(space)

    def _stage(self, stage: int, first: int, last: int) -> StageCosts:
        blocks, strategy = self.blocks(stage), self.strategy
        layers, rows = blocks.layers, blocks.stands_for[first:last].tolist()
        traffic = self.traffic(stage)
        mine, cut = [traffic[row] for row in rows], slice(first, last)
        forward, backward, weight = layers.forward[cut], layers.backward[cut], layers.weight[cut]
        adding = np.array([each.adding for each in mine]) if self.several else np.zeros(len(mine))
        tail = reducing = 0.0
        ready = weight if strategy.form.split else backward
        if strategy.scatters_at_once:
            scatter = np.array([each.scatter for each in mine])
            gather = np.array([each.gather for each in mine])
            copy = np.array([each.copy for each in mine])
            again = np.append(gather[:1], gather[:-1]) if strategy.reshard else np.zeros(len(mine))
            if strategy.zero == 3:
                forward = np.maximum(forward + copy, np.append(gather[1:], 0.0))
                backward = backward + copy * strategy.reshard
                # Nothing is gathered ahead of a run; in a pipeline, what a run scatters ends before the next begins.
                forward[0] += gather[0] + sum(each.root for each in mine)
                forward[0] += mine[0].first if self.several and strategy.pipeline == 1 else 0.0
                exchanging = np.append(scatter[1:], 0.0) + again
                backward, tail = np.maximum(backward, exchanging - adding), float(scatter[0])
            elif self.several:
                # In a pipeline, what is scattered has the time of the next forward, too.
                hidden = float((backward + weight + adding).sum())
                hidden += float(forward.sum()) if strategy.pipeline > 1 else 0.0
                backward = backward * max(1.0, 1 + (scatter.sum() - hidden) / backward.sum())
                tail = float(scatter[0])
            else:
                tail, reducing = _reductions(ready, scatter.tolist())
        else:
            tail, reducing = _reductions(ready + adding, [each.reduce for each in mine])
        update = sum(each.numbers for each in mine) * blocks.update + sum(each.update for each in mine)
        weights, state = sum(each.weights for each in mine), sum(each.state for each in mine)
        seconds = float(forward.sum()), float(backward.sum()), float(weight.sum()), float(adding.sum())
        gradients = np.array([each.gradients for each in mine])
        peak, extra = self._peaks(blocks, cut, gradients)
        parts, held = (weights, extra, state), float(layers.held[cut].sum())
        return StageCosts(seconds, tail, reducing, update, sum(parts), parts, held, peak)

    def _peaks(self, blocks: Blocks, cut: slice, gradients: Column) -> tuple[tuple[float, float], float]:
        """Bytes of the running micro-batch at most, and those of gradients that stay from one to the next."""
        layers, strategy = blocks.layers, self.strategy
        held = np.cumsum(layers.held[cut])
        forward = held - layers.held[cut] + layers.space_forward[cut]
        backward = held + layers.space_backward[cut]
        gathered = 0.0
        if strategy.zero == 3 and strategy.scatters_at_once:
            of_row = [sum(each.type.bytes for each in row if each.root) for row in blocks.weights]
            roots = np.array(of_row, float)[blocks.stands_for[cut]]
            whole = layers.weights[cut] - roots
            two = whole + np.append(whole[1:], 0.0)
            gathered = float((two.max() if strategy.reshard else whole.sum()) + roots.sum())
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
            places = self.places[stage], self.places[stage + 1]
            found.append(self._wiring.send(*places, tensors) if places[0] != places[1] else 0.0)
        return found


def _reductions(backward: Column, reduce: list[float]) -> tuple[float, float]:
    """Seconds by which reductions end after the backward, layer after layer from the last; and of all of them."""
    done = now = 0.0
    for seconds, wanted in zip(backward[::-1].tolist(), reduce[::-1], strict=True):
        now += seconds
        done = max(done, now) + wanted
    total = sum(reduce)
    return (done - now if total else 0.0), total


def _traffic(wiring: Wiring, strategy: Strategy, place: int, weights: tuple[Weight, ...], least_add: float) -> Traffic:
    """The traffic of one layer; groups of different dimensions exchange at the same time."""
    degrees, at_once, shared = wiring.ranks.degrees, strategy.scatters_at_once, strategy.zero > 0
    seconds = dict.fromkeys(("gather", "copy", "root", "scatter", "first", "reduce", "update"), 0.0)
    sizes = dict.fromkeys(("adding", "weights", "gradients", "state", "numbers"), 0.0)
    for over in dict.fromkeys(each.over for each in weights):
        mine, degree = [each for each in weights if each.over == over], degrees.of(over)
        for each in mine:
            part = degree if shared else 1
            sizes["weights"] += each.type.bytes / (degree if at_once and strategy.zero == 3 else 1)
            sizes["gradients"] += each.gradient.bytes / (degree if at_once else 1)
            sizes["state"] += each.state / part
            sizes["adding"] += max(least_add, each.add / (degree if at_once else 1)) if each.add else 0.0
            sizes["numbers"] += each.gradient.elements / part
        first = [each for each in mine if each.scope == weights[-1].scope]
        whole, made = _bytes(mine)
        found = dict.fromkeys(seconds, 0.0)
        if at_once:
            found["scatter"] = wiring.collective(place, "reduce_scatter", over, made)
            found["first"] = wiring.collective(place, "reduce_scatter", over, _bytes(first)[1])
        else:
            kind = "reduce_scatter" if shared else "allreduce"
            buckets = _buckets(mine, strategy.bucket_bytes)
            found["reduce"] = sum(wiring.collective(place, kind, over, bucket) for bucket in buckets)
        if at_once and strategy.zero == 3:
            root, rest = ([each for each in mine if each.root is kind] for kind in (True, False))
            found["gather"] = wiring.collective(place, "allgather", over, _bytes(rest)[0])
            found["root"] = wiring.collective(place, "allgather", over, _bytes(root)[0])
            if degree > 1:
                found["root"] += sum(each.copy for each in root)
                found["copy"] = sum(each.copy for each in rest)
        elif shared:
            found["update"] = wiring.collective(place, "allgather", over, whole)
        seconds = {name: max(seconds[name], found[name]) for name in seconds}
    return Traffic(**seconds, **sizes)


def _bytes(weights: Sequence[Weight]) -> tuple[int, int]:
    """Of the weights and of their gradients."""
    return sum(each.type.bytes for each in weights), sum(each.gradient.bytes for each in weights)


def _buckets(weights: list[Weight], most: int) -> list[int]:
    """Bytes of gradients that are reduced together, in the order in which they are made."""
    found, held = list[int](), 0
    for each in weights:
        held += each.gradient.bytes
        if held >= max(1, most):
            found.append(held)
            held = 0
    return found + ([held] if held else [])
