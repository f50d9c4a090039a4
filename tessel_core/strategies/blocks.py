"""Blocks: the time and memory of each distinct layer for each way to cut layers, simulated once and cached.

A network is shortened to its distinct layers (`ir/transforms/condensed.py`) and cut as a strategy cuts layers.  Then
the program of one device is simulated for one micro-batch.  The time of a layer is the time from the end of the
previous layer's computation to the end of its own, so communication that overlaps with computation takes no time.
Stages are sums of blocks (`stages.py`).
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
from tessel_core.ir.transforms.update import GradientFormat, Optimizer
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
"""Share of the simulated time.  Moments that differ by less differ only by rounding."""
PHASES = {"forward": FORWARD, "backward": BACKWARD, WEIGHT_PHASE: WEIGHT}
TURNS = (0, 1, 3, 7, 15, 31, 63, 127, 255, 1023, 16383)
"""Numbers of earlier micro-batches for which the time to join outputs is computed; others are interpolated."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a layer on one device."""

    type: TensorType
    gradient: TensorType
    scope: Scope
    """The part of the network that uses it.  A layer may have several parts, such as embedding and first block."""
    root: bool
    """Whether it belongs to the first or last part of the network, such as embedding or head; FSDP gathers it once."""
    copy: float
    """Seconds to copy it out of the buffer into which it was gathered."""
    add: float
    """Seconds to add its gradient to the sum of the earlier micro-batches."""
    first: float
    """Seconds to copy the gradient of the first micro-batch."""
    over: str
    """The dimension along which devices have the same weight."""
    state: int
    """Bytes of the optimizer's state, if replicas do not share it."""
    ready: float
    """Seconds from the end of its layer's computation until its gradient is complete; negative if that is earlier."""


@dataclass(frozen=True, slots=True)
class Joined:
    """An output with a batch axis: the parts of all micro-batches are joined one after the other."""

    level: float
    """Bytes that the layer has allocated since it started, at the moment at which the part is joined."""
    bytes: int
    """Bytes of one micro-batch."""
    seconds: tuple[float, ...]
    """Seconds to join the part of a micro-batch, for each number of earlier micro-batches in `TURNS`.

    They do not include the seconds to copy the part of the first micro-batch.
    """


