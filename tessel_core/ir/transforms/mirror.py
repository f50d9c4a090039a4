"""Two copies of a network, each with half of the samples, for bidirectional pipelines [Li 2021, Chimera]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, divided
from tessel_core.ir.program import Tag


def mirrored(model: Distributed) -> Distributed:
    """Return a model with two copies of the network. Each has half of the samples and its own copy of the weights.

    The first half of the operations is the first copy. Each copy returns a gradient of every weight. The sum of both is
    the gradient of the batch.

    Raises InputError if the batch size is odd.
    """
    source, build = model.program, ProgramBuilder(model.program.name)
    inputs, outputs, pieces = list[Piece](), list[int](), list[Piece]()
    value_of: list[dict[int, int]] = [{}, {}]
    for copy in range(2):
        for value, piece in model.piece_of.items():
            axis, of_type = model.role_of(piece).batch_axis, source.types[value]
            if axis is not None:
                of_type = divided(of_type, axis, 2, piece.name)
            value_of[copy][value] = build.input(f"{source.value_name(value)}.{'du'[copy]}", of_type)
            inputs.append(_half(model, piece, copy))
    for copy in range(2):
        for op in source.ops:
            taken = [value_of[copy][value] for value in op.inputs]
            value_of[copy].update(zip(op.outputs, build.append(op.kind, taken, op.attributes, op.tag), strict=True))
        outputs += [value_of[copy][value] for value in source.outputs]
        pieces += [_half(model, piece, copy) for piece in model.outputs]
    return Distributed(build.finish(outputs), tuple(inputs), tuple(pieces), model.roles)


def _half(model: Distributed, piece: Piece, copy: int) -> Piece:
    axis = model.role_of(piece).batch_axis
    return piece if axis is None else piece.cut(axis, 2, copy)


def with_parts_summed(model: Distributed, groups: Sequence[Sequence[int]]) -> Distributed:
    """Return the partitioned model with each output of a group replaced by the sum of the group.

    `groups` lists groups of output indices.
    """
    build, outputs, update = ProgramBuilder.resumed(model.program), list(model.program.outputs), Tag(phase="update")
    for places in groups:
        of_device: dict[int, int] = {}
        for place in places:
            device, part = build.type_of(outputs[place]).device, outputs[place]
            known = of_device.get(device)
            of_device[device] = part if known is None else build.one("add", [known, part], update)
        if len(of_device) > 1:
            summed = build.add("allreduce", tuple(of_device.values()), update)
            of_device = dict(zip(of_device, summed, strict=True))
        for place in places:
            outputs[place] = of_device[build.type_of(outputs[place]).device]
    return replace(model, program=build.finish(outputs)) if groups else model
