"""Seconds and bytes of one GPT layer of any shape on any device, as a sequence of kernels in eager mode.

A pass takes the p-norm of the host's time to launch its kernels and the device's time to run them. So launches dominate
small layers. The layer is pre-norm, with fused QKV, fused causal attention, an MLP of 4 x hidden with GELU, biases and
no dropout [Radford 2019; tensor parallelism after Shoeybi 2019, Megatron-LM].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tessel_core.costs.devices import H200
from tessel_core.costs.fit import CostFit, kind_fit, rates_of
from tessel_core.costs.kernels import Work, width_of
from tessel_core.errors import InputError
from tessel_core.model import Device
from tessel_core.model.checks import check_integer
from tools.h200_rows import layer_parameters
from tools.kernel_work import attention, attention_backward, busy, launching, matmul, moving

PARAMETER_TENSORS = 12
"""Number of weight and bias tensors of 4 linear operators and 2 layer norms."""
_STATISTIC_BYTES = 4
"""Bytes of each number of the norms' statistics, which are kept in float32."""
_RANDOM_STATE = (8, 8)
"""Bytes of the seed and of the offset that fused attention keeps."""

MIB = 1 << 20
_BLOCK_BYTES = 512
_SMALL_SEGMENT_BYTES = 2 * MIB
_SEGMENT_BYTES = 20 * MIB
_OWN_SEGMENT_BYTES = 10 * MIB
"""Bytes of the smallest block that gets its own segment. The size of such a segment is a multiple of 2 MiB."""


@dataclass(frozen=True, slots=True)
class LayerPasses:
    """Seconds of each pass of a layer on one device, its parameters, and the bytes kept for its backward pass."""

    inference: float
    """Seconds of a forward pass that keeps nothing for a backward pass."""
    forward: float
    backward: float
    """Seconds of the backward pass that computes and accumulates all gradients."""
    input_gradient: float
    parameter_gradients: float
    """Seconds of all parameter gradients, without accumulation.

    They include the path through the layer that these gradients need.
    """
    parameters: int
    activation_bytes: int

    @property
    def weight_gradient(self) -> float:
        """Seconds that the whole backward pass takes beyond the gradient of the input."""
        return self.backward - self.input_gradient


@dataclass(frozen=True, order=True, slots=True)
class Block:
    """Part of a segment. Blocks are ordered as the allocator prefers free ones."""

    size: int
    segment: int
    offset: int


