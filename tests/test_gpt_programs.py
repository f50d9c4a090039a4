"""GPTs as programs: what they mean on any number of devices, what they cost, and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from helpers.programs import chain_plan, gpt_inputs, random_inputs, same_meaning, spread

from tessel_core.errors import InputError
from tessel_core.ir import program_text, read_program, verify
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Program
from tessel_core.ir.transforms import (
    AdamUpdate,
    Checkpoint,
    DataParallel,
    Pipeline,
    SgdUpdate,
    ShardedOptimizer,
    TensorParallel,
)
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.networks.chains import forward_half
from tessel_core.networks.programs import GPT_SPECS, GptSpec, gpt_decode, gpt_inference, gpt_spec, gpt_training
from tessel_core.networks.programs.mlp import MlpSpec, mlp_training
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import MeshCosts, simulate_streams

TOLERANCE = {"fp32": 1e-4, "fp16": 3e-2}


def small(layers: int, batch: int, dtype: str = "fp32") -> GptSpec:
    """12 heads of 2, which 1, 2, 3 and 4 divide."""
    return GptSpec(layers, hidden=24, heads=12, vocabulary=17, sequence=5, batch=batch, dtype=dtype)


def training_meaning(spec: GptSpec, changed: Distributed, original: Distributed) -> None:
    same_meaning(original, changed, gpt_inputs(original, spec, 1), TOLERANCE[spec.dtype])


@pytest.mark.parametrize(("data", "tensor", "stages"), list(product((1, 2, 3, 4), repeat=3)))
def test_training_means_the_same_on_any_number_of_devices(data: int, tensor: int, stages: int) -> None:
    """Odd and even numbers of layers, one or more micro-batches, and fp16 for some."""
    micro_batches = 1 + (data + 2 * stages) % 3
    dtype = "fp16" if (data + tensor + stages) % 3 == 0 else "fp32"
    spec = small(max(3, stages) + (tensor + stages) % 2, data * micro_batches, dtype)
    original = gpt_training(spec)
    training_meaning(spec, spread(original, data, tensor, stages, micro_batches), original)


@pytest.mark.parametrize("scheduler", ["gpipe", "1f1b", "sequential", "pipedream"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 1), (3, 5)])
def test_any_schedule_means_the_same(scheduler: str, stages: int, micro_batches: int) -> None:
    spec = small(3, 2 * micro_batches)
    original = gpt_training(spec)
    training_meaning(spec, spread(original, 1, 2, stages, micro_batches, scheduler), original)


def uniform_workers(count: int) -> MeshCosts:
    found = tuple(
        Device(f"d{i}", "gpu", 0, None, (PeakRate("fp32", 1e12), PeakRate("fp16", 1e12)), 1e12) for i in range(count)
    )
    return MeshCosts(DeviceMesh("uniform", found, same_node_link=Link(1e11, 1e-6)))


def products(program: Program, phase: str) -> float:
    """FLOPs of a phase's products and attentions; those of the projection to the vocabulary as phase `head`."""
    total = 0.0
    for op in program.ops:
        head = op.kind == "matmul" and program.types[op.outputs[0]].shape[-1] == 101
        if op.kind.startswith(("matmul", "linear", "attention")) and (
            head if phase == "head" else op.tag.phase == phase
        ):
            types = program.types_of(op.inputs), program.types_of(op.outputs)
            total += find_operator(op.kind).work(*types, dict(op.attributes)).flops
    return total


def forward_spread(model: Distributed, data: int, tensor: int, stages: int, micro_batches: int) -> Distributed:
    plan = forward_half(chain_plan(stages), "forward")
    schedule = solve_schedule("sequential", plan, micro_batches).solution
    assert schedule is not None
    return DataParallel(data)(Pipeline(schedule)(TensorParallel(tensor)(model)))


DEGREES = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 3, 1, 1), (1, 4, 3, 2), (2, 2, 2, 1), (3, 2, 2, 2)]


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("decode", [False, True])
def test_inference_means_the_same_on_any_number_of_devices(degrees: tuple[int, int, int, int], decode: bool) -> None:
    spec = small(3, 2 * degrees[0] * degrees[3])
    original = gpt_decode(spec, 3) if decode else gpt_inference(spec)
    changed = forward_spread(original, *degrees)
    same_meaning(original, changed, gpt_inputs(original, spec, 2, 3 if decode else 0), TOLERANCE["fp32"])
    copied = [op for op in changed.program.ops if op.kind in ("identity", "concat")]
    assert {changed.program.types[op.outputs[0]].shape[-1] for op in copied} <= {spec.vocabulary}


@pytest.mark.parametrize("context", [1, 3, 4])
def test_decoding_continues_a_prompt(context: int) -> None:
    """The logits of one more token are the last row of the pass over the prompt with it."""
    spec = small(3, 2)
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


