"""Transforms keep the meaning of a program: the new outputs are parts of the original outputs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from helpers.programs import chain_schedule, random_inputs, same_meaning, spread
from helpers.seeds import one_in
from helpers.training import mlp_training

from tessel_core.errors import InputError
from tessel_core.ir import read_program
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.text import program_text
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.pipeline import Pipeline
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import SgdUpdate
from tessel_core.ir.types import TensorType
from tessel_core.networks.mlp import MlpSpec

TOLERANCE = {"fp32": 1e-5, "fp16": 2e-2}


def mlp_meaning(original: Distributed, changed: Distributed, dtype: str) -> None:
    same_meaning(original, changed, random_inputs(original, 0), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("data", "tensor", "stages"), one_in(3, product((1, 2, 3, 4), repeat=3)))
def test_the_mlp_means_the_same_on_any_number_of_devices(data: int, tensor: int, stages: int, dtype: str) -> None:
    """Odd and even numbers of layers, with a batch and a width that all degrees divide."""
    layers = 4 + (data + tensor + stages) % 2
    micro_batches = 1 + (data + 2 * stages) % 3
    original = mlp_training(MlpSpec(layers, 12, 12 * data * micro_batches, dtype))
    mlp_meaning(original, spread(original, data, tensor, stages, micro_batches), dtype)


@pytest.mark.parametrize("scheduler", ["gpipe", "1f1b", "sequential", "pipedream"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 4), (2, 1), (3, 5), (4, 8)])
def test_any_schedule_means_the_same(scheduler: str, stages: int, micro_batches: int) -> None:
    original = mlp_training(MlpSpec(5, 4, 2 * micro_batches))
    mlp_meaning(original, spread(original, 1, 2, stages, micro_batches, scheduler), "fp32")


@pytest.mark.parametrize(("data", "tensor", "stages"), [(1, 1, 1), (2, 2, 2), (3, 1, 2), (1, 3, 1)])
def test_one_step_of_sgd_moves_all_copies_of_a_weight_alike(data: int, tensor: int, stages: int) -> None:
    original = mlp_training(MlpSpec(3, 6, 12))
    given = random_inputs(original, 1)
    gradients = {piece.name: array for piece, array in original.run(given)}
    changed = SgdUpdate(rate=0.5)(spread(original, data, tensor, stages, 2))
    updated = [(piece, array) for piece, array in changed.run(given) if piece.name.startswith("w")]
    assert {piece.name for piece, _ in updated} == {"w0", "w1", "w2"}
    for piece, array in updated:
        wanted = given[piece.name] - 0.5 * gradients[f"d.{piece.name}"]
        np.testing.assert_allclose(array, piece.of(wanted), rtol=1e-5, atol=1e-5)


def test_gathered_outputs_are_whole_on_every_replica() -> None:
    original = mlp_training(MlpSpec(2, 4, 8))
    changed = DataParallel(2, gather=True)(original)
    mlp_meaning(original, changed, "fp32")
    assert all(not piece.cuts for piece in changed.outputs)


@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (2, 1, 1, 1), (1, 3, 1, 1), (2, 2, 2, 4)])
def test_printed_programs_are_read_back(degrees: tuple[int, int, int, int]) -> None:
    program = SgdUpdate()(spread(mlp_training(MlpSpec(4, 12, 24)), *degrees)).program
    text = program_text(program)
    read = read_program(text)
    assert program_text(read) == text
    assert [op.kind for op in read.ops] == [op.kind for op in program.ops]
    assert [op.tag for op in read.ops] == [op.tag for op in program.ops]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (DataParallel(5), "x: its 12 along axis 0 do not divide into 5 equal parts"),
        (DataParallel(0), "data parallelism: must be a whole number of at least 1, got 0"),
        (TensorParallel(5), "w0: its 8 along axis 1 do not divide into 5 equal parts"),
        (Pipeline(chain_schedule(2, 5)), "x: its 12 along axis 0 do not divide into 5 equal parts"),
        (Pipeline(chain_schedule(4, 2)), "pipeline: 4 stages need at least 4 layers, but there are 3"),
    ],
)
def test_what_does_not_divide_is_named(change, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as told:
        change(mlp_training(MlpSpec(3, 8, 12)))
    assert str(told.value) == why


@pytest.mark.parametrize("tensor", [2, 3])
def test_what_is_broadcast_is_added_once(tensor: int) -> None:
    """A row is added to a product that is cut by columns, and to one that is a partial sum."""
    build = ProgramBuilder("broadcast")
    x, v, w = (build.input(name, TensorType("fp32", (6, 6), 1)) for name in "xvw")
    row = build.input("b", TensorType("fp32", (6,), 1))
    first = build.one("add", [build.one("matmul", [x, v]), row])
    second = build.one("add", [row, build.one("matmul", [first, w])])
    roles = {"x": Role(batch_axis=0), "v": Role(shard_axis=1), "w": Role(shard_axis=0), "b": Role()}
    pieces, made = tuple(map(Piece, "xvwb")), (Piece("y"),)
    original = Distributed(build.finish([second]), pieces, made, roles | {"y": Role(batch_axis=0)})
    mlp_meaning(original, TensorParallel(tensor)(original), "fp32")
