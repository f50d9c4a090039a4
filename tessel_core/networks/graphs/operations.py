"""Operators with their FLOPs and bytes; each function adds one to a builder and returns its output.

A multiplication and an addition are two FLOPs.  What is cheap beside the bytes that it moves counts as the measured
rows do: 8 FLOPs an element for a norm or a GELU, 1 for a sum.  Statistics are float32, whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessel_core.costs.meshes import INTERCONNECTS, all_gather_seconds, all_reduce_seconds
from tessel_core.model import DeviceTime, Link
from tessel_core.networks.graphs.builder import GraphBuilder, Tensor


def linear(b: GraphBuilder, name: str, x: Tensor, outputs: int, *, bias: bool = True) -> Tensor:
    """Rows times a matrix of weights: 2 m k n FLOPs."""
    weights = x.channels * outputs + (outputs if bias else 0)
    shape = (*x.shape[:-1], outputs)
    return b.add(name, "matmul", (x,), shape, flops=2 * x.elements * outputs, weights=weights, keeps=(x,))


def product(b: GraphBuilder, name: str, inputs: Sequence[Tensor], shape: tuple[int, ...], inner: int) -> Tensor:
    """Activations times activations, `inner` the length that is summed over."""
    return b.add(name, "matmul", inputs, shape, flops=2 * prod(shape) * inner, keeps=inputs)


def attention(
    b: GraphBuilder,
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
    but queries, keys, values, the output and one number a query and head.  A bias is an input, or a `table` of weights.
    """
    flops = 4 * prod(shape) * keys // (2 if causal else 1)
    statistics = 4 * heads * prod(shape[:-1])
    return b.add(
        name,
        "attention",
        inputs,
        shape,
        flops=flops,
        weights=table,
        keeps=inputs,
        keeps_output=True,
        statistics=statistics,
    )


