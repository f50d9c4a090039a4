"""GPTs as programs: their meaning on any number of devices, their costs, and their memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from statistics import median

import numpy as np
import pytest
from helpers.layer_sizes import layer_activation_bytes
from helpers.programs import (
    chain_plan,
    gpt_inputs,
    gpt_parameters,
    products,
    same_meaning,
    small_gpt,
    spread,
    uniform_workers,
)
from helpers.seeds import one_in
from helpers.training import gpt_training

from tessel_core.costs.devices import H200
from tessel_core.errors import InputError
from tessel_core.ir import read_program
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.text import program_text
from tessel_core.ir.transforms.checkpoint import Checkpoint
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.pipeline import Pipeline
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import AdamUpdate, ShardedOptimizer
from tessel_core.model import DeviceMesh
from tessel_core.networks.gpt import GPT_SPECS, GptSpec, gpt_decode, gpt_inference, gpt_spec
from tessel_core.networks.shapes import forward_half
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import simulate
from tessel_core.simulation.costs import MeshCosts
from tools.h200_rows import rows

TOLERANCE = {"fp32": 1e-4, "fp16": 3e-2}


def training_meaning(spec: GptSpec, changed: Distributed, original: Distributed) -> None:
    same_meaning(original, changed, gpt_inputs(original, spec, 1), TOLERANCE[spec.dtype])


@pytest.mark.parametrize(("data", "tensor", "stages"), one_in(5, product((1, 2, 3, 4), repeat=3)))
def test_training_means_the_same_on_any_number_of_devices(data: int, tensor: int, stages: int) -> None:
    """Odd and even numbers of layers, one or more micro-batches, some in fp16."""
    micro_batches = 1 + (data + 2 * stages) % 3
    dtype = "fp16" if (data + tensor + stages) % 3 == 0 else "fp32"
    spec = small_gpt(max(3, stages) + (tensor + stages) % 2, data * micro_batches, dtype)
    original = gpt_training(spec)
    training_meaning(spec, spread(original, data, tensor, stages, micro_batches), original)


@pytest.mark.parametrize("scheduler", ["gpipe", "1f1b", "sequential", "pipedream", "tessel"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 1), (3, 5)])
def test_any_schedule_means_the_same(scheduler: str, stages: int, micro_batches: int) -> None:
    spec = small_gpt(3, 2 * micro_batches)
    original = gpt_training(spec)
    training_meaning(spec, spread(original, 1, 2, stages, micro_batches, scheduler), original)


def forward_spread(model: Distributed, data: int, tensor: int, stages: int, micro_batches: int) -> Distributed:
    plan = forward_half(chain_plan(stages), "forward")
    schedule = solve_schedule("sequential", plan, micro_batches).solution
    assert schedule is not None
    return DataParallel(data)(Pipeline(schedule)(TensorParallel(tensor)(model)))


DEGREES = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 3, 1, 1), (1, 4, 3, 2), (2, 2, 2, 1), (3, 2, 2, 2)]


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("decode", [False, True])
def test_inference_means_the_same_on_any_number_of_devices(degrees: tuple[int, int, int, int], decode: bool) -> None:
    spec = small_gpt(3, 2 * degrees[0] * degrees[3])
    original = gpt_decode(spec, 3) if decode else gpt_inference(spec)
    changed = forward_spread(original, *degrees)
    same_meaning(original, changed, gpt_inputs(original, spec, 2, 3 if decode else 0), TOLERANCE["fp32"])
    copied = [op for op in changed.program.ops if op.kind in ("identity", "concat")]
    assert {changed.program.types[op.outputs[0]].shape[-1] for op in copied} <= {spec.vocabulary}


@pytest.mark.parametrize("context", [1, 3, 4])
def test_decoding_continues_a_prompt(context: int) -> None:
    """The logits of one more token equal the last row of a prefill that includes it."""
    spec = small_gpt(3, 2)
    whole = gpt_inference(spec, context + 1)
    given = gpt_inputs(whole, spec, 3)
    found = {piece.name: array for piece, array in whole.run(given)}
    before = gpt_inference(spec, context)
    short = dict(given, tokens=given["tokens"][:, :context], positions=given["positions"][:context])
    room = {name: np.zeros((2, context, 24)) for name in given if name[-2:] in (".k", ".v")}
    caches = {piece.name: array for piece, array in before.run(short | room) if piece.name in room}
    grown = {name: np.pad(array, ((0, 0), (0, 1), (0, 0))) for name, array in caches.items()}
    more = dict(given, tokens=given["tokens"][:, context:], positions=given["positions"][context:])
    after = {piece.name: array for piece, array in gpt_decode(spec, context).run(more | grown)}
    np.testing.assert_allclose(after["logits"][:, 0], found["logits"][:, -1], rtol=1e-4, atol=1e-5)
    for name in room:
        np.testing.assert_allclose(after[name], found[name], rtol=1e-4, atol=1e-5)


def test_the_loss_is_that_of_the_logits() -> None:
    spec = small_gpt(2, 3)
    training, inference = gpt_training(spec), gpt_inference(spec)
    given = gpt_inputs(training, spec, 4)
    made = {piece.name: array for piece, array in training.run(given)}
    caches = {piece.name: np.zeros((3, 5, 24)) for piece in inference.inputs if piece.name[-2:] in (".k", ".v")}
    logits = next(array for piece, array in inference.run(given | caches) if piece.name == "logits").astype(np.float64)
    likely = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    wanted = -np.log(np.take_along_axis(likely, given["targets"][..., None], axis=-1))[..., 0] / 15
    np.testing.assert_allclose(made["loss"], wanted, rtol=1e-4)


def test_gradients_of_all_weights_are_slopes_of_the_loss() -> None:
    """Central differences in fp64, along a random direction for each weight."""
    spec = small_gpt(2, 3, "fp64")
    model, draw = gpt_training(spec), np.random.default_rng(8)
    given = gpt_inputs(model, spec, 4)
    (_, _), *gradients = model.run(given)
    assert len(gradients) == 2 * 12 + 5
    for piece, gradient in gradients:
        name = piece.name.removeprefix("d.")
        step = 1e-5 * draw.normal(size=gradient.shape)
        losses = [model.run(given | {name: given[name] + by})[0][1].sum() for by in (step, -step)]
        assert (losses[0] - losses[1]) / 2 == pytest.approx((gradient * step).sum(), rel=1e-4, abs=1e-12), name


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_layer_works_as_the_formula_says(phase: str) -> None:
    """24 b s h² [Narayanan 2021, appendix] and 4 b h per pair of visible tokens. The backward has 48 and 10."""
    spec = GptSpec(layers=2, hidden=64, heads=4, vocabulary=101, sequence=32, batch=3, dtype="fp16")
    whole = gpt_training(spec).program
    program = replace(whole, ops=tuple(op for op in whole.ops if op.tag.stage == 0))
    pairs = 32 * 33 / 2
    linear, scores = (24, 4) if phase == "forward" else (48, 10)
    assert products(program, phase) == 3 * (linear * 32 * 64**2 + scores * 64 * pairs)


def layer_seconds(spec: GptSpec, phase: str) -> float:
    """Return the seconds of the first layer's operators on an H200, one after another."""
    program, costs = gpt_training(spec).program, MeshCosts(DeviceMesh("one", (H200.device("h200"),)))
    around = {"embedding", "embedding_grad", "bias"}
    ops = (op for op in program.ops if op.tag.stage == 0 and op.tag.phase == phase and op.kind not in around)
    return sum(
        costs.seconds(op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes))[1]
        for op in ops
    )


