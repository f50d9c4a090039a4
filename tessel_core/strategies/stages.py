"""Compute the costs of stages from blocks: time per micro-batch, memory, and communication between replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.expansion import DATA, EXPERT_DATA, REPLICAS
from tessel_core.strategies.blocks import BACKWARD, FORWARD, PHASES, WEIGHT, Blocks, BlockTable, Joined, Unit, Weight
from tessel_core.strategies.exchanges import Exchanging, Step, Streams, exchanging
from tessel_core.strategies.layouts import Matrix, sums
from tessel_core.strategies.strategy import ZERO_STAGES, Strategy
from tessel_core.strategies.wiring import Wiring

Column = NDArray[np.float64]
T = TypeVar("T")
_MIN_JOINED_SHARE = 5e-5
"""Outputs that micro-batches join are ignored if they are smaller than this fraction of a stage's memory.

An example is one loss per sample.
"""
MAX_BUCKETED_WEIGHTS = 500
"""Up to this number of weights in a stage, buckets contain weights of several layers.

With more, each layer has its own.
"""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What each replica has and adds of one layer's weights and gradients."""

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

    def traffic(self, stage: int) -> list[Traffic]:
        """Return the communication between replicas for each layer of the shortened network."""
        place = self._classes[stage]
        key, rows = ("traffic", self._keys[place]), self._blocks[place].weights
        least = self._blocks[place].least_add
        return self._table.once(key, lambda: [_traffic(self._wiring, self.strategy, r, least) for r in rows])

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
        weights, state, gradients = (self.column(stage, name) for name in ("weights", "state", "gradients"))
        return sums((weights + state + gradients)[rows] + held * layers.held) + layers.largest_space

    def _stage(self, stage: int, first: int, last: int) -> StageCosts:
        blocks, strategy = self.blocks(stage), self.strategy
        rows = blocks.stands_for[first:last].tolist()
        runs = self._runs(stage, first, last)
        seconds = [float(each.sum()) for each in runs]
        adding, copying, numbers = (
            float(sum(self.column(stage, name)[rows].tolist())) for name in ("adding", "copying", "numbers")
        )
        making = WEIGHT if strategy.form.split else BACKWARD
        trailing = blocks.trailing[rows[-1], FORWARD], *blocks.trailing[rows[0], BACKWARD:]
        leads = _leads(blocks, runs, first, last)
        onward = _onward(blocks, runs, rows)
        exchanges, (tail, reducing, gathering, bucket) = None, self._reduced(stage, rows, runs)
        gathering += self._gathered_once(stage, rows)
        if strategy.scatters_at_once:
            steps = self._steps(stage, first, last, runs)
            exchanges = exchanging(steps, (*onward, 0.0), len(self._overs), turns=last == len(blocks.stands_for))
            ends, outputs = exchanges.least.T.tolist()
            seconds, adding, copying = ends, 0.0, 0.0
            onward = outputs[FORWARD] - ends[FORWARD], outputs[BACKWARD] - ends[BACKWARD]
            # Gathered weights are copied before a run uses its inputs.
            leads = leads[FORWARD] + steps[FORWARD][0].copy, leads[BACKWARD] + steps[BACKWARD][0].copy
        else:
            # The simulated blocks include the addition of gradients, which is counted apart.
            seconds[making] -= adding * self.several
        tail = max(tail, float(trailing[making if self._table.training else FORWARD]))
        update = blocks.update(round(numbers)) + gathering
        gradients = self.column(stage, "gradients")[rows]
        ends = not first, last == len(blocks.stands_for)
        comes, goes, returns = _boundary(blocks, rows, *ends)
        reduced = self.column(stage, "reduced")[rows]
        peak, first_peak = self._peaks(stage, slice(first, last), gradients if self.several else reduced, bucket)
        back = comes - goes + returns
        parts = self._parts(stage, rows)
        peak, first_peak = (peak[0] + comes, peak[1] + back), first_peak + back
        held = float(blocks.held[rows].sum()) + comes - goes
        sent = float(blocks.enters[rows[0] - 1, BACKWARD]) if first else 0.0
        kept = held + float(blocks.change[rows, BACKWARD].sum()) + returns - sent
        ahead = np.cumsum(blocks.change[rows[::-1], WEIGHT]) - blocks.change[rows[::-1], WEIGHT]
        if strategy.form.split and (strategy.scatters_at_once or not self.several):
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
            onward=onward,
            leads=leads,
            talks=self._talks(blocks, rows, runs),
            trailing=(float(trailing[0]), float(trailing[1]), float(trailing[2])),
            exchanging=exchanges,
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
        """Return the seconds of each layer, for forward, backward and gradients of weights.

        The first layer of a run does not wait for the communication of the layer before it. Instead, the whole run
        starts after this communication.
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

    @property
    def _overs(self) -> tuple[str, ...]:
        """Dimensions over which replicas exchange, each in a stream of its own."""
        strategy = self.strategy
        return (REPLICAS if strategy.context > 1 else DATA, *([EXPERT_DATA] if strategy.expert > 1 else ()))

    def _steps(
        self, stage: int, first: int, last: int, runs: tuple[Column, Column, Column]
    ) -> tuple[list[Step], list[Step], list[Step]]:
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

    def _gathered_once(self, stage: int, rows: list[int]) -> float:
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

    def _made(self, stage: int, row: int) -> list[list[_Made]]:
        """Return the gradients of a row that are reduced at the end of the step, by phase."""
        key = "made", self._keys[self._classes[stage]], row
        return self._table.once(key, lambda: _made_by(self.blocks(stage).weights[row], self.strategy, self._wiring))

    def _reduced(
        self, stage: int, rows: list[int], runs: tuple[Column, Column, Column]
    ) -> tuple[float, float, float, float]:
        """Return values for a stage that reduces gradients once per step.

        They are `tail`, `reducing`, the seconds to gather the updated weights, and the bytes of the largest bucket.
        """
        strategy, place, making = self.strategy, self._classes[stage], WEIGHT if self.strategy.form.split else BACKWARD
        made = {row: self._made(stage, row) for row in dict.fromkeys(rows)}
        overs = dict.fromkeys(each.over for of_row in made.values() for some in of_row for each in some)
        if not overs:
            return 0.0, 0.0, 0.0, 0.0
        limit, tail, reducing, gathering = max(1, strategy.bucket_bytes), 0.0, 0.0, 0.0
        if sum(len(made[row][phase]) for row in rows for phase in (BACKWARD, WEIGHT)) > MAX_BUCKETED_WEIGHTS:
            apart = {row: [_filled(made, [row], _NO_RUNS, over, limit) for over in overs] for row in made}
            spent = {
                row: max(sum(each.reducing(self._wiring, place) for each in some) for some in every)
                for row, every in apart.items()
            }
            tail, reducing = _reductions(runs[making], [spent[row] for row in rows])
            gathers = {
                row: max(sum(each.gathering(self._wiring, place) for each in some) for some in every)
                for row, every in apart.items()
            }
            largest = max(each.bytes for every in apart.values() for some in every for each in some)
            return tail, reducing, sum(gathers[row] for row in rows), float(largest)
        largest = 0
        for over in overs:
            buckets, end, spent_on = _filled(made, rows, runs, over, limit), -np.inf, 0.0
            for each in buckets:
                seconds = each.reducing(self._wiring, place)
                end, spent_on, largest = max(end, each.ready) + seconds, spent_on + seconds, max(largest, each.bytes)
            tail, reducing = max(tail, end), max(reducing, spent_on)
            gathering = max(gathering, sum(each.gathering(self._wiring, place) for each in buckets))
        return tail, reducing, gathering, float(largest)

    def _peaks(self, stage: int, cut: slice, gradients: Column, bucket: float) -> tuple[tuple[float, float], float]:
        """Return the peaks of the running micro-batch, forward and backward, and that of the first backward."""
        blocks, layers, strategy = self.blocks(stage), self.blocks(stage).layers, self.strategy
        held = np.cumsum(layers.held[cut])
        forward = held - layers.held[cut] + layers.space_forward[cut]
        backward = held + layers.space_backward[cut]
        gathered = 0.0
        if strategy.zero == 3 and strategy.scatters_at_once:
            whole, roots = self._cut_bytes(stage)[blocks.stands_for[cut]].sum(axis=2).T
            two = whole + np.append(whole[1:], 0.0)
            gathered = float((two.max() if strategy.reshard else whole.sum()) + roots.sum())
        later = np.cumsum(gradients[::-1])[::-1] - gradients
        # While a bucket is reduced, there are two copies of it.
        buckets = np.where(later > 0, bucket, 0.0) if not self.several else 0.0
        first = float((backward + later + buckets).max()) + gathered
        rest = float(backward.max()) + gathered if self.several else first
        return (float(forward.max()) + gathered, rest), first

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


def _leads(blocks: Blocks, runs: tuple[Column, Column, Column], first: int, last: int) -> tuple[float, float]:
    """Return the seconds of a stage's forward and backward run until they use an input from another stage."""
    rows, found = blocks.stands_for, [0.0, 0.0]
    if first:
        taker = blocks.taken_by[rows[first - 1], FORWARD]
        found[FORWARD] = _lead(blocks.leads[:, FORWARD], runs[FORWARD], rows[first:last], taker - rows[first - 1])
    if last < len(rows):
        taker = blocks.taken_by[rows[last], BACKWARD]
        mine = rows[first:last][::-1]
        found[BACKWARD] = _lead(blocks.leads[:, BACKWARD], runs[BACKWARD][::-1], mine, rows[last] - taker)
    return found[0], found[1]


