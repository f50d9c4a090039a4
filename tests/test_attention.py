"""Unfused attention and dropout: same meaning as the fused kernel, and the bytes kept for the backward pass."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.operators import EXAMPLES
from helpers.programs import gpt_inputs, products, same_meaning, small_gpt, spread, uniform_workers
from helpers.terminal import Tessel, terminal

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.fit import FLASH2_TIMES
from tessel_core.costs.kernels import kernel_of
from tessel_core.costs.meshes import find_mesh
from tessel_core.costs.operations import as_operator
from tessel_core.errors import InputError
from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.operators import inferred
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import AttributeValue, Program
from tessel_core.ir.transforms.attention import AttentionKernel, UnfusedAttention, with_attention
from tessel_core.ir.transforms.checkpoint import Recompute, recomputing
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.networks.gpt import GptOptions, GptSpec, gpt_forward
from tessel_core.networks.graphs.table import build_graph, network_of
from tessel_core.simulation import simulate
from tessel_core.simulation.live_memory import owners
from tessel_core.strategies.evaluation import Configuration, evaluate, evaluate_quickly
from tessel_core.strategies.families import find_family
from tessel_core.strategies.strategy import Strategy, simulate_places, simulate_strategy

CAUSAL: dict[str, AttributeValue] = {"causal": 1}
DROPOUT: dict[str, AttributeValue] = {"rate": 0.25, "seed": 5}


def attended(keys: int, value_size: int, **attributes: AttributeValue) -> tuple[Distributed, dict[str, Array]]:
    """Return a program in float64: a loss of attention with 4 heads of size 3, 4 queries and 6 keys."""
    net, draw, given = Definition("attention"), np.random.default_rng(2), dict[str, Array]()
    inputs = []
    for name, tokens, heads, size in (("q", 4, 4, 3), ("k", 6, keys, 3), ("v", 6, keys, value_size)):
        x = net.input(f"{name}.x", "fp64", (2, tokens, 5))
        inputs.append(net(name, "matmul", x, net.weight(name, "fp64", (5, heads * size), 1, size)))
        given |= {f"{name}.x": draw.normal(size=(2, tokens, 5)), name: draw.normal(size=(5, heads * size))}
    y = net("core", "attention", *inputs, head_size=3, **attributes)
    shape = net.type_of(y).shape
    loss = net("loss", "loss", y, net.input("z", "fp64", shape), net.input("n", "int32", (), Role()))
    return net.finish({"loss": loss}), given | {"z": draw.normal(size=shape), "n": np.array(2)}


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize(("keys", "value_size"), [(4, 3), (2, 3), (2, 5)])
@pytest.mark.parametrize(
    "attributes",
    [
        {"causal": 0},
        CAUSAL,
        CAUSAL | {"window": 2},
        CAUSAL | {"cap": 0.5},
        {"cap": 2.0, "causal": 0} | DROPOUT,
        CAUSAL | DROPOUT,
    ],
    ids=str,
)
def test_unfused_attention_means_the_same(
    tensor: int, keys: int, value_size: int, attributes: dict[str, AttributeValue]
) -> None:
    """The loss and all gradients agree, with shared keys, values of another size, and heads on two devices."""
    forward, given = attended(keys, value_size, **attributes)
    changed = TensorParallel(tensor)(Gradients()(UnfusedAttention()(forward)))
    kinds = {op.kind for op in changed.program.ops}
    assert "attention" not in kinds
    assert {"attention_scores", "masked_softmax", "attention_context"} <= kinds
    assert ("dropout" in kinds, "tanh" in kinds) == ("rate" in attributes, "cap" in attributes)
    scores = (op.outputs[0] for op in changed.program.ops if op.kind == "masked_softmax")
    assert {changed.program.types[value].shape[1] for value in scores} == {4 // tensor}
    same_meaning(Gradients()(forward), changed, given, 1e-9)


@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (2, 2, 2, 2), (1, 3, 1, 1)])
@pytest.mark.parametrize("recompute", Recompute)
def test_a_gpt_with_dropout_means_the_same_on_all_devices(
    degrees: tuple[int, int, int, int], recompute: Recompute
) -> None:
    """Fused attention on one device and unfused attention on several draw the same dropout masks."""
    spec = replace(small_gpt(3, 4, "fp64"), dropout=0.2)
    whole = Gradients()(gpt_forward(spec))
    given = gpt_inputs(whole, spec, 3)
    changed = recomputing(recompute, Gradients()(UnfusedAttention()(gpt_forward(spec))))
    same_meaning(whole, spread(changed, *degrees), given, 1e-9)
    without = dict(Gradients()(gpt_forward(replace(spec, dropout=0.0))).run(given))
    assert any(np.abs(array - without[piece]).max() > 1e-3 for piece, array in whole.run(given))


def test_dropout_of_rate_0_is_an_operator_that_changes_nothing() -> None:
    net = Definition("dropped")
    kept, mask = net.all("dropout", "dropout", net.input("x", "fp64", (3, 40)), rate=0.0, seed=1)
    x = np.random.default_rng(1).normal(size=(3, 40))
    (_, found), (_, ones) = net.finish({"kept": kept, "mask": mask}).run({"x": x})
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(ones, np.ones((3, 40), np.uint8))


def test_dropout_keeps_the_mean() -> None:
    net = Definition("dropped")
    outputs = net.all("dropout", "dropout", net.input("x", "fp32", (2, 100_000)), rate=0.1, seed=7)
    (_, found), (_, mask) = net.finish(dict(zip(("kept", "mask"), outputs, strict=True))).run(
        {"x": np.ones((2, 100_000))}
    )
    assert mask.mean() == pytest.approx(0.9, abs=0.005)
    np.testing.assert_allclose(found, mask / 0.9, rtol=1e-6)


BATCH, SEQUENCE, HIDDEN, HEADS = 2, 32, 64, 4
UNIT = SEQUENCE * BATCH * HIDDEN
"""Bytes of a tensor with one byte per element of the hidden state: s b h."""
SCORES = 5 * HEADS * SEQUENCE**2 * BATCH
"""Bytes of softmax, its dropout and its mask: 5 a s² b."""


def of_layers(layers: int, kernel: AttentionKernel, recompute: Recompute, tensor: int, dropout: float = 0.1) -> Program:
    """Return the training program of a GPT in fp16 on `tensor` devices."""
    forward = gpt_forward(GptSpec(layers, HIDDEN, HEADS, 11, SEQUENCE, BATCH, "fp16", dropout=dropout))
    return TensorParallel(tensor)(recomputing(recompute, Gradients()(with_attention(kernel, forward)))).program


def kept(program: Program) -> int:
    """Return the bytes on device 1 that forward operations make and backward operations use.

    A view counts as its tensor.
    """
    owner = owners(program)
    made = {int(owner[value]) for op in program.ops if op.tag.phase == "forward" for value in op.outputs}
    taken = {int(owner[value]) for op in program.ops if op.tag.phase != "forward" for value in op.inputs}
    return sum(program.types[value].bytes for value in made & taken if program.types[value].device == 1)


def peak(program: Program) -> int:
    """Return the peak memory of the simulated device 1 without its weights, in bytes."""
    inputs = program.types_of(program.inputs)
    trace = simulate(program, costs=uniform_workers(max(program.devices)))
    return trace.peak_memory[0] - sum(each.bytes for each in inputs if each.device == 1)


@pytest.mark.parametrize("measured", [kept, peak])
@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_a_layer_keeps_what_megatron_counts(tensor: int, measured: Callable[[Program], int]) -> None:
    """A layer keeps s b h (10 + 24 / t + 5 a s / (h t)) bytes.

    The last term is missing if the core is recomputed [Korthikanti 2022, equations 1, 2 and 6]. With the fused kernel,
    only two dropout masks are kept.
    """
    fixed = UNIT * (10 + 24 // tensor)
    for kernel, recompute, wanted in (
        (AttentionKernel.UNFUSED, Recompute.NONE, fixed + SCORES // tensor),
        (AttentionKernel.UNFUSED, Recompute.SELECTIVE, fixed),
        (AttentionKernel.FUSED, Recompute.NONE, fixed),
    ):
        few, more = (measured(of_layers(layers, kernel, recompute, tensor)) for layers in (4, 6))
        assert (more - few) / 2 == wanted, (kernel, recompute)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_without_dropout_no_mask_is_kept(dropout: float) -> None:
    """One byte less per element after projection and MLP. Of five bytes per score, dropout's output and its mask go."""
    found = {
        kernel: [kept(of_layers(layers, kernel, Recompute.NONE, 1, dropout)) for layers in (2, 3)]
        for kernel in AttentionKernel
    }
    dropped = dropout > 0
    fused, flash2, unfused = (
        found[kernel][1] - found[kernel][0]
        for kernel in (AttentionKernel.FUSED, AttentionKernel.FLASH2, AttentionKernel.UNFUSED)
    )
    assert flash2 == fused
    assert fused == UNIT * (32 + 2 * dropped)
    assert unfused - fused == SCORES // 5 * (2 + 3 * dropped)


