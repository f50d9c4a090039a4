"""The operations of one device, with sizes left open, which all strategies of a network share; and cut into stages.

A small instance of the network is built and sharded by the same transforms as any other; its sizes are numbers that
tell everything apart that a family's tensors are sized by, so they can be replaced by those of any configuration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Attributes, Op, Program
from tessel_core.ir.transforms.checkpoint import Recompute, holding_selected, recomputing
from tessel_core.ir.transforms.data import UPDATE
from tessel_core.ir.transforms.expansion import TENSOR, Degrees, expanded
from tessel_core.ir.transforms.tensor import TensorParallel, finished_sums
from tessel_core.ir.transforms.update import Optimizer
from tessel_core.ir.types import TensorType
from tessel_core.simulation.live_memory import owners
from tessel_core.strategies.families import ExampleFamily, Spec

_DEGREE = 2
"""The degree of tensor parallelism of examples."""


@dataclass(frozen=True)
class Shape:
    """Sizes by name, and a format where it is not the network's own."""

    sizes: tuple[str, ...]
    dtype: str = ""
    joined: int = 1
    """Micro-batches whose rows lie behind each other."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Shapes are looked up very often."""
        return hash((self.sizes, self.dtype, self.joined))

    def times(self, joined: int) -> Shape:
        """The same of so many micro-batches."""
        return replace(self, joined=joined)


@dataclass(frozen=True)
class Kind:
    """Everything that the seconds of an operation depend on; shapes of a collective are one device's."""

    name: str
    taken: tuple[Shape, ...]
    made: tuple[Shape, ...]
    attributes: Attributes = ()
    communicates: bool = False
    sized: tuple[str, ...] = ()
    """Attributes that are sizes of the network under their own names, and not among `attributes`."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sizes that it depends on."""
        sizes = (name for shape in (*self.taken, *self.made) for name in shape.sizes)
        return tuple(sorted({*sizes, *self.sized}))

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.taken, self.made, self.attributes, self.sized))


@dataclass(frozen=True, slots=True)
class SkeletonOp:
    """One operation of one device and one micro-batch."""

    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    layer: int
    backward: bool
    workspace: int = 0
    """How many times the bytes of its first input it holds while it runs, besides."""

    @property
    def communicates(self) -> bool:
        """Whether it is communication."""
        return self.kind.communicates


Column = tuple[tuple[Shape, ...], tuple[Shape, ...]]
"""Inputs and outputs of an optimizer for one weight: the weight, its state, its gradient."""