def _onward(blocks: Blocks, runs: tuple[Column, Column, Column], rows: list[int]) -> tuple[float, float]:
    """Return the seconds from the end of a stage's forward and backward until their outputs are ready."""
    found = list[float]()
    for way, order, seconds in ((FORWARD, rows, runs[FORWARD]), (BACKWARD, rows[::-1], runs[BACKWARD][::-1])):
        maker = blocks.made_by[order[-1], way]
        later = next((i for i, row in enumerate(order[::-1]) if row == maker), len(order))
        found.append(float(blocks.onward[order[-1], way]) - float(seconds[len(order) - later :].sum()))
    return found[0], found[1]


def _lead(leads: Column, seconds: Column, rows: NDArray[np.int64], ahead: int) -> float:
    """Return the seconds until the layers use an input from other stages.

    The first row that uses this input comes `ahead` rows after the row that sends it.
    """
    if ahead <= 1:
        return float(leads[rows[0]])
    free = int(np.append(abs(rows - rows[0]) >= ahead - 1, True).argmax())
    return float(seconds[:free].sum()) + (float(leads[rows[free]]) if free < len(rows) else 0.0)


def _first_talk(seconds: Column, talks: Column) -> float:
    """Return the seconds from the start of a run to its first collective.

    `seconds` and `talks` have one entry per layer.
    """
    place = int(np.isfinite(talks).argmax())
    return max(0.0, float(seconds[:place].sum() + talks[place]))


