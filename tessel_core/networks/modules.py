"""Building blocks of networks: operators with weights, and the attention and MLP of a transformer layer."""

from __future__ import annotations

from tessel_core.ir.definition import SAMPLES, Definition
from tessel_core.ir.distributed import Role
from tessel_core.ir.program import AttributeValue
from tessel_core.networks.graphs.spec import check_divides

BATCH_NORM_EPSILON = 1e-5
"""Value added to the variance [torchvision]."""


class Network(Definition):
    """A `Definition` in which weights are named after the operators that use them, such as `layer3/mlp/up.weight`.

    With `cut`, tensor parallelism divides a weight along the operator's outputs, such as the columns of a product or
    the channels of a convolution. Groups of `grain` columns stay on one device.
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
        """Add the weight `name` to the current layer and return it. Tensor parallelism divides it along axis `cut`."""
        return self.weight(self.path(name), self.dtype, shape, cut, grain, vocabulary, experts)

    def linear(self, name: str, x: int, outputs: int, *, bias: bool = True, cut: bool = False, grain: int = 1) -> int:
        """Apply a linear layer to [.., k] and return [.., outputs]."""
        columns = self.type_of(x).shape[-1], outputs
        weight = self.parameter(f"{name}.weight", *columns, cut=1 if cut else None, grain=grain)
        if not bias:
            return self(name, "matmul", x, weight)
        return self(
            name, "linear", x, weight, self.parameter(f"{name}.bias", outputs, cut=0 if cut else None, grain=grain)
        )

    def residual(self, name: str, stream: int, x: int, *, bias: bool = True, cut: bool = True, grain: int = 1) -> int:
        """Project x to the width of the residual stream, and add it.

        With `cut`, tensor parallelism divides the weight by rows. The bias is therefore added after the sum over
        devices.
        """
        inner, outputs = self.type_of(x).shape[-1], self.type_of(stream).shape[-1]
        weight = self.parameter(f"{name}.weight", inner, outputs, cut=0 if cut else None, grain=grain)
        y = self(name, "matmul", x, weight)
        if not bias:
            return self("add", "add", stream, y)
        return self("add", "residual", stream, y, self.parameter(f"{name}.bias", outputs))

    def layer_norm(self, name: str, x: int) -> int:
        """Apply a layer norm over the last axis."""
        channels = self.type_of(x).shape[-1]
        scale, shift = (self.parameter(f"{name}.{what}", channels) for what in ("scale", "shift"))
        return self(name, "layer_norm", x, scale, shift)

    def rms_norm(self, name: str, x: int) -> int:
        """Apply an RMS norm over the last axis, without mean and shift [Zhang 2019]."""
        return self(name, "rms_norm", x, self.parameter(f"{name}.scale", self.type_of(x).shape[-1]))

    def batch_norm(self, name: str, x: int, *, cut: bool = False) -> int:
        """Apply a batch norm to [n, channels, ..], with the statistics of the batch."""
        channels, axis = self.type_of(x).shape[1], 0 if cut else None
        scale, shift = (self.parameter(f"{name}.{what}", channels, cut=axis) for what in ("scale", "shift"))
        return self(name, "batch_norm_training", x, scale, shift, epsilon=BATCH_NORM_EPSILON)

    def conv(
        self, name: str, x: int, outputs: int, kernel: int, stride: int = 1, *, bias: bool = False, cut: bool = False
    ) -> int:
        """Apply a convolution with a square kernel to [n, channels, height, width].

        The padding is half of the kernel size, or 0 if the stride equals the kernel size.
        """
        axis = 0 if cut else None
        weights = [
            self.parameter(f"{name}.weight", outputs, self.type_of(x).shape[1], kernel, kernel, cut=axis),
            *([self.parameter(f"{name}.bias", outputs, cut=axis)] if bias else []),
        ]
        return self(name, "conv", x, *weights, groups=1, **swept(kernel, stride))

    def embedding(self, name: str, ids: int, rows: int, channels: int, *, cut: bool = False) -> int:
        """Look up one row of a table for each id: from [..] to [.., channels].

        With `cut`, tensor parallelism divides the channels.
        """
        return self(name, "embedding", self.parameter(f"{name}.table", rows, channels, cut=1 if cut else None), ids)

    def ids(self, name: str, *shape: int, role: Role | None = None) -> int:
        """Add an input of row numbers and return it. By default its first axis is the batch."""
        return self.input(name, "int32", shape) if role is None else self.input(name, "int32", shape, role)

    def cross_entropy(self, logits: int, role: Role = SAMPLES) -> int:
        """Return the cross entropy of logits [.., classes].

        It adds the inputs `targets` [..] and `n`, the number of predictions in the whole batch.
        """
        targets = self.ids("targets", *self.type_of(logits).shape[:-1], role=role)
        return self("loss", "cross_entropy", logits, targets, self.ids("n", role=Role()))

    def squared_loss(self, y: int) -> int:
        """Return the squared loss of y.

        It adds the inputs `targets`, with the shape of y, and `n`, the number of samples in the whole batch.
        """
        targets = self.input("targets", self.dtype, self.type_of(y).shape)
        return self("loss", "loss", y, targets, self.ids("n", role=Role()))


def swept(kernel: int, stride: int) -> dict[str, AttributeValue]:
    """Return the attributes of a square kernel, with padding as in `Network.conv`."""
    padding = 0 if kernel == stride else kernel // 2
    return {"dilations": (1, 1), "pads": (padding,) * 4, "strides": (stride, stride)}


def check_heads(hidden: int, heads: int, split: int) -> None:
    """Raise InputError unless `heads` divides the hidden size and `split`, the number of devices, divides `heads`."""
    check_divides("the hidden size", hidden, "Heads", heads)
    check_divides("the number of heads", heads, "Tensor-parallel degree", split)


def unpacked(net: Network, name: str, x: int, outputs: int, head_size: int, *, bias: bool = True) -> tuple[int, ...]:
    """Return queries, keys and values of x [n, tokens, k], each [n, tokens, outputs], computed by one product."""
    packed = net.linear(name, x, 3 * outputs, bias=bias, cut=True, grain=3 * head_size)
    return net.all(name, "unpack_qkv", packed, head_size=head_size)


def image_tokens(net: Network, batch: int, side: int, patch: int, hidden: int, *, bias: bool = True) -> int:
    """Embed square images as tokens with positions: a class token, then the patches [Dosovitskiy 2021].

    The result is [n, 1 + patches, hidden].
    """
    pixels = net.input("images", net.dtype, (batch, 3, side, side))
    x = net.conv("patches", pixels, hidden, patch, patch, bias=bias)
    x = net("patches", "permute", net("patches", "reshape", x, shape=(0, 0, -1)), axes=(0, 2, 1))
    x = net("class", "concat", class_token(net, batch, hidden), x, axis=1)
    return net("positions", "bias", x, net.parameter("positions.weight", *net.type_of(x).shape[1:]))


def class_token(net: Network, batch: int, hidden: int) -> int:
    """Return a learned vector for each sample, [n, 1, hidden].

    It is looked up in a table with one row, so that the program is valid for every batch size.
    """
    row = net.ids(f"{net.path('class_token')}.row", batch, 1)
    return net.embedding("class_token", row, 1, hidden)


def one_token(net: Network, name: str, x: int, place: int) -> int:
    """Return token `place` of [n, tokens, hidden], as [n, hidden]."""
    tokens = net.type_of(x).shape[1]
    one = net(name, "slice", x, axis=1, index=place, parts=tokens)
    return net(name, "reshape", one, shape=(0, -1))


def attention_half(net: Network, x: int, heads: int, *, causal: bool = False) -> int:
    """Apply norm, attention with biases and residual sum to [n, tokens, hidden] [Shoeybi 2019, section 3]."""
    hidden = net.type_of(x).shape[-1]
    size = hidden // heads
    with net.inside("attention"):
        parts = unpacked(net, "qkv", net.layer_norm("norm", x), hidden, size)
        mixed = net("core", "attention", *parts, causal=int(causal), head_size=size)
        return net.residual("projection", x, mixed, grain=size)


def mlp_half(net: Network, x: int) -> int:
    """Apply a norm, an MLP with GELU whose width is four times that of x, and a residual sum."""
    with net.inside("mlp"):
        y = net.linear("up", net.layer_norm("norm", x), 4 * net.type_of(x).shape[-1], cut=True)
        return net.residual("down", x, net("gelu", "gelu", y))


def encoder(net: Network, name: str, x: int, layers: int, first: int, heads: int, *, causal: bool = False) -> int:
    """Add encoder layers, numbered from `first`."""
    for i in range(layers):
        with net.layer(f"{name}{i}", first + i):
            x = mlp_half(net, attention_half(net, x, heads, causal=causal))
    return x


def gated_mlp(net: Network, y: int, inner: int, activation: str = "silu") -> int:
    """Return activation(product 1) x product 2, a gated MLP [Shazeer 2020]. Both products have the width `inner`."""
    gate = net(activation, activation, net.linear("gate", y, inner, bias=False, cut=True))
    return net("gated", "mul", gate, net.linear("up", y, inner, bias=False, cut=True))
