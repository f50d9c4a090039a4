"""Blocks: the time and memory of each distinct layer, for each way to divide layers. They are simulated once and
cached.

The network is shortened to its distinct layers (`ir/transforms/condensed.py`), and each layer is divided among devices
as in the strategy. Then the program of one device is simulated for one micro-batch. The time of a layer lasts from the
end of the previous layer's computation to the end of its own computation. So communication that overlaps with
computation takes no time. Stages are sums of blocks (`stages.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import Scope, Tag
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.combining import ADD, JOIN, JOINED, Combined, combined_outputs
from tessel_core.ir.transforms.condensed import Condensed, condensed
from tessel_core.ir.transforms.data import replicas_of
from tessel_core.ir.transforms.expansion import CONTEXT, EXPERT, TENSOR, Degrees
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.transforms.update import GradientFormat, Optimizer, scatter_axis
from tessel_core.ir.types import TensorType
from tessel_core.model import DeviceMesh
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.live_memory import owners
from tessel_core.simulation.ranks import RankCosts
from tessel_core.simulation.streams import simulate_streams
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.layouts import Matrix, maxima
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.strategy import Semantics, Strategy, with_layers_cut
from tessel_core.strategies.wiring import Wiring

Column = NDArray[np.float64]
T = TypeVar("T")

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
_TIME_TOLERANCE = 1e-9
"""Times count as equal if they differ by less than this fraction of the simulated time, which comes from rounding."""
PHASES = {"forward": FORWARD, "backward": BACKWARD, WEIGHT_PHASE: WEIGHT}
TURNS = (0, 1, 3, 7, 15, 31, 63, 127, 255, 1023, 16383)
"""The time to join outputs is computed for these numbers of earlier micro-batches, and interpolated for all others."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a layer, as it is on one device."""

    type: TensorType
    gradient: TensorType
    scope: Scope
    """Part of the network that uses the weight.

    A layer may have several parts, such as embedding and first transformer block.
    """
    root: bool
    """Whether the weight belongs to the first or last part of the network, such as embedding or head.

    FSDP gathers these weights only once per step.
    """
    copy: float
    """Seconds to copy the weight out of the buffer into which it was gathered."""
    add: float
    """Seconds to add its gradient to the sum over earlier micro-batches."""
    first: float
    """Seconds to copy its gradient of the first micro-batch, which begins the sum."""
    over: str
    """Dimension of parallelism whose devices all have this weight."""
    state: int
    """Bytes of the optimizer's state, if replicas do not share it."""
    phase: int
    """Phase in which its gradient is made."""
    used: frozenset[int]
    """Phases that use it."""
    ready: float
    """Seconds from the end of its layer's computation until its gradient is complete.

    Negative if the gradient is earlier.
    """

    def parts(self, replicas: int) -> int:
        """Return the number of parts into which replicas can cut it; 1 if no axis divides."""
        return replicas if scatter_axis(self.type.shape, replicas) is not None else 1


@dataclass(frozen=True, slots=True)
class Unit:
    """The computation of one part of the network in one phase, such as the embedding in the first layer."""

    scope: Scope
    seconds: float
    """Seconds from the end of the previous unit's computation to the end of its own."""
    gap: float
    """Seconds at the start of `seconds` in which the device does not compute."""
    late: float
    """Seconds from the end of its computation until its last result is ready."""
    rest: float
    """Seconds from the end of its computation to that of its layer."""


@dataclass(frozen=True, slots=True)
class Joined:
    """An output with a batch axis. The outputs of all micro-batches are joined into one tensor, one after the other."""

    level: float
    """Bytes that the layer has allocated since its start when the output is joined."""
    bytes: int
    """Bytes of the output of one micro-batch."""
    seconds: tuple[float, ...]
    """Seconds to join the output of a micro-batch. The index is that of the number of earlier micro-batches in `TURNS`.

    The time to copy the output of the first micro-batch is not included.
    """