def test_the_operator_graph_adds_the_statistics() -> None:
    """Mean and deviation of two norms in fp32, which Megatron's formula omits. The fused kernel also keeps row sums."""
    for attention, wanted in (("unfused", 34 * UNIT + SCORES), ("fused", 34 * UNIT + 4 * HEADS * SEQUENCE * BATCH)):
        spec = GptOptions(
            layers=2,
            hidden=HIDDEN,
            heads=HEADS,
            sequence=SEQUENCE,
            micro_batch=BATCH,
            training=True,
            attention=attention,
            dropout=0.1,
        )
        graph = build_graph("gpt", spec)
        mine = (each.activation_bytes or 0 for each in graph.operators if each.name.startswith("layer1/"))
        # The norm of the first layer keeps the embedding. That of the second keeps the sum of the first, which counts
        # here.
        assert sum(mine) == wanted + 16 * SEQUENCE * BATCH
        assert network_of(graph)[1] == spec


def test_selective_recomputation_repeats_the_attention_core() -> None:
    """It repeats scores, softmax and dropout of each layer, and nothing else."""
    program = of_layers(3, AttentionKernel.UNFUSED, Recompute.SELECTIVE, 1)
    again = Counter(op.kind for op in program.ops)
    again.subtract(op.kind for op in of_layers(3, AttentionKernel.UNFUSED, Recompute.NONE, 1).ops)
    assert {kind: count for kind, count in again.items() if count} == {
        "attention_scores": 3,
        "masked_softmax": 3,
        "dropout": 3,
    }
    assert simulate(program, find_mesh("h200-1")).warnings == ()


