"""Layers as blocks: each distinct layer under each distinct cut, simulated once on its devices and remembered.

A network is shortened to its distinct layers (`ir/transforms/condensed.py`), cut as a strategy cuts layers, and
simulated as the program of one device.  A layer takes as long as from the end of the layer before it to its own end, so
communication that it hides takes no time.  Stages are sums of blocks (`stages.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import Scope
from tessel_core.ir.transforms.condensed import Condensed, condensed
from tessel_core.ir.transforms.data import replicas_of
from tessel_core.ir.transforms.expansion import CONTEXT, EXPERT, TENSOR, Degrees
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.transforms.update import GradientFormat
from tessel_core.ir.types import TensorType
from tessel_core.model import DeviceMesh
from tessel_core.simulation import simulate
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.ranks import RankCosts
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.pipeline_plan import covered
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.strategy import Semantics, Strategy, with_layers_cut
from tessel_core.strategies.wiring import Wiring

Column = NDArray[np.float64]
T = TypeVar("T")

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
_SOON = 1e-9
"""Share of the whole time; moments that are closer differ by rounding only."""
PHASES = {"forward": FORWARD, "backward": BACKWARD, WEIGHT_PHASE: WEIGHT}


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a layer on one device."""

    type: TensorType
    gradient: TensorType
    scope: Scope
    """The part of the network that takes it; several may make a layer, as the embedding and the first block do."""
    root: bool
    """Whether it comes before or behind all layers, as embedding and head do, so that FSDP gathers it once."""
    copy: float
    """Seconds to copy it out of the buffer that it was gathered into."""
    add: float
    """Seconds to add its gradient to that of the micro-batches before."""
    over: str
    """The dimension along which devices have the same weight."""
    state: int
    """Bytes of the optimizer's state, where replicas do not share it."""


@dataclass(frozen=True)
class Blocks:
    """What each distinct layer takes for one micro-batch on one device; rows are layers of the short network."""

    stands_for: NDArray[np.int64]
    """Per layer of the whole network, a row."""
    seconds: Column
    """By row and phase: forward, backward, and gradients of weights where they are apart."""
    held: Column
    """By row, bytes that its forward leaves for its backward."""
    space: Column
    """By row and phase, bytes that it needs besides while it runs."""
    crossing: tuple[tuple[TensorType, ...], ...]
    """By row, the tensors that it sends to the next layer."""
    weights: tuple[tuple[Weight, ...], ...]
    """By row, in the order in which their gradients are made."""
    adding: Column
    """By row, seconds to add whole gradients of a micro-batch to those of the ones before."""
    least_add: float
    """Seconds to add two numbers: what it takes to launch the kernel."""
    update: float
    """Seconds of the optimizer's step for each number of a weight."""

    @cached_property
    def layers(self) -> PerLayer:
        """The same of every layer of the whole network."""
        bytes_of = np.array([sum(each.type.bytes for each in row) for row in self.weights], float)
        at = self.stands_for
        forward, backward, weight = self.seconds[at].T
        spaces = self.space[at, FORWARD], self.space[at, BACKWARD:].max(axis=1)
        return PerLayer(forward, backward, weight, self.adding[at], self.held[at], *spaces, bytes_of[at])


@dataclass(frozen=True)
class PerLayer:
    """Columns of `Blocks` by layer of the whole network."""

    forward: Column
    backward: Column
    weight: Column
    adding: Column
    held: Column
    space_forward: Column
    space_backward: Column
    weights: Column
    """Bytes."""


