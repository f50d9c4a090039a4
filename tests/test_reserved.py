"""Memory reserved by PyTorch's allocator: the peak of each stream's pool, summed."""

from __future__ import annotations

import pytest

from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.simulation import Trace
from tessel_core.simulation.reserved import reserved_bytes
from tessel_core.strategies.families import find_family
from tessel_core.strategies.strategy import Strategy, simulate_places

SIZES = {"layers": 3, "hidden": 256, "inner": 512, "heads": 4, "head_size": 64, "kv_heads": 2, "vocabulary": 1000}


def traced(strategy: Strategy) -> Trace:
    family = find_family("llama")
    return simulate_places(family, family.spec(**SIZES, sequence=64, batch=8), strategy, find_mesh("h100-8"))


def made(trace: Trace, kind: str) -> list[int]:
    """Return the bytes of the outputs of each operation of a kind."""
    return [sum(trace.program.types[v].bytes for v in op.outputs) for op in trace.program.ops if op.kind == kind]


@pytest.mark.parametrize("strategy", [Strategy(), Strategy(2, 2, 2, 2), Strategy(4, zero=1)])
def test_one_pool_reserves_the_peak(strategy: Strategy) -> None:
    """Nothing uses buffers of its own for gathers or scatters. ZeRO-1 gathers weights in place."""
    trace = traced(strategy)
    scattered = sum(made(trace, "reduce_scatter"))
    (held, *_), (reserved, *_) = trace.peak_memory, reserved_bytes(trace)
    assert held <= reserved <= held + scattered


@pytest.mark.parametrize("strategy", [Strategy(4, zero=3), Strategy(8, zero=3, grad_dtype="fp32")])
def test_fsdp_has_pools_for_gathered_weights_and_for_parts_of_gradients(strategy: Strategy) -> None:
    """Parts of all gradients live until the update. At most embedding, head and two layers are gathered at a time."""
    trace = traced(strategy)
    (held,), (reserved,) = trace.peak_memory, reserved_bytes(trace)
    gathered, scattered = sorted(made(trace, "allgather")), sum(made(trace, "reduce_scatter"))
    assert held < reserved <= held + scattered + sum(gathered[-3:])
    assert reserved - held >= gathered[-1] // 2


def test_gathered_weights_are_copied_out_of_their_buffers() -> None:
    """Each gathered weight has one copy, and only that copy is used by the layer."""
    program = traced(Strategy(4, zero=3)).program
    buffers = {value for op in program.ops if op.kind == "allgather" for value in op.outputs}
    takers = [(op.kind, op.tag.name.rpartition("/")[2]) for op in program.ops for v in op.inputs if v in buffers]
    assert set(takers) == {("identity", "copy_out")}
    assert len(takers) == len(buffers)


@pytest.mark.parametrize("data", [1, 2])
def test_eager_selective_recomputation_holds_what_selected_operators_make(data: int) -> None:
    """The first, third, … product of a layer and its attention stay until the layer's backward.

    A compiler drops some.
    """
    eager, compiled = (
        traced(Strategy(data, recompute=Recompute.SELECTIVE, zero=3 * (data > 1), compiled=each))
        for each in (False, True)
    )
    held = {op.tag.scope: op for op in eager.program.ops if op.kind == "after" and len(op.inputs) == 6}
    assert list(held) == ["layer2", "layer1", "layer0"]  # queries, values, attention, gate and down
    for scope, op in held.items():
        of_layer = {eager.made_by[value]: value for value in op.inputs[1:]}
        kinds = [eager.program.ops[i].tag.name for i in sorted(of_layer)]
        assert kinds[-1] == f"{scope}/mlp/projection"
    assert not any(op.kind == "after" and len(op.inputs) == 6 for op in compiled.program.ops)


def test_an_eager_loss_holds_copies_of_the_logits() -> None:
    """8 bytes per logit besides logits and gradient, also beside compiled layers if the loss is not compiled."""
    rows = [
        traced(Strategy(**how)).peak_memory[0] for how in ({"compiled": True}, {"compiled": True, "eager_loss": True})
    ]
    compiled, eager = rows
    assert eager - compiled > 4 * 8 * 64 * 1000
