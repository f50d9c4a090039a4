"""Programs with the facts that transforms need: which part of which tensor each input and output is."""

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
    """Dimension of parallelism whose devices hold the parts, in the program of one device; else ""."""
    balanced: bool = False
    """Whether part i is chunks i and 2 * parts - 1 - i of 2 * parts, so that a causal mask hides equal shares."""

    def places(self, size: int) -> NDArray[np.int64]:
        """Return the positions of the part along an axis of length `size`."""
        return places_here(size // self.parts, self.index, self.parts, self.balanced)


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the undistributed program, or the part that remains after some cuts."""

    name: str
    cuts: tuple[Cut, ...] = ()
    sums: tuple[str, ...] = ()
    """Dimensions of parallelism over whose devices an output must still be summed."""

    def cut(self, axis: int, parts: int, index: int) -> Piece:
        """Return part `index` of this piece, cut into `parts` along `axis`."""
        return self if parts == 1 else replace(self, cuts=(*self.cuts, Cut(axis, parts, index)))

    def places(self, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
        """Return the positions of the piece along each axis of the whole tensor."""
        found = [np.arange(size) for size in shape]
        for each in self.cuts:
            found[each.axis] = found[each.axis][each.places(len(found[each.axis]))]
        return tuple(found)

    def of(self, array: Array) -> Array:
        """Return this piece of a whole tensor."""
        return array[np.ix_(*self.places(array.shape))] if self.cuts else array


@dataclass(frozen=True, slots=True)
class Role:
    """How a tensor of the undistributed program may be divided."""

    batch_axis: int | None = None
    """Axis of the samples. None for weights, gradients and scalars, which all samples share."""
    sequence_axis: int | None = None
    """Axis of the tokens of a sample, which context parallelism cuts."""
    shard_axis: int | None = None
    """Axis along which tensor parallelism cuts a weight. None to replicate it."""
    shard_grain: int = 1
    """Number of neighbours along that axis that stay together, such as the columns of a head."""
    vocabulary_axis: int | None = None
    """Axis of the vocabulary. Tensor parallelism with sequence parallelism cuts along it instead."""
    expert_axis: int | None = None
    """Axis of experts, along which expert parallelism cuts a weight."""
    weight: bool = False
    """Whether the tensor is a weight."""
    trained: bool = True
    """Whether gradients change the weight. Other weights stay constant or follow a rule of their own."""
    gradient_of: str = ""
    """Weight whose gradient this output is, or "". The gradient is summed over micro-batches and replicas."""


@dataclass(frozen=True)
class Distributed:
    """A program, the piece that each of its inputs and outputs is, and the roles of the whole tensors.

    `tag.stage` of an operation is its layer, until a pipeline replaces it by the stage.
    """

    program: Program
    inputs: tuple[Piece, ...]
    outputs: tuple[Piece, ...]
    roles: Mapping[str, Role]

    @cached_property
    def piece_of(self) -> dict[int, Piece]:
        """Piece of each input value."""
        return dict(zip(self.program.inputs, self.inputs, strict=True))

    def role_of(self, piece: Piece) -> Role:
        """Return the role of the tensor that a piece belongs to."""
        return self.roles[piece.name]

    def on_devices(self, device_of: Callable[[int], int]) -> Distributed:
        """Return the same program on other devices. `device_of` maps each device to a different one."""
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
        """Return whole outputs by name, put together from their pieces. Of equal pieces, the last one counts.

        A piece without cuts is taken as it is, even if its shape differs from its type: experts have as many rows as
        tokens chose them.
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
        """Return each output piece with its value, from whole inputs by name. Raises InputError if one is missing."""
        missing = next((piece.name for piece in self.inputs if piece.name not in given), None)
        if missing is not None:
            raise InputError("inputs", f"{missing} is missing")
        arrays = {value: piece.of(given[piece.name]) for value, piece in self.piece_of.items()}
        return list(zip(self.outputs, execute(self.program, arrays), strict=True))


def divided(whole: TensorType, axis: int, parts: int, name: str, grain: int = 1) -> TensorType:
    """Return the type of one of `parts` equal parts along an axis, each made of whole groups of `grain`.

    Raises InputError, naming the tensor, if the axis does not divide.
    """
    groups = whole.shape[axis] // grain
    if groups % parts:
        what = f"{groups} groups of {grain}" if grain > 1 else f"{groups}"
        raise InputError(name, f"its {what} along axis {axis} do not divide into {parts} equal parts")
    return whole.resized(axis, whole.shape[axis] // parts)


def tensors_together(count: int) -> dict[str, AttributeValue]:
    """Return the attributes of a collective that handles `count` tensors per device."""
    return {"tensors": count} if count > 1 else {}


def elsewhere(attributes: Attributes, device_of: Callable[[int], int]) -> Attributes:
    """Return an operation's attributes after its devices change. Only `to` and `devices` name devices."""
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
    """Raise InputError if a degree of parallelism is not an integer of at least 1."""
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
        raise InputError(what, f"must be a whole number of at least 1, got {degree!r}")
