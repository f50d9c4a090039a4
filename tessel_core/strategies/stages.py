"""Compute the costs of stages from blocks: time per micro-batch, memory, and communication between replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.expansion import DATA, EXPERT_DATA, REPLICAS, Degrees
from tessel_core.strategies.blocks import Blocks, BlockTable, Joined, Unit, Weight
from tessel_core.strategies.exchanges import Exchanging, Step, Streams, exchanging
from tessel_core.strategies.layouts import Matrix, sums
from tessel_core.strategies.strategy import ZERO_STAGES, Strategy
from tessel_core.strategies.structure import BACKWARD, FORWARD, PHASES, WEIGHT

Column = NDArray[np.float64]
Integers = NDArray[np.int64]
T = TypeVar("T")
_MIN_JOINED_SHARE = 5e-5
"""Outputs that micro-batches join are ignored if they are smaller than this fraction of a stage's memory.

An example is one loss per sample.
"""
MAX_BUCKETED_WEIGHTS = 500
"""Up to this number of weights in a stage, buckets contain weights of several layers.

With more, each layer has its own.
"""


class Traffic(NamedTuple):
    """What each replica has and adds of the weights and gradients of one or more layers."""

    adding: float
    """Seconds to add the gradients of a micro-batch to their sums. A replica adds only its own part of them."""
    copying: float
    """Seconds to copy the gradients of the first micro-batch. A replica copies only its own part of them."""
    weights: float
    """Bytes of weights."""
    gradients: float
    """Bytes of gradients that are kept between micro-batches."""
    reduced: float
    """Bytes of gradients after the reduction at the end of the step."""
    state: float
    """Bytes of the optimizer's state."""
    numbers: float
    """Number of weight elements that a replica updates."""


