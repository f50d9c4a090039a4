"""Builder for the forward pass of a network. It adds weights and operations, named by layer, and each tensor's role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import AttributeValue, Program, Tag
from tessel_core.ir.types import TensorType

SAMPLES = Role(batch_axis=0)
"""Role of a tensor whose first axis is the batch."""
SEQUENCES = Role(batch_axis=0, sequence_axis=1)
"""Role of token ids, [samples, tokens], in a network whose activations are [samples, tokens, channels]."""


class Definition:
    """Build the program of one device, operation by operation. `finish` returns the program.

    Operation names are paths. An operation `up` that is added within `inside("mlp")` within `layer("layer3", 3)` is
    called `layer3/mlp/up`.
    """

    def __init__(self, name: str) -> None:
        self._build = ProgramBuilder(name)
        self._inputs: dict[str, int] = {}
        self._roles: dict[str, Role] = {}
        self._path: list[str] = []
        self._layer = 0

    @contextmanager
    def layer(self, name: str, number: int) -> Iterator[None]:
        """In a `with` block: assign new operations to layer `number` and prefix their names with `name`.

        A pipeline later assigns whole layers to stages.
        """
        self._layer = number
        with self.inside(name):
            yield

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """In a `with` block: prefix the names of new operations with `name`."""
        self._path.append(name)
        yield
        self._path.pop()

    def path(self, name: str) -> str:
        """Return `name` after the prefixes of the enclosing `with` blocks, separated by slashes."""
        return "/".join((*self._path, name))

    def input(self, name: str, dtype: str, shape: tuple[int, ...], role: Role = SAMPLES) -> int:
        """Add an input of the program and return its value. Raises InputError if an input has this name already."""
        if name in self._inputs:
            raise InputError(name, "is already an input of this network, so choose another name")
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
        """Add a weight and return its value.

        Tensor parallelism divides the weight along axis `cut`. Groups of `grain` neighbours stay together. If `cut` is
        None, each device has a copy. `vocabulary` and `experts` are the axes that vocabulary and expert parallelism
        divide, or None.
        """
        cuts = {"shard_axis": cut, "shard_grain": grain, "vocabulary_axis": vocabulary, "expert_axis": experts}
        return self.input(name, dtype, shape, Role(weight=True, **cuts))  # type: ignore[arg-type]

    def all(self, name: str, kind: str, *inputs: int, **attributes: AttributeValue) -> tuple[int, ...]:
        """Add an operation and return its outputs."""
        tag = Tag(self._layer, phase="forward", name=self.path(name))
        return self._build.add(kind, inputs, tag, **attributes)

    def __call__(self, name: str, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Add an operation with one output and return that output."""
        (made,) = self.all(name, kind, *inputs, **attributes)
        return made

    def type_of(self, value: int) -> TensorType:
        """Return the type of a value."""
        return self._build.type_of(value)

    def finish(self, outputs: Mapping[str, int], **roles: Role) -> Distributed:
        """Return the network with these outputs. An output without an entry in `roles` has the role `SAMPLES`."""
        self._roles |= {name: SAMPLES for name in outputs if name not in self._roles} | roles
        program = _inputs_first(self._build.finish(tuple(outputs.values())))
        return Distributed(program, tuple(map(Piece, self._inputs)), tuple(map(Piece, outputs)), self._roles)


def _inputs_first(program: Program) -> Program:
    """Renumber the values of a program in the order of its text: inputs first, then outputs of operations."""
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
