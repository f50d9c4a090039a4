"""Compute the costs of stages as sums of blocks: time per micro-batch, memory, and the exchanges of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.expansion import DATA, EXPERT_DATA, REPLICAS
from tessel_core.strategies.blocks import BACKWARD, FORWARD, WEIGHT, Blocks, BlockTable, Joined, Weight
from tessel_core.strategies.layouts import Matrix, sums
from tessel_core.strategies.strategy import Strategy
from tessel_core.strategies.wiring import Wiring

Column = NDArray[np.float64]
T = TypeVar("T")
_MIN_JOINED_SHARE = 5e-5
"""Outputs that micro-batches join are ignored below this share of a stage's memory, for example one loss per sample."""
MAX_BUCKETED_WEIGHTS = 500
"""Largest number of weights of a stage that fill shared buckets.  With more, each layer has buckets of its own."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Seconds in which replicas exchange weights and gradients of one layer, and the bytes that each replica has."""

    gather: float
    """Seconds to gather sharded weights, except those of the root."""
    copy: float
    """Seconds to copy the gathered weights out of their buffers."""
    root: float
    """Seconds to gather and copy the weights of the root, once for the forward and the backward pass."""
    scatter: float
    """Seconds to reduce and scatter the gradients of a micro-batch."""
    first: float
    """Seconds to reduce and scatter the gradients of its first part, which nothing overlaps in the next micro-batch."""
    reduce: float
    """Seconds to reduce gradients at the end of the step."""
    update: float
    """Seconds to gather updated weights at the end of the step."""
    adding: float
    """Seconds to add the gradients of a micro-batch, or a replica's part of them, to their sums."""
    copying: float
    """Seconds to copy the gradients of the first micro-batch, or a replica's part of them."""
    weights: float
    """Bytes of weights."""
    gradients: float
    """Bytes of gradients between micro-batches."""
    reduced: float
    """Bytes of gradients after they are reduced at the end of the step."""
    state: float
    """Bytes of the optimizer's state."""
    numbers: float
    """Number of weight elements that a replica updates."""


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Time and memory of a stage on one of its devices."""

    seconds: tuple[float, float, float, float]
    """Seconds per micro-batch: forward, backward, gradients of weights if they are split off, adding gradients."""
    copying: float
    """Seconds to copy the gradients of the first micro-batch, instead of adding them."""
    onward: tuple[float, float]
    """Seconds from the end of a forward or backward until its outputs are ready; negative if they are ready earlier."""
    leads: tuple[float, float]
    """Seconds of a forward or backward before it uses an input from another stage."""
    talks: tuple[float, float, float]
    """Seconds from the start of a run to its first collective among the devices that share its layers."""
    trailing: tuple[float, float, float]
    """Seconds by which these collectives outlast a run."""
    tail: float
    """Seconds from the end of the last backward to the end of its reductions, if no other stage delays them."""
    reducing: float
    """Seconds of all reductions of the stage."""
    update: float
    """Seconds of the optimizer's step and of gathering the updated weights."""
    static: float
    """Bytes of weights, gradients and the optimizer's state."""
    parts: tuple[float, float, float]
    """Bytes of weights, of gradients between micro-batches, and of the optimizer's state.  Their sum is `static`."""
    held: float
    """Bytes of a micro-batch between its forward and its backward."""
    peak: tuple[float, float]
    """Largest number of bytes of the running micro-batch, in its forward and in its backward."""
    first_peak: float
    """Largest number of bytes in the first backward, whose gradients become the sums."""
    kept: float
    """Bytes of a micro-batch between its backward and its gradients of weights, if these are split off."""
    peak_of_weights: float
    """Largest number of bytes of the running micro-batch while its gradients of weights are computed."""
    samples: float
    """Bytes of the inputs of one micro-batch.  The inputs of all micro-batches are in memory from the start."""
    constants: float
    """Bytes of inputs that are neither weights nor samples."""
    after: float
    """Bytes beyond `static` at the end of the last backward: gradients, and buckets that are being reduced."""
    joined: tuple[tuple[Joined, ...], tuple[Joined, ...]]
    """Outputs that micro-batches join, forward and backward; levels are bytes within the running micro-batch."""
    joined_bytes: tuple[float, float]
    """Bytes of these outputs for one micro-batch, forward and backward."""