_WEIGHTS, _GRADIENTS, _REDUCED, _STATE = map(Traffic._fields.index, ("weights", "gradients", "reduced", "state"))


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Step time and memory of a stage on one of its devices."""

    seconds: tuple[float, float, float, float]
    """Seconds per micro-batch: forward, backward, gradients of weights (if split off), adding gradients."""
    copying: float
    """Seconds to copy the gradients of the first micro-batch, which are not added."""
    onward: tuple[float, float]
    """Seconds from the end of a forward or backward run until its outputs are ready.

    Negative if they are ready earlier.
    """
    leads: tuple[float, float]
    """Seconds of a forward or backward run until it uses an input from another stage."""
    talks: tuple[float, float, float]
    """Seconds from the start of a run to its first collective, for each phase.

    Only collectives among the devices that divide the layers of the stage count.
    """
    trailing: tuple[float, float, float]
    """Seconds by which these collectives end after the run, for each phase."""
    exchanging: Exchanging | None
    """The runs if each of them exchanges weights or gradients of replicas; None if replicas exchange at the end."""
    tail: float
    """Seconds from the end of the last backward run to the end of its reductions, if no other stage delays them."""
    reducing: float
    """Seconds of all reductions of the stage together."""
    update: float
    """Seconds to run the optimizer step and gather the updated weights."""
    static: float
    """Bytes of weights, gradients and optimizer state."""
    parts: tuple[float, float, float]
    """Bytes of weights, of gradients between micro-batches, and of optimizer state. Their sum is `static`."""
    held: float
    """Bytes that a micro-batch holds between its forward and its backward run."""
    peak: tuple[float, float]
    """Largest number of bytes of the micro-batch that is running, in its forward and in its backward run."""
    first_peak: float
    """Largest number of bytes in the first backward run, whose gradients become the sums."""
    kept: float
    """Bytes that a micro-batch holds between its backward run and its gradients of weights, if they are split off."""
    peak_of_weights: float
    """Largest number of bytes of a micro-batch while its gradients of weights are computed, if they are split off."""
    samples: float
    """Bytes of the inputs of one micro-batch. The inputs of all micro-batches are in memory from the start."""
    constants: float
    """Bytes of inputs that are neither weights nor samples."""
    after: float
    """Bytes in addition to `static` when the last backward run ends: gradients, and buckets during their reduction."""
    joined: tuple[tuple[Joined, ...], tuple[Joined, ...]]
    """Outputs that micro-batches join, in forward and backward runs. Levels count bytes of the running micro-batch."""
    joined_bytes: tuple[float, float]
    """Bytes of these outputs per micro-batch, in forward and backward runs."""


class Stages:
    """Computes the costs of the stages of one strategy, for micro-batches of `rows` samples."""

    def __init__(self, table: BlockTable, strategy: Strategy, rows: int) -> None:
        self._table, self.strategy, self._rows = table, strategy, rows
        form, devices = strategy.form, strategy.pipeline
        self._wiring = table.wiring(strategy)
        self.places = [form.device_of(stage, devices) for stage in range(strategy.stages)]
        """Position in the pipeline of each stage."""
        self._classes = [self._wiring.classes[place] for place in self.places]
        self.several = strategy.micro_batches > 1
        """Whether a step has several micro-batches, so that gradients are added."""
        self._blocks = {place: table.blocks(strategy, rows, place) for place in dict.fromkeys(self._classes)}
        sharing = strategy.zero, strategy.reshard, strategy.scatters_at_once, strategy.bucket_bytes, form.split
        self._keys = {place: (id(each), *sharing, *self._replicas(place)) for place, each in self._blocks.items()}
        """For each position of the pipeline, a cache key.

        It contains everything but the layers on which the costs of a stage depend.
        """

    def _replicas(self, place: int) -> list[object]:
        """Return the number of replicas and how they are spread over nodes, for ordinary weights and for experts."""
        strategy, degrees = self.strategy, self._wiring.ranks.degrees
        overs = (REPLICAS if strategy.context > 1 else DATA, *([EXPERT_DATA] if strategy.expert > 1 else ()))
        return [(over, degrees.of(over), self._wiring.pattern(over, place)) for over in overs]

    def blocks(self, stage: int) -> Blocks:
        """Return the blocks for the devices of a stage."""
        return self._blocks[self._classes[stage]]

    def traffic(self, stage: int) -> Column:
        """Return the communication between replicas, by layer of the shortened network and field of `Traffic`."""
        blocks, degrees = self.blocks(stage), self._wiring.ranks.degrees
        key = "traffic", self._keys[self._classes[stage]]
        return self._table.once(key, lambda: _traffic(blocks, self.strategy, self._parts_of_weights(blocks, degrees)))

    def _parts_of_weights(self, blocks: Blocks, degrees: Degrees) -> NDArray[np.int64]:
        """Return the number of parts into which replicas can cut each weight."""
        columns = blocks.columns
        key = "parts", id(columns), *map(degrees.of, columns.overs)
        return self._table.once(key, lambda: columns.parts(degrees.of))

    def static(self, stage: int) -> float:
        """Return the bytes of weights, gradients and optimizer state of all layers on one of the stage's devices."""
        key = "static", self._keys[self._classes[stage]], self.several
        return self._table.once(key, lambda: sum(self._parts(self._together(stage, self.blocks(stage).stands_for))))

    def _together(self, stage: int, rows: Integers) -> Traffic:
        """Return the traffic of all these layers of the short network together."""
        return Traffic(*self.traffic(stage)[rows].sum(axis=0).tolist())

    def _parts(self, traffic: Traffic) -> tuple[float, float, float]:
        """Return `StageCosts.parts` of a stage with this traffic."""
        return traffic.weights, traffic.gradients * self.several, traffic.state

    def stage(self, stage: int, first: int, last: int) -> StageCosts:
        """Return the costs of a stage that has the layers `first` to `last - 1`."""
        rows = self.blocks(stage).stands_for[max(0, first - 1) : last + 1].tobytes()
        ends = not first, last == len(self.blocks(stage).stands_for), self.strategy.pipeline > 1
        key = "stage", self._keys[self._classes[stage]], self.several, ends, rows
        return self._table.once(key, lambda: self._stage(stage, first, last))

    def keys(self) -> tuple[object, ...]:
        """Return a cache key of everything on which the best numbers of layers per stage depend."""
        return tuple(self._keys[place] for place in self._classes) if len(self._keys) > 1 else (*self._keys.values(),)

    def per_stage(self, find: Callable[[int], T]) -> list[T]:
        """Return `find` of each stage. Stages at places of one class share one call."""
        found = {place: find(self._classes.index(place)) for place in self._blocks}
        return [found[place] for place in self._classes]

    def seconds(self, stage: int) -> Matrix:
        """Return an array. Its element [i, j] is the seconds per micro-batch of a stage with the layers i to j - 1.

        Communication between replicas is not included.
        """
        layers = self.blocks(stage).layers
        each = layers.forward + layers.backward + layers.weight
        return sums(each + layers.adding if self.several and self.strategy.scatters_at_once else each)

    def bytes(self, stage: int, held: int) -> Matrix:
        """Return an array.

        Its element [i, j] is the bytes of a stage with the layers i to j - 1 and `held` micro-batches.
        """
        layers, rows = self.blocks(stage).layers, self.blocks(stage).stands_for
        always = self.traffic(stage)[:, (_WEIGHTS, _GRADIENTS, _STATE)].sum(axis=1)
        return sums(always[rows] + held * layers.held) + layers.largest_space

    def _stage(self, stage: int, first: int, last: int) -> StageCosts:
        from tessel_core.strategies import stage_kernels as kernels

        blocks, strategy = self.blocks(stage), self.strategy
        table, begins, ends = blocks.table, not first, last == len(blocks.stands_for)
        rows = blocks.stands_for[first:last]
        around = -1 if begins else int(blocks.stands_for[first - 1]), -1 if ends else int(blocks.stands_for[last])
        runs, leads_and_onward, talks = kernels.stage_runs(table, blocks.makers, rows, around)
        leads, onward = leads_and_onward.tolist()
        seconds, top, bottom = runs.sum(axis=1).tolist(), rows[0], rows[-1]
        traffic = self._together(stage, rows)
        adding, copying = traffic.adding, traffic.copying
        making = WEIGHT if strategy.form.split else BACKWARD
        trailing = (float(blocks.trailing[bottom, FORWARD]), *blocks.trailing[top, BACKWARD:].tolist())
        exchanges, (tail, reducing, gathering, bucket) = None, self._reduced(stage, rows, runs)
        gathering += self._gathered_once(stage, rows)
        if strategy.scatters_at_once:
            steps = self._steps(stage, first, last, runs)
            exchanges = exchanging(steps, (*onward, 0.0), len(self._overs), turns=ends)
            done, outputs = exchanges.least.T.tolist()
            seconds, adding, copying = done, 0.0, 0.0
            onward = [outputs[FORWARD] - done[FORWARD], outputs[BACKWARD] - done[BACKWARD]]
            # Gathered weights are copied before a run uses its inputs.
            leads = [leads[FORWARD] + steps[FORWARD][0].copy, leads[BACKWARD] + steps[BACKWARD][0].copy]
        else:
            # The simulated blocks include the addition of gradients, which is counted apart.
            seconds[making] -= adding * self.several
        tail = max(tail, trailing[making if self._table.training else FORWARD])
        left = self.traffic(stage)[rows, _GRADIENTS if self.several else _REDUCED]
        comes, goes, returns = _boundary(blocks, top, bottom, begins, ends)
        peaks = kernels.stage_peaks(table, rows, left, 0.0 if self.several else bucket, self._gone(stage, rows))
        gathered, back = self._gathered(stage, rows), comes - goes + returns
        first_peak = peaks[2] + gathered + back
        peak = peaks[0] + gathered + comes, peaks[1] + gathered + back if self.several else first_peak
        parts = self._parts(traffic)
        held = float(blocks.held[rows].sum()) + comes - goes
        sent = 0.0 if begins else float(blocks.enters[top - 1, BACKWARD])
        kept = held + float(blocks.change[rows, BACKWARD].sum()) + returns - sent
        joined = _joined(blocks, rows)
        if self._table.training:
            least = _MIN_JOINED_SHARE * (sum(parts) + max(peak))
            joined = _larger(joined[0], least), _larger(joined[1], least)
        return StageCosts(
            seconds=(seconds[0], seconds[1], seconds[2], adding * self.several),
            copying=copying * self.several,
            onward=(onward[0], onward[1]),
            leads=(leads[0], leads[1]),
            talks=tuple(talks.tolist()),
            trailing=(trailing[0], trailing[1], trailing[2]),
            exchanging=exchanges,
            tail=tail,
            reducing=reducing,
            update=blocks.update(round(traffic.numbers)) + gathering,
            static=sum(parts),
            parts=parts,
            held=held,
            peak=peak,
            first_peak=first_peak,
            kept=kept,
            peak_of_weights=kept + peaks[3],
            samples=float(blocks.own_samples[rows].sum()) + _bytes_of(blocks.shared_samples, rows),
            constants=_bytes_of(blocks.constants, rows),
            after=0.0 if strategy.scatters_at_once else bucket + traffic.reduced * (not self.several),
            joined=joined,
            joined_bytes=(sum(each.bytes for each in joined[0]), sum(each.bytes for each in joined[1])),
        )

    def _gone(self, stage: int, rows: Integers) -> Column:
        """Return the bytes of each layer's gradients that do not stay in memory when they are made.

        The simulated micro-batch keeps whole gradients. The part that stays in memory is counted elsewhere.
        """
        strategy = self.strategy
        if not strategy.form.split or (self.several and not strategy.scatters_at_once):
            return np.zeros(len(rows))
        gone = self.blocks(stage).gradient_bytes[rows]
        kept = _GRADIENTS if strategy.scatters_at_once else _REDUCED
        return gone if self.several else gone - self.traffic(stage)[rows, kept]

    @property
    def _overs(self) -> tuple[str, ...]:
        """Dimensions over which replicas exchange, each in a stream of its own."""
        strategy = self.strategy
        return (REPLICAS if strategy.context > 1 else DATA, *([EXPERT_DATA] if strategy.expert > 1 else ()))

    def _steps(self, stage: int, first: int, last: int, runs: Column) -> tuple[list[Step], list[Step], list[Step]]:
        """Return the steps of each phase of a stage in which each micro-batch exchanges."""
        blocks = self.blocks(stage)
        rows, ends = blocks.stands_for[first:last].tolist(), last == len(blocks.stands_for)
        found = list[list[Step]]()
        for phase in PHASES.values():
            order = rows if phase == FORWARD else rows[::-1]
            steps = [step for row in order for step in self._steps_of(stage, row)[phase]]
            sooner = blocks.seconds[order[0], phase] - runs[phase][0 if phase == FORWARD else -1]
            if steps and sooner:
                one = steps[0]
                steps[0] = replace(one, seconds=one.seconds - sooner, gap=max(0.0, one.gap - sooner))
            found.append(steps)
        if self.strategy.zero == ZERO_STAGES[-1]:
            root = [each for row in dict.fromkeys(rows) for each in blocks.weights[row] if each.root]
            place = next((i for i, row in enumerate(rows) if any(each.root for each in blocks.weights[row])), None)
            if place is not None:
                at = sum(len(blocks.units[row][FORWARD]) for row in rows[:place])
                scopes = [unit.scope for unit in blocks.units[rows[place]][FORWARD]]
                at += scopes.index(next(each.scope for each in blocks.weights[rows[place]] if each.root))
                gather, copy = self._gathering(stage, root)
                found[FORWARD][at] = replace(found[FORWARD][at], gather=gather, copy=copy)
            if ends and blocks.units[rows[-1]][FORWARD][-1].scope == blocks.units[rows[-1]][BACKWARD][0].scope:
                # The weights of the last unit are still present.
                found[BACKWARD][0] = replace(found[BACKWARD][0], gather=(0.0,) * len(self._overs), copy=0.0)
        return found[FORWARD], found[BACKWARD], found[WEIGHT]

    def _steps_of(self, stage: int, row: int) -> list[list[Step]]:
        """Return the steps of each phase of a row, as if it were in the middle of a stage."""
        blocks, key = self.blocks(stage), ("steps", self._keys[self._classes[stage]], self.several, row)
        return self._table.once(
            key,
            lambda: [
                [self._step(stage, row, phase, unit) for unit in units] for phase, units in enumerate(blocks.units[row])
            ],
        )

    def _step(self, stage: int, row: int, phase: int, unit: Unit) -> Step:
        blocks, place = self.blocks(stage), self._classes[stage]
        weights = [each for each in blocks.weights[row] if each.scope == unit.scope]
        gather, copy = self._gathering(stage, [each for each in weights if self._gathers(each, phase)])
        mine = [each for each in weights if each.phase == phase and each.gradient.bytes]
        scatter, ready, seconds = list[float](), list[float](), unit.seconds
        adding = copying = 0.0
        for over in self._overs:
            degree = self._wiring.ranks.degrees.of(over)
            some = [each for each in mine if each.over == over and each.parts(degree) > 1]
            scatter.append(self._wiring.collective(place, "reduce_scatter", over, _bytes(some)[1]))
            ready.append(max((each.ready for each in some), default=0.0) + unit.rest)
            if self.several:
                adding += sum(max(blocks.least_add, each.add / degree) for each in some)
                copying += sum(max(blocks.least_add, each.first / degree) for each in some)
                # Gradients that replicas cannot cut are added at once.
                seconds += sum(each.add for each in mine if each.over == over and each.parts(degree) == 1)
        return Step(seconds, unit.gap, unit.late, copy, gather, tuple(scatter), tuple(ready), adding, copying)

    def _gathers(self, weight: Weight, phase: int) -> bool:
        """Return whether a unit gathers a weight for a phase, unless the weight belongs to the root."""
        if self.strategy.zero < ZERO_STAGES[-1] or weight.root:
            return False
        again = min((each for each in weight.used if each != FORWARD), default=FORWARD)
        return phase == FORWARD or (self.strategy.reshard and phase == again)

    def _gathering(self, stage: int, weights: Sequence[Weight]) -> tuple[Streams, float]:
        """Return the seconds to gather weights in each stream, and to copy them out of their buffers."""
        gather, copy = list[float](), 0.0
        for over in self._overs:
            degree = self._wiring.ranks.degrees.of(over)
            some = [each for each in weights if each.over == over and each.parts(degree) > 1]
            gather.append(self._wiring.collective(self._classes[stage], "allgather", over, _bytes(some)[0]))
            copy += sum(each.copy for each in some)
        return tuple(gather), copy

    def _gathered_once(self, stage: int, rows: Integers) -> float:
        """Return the seconds to gather all updated weights together, if replicas do so after scattering gradients."""
        if self.strategy.zero != 2:
            return 0.0
        place, found = self._classes[stage], self._cut_bytes(stage)[rows].sum(axis=(0, 1)).tolist()
        return max(
            self._wiring.collective(place, "allgather", over, round(size))
            for over, size in zip(self._overs, found, strict=True)
        )

    def _cut_bytes(self, stage: int) -> Column:
        """Return the bytes of weights that replicas can cut, by row, whether they are the root's, and stream."""
        blocks, degrees = self.blocks(stage), self._wiring.ranks.degrees

        def make() -> Column:
            found = np.zeros((len(blocks.weights), 2, len(self._overs)))
            for row, weights in enumerate(blocks.weights):
                for each in weights:
                    if each.parts(degrees.of(each.over)) > 1:
                        found[row, int(each.root), self._overs.index(each.over)] += each.type.bytes
            return found

        return self._table.once(("cut", self._keys[self._classes[stage]]), make)

    def _reduced(self, stage: int, rows: Integers, runs: Column) -> list[float]:
        """Return values for a stage that reduces gradients once per step.

        They are `tail`, `reducing`, the seconds to gather the updated weights, and the bytes of the largest bucket.
        """
        from tessel_core.strategies import stage_kernels as kernels

        key = "reduced", self._keys[self._classes[stage]]
        found = self._table.once(key, lambda: self._new_reduced(stage))
        if found is None:
            return [0.0] * 4
        limit = max(1.0, self.strategy.bucket_bytes)
        how = found.first, found.places, found.numbers, found.rates, limit
        if np.diff(found.first)[rows].sum() > MAX_BUCKETED_WEIGHTS:
            making = WEIGHT if self.strategy.form.split else BACKWARD
            return list(kernels.reductions_apart(rows, runs[making], *how).tolist())
        return list(kernels.reductions(rows, runs, *how).tolist())

    def _new_reduced(self, stage: int) -> Reduced | None:
        """Return the gradients that replicas reduce at the end of the step, or None if there are none.

        If each micro-batch scatters its gradients, only those that replicas cannot cut are left.
        """
        blocks, strategy, degrees = self.blocks(stage), self.strategy, self._wiring.ranks.degrees
        columns, parts = blocks.columns, self._parts_of_weights(blocks, degrees)
        scattered = (parts > 1) & (strategy.zero > 0)
        made = (columns.gradient > 0) & ~(scattered & strategy.scatters_at_once)
        made &= np.array([degrees.of(over) > 1 for over in columns.overs], bool)[columns.over]
        if not made.any():
            return None
        over_of = np.array([self._overs.index(over) for over in columns.overs], np.int64)[columns.over]
        return Reduced(
            np.searchsorted(columns.row[made], np.arange(len(blocks.seconds) + 1)),
            np.stack((columns.phase, over_of), axis=1)[made],
            np.stack((blocks.ready, columns.gradient, columns.bytes * scattered), axis=1)[made],
            self._wiring.rates(self._classes[stage], ("reduce_scatter", "allreduce", "allgather"), self._overs),
        )

    def _gathered(self, stage: int, rows: Integers) -> float:
        """Return the bytes of weights that are gathered at the same time."""
        if self.strategy.zero != ZERO_STAGES[-1] or not self.strategy.scatters_at_once:
            return 0.0
        whole, roots = self._cut_bytes(stage)[rows].sum(axis=2).T
        two = whole + np.append(whole[1:], 0.0)
        return float((two.max() if self.strategy.reshard else whole.sum()) + roots.sum())

    def sends(self, bounds: list[int]) -> tuple[list[float], list[float]]:
        """Return, for each stage except the last, the seconds to send outputs to the next stage and gradients back.

        `bounds` has the first layer of each stage, and at its end the number of layers.
        """
        down, up = list[float](), list[float]()
        for stage, last in enumerate(bounds[1:-1]):
            blocks = self.blocks(stage)
            places = self.places[stage], self.places[stage + 1]
            there = blocks.crossing[blocks.stands_for[last - 1]][FORWARD]
            back = blocks.crossing[blocks.stands_for[last]][BACKWARD]
            apart = places[0] != places[1]
            down.append(self._wiring.send(*places, there) if apart else 0.0)
            up.append(self._wiring.send(places[1], places[0], back) if apart else 0.0)
        return down, up


