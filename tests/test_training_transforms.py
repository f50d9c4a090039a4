"""Training transforms on GPTs and MLPs: recomputation, Adam and sharded optimizer state, their meaning and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from helpers.programs import gpt_inputs, gpt_parameters, products, random_inputs, small_gpt, spread, uniform_workers
from helpers.seeds import one_in
from helpers.training import gpt_training, mlp_training

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.transforms.checkpoint import Checkpoint, Recompute, recomputing
from tessel_core.ir.transforms.update import AdamUpdate, SgdUpdate, ShardedOptimizer
from tessel_core.ir.verify import verify
from tessel_core.networks.gpt import GptSpec
from tessel_core.networks.mlp import MlpSpec
from tessel_core.simulation import simulate


def adam_by_hand(given: Mapping[str, Array], gradients: Mapping[str, Array], master: bool) -> dict[str, Array]:
    """Return weights and state after a step from `adam_inputs` with the usual decays and a rate of 0.1."""
    found = {}
    for name, slope in gradients.items():
        mean = 0.9 * 0.5 * slope + 0.1 * slope
        square = 0.95 * (np.abs(slope).max() ** 2 + slope**2) + 0.05 * slope**2
        found[f"{name}.mean"], found[f"{name}.square"] = mean, square
        found[name] = given[name] - 0.1 * mean / (1 - 0.9**4) / np.sqrt(square / (1 - 0.95**4))
        if master:
            found[f"{name}.master"] = found[name]
    return found


TRAINED = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 3, 2, 2), (2, 2, 2, 4), (4, 1, 1, 2), (3, 2, 3, 2)]


@pytest.mark.parametrize("family", ["gpt", "mlp"])
@pytest.mark.parametrize("degrees", one_in(2, TRAINED))
def test_checkpointing_changes_no_bit(family: str, degrees: tuple[int, int, int, int]) -> None:
    if family == "gpt":
        spec = small_gpt(5, 12 * degrees[3])
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
        peaks.append(simulate(program, costs=workers).peak_memory)
    assert all(less < more for less, more in zip(peaks[1], peaks[0], strict=True))
    again = products(saving, "backward") - products(plain, "backward")
    _, _, _, micro_batches = degrees
    assert again < products(plain, "forward") - micro_batches * products(plain, "head", 101)


def test_checkpointing_keeps_of_a_layer_what_it_takes() -> None:
    """l layers of equal size keep l inputs and one layer's activations, instead of l times those."""
    peaks = []
    for layers in (4, 8):
        program = Checkpoint()(gpt_training(GptSpec(layers, 64, 4, 11, 64, 16))).program
        weights = sum(each.bytes for each in program.types_of(program.inputs))
        gradients = sum(program.types[value].bytes for value in program.outputs)
        peaks.append(simulate(program, costs=uniform_workers(1)).peak_memory[0] - weights - gradients)
    assert peaks[1] - peaks[0] <= 4 * 64 * 64 * 16 * 4


@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (1, 2, 2, 4), (2, 1, 4, 8)])
def test_selective_recomputation_repeats_every_second_product(degrees: tuple[int, int, int, int]) -> None:
    """Memory and step time lie between those of none and full."""
    original, mesh = gpt_training(GptSpec(8, 256, 4, 101, 256, 16, "bf16")), find_mesh("h200-8")
    programs = {how: spread(recomputing(how, original), *degrees).program for how in Recompute}
    none, some, full = (simulate(programs[how], mesh) for how in Recompute)
    for least, between, most in zip(full.peak_memory, some.peak_memory, none.peak_memory, strict=True):
        assert least < between < most
    assert none.latency < some.latency < full.latency
    again = Counter(op.kind for op in programs[Recompute.SELECTIVE].ops)
    again.subtract(op.kind for op in programs[Recompute.NONE].ops)
    repeated = {kind for kind, count in again.items() if count}
    assert repeated <= {"layer_norm", "gelu", "residual", "unpack_qkv", "matmul", "linear", "allreduce"}
    # Of the products qkv, projection, up and down, projection and down are chosen. Nobody needs the last.
    assert again["layer_norm"] == 2 * again["gelu"] == 2 * again["matmul"] > 0