class Stages:
    """Computes the costs of the stages of one strategy, for micro-batches of `rows` samples."""

    def __init__(self, table: BlockTable, strategy: Strategy, rows: int) -> None:
        self._table, self.strategy, self._rows = table, strategy, rows
        form, devices = strategy.form, strategy.pipeline
        self._wiring = table.wiring(strategy)
        self.places = [form.device_of(stage, devices) for stage in range(strategy.stages)]
        """Place in the pipeline of each stage."""
        self._classes = [self._wiring.classes[place] for place in self.places]
        self.several = strategy.micro_batches > 1
        """Whether a step has several micro-batches, whose gradients are added."""
        self._blocks = {place: table.blocks(strategy, rows, place) for place in dict.fromkeys(self._classes)}
        sharing = strategy.zero, strategy.reshard, strategy.scatters_at_once, strategy.bucket_bytes, form.split
        self._keys = {place: (id(each), *sharing, *self._replicas(place)) for place, each in self._blocks.items()}
        """Keys for the cache: everything besides the layers on which the stages at a place depend."""

    def _replicas(self, place: int) -> list[object]:
        """Return the number of replicas and their spread over nodes, for weights and for experts."""
        strategy, degrees = self.strategy, self._wiring.ranks.degrees
        overs = (REPLICAS if strategy.context > 1 else DATA, *([EXPERT_DATA] if strategy.expert > 1 else ()))
        return [(over, degrees.of(over), self._wiring.pattern(over, place)) for over in overs]

    def blocks(self, stage: int) -> Blocks:
        """Return the blocks of a stage's device."""
        return self._blocks[self._classes[stage]]

    def traffic(self, stage: int) -> list[Traffic]:
        """Return the traffic of each layer of the short network."""
        place = self._classes[stage]
        key, rows = ("traffic", self._keys[place]), self._blocks[place].weights
        least = self._blocks[place].least_add
        return self._table.once(key, lambda: [_traffic(self._wiring, self.strategy, place, r, least) for r in rows])

    def column(self, stage: int, name: str) -> Column:
        """Return a field of `Traffic` for each layer of the short network."""
        key = "column", name, self._keys[self._classes[stage]]
        return self._table.once(key, lambda: np.array([getattr(each, name) for each in self.traffic(stage)]))

    def static(self, stage: int) -> float:
        """Return the bytes of weights, gradients and optimizer state of all layers on one of the stage's devices."""
        key = "static", self._keys[self._classes[stage]], self.several
        return self._table.once(key, lambda: sum(self._parts(stage, self.blocks(stage).stands_for)))

    def _parts(self, stage: int, rows: list[int] | NDArray[np.int64]) -> tuple[float, float, float]:
        """Return `StageCosts.parts` for these layers of the short network."""
        weights, state = (sum(self.column(stage, name)[rows].tolist()) for name in ("weights", "state"))
        return weights, float(self.column(stage, "gradients")[rows].sum()) * self.several, state

    def stage(self, stage: int, first: int, last: int) -> StageCosts:
        """Return the costs of a stage with the layers `first` to `last - 1`."""
        rows = self.blocks(stage).stands_for[max(0, first - 1) : last + 1].tobytes()
        ends = not first, last == len(self.blocks(stage).stands_for), self.strategy.pipeline > 1
        key = "stage", self._keys[self._classes[stage]], self.several, ends, rows
        return self._table.once(key, lambda: self._stage(stage, first, last))

    def keys(self) -> tuple[object, ...]:
        """Return a cache key with everything on which the layout of the stages depends."""
        return tuple(self._keys[place] for place in self._classes) if len(self._keys) > 1 else (*self._keys.values(),)

    def per_stage(self, find: Callable[[int], T]) -> list[T]:
        """Return `find` of each stage.  Stages at places of one class share one call."""
        found = {place: find(self._classes.index(place)) for place in self._blocks}
        return [found[place] for place in self._classes]

    def seconds(self, stage: int) -> Matrix:
        """Return an array whose element [i, j] is the seconds of a micro-batch in a stage of the layers i to j - 1.

        The seconds leave out the exchanges of replicas.
        """
        layers = self.blocks(stage).layers
        each = layers.forward + layers.backward + layers.weight
        return sums(each + layers.adding if self.several and self.strategy.scatters_at_once else each)

    def bytes(self, stage: int, held: int) -> Matrix:
        """Return an array whose element [i, j] is the bytes of a stage of the layers i to j - 1.

        The stage holds `held` micro-batches.
        """
        layers, rows = self.blocks(stage).layers, self.blocks(stage).stands_for
        weights, state, gradients = (self.column(stage, name) for name in ("weights", "state", "gradients"))
        return sums((weights + state + gradients)[rows] + held * layers.held) + layers.largest_space

    def _stage(self, stage: int, first: int, last: int) -> StageCosts:
        blocks, strategy = self.blocks(stage), self.strategy
        rows = blocks.stands_for[first:last].tolist()
        runs = self._runs(stage, first, last)
        seconds = [float(each.sum()) for each in runs]
        adding, copying, numbers, updated = (
            float(sum(self.column(stage, name)[rows].tolist())) for name in ("adding", "copying", "numbers", "update")
        )
        making = WEIGHT if strategy.form.split else BACKWARD
        trailing = blocks.trailing[rows[-1], FORWARD], *blocks.trailing[rows[0], BACKWARD:]
        if strategy.scatters_at_once:
            seconds, tail, reducing = self._scattered(stage, rows, runs)
            bucket = 0.0
        else:
            tail, reducing, bucket = self._reduced(stage, rows, runs[making])
            # The simulated blocks include the addition of gradients, which is counted apart.
            seconds[making] -= adding * self.several
        tail = max(tail, float(trailing[making if self._table.training else FORWARD]))
        update = blocks.update(round(numbers)) + updated
        gradients = self.column(stage, "gradients")[rows]
        ends = not first, last == len(blocks.stands_for)
        comes, goes, returns = _boundary(blocks, rows, *ends)
        reduced = self.column(stage, "reduced")[rows]
        peak, first_peak = self._peaks(blocks, slice(first, last), gradients if self.several else reduced, bucket)
        back = comes - goes + returns
        parts = self._parts(stage, rows)
        peak, first_peak = (peak[0] + comes, peak[1] + back), first_peak + back
        held = float(blocks.held[rows].sum()) + comes - goes
        sent = float(blocks.enters[rows[0] - 1, BACKWARD]) if first else 0.0
        kept = held + float(blocks.change[rows, BACKWARD].sum()) + returns - sent
        ahead = np.cumsum(blocks.change[rows[::-1], WEIGHT]) - blocks.change[rows[::-1], WEIGHT]
        if strategy.scatters_at_once or not self.several:
            # The simulated micro-batch keeps whole gradients.  The part that stays in memory is counted elsewhere.
            gone = blocks.gradient_bytes[rows]
            gone = gone if self.several else gone - (gradients if strategy.scatters_at_once else reduced)
            ahead -= np.cumsum(gone[::-1]) - gone[::-1]
        peak_of_weights = float((ahead + blocks.space[rows[::-1], WEIGHT]).max())
        joined = _joined(blocks, rows)
        if self._table.training:
            least = _MIN_JOINED_SHARE * (sum(parts) + max(peak))
            joined = _larger(joined[0], least), _larger(joined[1], least)
        return StageCosts(
            seconds=(seconds[0], seconds[1], seconds[2], adding * self.several),
            copying=copying * self.several,
            onward=(float(blocks.onward[rows[-1], FORWARD]), float(blocks.onward[rows[0], BACKWARD])),
            leads=_leads(blocks, runs, first, last),
            talks=self._talks(blocks, rows, runs),
            trailing=(float(trailing[0]), float(trailing[1]), float(trailing[2])),
            tail=tail,
            reducing=reducing,
            update=update,
            static=sum(parts),
            parts=parts,
            held=held,
            peak=peak,
            first_peak=first_peak,
            kept=kept,
            peak_of_weights=kept + peak_of_weights,
            samples=float(blocks.own_samples[rows].sum()) + _bytes_of(blocks.shared_samples, rows),
            constants=_bytes_of(blocks.constants, rows),
            after=0.0 if strategy.scatters_at_once else bucket + float(reduced.sum()) * (not self.several),
            joined=joined,
            joined_bytes=(sum(each.bytes for each in joined[0]), sum(each.bytes for each in joined[1])),
        )

    def _runs(self, stage: int, first: int, last: int) -> tuple[Column, Column, Column]:
        """Return the seconds of each layer by phase.

        The first layer of a run does not wait for the communication of the layer before it.  Instead, the run starts
        after that communication.
        """
        blocks, cut = self.blocks(stage), slice(first, last)
        layers = blocks.layers
        forward, backward = layers.forward[cut].copy(), layers.backward[cut].copy()
        if first:
            before, mine = blocks.stands_for[first - 1 : first + 1]
            forward[0] -= max(0.0, blocks.onward[before, FORWARD] - blocks.leads[mine, FORWARD])
        if last < len(blocks.stands_for):
            mine, after = blocks.stands_for[last - 1 : last + 1]
            backward[-1] -= max(0.0, blocks.onward[after, BACKWARD] - blocks.leads[mine, BACKWARD])
        return forward, backward, layers.weight[cut]

    @staticmethod
    def _talks(blocks: Blocks, rows: list[int], runs: tuple[Column, Column, Column]) -> tuple[float, float, float]:
        forward, backward, weight = runs
        talks = blocks.talks[rows]
        return (
            _first_talk(forward, talks[:, FORWARD]),
            _first_talk(backward[::-1], talks[::-1, BACKWARD]),
            _first_talk(weight[::-1], talks[::-1, WEIGHT]),
        )

    def _scattered(
        self, stage: int, rows: list[int], runs: tuple[Column, Column, Column]
    ) -> tuple[list[float], float, float]:
        """Return the seconds by phase, `tail` and `reducing` if each micro-batch scatters its gradients."""
        strategy, (forward, backward, weight) = self.strategy, runs
        scatter, gather, copy, adding = (
            self.column(stage, name)[rows] for name in ("scatter", "gather", "copy", "adding")
        )
        adding = adding * self.several
        again = np.append(gather[:1], gather[:-1]) if strategy.reshard else np.zeros(len(rows))
        tail, reducing = float(scatter[0]), 0.0
        if strategy.zero == 3:
            forward = np.maximum(forward + copy, np.append(gather[1:], 0.0))
            backward = backward + copy * strategy.reshard
            # The first layer's weights are not gathered before the run starts.  In a pipeline, the last gradients of
            # a run are scattered before the next run starts.
            forward[0] += gather[0] + sum(self.column(stage, "root")[rows].tolist())
            forward[0] += self.traffic(stage)[rows[0]].first if self.several and strategy.pipeline == 1 else 0.0
            exchanging = np.append(scatter[1:], 0.0) + again
            backward = np.maximum(backward, exchanging - adding)
        elif self.several:
            # In a pipeline, the next forward overlaps with the scattering, too.
            hidden = float((backward + weight + adding).sum())
            hidden += float(forward.sum()) if strategy.pipeline > 1 else 0.0
            backward = backward * max(1.0, 1 + (scatter.sum() - hidden) / backward.sum())
        else:
            tail, reducing = _reductions(weight if strategy.form.split else backward, scatter.tolist())
        return [float(each.sum()) for each in (forward, backward, weight)], tail, reducing

    def _reduced(self, stage: int, rows: list[int], backward: Column) -> tuple[float, float, float]:
        """Return `tail`, `reducing` and the bytes of the largest bucket if gradients are reduced once per step."""
        blocks, degrees, limit = self.blocks(stage), self._wiring.ranks.degrees, max(1, self.strategy.bucket_bytes)
        of_row = blocks.weights
        overs = [over for over in dict.fromkeys(w.over for row in of_row for w in row) if degrees.of(over) > 1]
        if not overs:
            return 0.0, 0.0, 0.0
        kind, place = "reduce_scatter" if self.strategy.zero else "allreduce", self._classes[stage]
        largest = max((w.gradient.bytes for row in of_row for w in row), default=0)
        if sum(len(of_row[row]) for row in rows) > MAX_BUCKETED_WEIGHTS:
            reduce = [self.traffic(stage)[row].reduce for row in rows]
            return *_reductions(backward, reduce), float(max(largest, limit))
        tail = reducing = bucket = 0.0
        for over in overs:
            buckets = _filled(of_row, rows, backward, over, limit)
            end, spent = -np.inf, [self._wiring.collective(place, kind, over, size) for size, _ in buckets]
            for (size, ready), seconds in zip(buckets, spent, strict=True):
                end, bucket = max(end, ready) + seconds, max(bucket, float(size))
            tail, reducing = max(tail, end), max(reducing, sum(spent))
        return tail, reducing, bucket

    def _peaks(self, blocks: Blocks, cut: slice, gradients: Column, bucket: float) -> tuple[tuple[float, float], float]:
        """Return the peaks of the running micro-batch, forward and backward, and that of the first backward."""
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
        later = np.cumsum(gradients[::-1])[::-1] - gradients
        # While a bucket is reduced, there are two copies of it.
        buckets = np.where(later > 0, bucket, 0.0) if not self.several else 0.0
        first = float((backward + later + buckets).max()) + gathered
        rest = float(backward.max()) + gathered if self.several else first
        return (float(forward.max()) + gathered, rest), first

    def sends(self, bounds: list[int]) -> tuple[list[float], list[float]]:
        """Return the seconds to send outputs to the next stage and gradients back, for each stage except the last.

        `bounds` has the first layer of each stage, and the number of layers.
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


def _leads(blocks: Blocks, runs: tuple[Column, Column, Column], first: int, last: int) -> tuple[float, float]:
    """Return the seconds of a stage's forward and backward before they use an input from another stage."""
    rows, found = blocks.stands_for, [0.0, 0.0]
    if first:
        taker = blocks.taken_by[rows[first - 1], FORWARD]
        found[FORWARD] = _lead(blocks.leads[:, FORWARD], runs[FORWARD], rows[first:last], taker - rows[first - 1])
    if last < len(rows):
        taker = blocks.taken_by[rows[last], BACKWARD]
        mine = rows[first:last][::-1]
        found[BACKWARD] = _lead(blocks.leads[:, BACKWARD], runs[BACKWARD][::-1], mine, rows[last] - taker)
    return found[0], found[1]