@dataclass(frozen=True)
class Blocks:
    """Costs of each distinct layer for one micro-batch on one device.

    Rows of the arrays are the layers of the shortened network. Phases are forward, backward, and gradients of weights
    if they are split off. Directions are forward and backward.
    """

    stands_for: NDArray[np.int64]
    """For each layer of the whole network, the row that represents it."""
    seconds: Column
    """Seconds of computation by row and phase."""
    onward: Column
    """Seconds from the end of a layer's computation until its outputs are ready, by row and direction.

    They are negative if the last operations do not delay the outputs, for example those for gradients of weights. If
    all values that leave a layer come from earlier layers, the layer is the latest of these, `made_by`.
    """
    made_by: NDArray[np.int64]
    """Row that makes the latest of the values that leave a row, by row and direction; the row itself without any."""
    leads: Column
    """Seconds of a layer's computation until it uses a value from another layer, by row and direction."""
    taken_by: NDArray[np.int64]
    """First row that uses the values that a row passes on, by row and direction. If there is none, the row itself."""
    trailing: Column
    """Seconds by which a layer's communication ends after its computation, by row and phase."""
    talks: Column
    """Seconds from the start of a layer to its first communication, by row and phase.

    Infinite without communication.
    """
    held: Column
    """Bytes that stay between the forward and the backward pass, by row.

    Outputs that micro-batches join do not count.
    """
    enters: Column
    """Bytes that a layer receives from the layer before it, by row and direction.

    In the backward direction, the layer before is the next layer.
    """
    leaves: Column
    """Bytes that a layer passes to the next layer and that its own backward pass does not use, by row."""
    space: Column
    """Bytes of temporary memory that a layer needs while it runs, by row and phase."""
    change: Column
    """Bytes that a layer allocates and keeps, minus the bytes that it frees, by row and phase.

    Used if the backward is split.
    """
    joined: tuple[tuple[tuple[Joined, ...], tuple[Joined, ...]], ...]
    """Outputs that are joined over micro-batches, by row and direction."""
    own_samples: Column
    """Bytes of the inputs of one micro-batch that only this layer uses, by row."""
    shared_samples: tuple[frozenset[tuple[int, int]], ...]
    """Inputs of one micro-batch that other layers use, too. By row, pairs of an input and its bytes."""
    constants: tuple[frozenset[tuple[int, int]], ...]
    """Inputs that are neither weights nor samples. By row, pairs of an input and its bytes."""
    crossing: tuple[tuple[tuple[TensorType, ...], tuple[TensorType, ...]], ...]
    """Types of the tensors that a layer sends to the next layer (forward) or the previous one (backward).

    They are indexed by row and direction.
    """
    weights: tuple[tuple[Weight, ...], ...]
    """Weights by row, in the order in which their gradients are made."""
    units: tuple[tuple[tuple[Unit, ...], ...], ...]
    """Units by row and phase, in the order in which they run; empty if micro-batches are combined."""
    adding: Column
    """Seconds to add the gradients of a micro-batch to their sums, by row.

    The gradients are not divided among replicas.
    """
    least_add: float
    """Seconds to add two numbers. Launching the kernel takes nearly all of this time."""
    update: Callable[[int], float]
    """Returns the seconds of the optimizer step for a number of weight elements."""

    @cached_property
    def gradient_bytes(self) -> NDArray[np.int64]:
        """Bytes of the gradients of weights, by row."""
        return np.array([sum(each.gradient.bytes for each in row) for row in self.weights], np.int64)

    @cached_property
    def layers(self) -> PerLayer:
        """The same columns with one row per layer of the whole network."""
        bytes_of = np.array([sum(each.type.bytes for each in row) for row in self.weights], float)
        at = self.stands_for
        forward, backward, weight = self.seconds[at].T
        spaces = self.space[at, FORWARD], self.space[at, BACKWARD]
        return PerLayer(forward, backward, weight, self.adding[at], self.held[at], *spaces, bytes_of[at])


@dataclass(frozen=True)
class PerLayer:
    """Columns of `Blocks`, indexed by layer of the whole network."""

    forward: Column
    backward: Column
    weight: Column
    adding: Column
    held: Column
    space_forward: Column
    space_backward: Column
    weights: Column
    """Bytes of weights."""

    @cached_property
    def largest_space(self) -> Matrix:
        """Array whose element [i, j] is the largest temporary space of the layers i to j - 1, forward or backward."""
        return maxima(np.maximum(self.space_forward, self.space_backward))


