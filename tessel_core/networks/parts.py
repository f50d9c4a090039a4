"""The parts that transformers are made of, with their costs on H200s: seconds and bytes of one micro-batch.

All tensors are bf16 (2 bytes).  Left out, because each is below 1 % of a layer: position embeddings, the final layer
norm, and the token ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tessel_core.costs import h200
from tessel_core.costs.meshes import NVLINK, all_reduce_seconds

STATIC_BYTES_PER_PARAMETER = 16
"""Mixed-precision Adam: 2 weight + 2 gradient + 4 master weight + 4 + 4 moments [Rajbhandari 2020, section 3.1]."""

_KEPT_BYTES_PER_LOGIT = 6
"""2 of the bf16 logit, whose place its gradient takes, and 4 of the float32 log-probability that the loss keeps."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a network that runs on one device, or on each of a group at the same time."""

    forward: float
    """Seconds, as are `backward`'s."""
    backward: float
    parameters: int
    """On each device."""
    kept_bytes: int
    """Held from the forward to the backward."""
    sent_bytes: int
    """What the next part needs from here; its gradient is as large."""
    weight_gradient: float = 0.0
    """Seconds of `backward` that compute weight gradients, which no other part waits for; 0 where it is not split."""
    kept_for_weights: int = 0
    """Of `kept_bytes`, held until the weight gradients are computed."""
    layers: tuple[str, ...] = ()
    """What it runs, in the network's words."""

    @property
    def seconds(self) -> float:
        """Forward and backward of one micro-batch."""
        return self.forward + self.backward

    @property
    def static_bytes(self) -> int:
        """Weights, gradients and optimizer state."""
        return STATIC_BYTES_PER_PARAMETER * self.parameters


def join(*parts: Part) -> Part:
    """Parts that run one after the other on the same device."""
    return Part(
        sum(part.forward for part in parts),
        sum(part.backward for part in parts),
        sum(part.parameters for part in parts),
        sum(part.kept_bytes for part in parts),
        parts[-1].sent_bytes,
        sum(part.weight_gradient for part in parts),
        sum(part.kept_for_weights for part in parts),
        tuple(layer for part in parts for layer in part.layers),
    )