def test_the_loss_is_that_of_the_logits_and_falls_along_the_gradients() -> None:
    spec = small(2, 3)
    training, inference = gpt_training(spec), gpt_inference(spec)
    given = gpt_inputs(training, spec, 4)
    made = {piece.name: array for piece, array in training.run(given)}
    caches = {piece.name: np.zeros((3, 5, 24)) for piece in inference.inputs if piece.name[-2:] in (".k", ".v")}
    logits = next(array for piece, array in inference.run(given | caches) if piece.name == "logits").astype(np.float64)
    likely = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    wanted = -np.log(np.take_along_axis(likely, given["targets"][..., None], axis=-1))[..., 0] / 15
    np.testing.assert_allclose(made["loss"], wanted, rtol=1e-4)
    step = {name[2:]: 1e-2 * array for name, array in made.items() if name.startswith("d.")}
    moved = {name: array - step.get(name, 0) for name, array in given.items()}
    fall = made["loss"].sum() - next(array for piece, array in training.run(moved) if piece.name == "loss").sum()
    assert fall == pytest.approx(sum((array**2).sum() for array in step.values()) / 1e-2, rel=0.1)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_layer_works_as_the_formula_says(phase: str) -> None:
    """24 b s h² [Narayanan 2021, appendix] and 4 b h a pair of tokens that see each other; backward 48 and 10."""
    spec = GptSpec(layers=2, hidden=64, heads=4, vocabulary=101, sequence=32, batch=3, dtype="fp16")
    whole = gpt_training(spec).program
    program = replace(whole, ops=tuple(op for op in whole.ops if op.tag.stage == 0))
    pairs = 32 * 33 / 2
    linear, scores = (24, 4) if phase == "forward" else (48, 10)
    assert products(program, phase) == 3 * (linear * 32 * 64**2 + scores * 64 * pairs)


def test_parameters_of_the_published_sizes() -> None:
    """Publications count the embedding once, and those of GPT-3 are rounded."""
    tied = {name: spec.parameters - spec.vocabulary * spec.hidden for name, spec in GPT_SPECS.items()}
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
    assert sum(each.elements for each in weights) == GPT_SPECS["gpt2"].parameters == 163_037_184


@pytest.mark.parametrize("tensor", [2, 3, 4])
def test_tensor_parallelism_divides_all_matrices_and_sums_as_megatron_does(tensor: int) -> None:
    """A norm's scale and shift and two biases of a layer stay whole; two all-reduces a layer each way."""
    spec = small(3, 2)
    program = TensorParallel(tensor)(gpt_training(spec)).program
    whole = (2 + 2 + 2) * 24
    weights = [each for each in program.types_of(program.inputs) if each.dtype == "fp32" and each.device == 1]
    assert (
        sum(each.elements for each in weights) == (spec.parameters - 3 * whole - 2 * 24) // tensor + 3 * whole + 2 * 24
    )
    for phase in ("forward", "backward"):
        found = Counter(
            op.kind
            for op in program.ops
            if op.tag.phase == phase and op.tag.stage == 1 and find_operator(op.kind).pattern
        )
        assert found == {"allreduce": 2}


TRAINED = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 3, 2, 2), (2, 2, 2, 4), (4, 1, 1, 2), (3, 2, 3, 2)]


@pytest.mark.parametrize("family", ["gpt", "mlp"])
@pytest.mark.parametrize("degrees", TRAINED)
def test_checkpointing_changes_no_bit(family: str, degrees: tuple[int, int, int, int]) -> None:
    if family == "gpt":
        spec = small(5, 12 * degrees[3])
        original = gpt_training(spec)
        given = gpt_inputs(original, spec, 5)
    else:
        original = mlp_training(MlpSpec(5, 12, 12 * degrees[3]))
        given = random_inputs(original, 5)
    plain, saving = spread(original, *degrees), spread(Checkpoint()(original), *degrees)
    verify(saving.program)
    for (piece, wanted), (same, array) in zip(plain.run(given), saving.run(given), strict=True):
        assert piece == same
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (1, 2, 2, 4), (2, 1, 4, 8)])
def test_checkpointing_holds_less_and_computes_one_forward_more(degrees: tuple[int, int, int, int]) -> None:
    original = gpt_training(GptSpec(8, 64, 4, 101, 64, 16))
    plain, saving = (spread(each, *degrees).program for each in (original, Checkpoint()(original)))
    workers, peaks = uniform_workers(max(plain.devices)), []
    for program in (plain, saving):
        peaks.append(simulate_streams(program, workers).peak_memory)
    assert all(less < more for less, more in zip(peaks[1], peaks[0], strict=True))
    again = products(saving, "backward") - products(plain, "backward")
    _, _, _, micro_batches = degrees
    assert again < products(plain, "forward") - micro_batches * products(plain, "head")


def test_checkpointing_keeps_of_a_layer_what_it_takes() -> None:
    """With l layers of the same size: l inputs, and one layer's activations, rather than l times those."""
    peaks = []
    for layers in (4, 8):
        program = Checkpoint()(gpt_training(GptSpec(layers, 64, 4, 11, 64, 16))).program
        weights = sum(each.bytes for each in program.types_of(program.inputs))
        gradients = sum(program.types[value].bytes for value in program.outputs)
        peaks.append(simulate_streams(program, uniform_workers(1)).peak_memory[0] - weights - gradients)
    assert peaks[1] - peaks[0] <= 4 * 64 * 64 * 16 * 4


