"""Two copies of a network on the same devices, for pipelines that run both ways at once [Li 2021, Chimera]."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, divided
from tessel_core.ir.program import Tag


def mirrored(model: Distributed) -> Distributed:
    """Both copies, one after the other, each with half of the samples and weights of its own.

    The first half of the operations is the first copy's.  Gradients of a weight are outputs of both copies, and their
    sum is the batch's.

    Raises InputError where the batch is odd.
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


def with_pairs_summed(model: Distributed) -> Distributed:
    """The partitioned model, whose outputs are those of one copy and then the other's, with both copies' gradients."""
    build, program = ProgramBuilder.resumed(model.program), model.program
    gradients = [place for place, piece in enumerate(model.outputs) if model.role_of(piece).gradient_of]
    outputs, update, many = list(program.outputs), Tag(phase="update"), len(gradients) // 2
    for one, other in zip(gradients[:many], gradients[many:], strict=True):
        pair = program.outputs[one], program.outputs[other]
        if program.types[pair[0]].device == program.types[pair[1]].device:
            outputs[one] = outputs[other] = build.one("add", pair, update)
        else:
            outputs[one], outputs[other] = build.add("allreduce", pair, update)
    return replace(model, program=build.finish(outputs))
