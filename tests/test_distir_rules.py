"""Costs of every operator by DistIR's rules, computed by hand, and programs for which DistIR gives no answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from helpers.programs import small_gpt, spread, uniform_mesh
from helpers.seeds import one_in
from helpers.slow_simulator import slowly
from helpers.training import gpt_training

from tessel_core.ir import read_program
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.program import AttributeValue, Program
from tessel_core.ir.transforms.checkpoint import Checkpoint
from tessel_core.ir.transforms.update import AdamUpdate, ShardedOptimizer
from tessel_core.ir.types import TensorType
from tessel_core.networks.gpt import gpt_decode, gpt_inference
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.distir_rules import RULES, DistIrCosts

OV, FLOPS, DRAM, LINK = 1e-5, 1.4e13, 9e11, 25 * 1.25e8
COSTS = DistIrCosts(uniform_mesh(4))
HALF = TensorType("fp16", (6, 40), 1)
COUNT = TensorType("int32", (), 1)
TOKENS = TensorType("fp16", (2, 3, 12), 1)
"""Two samples of three tokens."""


def moved(count: int, tensors: int = 1, width: int = 2) -> float:
    """Return the seconds of an elementwise operator on this many numbers, by the published table."""
    return OV + tensors * width * count / DRAM + count / FLOPS


def product(m: int, k: int, n: int) -> float:
    return OV + 2 * (m * k + k * n) / DRAM + 2 * m * k * n / FLOPS


def half(*shape: int) -> TensorType:
    return TensorType("fp16", shape, 1)


NORM = 2 * moved(72) + 5 * moved(72, 2) + moved(6, 2) + moved(6)
"""Two means, a difference, a square, a quotient, a product and a sum. The 2 x 3 deviations take a sum and a root."""
SCORES = 2 * 3 * 3 * 3
"""Two samples, three heads of 4, three queries by three keys."""
PAIRS = 2 * (OV + 2 * 2 * (2 * 3) / DRAM + 2 * 2 * 3 * 3 / FLOPS)
"""Two products of four axes, counted as [2, 3] by [2, 3]."""
SPREAD = 4 * (OV + moved(72))
"""Queries, keys, values and the output, reshaped and transposed."""
MASK = 2 * OV + 2 * moved(SCORES, 2) + moved(9, 2)
ATTENTION = SPREAD + PAIRS + moved(SCORES, 2) + MASK + moved(SCORES)
ENTROPY = 2 * moved(240) + OV
STATE = TensorType("fp32", (6, 40), 1)
ADAM = 13 * moved(240, 2, 4) + moved(240, 1, 4)

GEMM: dict[str, AttributeValue] = {"alpha": 1.0, "beta": 1.0, "trans_a": 1, "trans_b": 1}

BY_HAND: dict[str, tuple[Sequence[TensorType], float, dict[str, AttributeValue]]] = {
    "add": ((HALF, HALF), moved(240, 2), {}),
    "relu": ((HALF,), moved(240), {}),
    "relu_grad": ((HALF, HALF), moved(240, 2), {}),
    "loss": ((HALF, HALF, COUNT), moved(240), {}),
    "loss_grad": ((HALF, HALF, COUNT), moved(240), {}),
    "identity": ((HALF,), 0.0, {}),
    "concat": ((HALF, HALF), OV, {"axis": 0}),
    "split": ((HALF,), OV, {"axis": 0, "parts": 2}),
    "part": ((HALF,), OV, {"axis": 0, "index": 1, "parts": 2}),
    "slice": ((HALF,), OV, {"axis": 0, "index": 1, "parts": 2}),
    "matmul": ((HALF, half(40, 5)), product(6, 40, 5), {}),
    "matmul_grad": ((HALF, half(40, 5), half(6, 5)), product(6, 5, 40) + product(40, 6, 5), {}),
    "sgd": ((half(9), HALF, half(9), HALF), moved(240, 2), {"rate": 0.1}),
    "linear": ((HALF, half(40, 5), half(5)), product(6, 40, 5) + moved(30, 2), {}),
    "residual": ((HALF, HALF, half(40)), 2 * moved(240, 2), {}),
    "bias": ((HALF, half(40)), moved(240, 2), {}),
    "bias_grad": ((HALF,), moved(240), {"axes": 1}),
    "gelu": ((HALF,), 7 * moved(240, 2) + moved(240), {}),
    "gelu_grad": ((HALF, HALF), 2 * (7 * moved(240, 2) + moved(240)), {}),
    "layer_norm": ((TOKENS, half(12), half(12)), NORM, {}),
    "layer_norm_grad": ((TOKENS, half(12), TOKENS), 2 * NORM, {}),
    "embedding": ((HALF, TensorType("int32", (2, 3), 1)), OV, {}),
    "embedding_grad": ((HALF, TensorType("int32", (2,), 1), half(2, 40)), 2 * OV, {}),
    "cross_entropy": ((HALF, TensorType("int32", (6,), 1), COUNT), ENTROPY, {}),
    "cross_entropy_grad": ((HALF, TensorType("int32", (6,), 1), COUNT), 2 * ENTROPY, {}),
    "attention": ((TOKENS,) * 3, ATTENTION, {"causal": 1, "head_size": 4}),
    "attention_grad": ((TOKENS,) * 4, 2 * (ATTENTION - MASK), {"causal": 0, "head_size": 4}),
    "attention_scores": ((TOKENS,) * 2, (SPREAD + PAIRS) / 2, {"head_size": 4}),
    "attention_scores_grad": ((TOKENS, TOKENS, half(2, 3, 3, 3)), SPREAD + PAIRS, {"head_size": 4}),
    "masked_softmax": ((half(2, 3, 3, 3),), moved(SCORES, 2) + MASK + moved(SCORES), {"causal": 1, "scale": 0.5}),
    "masked_softmax_grad": (
        (half(2, 3, 3, 3),) * 2,
        2 * (moved(SCORES, 2) + moved(SCORES)),
        {"causal": 0, "scale": 0.5},
    ),
    "attention_context": ((half(2, 3, 3, 3), TOKENS), (SPREAD + PAIRS) / 2, {"head_size": 4}),
    "attention_context_grad": ((half(2, 3, 3, 3), TOKENS, TOKENS), SPREAD + PAIRS, {"head_size": 4}),
    "dropout": ((HALF,), moved(240), {"rate": 0.1, "seed": 0}),
    "dropout_grad": ((HALF, TensorType("uint8", (6, 40), 1)), moved(240, 2), {"rate": 0.1, "seed": 0}),
    "unpack_qkv": ((TOKENS,), OV, {"head_size": 2}),
    "pack_qkv": ((TOKENS,) * 3, OV, {"head_size": 4}),
    "write": ((TOKENS, half(2, 1, 12)), OV, {"at": 2, "axis": 1}),
    "adam": (
        (HALF, STATE, STATE, STATE, HALF, COUNT),
        ADAM + moved(240, 1, 4),
        {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "masters": 1, "rate": 0.1},
    ),
    "attention_bias": (
        (*(TOKENS,) * 3, half(1, 3, 3, 3)),
        ATTENTION - MASK + moved(SCORES, 2),
        {"head_size": 4},
    ),
    "rms_norm": ((HALF, half(40)), moved(240) + 3 * moved(240, 2) + 2 * OV, {}),
    "silu": ((HALF,), moved(240), {}),
    "silu_grad": ((HALF, HALF), moved(240, 2), {}),
    "softmax_grad": ((HALF, HALF), moved(240, 2), {"axes": (1,)}),
    "send": ((HALF,), 480 / LINK, {"to": 2}),
    "allreduce": ([HALF.on(d) for d in (1, 2, 3)], 2 * 480 * 2 / 3 / LINK, {}),
    "allgather": ([HALF.on(d) for d in (1, 2, 3)], 2 * 480 * 2 / 3 / LINK, {"axis": 0}),
    "allgather_in_place": ([HALF.on(d) for d in (1, 2, 3)], 2 * 480 * 2 / 3 / LINK, {"axis": 0}),
    "reduce_scatter": ([HALF.on(d) for d in (1, 2, 3)], 2 * 480 * 2 / 3 / LINK, {"axis": 0}),
    "gather": ([HALF.on(d) for d in (1, 2, 3)], 2 * 480 / LINK, {"axis": 0, "to": 1}),
    "reduce": ([HALF.on(d) for d in (1, 2, 3)], 2 * 480 / LINK, {"to": 1}),
    "broadcast": ((HALF,), 0.0, {"devices": (1, 2, 3)}),
    "scatter": ((HALF,), 0.0, {"axis": 0, "devices": (1, 2, 3)}),
    "block": ((HALF,), 0.25, {"bytes": (), "devices": (1, 2), "on": (), "seconds": 0.25}),
    "delay": ((HALF,), 0.25, {"seconds": 0.25, "to": 2}),
    "tanh": ((HALF,), moved(240), {}),
    "div": ((HALF, half(40)), moved(240, 2), {}),
    "softmax": ((HALF,), moved(240), {"axes": (1,)}),
    "transpose": ((HALF,), moved(240), {"axes": (1, 0)}),
    "gelu_erf": ((HALF,), 4 * moved(240, 2) + moved(240), {}),
    "layer_normalization": ((TOKENS, half(12)), NORM, {"axes": (2,), "epsilon": 1e-5}),
    "gemm": ((half(40, 6), half(5, 40), half(5)), product(6, 40, 5) + moved(30, 2), GEMM),
}


def test_every_operator_has_a_rule_or_costs_a_launch() -> None:
    assert BY_HAND.keys() <= RULES.keys() <= OPERATORS.keys()
    for kind in (*(OPERATORS.keys() - RULES.keys()), "made up"):
        assert COSTS.seconds(kind, (HALF,), (HALF,), {}) == {1: OV}


@pytest.mark.parametrize("kind", BY_HAND)
def test_an_operator_by_hand(kind: str) -> None:
    types, seconds, values = BY_HAND[kind]
    outputs = OPERATORS[kind].infer(types, values)
    found = COSTS.seconds(kind, types, outputs, values)
    assert max(found.values()) == pytest.approx(seconds, rel=1e-12)
    named = values.get("devices", ())
    assert isinstance(named, tuple)
    assert found.keys() == {each.device for each in (*types, *outputs)} | set(named)


def test_products_of_more_axes() -> None:
    """The first two of four axes count as the matrix. Rows that a matrix multiplies are flattened first."""
    wide, narrow, by_product = half(2, 3, 10, 20), half(2, 3, 20, 40), half(2, 3, 10, 40)
    forward = OV + 2 * (2 * 3 + 2 * 3) / DRAM + 2 * 2 * 3 * 3 / FLOPS
    assert COSTS.seconds("matmul", (wide, narrow), (by_product,), {}) == pytest.approx({1: forward})
    # dz [2, 3] by yT [3, 2], then xT [3, 2] by dz [2, 3].
    backward = 2 * OV + 2 * (2 * 3 + 3 * 2) / DRAM + 2 * 2 * 3 * 2 / FLOPS
    backward += 2 * (3 * 2 + 2 * 3) / DRAM + 2 * 3 * 2 * 3 / FLOPS
    found = COSTS.seconds("matmul_grad", (wide, narrow, by_product), (wide, narrow), {})
    assert found == pytest.approx({1: backward})
    rows, weight, out = half(2, 3, 12), half(12, 5), half(2, 3, 5)
    assert COSTS.seconds("matmul", (rows, weight), (out,), {}) == pytest.approx({1: 2 * OV + product(6, 12, 5)})
    found = COSTS.seconds("linear", (rows, weight, half(5)), (out,), {})
    assert found == pytest.approx({1: 2 * OV + product(6, 12, 5) + moved(30, 2)})
    found = COSTS.seconds("matmul_grad", (rows, weight, out), (rows, weight), {})
    assert found == pytest.approx({1: 3 * OV + product(6, 5, 12) + product(12, 6, 5)})


def test_what_a_device_gives_itself_makes_it_forget_what_came_before() -> None:
    """DistIR resets the receiver's clock when it gives a part to itself, so only later parts count."""
    x = [HALF.on(d) for d in (2, 1, 3)]
    found = COSTS.seconds("gather", x[:2], (half(12, 40),), {"axis": 0, "to": 1})
    assert found == pytest.approx({1: 0.0, 2: 2 * 480 / LINK})
    assert COSTS.seconds("reduce", x, (HALF,), {"to": 1}) == pytest.approx(dict.fromkeys((1, 2, 3), 2 * 480 / LINK))