class BlockTable:
    """Cache of the blocks of one network on one mesh. The batch size of the network does not matter.

    With `like`, the table of another network on the same mesh, both tables share the caches of costs and of wirings.
    """

    def __init__(self, family: Family, spec: Spec, mesh: DeviceMesh, like: BlockTable | None = None) -> None:
        self.family, self.spec, self.mesh = family, spec, mesh
        self.training = family.optimizer(spec) is not None
        same = like is not None and like.mesh == mesh and like.training == self.training
        self._costs: MeshCosts = like._costs if like is not None and same else MeshCosts(mesh, training=self.training)
        self._wirings: dict[Ranks, Wiring] = like._wirings if like is not None and same else {}
        self._seconds: dict[Hashable, float] = like._seconds if like is not None and same else {}
        self._blocks: dict[Hashable, Blocks] = {}
        self._short: dict[int, Condensed] = {}
        self._stands_for: tuple[int, ...] = ()
        self._built: dict[Hashable, dict[int, Distributed]] = {}
        """Divided networks, by the way in which they are divided and by the number of samples."""
        self._remembered: dict[Hashable, Any] = {}

    def with_memory_of(self, mesh: DeviceMesh) -> BlockTable:
        """Return a table with the same blocks for a mesh that differs only in the memory of its devices."""
        found = copy(self)
        found.mesh, found._remembered = mesh, {}
        return found

    def short(self, rows: int) -> Condensed:
        """Return the forward pass for `rows` samples, in which layers that repeat occur only once."""
        if rows not in self._short:
            self._short[rows] = condensed(self.family.forward(self.family.with_batch(self.spec, rows)))
            self._stands_for = self._short[rows].stands_for
        return self._short[rows]

    def completed(self, rows: int, *, split: bool, attention: AttentionKernel) -> Distributed:
        """Return the shortened network with its backward pass."""
        short = self.short(rows).model
        return self.once(
            ("completed", rows, split, attention),
            lambda: self.family.completed(short, self.spec, split_weights=split, attention=attention),
        )

    def wiring(self, strategy: Strategy) -> Wiring:
        """Return how the ranks of a strategy are spread over the mesh."""
        ranks = strategy.ranks(Semantics.DEFAULT)
        if ranks not in self._wirings:
            self._wirings[ranks] = Wiring(self._costs, ranks)
        return self._wirings[ranks]

    def blocks(self, strategy: Strategy, rows: int, place: int) -> Blocks:
        """Return the blocks of a strategy's layers at position `place` of the pipeline, for micro-batches of `rows`
        samples.

        Raises InputError if the layers cannot be divided as in the strategy.
        """
        wiring, split = self.wiring(strategy), self.training and strategy.form.split
        dimensions = [name for name in (TENSOR, CONTEXT, EXPERT) if getattr(strategy, name) > 1]
        patterns = tuple((name, wiring.pattern(name, place)) for name in dimensions)
        combines = strategy.micro_batches > 1 and not strategy.scatters_at_once
        key = rows, _cut_of(strategy, split), combines, wiring.kind(place), patterns
        if key not in self._blocks:
            model = self.cut_model(strategy, rows)
            stands_for = self._stands_for
            self._blocks[key] = _Simulated(self, model, stands_for, strategy, wiring.costs(place), combines).blocks()
        return self._blocks[key]

    def cut_model(self, strategy: Strategy, rows: int) -> Distributed:
        """Return the program of one device for the shortened network, divided as in the strategy, for `rows` samples.

        The program is built for two numbers of samples. If they give the same operations, it is only resized for other
        numbers.
        """
        split = self.training and strategy.form.split
        built = self._built.setdefault(_cut_of(strategy, split), {})
        known = list(self._short)[:_MIN_CUT_SIZES]
        for count in known if len(known) == _MIN_CUT_SIZES else (rows,):
            if rows not in built and count not in built:
                built[count] = self._cut(strategy, count, split)
        if rows in built:
            return built[rows]
        found = _resized(built, rows) if len(built) >= _MIN_CUT_SIZES else None
        if found is None:
            found = built[rows] = self._cut(strategy, rows, split)
        return found

    def _cut(self, strategy: Strategy, rows: int, split: bool) -> Distributed:
        model = self.completed(rows, split=split, attention=strategy.attention)
        model = with_layers_cut(model, strategy, training=self.training)
        model = GradientFormat(strategy.grad_dtype)(model) if strategy.grad_dtype else model
        return _weights_last(model) if split else model

    def seconds(self, costs: RankCosts, device: str, kind: str, types: Types, made: Types, values: Values) -> float:
        """Return the seconds of a computation on a kind of device. They are cached."""
        key = device, kind, *types, *made, *values.items()
        if key not in self._seconds:
            self._seconds[key] = max(costs.seconds(kind, types, made, values).values())
        return self._seconds[key]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value for `key`. At the first call, `make` computes it."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: T = self._remembered[key]
        return found