def test_unfused_attention_takes_longer_and_is_priced_by_its_kernels() -> None:
    """Scores of 2048 tokens cross the memory several times.

    Products compute all pairs, the fused kernel half of them.
    """
    mesh = find_mesh("h200-8")
    found = {}
    for kernel in AttentionKernel:
        forward = with_attention(kernel, gpt_forward(GptSpec(2, 2048, 16, 100, 2048, 4, "bf16")))
        program = Gradients()(forward).program
        found[kernel] = simulate(program, mesh).latency, products(program, "forward") - products(program, "head", 100)
    assert found[AttentionKernel.UNFUSED][0] > 1.2 * found[AttentionKernel.FUSED][0]
    one_kernel = dict.fromkeys((AttentionKernel.FUSED, AttentionKernel.FLASH2), 2048 * 2049 / 2)
    pairs = {AttentionKernel.UNFUSED: 2048**2, **one_kernel}
    for kernel, (_, flops) in found.items():
        assert flops == 2 * 4 * (24 * 2048 * 2048**2 + 4 * 2048 * pairs[kernel])


def attention_seconds(kernel: AttentionKernel, mesh: str, method: ContextMethod, context: int) -> list[float]:
    """Return the seconds of the forward pass and of the gradient, in a program and in the operator graph."""
    family = find_family("llama")
    spec = family.spec(size="llama-3-8b", layers=1, sequence=8192, batch=1)
    strategy = Strategy(attention=kernel, context=context, context_method=method)
    trace = simulate_places(family, spec, strategy, find_mesh(mesh))
    kinds = [op.kind for op in trace.program.ops]
    pairs = list(zip(trace.op.tolist(), trace.seconds.tolist(), strict=True))
    return [
        sum(span for op, span in pairs if kinds[op] in names)
        for names in (("attention", "attention_block"), ("attention_grad", "attention_block_grad"))
    ]


