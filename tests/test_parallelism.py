"""Sequence, context, expert and data parallelism with ZeRO keep the meaning of the undistributed program."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.programs import same_meaning
from helpers.seeds import seeds
from test_attention import kept
from test_networks import inputs as network_inputs
from test_networks import tiny

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod, ContextParallel
from tessel_core.ir.transforms.expansion import Degrees, groups_of
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.networks.gpt import GptSpec, gpt_forward
from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS
from tessel_core.networks.llama import LlamaSpec, llama
from tessel_core.strategies.families import NetworkWork, find_family
from tessel_core.strategies.strategy import (
    Semantics,
    Strategy,
    build_program,
    program_of_one,
    simulate_places,
    simulate_strategy,
)

BATCH, SEQUENCE = 8, 8
NETWORKS: dict[str, GraphSpec] = {
    "gemma": tiny("llama", micro_batch=BATCH, sequence=SEQUENCE, vocabulary=8),
    "llama": replace(
        tiny("llama", micro_batch=BATCH, sequence=SEQUENCE, vocabulary=8, heads=8, kv_heads=4, head_size=2),
        style="llama",
        tied=False,
        qk_norm=False,
        qkv_bias=False,
        window=0,
    ),
    "moe": tiny("moe", micro_batch=BATCH, sequence=SEQUENCE, vocabulary=8, experts=4, heads=4),
}
"""A network with tied tables, windows, caps and head norms, a plain one, and one with latent attention and experts."""


def of(name: str, **changes: Any) -> tuple[Any, NetworkWork]:
    """Return the family and the sizes of one of the networks."""
    family = find_family("moe" if name == "moe" else "llama")
    return family, NetworkWork(family.name, replace(NETWORKS[name], **changes))


def drawn(seed: int) -> tuple[str, Strategy]:
    """Draw a network and a possible strategy of up to 32 devices."""
    draw = random.Random(seed)
    name, pipeline, tensor = draw.choice(list(NETWORKS)), draw.choice([1, 1, 2]), draw.choice([1, 2])
    context, data = draw.choice([1, 1, 2]), draw.choice([1, 2, 4])
    expert = draw.choice([each for each in (1, 2, 4) if tensor * context * data % each == 0]) if name == "moe" else 1
    few_heads = name == "gemma" and tensor * context > 2
    return name, Strategy(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        micro_batches=draw.choice([1, 2]),
        schedule=draw.choice(["1f1b", "gpipe"] + ["zb-h1"] * (pipeline > 1)),
        recompute=draw.choice(list(Recompute)),
        zero=draw.choice([0, 1, 2, 3] if data * context > 1 else [0, 1]),
        context=context,
        context_method=ContextMethod.RING if few_heads else draw.choice(list(ContextMethod)),
        expert=expert,
        sequence_parallel=draw.random() < 0.5 or (expert > 1 and tensor > 1),
        reshard=draw.random() < 0.5,
        compiled=draw.random() < 0.2,
    )


def inputs(name: str, seed: int, **changes: Any) -> dict[str, Array]:
    """Return inputs of a step with Adam. Table rows are below 2, scales about 1, squares above 0."""
    whole, draw = build_program(*of(name, **changes), Strategy()), np.random.default_rng(seed)
    found = dict[str, Array]()
    for value, piece in whole.piece_of.items():
        kind, middle = whole.program.types[value], 1.0 if piece.name.endswith("scale") else 0.0
        if kind.dtype.startswith("int"):
            scalars = {"step": 1, "n": BATCH * SEQUENCE}
            found[piece.name] = (
                np.array(scalars.get(piece.name, 0)) if not kind.shape else draw.integers(0, 2, kind.shape)
            )
        else:
            found[piece.name] = draw.normal(middle, 0.4, kind.shape)
            if piece.name.endswith(".square"):
                found[piece.name] = np.abs(found[piece.name])
    return found


@pytest.mark.parametrize("seed", seeds(400))
def test_any_strategy_means_the_same(seed: int) -> None:
    """Losses, gradients, updated weights and optimizer state of one step agree, in float64."""
    name, strategy = drawn(seed)
    whole, changed = (build_program(*of(name), each, gradients=True) for each in (Strategy(), strategy))
    same_meaning(whole, changed, inputs(name, seed), 1e-9)


@pytest.mark.parametrize("seed", seeds(400, 500))
def test_one_rank_stands_for_all(seed: int) -> None:
    """The step time equals that of all devices' program. So does the peak memory of each stage."""
    name, strategy = drawn(seed)
    asked, mesh = (*of(name, dtype="bf16"), strategy), find_mesh("h200-32")
    whole, one = simulate_strategy(*asked, mesh).trace, simulate_places(*asked, mesh)
    assert one.latency == pytest.approx(whole.latency, rel=0.01)
    ranks, held = strategy.ranks(Semantics.DEFAULT), [0] * strategy.pipeline
    for worker, peak in zip(whole.devices, whole.peak_memory, strict=True):
        place = ranks.coordinate(worker, "pipeline")
        held[place] = max(held[place], peak)
    assert one.peak_memory == pytest.approx(held, rel=0.03)
    assert len(one.program.ops) * ranks.degrees.count >= len(whole.program.ops)


