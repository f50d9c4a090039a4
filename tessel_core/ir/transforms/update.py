"""The optimizer's step, at the end of a training program."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.program import Op, Program, Tag


@dataclass(frozen=True, slots=True)
class SgdUpdate:
    """Stochastic gradient descent: one operation a device updates all of its weights in place.

    The updated weights become outputs, under the weights' names; the gradients cease to be.

    Raises
    ------
    InputError
        Where no output is a gradient.
    """

    rate: float = 0.01

    def __call__(self, model: Distributed) -> Distributed:
        """The model with the step added."""
        program = model.program
        weights: dict[tuple[Piece, int], int] = {
            (piece, program.types[value].device): value for value, piece in model.piece_of.items()
        }
        gradients: dict[int, list[tuple[int, int]]] = defaultdict(list)
        kept, pieces = list[int](), list[Piece]()
        for value, piece in zip(program.outputs, model.outputs, strict=True):
            weight, device = model.role_of(piece).gradient_of, program.types[value].device
            if not weight:
                kept.append(value)
                pieces.append(piece)
            else:
                gradients[device].append((weights[Piece(weight, piece.cuts), device], value))
        if not gradients:
            raise InputError("update", f"program {program.name} has no gradients among its outputs")
        types, ops = list(program.types), list(program.ops)
        for device in sorted(gradients):
            pairs = sorted(gradients[device])
            first = len(types)
            types += [program.types[weight] for weight, _ in pairs]
            made = tuple(range(first, len(types)))
            taken = (*(weight for weight, _ in pairs), *(gradient for _, gradient in pairs))
            ops.append(Op("sgd", taken, made, (("rate", self.rate),), Tag(phase="update")))
            kept += made
            pieces += [model.piece_of[weight] for weight, _ in pairs]
        updated = Program(program.name, tuple(types), program.inputs, tuple(ops), tuple(kept), program.names)
        return Distributed(updated, model.inputs, tuple(pieces), model.roles)
