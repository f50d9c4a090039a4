"""Graphs written down operator by operator: names are paths, edges follow the inputs.

A multiplication and an addition are two FLOPs.  What is cheap beside the bytes that it moves counts as the measured
rows do: 8 FLOPs an element for a norm or a GELU, 1 for a sum.  Statistics are float32, whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from tessel_core.costs.kernels import width_of
from tessel_core.costs.meshes import INTERCONNECTS, all_gather_seconds, all_reduce_seconds
from tessel_core.errors import InputError
from tessel_core.model import DeviceTime, Edge, Link, Operator, OperatorGraph
from tessel_core.model.operator_graph import MOST_OPERATORS

IDS_WIDTH = 8
"""Bytes of a token's id."""


def layer_of(operator: Operator, depth: int = 1) -> str:
    """The first `depth` steps of an operator's name; a backward operator's layer is that of its forward one.

    >>> layer_of(Operator("layer3/mlp/up"), 2)
    'layer3/mlp'
    >>> layer_of(Operator("/layer3/mlp/up"))
    'layer3'
    """
    return "/".join((operator.forward_of or operator.name).lstrip("/").split("/")[:depth])


@dataclass(frozen=True, slots=True)
class Tensor:
    """What operators hand on; the last axis of the shape is that of the channels."""

    shape: tuple[int, ...]
    width: int
    """Bytes of an element."""
    source: str
    """The operator that makes it; empty for an input of the network."""
    root: str
    """What it is, or is a part of, so that it is kept once."""

    @property
    def elements(self) -> int:
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
        return self.elements * self.width