def counted(program: Program, phase: str, layer: str) -> Counter[str]:
    """Count the collectives of a layer in a phase."""
    kinds = ("allreduce", "allgather", "reduce_scatter", "alltoall", "shift", "exchange_rows", "return_rows")
    mine = (op for op in program.ops if op.tag.phase == phase and op.tag.name.startswith(layer))
    return Counter(op.kind for op in mine if op.kind in kinds)


def test_sequence_parallelism_gathers_and_scatters_as_megatron_does() -> None:
    """The forward has two of each per layer.

    The backward gathers once more for weight gradients [Korthikanti 2022, section 4.2.2].
    """
    family, work = of("llama")
    one = program_of_one(family, work, Strategy(tensor=2, sequence_parallel=True)).program
    assert counted(one, "forward", "layer1") == {"allgather": 2, "reduce_scatter": 2}
    assert counted(one, "backward", "layer1") == {"allgather": 4, "reduce_scatter": 2}
    plain = program_of_one(family, work, Strategy(tensor=2)).program
    assert counted(plain, "forward", "layer1") == {"allreduce": 2}
    assert counted(plain, "backward", "layer1") == {"allreduce": 2}


def test_logits_are_cut_by_the_vocabulary() -> None:
    """With sequence parallelism, no operation has the logits of the whole vocabulary, and none all-reduces them."""
    one = program_of_one(*of("llama"), Strategy(tensor=2, sequence_parallel=True)).program
    assert (
        max(
            each.shape[-1]
            for op in one.ops
            for each in one.types_of(op.outputs)
            if op.tag.name == "head/projection" and op.tag.phase == "forward" and op.kind == "matmul"
        )
        == 4
    )
    assert counted(one, "forward", "head") == {"allgather": 2}


LONG = LlamaSpec(
    layers=1, hidden=4096, heads=32, kv_heads=8, head_size=128, inner=14_336, sequence=131_072, training=True
)


@pytest.mark.parametrize(("method", "kind"), [(ContextMethod.RING, "shift"), (ContextMethod.ALL_TO_ALL, "alltoall")])
def test_context_parallelism_moves_what_the_papers_say(method: ContextMethod, kind: str) -> None:
    """128k tokens on 8 devices.

    A ring sends keys and values to the next device seven times [Liu 2023, section 3]. The all-to-all sends an eighth of
    queries, keys, values and output to each other device [Jacobs 2023, 3.2].
    """
    model = ContextParallel(8, method).of_one(Gradients()(llama(LONG)))
    program, tokens, size = model.program, LONG.sequence // 8, 2
    keys_and_values, queries = 2 * tokens * 1024 * size, tokens * 4096 * size
    moved = Counter[str]()
    for op in program.ops:
        if op.kind == kind:
            moved[op.tag.phase] += sum(each.bytes for each in program.types_of(op.inputs))
    if method is ContextMethod.RING:
        assert moved["forward"] == 7 * keys_and_values
        assert moved["backward"] == (7 + 8) * keys_and_values  # gradients of keys and values pass the whole ring
    else:
        assert moved["forward"] == queries + keys_and_values + queries
        assert moved["backward"] == moved["forward"]