def layer_norm(b: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Keeps its input, and mean and deviation of each row."""
    return b.add(
        name,
        "layer_norm",
        (x,),
        x.shape,
        flops=8 * x.elements,
        weights=2 * x.channels,
        keeps=(x,),
        statistics=8 * x.rows,
    )


def rms_norm(b: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Without mean and shift [Zhang 2019]; keeps its input and the root mean square of each row."""
    return b.add(
        name, "rms_norm", (x,), x.shape, flops=4 * x.elements, weights=x.channels, keeps=(x,), statistics=4 * x.rows
    )


def batch_norm(b: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Keeps its input, and mean and deviation of each channel; running averages are no parameters."""
    return b.add(
        name,
        "batch_norm",
        (x,),
        x.shape,
        flops=8 * x.elements,
        weights=2 * x.channels,
        keeps=(x,),
        statistics=8 * x.channels,
    )


def gelu(b: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Keeps its input."""
    return b.add(name, "gelu", (x,), x.shape, flops=8 * x.elements, keeps=(x,))


def relu(b: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Keeps its output, which the product after it keeps anyway."""
    return b.add(name, "relu", (x,), x.shape, flops=x.elements, keeps_output=True)


def multiply(b: GraphBuilder, name: str, x: Tensor, y: Tensor) -> Tensor:
    """Element by element."""
    return b.add(name, "mul", (x, y), x.shape, flops=x.elements, keeps=(x, y))


def gate(b: GraphBuilder, name: str, x: Tensor, by: Tensor) -> Tensor:
    """sigmoid(by) · x."""
    return b.add(name, "gate", (x, by), x.shape, flops=5 * x.elements, keeps=(x, by))


def add(b: GraphBuilder, name: str, x: Tensor, *others: Tensor, weights: int = 0) -> Tensor:
    """Sum, with the others repeated along the axes that they lack; `weights` are one more summand."""
    count = len(others) + (1 if weights else 0)
    return b.add(name, "add", (x, *others), x.shape, flops=count * x.elements, weights=weights)


def transpose(b: GraphBuilder, name: str, x: Tensor, *shape: int, kind: str = "transpose") -> Tensor:
    """The elements in another order."""
    return b.add(name, kind, (x,), shape)


def concat(b: GraphBuilder, name: str, parts: Sequence[Tensor], shape: tuple[int, ...], *, weights: int = 0) -> Tensor:
    """Tensors, and perhaps rows that are weights, as one."""
    return b.add(name, "concat", parts, shape, weights=weights)


def embedding(b: GraphBuilder, name: str, ids: Tensor, rows: int, channels: int) -> Tensor:
    """Reads the rows that it looks up, not the table."""
    shape = (*ids.shape, channels)
    moved = ids.bytes + 2 * prod(shape) * b.width
    return b.add(name, "embedding", (ids,), shape, weights=rows * channels, keeps=(ids,), moved=moved)


def cross_entropy(b: GraphBuilder, name: str, logits: Tensor) -> Tensor:
    """Keeps the logits, whose place their gradient takes, and float32 log-probabilities."""
    return b.add(
        name,
        "cross_entropy",
        (logits,),
        (1,),
        flops=6 * logits.elements,
        keeps=(logits,),
        statistics=4 * logits.elements,
    )


def conv(b: GraphBuilder, name: str, x: Tensor, outputs: int, kernel: int, stride: int = 1, *, bias: bool) -> Tensor:
    """Square kernel over (batch, height, width, channels), padded by half of the kernel where it overlaps."""
    shape = (x.shape[0], *(_steps(side, kernel, stride) for side in x.shape[1:3]), outputs)
    taps = kernel * kernel * x.channels
    weights = taps * outputs + (outputs if bias else 0)
    return b.add(name, "conv", (x,), shape, flops=2 * prod(shape) * taps, weights=weights, keeps=(x,))


def max_pool(b: GraphBuilder, name: str, x: Tensor, kernel: int, stride: int) -> Tensor:
    """Keeps where each maximum was, 8 bytes each; its backward needs no more of the input than its shape."""
    shape = (x.shape[0], *(_steps(side, kernel, stride) for side in x.shape[1:3]), x.channels)
    return b.add(name, "max_pool", (x,), shape, flops=kernel * kernel * prod(shape), statistics=8 * prod(shape))


def average_pool(b: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """The mean over all but batch and channels."""
    return b.add(name, "average_pool", (x,), (x.shape[0], x.channels), flops=x.elements)


def all_reduce(b: GraphBuilder, name: str, x: Tensor, devices: int) -> Tensor:
    """The sum over so many devices, which share each layer, by a ring: 2 (n - 1) / n of the tensor leaves each."""
    if devices == 1:
        return x
    moved = 2 * (devices - 1) / devices * x.bytes
    return b.add(
        name, "all_reduce", (x,), x.shape, moved=moved, times=_link_times(all_reduce_seconds, x.bytes, devices)
    )


def all_gather(b: GraphBuilder, name: str, x: Tensor, devices: int) -> Tensor:
    """All channels, of which each device has an equal share: (n - 1) / n of the whole comes to each."""
    if devices == 1:
        return x
    shape, moved = (*x.shape[:-1], x.channels * devices), (devices - 1) * x.bytes
    times = _link_times(all_gather_seconds, devices * x.bytes, devices)
    return b.add(name, "all_gather", (x,), shape, moved=moved, times=times)


def _link_times(seconds: Callable[[Link, float, int], float], amount: int, devices: int) -> tuple[DeviceTime, ...]:
    """Of a collective within a node of each kind of GPU, which its memory's bandwidth would not tell."""
    wires = INTERCONNECTS.items()
    return tuple(DeviceTime(kind, seconds(each.inside, amount, devices)) for kind, each in wires)


def _steps(side: int, kernel: int, stride: int) -> int:
    """Positions of a kernel along a side; kernels as wide as their stride tile it."""
    padding = 0 if kernel == stride else kernel // 2
    return (side + 2 * padding - kernel) // stride + 1