@pytest.mark.parametrize(("phase", "measured"), [("forward", "layer_fwd"), ("backward", "layer_bwd")])
def test_a_layer_takes_what_was_measured(phase: str, measured: str) -> None:
    """Layers of 500 µs and more. Shorter ones are limited by launches, which costs of single operators do not cover."""
    errors = list[float]()
    for (batch, sequence, hidden, heads, tensor), row in rows(measured).items():
        if tensor == 1 and row.seconds >= 5e-4:
            spec = GptSpec(2, hidden, heads, 1000, sequence, batch, "bf16")
            errors.append(abs(layer_seconds(spec, phase) / row.seconds - 1))
    assert len(errors) >= 10
    assert median(errors) <= 0.1


def test_a_layer_keeps_what_the_cost_model_counts() -> None:
    """All but the statistics, 4 bytes per head and 16 per token, which are computed again here."""
    peaks = []
    for layers in (4, 8):
        program = gpt_training(GptSpec(layers, 64, 4, 11, 64, 16, "fp16")).program
        weights = sum(each.bytes for each in program.types_of(program.inputs))
        peaks.append(simulate(program, costs=uniform_workers(1)).peak_memory[0] - weights)
    assert (peaks[1] - peaks[0]) / 4 == layer_activation_bytes(16, 64, 64, 4) - 16 * 64 * (4 * 4 + 16)