def _lead(leads: Column, seconds: Column, rows: NDArray[np.int64], ahead: int) -> float:
    """Return the seconds before the layers use an input from other stages.

    The first row that uses it is `ahead` rows after the row that sends it.
    """
    if ahead <= 1:
        return float(leads[rows[0]])
    free = int(np.append(abs(rows - rows[0]) >= ahead - 1, True).argmax())
    return float(seconds[:free].sum()) + (float(leads[rows[free]]) if free < len(rows) else 0.0)


def _first_talk(seconds: Column, talks: Column) -> float:
    """Return the seconds from the start of a run to its first collective, from the values of its layers in order."""
    place = int(np.isfinite(talks).argmax())
    return max(0.0, float(seconds[:place].sum() + talks[place]))


def _boundary(blocks: Blocks, rows: list[int], begins: bool, ends: bool) -> tuple[float, float, float]:
    """Return the bytes that a stage receives, that it sends without keeping them, and that it gets back as gradients.

    `begins` says that there is no stage before, `ends` that there is none after.
    """
    comes = 0.0 if begins else float(blocks.enters[rows[0], FORWARD])
    if ends:
        return comes, 0.0, 0.0
    return comes, float(blocks.leaves[rows[-1]]), float(blocks.enters[rows[-1], BACKWARD])


