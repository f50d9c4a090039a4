"""GPT layers of any shape: exact sizes, times of passes, and the simulated allocator."""

from __future__ import annotations

from itertools import pairwise

import pytest
from helpers.layer_sizes import layer_activation_bytes
from hypothesis import given
from hypothesis import strategies as st

from tessel_core.errors import InputError
from tools.gpt_layer import MIB, Block, CachingAllocator, GptLayer, layer_cost
from tools.h200_rows import rows


def test_sizes_of_layers():
    """Parameters, FLOPs and activation bytes are exact."""
    for row in rows("layer_fwd").values():
        layer = GptLayer(*row.shape)
        assert layer.parameters == row.parameters
        assert sum(work.flops for work in layer.forward) == pytest.approx(row.flops)
        assert layer.activation_bytes == row.activation_bytes


def test_one_layer_by_hand():
    """2 tokens of width 4: 2x4x12 + 2x4x4 + 2x4x16 + 2x16x4 multiply-adds, and 2 x 2 x (2 x 4) FLOPs of attention."""
    layer = GptLayer(1, 2, 4, 2)
    assert sum(work.flops for work in layer.forward) == 2 * (96 + 32 + 128 + 128) + 2 * 2 * 8
    assert [work.outputs for work in layer.forward[:4]] == [24, 8, 32, 8]
    gradients = [*layer.input_gradient, *layer.weight_gradients]
    assert sum(work.flops for work in gradients if work.kernel == "matmul") == 2 * 2 * (96 + 32 + 128 + 128)
    assert layer.parameters == 12 * 16 + 7 * 4 + 6 * 4
    assert layer.activation_bytes == 512 * (4 + 1 + 1 + 2 + 1 + 4 + 2)


def test_the_allocator_by_hand():
    """Two blocks of 8 MiB leave 4 of a segment of 20.

    A block of 3.5 would leave too little, so it gets all 4. Another 8 gets the freed 8.
    """
    memory = CachingAllocator()
    first = memory.allocate(8 * MIB)
    memory.allocate(8 * MIB)
    assert memory.allocate(7 * MIB // 2).size == 4 * MIB
    memory.release(first)
    assert memory.allocate(6 * MIB) == Block(6 * MIB, first.segment, first.offset)
    assert memory.allocate(2 * MIB) == Block(2 * MIB, first.segment, 6 * MIB)
    assert memory.allocate(11 * MIB).size == 12 * MIB
    assert memory.allocate(1).size == 512
    assert memory.used == (6 + 8 + 4 + 2 + 12) * MIB + 512


@given(st.lists(st.integers(1, 64 * MIB), max_size=24), st.randoms())
def test_blocks_never_overlap_and_all_that_is_freed_can_be_had_again(sizes, random):
    memory, held = CachingAllocator(), []
    for size in sizes:
        held.append(memory.allocate(size))
        assert size <= held[-1].size <= size + MIB + 512
        if random.random() < 0.4:
            memory.release(held.pop(random.randrange(len(held))))
    assert memory.used == sum(block.size for block in held)
    by_place = sorted(held, key=lambda block: (block.segment, block.offset))
    for one, other in pairwise(by_place):
        assert one.segment != other.segment or one.offset + one.size <= other.offset


@given(
    st.integers(1, 16), st.integers(1, 4096), st.integers(1, 64), st.sampled_from((1, 2, 4)), st.sampled_from((64, 128))
)
def test_layers_of_any_shape(batch: int, sequence: int, groups: int, split: int, head_size: int):
    heads = groups * split
    cost = layer_cost(batch, sequence, heads * head_size, heads, split)
    assert 0 < cost.inference <= cost.forward < cost.backward
    assert cost.input_gradient < cost.parameter_gradients < cost.backward
    assert cost.weight_gradient > 0
    more = layer_cost(batch + 1, sequence, heads * head_size, heads, split)
    assert more.forward >= cost.forward
    tensors = layer_activation_bytes(batch, sequence, heads * head_size, heads, split)
    assert 0 <= cost.activation_bytes - tensors <= 9 * MIB + 15 * 512
    assert more.parameters == cost.parameters


def test_fewer_bytes_a_number_are_faster_and_smaller():
    wide, narrow = layer_cost(4, 2048, 4096, 32, dtype="fp32"), layer_cost(4, 2048, 4096, 32)
    assert wide.forward > narrow.forward
    assert wide.activation_bytes == pytest.approx(2 * narrow.activation_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((0, 8, 8, 1), "batch must be at least 1, got 0"),
        ((1, 8, 10, 4), "heads must divide hidden, got 4 and 10"),
        ((1, 8, 12, 4, 8), "tensor parallel must divide heads, got 8 and 4"),
        ((1, 8, 2.0, 1), "hidden must be an integer, got 2.0"),
    ],
)
def test_what_is_no_layer_is_refused(shape, why):
    with pytest.raises(InputError, match=f"^GPT layer: {why}$"):
        layer_cost(*shape)