def _boundary(blocks: Blocks, top: int, bottom: int, begins: bool, ends: bool) -> tuple[float, float, float]:
    """Return the bytes that a stage receives, sends without keeping them, and gets back as gradients.

    `top` and `bottom` are its first and last row. `begins` is set for the first stage, and `ends` for the last.
    """
    comes = 0.0 if begins else float(blocks.enters[top, FORWARD])
    if ends:
        return comes, 0.0, 0.0
    return comes, float(blocks.leaves[bottom]), float(blocks.enters[bottom, BACKWARD])


def _larger(some: tuple[Joined, ...], least: float) -> tuple[Joined, ...]:
    """Return the outputs that have more bytes than `least`."""
    return tuple(each for each in some if each.bytes > least)


def _bytes_of(inputs: tuple[frozenset[tuple[int, int]], ...], rows: Integers) -> float:
    """Return the bytes of the inputs of the layers. An input that several layers share counts once."""
    if not any(inputs):
        return 0.0
    return float(sum(size for _, size in {each for row in set(rows.tolist()) for each in inputs[row]}))


def _joined(blocks: Blocks, rows: Integers) -> tuple[tuple[Joined, ...], tuple[Joined, ...]]:
    """Return the outputs of a stage that are joined over micro-batches, in forward and backward runs."""
    places = np.flatnonzero(blocks.joins[rows]).tolist()
    if not places:
        return (), ()
    found, held = (list[Joined](), list[Joined]()), [0.0, *np.cumsum(blocks.held[rows]).tolist()]
    for place in places:
        for way, some in enumerate(blocks.joined[rows[place]]):
            below = held[place + way]
            found[way].extend(Joined(each.level + below, each.bytes, each.price) for each in some)
    return tuple(found[0]), tuple(found[1])