def test_checkpointing_comes_first() -> None:
    original = gpt_training(small(2, 4))
    for changed in (spread(original, 2, 1, 1, 1), spread(original, 1, 1, 1, 4)):
        with pytest.raises(InputError, match=r"^checkpointing: comes first, before the program is distributed"):
            Checkpoint()(changed)


def adam_inputs(model: Distributed, spec: GptSpec, gradients: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of the fourth step, with moments as large as the gradients, so that no slope is all rounding."""
    given = gpt_inputs(gpt_training(spec), spec, 6)
    for name, gradient in gradients.items():
        given[f"{name}.master"] = given[name].astype(np.float32)
        given[f"{name}.mean"], given[f"{name}.square"] = 0.5 * gradient, np.abs(gradient).max() ** 2 + gradient**2
    return given | {"step": np.array(4)}


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("degrees", TRAINED)
def test_a_step_of_adam_moves_all_copies_alike(degrees: tuple[int, int, int, int], sharded: bool, dtype: str) -> None:
    spec = small(3, 12 * degrees[3], dtype)
    original, optimizer = gpt_training(spec), AdamUpdate(rate=0.1)
    given = gpt_inputs(original, spec, 6)
    gradients = {piece.name[2:]: array.astype(np.float32) for piece, array in original.run(given)[1:]}
    update = ShardedOptimizer(optimizer) if sharded else optimizer
    changed = update(spread(original, *degrees))
    verify(changed.program)
    found = changed.run(adam_inputs(changed, spec, gradients))
    assert {piece.name for piece, _ in found} == {"loss", *gradients}
    for piece, array in found[-len(gradients) :]:
        slope = gradients[piece.name]
        mean, square = 0.95 * 0.5 * slope, 0.05 * slope**2 + 0.95 * (np.abs(slope).max() ** 2 + slope**2)
        mean = 0.9 * 0.5 * slope + 0.1 * slope
        step = 0.1 * mean / (1 - 0.9**4) / np.sqrt(square / (1 - 0.95**4))
        wanted = given[piece.name] - step
        close = 5e-3 if dtype == "fp16" else 1e-4
        np.testing.assert_allclose(array, piece.of(wanted), rtol=close, atol=close)


def test_a_sharded_optimizer_holds_its_part_of_the_state() -> None:
    """Twelve bytes of state a parameter in fp16, over four replicas; gradients are scattered, weights gathered."""
    spec = GptSpec(4, 64, 4, 100, 64, 8, "fp16")
    model = spread(gpt_training(spec), 4, 1, 1, 1)
    plain, sharded = (update(model).program for update in (AdamUpdate(), ShardedOptimizer(AdamUpdate())))
    whole, part = (simulate_streams(program, uniform_workers(4)).peak_memory for program in (plain, sharded))
    state = 12 * spec.parameters
    assert all(more - less >= 0.99 * state * 3 / 4 for more, less in zip(whole, part, strict=True))
    kinds = Counter(op.kind for op in sharded.ops)
    weights = len(gpt_training(spec).outputs) - 1
    assert kinds["reduce_scatter"] == kinds["allgather_in_place"] == weights
    assert "allreduce" not in kinds


def test_weights_that_no_replica_count_divides_stay_whole() -> None:
    model = DataParallel(5)(mlp_training(MlpSpec(2, 6, 10)))
    changed = ShardedOptimizer(SgdUpdate(0.5))(model)
    given = random_inputs(mlp_training(MlpSpec(2, 6, 10)), 1)
    plain = {(piece, i): array for i, (piece, array) in enumerate(SgdUpdate(0.5)(model).run(given))}
    assert "reduce_scatter" not in {op.kind for op in changed.program.ops}
    for i, (piece, array) in enumerate(changed.run(given)):
        np.testing.assert_array_equal(array, plain[piece, i])


@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (2, 3, 2, 2)])
def test_printed_programs_are_read_back(degrees: tuple[int, int, int, int]) -> None:
    spec = small(2, 4)
    step = ShardedOptimizer(AdamUpdate())
    programs = [step(spread(Checkpoint()(gpt_training(spec)), *degrees)), forward_spread(gpt_decode(spec, 2), *degrees)]
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
        (lambda: GptSpec(2, 8, 4, 7, 3, dtype="int8"), "dtype: must be a format of real numbers, got 'int8'"),
        (lambda: gpt_spec("gpt5"), f"model: 'gpt5' is not known, known are {', '.join(GPT_SPECS)}"),
        (
            lambda: gpt_decode(small(2, 1), 5),
            "tokens: 5 and 1 more must be at most the 5 that have a position",
        ),
        (
            lambda: gpt_inference(small(2, 1), 0),
            "tokens: 0 and 0 more must be at most the 5 that have a position",
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