def test_a_causal_mask_is_as_long_on_each_device() -> None:
    """Chunks are balanced, so each block of the ring, except the first, has half of its scores."""
    model = ContextParallel(4).of_one(Gradients()(llama(replace(LONG, sequence=64))))
    (tokens,) = (piece for piece in model.inputs if piece.name == "tokens")
    (cut,) = tokens.cuts
    seen = [sum(int(place) + 1 for place in replace(cut, index=i).places(64)) for i in range(4)]
    assert set(seen) == {64 * 65 // 2 // 4}


BATCH_OF_LAYER, TOKENS, HIDDEN, HEADS = 2, 32, 64, 4


@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE])
def test_a_layer_keeps_what_megatron_counts_with_sequence_parallelism(tensor: int, recompute: Recompute) -> None:
    """A layer keeps s b h (34 + 5 a s / h) / t bytes.

    With recomputed attention it keeps 34 s b h / t [Korthikanti 2022, equation 4 and table 2].
    """
    held = []
    for layers in (4, 6):
        spec = GptSpec(layers, HIDDEN, HEADS, 12, TOKENS, BATCH_OF_LAYER, "fp16", dropout=0.1)
        family = find_family("gpt")
        asked = {"layers": layers, "hidden": HIDDEN, "heads": HEADS, "vocabulary": 12, "sequence": TOKENS}
        work = family.spec(**asked, batch=BATCH_OF_LAYER, dtype="fp16", dropout=0.1)
        assert gpt_forward(spec).program.name == family.build(work, split_weights=False).program.name
        how = Strategy(tensor=tensor, sequence_parallel=True, recompute=recompute, attention=AttentionKernel.UNFUSED)
        held.append(kept(program_of_one(family, work, how).program))
    scores = 0 if recompute is Recompute.SELECTIVE else 5 * HEADS * TOKENS**2 * BATCH_OF_LAYER
    assert (held[1] - held[0]) / 2 == (34 * TOKENS * BATCH_OF_LAYER * HIDDEN + scores) / tensor


def test_gradients_are_summed_in_the_format_that_is_asked_for() -> None:
    """With fp32, reduced and scattered numbers have four bytes. Adam uses them for weights in bf16."""
    asked = of("llama", dtype="bf16")
    for zero in (0, 1, 2, 3):
        strategy = Strategy(data=2, micro_batches=2, zero=zero, grad_dtype="fp32")
        changed = build_program(*asked, strategy, gradients=True)
        whole = build_program(*asked, Strategy(), gradients=True)
        same_meaning(whole, changed, inputs("llama", 3, dtype="bf16"), 1e-4)
        one = program_of_one(*asked, strategy).program
        reduced = [op for op in one.ops if op.kind in ("allreduce", "reduce_scatter")]
        assert {each.dtype for op in reduced for each in one.types_of(op.inputs)} == {"fp32"}


def test_experts_are_apart() -> None:
    """Each device has some experts, with their optimizer state, and devices exchange rows."""
    family, work = of("moe")
    program = program_of_one(family, work, Strategy(data=4, expert=4))
    experts = [each for each in program.inputs if "gate.weight" in each.name and "shared" not in each.name]
    assert {piece.cuts[0].parts for piece in experts if "layer1" in piece.name} == {4}
    assert counted(program.program, "forward", "layer1") == {"exchange_rows": 1, "return_rows": 1}
    reduced = [op for op in program.program.ops if op.tag.phase == "update" and op.kind == "allreduce"]
    assert {dict(op.attributes)["over"] for op in reduced} == {"data"}


def test_imbalance_makes_the_busiest_device_slower() -> None:
    """Only with expert parallelism."""
    mesh = find_mesh("h200-4")
    sizes = {"hidden": 512, "expert_inner": 2048, "inner": 512, "sequence": 512, "dtype": "bf16", "vocabulary": 64}
    steps = {
        (expert, imbalance): simulate_places(
            *of("moe", imbalance=imbalance, **sizes), Strategy(data=4, expert=expert), mesh
        ).latency
        for expert in (1, 4)
        for imbalance in (1.0, 2.0)
    }
    assert steps[4, 2.0] > steps[4, 1.0] * 1.02
    assert steps[1, 2.0] == steps[1, 1.0]


def test_groups_of_ranks() -> None:
    """Tensor groups are neighbours, context groups come next, and experts span both in turn."""
    degrees = Degrees(tensor=2, context=2, data=2, expert=4)
    assert groups_of(degrees, "tensor")[0] == (0, 1)
    assert groups_of(degrees, "context")[:2] == ((0, 2), (1, 3))
    assert groups_of(degrees, "context+data")[:2] == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert groups_of(degrees, "expert") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert groups_of(degrees, "expert+data")[0] == (0, 4)