class BlockTable:
    """The blocks of one network on one mesh, made when they are asked for."""

    def __init__(self, family: Family, spec: Spec, mesh: DeviceMesh) -> None:
        self.family, self.spec, self.mesh = family, spec, mesh
        self.training = family.optimizer(spec) is not None
        self._costs = MeshCosts(mesh, training=self.training)
        self._wirings: dict[Ranks, Wiring] = {}
        self._blocks: dict[Hashable, Blocks] = {}
        self._short: dict[int, Condensed] = {}
        self._remembered: dict[Hashable, Any] = {}

    def with_memory_of(self, mesh: DeviceMesh) -> BlockTable:
        """Return a table with the same blocks on a mesh that differs only in the memory of its devices."""
        found = copy(self)
        found.mesh, found._remembered = mesh, {}
        return found

    def short(self, rows: int) -> Condensed:
        """The forward pass of so many samples, without repeated layers."""
        if rows not in self._short:
            self._short[rows] = condensed(self.family.forward(self.family.with_batch(self.spec, rows)))
        return self._short[rows]

    def wiring(self, strategy: Strategy) -> Wiring:
        """How the ranks of a strategy lie on the mesh."""
        ranks = strategy.ranks(Semantics.DEFAULT)
        if ranks not in self._wirings:
            self._wirings[ranks] = Wiring(self._costs, ranks)
        return self._wirings[ranks]

    def blocks(self, strategy: Strategy, rows: int, place: int) -> Blocks:
        """The blocks of a strategy's layers at a place of its pipeline, for micro-batches of `rows` samples.

        Raises InputError where layers are not cut like this.
        """
        wiring, split = self.wiring(strategy), self.training and strategy.form.split
        dimensions = [name for name in (TENSOR, CONTEXT, EXPERT) if getattr(strategy, name) > 1]
        lie = tuple((name, wiring.pattern(name, place)) for name in dimensions)
        kernels = strategy.attention, strategy.fp8, strategy.compiled, strategy.eager_loss, strategy.recompute
        cut = strategy.sequence_parallel, strategy.context_method, strategy.expert, strategy.grad_dtype
        key = rows, strategy.tensor, strategy.context, *cut, *kernels, split, wiring.kind(place), lie
        if key not in self._blocks:
            self._blocks[key] = _Simulated(self, strategy, rows, split, wiring.costs(place)).blocks()
        return self._blocks[key]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Something that is made when it is first asked for, and remembered by its key."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: T = self._remembered[key]
        return found