def _boundary(blocks: Blocks, rows: list[int], begins: bool, ends: bool) -> tuple[float, float, float]:
    """Return the bytes that a stage receives, sends without keeping them, and gets back as gradients.

    `begins` is set for the first stage, and `ends` for the last.
    """
    comes = 0.0 if begins else float(blocks.enters[rows[0], FORWARD])
    if ends:
        return comes, 0.0, 0.0
    return comes, float(blocks.leaves[rows[-1]]), float(blocks.enters[rows[-1], BACKWARD])


def _larger(some: tuple[Joined, ...], least: float) -> tuple[Joined, ...]:
    """Return the outputs that have more bytes than `least`."""
    return tuple(each for each in some if each.bytes > least)


def _bytes_of(inputs: tuple[frozenset[tuple[int, int]], ...], rows: list[int]) -> float:
    """Return the bytes of the inputs of the layers. An input that several layers share counts once."""
    return float(sum(size for _, size in {each for row in set(rows) for each in inputs[row]}))


def _joined(blocks: Blocks, rows: list[int]) -> tuple[tuple[Joined, ...], tuple[Joined, ...]]:
    """Return the outputs of a stage that are joined over micro-batches, in forward and backward runs."""
    if not any(any(blocks.joined[row]) for row in set(rows)):
        return (), ()
    held = np.cumsum(blocks.held[rows])
    found = list[Joined](), list[Joined]()
    for place, row in enumerate(rows):
        below = float(held[place] - blocks.held[row]), float(held[place])
        for way in (FORWARD, BACKWARD):
            found[way].extend(
                Joined(each.level + below[way], each.bytes, each.price) for each in blocks.joined[row][way]
            )
    return tuple(found[0]), tuple(found[1])


class _Made(NamedTuple):
    """A gradient that replicas reduce at the end of a step."""

    over: str
    ready: float
    """Seconds from the end of its layer's computation until it is complete."""
    bytes: int
    weight: int
    """Bytes of its weight if replicas scatter the gradient, else 0."""


def _made_by(weights: Sequence[Weight], strategy: Strategy, wiring: Wiring) -> list[list[_Made]]:
    """Return the gradients that are reduced at the end of the step, by phase.

    If each micro-batch scatters its gradients, only those that replicas cannot cut are left.
    """
    found = [list[_Made]() for _ in PHASES]
    for each in weights:
        degree = wiring.ranks.degrees.of(each.over)
        scattered = strategy.zero > 0 and each.parts(degree) > 1
        if degree > 1 and each.gradient.bytes and not (scattered and strategy.scatters_at_once):
            made = _Made(each.over, each.ready, each.gradient.bytes, each.type.bytes * scattered)
            found[each.phase].append(made)
    return found