class _Simulated:
    """Simulates one micro-batch of the shortened network that is divided in one way.

    With `combines`, the program adds gradients to their sums and copies outputs with a batch axis, at the same points
    as a pipeline does (`ir/transforms/partition.py`).
    """

    def __init__(
        self,
        table: BlockTable,
        model: Distributed,
        stands_for: tuple[int, ...],
        strategy: Strategy,
        costs: RankCosts,
        combines: bool,
    ) -> None:
        self._table, self._model, self._stands_for, self._costs = table, model, stands_for, costs
        self._rows, self._kind = 1 + max(stands_for), table.mesh.devices[costs.worker_of(0, 0) - 1].kind
        self._training, self._combines = table.training, combines
        self._degrees = Degrees(strategy.tensor, strategy.context, strategy.data, strategy.expert)
        combined = combined_outputs(self._model) if combines else Combined(self._model.program, {})
        self._program, self._combined = combined.program, combined.value_of
        self._in_place, self._grad_dtype = bool(strategy.grad_dtype), strategy.grad_dtype
        self._trace = simulate_streams(self._program, costs)
        self._measure()

    def blocks(self) -> Blocks:
        """Return the costs of the layers."""
        weights = self._weights()
        adding = np.array([sum(each.add for each in row) for row in weights])
        one = self._program.types[0].shaped((1,))
        own, shared, constants = self._samples()
        joined = self._joined()
        return Blocks(
            np.array(self._stands_for, np.int64),
            self._seconds,
            *self._onward(),
            *self._leads(),
            self._trailing,
            self._talks,
            self._held - np.array([sum(each.bytes for each in row[FORWARD]) for row in joined]),
            *self._boundaries(),
            self._space,
            self._change - np.array([(0, sum(each.bytes for each in row[BACKWARD]), 0) for row in joined]),
            joined,
            own,
            shared,
            constants,
            self._crossing(),
            weights,
            self._units(),
            adding,
            self._cost("add", (one, one), (one,), {}),
            partial(_update_seconds, self._table, self._costs, self._kind, self._step),
        )

    def _cost(self, kind: str, types: Types, made: Types, values: Values) -> float:
        return self._table.seconds(self._costs, self._kind, kind, types, made, values)

    # Times and memory of layers

    def _measure(self) -> None:
        """Compute, for each layer, seconds, communication after the computation, temporary memory and kept memory."""
        trace, ops = self._trace, self._program.ops
        computed: dict[tuple[int, int], float] = {}
        latest: dict[tuple[int, int], float] = defaultdict(float)
        talks: dict[tuple[int, int], float] = {}
        columns = trace.op.tolist(), trace.start.tolist(), trace.seconds.tolist(), trace.communicates.tolist()
        for number, start, seconds, communicates in zip(*columns, strict=True):
            tag = ops[number].tag
            if tag.phase in PHASES:
                key, end = (tag.stage or 0, PHASES[tag.phase]), start + seconds
                latest[key] = max(latest[key], end)
                if communicates:
                    talks.setdefault(key, start)
                else:
                    computed[key] = max(computed.get(key, 0.0), end)
        shape = self._rows, len(PHASES)
        self._seconds, self._trailing, self._space = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._change = np.zeros(shape)
        self._held, self._talks = np.zeros(self._rows), np.full(shape, np.inf)
        self._end, self._start_level = computed, dict[tuple[int, int], int]()
        *_, last = order = sorted(computed, key=lambda each: computed[each])
        levels, before, at_start = self._levels(order), 0.0, self._inputs
        for key, at_end in zip(order, levels, strict=True):
            end, (row, phase) = computed[key], key
            self._talks[key] = talks.get(key, np.inf) - before
            self._seconds[key] = end - before
            self._trailing[key] = latest[key] - end
            until = trace.latency + 4 * self._tolerance if key == last else end
            self._space[key] = max(0, self._most_between(before, until) - at_start)
            self._start_level[key], self._change[key] = at_start, at_end - at_start
            if phase == FORWARD:
                self._held[row] = at_end - at_start
            before, at_start = end, at_end
        if self._combines and not self._in_place:
            self._sum_apart()

    def _units(self) -> tuple[tuple[tuple[Unit, ...], ...], ...]:
        """Return the units of each row and phase."""
        found = [[list[Unit]() for _ in PHASES] for _ in range(self._rows)]
        if self._combines:
            return tuple(tuple(map(tuple, row)) for row in found)
        trace, ops = self._trace, self._program.ops
        starts, ends = dict[tuple[int, int, Scope], float](), dict[tuple[int, int, Scope], float]()
        computes = ~trace.communicates
        columns = trace.op[computes], trace.start[computes], trace.seconds[computes]
        for number, start, seconds in zip(*(each.tolist() for each in columns), strict=True):
            tag = ops[number].tag
            if tag.phase in PHASES:
                key = tag.stage or 0, PHASES[tag.phase], tag.scope
                starts.setdefault(key, start)
                ends[key] = start + seconds
        latest = {(op.tag.stage or 0, PHASES.get(op.tag.phase, WEIGHT), op.tag.scope): op for op in ops}
        before = 0.0
        for key, end in sorted(ends.items(), key=lambda each: each[1]):
            row, phase, scope = key
            late = float(trace.ready[latest[key].outputs[0]]) - end
            unit = Unit(scope, end - before, max(0.0, starts[key] - before), late, self._end[row, phase] - end)
            found[row][phase].append(unit)
            before = end
        return tuple(tuple(map(tuple, row)) for row in found)

    def _levels(self, order: Sequence[tuple[int, int]]) -> list[int]:
        """Return the bytes in memory after each run of a layer: inputs, outputs, and values that later runs use."""
        program, place = self._program, {key: i for i, key in enumerate(order)}
        owner, end = owners(program).tolist(), len(order)
        made, until = dict[int, int](), dict[int, int]()
        for op in program.ops:
            at = place.get((op.tag.stage or 0, PHASES.get(op.tag.phase, BACKWARD)), end - 1)
            for value in op.inputs:
                until[owner[value]] = max(until.get(owner[value], 0), at)
            for value in op.outputs:
                made.setdefault(owner[value], at)
        until |= {owner[value]: end for value in program.outputs}
        changes = np.zeros(end + 1, np.int64)
        for value, at in made.items():
            if value not in self._given and until.get(value, at) > at:
                changes[at] += program.types[value].bytes
                changes[until[value]] -= program.types[value].bytes
        return [int(each) for each in self._inputs + np.cumsum(changes)[:end]]

    def _sum_apart(self) -> None:
        """Add the memory of new gradient sums. While they are computed, the old sums are still in memory."""
        trace, program = self._trace, self._program
        for number, start in zip(trace.op.tolist(), trace.start.tolist(), strict=True):
            op = program.ops[number]
            if op.kind == ADD:
                key = op.tag.stage or 0, PHASES[op.tag.phase]
                level = self._held_at(start) + program.types[op.outputs[0]].bytes
                self._space[key] = max(self._space[key], level - self._start_level[key])

    @cached_property
    def _tolerance(self) -> float:
        return self._trace.latency * _TIME_TOLERANCE

    def _steps_at(self, begin: float, end: float) -> NDArray[np.int64]:
        """Return the bytes in memory from just before `begin` to just after `end`, one element per change."""
        first = np.searchsorted(self._trace.memory_time, begin - self._tolerance, side="left")
        last = np.searchsorted(self._trace.memory_time, end + self._tolerance, side="right")
        return self._trace.memory_bytes[max(0, first - 1) : last]

    def _held_at(self, moment: float) -> int:
        """Return the bytes in memory at a moment. Operations that start then have already allocated their outputs."""
        return int(self._steps_at(moment, moment)[-1:].sum()) or self._inputs

    def _most_between(self, begin: float, end: float) -> int:
        return int(self._steps_at(begin + 2 * self._tolerance, end - 2 * self._tolerance).max(initial=0))

    @cached_property
    def _given(self) -> frozenset[int]:
        return frozenset(self._program.inputs)

    @cached_property
    def _inputs(self) -> int:
        """Bytes of the program's inputs. They are in memory from the start."""
        return sum(self._program.types[value].bytes for value in self._program.inputs)

    # Values that cross from layer to layer

    @cached_property
    def _maker(self) -> dict[int, Tag]:
        """For each value that an operation computes, the tag of the operation."""
        return {value: op.tag for op in self._program.ops for value in op.outputs}

    @cached_property
    def _crossings(self) -> list[tuple[dict[int, TensorType], dict[int, TensorType]]]:
        """For each row and direction, the values that pass to the next layer in this direction, with their types."""
        found = [(dict[int, TensorType](), dict[int, TensorType]()) for _ in range(self._rows)]
        for op in self._program.ops:
            at = op.tag.stage or 0
            for value in op.inputs:
                maker = self._maker.get(value)
                if maker is None or op.tag.phase not in PHASES or maker.phase not in PHASES:
                    continue
                made, phase = maker.stage or 0, PHASES[maker.phase]
                if PHASES[op.tag.phase] == FORWARD:
                    for row in range(made, at):
                        found[row][0][value] = self._program.types[value]
                elif phase == BACKWARD or (phase == FORWARD and made > at):
                    for row in range(at + 1, made + 1):
                        found[row][1][value] = self._program.types[value]
        return found

    def _crossing(self) -> tuple[tuple[tuple[TensorType, ...], tuple[TensorType, ...]], ...]:
        return tuple((tuple(down.values()), tuple(up.values())) for down, up in self._crossings)

    def _boundaries(self) -> tuple[Column, Column]:
        """Return the columns `enters` and `leaves` of `Blocks`."""
        backward: dict[int, int] = {}
        for op in self._program.ops:
            if op.tag.phase != "forward":
                for value in op.inputs:
                    backward[value] = min(backward.get(value, self._rows), op.tag.stage or 0)
        enters, leaves = np.zeros((self._rows, 2)), np.zeros(self._rows)
        for row, (down, up) in enumerate(self._crossings):
            if row + 1 < self._rows:
                enters[row + 1, FORWARD] = sum(each.bytes for each in down.values())
            if row:
                enters[row - 1, BACKWARD] = sum(each.bytes for each in up.values())
            leaves[row] = sum(each.bytes for value, each in down.items() if backward.get(value, self._rows) > row)
        return enters, leaves

    def _onward(self) -> tuple[Column, NDArray[np.int64]]:
        """Return the columns `onward` and `made_by` of `Blocks`."""
        found, made_by = np.zeros((self._rows, 2)), np.repeat(np.arange(self._rows)[:, None], 2, axis=1)
        for row, both in enumerate(self._crossings):
            for way, values in enumerate(both):
                maker_of = {v: self._maker[v].stage or 0 for v in values if PHASES[self._maker[v].phase] == way}
                if maker_of:
                    maker = max(maker_of.values()) if way == FORWARD else min(maker_of.values())
                    latest = max(float(self._trace.ready[v]) for v, each in maker_of.items() if each == maker)
                    found[row, way], made_by[row, way] = latest - self._end[maker, way], maker
        return found, made_by

    def _leads(self) -> tuple[Column, NDArray[np.int64]]:
        computing = np.zeros(len(self._program.ops))
        computing[self._trace.op[~self._trace.communicates]] = self._trace.seconds[~self._trace.communicates]
        leads, taken_by = np.zeros((self._rows, 2)), np.repeat(np.arange(self._rows)[:, None], 2, axis=1)
        sent = [set().union(*(both[way] for both in self._crossings)) for way in (FORWARD, BACKWARD)]
        done, taking = np.zeros((self._rows, 2)), set[tuple[int, int]]()
        for number, op in enumerate(self._program.ops):
            way, row = PHASES.get(op.tag.phase, WEIGHT), op.tag.stage or 0
            if way == WEIGHT:
                continue
            if (row, way) not in taking:
                if any(v in sent[way] and (self._maker[v].stage or 0) != row for v in op.inputs):
                    taking.add((row, way))
                    leads[row, way] = done[row, way]
                done[row, way] += computing[number]
            for value in op.inputs:
                between = range(row) if way == FORWARD else range(self._rows - 1, row, -1)
                for at in between:
                    if value in self._crossings[at][way] and taken_by[at, way] == at:
                        taken_by[at, way] = row
        return leads, taken_by

    # Inputs and outputs that hold samples

    def _samples(self) -> tuple[Column, tuple[frozenset[tuple[int, int]], ...], tuple[frozenset[tuple[int, int]], ...]]:
        takers: dict[int, set[int]] = defaultdict(set)
        for op in self._program.ops:
            for value in op.inputs:
                takers[value].add(op.tag.stage or 0)
        own = np.zeros(self._rows)
        shared, constants = ([set[tuple[int, int]]() for _ in range(self._rows)] for _ in range(2))
        for value, piece in self._model.piece_of.items():
            size, role = self._program.types[value].bytes, self._model.role_of(piece)
            if role.batch_axis is not None and len(takers[value]) == 1:
                own[takers[value].pop()] += size
            elif not role.weight:
                for row in takers[value]:
                    (constants if role.batch_axis is None else shared)[row].add((value, size))
        return own, tuple(map(frozenset, shared)), tuple(map(frozenset, constants))

    def _joined(self) -> tuple[tuple[tuple[Joined, ...], tuple[Joined, ...]], ...]:
        found = [(list[Joined](), list[Joined]()) for _ in range(self._rows)]
        if not self._combines:
            return tuple(((), ()) for _ in found)
        for op in self._program.ops:
            if op.kind != JOIN or op.tag.name != JOINED:
                continue
            row, way = op.tag.stage or 0, PHASES[op.tag.phase]
            of_type = self._program.types[op.outputs[0]]
            start = float(self._trace.ready[op.outputs[0]]) - self._cost("identity", (of_type,), (of_type,), {})
            level = self._held_at(start) - self._start_level[row, way]
            found[row][min(way, 1)].append(Joined(float(level), of_type.bytes, self._joining(of_type)))
        return tuple((tuple(down), tuple(up)) for down, up in found)

    def _joining(self, part: TensorType) -> tuple[float, ...]:
        """Return `Joined.seconds` for the part of one micro-batch."""
        rest = part.elements // part.shape[0] if part.shape else 1
        flat = [part.shaped((turn * (part.elements // rest), rest)) for turn in range(2)]
        found = []
        for turn in TURNS[1:]:
            before, both = (flat[1].shaped((n * flat[1].shape[0], rest)) for n in (turn, turn + 1))
            found.append(self._cost("concat", (before, flat[1]), (both,), {"axis": 0}))
        first = self._cost("identity", (part,), (part,), {})
        return (0.0, *(max(0.0, each - first) for each in found))

    # Weights, their gradients and the optimizer

    @cached_property
    def _first_taker(self) -> dict[int, tuple[int, Scope, set[int]]]:
        """For each input of the model, the first layer and part of the network that use it, and all phases that do."""
        found: dict[int, tuple[int, Scope, set[int]]] = {}
        for op in self._model.program.ops:
            for value in op.inputs:
                if value in self._model.piece_of:
                    known = found.setdefault(value, (op.tag.stage or 0, op.tag.scope, set()))
                    known[2].add(PHASES.get(op.tag.phase, BACKWARD))
        return found

    @cached_property
    def _roots(self) -> set[Scope]:
        """The first and the last part of the network that have weights.

        A part does not count if another has equal weight types.
        """
        model, program = self._model, self._model.program
        kinds: dict[Scope, list[str]] = {}
        for value, (_, scope, _) in self._first_taker.items():
            piece = model.piece_of.get(value)
            if piece is not None and model.role_of(piece).weight and model.role_of(piece).trained:
                kinds.setdefault(scope, []).append(str(program.types[value]))
        order = list(dict.fromkeys(op.tag.scope for op in program.ops if op.tag.phase == "forward"))
        ends = [scope for scope in order if scope in kinds]
        alike = Counter(tuple(sorted(each)) for each in kinds.values())
        return {scope for scope in (*ends[:1], *ends[-1:]) if alike[tuple(sorted(kinds[scope]))] == 1}

    def _weights(self) -> tuple[tuple[Weight, ...], ...]:
        model, program = self._model, self._model.program
        gradient = {
            model.role_of(piece).gradient_of: value
            for value, piece in zip(program.outputs, model.outputs, strict=True)
            if model.role_of(piece).gradient_of
        }
        made_at = {value: (number, op.tag) for number, op in enumerate(program.ops) for value in op.outputs}
        found: list[list[tuple[int, Weight]]] = [[] for _ in range(self._rows)]
        for value, piece in model.piece_of.items():
            if not model.role_of(piece).weight or value not in self._first_taker:
                continue
            of_type, mine = program.types[value], gradient.get(piece.name)
            made = of_type.shaped((0,)) if mine is None else program.types[mine]
            state = round(self._state * of_type.elements) if mine is not None else 0
            row, scope, used = self._first_taker[value]
            number, add, first, ready, phase = -1, 0.0, 0.0, 0.0, BACKWARD
            copy = self._cost("identity", (of_type,), (of_type,), {})
            if mine is not None:
                number, tag = made_at.get(mine, (-1, Tag()))
                add = self._cost("add", (made, made), (made,), {})
                first = self._cost("identity", (made,), (made,), {})
                end = self._end.get((tag.stage or 0, PHASES.get(tag.phase, BACKWARD)), 0.0)
                phase = max(BACKWARD, PHASES.get(tag.phase, BACKWARD))
                ready = float(self._trace.ready[self._combined.get(mine, mine)]) - end
            how = scope, scope in self._roots, copy, add, first, replicas_of(piece, self._degrees)
            found[row].append((number, Weight(of_type, made, *how, state, phase, frozenset(used), ready)))
        return tuple(tuple(each for _, each in sorted(row, key=lambda pair: pair[0])) for row in found)

    @cached_property
    def _step(self) -> _Step | None:
        """The optimizer step, or None in inference."""
        optimizer = self._table.family.optimizer(self._table.spec)
        if optimizer is None:
            return None
        model = self._model
        names = {model.role_of(piece).gradient_of for piece in model.outputs}
        trained = [model.program.types[value] for value, piece in model.piece_of.items() if piece.name in names]
        return self._table.once(("step", tuple(trained), self._grad_dtype), lambda: _step_of(optimizer, model, trained))

    @property
    def _state(self) -> float:
        """Bytes of the optimizer's state per element of a weight."""
        return 0.0 if self._step is None else self._step.state


@dataclass(frozen=True)
class _Step:
    """The optimizer step of a network."""

    state: float
    """Bytes of the optimizer's state per element of a weight."""
    operations: tuple[tuple[str, Types, Types, Values], ...]
    """Operations of the step for one weight: kind, types of inputs, types of outputs, and attributes."""


def _update_seconds(table: BlockTable, costs: RankCosts, device: str, step: _Step | None, numbers: int) -> float:
    """Return the seconds of the optimizer's step for one tensor of weights with `numbers` elements."""
    if step is None or not numbers:
        return 0.0

    def seconds() -> float:
        found = 0.0
        for kind, taken, made, values in step.operations:
            sized = [each.shaped((numbers,)) if each.shape else each for each in taken]
            found += table.seconds(costs, device, kind, sized, [each.shaped((numbers,)) for each in made], values)
        return found

    return table.once(("update", device, id(step), numbers), seconds)


def _step_of(optimizer: Optimizer, model: Distributed, trained: Sequence[TensorType]) -> _Step:
    updated, count, operations = optimizer(model), len(trained), list[tuple[str, Types, Types, Values]]()
    types, more = updated.program.types, set(updated.inputs) - set(model.inputs)
    for op in updated.program.ops[len(model.program.ops) :]:
        each, rest = divmod(len(op.inputs), count)
        of_one = [types[value] for value in op.inputs[::count]][:each]
        others = [types[value] for value in op.inputs[len(op.inputs) - rest :]]
        made = [types[value] for value in op.outputs[::count]]
        operations.append((op.kind, [*of_one, *others], made, dict(op.attributes)))
    state = sum(types[value].bytes for value, piece in updated.piece_of.items() if piece in more)
    return _Step(state / sum(each.elements for each in trained), tuple(operations))


_MIN_CUT_SIZES = 2
"""A network is divided for this many numbers of samples before it is only resized for others."""


def _cut_of(strategy: Strategy, split: bool) -> Hashable:
    """Return a key with all fields of a strategy that change the program of a layer."""
    kernels = strategy.attention, strategy.fp8, strategy.compiled, strategy.eager_loss, strategy.recompute
    cut = strategy.sequence_parallel, strategy.context_method, strategy.expert, strategy.grad_dtype
    return strategy.tensor, strategy.context, *cut, *kernels, split


def _resized(built: dict[int, Distributed], rows: int) -> Distributed | None:
    """Return the program for another number of samples. None if this number changes more than types."""
    (first, model), (_, other), *_ = built.items()
    if model.program.ops != other.program.ops:
        return None
    build, program, value_of = ProgramBuilder(model.program.name), model.program, dict[int, int]()
    for value, piece in model.piece_of.items():
        axis, of_type = model.role_of(piece).batch_axis, program.types[value]
        if axis is not None:
            size, rest = divmod(of_type.shape[axis] * rows, first)
            if rest:
                return None
            of_type = of_type.resized(axis, size)
        value_of[value] = build.input(program.value_name(value), of_type)
    for op in program.ops:
        taken = [value_of[value] for value in op.inputs]
        value_of |= zip(op.outputs, build.append(op.kind, taken, op.attributes, op.tag), strict=True)
    return replace(model, program=build.finish([value_of[value] for value in program.outputs]))


def _weights_last(model: Distributed) -> Distributed:
    """Return the program with the operations for gradients of weights at the end, as in split backward passes."""
    ops = sorted(model.program.ops, key=lambda op: op.tag.phase == WEIGHT_PHASE)
    return replace(model, program=replace(model.program, ops=tuple(ops)))
