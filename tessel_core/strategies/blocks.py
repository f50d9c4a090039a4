"""Blocks: the time and memory of each distinct layer, for each way to divide layers. They are simulated once and
cached.

The network is shortened to its distinct layers (`ir/transforms/condensed.py`), and each layer is divided among devices
as in the strategy. Then the program of one device is simulated for one micro-batch. The time of a layer lasts from the
end of the previous layer's computation to the end of its own computation. So communication that overlaps with
computation takes no time. Stages are sums of blocks (`stages.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Types
from tessel_core.ir.program import Attributes, Scope
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.condensed import Condensed
from tessel_core.ir.transforms.expansion import CONTEXT, EXPERT, TENSOR, Degrees
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.transforms.update import GradientFormat, Optimizer, scatter_axis
from tessel_core.ir.types import TensorType, interned
from tessel_core.model import DeviceMesh
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.ranks import RankCosts
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.layouts import Matrix, maxima
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.sized import Axes, Price, SizedProgram, SizedTypes, sample_axes
from tessel_core.strategies.strategy import Semantics, Strategy, with_layers_cut
from tessel_core.strategies.structure import BACKWARD, FORWARD, PHASES, STREAM, WEIGHT, Structure, outline
from tessel_core.strategies.wiring import Wiring

Column = NDArray[np.float64]
Integers = NDArray[np.int64]
T = TypeVar("T")

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
        return parts_of(self.type, replicas)


def parts_of(weight: TensorType, replicas: int) -> int:
    """Return the number of parts into which replicas can cut a weight; 1 if no axis divides."""
    return replicas if scatter_axis(weight.shape, replicas) is not None else 1


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
    price: Callable[[], tuple[float, ...]]
    """Computes `seconds`, which are needed only if the output is large."""

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds to join the output of a micro-batch. The index is that of the number of earlier micro-batches in
        `TURNS`.

        The time to copy the output of the first micro-batch is not included.
        """
        return self.price()


@dataclass(frozen=True)
class WeightColumns:
    """The weights of all layers, in the order of `Blocks.weights`. All columns have one element per weight."""

    row: Integers
    phase: Integers
    """Phase in which the gradient is made."""
    overs: tuple[str, ...]
    """Dimensions of parallelism whose devices all have some weight."""
    over: Integers
    """Index in `overs` of the dimension whose devices all have the weight."""
    bytes: Column
    gradient: Column
    """Bytes of the gradient."""
    elements: Column
    """Number of elements of the gradient."""
    state: Column
    """Bytes of the optimizer's state, if replicas do not share it."""
    copy: Column
    add: Column
    first: Column
    """Seconds as in `Weight`."""
    types: tuple[TensorType, ...]
    gradients: tuple[TensorType, ...]
    """Types of the gradients. The gradient of a weight that is not trained has no elements."""

    def parts(self, degree_of: Callable[[str], int]) -> Integers:
        """Return the number of parts into which replicas can cut each weight; 1 if no axis divides."""
        replicas = [degree_of(over) for over in self.overs]
        pairs = zip(self.types, self.over.tolist(), strict=True)
        return np.array([parts_of(each, replicas[over]) for each, over in pairs], np.int64)


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
    columns: WeightColumns
    """The weights of all rows."""
    ready: Column
    """For each weight, seconds from the end of its layer's computation until its gradient is complete."""
    adding: Column
    """Seconds to add the gradients of a micro-batch to their sums, by row.

    The gradients are not divided among replicas.
    """
    least_add: float
    """Seconds to add two numbers. Launching the kernel takes nearly all of this time."""
    update: Callable[[int], float]
    """Returns the seconds of the optimizer step for a number of weight elements."""

    simulated: _Simulated
    """The simulated micro-batch, from which `weights` and `units` are taken when they are needed."""

    @cached_property
    def weights(self) -> tuple[tuple[Weight, ...], ...]:
        """Weights by row, in the order in which their gradients are made."""
        return self.simulated.weights()

    @cached_property
    def units(self) -> tuple[tuple[tuple[Unit, ...], ...], ...]:
        """Units by row and phase, in the order in which they run; empty if micro-batches are combined."""
        return self.simulated.units()

    @cached_property
    def gradient_bytes(self) -> Column:
        """Bytes of the gradients of weights, by row."""
        return self.by_row(self.columns.gradient)

    def by_row(self, of_weights: Column) -> Column:
        """Return the sum of a column of weights for each row."""
        return np.bincount(self.columns.row, of_weights, len(self.seconds)).astype(float)

    @cached_property
    def joins(self) -> NDArray[np.bool_]:
        """Whether each row has outputs that micro-batches join."""
        return np.array([any(both) for both in self.joined], bool)

    @cached_property
    def table(self) -> Column:
        """Columns side by side, as `stage_kernels.py` reads them."""
        columns = self.seconds, self.talks, self.leads, self.onward, self.held[:, None], self.space, self.change
        return np.hstack(columns)

    @cached_property
    def makers(self) -> Integers:
        """The columns `made_by` and `taken_by` side by side."""
        return np.hstack((self.made_by, self.taken_by))

    @cached_property
    def layers(self) -> PerLayer:
        """The same columns with one row per layer of the whole network."""
        bytes_of = self.by_row(self.columns.bytes)
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