class _Bucket(NamedTuple):
    """Gradients that replicas reduce together at the end of a step."""

    over: str
    whole: int
    """Bytes of gradients that each replica keeps whole."""
    cut: int
    """Bytes of gradients that replicas scatter."""
    weights: int
    """Bytes of the weights of scattered gradients, which are gathered after the optimizer's step."""
    ready: float
    """Seconds from the end of the last run until the gradients are complete; negative if that is earlier."""

    @property
    def bytes(self) -> int:
        """Bytes of all gradients."""
        return self.whole + self.cut

    def reducing(self, wiring: Wiring, place: int) -> float:
        """Return the seconds to reduce the gradients."""
        scatter = wiring.collective(place, "reduce_scatter", self.over, self.cut) if self.cut else 0.0
        return scatter + (wiring.collective(place, "allreduce", self.over, self.whole) if self.whole else 0.0)

    def gathering(self, wiring: Wiring, place: int) -> float:
        """Return the seconds to gather the updated weights."""
        return wiring.collective(place, "allgather", self.over, self.weights) if self.weights else 0.0


_NO_RUNS = (np.zeros(1),) * len(PHASES)


def _filled(
    made: Mapping[int, Sequence[Sequence[_Made]]], rows: list[int], runs: tuple[Column, ...], over: str, limit: int
) -> list[_Bucket]:
    """Return the buckets of one dimension of replicas, in the order in which the last micro-batch fills them.

    `made` has the gradients of each row by phase, and `runs` the seconds of each layer by phase.
    """
    found, whole, cut, weights, latest = list[_Bucket](), 0, 0, 0, -np.inf
    now = -float(sum(seconds.sum() for seconds in runs[BACKWARD:]))
    for phase, of_layer in enumerate(runs[BACKWARD:], BACKWARD):
        for row, seconds in zip(rows[::-1], of_layer[::-1].tolist(), strict=True):
            now += seconds
            for name, ready, size, weight in made[row][phase]:
                if name != over:
                    continue
                if weight:
                    cut, weights = cut + size, weights + weight
                else:
                    whole += size
                latest = max(latest, now + ready)
                if whole + cut >= limit:
                    found.append(_Bucket(over, whole, cut, weights, latest))
                    whole = cut = weights = 0
    return [*found, _Bucket(over, whole, cut, weights, latest)] if whole + cut else found


def _reductions(backward: Column, reduce: list[float]) -> tuple[float, float]:
    """Return the seconds from the end of the backward run to the end of its reductions, and the seconds of all
    reductions.

    Layers are reduced one after the other, beginning with the last layer.
    """
    done = now = 0.0
    for seconds, wanted in zip(backward[::-1].tolist(), reduce[::-1], strict=True):
        now += seconds
        done = max(done, now) + wanted
    total = sum(reduce)
    return (done - now if total else 0.0), total


def _traffic(wiring: Wiring, strategy: Strategy, weights: tuple[Weight, ...], least_add: float) -> Traffic:
    """Return the traffic of one layer.  Groups of different dimensions exchange at the same time."""
    degrees, at_once, shared = wiring.ranks.degrees, strategy.scatters_at_once, strategy.zero > 0
    sizes = dict.fromkeys(("adding", "copying", "weights", "gradients", "reduced", "state", "numbers"), 0.0)
    for over in dict.fromkeys(each.over for each in weights):
        mine, degree = [each for each in weights if each.over == over], degrees.of(over)
        for each in mine:
            parts = each.parts(degree)
            at_once_parts = parts if at_once else 1
            sizes["weights"] += each.type.bytes / (parts if at_once and strategy.zero == ZERO_STAGES[-1] else 1)
            sizes["gradients"] += each.gradient.bytes / at_once_parts
            sizes["reduced"] += each.gradient.bytes / (parts if shared else 1)
            sizes["state"] += each.state / (parts if shared else 1)
            sizes["adding"] += max(least_add, each.add / at_once_parts) if each.add else 0.0
            sizes["copying"] += max(least_add, each.first / at_once_parts) if each.first else 0.0
            sizes["numbers"] += each.gradient.elements / (parts if shared else 1)
    return Traffic(**sizes)


def _bytes(weights: Sequence[Weight]) -> tuple[int, int]:
    """Return the bytes of the weights, and the bytes of their gradients."""
    return sum(each.type.bytes for each in weights), sum(each.gradient.bytes for each in weights)
