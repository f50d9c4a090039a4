"""Shorten a deep network: of layers that repeat, keep a single repetition."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Op, Program

_PERIODS = (1, 2)
"""Lengths of a repetition that are tried, in layers."""

Reference = tuple[object, ...]
"""Where an operation's input comes from, described relative to its layer. Equal layers have equal references."""


@dataclass(frozen=True)
class Condensed:
    """A shorter network, and for each layer of the whole network the equal layer that stays."""

    model: Distributed
    stands_for: tuple[int, ...]
    """For each layer of the whole network, the index of the equal layer in `model`."""


def condensed(model: Distributed) -> Condensed:
    """Return the forward pass of a network in which repeating layers occur only once.

    Two layers are equal if their operations, types and attributes are equal, and if their inputs have the same origins
    and roles. An input may belong to one layer, be shared by all layers, or be an output of the previous layer. Layers
    repeat one by one or in pairs. They repeat in pairs, for example, if tensor parallelism divides weights by columns
    and by rows in turn. A layer stays in the network if layers other than the next one use its values.
    """
    return _Condensing(model).found()


class _Condensing:
    def __init__(self, model: Distributed) -> None:
        self._model, self._program = model, model.program
        self._layer_of = {value: _layer(op) for op in self._program.ops for value in op.outputs}

    @cached_property
    def _takers(self) -> dict[int, set[int]]:
        """For each value, the layers that use it."""
        found: dict[int, set[int]] = defaultdict(set)
        for op in self._program.ops:
            for value in op.inputs:
                found[value].add(_layer(op))
        return found

    @cached_property
    def _ops_of(self) -> list[list[Op]]:
        """List of the operations of each layer."""
        found: list[list[Op]] = [[] for _ in range(1 + max(map(_layer, self._program.ops), default=0))]
        for op in self._program.ops:
            found[_layer(op)].append(op)
        return found

    @cached_property
    def _place(self) -> dict[int, int]:
        """For each value that a layer computes, its index among the values of this layer."""
        every = ([value for op in ops for value in op.outputs] for ops in self._ops_of)
        return {value: place for made in every for place, value in enumerate(made)}

    @cached_property
    def _taken(self) -> list[dict[int, int]]:
        """For each layer, the values that it uses but does not compute. Each maps to its index among them."""
        every = (dict.fromkeys(value for op in ops for value in op.inputs) for ops in self._ops_of)
        others = ([v for v in taken if self._layer_of.get(v) != layer] for layer, taken in enumerate(every))
        return [{value: place for place, value in enumerate(values)} for values in others]

    def _reference(self, value: int, layer: int) -> Reference:
        of_type, takers = self._program.types[value], self._takers[value]
        maker = self._layer_of.get(value)
        if maker == layer:
            return "own", self._place[value]
        if maker is None and takers == {layer}:
            return "input", self._taken[layer][value], of_type, self._model.role_of(self._model.piece_of[value])
        if maker == layer - 1 and takers <= {layer - 1, layer}:
            return "before", self._taken[layer][value], of_type
        return "shared", value

    def _signature(self, layer: int) -> object:
        outputs = set(self._program.outputs)
        return tuple(
            (
                op.kind,
                op.attributes,
                tuple(self._reference(value, layer) for value in op.inputs),
                tuple((self._program.types[value], value in outputs) for value in op.outputs),
            )
            for op in self._ops_of[layer]
        )

    def found(self) -> Condensed:
        """Return the shorter network."""
        signatures = [self._signature(layer) for layer in range(len(self._ops_of))]
        kept, stands_for = list[int](), list[int]()
        instead: dict[int, int] = {}
        layer = 0
        while layer < len(signatures):
            period, end = self._repetition(signatures, layer)
            first, keep = len(kept), period + (end - layer) % period
            kept += range(layer, layer + keep)
            for place in range(end - layer):
                stand_in = place if place < keep else keep - 1 - (keep - 1 - place) % period
                stands_for.append(first + stand_in)
                if place >= keep:
                    instead |= self._made(layer + place, layer + stand_in)
            layer = end
        return Condensed(self._shorter(kept, instead), tuple(stands_for))

    def _repetition(self, signatures: list[object], first: int) -> tuple[int, int]:
        """Return the length of the repetition that begins at layer `first`, and the first layer after it ends."""
        for period in _PERIODS:
            end = first + period
            while end < len(signatures) and signatures[end] == signatures[end - period] and not self._reaches_far(end):
                end += 1
            if end - first >= 2 * period:
                return period, end
        return 1, first + 1

    def _reaches_far(self, layer: int) -> bool:
        """Return whether a layer other than the next one uses values of this layer."""
        values = (value for op in self._ops_of[layer] for value in op.outputs)
        return any(not self._takers[value] <= {layer, layer + 1} for value in values)

    def _made(self, layer: int, kept: int) -> dict[int, int]:
        """Map each value of `layer` to the value of the equal layer `kept`."""
        every = [[value for op in self._ops_of[each] for value in op.outputs] for each in (layer, kept)]
        return dict(zip(*every, strict=True))

    def _shorter(self, kept: list[int], instead: dict[int, int]) -> Distributed:
        model, program, number = self._model, self._program, {layer: i for i, layer in enumerate(kept)}
        ops = tuple(
            replace(
                op,
                inputs=tuple(instead.get(value, value) for value in op.inputs),
                tag=replace(op.tag, stage=number[layer]),
            )
            for layer in kept
            for op in self._ops_of[layer]
        )
        used = {value for op in ops for value in op.inputs}
        inputs = [(v, piece) for v, piece in model.piece_of.items() if v in used or v not in self._takers]
        pairs = zip(program.outputs, model.outputs, strict=True)
        outputs = [(value, piece) for value, piece in pairs if value not in instead]
        short = renumbered(
            replace(program, inputs=tuple(v for v, _ in inputs), ops=ops, outputs=tuple(v for v, _ in outputs))
        )
        return replace(
            model,
            program=short,
            inputs=tuple(piece for _, piece in inputs),
            outputs=tuple(piece for _, piece in outputs),
        )


def renumbered(program: Program) -> Program:
    """Return the program with its values numbered from 0 in the order in which they appear."""
    order = [*program.inputs, *(value for op in program.ops for value in op.outputs)]
    number = {value: i for i, value in enumerate(order)}
    ops = tuple(
        replace(op, inputs=tuple(number[v] for v in op.inputs), outputs=tuple(number[v] for v in op.outputs))
        for op in program.ops
    )
    types = tuple(program.types[value] for value in order)
    names = {number[value]: name for value, name in program.names.items() if value in number}
    ends = tuple(number[value] for value in program.inputs), tuple(number[value] for value in program.outputs)
    return Program(program.name, types, ends[0], ops, ends[1], names)


def _layer(op: Op) -> int:
    return op.tag.stage or 0