@dataclass(frozen=True)
class Reduced:
    """Gradients that replicas reduce at the end of a step, in the order of their rows."""

    first: Integers
    """Index of the first gradient of each row, and at the end the number of gradients."""
    places: Integers
    """Phase that makes each gradient, and the index of the dimension whose devices reduce it."""
    numbers: Column
    """Seconds from the end of its layer's computation until it is complete, its bytes, and those of its weight.

    The bytes of the weight are 0 if replicas do not scatter the gradient.
    """
    rates: Column
    """Latency and seconds per byte of reduce-scatter, all-reduce and all-gather, as in `Wiring.rates`."""


def _traffic(blocks: Blocks, strategy: Strategy, parts: NDArray[np.int64]) -> Column:
    """Return the traffic of each layer. `parts` is the number of parts into which replicas can cut each weight."""
    columns, least = blocks.columns, blocks.least_add
    at_once, at_end = parts if strategy.scatters_at_once else 1, parts if strategy.zero > 0 else 1
    of_weights = at_once if strategy.zero == ZERO_STAGES[-1] else 1
    found = {
        "adding": np.where(columns.add > 0, np.maximum(least, columns.add / at_once), 0.0),
        "copying": np.where(columns.first > 0, np.maximum(least, columns.first / at_once), 0.0),
        "weights": columns.bytes / of_weights,
        "gradients": columns.gradient / at_once,
        "reduced": columns.gradient / at_end,
        "state": columns.state / at_end,
        "numbers": columns.elements / at_end,
    }
    in_row = columns.row == np.arange(len(blocks.seconds))[:, None]
    return np.asarray(in_row @ np.stack([found[name] for name in Traffic._fields], axis=1))


def _bytes(weights: Sequence[Weight]) -> tuple[int, int]:
    """Return the bytes of the weights, and the bytes of their gradients."""
    return sum(each.type.bytes for each in weights), sum(each.gradient.bytes for each in weights)
