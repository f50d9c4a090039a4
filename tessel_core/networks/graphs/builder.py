"""Graphs written down operator by operator: names are paths, edges follow the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from tessel_core.costs.kernels import width_of
from tessel_core.errors import InputError
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.operator_graph import MOST_OPERATORS


@dataclass(frozen=True, slots=True)
class Tensor:
    """What operators hand on; the last axis of the shape is that of the channels."""

    shape: tuple[int, ...]
    width: int
    """Bytes of an element."""
    source: str = ""
    """The operator that makes it; empty for an input of the network."""
    root: str = ""
    """What it is a view of, so that it is kept once under whatever shape."""

    @property
    def elements(self) -> int:
        """Of the whole tensor."""
        return prod(self.shape)

    @property
    def channels(self) -> int:
        """Length of the last axis."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Vectors of channels."""
        return prod(self.shape[:-1])

    @property
    def bytes(self) -> int:
        """Of the whole tensor."""
        return self.elements * self.width


class GraphBuilder:
    """Collects the operators of one forward graph; `graph` ends it.

    An operator reads every input and weight once and writes its output once.  It keeps for its backward the tensors
    that it names, unless an operator before it keeps them already.
    """

    def __init__(self, dtype: str) -> None:
        self.width = width_of(dtype)
        self._made: list[tuple[Operator, tuple[str, ...]]] = []
        self._output_bytes: dict[str, int] = {}
        self._kept: set[str] = set()
        self._path: list[str] = []

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Operators made within are parts of `name`."""
        self._path.append(name)
        yield
        self._path.pop()

    def input(self, name: str, *shape: int, width: int | None = None) -> Tensor:
        """A tensor that comes from outside: not an operator, and free to be read anywhere."""
        return Tensor(shape, self.width if width is None else width, "", f"input {name}")

    def view(self, tensor: Tensor, *shape: int) -> Tensor:
        """The same elements in the same order under another shape; no operator."""
        assert prod(shape) == tensor.elements, f"{tensor.shape} is no {shape}"
        return Tensor(shape, tensor.width, tensor.source, tensor.root)

    def part(self, tensor: Tensor, *shape: int) -> Tensor:
        """Some of its elements, read in place; edges carry the whole tensor."""
        return Tensor(shape, tensor.width, tensor.source, f"{tensor.root}{shape}")

    def add(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Tensor],
        shape: tuple[int, ...],
        *,
        flops: float = 0.0,
        weights: int = 0,
        keeps: Sequence[Tensor] = (),
        keeps_output: bool = False,
        statistics: int = 0,
        moved: float | None = None,
        times: tuple[DeviceTime, ...] = (),
    ) -> Tensor:
        """One more operator; its output.

        Parameters
        ----------
        weights
            Parameters, each as wide as an activation.
        keeps, keeps_output, statistics
            What its backward reads again: inputs, the output, and so many bytes that nothing else reads.
        moved
            Bytes between memory and processor, where it does not read its inputs and weights once and no more.
        """
        path = "/".join((*self._path, name))
        if len(self._made) >= MOST_OPERATORS:
            raise InputError("operators", f"there would be more than the {MOST_OPERATORS:,} allowed")
        output = Tensor(shape, self.width, path, path)
        read = sum({tensor.root: tensor.bytes for tensor in inputs}.values()) + weights * self.width
        kept = [*keeps, output] if keeps_output else list(keeps)
        operator = Operator(
            path,
            kind,
            times,
            flops=float(flops),
            bytes=float(read + output.bytes if moved is None else moved),
            weight_bytes=weights * self.width,
            activation_bytes=statistics + sum(self._first_kept(tensor) for tensor in kept),
            output_bytes=output.bytes,
        )
        sources = tuple(dict.fromkeys(tensor.source for tensor in inputs if tensor.source))
        self._made.append((operator, sources))
        self._output_bytes[path] = output.bytes
        return output

    def _first_kept(self, tensor: Tensor) -> int:
        if tensor.root in self._kept:
            return 0
        self._kept.add(tensor.root)
        return tensor.bytes

    def graph(self, name: str, batch_size: int) -> OperatorGraph:
        """All that was added."""
        operators = tuple(operator for operator, _ in self._made)
        pairs = ((source, operator.name) for operator, sources in self._made for source in sources)
        edges = tuple(Edge(source, target, self._output_bytes[source]) for source, target in pairs)
        return OperatorGraph(name, operators, edges, batch_size=batch_size)