def test_an_mlp_has_nothing_to_recompute_selectively() -> None:
    """Each layer is a product, whose output is kept, and a ReLU, whose output is passed on."""
    original = mlp_training(MlpSpec(5, 12, 12))
    assert recomputing(Recompute.SELECTIVE, original) == original


def test_checkpointing_comes_first() -> None:
    original = gpt_training(small_gpt(2, 4))
    for changed in (spread(original, 2, 1, 1, 1), spread(original, 1, 1, 1, 4)):
        with pytest.raises(InputError, match=r"^checkpointing: must come before the program is distributed"):
            Checkpoint()(changed)


def adam_inputs(spec: GptSpec, gradients: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs of the fourth step. Moments are as large as gradients, so that no slope is only rounding."""
    given = gpt_inputs(gpt_training(spec), spec, 6)
    for name, gradient in gradients.items():
        given[f"{name}.master"] = given[name].astype(np.float32)
        given[f"{name}.mean"], given[f"{name}.square"] = 0.5 * gradient, np.abs(gradient).max() ** 2 + gradient**2
    return given | {"step": np.array(4)}


@pytest.mark.parametrize(("sharded", "dtype"), one_in(3, product((False, True), ("fp32", "fp16"))))
@pytest.mark.parametrize("degrees", one_in(2, TRAINED))
def test_a_step_of_adam_moves_all_copies_alike(degrees: tuple[int, int, int, int], sharded: bool, dtype: str) -> None:
    spec = small_gpt(3, 12 * degrees[3], dtype)
    original, optimizer = gpt_training(spec), AdamUpdate(rate=0.1)
    given = gpt_inputs(original, spec, 6)
    gradients = {piece.name[2:]: array.astype(np.float32) for piece, array in original.run(given)[1:]}
    update = ShardedOptimizer(optimizer) if sharded else optimizer
    changed = spread(original, *degrees, step=update)
    verify(changed.program)
    found = changed.run(adam_inputs(spec, gradients))
    wanted = adam_by_hand(given, gradients, master=dtype == "fp16")
    assert {piece.name for piece, _ in found} == {"loss", *wanted}
    close = 5e-3 if dtype == "fp16" else 1e-4
    for piece, array in found:
        if piece.name != "loss":
            np.testing.assert_allclose(array, piece.of(wanted[piece.name]), rtol=close, atol=close)


def test_a_sharded_optimizer_holds_its_part_of_the_state() -> None:
    """Twelve bytes of state per parameter in fp16, over four replicas. Gradients are scattered, weights gathered."""
    spec = GptSpec(4, 64, 4, 100, 64, 8, "fp16")
    plain, sharded = (
        spread(gpt_training(spec), 4, 1, 1, 1, step=update).program
        for update in (AdamUpdate(), ShardedOptimizer(AdamUpdate()))
    )
    whole, part = (simulate(program, costs=uniform_workers(4)).peak_memory for program in (plain, sharded))
    state = 12 * gpt_parameters(spec)
    assert all(more - less >= 0.99 * state * 3 / 4 for more, less in zip(whole, part, strict=True))
    kinds = Counter(op.kind for op in sharded.ops)
    weights = len(gpt_training(spec).outputs) - 1
    assert kinds["reduce_scatter"] == kinds["allgather_in_place"] == weights
    assert "allreduce" not in kinds


def test_weights_that_no_replica_count_divides_stay_whole() -> None:
    model = mlp_training(MlpSpec(2, 6, 10))
    changed, updated = (
        spread(model, 5, 1, 1, 1, step=step) for step in (ShardedOptimizer(SgdUpdate(0.5)), SgdUpdate(0.5))
    )
    given = random_inputs(model, 1)
    plain = {(piece, i): array for i, (piece, array) in enumerate(updated.run(given))}
    assert "reduce_scatter" not in {op.kind for op in changed.program.ops}
    for i, (piece, array) in enumerate(changed.run(given)):
        np.testing.assert_array_equal(array, plain[piece, i])