@pytest.mark.parametrize("mesh", ["h200-2", "a100-2"])
@pytest.mark.parametrize(
    ("method", "context"), [(ContextMethod.RING, 1), (ContextMethod.RING, 2), (ContextMethod.ALL_TO_ALL, 2)]
)
def test_flash_attention_2_is_slower_on_hopper_alone(mesh: str, method: ContextMethod, context: int) -> None:
    """On an H100 it was measured to be slower where arithmetic limits, with any context degree.

    An A100 has no faster one.
    """
    fused, flash2 = (
        attention_seconds(kernel, mesh, method, context) for kernel in (AttentionKernel.FUSED, AttentionKernel.FLASH2)
    )
    for slow, fast, times in zip(flash2, fused, FLASH2_TIMES.values(), strict=True):
        assert slow / fast == pytest.approx(times if mesh == "h200-2" else 1, rel=0.03)


def test_flash_attention_2_takes_as_long_in_the_operator_graph() -> None:
    times = []
    for kernel in ("fused", "flash2"):
        graph = build_graph("gpt", GptOptions(layers=1, sequence=8192, positions=8192, training=True, attention=kernel))
        costs = costed(graph, find_mesh("h200-1"), CostOptions()).operators
        times.append([each.time_on("h200") or 0 for each in costs if "attention" in each.kind])
    (fused, gradient), (flash2, flash2_gradient) = times
    assert (flash2 / fused, flash2_gradient / gradient) == pytest.approx(tuple(FLASH2_TIMES.values()), rel=0.05)


def test_only_fused_attention_has_another_kernel() -> None:
    (q, k, v), attributes = EXAMPLES["attention"]
    with pytest.raises(InputError, match="attention_kernel must be flash2 and belong to fused attention, got 'flash3'"):
        inferred("attention", (q, k, v), (*attributes, ("attention_kernel", "flash3")))
    with pytest.raises(InputError, match="attention_kernel must be flash2 and belong to fused attention"):
        inferred("add", (q, q), (("attention_kernel", "flash2"),))


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [
        ("attention_scores", "matmul"),
        ("attention_context_grad", "matmul"),
        ("masked_softmax", "softmax"),
        ("masked_softmax_grad", "softmax"),
        ("dropout", "elementwise"),
        ("dropout_grad", "elementwise"),
    ],
)
def test_steps_are_kernels_that_the_cost_model_knows(kind: str, kernel: str) -> None:
    types, attributes = EXAMPLES[kind]
    assert kernel_of(as_operator(kind, types, inferred(kind, types, attributes), dict(attributes)).kind) == kernel


def test_what_cannot_be_unfused_is_refused() -> None:
    model = gpt_forward(small_gpt(2, 4))
    for changed in (Gradients()(model), TensorParallel(2)(model)):
        with pytest.raises(
            InputError,
            match=r"^unfused attention: must be the first transform, because it needs the forward pass of one device",
        ):
            UnfusedAttention()(changed)
    with pytest.raises(InputError, match=r"^unfused attention: cannot rewrite .*core, because it has a bias$"):
        find_family("mt5").build(find_family("mt5").spec(batch=1), attention=AttentionKernel.UNFUSED)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan"), "much"])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(InputError, match=r"^dropout: must be a rate of at least 0 and below 1, got"):
        replace(small_gpt(2, 4), dropout=rate)


