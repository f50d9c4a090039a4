"""Programs with the facts that transforms need: the tensor, or part of one, that each input and output holds."""

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
    """One of `parts` equal parts of a tensor along an axis: the part with number `index`."""

    axis: int
    parts: int
    index: int
    over: str = ""
    """In the program of one device: the dimension of parallelism whose devices hold the parts. Otherwise ""."""
    balanced: bool = False
    """If True, the axis has 2 * parts chunks, and part i holds chunks i and 2 * parts - 1 - i.

    A causal mask then leaves equal work to all parts.
    """

    def places(self, size: int) -> NDArray[np.int64]:
        """Return the indices along an axis of length `size` that the part holds."""
        return places_here(size // self.parts, self.index, self.parts, self.balanced)


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the undistributed program, or the part of it that is left after `cuts`, applied in order."""

    name: str
    cuts: tuple[Cut, ...] = ()
    sums: tuple[str, ...] = ()
    """Dimensions of parallelism whose devices hold summands of this tensor: their sum is the tensor."""

    def cut(self, axis: int, parts: int, index: int) -> Piece:
        """Divide this piece into `parts` equal parts along `axis` and return part `index`."""
        return self if parts == 1 else replace(self, cuts=(*self.cuts, Cut(axis, parts, index)))

    def places(self, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
        """Return, for each axis, the indices of the whole tensor that the piece holds. `shape` is that of the whole
        tensor."""
        found = [np.arange(size) for size in shape]
        for each in self.cuts:
            found[each.axis] = found[each.axis][each.places(len(found[each.axis]))]
        return tuple(found)

    def of(self, array: Array) -> Array:
        """Return the values of this piece, taken from the whole tensor."""
        return array[np.ix_(*self.places(array.shape))] if self.cuts else array


@dataclass(frozen=True, slots=True)
class Role:
    """How a tensor of the undistributed program may be divided."""

    batch_axis: int | None = None
    """Axis of the samples. None for weights, gradients and scalars, which all samples share."""
    sequence_axis: int | None = None
    """Axis of the tokens of a sample. Context parallelism divides it."""
    shard_axis: int | None = None
    """Axis along which tensor parallelism divides a weight. None if each device has a copy."""
    shard_grain: int = 1
    """Number of neighbours along `shard_axis` that stay on one device, such as the columns of an attention head."""
    vocabulary_axis: int | None = None
    """Axis of the vocabulary.

    With sequence parallelism, tensor parallelism divides this axis instead of `shard_axis`.
    """
    expert_axis: int | None = None
    """Axis of the experts. Expert parallelism divides a weight along it."""
    weight: bool = False
    """Whether the tensor is a weight."""
    trained: bool = True
    """Whether gradients change the weight. Other weights are constant, or a rule without gradients changes them."""
    gradient_of: str = ""
    """Name of the weight whose gradient this output is, or "". It is summed over micro-batches and replicas."""


@dataclass(frozen=True)
class Distributed:
    """A program, the piece that each input and output holds, and the role of each whole tensor by name.

    `tag.stage` of an operation is the number of its layer. A pipeline replaces it by the number of the stage.
    """

    program: Program
    inputs: tuple[Piece, ...]
    outputs: tuple[Piece, ...]
    roles: Mapping[str, Role]

    @cached_property
    def piece_of(self) -> dict[int, Piece]:
        """Map each program input to the piece that it holds."""
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
        """Put pieces together and return the whole outputs by name. If a piece occurs twice, the last one counts.

        A piece without cuts is returned unchanged, even if its shape differs from its type. With experts, the number of
        rows depends on the tokens' choices.
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
        """Run the program on whole inputs, given by name, and return each output piece with its value.

        Raises InputError if an input is missing.
        """
        missing = next((piece.name for piece in self.inputs if piece.name not in given), None)
        if missing is not None:
            raise InputError("inputs", f"{missing} is missing")
        arrays = {value: piece.of(given[piece.name]) for value, piece in self.piece_of.items()}
        return list(zip(self.outputs, execute(self.program, arrays), strict=True))


def divided(whole: TensorType, axis: int, parts: int, name: str, grain: int = 1) -> TensorType:
    """Return the type of one of `parts` equal parts along an axis. Groups of `grain` neighbours stay together.

    Raises InputError with the tensor's name if the groups do not divide into equal parts.
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
    """Return an operation's attributes with new device numbers. Only the attributes `to` and `devices` name devices."""
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