@dataclass(frozen=True)
class _Shared:
    """Caches that the tables of several networks on one mesh share."""

    costs: MeshCosts
    wirings: dict[Ranks, Wiring] = field(default_factory=dict)
    seconds: dict[Hashable, float] = field(default_factory=dict)
    """Seconds of operations."""
    steps: dict[Hashable, _Step] = field(default_factory=dict)
    """Optimizer steps."""
    outlines: dict[Hashable, int] = field(default_factory=dict)
    """Numbers of the outlines of programs."""
    structures: dict[tuple[int, int, bool, bool], Structure] = field(default_factory=dict)
    axes: dict[int, Axes | None] = field(default_factory=dict)
    """Axes of the samples, by the number of the outline. None if sizes do not follow from them."""


class BlockTable:
    """Cache of the blocks of one network on one mesh. The batch size of the network does not matter.

    With `like`, the table of another network on the same mesh, both tables share caches.
    """

    def __init__(self, family: Family, spec: Spec, mesh: DeviceMesh, like: BlockTable | None = None) -> None:
        self.family, self.spec, self.mesh = family, spec, mesh
        self.training = family.optimizer(spec) is not None
        same = like is not None and like.mesh == mesh and like.training == self.training
        self.shared: _Shared = (
            like.shared if like is not None and same else _Shared(MeshCosts(mesh, training=self.training))
        )
        self._costs = self.shared.costs
        self._blocks: dict[Hashable, Blocks] = {}
        self._short: dict[int, Condensed] = {}
        self._cuts: dict[Hashable, _Cut] = {}
        self._remembered: dict[Hashable, Any] = {}

    def with_memory_of(self, mesh: DeviceMesh) -> BlockTable:
        """Return a table with the same blocks for a mesh that differs only in the memory of its devices."""
        found = copy(self)
        found.mesh, found._remembered = mesh, {}
        return found

    def short(self, rows: int) -> Condensed:
        """Return the forward pass for `rows` samples, in which layers that repeat occur only once."""
        if rows not in self._short:
            self._short[rows] = self.family.condensed(self.family.with_batch(self.spec, rows))
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
        if ranks not in self.shared.wirings:
            self.shared.wirings[ranks] = Wiring(self._costs, ranks)
        return self.shared.wirings[ranks]

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
            program = self.program(strategy, rows, combines=combines)
            simulated = _Simulated(self, program, rows, strategy, wiring.costs(place), patterns)
            self._blocks[key] = simulated.blocks(self.stands_for)
        return self._blocks[key]

    def program(self, strategy: Strategy, rows: int, *, combines: bool = False) -> SizedProgram:
        """Return the program of one device for the shortened network, divided as in the strategy, for `rows` samples.

        With `combines`, it combines a micro-batch with earlier ones.
        """
        key = _cut_of(strategy, self.training and strategy.form.split)
        if key not in self._cuts:
            self._cuts[key] = _Cut(self, strategy)
        return self._cuts[key].program(rows, combines=combines)

    @property
    def built_sizes(self) -> Iterable[int]:
        """Numbers of samples for which the network was built."""
        return self._short.keys()

    @property
    def stands_for(self) -> tuple[int, ...]:
        """For each layer of the whole network, the row that represents it. Known when a program has been built."""
        return next(iter(self._short.values())).stands_for

    def seconds(
        self, costs: RankCosts, where: Hashable, kind: str, attributes: Attributes, types: Types, made: Types
    ) -> float:
        """Return the seconds of an operation on devices that `where` distinguishes from others. They are cached.

        Types must be interned.
        """
        key = where, kind, attributes, *map(id, types)
        found = self.shared.seconds.get(key)
        if found is None:
            found = self.shared.seconds[key] = self._new_seconds(costs, kind, attributes, types, made)
        return found

    def _new_seconds(self, costs: RankCosts, kind: str, attributes: Attributes, types: Types, made: Types) -> float:
        operator, values = find_operator(kind), dict(attributes)
        if operator.pattern:
            return max(costs.seconds(kind, types, made, values).values())
        position = self._costs.position(costs.first_worker)
        return 0.0 if operator.view else self._costs.terms_on(position, kind, types, made, values).seconds

    def step(self, model: Distributed, grad_dtype: str) -> _Step | None:
        """Return the optimizer step, or None in inference.

        Optimizers work number by number. So the operations for weights of one format do not depend on their shapes.
        """
        optimizer = self.family.optimizer(self.spec)
        if optimizer is None:
            return None
        names = {model.role_of(piece).gradient_of for piece in model.outputs}
        trained = [model.program.types[value] for value, piece in model.piece_of.items() if piece.name in names]
        formats, elements = {each.dtype for each in trained}, sum(each.elements for each in trained)
        key = optimizer, grad_dtype, tuple(trained) if len(formats) > 1 else tuple(formats)
        if key not in self.shared.steps:
            self.shared.steps[key] = _step_of(optimizer, model, trained)
        return replace(self.shared.steps[key], elements=elements)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value for `key`. At the first call, `make` computes it."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: T = self._remembered[key]
        return found


