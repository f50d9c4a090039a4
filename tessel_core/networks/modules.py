"""Modules that networks share: operators with weights of their own, and the halves of a transformer layer."""

from __future__ import annotations

from tessel_core.ir.definition import SAMPLES, Definition
from tessel_core.ir.distributed import Role
from tessel_core.ir.program import AttributeValue
from tessel_core.networks.graphs.spec import check_divides

BATCH_NORM_EPSILON = 1e-5
"""Added to the variance [torchvision]."""


class Network(Definition):
    """A definition whose weights are called after the operators that take them: `layer3/mlp/up.weight`.

    `cut` says that tensor parallelism divides a weight by what the operator makes: columns of a product, channels of a
    convolution; `grain` columns stay together.
    """

    def __init__(self, name: str, dtype: str) -> None:
        super().__init__(name)
        self.dtype = dtype

    def parameter(
        self,
        name: str,
        *shape: int,
        cut: int | None = None,
        grain: int = 1,
        vocabulary: int | None = None,
        experts: int | None = None,
    ) -> int:
        """A weight called `name` here; tensor parallelism cuts it along axis `cut`."""
        return self.weight(self.path(name), self.dtype, shape, cut, grain, vocabulary, experts)

    def linear(self, name: str, x: int, outputs: int, *, bias: bool = True, cut: bool = False, grain: int = 1) -> int:
        """[.., k] to [.., outputs]."""
        columns = self.type_of(x).shape[-1], outputs
        weight = self.parameter(f"{name}.weight", *columns, cut=1 if cut else None, grain=grain)
        if not bias:
            return self(name, "matmul", x, weight)
        return self(
            name, "linear", x, weight, self.parameter(f"{name}.bias", outputs, cut=0 if cut else None, grain=grain)
        )

    def residual(self, name: str, stream: int, x: int, *, bias: bool = True, cut: bool = True, grain: int = 1) -> int:
        """The stream plus a product that brings x to its width, under `add`.

        `cut` is by rows, so the bias comes after the sum over devices.
        """
        inner, outputs = self.type_of(x).shape[-1], self.type_of(stream).shape[-1]
        weight = self.parameter(f"{name}.weight", inner, outputs, cut=0 if cut else None, grain=grain)
        y = self(name, "matmul", x, weight)
        if not bias:
            return self("add", "add", stream, y)
        return self("add", "residual", stream, y, self.parameter(f"{name}.bias", outputs))

    def layer_norm(self, name: str, x: int) -> int:
        """Over the last axis."""
        channels = self.type_of(x).shape[-1]
        scale, shift = (self.parameter(f"{name}.{what}", channels) for what in ("scale", "shift"))
        return self(name, "layer_norm", x, scale, shift)

    def rms_norm(self, name: str, x: int) -> int:
        """Over the last axis, without mean and shift [Zhang 2019]."""
        return self(name, "rms_norm", x, self.parameter(f"{name}.scale", self.type_of(x).shape[-1]))

    def batch_norm(self, name: str, x: int, *, cut: bool = False) -> int:
        """Of [n, channels, ..] over all but the channels, by the statistics of the batch."""
        channels, axis = self.type_of(x).shape[1], 0 if cut else None
        scale, shift = (self.parameter(f"{name}.{what}", channels, cut=axis) for what in ("scale", "shift"))
        return self(name, "batch_norm_training", x, scale, shift, epsilon=BATCH_NORM_EPSILON)

    def conv(
        self, name: str, x: int, outputs: int, kernel: int, stride: int = 1, *, bias: bool = False, cut: bool = False
    ) -> int:
        """A square kernel over [n, channels, height, width]; padded by half of it, unless kernels tile the image."""
        axis = 0 if cut else None
        weights = [
            self.parameter(f"{name}.weight", outputs, self.type_of(x).shape[1], kernel, kernel, cut=axis),
            *([self.parameter(f"{name}.bias", outputs, cut=axis)] if bias else []),
        ]
        return self(name, "conv", x, *weights, groups=1, **swept(kernel, stride))

    def embedding(self, name: str, ids: int, rows: int, channels: int, *, cut: bool = False) -> int:
        """A row of a table for each id, [..] to [.., channels]; `cut` by channels."""
        return self(name, "embedding", self.parameter(f"{name}.table", rows, channels, cut=1 if cut else None), ids)

    def ids(self, name: str, *shape: int, role: Role | None = None) -> int:
        """Row numbers that come from outside; by default each sample has its own."""
        return self.input(name, "int32", shape) if role is None else self.input(name, "int32", shape, role)

    def cross_entropy(self, logits: int, role: Role = SAMPLES) -> int:
        """The loss of logits [.., n]; inputs are `targets` [..] and `n`, predictions of the whole batch."""
        targets = self.ids("targets", *self.type_of(logits).shape[:-1], role=role)
        return self("loss", "cross_entropy", logits, targets, self.ids("n", role=Role()))

    def squared_loss(self, y: int) -> int:
        """The loss of y; inputs are `targets` like it and `n`, samples of the whole batch."""
        targets = self.input("targets", self.dtype, self.type_of(y).shape)
        return self("loss", "loss", y, targets, self.ids("n", role=Role()))