class CachingAllocator:
    """Allocates blocks by best fit, as PyTorch does by default [c10/cuda/CUDACachingAllocator.cpp].

    Sizes are multiples of 512 bytes. Blocks of up to 1 MiB come from segments of 2 MiB. Others come from segments of 20
    MiB, or from one of their own. The rest of a free block stays free, but a rest of up to 1 MiB of a large block stays
    with the block.
    """

    def __init__(self) -> None:
        self.used = 0
        """Bytes of all allocated blocks."""
        self._free: dict[bool, list[Block]] = {True: [], False: []}
        self._segments = 0

    def allocate(self, size: int) -> Block:
        """Allocate a block for a tensor of `size` bytes."""
        needed = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        is_small = needed <= MIB
        free = self._free[is_small]
        fitting = [block for block in free if block.size >= needed]
        found = min(fitting) if fitting else self._segment(needed)
        if fitting:
            free.remove(found)
        rest = found.size - needed
        if rest > (0 if is_small else MIB):
            free.append(Block(rest, found.segment, found.offset + needed))
            found = Block(needed, found.segment, found.offset)
        self.used += found.size
        return found

    def release(self, block: Block) -> None:
        """Free a block and join it with its free neighbours."""
        self.used -= block.size
        is_small = block.size <= MIB
        free = self._free[is_small]
        for other in [each for each in free if each.segment == block.segment]:
            first, second = sorted((block, other), key=lambda each: each.offset)
            if first.offset + first.size == second.offset:
                free.remove(other)
                block = Block(first.size + second.size, first.segment, first.offset)
        free.append(block)

    def _segment(self, needed: int) -> Block:
        self._segments += 1
        if needed <= MIB:
            return Block(_SMALL_SEGMENT_BYTES, self._segments, 0)
        own = -(-needed // _SMALL_SEGMENT_BYTES) * _SMALL_SEGMENT_BYTES
        return Block(_SEGMENT_BYTES if needed < _OWN_SEGMENT_BYTES else own, self._segments, 0)


@dataclass(frozen=True)
class GptLayer:
    """Shape of a layer on each of `tensor_parallel` devices, which divide its heads and the width of its MLP.

    Raises InputError for a size below 1, heads that do not divide the width, or devices that do not divide the heads.
    """

    batch: int
    sequence: int
    hidden: int
    heads: int
    tensor_parallel: int = 1
    width: int = 2
    """Bytes per number."""

    def __post_init__(self) -> None:
        for name in ("batch", "sequence", "hidden", "heads", "tensor_parallel"):
            check_integer("GPT layer", name.replace("_", " "), getattr(self, name), least=1)
        for whole, parts in (("hidden", "heads"), ("heads", "tensor_parallel")):
            if getattr(self, whole) % getattr(self, parts):
                why = f"{parts} must divide {whole}, got {getattr(self, parts)} and {getattr(self, whole)}"
                raise InputError("GPT layer", why.replace("_", " "))

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence

    @property
    def parameters(self) -> int:
        return layer_parameters(self.hidden, self.tensor_parallel)

    @cached_property
    def forward(self) -> tuple[Work, ...]:
        """Kernels of the forward pass: norm, QKV, attention, projection, sum, norm, up, GELU, down, sum."""
        residual, _, inner = self._tensors
        products = (matmul(self.tokens, rows, columns, self.width) for rows, columns in self._weights)
        norms = (moving("normalisation", 2 * residual),) * 2
        sums = (moving("elementwise", 3 * residual),) * 2
        return (*products, attention(*self._heads), *norms, moving("activation", 2 * inner), *sums)

    @cached_property
    def input_gradient(self) -> tuple[Work, ...]:
        """Kernels of the gradient of the input, including the concatenation of the gradients of q, k and v."""
        residual, qkv, inner = self._tensors
        products = (matmul(self.tokens, columns, rows, self.width) for rows, columns in self._weights)
        norms = (moving("normalisation_backward", 3 * residual),) * 2
        copies = (*(moving("elementwise", 3 * residual),) * 2, moving("elementwise", 2 * qkv))
        return (*products, attention_backward(*self._heads), *norms, moving("activation_backward", 3 * inner), *copies)

    @cached_property
    def weight_gradients(self) -> tuple[Work, ...]:
        """Kernels of parameter gradients beyond the input's: products, and sums over tokens for biases and norms."""
        residual, qkv, inner = self._tensors
        products = (matmul(rows, self.tokens, columns, self.width) for rows, columns in self._weights)
        sums = (qkv, residual, inner, residual, 2 * residual, 2 * residual)
        return (*products, *(moving("normalisation_backward", each) for each in sums))

    @cached_property
    def activation_bytes(self) -> int:
        """Bytes that PyTorch keeps for the backward pass of a layer alone on its device, in blocks of its allocator.

        These are both inputs of norms and their statistics, QKV, attention's output, statistics and random state, input
        and output of GELU, and both sums with the residual. Products that enter the sums are freed, and their blocks
        are reused.
        """
        residual, qkv, inner = self._tensors
        mixed, own = residual // self.tensor_parallel, self.width * self.hidden // self.tensor_parallel
        statistics = (self.tokens * _STATISTIC_BYTES,) * 2
        per_head = self.tokens * self.heads // self.tensor_parallel * _STATISTIC_BYTES
        memory = CachingAllocator()

        def keep(*sizes: int) -> None:
            for size in sizes:
                memory.allocate(size)

        def keep_sum() -> None:
            product = memory.allocate(residual)
            memory.allocate(residual)
            memory.release(product)

        vector = self.width * self.hidden
        keep(vector, vector, 3 * own * self.hidden, 3 * own, own * self.hidden, vector)
        keep(vector, vector, 4 * own * self.hidden, 4 * own, 4 * own * self.hidden, vector, residual)
        before = memory.used
        keep(residual, *statistics, qkv, mixed, per_head, *_RANDOM_STATE)
        keep_sum()
        keep(residual, *statistics, inner, inner)
        keep_sum()
        return memory.used - before

    @property
    def _heads(self) -> tuple[int, float, int, float, int]:
        return self.batch, self.heads / self.tensor_parallel, self.sequence, self.hidden / self.heads, self.width

    @property
    def _weights(self) -> tuple[tuple[int, int], ...]:
        """Input and output widths of QKV, projection, up and down."""
        own, inner = self.hidden // self.tensor_parallel, 4 * self.hidden // self.tensor_parallel
        return (self.hidden, 3 * own), (own, self.hidden), (self.hidden, inner), (inner, self.hidden)

    @property
    def _tensors(self) -> tuple[int, int, int]:
        """Bytes of a residual, of QKV and of the MLP's inner tensor."""
        residual = self.tokens * self.hidden * self.width
        return residual, 3 * residual // self.tensor_parallel, 4 * residual // self.tensor_parallel


def layer_cost(
    batch: int,
    sequence: int,
    hidden: int,
    heads: int,
    tensor_parallel: int = 1,
    *,
    dtype: str = "bf16",
    device: Device | None = None,
    fit: CostFit | None = None,
) -> LayerPasses:
    """Return the cost of a GPT layer on a device, an H200 by default, without communication.

    Raises InputError for an impossible layer, an unknown number format, or a device whose rates are unknown.
    """
    layer = GptLayer(batch, sequence, hidden, heads, tensor_parallel, width_of(dtype))
    fit, rates = fit or kind_fit("h200"), rates_of(device or H200.device("h200"), dtype)
    launches, gradients = fit.launches, (*layer.input_gradient, *layer.weight_gradients)

    def seconds(works: tuple[Work, ...], longer: float, accumulated: int = 0) -> float:
        launches = launching(fit, works) + accumulated * fit.kernel("elementwise").launch
        return fit.joined(longer * launches, busy(fit, works, rates))

    return LayerPasses(
        seconds(layer.forward, launches.inference),
        seconds(layer.forward, launches.forward),
        seconds(gradients, launches.backward, PARAMETER_TENSORS),
        seconds(layer.input_gradient, launches.backward),
        seconds(gradients, launches.backward),
        layer.parameters,
        layer.activation_bytes,
    )
