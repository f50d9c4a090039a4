"""A program with what transforms have to know of it: which piece of which tensor each input and output is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.ir.execute import execute
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Attributes, AttributeValue, Program
from tessel_core.ir.types import TensorType, interned, places_here


@dataclass(frozen=True, slots=True)
class Cut:
    """One of several equal parts along an axis."""

    axis: int
    parts: int
    index: int
    over: str = ""
    """In a program of one device of several, the dimension of parallelism along which devices have the parts."""
    balanced: bool = False
    """Whether part i is chunks i and 2 parts - 1 - i of twice as many, so that a causal mask hides as much of each."""

    def places(self, size: int) -> NDArray[np.int64]:
        """Which of `size` places along the axis it takes."""
        return places_here(size // self.parts, self.index, self.parts, self.balanced)


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the undistributed program, or what is left of it after some cuts."""

    name: str
    cuts: tuple[Cut, ...] = ()
    sums: tuple[str, ...] = ()
    """Of an output, dimensions of parallelism over whose devices it is still to be summed."""

    def cut(self, axis: int, parts: int, index: int) -> Piece:
        """A part of this piece."""
        return self if parts == 1 else replace(self, cuts=(*self.cuts, Cut(axis, parts, index)))

    def cut_first(self, axis: int, parts: int, index: int) -> Piece:
        """The same piece of a part: the whole tensor is cut along this axis before it is cut any further."""
        return self if parts == 1 else replace(self, cuts=(Cut(axis, parts, index), *self.cuts))

    def places(self, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
        """Per axis of the whole tensor, which places it takes."""
        found = [np.arange(size) for size in shape]
        for each in self.cuts:
            found[each.axis] = found[each.axis][each.places(len(found[each.axis]))]
        return tuple(found)

    def of(self, array: Array) -> Array:
        """The piece of the whole tensor."""
        return array[np.ix_(*self.places(array.shape))] if self.cuts else array


@dataclass(frozen=True, slots=True)
class Role:
    """How a tensor of the undistributed program may be divided."""

    batch_axis: int | None = None
    """The axis along which samples lie; None for weights, gradients and scalars, which every sample shares."""
    sequence_axis: int | None = None
    """The axis along which the tokens of a sample lie, where context parallelism cuts it."""
    shard_axis: int | None = None
    """The axis along which tensor parallelism cuts a weight; None to replicate it."""
    shard_grain: int = 1
    """How many neighbours along that axis stay together, as the columns of a head do."""
    vocabulary_axis: int | None = None
    """The axis of the vocabulary, along which tensor parallelism with sequence parallelism cuts instead."""
    expert_axis: int | None = None
    """The axis of experts, along which expert parallelism cuts a weight."""
    weight: bool = False
    """Whether training changes it."""
    trained: bool = True
    """Whether it changes by its gradient; other weights stay, or follow a rule of their own."""
    gradient_of: str = ""
    """The weight whose gradient an output is.  It is summed over micro-batches and replicas."""


@dataclass(frozen=True)
class Distributed:
    """A program, a piece for each of its inputs and outputs, and the roles of the tensors they are pieces of.

    Operations carry the layer they belong to as `tag.stage` until a pipeline replaces it by the stage.
    """

    program: Program
    inputs: tuple[Piece, ...]
    outputs: tuple[Piece, ...]
    roles: Mapping[str, Role]

    @cached_property
    def piece_of(self) -> dict[int, Piece]:
        """Per input value."""
        return dict(zip(self.program.inputs, self.inputs, strict=True))

    def role_of(self, piece: Piece) -> Role:
        """The role of the tensor that a piece belongs to."""
        return self.roles[piece.name]

    def on_devices(self, device_of: Callable[[int], int]) -> Distributed:
        """The same model on other devices: those of `device_of`, which gives each device one of its own."""
        program = self.program
        there = {each: interned(each.on(device_of(each.device))) for each in set(program.types)}
        attributes = {op.attributes: elsewhere(op.attributes, device_of) for op in program.ops}
        ops = tuple(
            op if attributes[op.attributes] == op.attributes else replace(op, attributes=attributes[op.attributes])
            for op in program.ops
        )
        types = tuple(there[each] for each in program.types)
        return replace(self, program=replace(program, types=types, ops=ops))

    def joined(self, found: Iterable[tuple[Piece, Array]]) -> dict[str, Array]:
        """Whole outputs by name, from their pieces; where pieces are the same, the last one counts.

        A piece that is not cut is whole whatever its type says: rows of experts are as many as chose them.
        """
        pairs = zip(self.program.outputs, self.outputs, strict=True)
        types = {piece.name: self.program.types[value] for value, piece in pairs}
        whole = dict[str, Array]()
        for piece, array in found:
            of_type = types[piece.name]
            if not piece.cuts:
                whole[piece.name] = np.array(array)
                continue
            if piece.name not in whole:
                whole[piece.name] = np.zeros(of_type.shape, array.dtype)
            whole[piece.name][np.ix_(*piece.places(of_type.shape))] = array
        return whole

    def run(self, given: Mapping[str, Array]) -> list[tuple[Piece, Array]]:
        """Each output with its value, from whole input tensors by name; raises InputError where one is missing."""
        missing = next((piece.name for piece in self.inputs if piece.name not in given), None)
        if missing is not None:
            raise InputError("inputs", f"{missing} is missing")
        arrays = {value: piece.of(given[piece.name]) for value, piece in self.piece_of.items()}
        return list(zip(self.outputs, execute(self.program, arrays), strict=True))


def divided(whole: TensorType, axis: int, parts: int, name: str, grain: int = 1) -> TensorType:
    """The type of one of equal parts along an axis, each of whole groups of `grain`.

    InputError, naming the tensor, where it does not divide.
    """
    groups = whole.shape[axis] // grain
    if groups % parts:
        what = f"{groups} groups of {grain}" if grain > 1 else f"{groups}"
        raise InputError(name, f"its {what} along axis {axis} do not divide into {parts} equal parts")
    return whole.resized(axis, whole.shape[axis] // parts)


def tensors_together(count: int) -> dict[str, AttributeValue]:
    """The attributes of a collective that takes so many tensors of each device."""
    return {"tensors": count} if count > 1 else {}


def elsewhere(attributes: Attributes, device_of: Callable[[int], int]) -> Attributes:
    """Attributes of an operation whose devices are others; only `to` and `devices` name devices."""
    found = list[tuple[str, AttributeValue]]()
    for name, value in attributes:
        if name == "to" and isinstance(value, int):
            found.append((name, device_of(value)))
        elif name == "devices" and isinstance(value, tuple):
            found.append((name, tuple(map(device_of, value))))
        else:
            found.append((name, value))
    return tuple(found)


def check_degree(what: str, degree: int) -> None:
    """Raise InputError for a degree of parallelism below 1."""
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
        raise InputError(what, f"must be a whole number of at least 1, got {degree!r}")