class _Cut:
    """The shortened network with its backward pass, divided in one way.

    The program is built for one number of samples. Types for others follow from the axes of the samples.
    """

    def __init__(self, table: BlockTable, strategy: Strategy) -> None:
        self._table, self._strategy = table, strategy
        self._split = table.training and strategy.form.split
        self._degrees = Degrees(strategy.tensor, strategy.context, strategy.data, strategy.expert)
        self._built: dict[int, Distributed] = {}
        self._outlines: dict[int, int] = {}
        self._types: dict[int, SizedTypes] = {}
        self._programs: dict[tuple[int, bool], SizedProgram] = {}

    def program(self, rows: int, *, combines: bool) -> SizedProgram:
        """Return the program of one device for `rows` samples, and possibly others."""
        built = self._built_for(rows)
        if (built, combines) not in self._programs:
            model, structures = self._built[built], self._table.shared.structures
            layers, in_place = 1 + max(self._table.stands_for), bool(self._strategy.grad_dtype)
            key = self._outlines[built], layers, combines, in_place
            if key not in structures:
                structures[key] = Structure(model, layers, self._degrees, combines=combines, in_place=in_place)
            self._programs[built, combines] = SizedProgram(structures[key], model, self._types[built])
        return self._programs[built, combines]

    def _built_for(self, rows: int) -> int:
        """Return the number of samples of a program from which the types for `rows` samples follow.

        Programs of one outline have samples along the same axes. The first of them shows these axes, because it is
        built for two numbers of samples.
        """
        first = next(iter(self._built), next(iter(self._table.built_sizes), rows))
        self._build(first)
        if self._types[first].axes is None and rows != first:
            axes, key = self._table.shared.axes, self._outlines[first]
            if key not in axes:
                one, other = self._built[first].program, self._build(rows).program
                axes[key] = sample_axes(one.types, other.types, (first, rows)) if one.ops == other.ops else None
            if axes[key] is not None:
                self._types[first] = SizedTypes(first, self._built[first].program.types, axes[key])
                self._programs.clear()
        if self._types[first].at(rows) is not None:
            return first
        self._build(rows)
        return rows

    def _build(self, rows: int) -> Distributed:
        """Return the program for `rows` samples."""
        if rows in self._built:
            return self._built[rows]
        strategy, table = self._strategy, self._table
        model = table.completed(rows, split=self._split, attention=strategy.attention)
        model = with_layers_cut(model, strategy, training=table.training)
        model = GradientFormat(strategy.grad_dtype)(model) if strategy.grad_dtype else model
        self._built[rows] = model = _weights_last(model) if self._split else model
        known = table.shared.outlines
        self._outlines[rows] = known.setdefault(outline(model, self._degrees), len(known))
        self._types[rows] = SizedTypes(rows, model.program.types, None)
        return model


