"""Write the forward pass of a network: weights and operations under the names of layers, each with its role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import AttributeValue, Program, Tag
from tessel_core.ir.types import TensorType

SAMPLES = Role(batch_axis=0)
"""Of tensors whose first axis is that of the samples."""
SEQUENCES = Role(batch_axis=0, sequence_axis=1)
"""Of the tokens of samples, [samples, tokens], where all of a network's activations are [samples, tokens, channels]."""


class Definition:
    """The program of one device, operation by operation; `finish` ends it.

    Names are paths: what is written inside of `layer3` and there inside of `mlp` is called `layer3/mlp/…`.
    """

    def __init__(self, name: str) -> None:
        self._build = ProgramBuilder(name)
        self._inputs: dict[str, int] = {}
        self._roles: dict[str, Role] = {}
        self._path: list[str] = []
        self._layer = 0

    @contextmanager
    def layer(self, name: str, number: int) -> Iterator[None]:
        """Operations within belong to layer `number`, by which pipelines are cut, and are called `name`/…"""
        self._layer = number
        with self.inside(name):
            yield

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Operations within are called `name`/…"""
        self._path.append(name)
        yield
        self._path.pop()

    def path(self, name: str) -> str:
        """What something called `name` is called here, in full."""
        return "/".join((*self._path, name))

    def input(self, name: str, dtype: str, shape: tuple[int, ...], role: Role = SAMPLES) -> int:
        """A tensor that comes from outside."""
        self._inputs[name] = self._build.input(name, TensorType(dtype, shape, 1))
        self._roles[name] = role
        return self._inputs[name]

    def weight(
        self,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        cut: int | None = None,
        grain: int = 1,
        vocabulary: int | None = None,
        experts: int | None = None,
    ) -> int:
        """A weight; tensor parallelism cuts it along axis `cut` into whole groups of `grain`, or copies it.

        `vocabulary` and `experts` are its axes of these, by which other kinds of parallelism cut it.
        """
        cuts = {"shard_axis": cut, "shard_grain": grain, "vocabulary_axis": vocabulary, "expert_axis": experts}
        return self.input(name, dtype, shape, Role(weight=True, **cuts))  # type: ignore[arg-type]

    def all(self, name: str, kind: str, *inputs: int, **attributes: AttributeValue) -> tuple[int, ...]:
        """An operation; its outputs."""
        tag = Tag(self._layer, phase="forward", name=self.path(name))
        return self._build.add(kind, inputs, tag, **attributes)

    def __call__(self, name: str, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """An operation of one output; that output."""
        (made,) = self.all(name, kind, *inputs, **attributes)
        return made

    def type_of(self, value: int) -> TensorType:
        """The type of a value."""
        return self._build.type_of(value)

    def finish(self, outputs: Mapping[str, int], **roles: Role) -> Distributed:
        """The network with these outputs, which hold samples along their first axis unless `roles` says otherwise."""
        self._roles |= {name: SAMPLES for name in outputs if name not in self._roles} | roles
        program = _inputs_first(self._build.finish(tuple(outputs.values())))
        return Distributed(program, tuple(map(Piece, self._inputs)), tuple(map(Piece, outputs)), self._roles)


def _inputs_first(program: Program) -> Program:
    """The same program with its values numbered as its text has them: inputs, then what operations make."""
    given = set(program.inputs)
    order = (*program.inputs, *(value for value in range(len(program.types)) if value not in given))
    number = {value: place for place, value in enumerate(order)}

    def numbered(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(number[value] for value in values)

    return replace(
        program,
        types=tuple(program.types[value] for value in order),
        inputs=tuple(range(len(given))),
        ops=tuple(replace(op, inputs=numbered(op.inputs), outputs=numbered(op.outputs)) for op in program.ops),
        outputs=numbered(program.outputs),
        names={number[value]: name for value, name in program.names.items()},
    )