def by_hand(text: str) -> Trace:
    return simulate(read_program(f"program p\n{text}"), costs=COSTS, compat="distir")


def test_a_hand_written_program() -> None:
    """Two devices meet in the gather, and the slower one makes the other wait."""
    trace = by_hand(
        "%x: fp16[6, 40]@1\n%y: fp16[6, 40]@2\n"
        "%a: fp16[6, 40]@1 = relu(%x)\n%b: fp16[6, 40]@2 = add(%y, %y)\n%c: fp16[6, 40]@2 = relu(%b)\n"
        "%d: fp16[12, 40]@1 = gather(%a, %c) {axis=0, to=1}\n%e: fp16[12, 40]@1 = identity(%d)\nreturn %e\n"
    )
    met = moved(240, 2) + moved(240)
    assert trace.device_end == pytest.approx((met + 960 / LINK, met + 960 / LINK))
    # x, a and the gathered value, then x with both of its copies, then y, b and c.
    assert trace.peak_memory == (480 + 960 + 960, 3 * 480)


def test_what_is_made_in_place_by_hand() -> None:
    """The cache is an input. Writing and reading it needs no more memory, and it is never freed."""
    trace = by_hand(
        "%cache: fp16[2, 3, 12]@1\n%new: fp16[2, 1, 12]@1\n%q: fp16[2, 1, 12]@1\n"
        "%k: fp16[2, 3, 12]@1 = write(%cache, %new) {at=2, axis=1}\n"
        "%z: fp16[2, 1, 12]@1 = attention(%q, %k, %k) {causal=1, head_size=4}\n"
        "%a: fp16[2, 1, 12]@1 = identity(%z)\nreturn %k, %a\n"
    )
    assert trace.memory_bytes.tolist() == [144, 192, 240, 288, 336, 288]
    assert trace.peak_memory == (336,)