SMALL = ("--layers", 2, "--hidden", 24, "--heads", 4, "--vocabulary", 17, "--sequence", 8, "--batch", 8)


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def test_simulate_takes_the_kernel(tessel: Tessel) -> None:
    """By default, the command prints the time of the strategy's program.

    Unfused is slower, also with DistIR's semantics.
    """
    found = {}
    for words in ((), ("--attention", "unfused"), ("--attention", "unfused", "--compat", "distir")):
        code, out, _ = tessel("simulate", "gpt", *SMALL, "--set", "dropout=0.1", "--pipeline", 2, *words, "--json")
        assert code == 0
        found[words[1:4:2]] = json.loads(out)
    gpt = find_family("gpt")
    spec = gpt.spec(layers=2, hidden=24, heads=4, vocabulary=17, sequence=8, batch=8, dropout=0.1)
    strategy = Strategy(pipeline=2, attention=AttentionKernel.UNFUSED)
    trace = simulate_strategy(gpt, spec, strategy, find_mesh("h200-2")).trace
    assert found["unfused",]["latency_s"] == trace.latency > found[()]["latency_s"]
    assert found["unfused",]["peak_memory"] == list(trace.peak_memory)
    assert found["unfused", "distir"]["latency_s"] > found["unfused",]["latency_s"]
    assert "unfused attention" in strategy.summary


def test_run_computes_the_same_with_either_kernel(tessel: Tessel) -> None:
    """Runs with dropout, and unfused attention on two devices, in NumPy."""
    losses = []
    for words in ((), ("--attention", "unfused", "--tensor", 2)):
        asked = "run", "gpt", *SMALL, "--set", "dropout=0.1", "--dtype", "fp32", "--engine", "numpy", *words, "--json"
        code, out, _ = tessel(*asked)
        assert code == 0
        losses.append(json.loads(out)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_bad_kernels_are_refused(tessel: Tessel) -> None:
    assert tessel("simulate", "gpt", "--attention", "flash")[0] == 2
    Path("p.txt").write_text("program p\n%x: fp32[4]@1\nreturn %x\n")
    code, _, err = tessel("simulate", "p.txt", "--attention", "unfused")
    assert (code, err.startswith("error: --attention: is for networks")) == (2, True)
    code, _, err = tessel("simulate", "swin", "--attention", "unfused")
    assert (code, err.startswith("error: unfused attention: cannot rewrite")) == (2, True)


@pytest.mark.parametrize(
    ("dropout", "kernel"),
    [(0.1, AttentionKernel.FUSED), (0.1, AttentionKernel.UNFUSED), (0.0, AttentionKernel.UNFUSED)],
)
def test_a_grid_evaluates_dropout_and_unfused_attention(dropout: float, kernel: AttentionKernel) -> None:
    gpt, mesh = find_family("gpt"), find_mesh("h200-4")
    spec = gpt.spec(layers=4, hidden=96, heads=4, vocabulary=101, sequence=32, batch=8, dropout=dropout)
    strategy = Strategy(2, 1, 2, 2, recompute=Recompute.SELECTIVE, attention=kernel)
    (found,) = evaluate(gpt, [Configuration(spec, strategy)], mesh)
    trace = simulate_strategy(gpt, spec, strategy, mesh).trace
    assert (found.latency, max(found.peaks)) == (
        pytest.approx(trace.latency, rel=1e-3),
        pytest.approx(max(trace.peak_memory), rel=0.01),
    )
    exact = evaluate_quickly(gpt, Configuration(spec, strategy), mesh)
    assert exact is not None
    assert (exact.latency, max(exact.peaks)) == (pytest.approx(trace.latency, rel=1e-9), max(trace.peak_memory))