def numbered(layer: Part, count: int, word: str = "layer") -> list[Part]:
    """So many of a layer, each with its number."""
    return [replace(layer, layers=(f"{word} {number}",)) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes that the parts of one transformer share."""

    vocabulary: int
    hidden: int
    heads: int
    sequence: int
    micro_batch: int

    @property
    def tokens(self) -> int:
        """Of one micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def hidden_bytes(self) -> int:
        """One activation of every token."""
        return h200.BYTES_PER_ELEMENT * self.tokens * self.hidden

    def shard(self, devices: int) -> int:
        """Rows of the vocabulary on each of `devices`, rounded up."""
        return ceil(self.vocabulary / devices)


def causal_layer(size: Dimensions, tensor_parallel: int = 1) -> Part:
    """A GPT layer as measured, split over a group of devices, with two all-reduces of its output each way
    [Shoeybi 2019, Megatron-LM, section 3].

    Weight gradients need the input and the output gradient of each product, 8 + 24 / t bytes per token and hidden unit.
    That is all that is kept but for statistics: each of those gradients takes the place of an activation that only the
    input gradient needs (queries, keys and values, the MLP before its GELU, the inputs of the two norms).
    """
    cost = h200.layer(size.micro_batch, size.sequence, size.hidden, size.heads, tensor_parallel)
    sums = 2 * all_reduce_seconds(NVLINK, size.hidden_bytes, tensor_parallel)
    return Part(
        cost.forward + sums,
        cost.backward + sums,
        cost.parameters,
        cost.activation_bytes,
        size.hidden_bytes,
        cost.weight_gradient,
        4 * size.hidden_bytes + 12 * size.hidden_bytes // tensor_parallel,
    )


def encoder_layer(size: Dimensions, tensor_parallel: int = 1) -> Part:
    """A GPT layer and one causal attention more: without the mask, attention computes twice as many scores."""
    layer, attention = causal_layer(size, tensor_parallel), _attention_shape(size, tensor_parallel)
    forward = layer.forward + h200.attention_seconds(*attention)
    return replace(layer, forward=forward, backward=layer.backward + h200.attention_backward_seconds(*attention))


def decoder_layer(size: Dimensions) -> Part:
    """A GPT layer and cross attention to an encoder output of as many tokens, which it also passes on."""
    layer, cross = causal_layer(size), cross_attention(size)
    return replace(join(layer, cross), sent_bytes=2 * size.hidden_bytes)


def cross_attention(size: Dimensions) -> Part:
    """Layer norm, queries, keys and values of the encoder output, attention without a mask, projection, residual sum.

    Estimated from its operators.  Forward: h x h twice and h x 2 h once, two causal attentions.  Backward: twice the
    forward of each matrix product, norm and sum.  Parameters 4 h² + 4 h + 2 h.  Kept, in hidden activations: norm input
    and output, queries, attention output, keys, values, encoder output; and 4 bytes of statistics per token and head.
    Weight gradients take each product's forward once more, and need three inputs and the gradients of four outputs.
    """
    tokens, hidden = size.tokens, size.hidden
    products = 2 * h200.matmul_seconds(tokens, hidden, hidden) + h200.matmul_seconds(tokens, hidden, 2 * hidden)
    simple = products + h200.layer_norm_seconds(tokens, hidden) + h200.add_seconds(tokens * hidden)
    attention = _attention_shape(size)
    return Part(
        simple + 2 * h200.attention_seconds(*attention),
        2 * simple + 2 * h200.attention_backward_seconds(*attention),
        4 * hidden**2 + 6 * hidden,
        7 * size.hidden_bytes + 4 * tokens * size.heads,
        size.hidden_bytes,
        products,
        7 * size.hidden_bytes,
    )


def embedding(size: Dimensions, devices: int = 1) -> Part:
    """The input embedding, sharded by vocabulary over `devices` [Shoeybi 2019, Megatron-LM, section 3].

    Forward: every device looks up its share, then an all-reduce leaves the sum on all.  Backward: a dense gradient of
    the shard is filled with zeros, the tokens' gradients are added to it (as much traffic as the lookup), and it is
    accumulated into the gradient of the step.  None of that counts as `weight_gradient`: it keeps nothing, and what
    zero-bubble schedules put off are matrix products.
    """
    rows = size.shard(devices)
    lookup = h200.embedding_seconds(size.tokens, rows, size.hidden)
    weights = rows * size.hidden
    return Part(
        lookup + all_reduce_seconds(NVLINK, size.hidden_bytes, devices),
        h200.move_seconds(h200.BYTES_PER_ELEMENT * weights) + lookup + h200.add_seconds(weights),
        weights,
        0,
        size.hidden_bytes,
        layers=("embedding",),
    )


def vocabulary_loss(size: Dimensions, devices: int = 1) -> Part:
    """The projection on the vocabulary and the cross-entropy, sharded by vocabulary over `devices`.

    Forward: the product, the loss of the shard, and all-reduces of three float32 numbers per token (maximum, sum of
    exponentials, logit of the target).  Backward: the gradient of the loss, two products (input and weight gradient,
    the latter accumulated by the product itself), and an all-reduce of the input gradient.  The weight gradient needs
    the gradient of the logits and the input.
    """
    rows = size.shard(devices)
    product = h200.matmul_seconds(size.tokens, size.hidden, rows)
    statistics = 3 * all_reduce_seconds(NVLINK, 4 * size.tokens, devices)
    gradients = all_reduce_seconds(NVLINK, size.hidden_bytes, devices)
    return Part(
        product + h200.cross_entropy_seconds(size.tokens, rows) + statistics,
        2 * product + h200.cross_entropy_backward_seconds(size.tokens, rows) + gradients,
        rows * size.hidden,
        _KEPT_BYTES_PER_LOGIT * size.tokens * rows + size.hidden_bytes,
        0,
        product,
        h200.BYTES_PER_ELEMENT * size.tokens * rows + size.hidden_bytes,
        ("vocabulary",),
    )


def _attention_shape(size: Dimensions, tensor_parallel: int = 1) -> tuple[int, int, int, int]:
    return size.micro_batch, size.heads // tensor_parallel, size.sequence, size.hidden // size.heads