class GraphBuilder:
    """Collects the operators of one forward graph; `graph` ends it.

    A method that is named after an operator adds it and returns its output.  An operator reads every input and weight
    once and writes its output once.  It keeps tensors for its backward unless an operator before it keeps them.
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

    def part(self, tensor: Tensor, *shape: int) -> Tensor:
        """Some of its elements, read in place; edges carry the whole tensor."""
        return replace(tensor, shape=shape, root=f"{tensor.root}{shape}")

    def linear(self, name: str, x: Tensor, outputs: int, *, bias: bool = True) -> Tensor:
        """Rows times a matrix of weights: 2 m k n FLOPs."""
        weights = x.channels * outputs + (outputs if bias else 0)
        shape = (*x.shape[:-1], outputs)
        return self._add(name, "matmul", (x,), shape, flops=2 * x.elements * outputs, weights=weights, keeps=(x,))

    def product(self, name: str, inputs: Sequence[Tensor], shape: tuple[int, ...], inner: int) -> Tensor:
        """Activations times activations, `inner` the length that is summed over."""
        return self._add(name, "matmul", inputs, shape, flops=2 * prod(shape) * inner, keeps=inputs)

    def attention(
        self,
        name: str,
        inputs: Sequence[Tensor],
        shape: tuple[int, ...],
        heads: int,
        keys: int,
        *,
        causal: bool = False,
        table: int = 0,
    ) -> Tensor:
        """Fused attention: 4 FLOPs a score and channel, half of the scores under a causal mask [Dao 2022].

        `shape` is that of the output, (…, queries, channels of all heads); each query has `keys`.  Scores are not kept,
        but queries, keys, values, the output and one number a query and head.  A bias is an input, or a `table` of
        weights.
        """
        return self._add(
            name,
            "attention",
            inputs,
            shape,
            flops=4 * prod(shape) * keys // (2 if causal else 1),
            weights=table,
            keeps=inputs,
            keeps_output=True,
            statistics=4 * heads * prod(shape[:-1]),
        )

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        """Keeps its input, and mean and deviation of each row."""
        return self._norm(name, "layer_norm", x, 8, 2 * x.channels, 8 * x.rows)

    def rms_norm(self, name: str, x: Tensor) -> Tensor:
        """Without mean and shift [Zhang 2019]; keeps its input and the root mean square of each row."""
        return self._norm(name, "rms_norm", x, 4, x.channels, 4 * x.rows)

    def batch_norm(self, name: str, x: Tensor) -> Tensor:
        """Keeps its input, and mean and deviation of each channel; running averages are no parameters."""
        return self._norm(name, "batch_norm", x, 8, 2 * x.channels, 8 * x.channels)

    def _norm(self, name: str, kind: str, x: Tensor, flops: int, weights: int, statistics: int) -> Tensor:
        """`flops` are those of an element."""
        return self._add(
            name, kind, (x,), x.shape, flops=flops * x.elements, weights=weights, keeps=(x,), statistics=statistics
        )

    def gelu(self, name: str, x: Tensor) -> Tensor:
        """Keeps its input."""
        return self._add(name, "gelu", (x,), x.shape, flops=8 * x.elements, keeps=(x,))

    def relu(self, name: str, x: Tensor) -> Tensor:
        """Keeps its output, which the product after it keeps anyway."""
        return self._add(name, "relu", (x,), x.shape, flops=x.elements, keeps_output=True)

    def multiply(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """Element by element."""
        return self._add(name, "mul", (x, y), x.shape, flops=x.elements, keeps=(x, y))

    def gate(self, name: str, x: Tensor, by: Tensor) -> Tensor:
        """sigmoid(by) · x."""
        return self._add(name, "gate", (x, by), x.shape, flops=5 * x.elements, keeps=(x, by))

    def add(self, name: str, x: Tensor, *others: Tensor, weights: int = 0) -> Tensor:
        """Sum, with the others repeated along the axes that they lack; `weights` are one more summand."""
        count = len(others) + (1 if weights else 0)
        return self._add(name, "add", (x, *others), x.shape, flops=count * x.elements, weights=weights)

    def transpose(self, name: str, x: Tensor, *shape: int, kind: str = "transpose") -> Tensor:
        """The elements in another order."""
        return self._add(name, kind, (x,), shape)

    def concat(self, name: str, parts: Sequence[Tensor], shape: tuple[int, ...], *, weights: int = 0) -> Tensor:
        """Tensors, and perhaps rows that are weights, as one."""
        return self._add(name, "concat", parts, shape, weights=weights)

    def embedding(self, name: str, ids: Tensor, rows: int, channels: int) -> Tensor:
        """Reads the rows that it looks up, not the table."""
        shape = (*ids.shape, channels)
        moved = ids.bytes + 2 * prod(shape) * self.width
        return self._add(name, "embedding", (ids,), shape, weights=rows * channels, keeps=(ids,), moved=moved)

    def cross_entropy(self, name: str, logits: Tensor) -> Tensor:
        """Keeps the logits, whose place their gradient takes, and float32 log-probabilities."""
        elements = logits.elements
        return self._add(
            name, "cross_entropy", (logits,), (1,), flops=6 * elements, keeps=(logits,), statistics=4 * elements
        )

    def conv(self, name: str, x: Tensor, outputs: int, kernel: int, stride: int = 1, *, bias: bool) -> Tensor:
        """Square kernel over (batch, height, width, channels), padded by half of the kernel where it overlaps."""
        shape = _swept(x, kernel, stride, outputs)
        taps = kernel * kernel * x.channels
        weights = taps * outputs + (outputs if bias else 0)
        return self._add(name, "conv", (x,), shape, flops=2 * prod(shape) * taps, weights=weights, keeps=(x,))

    def max_pool(self, name: str, x: Tensor, kernel: int, stride: int) -> Tensor:
        """Keeps where each maximum was, 8 bytes each; its backward needs no more of the input than its shape."""
        shape = _swept(x, kernel, stride, x.channels)
        return self._add(name, "max_pool", (x,), shape, flops=kernel * kernel * prod(shape), statistics=8 * prod(shape))

    def average_pool(self, name: str, x: Tensor) -> Tensor:
        """The mean over all but batch and channels."""
        return self._add(name, "average_pool", (x,), (x.shape[0], x.channels), flops=x.elements)

    def all_reduce(self, name: str, x: Tensor, devices: int) -> Tensor:
        """The sum over so many devices, which share each layer, by a ring: 2 (n - 1) / n of the tensor leaves each."""
        if devices == 1:
            return x
        moved, times = 2 * (devices - 1) / devices * x.bytes, _link_times(all_reduce_seconds, x.bytes, devices)
        return self._add(name, "all_reduce", (x,), x.shape, moved=moved, times=times)

    def all_gather(self, name: str, x: Tensor, devices: int) -> Tensor:
        """All channels, of which each device has an equal share: (n - 1) / n of the whole comes to each."""
        if devices == 1:
            return x
        shape, moved = (*x.shape[:-1], x.channels * devices), (devices - 1) * x.bytes
        times = _link_times(all_gather_seconds, devices * x.bytes, devices)
        return self._add(name, "all_gather", (x,), shape, moved=moved, times=times)

    def residual(self, x: Tensor, name: str, y: Tensor, split: int, *, bias: bool = True) -> Tensor:
        """`x` and `y`, which the product `name` brings to as many channels and `split` devices sum."""
        product = self.linear(name, y, x.channels, bias=bias)
        return self.add("add", x, self.all_reduce("all_reduce", product, split))

    def _add(
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
        kept = [*keeps, output] if keeps_output else keeps
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


def _link_times(seconds: Callable[[Link, float, int], float], amount: int, devices: int) -> tuple[DeviceTime, ...]:
    """Of a collective within a node of each kind of GPU, which its memory's bandwidth would not tell."""
    wires = INTERCONNECTS.items()
    return tuple(DeviceTime(kind, seconds(each.inside, amount, devices)) for kind, each in wires)


def _swept(x: Tensor, kernel: int, stride: int, channels: int) -> tuple[int, ...]:
    """Shape of the positions of a square kernel; kernels as wide as their stride tile an image."""
    padding = 0 if kernel == stride else kernel // 2
    sides = ((side + 2 * padding - kernel) // stride + 1 for side in x.shape[1:3])
    return (x.shape[0], *sides, channels)
