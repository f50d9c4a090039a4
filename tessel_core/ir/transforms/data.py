"""Data parallelism: replicas that each take a part of the batch, and sum their gradients."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, check_degree, divided, elsewhere, tensors_together
from tessel_core.ir.program import Tag


@dataclass(frozen=True, slots=True)
class DataParallel:
    """`degree` copies on devices of their own, whose weight gradients are all-reduced.

    Raises InputError where the batch does not divide.
    """

    degree: int
    gather: bool = False
    """Whether outputs that hold samples are gathered on all replicas at the end."""
    bucket_bytes: int = 0
    """Gradients of a device are reduced together, in the order in which they are made, as soon as they have so many
    bytes [Li 2020, PyTorch Distributed, section 3.2.3]; with 0 one by one, in the order of the outputs."""

    def __call__(self, model: Distributed) -> Distributed:
        """The model on `degree` times as many devices; replica d has those of the model plus d times their number."""
        check_degree("data parallelism", self.degree)
        if self.degree == 1:
            return model
        source, width = model.program, len(model.program.devices)
        build, inputs = ProgramBuilder(source.name), list[Piece]()
        made: list[list[int]] = [[] for _ in source.outputs]
        for replica in range(self.degree):
            value_of: dict[int, int] = {}
            for value, piece in model.piece_of.items():
                of_type = source.types[value].on(source.types[value].device + replica * width)
                axis = model.role_of(piece).batch_axis
                if axis is not None:
                    of_type = divided(of_type, axis, self.degree, piece.name)
                value_of[value] = build.input(f"{source.value_name(value)}.d{replica}", of_type)
                inputs.append(self._share(model, piece, replica))
            for op in source.ops:
                attributes = elsewhere(op.attributes, lambda device, by=replica * width: device + by)  # type: ignore[misc]
                taken = [value_of[value] for value in op.inputs]
                value_of.update(zip(op.outputs, build.append(op.kind, taken, attributes, op.tag), strict=True))
            for copies, value in zip(made, source.outputs, strict=True):
                copies.append(value_of[value])
        combined, pieces = self._combined(build, model, made)
        return Distributed(build.finish(combined), tuple(inputs), tuple(pieces), model.roles)

    def _buckets(self, model: Distributed) -> list[list[int]]:
        """Places of gradients among the outputs, bucket by bucket, in the order in which buckets are full."""
        if not self.bucket_bytes:
            return []
        program = model.program
        made_at = {value: at for at, op in enumerate(program.ops) for value in op.outputs}
        outputs = zip(program.outputs, model.outputs, strict=True)
        found = [(made_at[v], i, v) for i, (v, piece) in enumerate(outputs) if model.role_of(piece).gradient_of]
        full, open_ones = list[list[int]](), dict[int, list[int]]()
        held = defaultdict[int, int](int)
        for _, i, value in sorted(found):
            device = program.types[value].device
            open_ones.setdefault(device, []).append(i)
            held[device] += program.types[value].bytes
            if held[device] >= self.bucket_bytes:
                full.append(open_ones.pop(device))
                held[device] = 0
        return [*full, *open_ones.values()]

    def _share(self, model: Distributed, piece: Piece, replica: int) -> Piece:
        axis = model.role_of(piece).batch_axis
        return piece if axis is None else piece.cut_first(axis, self.degree, replica)

    def _combined(
        self, build: ProgramBuilder, model: Distributed, made: list[list[int]]
    ) -> tuple[list[int], list[Piece]]:
        values, pieces = list[int](), list[Piece]()
        summed = dict[int, tuple[int, ...]]()
        for bucket in self._buckets(model):
            taken = [made[i][replica] for replica in range(self.degree) for i in bucket]
            total = build.add("allreduce", taken, Tag(phase="update"), **tensors_together(len(bucket)))
            summed |= {i: total[place :: len(bucket)] for place, i in enumerate(bucket)}
        for i, piece in enumerate(model.outputs):
            axis = model.role_of(piece).batch_axis
            if i in summed:
                values += summed[i]
                pieces += [piece] * self.degree
            elif axis is None:
                values += build.add("allreduce", made[i], Tag(phase="update"))
                pieces += [piece] * self.degree
            elif self.gather:
                values += build.add("allgather", made[i], Tag(phase="update"), axis=axis)
                pieces += [piece] * self.degree
            else:
                values += made[i]
                pieces += [self._share(model, piece, replica) for replica in range(self.degree)]
        return values, pieces