def test_parameters_of_the_published_sizes() -> None:
    """Publications count the embedding once. Those of GPT-3 are rounded."""
    tied = {name: gpt_parameters(spec) - spec.vocabulary * spec.hidden for name, spec in GPT_SPECS.items()}
    assert tied["gpt2"] == 124_439_808
    assert tied["gpt2-medium"] == 354_823_168
    assert tied["gpt2-large"] == 774_030_080
    assert tied["gpt2-xl"] == 1_557_611_200
    for name, billions in {
        "gpt3-1.3b": 1.3,
        "gpt3-2.7b": 2.7,
        "gpt3-6.7b": 6.7,
        "gpt3-13b": 13,
        "gpt3-175b": 175,
    }.items():
        assert tied[name] / 1e9 == pytest.approx(billions, rel=0.02)
    program = gpt_training(gpt_spec("gpt2")).program
    weights = [each for each in program.types_of(program.inputs) if each.dtype == "fp32"]
    assert sum(each.elements for each in weights) == gpt_parameters(GPT_SPECS["gpt2"]) == 163_037_184


@pytest.mark.parametrize("tensor", [2, 3, 4])
def test_tensor_parallelism_divides_all_matrices_and_sums_as_megatron_does(tensor: int) -> None:
    """Scale and shift of the norms and two biases per layer stay whole.

    There are two all-reduces per layer and direction.
    """
    spec = small_gpt(3, 2)
    program = TensorParallel(tensor)(gpt_training(spec)).program
    whole = (2 + 2 + 2) * 24
    weights = [each for each in program.types_of(program.inputs) if each.dtype == "fp32" and each.device == 1]
    assert (
        sum(each.elements for each in weights)
        == (gpt_parameters(spec) - 3 * whole - 2 * 24) // tensor + 3 * whole + 2 * 24
    )
    for phase in ("forward", "backward"):
        found = Counter(
            op.kind
            for op in program.ops
            if op.tag.phase == phase and op.tag.stage == 1 and find_operator(op.kind).pattern
        )
        assert found == {"allreduce": 2}


@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (2, 3, 2, 2)])
def test_printed_programs_are_read_back(degrees: tuple[int, int, int, int]) -> None:
    spec = small_gpt(2, 4)
    step = ShardedOptimizer(AdamUpdate())
    trained = spread(Checkpoint()(gpt_training(spec)), *degrees, step=step)
    programs = [trained, forward_spread(gpt_decode(spec, 2), *degrees)]
    for each in programs:
        text = program_text(each.program)
        read = read_program(text)
        assert program_text(read) == text
        assert [op.tag for op in read.ops] == [op.tag for op in each.program.ops]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: GptSpec(2, 10, 4, 7, 3), "heads: hidden size 10 does not divide into 4 equal heads"),
        (lambda: GptSpec(0, 8, 4, 7, 3), "layers: must be a whole number of at least 1, got 0"),
        (
            lambda: GptSpec(2, 8, 4, 7, 3, dtype="int8"),
            "dtype: must be one of fp64, fp32, tf32, bf16, fp16, got 'int8'",
        ),
        (lambda: gpt_spec("gpt5"), f"model: 'gpt5' is not known, choose from {', '.join(GPT_SPECS)}"),
        (
            lambda: gpt_decode(small_gpt(2, 1), 5),
            "tokens: 5 and 1 more must be at most 5, the number of positions",
        ),
        (
            lambda: gpt_inference(small_gpt(2, 1), 0),
            "tokens: 0 and 0 more must be at most 5, the number of positions",
        ),
        (
            lambda: TensorParallel(3)(gpt_training(GptSpec(2, 12, 4, 7, 3))),
            "l0.qkv: its 4 groups of 9 along axis 1 do not divide into 3 equal parts",
        ),
    ],
)
def test_what_makes_no_sense_is_named(make, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as told:
        make()
    assert str(told.value) == why
