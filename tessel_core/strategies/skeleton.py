"""What all strategies of one network have in common: the operations of one device, with sizes left open.

A small instance of the network is built and sharded by the same transforms as any other; its sizes are numbers that
tell rows, width and shard apart, so they can be replaced by those of any configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Attributes, Op
from tessel_core.ir.transforms import Checkpoint, TensorParallel
from tessel_core.ir.types import TensorType
from tessel_core.strategies.families import find_family

_ROWS, _WIDTH, _DEGREE = 7, 22, 2
_SYMBOL_OF = {_ROWS: "rows", _WIDTH: "width", _WIDTH // _DEGREE: "shard"}
"""`rows` are those of one micro-batch of one replica, `shard` is the width over the tensor-parallel degree."""

_DTYPE = "fp32"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes by name, and a format where it is not the network's own."""

    sizes: tuple[str, ...]
    dtype: str = ""
    joined: int = 1
    """Micro-batches whose rows lie behind each other."""

    def times(self, joined: int) -> Shape:
        """The same of so many micro-batches."""
        return replace(self, joined=joined)


@dataclass(frozen=True)
class Kind:
    """What the seconds of an operation depend on; of a collective, shapes are one device's."""

    name: str
    taken: tuple[Shape, ...]
    made: tuple[Shape, ...]
    attributes: Attributes = ()
    talks: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sizes that it depends on."""
        return tuple(sorted({name for shape in (*self.taken, *self.made) for name in shape.sizes}))

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.taken, self.made, self.attributes))


@dataclass(frozen=True, slots=True)
class SkeletonOp:
    """One operation of one device and one micro-batch."""

    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    layer: int
    backward: bool


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

    @cached_property
    def made_by(self) -> dict[int, SkeletonOp]:
        """Per value, what makes it."""
        return {value: op for op in self.ops for value in op.outputs}


@lru_cache(maxsize=64)
def skeleton_of(family: str, layers: int, sharded: bool, recompute: bool) -> Skeleton:
    """The skeleton of a family's network, on one device or on one of several that share each layer."""
    found = find_family(family)
    model = found.build(found.spec(layers, _WIDTH, _ROWS, _DTYPE))
    model = Checkpoint()(model) if recompute else model
    return _first_device(TensorParallel(_DEGREE if sharded else 1)(model), layers)


def _first_device(model: Distributed, layers: int) -> Skeleton:
    program = model.program
    first = min(program.devices)
    number = {value: i for i, value in enumerate(v for v, each in enumerate(program.types) if each.device == first)}
    outputs = [(value, piece) for value, piece in zip(program.outputs, model.outputs, strict=True) if value in number]
    inputs = [(value, piece) for value, piece in model.piece_of.items() if value in number]
    samples = [value for value, piece in (*inputs, *outputs) if model.role_of(piece).batch_axis is not None]
    weights = {piece.name: value for value, piece in inputs}
    gradients = {value: model.role_of(piece).gradient_of for value, piece in outputs}
    return Skeleton(
        layers,
        tuple(_shape(program.types[value]) for value in number),
        tuple(number[value] for value, _ in inputs),
        tuple(_op(op, number, program.types) for op in program.ops if not number.keys().isdisjoint(op.outputs)),
        tuple(number[value] for value, _ in outputs),
        frozenset(number[value] for value in samples),
        {number[value]: number[weights[name]] for value, name in gradients.items() if name},
    )


def _op(op: Op, number: dict[int, int], types: tuple[TensorType, ...]) -> SkeletonOp:
    inputs = tuple(number[value] for value in op.inputs if value in number)
    outputs = tuple(number[value] for value in op.outputs if value in number)
    taken = tuple(_shape(types[value]) for value in op.inputs if value in number)
    made = tuple(_shape(types[value]) for value in op.outputs if value in number)
    kind = Kind(op.kind, taken, made, op.attributes, bool(find_operator(op.kind).pattern))
    return SkeletonOp(kind, inputs, outputs, op.tag.stage or 0, op.tag.phase == "backward")


def _shape(of_type: TensorType) -> Shape:
    sizes = tuple(_SYMBOL_OF[size] for size in of_type.shape)
    return Shape(sizes, "" if of_type.dtype == _DTYPE else of_type.dtype)