def test_zero_holds_less_and_moves_more() -> None:
    """Stage by stage on 8 devices, for a network whose weights take most of its memory."""
    mesh, sizes = find_mesh("h200-8"), {"hidden": 512, "inner": 2048, "dtype": "bf16", "heads": 8, "head_size": 64}
    found = {zero: simulate_places(*of("llama", **sizes), Strategy(data=8, zero=zero), mesh) for zero in (0, 1, 2, 3)}
    held = [trace.peak_memory[0] for trace in found.values()]
    assert held == sorted(held, reverse=True)
    assert held[1] < 0.7 * held[0]
    assert held[3] < 0.8 * held[1]
    kinds = {zero: Counter(op.kind for op in trace.program.ops) for zero, trace in found.items()}
    assert kinds[3]["allgather"] > 0 == kinds[2]["allgather"] == kinds[1]["allgather"]


def test_kept_weights_are_gathered_once() -> None:
    """Without resharding a layer's weights are gathered for the forward alone; the last layer's are always kept.

    Embedding and head are gathered together, once.
    """
    counts = {
        reshard: Counter(
            op.kind for op in program_of_one(*of("llama"), Strategy(data=2, zero=3, reshard=reshard)).program.ops
        )["allgather"]
        for reshard in (True, False)
    }
    layers = NETWORKS["llama"].layers  # type: ignore[attr-defined]
    assert counts == {True: 2 * layers + 1, False: layers + 1}


ULYSSES = Strategy(context=8, context_method=ContextMethod.ALL_TO_ALL)


@pytest.mark.parametrize(
    ("name", "strategy", "why"),
    [
        ("llama", Strategy(data=2, expert=2), "the network has no experts that devices could share"),
        (
            "moe",
            Strategy(data=2, expert=3),
            "3 does not divide the 2 tensor, context and data ranks that share experts",
        ),
        ("moe", Strategy(data=8, expert=8), "4 experts do not divide among 8 devices"),
        ("moe", Strategy(tensor=2, expert=2), "sequence parallelism"),
        ("llama", Strategy(context=3), "8 tokens do not divide into 6 equal chunks"),
        ("llama", ULYSSES, "4 heads of keys and values do not divide among 8 devices (tensor x context)"),
        ("llama", Strategy(context=2, attention=AttentionKernel.UNFUSED), "context parallelism needs fused attention"),
        ("llama", Strategy(zero=3), "ZeRO-3 needs several replicas, but there is only one"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, strategy: Strategy, why: str) -> None:
    with pytest.raises(InputError) as told:
        simulate_strategy(*of(name, dtype="bf16"), strategy, find_mesh("h200-64"))
    assert why in str(told.value)


def test_networks_without_a_sequence_have_no_context_parallelism() -> None:
    family = find_family("mlp")
    with pytest.raises(InputError, match="needs a sequence of tokens"):
        build_program(family, family.spec(batch=8), Strategy(context=2))
    with pytest.raises(InputError, match="zero: must be one of 0, 1, 2, 3, got 4"):
        Strategy(zero=4)
    with pytest.raises(InputError, match="tensor parallelism: must be a whole number of at least 1, got 0"):
        TensorParallel(0)(Gradients()(llama(LONG)))


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("mlp", "gpt")])
def test_every_family_trains_on_devices_that_share_its_tensors(name: str, zero: int) -> None:
    """A step on two devices that share tensors, and two replicas, means what one device does.

    ResNet has no replicas here: its batch norms are of each replica's samples.
    """
    family = find_family(name)
    spec = NetworkWork(name, tiny(name))
    if family.objection(spec, 2):
        pytest.skip("its sizes do not divide")
    strategies = Strategy(), Strategy(1, 2) if name == "resnet" else Strategy(2, 2, zero=zero)
    whole, changed = (build_program(family, spec, each, gradients=True) for each in strategies)
    given = network_inputs(whole, zero)
    given |= {piece: np.abs(array) for piece, array in given.items() if piece.endswith(".square")}
    same_meaning(whole, changed, given, 1e-7)