def swept(kernel: int, stride: int) -> dict[str, AttributeValue]:
    """Attributes of a square kernel; padded by half of it, unless kernels tile the image."""
    padding = 0 if kernel == stride else kernel // 2
    return {"dilations": (1, 1), "pads": (padding,) * 4, "strides": (stride, stride)}


def check_heads(hidden: int, heads: int, split: int) -> None:
    """Raise InputError unless heads divide the hidden size, and devices the heads."""
    check_divides("the hidden size", hidden, "Heads", heads)
    check_divides("the number of heads", heads, "Tensor-parallel degree", split)


def unpacked(net: Network, name: str, x: int, outputs: int, head_size: int, *, bias: bool = True) -> tuple[int, ...]:
    """Queries, keys and values of x [n, tokens, k], each [n, tokens, outputs], by one product."""
    packed = net.linear(name, x, 3 * outputs, bias=bias, cut=True, grain=3 * head_size)
    return net.all(name, "unpack_qkv", packed, head_size=head_size)


def image_tokens(net: Network, batch: int, side: int, patch: int, hidden: int, *, bias: bool = True) -> int:
    """Patches of square images, a class token before them, positions [Dosovitskiy 2021]: [n, 1 + patches, hidden]."""
    pixels = net.input("images", net.dtype, (batch, 3, side, side))
    x = net.conv("patches", pixels, hidden, patch, patch, bias=bias)
    x = net("patches", "permute", net("patches", "reshape", x, shape=(0, 0, -1)), axes=(0, 2, 1))
    x = net("class", "concat", class_token(net, batch, hidden), x, axis=1)
    return net("positions", "bias", x, net.parameter("positions.weight", *net.type_of(x).shape[1:]))


def class_token(net: Network, batch: int, hidden: int) -> int:
    """A vector of weights for each sample, [n, 1, hidden]: the only row of a table, so any share of a batch fits."""
    row = net.ids(f"{net.path('class_token')}.row", batch, 1)
    return net.embedding("class_token", row, 1, hidden)


def one_token(net: Network, name: str, x: int, place: int) -> int:
    """Token `place` of [n, tokens, hidden], as [n, hidden]."""
    tokens = net.type_of(x).shape[1]
    one = net(name, "slice", x, axis=1, index=place, parts=tokens)
    return net(name, "reshape", one, shape=(0, -1))


def attention_half(net: Network, x: int, heads: int, *, causal: bool = False) -> int:
    """Norm, attention with biases, sum; of [n, tokens, hidden] [Shoeybi 2019, section 3]."""
    hidden = net.type_of(x).shape[-1]
    size = hidden // heads
    with net.inside("attention"):
        parts = unpacked(net, "qkv", net.layer_norm("norm", x), hidden, size)
        mixed = net("core", "attention", *parts, causal=int(causal), head_size=size)
        return net.residual("projection", x, mixed, grain=size)


def mlp_half(net: Network, x: int) -> int:
    """Norm, two products with a GELU between them, four times as wide as x, sum."""
    with net.inside("mlp"):
        y = net.linear("up", net.layer_norm("norm", x), 4 * net.type_of(x).shape[-1], cut=True)
        return net.residual("down", x, net("gelu", "gelu", y))