class _Simulated:
    """The short network under one cut."""

    def __init__(self, table: BlockTable, strategy: Strategy, rows: int, split: bool, costs: RankCosts) -> None:
        short = table.short(rows)
        self._stands_for, self._costs, self._family, self._spec = short.stands_for, costs, table.family, table.spec
        self._rows, self._split = 1 + max(short.stands_for), split
        model = table.family.completed(short.model, table.spec, split_weights=split, attention=strategy.attention)
        model = with_layers_cut(model, strategy, training=table.training)
        self._model = GradientFormat(strategy.grad_dtype)(model) if strategy.grad_dtype else model
        self._program = self._model.program
        self._degrees = Degrees(strategy.tensor, strategy.context, strategy.data, strategy.expert)
        self._add = "add_in_place" if strategy.grad_dtype else "add"
        self._trace = simulate(self._program, None, costs)

    def blocks(self) -> Blocks:
        """What the layers take."""
        seconds, space, held = self._spans()
        weights = self._weights()
        adding = np.array([sum(each.add for each in row) for row in weights])
        one = self._program.types[0].shaped((1,))
        places = np.array(self._stands_for, np.int64)
        return Blocks(
            places, seconds, held, space, self._crossing(), weights, adding, self._adding(one), self._update()
        )

    def _adding(self, gradient: TensorType) -> float:
        return self._seconds(self._add, (gradient, gradient), (gradient,), {})

    def _seconds(self, kind: str, types: Types, made: Types, values: Values) -> float:
        return max(self._costs.seconds(kind, types, made, values).values())

    def _events(self) -> list[tuple[int, int, float, float]]:
        """Row, phase, start and end of every event in a layer."""
        trace, ops, found = self._trace, self._program.ops, []
        for number, start, seconds in zip(trace.op.tolist(), trace.start.tolist(), trace.seconds.tolist(), strict=True):
            tag = ops[number].tag
            if tag.phase in PHASES:
                found.append((tag.stage or 0, PHASES[tag.phase], start, start + seconds))
        return found

    def _spans(self) -> tuple[Column, Column, Column]:
        """Seconds and space by row and phase, and what is held by row."""
        spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for row, phase, start, end in self._events():
            spans.setdefault((row, phase), []).append((start, end))
        shape = self._rows, len(PHASES)
        seconds, space, held = np.zeros(shape), np.zeros(shape), np.zeros(self._rows)
        before, at_start = 0.0, self._held_at(0.0)
        for row, phase in sorted(spans, key=lambda each: max(end for _, end in spans[each])):
            end = max(before, *(end for _, end in spans[row, phase]))
            at_end = self._held_at(end)
            # Gradients of weights that are apart run between those of inputs here, and after them in a pipeline.
            seconds[row, phase] = covered(spans[row, phase]) if self._split and phase else end - before
            space[row, phase] = max(0, self._most_between(before, end) - at_start)
            if phase == FORWARD:
                held[row] = max(0, at_end - at_start)
            before, at_start = end, at_end
        return seconds, space, held

    def _steps_at(self, begin: float, end: float) -> NDArray[np.int64]:
        """Bytes that are held from before the first moment to after the last one; equal ones differ by rounding."""
        soon = self._trace.latency * _SOON
        first = np.searchsorted(self._trace.memory_time, begin - soon, side="left")
        last = np.searchsorted(self._trace.memory_time, end + soon, side="right")
        return self._trace.memory_bytes[max(0, first - 1) : last]

    def _held_at(self, moment: float) -> int:
        """Bytes once what ends then has freed its own, and before what begins then takes more."""
        return int(self._steps_at(moment, moment).min(initial=np.iinfo(np.int64).max)) if moment else self._inputs

    def _most_between(self, begin: float, end: float) -> int:
        soon = self._trace.latency * _SOON
        return int(self._steps_at(begin + 2 * soon, end - 2 * soon).max(initial=0))

    @property
    def _inputs(self) -> int:
        """Bytes that are there from the start."""
        return sum(self._program.types[value].bytes for value in self._program.inputs)

    def _crossing(self) -> tuple[tuple[TensorType, ...], ...]:
        maker = {value: op.tag.stage or 0 for op in self._program.ops for value in op.outputs}
        found = [dict[int, TensorType]() for _ in range(self._rows)]
        for op in self._program.ops:
            if op.tag.phase in PHASES and PHASES[op.tag.phase] == FORWARD:
                for value in op.inputs:
                    for row in range(maker.get(value, self._rows), op.tag.stage or 0):
                        found[row][value] = self._program.types[value]
        return tuple(tuple(each.values()) for each in found)

    @cached_property
    def _first_taker(self) -> dict[int, tuple[int, Scope]]:
        """Per value, the first layer and the first part of the network that take it."""
        found: dict[int, tuple[int, Scope]] = {}
        for op in self._program.ops:
            for value in op.inputs:
                found.setdefault(value, (op.tag.stage or 0, op.tag.scope))
        return found

    @cached_property
    def _roots(self) -> set[Scope]:
        """The first and the last part of the network, where no other has weights like them."""
        model, program = self._model, self._program
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
        model, program = self._model, self._program
        gradient = {
            model.role_of(piece).gradient_of: value
            for value, piece in zip(program.outputs, model.outputs, strict=True)
            if model.role_of(piece).gradient_of
        }
        made_at = {value: number for number, op in enumerate(program.ops) for value in op.outputs}
        found: list[list[tuple[int, Weight]]] = [[] for _ in range(self._rows)]
        for value, piece in model.piece_of.items():
            if not model.role_of(piece).weight or value not in self._first_taker:
                continue
            of_type, mine = program.types[value], gradient.get(piece.name)
            made = of_type.shaped((0,)) if mine is None else program.types[mine]
            state = round(self._state * of_type.elements) if mine is not None else 0
            row, scope = self._first_taker[value]
            copy = self._seconds("identity", (of_type,), (of_type,), {})
            add = 0.0 if mine is None else self._adding(made)
            how = scope, scope in self._roots, copy, add, replicas_of(piece, self._degrees)
            each = Weight(of_type, made, *how, state)
            found[row].append((-1 if mine is None else made_at.get(mine, -1), each))
        return tuple(tuple(each for _, each in sorted(row, key=lambda pair: pair[0])) for row in found)

    @cached_property
    def _updated(self) -> Distributed | None:
        """The program with the optimizer's step; None in inference."""
        optimizer = self._family.optimizer(self._spec)
        return None if optimizer is None else optimizer(self._model)

    @cached_property
    def _numbers(self) -> int:
        """Numbers of weights that the optimizer changes."""
        pieces = self._model.piece_of.items()
        trained = {self._model.role_of(piece).gradient_of for piece in self._model.outputs}
        return sum(self._program.types[value].elements for value, piece in pieces if piece.name in trained)

    @cached_property
    def _state(self) -> float:
        """Bytes of the optimizer's state for each number of a weight."""
        if self._updated is None:
            return 0.0
        more = set(self._updated.inputs) - set(self._model.inputs)
        of_value = self._updated.piece_of.items()
        return sum(self._updated.program.types[v].bytes for v, piece in of_value if piece in more) / self._numbers

    def _update(self) -> float:
        """Seconds of the optimizer's step for each number of a weight."""
        if self._updated is None:
            return 0.0
        program = self._updated.program
        steps = program.ops[len(self._program.ops) :]
        every = [
            (op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes)) for op in steps
        ]
        return sum(self._seconds(*each) for each in every) / self._numbers
