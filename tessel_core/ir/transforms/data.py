"""Data parallelism: each replica processes a part of the batch, and the gradients of all replicas are summed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, check_degree, divided
from tessel_core.ir.program import Tag
from tessel_core.ir.transforms.expansion import (
    DATA,
    EXPERT,
    EXPERT_DATA,
    REPLICAS,
    TENSOR,
    Degrees,
    along,
    collective,
    expanded,
)

UPDATE = Tag(phase="update")


@dataclass(frozen=True, slots=True)
class DataParallel:
    """Data parallelism with `degree` replicas. Each has its own devices. An all-reduce sums the gradients of the
    weights.

    Raises InputError if the batch does not divide.
    """

    degree: int
    gather: bool = False
    """Whether every replica ends with the outputs of all samples, which an all-gather then collects."""
    bucket_bytes: int = 0
    """Smallest size in bytes of a bucket, a group of gradients that is reduced together. 0 reduces each gradient alone.

    Gradients enter a bucket in the order in which they are computed. A bucket is reduced as soon as it is full [Li
    2020, PyTorch Distributed, section 3.2.3].
    """

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model on `degree` times as many devices.

        If the model has P devices, device p of replica d becomes device p + d P.
        """
        check_degree("data parallelism", self.degree)
        degrees = Degrees(data=self.degree)
        return expanded(self.of_one(model, degrees), degrees)

    def of_one(self, model: Distributed, degrees: Degrees) -> Distributed:
        """Return the program of one replica.

        Outputs are summed over the replicas, and also over the dimensions in `Piece.sums`.
        """
        if degrees.count == 1:
            return model
        source, build, inputs = model.program, ProgramBuilder(model.program.name), list[Piece]()
        value_of: dict[int, int] = {}
        for value, piece in model.piece_of.items():
            axis, of_type = model.role_of(piece).batch_axis, source.types[value]
            if axis is None or self.degree == 1:
                inputs.append(piece)
            else:
                of_type = divided(of_type, axis, self.degree, piece.name)
                inputs.append(along(piece, axis, DATA, self.degree, first=True))
            value_of[value] = build.input(source.value_name(value), of_type)
        for op in source.ops:
            taken = [value_of[value] for value in op.inputs]
            value_of.update(zip(op.outputs, build.append(op.kind, taken, op.attributes, op.tag), strict=True))
        made = [value_of[value] for value in source.outputs]
        values, pieces = self._combined(build, model, made, degrees)
        return Distributed(build.finish(values), tuple(inputs), tuple(pieces), model.roles)

    def _combined(
        self, build: ProgramBuilder, model: Distributed, made: list[int], degrees: Degrees
    ) -> tuple[list[int], list[Piece]]:
        values, pieces = list(made), list(model.outputs)
        for over in (TENSOR, *self._reductions(model, degrees)):
            for bucket in self._buckets(model, over, degrees):
                taken, attributes = [values[i] for i in bucket], collective(over, degrees.of(over), len(bucket))
                for i, total in zip(bucket, build.add("allreduce", taken, UPDATE, **attributes), strict=True):
                    values[i] = total
        for i, piece in enumerate(model.outputs):
            axis = model.role_of(piece).batch_axis
            pieces[i] = replace(piece, sums=())
            if axis is None or self.degree == 1:
                continue
            if self.gather:
                (values[i],) = build.add("allgather", [made[i]], UPDATE, axis=axis, **collective(DATA, self.degree))
            else:
                pieces[i] = along(pieces[i], axis, DATA, self.degree, first=True)
        return values, pieces

    def _reductions(self, model: Distributed, degrees: Degrees) -> list[str]:
        """Return, for each output, the dimension over whose devices it is summed, or "" if it needs no sum."""
        found = (self._summed_over(model, piece, degrees) for piece in model.outputs)
        return [over for over in dict.fromkeys(found) if over and degrees.of(over) > 1]

    def _summed_over(self, model: Distributed, piece: Piece, degrees: Degrees) -> str:
        """Return the dimension over whose devices an output is summed, or "" if it needs no sum."""
        if model.role_of(piece).batch_axis is not None or sharded_over(piece):
            return ""
        return replicas_of(piece, degrees)

    def _buckets(self, model: Distributed, over: str, degrees: Degrees) -> list[list[int]]:
        """Return groups of output indices that are summed together, ordered by when a bucket is full."""
        program = model.program
        outputs = list(zip(program.outputs, model.outputs, strict=True))
        summed = [
            i
            for i, (_, piece) in enumerate(outputs)
            if (over in piece.sums if over == TENSOR else self._summed_over(model, piece, degrees) == over)
        ]
        if not self.bucket_bytes:
            return [[i] for i in summed]
        made_at = {value: at for at, op in enumerate(program.ops) for value in op.outputs}
        full_buckets, open_buckets = list[list[int]](), dict[tuple[int, bool], list[int]]()
        held_bytes = defaultdict[tuple[int, bool], int](int)
        for i in sorted(summed, key=lambda i: (made_at[outputs[i][0]], i)):
            value, piece = outputs[i]
            # Sums over tensor parallelism run last on their stream. Gradients without such a sum get their own buckets,
            # so they do not wait.
            key = program.types[value].device, TENSOR in piece.sums
            open_buckets.setdefault(key, []).append(i)
            held_bytes[key] += program.types[value].bytes
            if held_bytes[key] >= self.bucket_bytes:
                full_buckets.append(open_buckets.pop(key))
                held_bytes[key] = 0
        return [*full_buckets, *open_buckets.values()]


def replicas_of(piece: Piece, degrees: Degrees) -> str:
    """Return the dimension of parallelism whose devices all have the same piece of a weight."""
    if any(cut.over == EXPERT for cut in piece.cuts):
        return EXPERT_DATA
    return REPLICAS if degrees.context > 1 else DATA


def sharded_over(piece: Piece) -> str:
    """Return the dimension whose replicas each have a part of this weight or gradient, or "" if each has all of it."""
    over = piece.cuts[-1].over if piece.cuts else ""
    return over if over in (DATA, REPLICAS, EXPERT_DATA) else ""