@dataclass(frozen=True)
class Blocks:
    """The costs of each distinct layer for one micro-batch on one device.

    Rows are layers of the short network.  Phases are forward, backward, and gradients of weights if they are split off.
    Directions are forward and backward.
    """

    stands_for: NDArray[np.int64]
    """Row that represents each layer of the whole network."""
    seconds: Column
    """Seconds of computation by row and phase."""
    onward: Column
    """Seconds from the end of a layer's computation until its outputs are ready, by row and direction.

    They are negative if the last operations do not delay the outputs, for example those for gradients of weights.
    """
    leads: Column
    """Seconds of a layer's computation before it uses a value from another layer, by row and direction."""
    taken_by: NDArray[np.int64]
    """First row that uses the values that a row sends onward, by row and direction; the row itself if none does."""
    trailing: Column
    """Seconds by which a layer's communication outlasts its computation, by row and phase."""
    talks: Column
    """Seconds from the start of a layer to its first communication, by row and phase; infinite without any."""
    held: Column
    """Bytes that the forward leaves for backward passes, by row, without the outputs that micro-batches join."""
    enters: Column
    """Bytes that a layer receives from the layer before it in a direction, by row and direction."""
    leaves: Column
    """Bytes that a layer makes for the next one and that its own backward does not use, by row."""
    space: Column
    """Temporary bytes that a layer needs while it runs, by row and phase."""
    change: Column
    """Bytes that a layer leaves in memory less those that it frees, by row and phase; for split backward passes."""
    joined: tuple[tuple[tuple[Joined, ...], tuple[Joined, ...]], ...]
    """Outputs whose parts from all micro-batches are joined, by row and direction."""
    own_samples: Column
    """Bytes of the inputs of one micro-batch that only this layer uses, by row."""
    shared_samples: tuple[frozenset[tuple[int, int]], ...]
    """Inputs of one micro-batch that other layers use as well, each with its bytes, by row."""
    constants: tuple[frozenset[tuple[int, int]], ...]
    """Inputs that are neither weights nor samples, each with its bytes, by row."""
    crossing: tuple[tuple[tuple[TensorType, ...], tuple[TensorType, ...]], ...]
    """Tensors that a layer sends to the next one (forward) or to the previous one (backward), by row and direction."""
    weights: tuple[tuple[Weight, ...], ...]
    """Weights by row, in the order in which their gradients are made."""
    adding: Column
    """Seconds to add the whole gradients of a micro-batch to their sums, by row."""
    least_add: float
    """Seconds to add two numbers, which is the time to launch a kernel."""
    update: Callable[[int], float]
    """Returns the seconds of the optimizer's step for a number of weight elements."""

    @cached_property
    def gradient_bytes(self) -> NDArray[np.int64]:
        """Bytes of the gradients of weights, by row."""
        return np.array([sum(each.gradient.bytes for each in row) for row in self.weights], np.int64)

    @cached_property
    def layers(self) -> PerLayer:
        """Columns for every layer of the whole network."""
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
    """Cache of the blocks of one network on one mesh.  The batch of the network has no effect.

    If `like` is the table of another network on the same mesh, the two tables share costs and wirings.
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
        """Cut networks, by the way in which they are cut and the number of samples."""
        self._remembered: dict[Hashable, Any] = {}

    def with_memory_of(self, mesh: DeviceMesh) -> BlockTable:
        """Return a table with the same blocks on a mesh that differs only in the memory of its devices."""
        found = copy(self)
        found.mesh, found._remembered = mesh, {}
        return found

    def short(self, rows: int) -> Condensed:
        """Return the forward pass of `rows` samples, without repeated layers."""
        if rows not in self._short:
            self._short[rows] = condensed(self.family.forward(self.family.with_batch(self.spec, rows)))
            self._stands_for = self._short[rows].stands_for
        return self._short[rows]

    def completed(self, rows: int, *, split: bool, attention: AttentionKernel) -> Distributed:
        """Return the short network with its backward pass."""
        short = self.short(rows).model
        return self.once(
            ("completed", rows, split, attention),
            lambda: self.family.completed(short, self.spec, split_weights=split, attention=attention),
        )

    def wiring(self, strategy: Strategy) -> Wiring:
        """Return the ranks of a strategy on the mesh."""
        ranks = strategy.ranks(Semantics.DEFAULT)
        if ranks not in self._wirings:
            self._wirings[ranks] = Wiring(self._costs, ranks)
        return self._wirings[ranks]

    def blocks(self, strategy: Strategy, rows: int, place: int) -> Blocks:
        """Return the blocks of a strategy's layers at a place of its pipeline, for micro-batches of `rows` samples.

        Raises InputError if layers cannot be cut as the strategy asks.
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
        """Return the short network as a strategy cuts it, for `rows` samples.

        If the operations are equal for two numbers of samples, the network is only resized for other numbers.
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
        """Return the seconds of a computation on a kind of device, from a cache."""
        key = device, kind, *types, *made, *values.items()
        if key not in self._seconds:
            self._seconds[key] = max(costs.seconds(kind, types, made, values).values())
        return self._seconds[key]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key, which `make` computes at the first call."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: T = self._remembered[key]
        return found


class _Simulated:
    """Simulates one micro-batch of the short network, which is cut in one way.

    If `combines` is true, the program adds gradients to their sums and copies outputs with a batch axis, at the points
    at which a pipeline does so (`ir/transforms/partition.py`).
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
            self._onward(),
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
            adding,
            self._cost("add", (one, one), (one,), {}),
            partial(_update_seconds, self._table, self._costs, self._kind, self._step),
        )

    def _cost(self, kind: str, types: Types, made: Types, values: Values) -> float:
        return self._table.seconds(self._costs, self._kind, kind, types, made, values)

    # Times and memory of layers

    def _measure(self) -> None:
        """Compute the seconds, the trailing communication, the temporary bytes and the held bytes of each layer."""
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
        """Add the memory of new sums of gradients, during whose computation the old sums are still in memory."""
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
        """Return the bytes in memory at a moment, after the operations that start then have allocated their outputs."""
        return int(self._steps_at(moment, moment)[-1:].sum()) or self._inputs

    def _most_between(self, begin: float, end: float) -> int:
        return int(self._steps_at(begin + 2 * self._tolerance, end - 2 * self._tolerance).max(initial=0))

    @cached_property
    def _given(self) -> frozenset[int]:
        return frozenset(self._program.inputs)

    @cached_property
    def _inputs(self) -> int:
        """Bytes of the program's inputs, which are in memory from the start."""
        return sum(self._program.types[value].bytes for value in self._program.inputs)

    # Values that cross from layer to layer

    @cached_property
    def _maker(self) -> dict[int, Tag]:
        """For each value that an operation makes, the operation's tag."""
        return {value: op.tag for op in self._program.ops for value in op.outputs}

    @cached_property
    def _crossings(self) -> list[tuple[dict[int, TensorType], dict[int, TensorType]]]:
        """For each row and direction, the values that cross to the next layer in that direction."""
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

    def _onward(self) -> Column:
        found = np.zeros((self._rows, 2))
        for row, both in enumerate(self._crossings):
            for way, values in enumerate(both):
                mine = [v for v in values if (self._maker[v].stage or 0) == row and (row, way) in self._end]
                if mine:
                    found[row, way] = max(float(self._trace.ready[v]) for v in mine) - self._end[row, way]
        return found

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
    def _first_taker(self) -> dict[int, tuple[int, Scope]]:
        """For each input of the model, the first layer and the first part of the network that use it."""
        found: dict[int, tuple[int, Scope]] = {}
        for op in self._model.program.ops:
            for value in op.inputs:
                if value in self._model.piece_of and value not in found:
                    found[value] = op.tag.stage or 0, op.tag.scope
        return found

    @cached_property
    def _roots(self) -> set[Scope]:
        """The first and the last part of the network with weights, unless other parts have weights of equal types."""
        model, program = self._model, self._model.program
        kinds: dict[Scope, list[str]] = {}
        for value, (_, scope) in self._first_taker.items():
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
            row, scope = self._first_taker[value]
            number, add, first, ready = -1, 0.0, 0.0, 0.0
            copy = self._cost("identity", (of_type,), (of_type,), {})
            if mine is not None:
                number, tag = made_at.get(mine, (-1, Tag()))
                add = self._cost("add", (made, made), (made,), {})
                first = self._cost("identity", (made,), (made,), {})
                end = self._end.get((tag.stage or 0, PHASES.get(tag.phase, BACKWARD)), 0.0)
                ready = float(self._trace.ready[self._combined.get(mine, mine)]) - end
            how = scope, scope in self._roots, copy, add, first, replicas_of(piece, self._degrees)
            found[row].append((number, Weight(of_type, made, *how, state, ready)))
        return tuple(tuple(each for _, each in sorted(row, key=lambda pair: pair[0])) for row in found)

    @cached_property
    def _step(self) -> _Step | None:
        """The optimizer's step; None in inference."""
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
    """The optimizer's step of a network."""

    state: float
    """Bytes of the optimizer's state per element of a weight."""
    operations: tuple[tuple[str, Types, Types, Values], ...]
    """Operations of the step: kind, types of inputs and outputs for one weight, and attributes."""


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
"""Numbers of samples for which a network is cut before it is resized for other numbers."""


def _cut_of(strategy: Strategy, split: bool) -> Hashable:
    """Return a key with all fields of a strategy on which the program of a layer depends."""
    kernels = strategy.attention, strategy.fp8, strategy.compiled, strategy.eager_loss, strategy.recompute
    cut = strategy.sequence_parallel, strategy.context_method, strategy.expert, strategy.grad_dtype
    return strategy.tensor, strategy.context, *cut, *kernels, split


def _resized(built: dict[int, Distributed], rows: int) -> Distributed | None:
    """Return the program for another number of samples; None if more than the types depends on that number."""
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
    """Return the program with the operations for gradients of weights at its end, as in a split pipeline."""
    ops = sorted(model.program.ops, key=lambda op: op.tag.phase == WEIGHT_PHASE)
    return replace(model, program=replace(model.program, ops=tuple(ops)))