@dataclass(frozen=True, eq=False)
class Step:
    """The optimizer's operation on all weights: of each a tensor in turn, of weights, of state, of gradients."""

    kind: Kind
    weights: tuple[int, ...]

    def column(self, weight: int) -> Column:
        """Its inputs and outputs for one weight."""
        first, count = self.weights.index(weight), len(self.weights)
        taken, made = (shapes[: len(shapes) // count * count] for shapes in (self.kind.taken, self.kind.made))
        return taken[first::count], made[first::count]

    @property
    def rest(self) -> tuple[Shape, ...]:
        """Inputs that it takes once, whatever the weights are."""
        return self.kind.taken[len(self.kind.taken) // len(self.weights) * len(self.weights) :]


@dataclass(frozen=True, eq=False)
class Skeleton:
    """One device of a tensor-parallel group, without pipeline and replicas; values are numbered as in `shapes`."""

    layers: int
    shapes: tuple[Shape, ...]
    inputs: tuple[int, ...]
    ops: tuple[SkeletonOp, ...]
    outputs: tuple[int, ...]
    joined: frozenset[int]
    """Inputs and outputs that belong to samples: micro-batches have parts of their own."""
    weight_of: dict[int, int]
    """Per gradient among the outputs, the weight."""
    step: Step | None
    owner: dict[int, int]
    """Per value that is a view or is made in place, the one whose memory it is."""

    @cached_property
    def taking_layers(self) -> dict[int, set[int]]:
        """Per value, the layers with operations that take it."""
        found: dict[int, set[int]] = defaultdict(set)
        for op in self.ops:
            for value in op.inputs:
                found[value].add(op.layer)
        return found

    @cached_property
    def place_of_output(self) -> dict[int, int]:
        """The place of each value among the outputs."""
        return {value: i for i, value in enumerate(self.outputs)}

    @cached_property
    def distinct_shapes(self) -> tuple[tuple[Shape, ...], NDArray[np.int64]]:
        """Each shape once, and per value which of them it has."""
        number = {shape: i for i, shape in enumerate(dict.fromkeys(self.shapes))}
        return tuple(number), np.array([number[shape] for shape in self.shapes], np.int64)


@lru_cache(maxsize=64)
def skeleton_of(family: ExampleFamily, example: Spec, sharded: bool, recompute: Recompute) -> Skeleton:
    """The skeleton of a family's `example`, on one device or on one of several that share each layer."""
    degree, model = _DEGREE if sharded else 1, family.build(example)
    model = TensorParallel(degree).of_one(recomputing(recompute, model))
    if recompute == Recompute.SELECTIVE:
        model = holding_selected(model)
    model = expanded(finished_sums(model, TENSOR, degree), Degrees(tensor=degree))
    sizes = family.numbers(example, example.batch, degree)
    names = _Names({size: name for name, size in sizes.items()}, frozenset(sizes), example.dtype)
    return _first_device(model, names, example.layers, family.optimizer(example))


@dataclass(frozen=True, slots=True)
class _Names:
    """The symbols that the numbers of an example stand for."""

    of_size: dict[int, str]
    known: frozenset[str]
    dtype: str
    _shapes: dict[TensorType, Shape] = field(default_factory=dict)
    _kinds: dict[Kind, Kind] = field(default_factory=dict)
    """One object for all that are equal, as they are looked up very often."""

    def shape(self, of_type: TensorType) -> Shape:
        found = self._shapes.get(of_type)
        if found is None:
            sizes = tuple(self.of_size[size] for size in of_type.shape)
            made = Shape(sizes, "" if of_type.dtype == self.dtype else of_type.dtype)
            found = self._shapes[of_type] = made
        return found

    def kind(self, op: Op, taken: Iterable[TensorType], made: Iterable[TensorType]) -> Kind:
        sized = tuple(name for name, _ in op.attributes if name in self.known)
        rest = tuple(pair for pair in op.attributes if pair[0] not in self.known)
        shapes = tuple(map(self.shape, taken)), tuple(map(self.shape, made))
        made_of = Kind(op.kind, *shapes, rest, bool(find_operator(op.kind).pattern), sized)
        return self._kinds.setdefault(made_of, made_of)


def _first_device(model: Distributed, names: _Names, layers: int, optimizer: Optimizer | None) -> Skeleton:
    program = model.program
    first = min(program.devices)
    owner = {value: int(of) for value, of in enumerate(owners(program)) if of != value}
    number = {value: i for i, value in enumerate(v for v, each in enumerate(program.types) if each.device == first)}
    # What is an input changed in place stays where it is.
    here = [each for each in zip(program.outputs, model.outputs, strict=True) if each[0] in number]
    outputs = [(value, piece) for value, piece in here if owner.get(value) not in model.piece_of]
    inputs = [(value, piece) for value, piece in model.piece_of.items() if value in number]
    samples = [value for value, piece in (*inputs, *outputs) if model.role_of(piece).batch_axis is not None]
    weights = {piece.name: value for value, piece in inputs}
    gradients = {value: model.role_of(piece).gradient_of for value, piece in outputs}
    weight_of = {number[value]: number[weights[name]] for value, name in gradients.items() if name}
    return Skeleton(
        layers,
        tuple(names.shape(program.types[value]) for value in number),
        tuple(number[value] for value, _ in inputs),
        tuple(_op(op, number, program.types, names) for op in program.ops if not number.keys().isdisjoint(op.outputs)),
        tuple(number[value] for value, _ in outputs),
        frozenset(number[value] for value in samples),
        weight_of,
        None if optimizer is None else _step(optimizer(model).program, first, names, tuple(sorted(weight_of.values()))),
        {number[value]: number[of] for value, of in owner.items() if value in number},
    )


def _step(program: Program, device: int, names: _Names, weights: tuple[int, ...]) -> Step:
    """The optimizer's step in a program that has one."""
    op = next(op for op in program.ops if op.tag == UPDATE and program.types[op.outputs[0]].device == device)
    return Step(names.kind(op, program.types_of(op.inputs), program.types_of(op.outputs)), weights)


def _op(op: Op, number: dict[int, int], types: tuple[TensorType, ...], names: _Names) -> SkeletonOp:
    inputs = tuple(number[value] for value in op.inputs if value in number)
    outputs = tuple(number[value] for value in op.outputs if value in number)
    taken = (types[value] for value in op.inputs if value in number)
    kind = names.kind(op, taken, (types[value] for value in op.outputs if value in number))
    rule, mine = find_operator(op.kind).workspace, [types[value] for value in op.inputs if value in number]
    space = 0 if rule is None else round(rule(mine, dict(op.attributes)) / mine[0].bytes)
    return SkeletonOp(kind, inputs, outputs, op.tag.stage or 0, op.tag.phase == "backward", space)


FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True, slots=True)
class Combine:
    """An output of one micro-batch meets those before it: they are added up, or joined where samples have their own."""

    value: int
    joins: bool
    communicates: ClassVar[bool] = False

    @property
    def outputs(self) -> tuple[int, ...]:
        """The value, which it also takes."""
        return (self.value,)

    inputs = outputs


Item = SkeletonOp | Combine


@dataclass(frozen=True, slots=True)
class Send:
    """A value that a stage makes and another one takes."""

    value: int
    to: int


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage; pairs are forward and backward.  Values are those of the skeleton."""

    items: tuple[tuple[Item, ...], tuple[Item, ...]]
    sends: tuple[tuple[Send, ...], tuple[Send, ...]]
    inputs: tuple[int, ...]
    """Inputs of the program that it holds."""
    gradients: tuple[int, ...]
    """Gradients in the order of the outputs."""
    weights: frozenset[int]
    """Those that it has gradients of."""


@lru_cache(maxsize=256)
def stages_of(skeleton: Skeleton, layers: tuple[int, ...], several: bool) -> tuple[Stage, ...]:
    """The stages in order, of so many layers each; `several` micro-batches."""
    stage_of_layer = [stage for stage, count in enumerate(layers) for _ in range(count)]
    homes: dict[int, set[int]] = defaultdict(set)
    for value, layers_of_value in skeleton.taking_layers.items():
        homes[value] = {stage_of_layer[layer] for layer in layers_of_value}
    return tuple(_stage(skeleton, stage, stage_of_layer, homes, several) for stage in range(len(layers)))


def _stage(
    skeleton: Skeleton, stage: int, stage_of_layer: list[int], homes: dict[int, set[int]], several: bool
) -> Stage:
    items, sends = list[tuple[Item, ...]](), list[tuple[Send, ...]]()
    for phase in (FORWARD, BACKWARD):
        ops = [op for op in skeleton.ops if stage_of_layer[op.layer] == stage and op.backward == bool(phase)]
        items.append(_combined(skeleton, ops) if several else tuple(ops))
        made = [value for op in ops for value in op.outputs]
        sends.append(tuple(Send(value, to) for value in made for to in sorted(homes[value] - {stage})))
    mine = {value for each in items for item in each for value in item.outputs}
    gradients = tuple(value for value in skeleton.outputs if value in skeleton.weight_of and value in mine)
    return Stage(
        (items[FORWARD], items[BACKWARD]),
        (sends[FORWARD], sends[BACKWARD]),
        tuple(value for value in skeleton.inputs if stage in homes[value]),
        gradients,
        frozenset(skeleton.weight_of[value] for value in gradients),
    )


def _combined(skeleton: Skeleton, ops: list[SkeletonOp]) -> tuple[Item, ...]:
    """Finished outputs are combined before the next operation that is no communication, as the pipeline does it."""
    items, pending = list[Item](), list[int]()
    for op in ops:
        if not op.communicates:
            items += _combines(skeleton, pending)
            pending = []
        items.append(op)
        pending += [value for value in op.outputs if value in skeleton.place_of_output]
    return (*items, *_combines(skeleton, pending))


def _combines(skeleton: Skeleton, pending: list[int]) -> list[Combine]:
    ordered = sorted(pending, key=skeleton.place_of_output.__getitem__)
    return [Combine(value, value in skeleton.joined) for value in ordered]