def _larger(some: tuple[Joined, ...], least: float) -> tuple[Joined, ...]:
    """Return the outputs that have more bytes than `least`."""
    return tuple(each for each in some if each.bytes > least)


def _bytes_of(inputs: tuple[frozenset[tuple[int, int]], ...], rows: list[int]) -> float:
    """Return the bytes of the inputs of the layers, counting shared inputs once."""
    return float(sum(size for _, size in {each for row in set(rows) for each in inputs[row]}))


def _joined(blocks: Blocks, rows: list[int]) -> tuple[tuple[Joined, ...], tuple[Joined, ...]]:
    """Return the outputs of a stage whose parts from all micro-batches are joined, forward and backward."""
    if not any(any(blocks.joined[row]) for row in set(rows)):
        return (), ()
    held = np.cumsum(blocks.held[rows])
    found = list[Joined](), list[Joined]()
    for place, row in enumerate(rows):
        below = float(held[place] - blocks.held[row]), float(held[place])
        for way in (FORWARD, BACKWARD):
            found[way].extend(
                Joined(each.level + below[way], each.bytes, each.seconds) for each in blocks.joined[row][way]
            )
    return tuple(found[0]), tuple(found[1])


def _filled(
    weights: tuple[tuple[Weight, ...], ...], rows: list[int], backward: Column, over: str, limit: int
) -> list[tuple[int, float]]:
    """Return the bytes of each bucket of gradients, and the seconds from the backward's end until the bucket is full.

    The seconds are negative for buckets that are full before the backward ends.
    """
    found, held, now = list[tuple[int, float]](), 0, -float(backward.sum())
    latest = -np.inf
    for row, seconds in zip(rows[::-1], backward[::-1].tolist(), strict=True):
        now += seconds
        for weight in weights[row]:
            if weight.over == over and weight.gradient.bytes:
                held, latest = held + weight.gradient.bytes, max(latest, now + weight.ready)
                if held >= limit:
                    found.append((held, latest))
                    held = 0
    return [*found, (held, latest)] if held else found