class _Simulated:
    """A micro-batch of the shortened network that is divided in one way, simulated on one device."""

    def __init__(
        self,
        table: BlockTable,
        program: SizedProgram,
        rows: int,
        strategy: Strategy,
        costs: RankCosts,
        patterns: Hashable,
    ) -> None:
        from tessel_core.strategies.layer_kernels import layer_columns

        self._table, self._costs, self._grad_dtype = table, costs, strategy.grad_dtype
        self._program, self._structure = program, program.structure
        self._kind, self._patterns = table.mesh.devices[costs.first_worker - 1].kind, patterns
        self._types, self._bytes = program.types(rows), program.bytes(rows)
        self._seconds, spaces = program.seconds(rows, self._price)
        structure = self._structure
        self._start, self._end, self._levels, self._runs = layer_columns(
            *(structure.ops, structure.links, structure.values, structure.layers),
            *(self._seconds, self._bytes, spaces),
        )

    def blocks(self, stands_for: tuple[int, ...]) -> Blocks:
        """Return the costs of the layers."""
        from tessel_core.strategies.layer_kernels import CHANGE, SECONDS, SPACE, TALKS, TRAILING

        structure, runs, columns = self._structure, self._runs, self._columns()
        joined = self._joined()
        together = np.array([[sum(each.bytes for each in way) for way in row] for row in joined], float)
        change = runs[:, :, CHANGE].copy()
        held = change[:, FORWARD] - together[:, FORWARD]
        change[:, BACKWARD] -= together[:, BACKWARD]
        enters_leaves = structure.boundaries @ self._bytes
        before, taken_by = structure.leads
        own, shared, constants = structure.samples
        one = interned(self._types[0].shaped((1,)))
        adding = np.bincount(columns.row, columns.add, structure.layers).astype(float)
        return Blocks(
            np.array(stands_for, np.int64),
            runs[:, :, SECONDS],
            *self._onward(),
            before @ self._seconds,
            taken_by,
            runs[:, :, TRAILING],
            runs[:, :, TALKS],
            held,
            enters_leaves[:, :2],
            enters_leaves[:, 2],
            runs[:, :, SPACE],
            change,
            joined,
            np.array([self._bytes[values].sum() for values in own]),
            self._with_bytes(shared),
            self._with_bytes(constants),
            tuple((self._types_of(down), self._types_of(up)) for down, up in structure.crossings),
            columns,
            self._ready(),
            adding,
            self._price("add", (), (one, one), (one,)),
            partial(_update_seconds, self._table, self._price, self._kind, self._step),
            self,
        )

    def _price(self, kind: str, attributes: Attributes, types: Types, made: Types) -> float:
        where = (self._kind, self._patterns) if find_operator(kind).pattern else self._kind
        return self._table.seconds(self._costs, where, kind, attributes, types, made)

    def _types_of(self, values: Sequence[int]) -> tuple[TensorType, ...]:
        return tuple([self._types[value] for value in values])

    def _with_bytes(self, inputs: list[list[int]]) -> tuple[frozenset[tuple[int, int]], ...]:
        return tuple(frozenset((value, self._types[value].bytes) for value in row) for row in inputs)

    @cached_property
    def _run_ends(self) -> Column:
        """Ends of the computation by row and phase. They are 0 for a layer that computes nothing in a phase."""
        from tessel_core.strategies.layer_kernels import END

        return np.nan_to_num(self._runs[:, :, END])

    def _onward(self) -> tuple[Column, Integers]:
        """Return the columns `onward` and `made_by` of `Blocks`."""
        layers = self._structure.layers
        found, made_by = np.zeros((layers, 2)), np.repeat(np.arange(layers)[:, None], 2, axis=1)
        for each in self._structure.onward:
            latest = max([self._end[number] for number in each.ready_at])
            found[each.row, each.way] = latest - self._run_ends[each.maker, each.way]
            made_by[each.row, each.way] = each.maker
        return found, made_by

    def _joined(self) -> tuple[tuple[tuple[Joined, ...], tuple[Joined, ...]], ...]:
        from tessel_core.strategies.layer_kernels import AT_START

        found = [(list[Joined](), list[Joined]()) for _ in range(self._structure.layers)]
        for number, row, way in self._structure.joins:
            part = self._types[self._structure.program.ops[number].outputs[0]]
            level = float(self._levels[number] - self._runs[row, way, AT_START])
            found[row][min(way, 1)].append(Joined(level, part.bytes, partial(self._joining, part)))
        return tuple((tuple(down), tuple(up)) for down, up in found)

    def _joining(self, part: TensorType) -> tuple[float, ...]:
        """Return `Joined.seconds` for the part of one micro-batch."""
        return self._table.once(("joining", self._kind, part), lambda: self._joining_of(part))

    def _joining_of(self, part: TensorType) -> tuple[float, ...]:
        rest = part.elements // part.shape[0] if part.shape else 1
        flat = [interned(part.shaped((turn * (part.elements // rest), rest))) for turn in range(2)]
        found = []
        for turn in TURNS[1:]:
            before, both = (interned(flat[1].shaped((n * flat[1].shape[0], rest))) for n in (turn, turn + 1))
            found.append(self._price("concat", (("axis", 0),), (before, flat[1]), (both,)))
        first = self._price("identity", (), (part,), (part,))
        return (0.0, *(max(0.0, each - first) for each in found))

    def units(self) -> tuple[tuple[tuple[Unit, ...], ...], ...]:
        """Return the units of each row and phase."""
        structure = self._structure
        found = [[list[Unit]() for _ in PHASES] for _ in range(structure.layers)]
        if structure.combines:
            return tuple(tuple(map(tuple, row)) for row in found)
        starts, ends = dict[tuple[int, int, Scope], float](), dict[tuple[int, int, Scope], float]()
        latest = dict[tuple[int, int, Scope], int]()
        for number, op in enumerate(structure.program.ops):
            key = op.tag.stage or 0, PHASES.get(op.tag.phase, WEIGHT), op.tag.scope
            latest[key] = number
            if op.tag.phase in PHASES and not structure.ops[number, STREAM]:
                starts.setdefault(key, float(self._start[number]))
                ends[key] = float(self._end[number])
        before = 0.0
        for key, end in sorted(ends.items(), key=lambda each: each[1]):
            row, phase, scope = key
            late = float(self._end[latest[key]]) - end
            rest = float(self._run_ends[row, phase]) - end
            unit = Unit(scope, end - before, max(0.0, starts[key] - before), late, rest)
            found[row][phase].append(unit)
            before = end
        return tuple(tuple(map(tuple, row)) for row in found)

    # Weights, their gradients and the optimizer

    def _ready(self) -> Column:
        """Return the column `ready` of `Blocks`."""
        made_by, rows, phases = self._structure.gradients
        return np.where(made_by >= 0, self._end[made_by] - self._run_ends[rows, phases], 0.0)

    def _columns(self) -> WeightColumns:
        """Return the columns of the weights. They do not depend on the number of samples."""
        return self._table.once(("weights", id(self._program.model), self._kind), self._new_columns)

    def _new_columns(self) -> WeightColumns:
        places, state = self._structure.weights, 0.0 if self._step is None else self._step.state
        types = tuple(self._types[each.value] for each in places)
        made = tuple(
            interned(self._types[each.value].shaped((0,))) if each.gradient is None else self._types[each.gradient]
            for each in places
        )
        overs = tuple(dict.fromkeys(each.over for each in places))
        trained = np.array([each.gradient is not None for each in places], bool)
        elements = np.array([each.elements for each in types], float)
        copy = [self._price("identity", (), (each,), (each,)) for each in types]
        add = [self._price("add", (), (each, each), (each,)) for each in made]
        first = [self._price("identity", (), (each,), (each,)) for each in made]
        return WeightColumns(
            row=np.array([each.row for each in places], np.int64),
            phase=np.array([each.phase for each in places], np.int64),
            overs=overs,
            over=np.array([overs.index(each.over) for each in places], np.int64),
            bytes=np.array([each.bytes for each in types], float),
            gradient=np.array([each.bytes for each in made], float),
            elements=np.array([each.elements for each in made], float),
            state=np.where(trained, np.round(state * elements), 0.0),
            copy=np.array(copy),
            add=np.where(trained, add, 0.0),
            first=np.where(trained, first, 0.0),
            types=types,
            gradients=made,
        )

    def weights(self) -> tuple[tuple[Weight, ...], ...]:
        """Return the weights by row."""
        columns, roots = self._columns(), self._structure.roots(self._types)
        found: list[list[Weight]] = [[] for _ in range(self._structure.layers)]
        for i, (place, ready) in enumerate(zip(self._structure.weights, self._ready().tolist(), strict=True)):
            weight = Weight(
                columns.types[i],
                columns.gradients[i],
                place.scope,
                place.scope in roots,
                float(columns.copy[i]),
                float(columns.add[i]),
                float(columns.first[i]),
                place.over,
                place.phase,
                place.used,
                ready,
            )
            found[place.row].append(weight)
        return tuple(map(tuple, found))

    @cached_property
    def _step(self) -> _Step | None:
        """The optimizer step, or None in inference."""
        model = self._program.model
        return self._table.once(("step", id(model)), lambda: self._table.step(model, self._grad_dtype))


@dataclass(frozen=True)
class _Step:
    """The optimizer step of a network."""

    elements: int
    """Number of elements of all trained weights."""
    per_element: float
    """Bytes of the optimizer's state that each element of a weight has."""
    shared: int
    """Bytes of the state that all weights share, such as the number of the step."""
    operations: tuple[tuple[str, Attributes, Types, Types], ...]
    """Operations of the step for one weight: kind, attributes, types of inputs, and types of outputs."""

    @property
    def state(self) -> float:
        """Bytes of the optimizer's state per element of a weight."""
        return (self.per_element * self.elements + self.shared) / self.elements


def _update_seconds(table: BlockTable, price: Price, device: str, step: _Step | None, numbers: int) -> float:
    """Return the seconds of the optimizer's step for one tensor of weights with `numbers` elements."""
    if step is None or not numbers:
        return 0.0

    def seconds() -> float:
        found = 0.0
        for kind, attributes, taken, made in step.operations:
            sized, ready = (
                [interned(each.shaped((numbers,))) if each.shape else each for each in some] for some in (taken, made)
            )
            found += price(kind, attributes, sized, ready)
        return found

    return table.once(("update", device, id(step.operations), numbers), seconds)


def _step_of(optimizer: Optimizer, model: Distributed, trained: Sequence[TensorType]) -> _Step:
    updated, count, operations = optimizer(model), len(trained), list[tuple[str, Attributes, Types, Types]]()
    types, more = updated.program.types, set(updated.inputs) - set(model.inputs)
    for op in updated.program.ops[len(model.program.ops) :]:
        each, rest = divmod(len(op.inputs), count)
        of_one = [types[value] for value in op.inputs[::count]][:each]
        others = [types[value] for value in op.inputs[len(op.inputs) - rest :]]
        made = [types[value] for value in op.outputs[::count]]
        operations.append((op.kind, op.attributes, (*of_one, *others), tuple(made)))
    state = [types[value] for value, piece in updated.piece_of.items() if piece in more]
    elements = sum(each.elements for each in trained)
    per_element = sum(each.bytes for each in state if each.shape) / elements
    return _Step(elements, per_element, sum(each.bytes for each in state if not each.shape), tuple(operations))


def _cut_of(strategy: Strategy, split: bool) -> Hashable:
    """Return a key with all fields of a strategy that change the program of a layer."""
    kernels = strategy.attention, strategy.fp8, strategy.compiled, strategy.eager_loss, strategy.recompute
    cut = strategy.sequence_parallel, strategy.context_method, strategy.expert, strategy.grad_dtype
    return strategy.tensor, strategy.context, *cut, *kernels, split


def _weights_last(model: Distributed) -> Distributed:
    """Return the program with the operations for gradients of weights at the end, as in split backward passes."""
    ops = sorted(model.program.ops, key=lambda op: op.tag.phase == WEIGHT_PHASE)
    return replace(model, program=replace(model.program, ops=tuple(ops)))