def test_a_copy_that_is_changed_in_place_stays_until_its_last_use() -> None:
    """A slice is a copy in DistIR. Two steps on it, and the gather that spreads it, are where the copy is."""
    adam = "{beta1=0.9, beta2=0.99, epsilon=1e-08, masters=0, rate=0.1}"
    trace = by_hand(
        "%w: fp32[8]@1\n%m: fp32[4]@1\n%v: fp32[4]@1\n%g: fp32[4]@1\n%n: int32[]@1\n"
        "%s: fp32[4]@1 = slice(%w) {axis=0, index=0, parts=2}\n"
        f"%t: fp32[4]@1, %m1: fp32[4]@1, %v1: fp32[4]@1 = adam(%s, %m, %v, %g, %n) {adam}\n"
        f"%u: fp32[4]@1, %m2: fp32[4]@1, %v2: fp32[4]@1 = adam(%t, %m1, %v1, %g, %n) {adam}\n"
        "%r: fp32[4]@1 = relu(%u)\nreturn %r\n"
    )
    given = 32 + 3 * 16 + 4
    assert trace.memory_bytes[-3:].tolist() == [given + 16, given + 32, given + 16]


def programs(seed: int) -> Program:
    """Return GPTs for training, with and without recomputation and sharded state, for prefill and for decoding."""
    choose = random.Random(seed)
    tensor, data, stages = choose.choice((1, 2, 3)), choose.choice((1, 2, 3)), choose.choice((1, 2))
    micro_batches, spec = choose.choice((1, 2)), small_gpt(choose.randint(2, 3), 12, choose.choice(("fp16", "fp32")))
    kind = seed % 4
    if kind < 2:
        model = gpt_training(spec)
        step = ShardedOptimizer(AdamUpdate()) if choose.random() < 0.5 else AdamUpdate()
        degrees = data, tensor, stages, micro_batches
        return spread(Checkpoint()(model) if kind else model, *degrees, step=step).program
    return spread(
        gpt_inference(spec) if kind == 2 else gpt_decode(spec, 4), data, tensor, stages, micro_batches
    ).program


@pytest.mark.parametrize("seed", one_in(2, range(16)))
def test_gpts_agree_with_a_plain_rewrite(seed: int) -> None:
    program = programs(seed)
    costs = DistIrCosts(uniform_mesh(max(program.devices)))
    trace, (clock, peak) = simulate(program, costs=costs, compat="distir"), slowly(program, costs)
    assert dict(zip(trace.devices, trace.device_end, strict=True)) == pytest.approx(clock, rel=1e-12)
    assert dict(zip(trace.devices, trace.peak_memory, strict=True)) == peak
    assert (trace.memory_bytes >= 0).all()