def _reductions(backward: Column, reduce: list[float]) -> tuple[float, float]:
    """Return the seconds from the end of the backward to that of the reductions, and the seconds of all reductions.

    Layers are reduced one after the other, the last layer first.
    """
    done = now = 0.0
    for seconds, wanted in zip(backward[::-1].tolist(), reduce[::-1], strict=True):
        now += seconds
        done = max(done, now) + wanted
    total = sum(reduce)
    return (done - now if total else 0.0), total


def _traffic(wiring: Wiring, strategy: Strategy, place: int, weights: tuple[Weight, ...], least_add: float) -> Traffic:
    """Return the traffic of one layer.  Groups of different dimensions exchange at the same time."""
    degrees, at_once, shared = wiring.ranks.degrees, strategy.scatters_at_once, strategy.zero > 0
    seconds = dict.fromkeys(("gather", "copy", "root", "scatter", "first", "reduce", "update"), 0.0)
    sizes = dict.fromkeys(("adding", "copying", "weights", "gradients", "reduced", "state", "numbers"), 0.0)
    for over in dict.fromkeys(each.over for each in weights):
        mine, degree = [each for each in weights if each.over == over], degrees.of(over)
        for each in mine:
            part = degree if shared else 1
            sizes["weights"] += each.type.bytes / (degree if at_once and strategy.zero == 3 else 1)
            sizes["gradients"] += each.gradient.bytes / (degree if at_once else 1)
            sizes["reduced"] += each.gradient.bytes / part
            sizes["state"] += each.state / part
            sizes["adding"] += max(least_add, each.add / (degree if at_once else 1)) if each.add else 0.0
            sizes["copying"] += max(least_add, each.first / (degree if at_once else 1)) if each.first else 0.0
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
    """Return the bytes of the weights and those of their gradients."""
    return sum(each.type.bytes for each in weights), sum(each.gradient.bytes for each in weights)


def _buckets(weights: list[Weight], most: int) -> list[int]:
    """Return the bytes of each bucket of gradients, in the order in which the gradients are made."""
    found, held = list[int](), 0
    for each in weights:
        held += each.gradient.bytes
        if held >= max(1, most):
            found.append(held)
            held = 0
    return found + ([held] if held else [])
