"""Programs run on ranks give the results of one process in NumPy, for every strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.onnx_models import cnn, mlp, transformer
from helpers.operators import EXAMPLES

from tessel_core.control import Control
from tessel_core.deadlock.actions import Action, ActionKind
from tessel_core.errors import InputError
from tessel_core.execution.inputs import seeded_inputs
from tessel_core.execution.needed_memory import needed_memory
from tessel_core.execution.program_run import Asked, Engine, ProgramRun, run_program
from tessel_core.execution.ranks import Ranks
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.text import program_text
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.types import TensorType
from tessel_core.networks.programs.program_file import ProgramFile, read_program_file
from tessel_core.strategies.families import Family, Spec, find_family
from tessel_core.strategies.orders import chain_schedulers
from tessel_core.strategies.strategy import (
    Semantics,
    Strategy,
    build_program,
    equal_devices,
    simulate_strategy,
    why_not,
)

CLOSE = {"fp32": 1e-5, "fp64": 1e-10}
"""Relative to the largest number of each tensor."""
GPT = {"layers": 4, "hidden": 16, "heads": 4, "vocabulary": 13, "sequence": 6, "batch": 32}
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"layers": 4, "width": 12, "batch": 32},
    "gpt training": GPT | {"mode": "training"},
    "gpt prefill": GPT | {"mode": "prefill"},
    "gpt decode": GPT | {"mode": "decode"},
}
STEPS = 2


@cache
def network(name: str, dtype: str) -> tuple[Family, Spec, Distributed]:
    family = find_family(name.split(maxsplit=1)[0])
    spec = family.spec(**NETWORKS[name], dtype=dtype)
    return family, spec, build_program(family, spec, Strategy(), gradients=True)


@cache
def reference(name: str, dtype: str) -> ProgramRun:
    """Return two steps of the undistributed network in NumPy."""
    _, _, whole = network(name, dtype)
    return run_program(Asked(whole, whole, 1, STEPS, keep=True), Engine.NUMPY, Control())


def promised(name: str, dtype: str, tensor: str) -> bool:
    """Return what must agree. In fp32, Adam turns the sign of a gradient that is only rounding into a whole step."""
    gradients = ("loss", "d.", "logits")
    return dtype == "fp64" or name != "gpt training" or tensor.startswith(gradients)


def check_same(name: str, dtype: str, strategy: Strategy, ranks: Ranks | None, engine: Engine = Engine.TORCH) -> None:
    """Compare losses, gradients, weights and state, or logits and caches, after two steps."""
    family, spec, whole = network(name, dtype)
    spread = build_program(family, spec, strategy, gradients=True)
    found = run_program(Asked(whole, spread, 1, STEPS, keep=True), engine, Control(), ranks=ranks)
    wanted = reference(name, dtype)
    assert found.values.keys() == wanted.values.keys()
    for tensor, array in wanted.values.items():
        assert found.values[tensor].shape == array.shape
        if promised(name, dtype, tensor):
            room = CLOSE[dtype] * np.abs(array).max()
            assert np.abs(found.values[tensor] - array).max() <= room, (name, dtype, str(strategy), tensor)
    for mine, right in zip(found.steps, wanted.steps, strict=True):
        assert mine.loss == (None if right.loss is None else pytest.approx(right.loss, rel=CLOSE[dtype]))


def strategies(name: str, devices: int) -> Iterator[Strategy]:
    """Return every strategy D x T x P x K on this many devices. Orders, recomputation and ZeRO vary too."""
    family, spec, _ = network(name, "fp32")
    trains = family.optimizer(spec) is not None
    degrees = [each for each in product((1, 2, 4, 8), repeat=3) if np.prod(each) == devices]
    for (data, tensor, stages), many in product(degrees, (1, 2, 4, 8)):
        orders = chain_schedulers() if trains and stages > 1 else chain_schedulers()[:1]
        flags = product(Recompute, (False, True)) if trains else [(Recompute.NONE, False)]
        for order, (recompute, zero) in product(orders, flags):
            strategy = Strategy(data, tensor, stages, many, order, recompute, zero)
            if not (zero and data == 1) and not why_not(family, spec, strategy, None, Semantics.DEFAULT):
                yield strategy


SOME = [
    Strategy(4, micro_batches=2, zero=True),
    Strategy(2, 2, 1, 2, zero=True),
    Strategy(1, 4),
    Strategy(1, 1, 4, 8, "1f1b"),
    Strategy(1, 2, 2, 4, "gpipe", recompute=Recompute.FULL),
    Strategy(1, 2, 2, 2, "1f1b", recompute=Recompute.SELECTIVE),
    Strategy(2, 1, 2, 4, "sequential"),
    Strategy(2, 1, 2, 4, recompute=Recompute.FULL, zero=True),
]


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_any_strategy_comes_to_the_same_as_one_process() -> None:
    with Ranks(4) as ranks:
        for strategy, name in product(SOME, NETWORKS):
            if strategy in strategies(name, 4):
                plain = strategy.recompute == Recompute.NONE and not strategy.zero
                check_same(name, "fp32" if plain else "fp64", strategy, ranks)


@pytest.mark.more
@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_every_strategy_comes_to_the_same_as_one_process(devices: int) -> None:
    with Ranks(devices) as ranks:
        for name, dtype in product(NETWORKS, CLOSE):
            for strategy in strategies(name, devices):
                check_same(name, dtype, strategy, ranks)


@pytest.mark.parametrize("name", NETWORKS)
def test_numpy_comes_to_the_same_distributed_or_not(name: str) -> None:
    strategy = Strategy(2, 2, 2, 4, zero="training" in name)
    check_same(name, "fp64", strategy, None, Engine.NUMPY)


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_values_take_the_memory_that_is_foreseen() -> None:
    """For tensors alive on a rank, the estimate and the simulation are off by less than a tenth."""
    sizes = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 32, "batch": 8, "dtype": "fp32"}
    family = find_family("gpt")
    spec = family.spec(**sizes)
    whole = build_program(family, spec, Strategy())
    with Ranks(2) as ranks:
        for strategy in (Strategy(2, micro_batches=2, zero=True), Strategy(1, 2), Strategy(1, 1, 2, 4, "gpipe", True)):
            spread = build_program(family, spec, strategy)
            found = run_program(Asked(whole, spread, 0, 2), Engine.TORCH, Control(), ranks=ranks).peak_memory
            simulated = simulate_strategy(family, spec, strategy, equal_devices(2, 1e13, 1e12, 100)).trace.peak_memory
            assert found == pytest.approx(tuple(needed_memory(spread.program).values()), rel=0.1)
            assert found == pytest.approx(simulated, rel=0.1)


_RANKS = 6
"""Number of ranks of the programs with one communication, including ranks that do not take part."""


def talk(kind: str, types: Sequence[TensorType], attributes: Any) -> Distributed:
    """Return a program of one communication, with a computation before and after it."""
    build = ProgramBuilder(kind)
    given = [build.input(f"x{i}", each) for i, each in enumerate(types)]
    taken = [build.one("concat", [value, value], axis=0) if types[0].shape else value for value in given]
    for device in range(_RANKS):
        build.input(f"n{device}", TensorType("int8", (1,), device))
    made = build.append(kind, taken, attributes)
    after = [build.one("identity", [value]) for value in made]
    program = build.finish([*after, *made, *taken[:1]])
    return read_program_file(program_text(program).encode(), kind).model


def rows(dtype: str, *shape: int) -> list[TensorType]:
    return [TensorType(dtype, shape, device) for device in (3, 0, 2)]


def pairs(*shapes: tuple[int, ...]) -> list[TensorType]:
    """Return several tensors of each device."""
    return [TensorType("fp32", shape, device) for device in (3, 0, 2) for shape in shapes]


TALKS: list[tuple[str, Sequence[TensorType], Any]] = [
    *((kind, *EXAMPLES[kind]) for kind, each in OPERATORS.items() if each.pattern and kind != "return_rows"),
    ("alltoall", rows("int16", 3, 4), (("axis", 0), ("joined", 1))),
    ("alltoall", rows("fp32", 3, 0), (("axis", 0), ("joined", 1))),
    ("alltoall", rows("fp32", 2, 4)[:1], (("axis", 0), ("joined", 1))),
    ("shift", rows("fp32", 2, 3), ()),
    ("shift", rows("bool", 3), ()),
    ("shift", rows("fp32", 3, 0), ()),
    ("shift", rows("fp32", 3)[:1], ()),
    ("shift", rows("fp32", 3)[:2], ()),
    ("shift", pairs((3, 5), (4,)), (("tensors", 2),)),
    ("exchange_choice", rows("int32", 4, 2), (("experts", 6), ("imbalance", 1.5))),
    ("allreduce", rows("int16", 3), ()),
    ("allreduce", rows("bool", 3), ()),
    ("allreduce", rows("fp32", 0), ()),
    ("allreduce", rows("fp16", 3)[:1], ()),
    ("reduce_scatter", rows("fp32", 3, 5), (("axis", 0),)),
    ("reduce_scatter", rows("bool", 3, 5), (("axis", 0),)),
    ("alltoall", rows("fp32", 3, 4), (("axis", 0), ("joined", 1))),
    ("allgather", rows("bool", 2, 3), (("axis", -1),)),
    ("allgather", rows("bf16", 2, 0), (("axis", -1),)),
    ("allreduce", pairs((3, 5), (4,)), (("tensors", 2),)),
    ("reduce_scatter", pairs((2, 3), (6,)), (("axis", (1, 0)), ("tensors", 2))),
    ("allgather", pairs((2, 3), (6,)), (("axis", 0), ("tensors", 2))),
    ("gather", rows("int16", 2, 3), (("axis", 1), ("to", 1))),
    ("reduce", rows("fp32", 2, 3), (("to", 3),)),
    ("broadcast", rows("int16", 2)[:1], (("devices", (0, 2)),)),
    ("broadcast", rows("int8", 2)[:1], (("devices", (2, 3, 1)),)),
    ("scatter", rows("fp32", 3, 1)[:1], (("axis", 0), ("devices", (2, 3)))),
    ("send", rows("bool", 0)[:1], (("to", 0),)),
]


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_every_communication_means_what_it_does_in_numpy() -> None:
    """Any sender and receiver, formats that collectives lack, empty tensors, and device 0 like others."""
    with Ranks(_RANKS) as ranks:
        for what in TALKS:
            model = talk(*what)
            found, wanted = (
                run_program(Asked(model, model, 5, keep=True), engine, Control(), ranks=ranks).values
                for engine in (Engine.TORCH, Engine.NUMPY)
            )
            assert found.keys() == wanted.keys()
            for name, array in wanted.items():
                assert found[name].dtype == array.dtype
                np.testing.assert_allclose(found[name], array, rtol=1e-6, err_msg=str(what))


def experts_apart() -> Distributed:
    """Rows go to experts on other devices, are multiplied and return. With 6 experts, device 2 gets none."""
    build, choice, w = ProgramBuilder("experts"), TensorType("int32", (4, 2), 3), TensorType("fp32", (2, 6, 5), 3)
    devices, how = (3, 0, 2), {"experts": 6}
    chosen = [build.input(f"c{d}", choice.on(d)) for d in devices]
    given = [build.input(f"x{d}", TensorType("fp32", (8, 6), d)) for d in devices]
    weights = [build.input(f"w{d}", w.on(d)) for d in devices]
    for device in range(_RANKS):
        build.input(f"n{device}", TensorType("int8", (1,), device))
    there = build.add("exchange_choice", chosen, **how)
    moved = build.add("exchange_rows", [v for both in zip(given, chosen, strict=True) for v in both], **how)
    sorted_rows = [build.one("dispatch", list(each)) for each in zip(moved, there, strict=True)]
    made = [build.one("grouped_matmul", list(each)) for each in zip(sorted_rows, there, weights, strict=True)]
    apart = [build.one("dispatch_grad", list(each)) for each in zip(there, made, strict=True)]
    back = build.add("return_rows", [v for both in zip(apart, chosen, strict=True) for v in both], **how)
    program = build.finish([*there, *moved, *made, *back])
    return read_program_file(program_text(program).encode(), "experts").model


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_devices_may_have_any_number_of_rows_of_experts() -> None:
    """Another number than the 8 of their types, also 0."""
    model = experts_apart()
    found, wanted = (
        run_program(Asked(model, model, 5, keep=True), engine, Control()).values
        for engine in (Engine.TORCH, Engine.NUMPY)
    )
    assert found.keys() == wanted.keys()
    assert {0, 8} < {len(array) for array in wanted.values()}
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=name)


def imported(model: Any, folder: Path, replicas: int) -> ProgramFile:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return read_program_file(path.read_bytes(), path.name, None, replicas)


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_imported_networks_come_to_the_same(tmp_path: Path) -> None:
    """The forward pass, whole and with a divided batch. Replicas see the numbers of one device."""
    for replicas, models in ((1, [transformer(batch=2)]), (2, [mlp(4), cnn(2)])):
        with Ranks(replicas) as ranks:
            for model in models:
                file = imported(model, tmp_path, replicas)
                runs = [(file.model, Engine.TORCH), (file.whole, Engine.NUMPY)]
                found, wanted = (
                    run_program(Asked(file.whole, each, 2, keep=True), engine, Control(), ranks=ranks).values
                    for each, engine in runs
                )
                assert found.keys() == wanted.keys()
                for name, array in wanted.items():
                    assert np.isfinite(array).all()
                    assert np.abs(found[name] - array).max() <= 1e-5 * np.abs(array).max()


def test_inputs_are_what_operations_need() -> None:
    """Token ids and classes are in range, indices ascend, counts are of the whole batch, and state is initial."""
    _, _, whole = network("gpt training", "fp32")
    inputs = seeded_inputs(whole, 3)
    types = {piece.name: whole.program.types[value] for value, piece in whole.piece_of.items()}

    def made(name: str, step: int = 0) -> Array:
        return inputs.whole(name, step)

    for name, of_type in types.items():
        assert made(name).shape == of_type.shape
    for name in ("tokens", "targets"):
        assert set(np.unique(made(name))) <= set(range(GPT["vocabulary"]))
        assert not np.array_equal(made(name), made(name, 1))
    np.testing.assert_array_equal(made("positions"), np.arange(6))
    assert (made("n"), made("step"), made("step", 4)) == (32 * 6, 1, 5)
    assert abs(made("l1.norm1.scale").mean() - 1) < 0.2
    assert not made("head.mean").any()
    np.testing.assert_array_equal(made("head"), made("head", 1))
    assert not np.array_equal(made("head"), seeded_inputs(whole, 4).whole("head", 0))
    _, _, narrow = network("gpt training", "fp16")
    begun = seeded_inputs(narrow, 3)
    np.testing.assert_array_equal(begun.whole("head.master", 0), begun.whole("head", 0).astype(np.float32))


NOT_A_NUMBER = """program broken
%x: fp32[2, 3]@1
%z: fp32[2, 3]@2
%n: int32[]@2
%below: fp32[2, 3]@1 = log(%x)
%there: fp32[2, 3]@2 = send(%below) {to=2}
%loss: fp32[2, 3]@2 = loss(%there, %z, %n) ; stage 1 micro-batch 0 forward
return %loss
"""


def asked_of(text: str) -> Asked:
    model = read_program_file(text.encode(), "p.txt").model
    return Asked(model, model, 0)


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_a_loss_that_is_no_number_ends_all_ranks() -> None:
    with pytest.raises(InputError) as told:
        run_program(asked_of(NOT_A_NUMBER), Engine.TORCH, Control())
    why = "loss: is not a number (NaN) in step 1"
    assert str(told.value) == f"rank 1 at operation 2 (loss, micro-batch 0): {why}"


def test_what_cannot_be_run_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(asked: Asked, engine: Engine = Engine.NUMPY, control: Control | None = None) -> str:
        with pytest.raises(InputError) as raised:
            run_program(asked, engine, control or Control())
        return str(raised.value)

    assert told(asked_of(NOT_A_NUMBER)) == "loss: is not a number (NaN) in step 1"
    cancelled = Control()
    cancelled.cancel()
    assert told(asked_of(NOT_A_NUMBER), control=cancelled) == "run: cancelled"
    monkeypatch.setattr("tessel_core.execution.program_run.need_torch", lambda what: None)
    unsigned = "program u\n%x: uint16[3]@1\n%y: uint16[3]@1 = add(%x, %x)\nreturn %y\n"
    assert told(asked_of(unsigned), Engine.TORCH) == (
        "program u: cannot run on PyTorch, which has no arithmetic in that format: %x is uint16; --engine numpy runs it"
    )
    assert run_program(asked_of(unsigned), Engine.NUMPY, Control()).steps
    costs = "bytes=1, dtypes='fp32', flops=1, operator='top_k', ranks=(1), sizes=(3), to=1"
    opaque = f"program o\n%x: fp32[3]@1\n%y: fp32[3]@1 = opaque(%x) {{{costs}}}\nreturn %y\n"
    assert told(asked_of(opaque)) == (
        "program o: has operator top_k, which is known by its costs only, so the program cannot be executed"
    )
    many = "".join(f"%x{i}: fp32[1]@{i}\n" for i in range(65))
    assert told(asked_of(f"program m\n{many}return %x0\n"), Engine.TORCH) == (
        "program m: has 65 devices, and at most 64 processes are started; --engine numpy runs it in one"
    )
    meets_nobody = Action(ActionKind.RECEIVE, "receive of %x from rank 1", (1,), "x")
    monkeypatch.setattr("tessel_core.execution.program_run.program_actions", lambda program: {1: [], 2: [meets_nobody]})
    assert told(asked_of(NOT_A_NUMBER), Engine.TORCH).startswith(
        "program broken: would hang: never satisfied: rank 2 at position 0 (receive of %x from rank 1) waits forever"
    )
    monkeypatch.setattr("tessel_core.execution.program_run.free_memory", lambda: 10)
    assert told(asked_of(NOT_A_NUMBER)) == (
        "broken: needs at least 124 B, and the machine has 10 B free; take a smaller network, batch or format"
    )
    for seed, steps, why in (
        (0, 0, "steps: must be between 1 and 1,000,000, got 0"),
        (-1, 1, "seed: must be at least"),
    ):
        model = asked_of(NOT_A_NUMBER).whole
        with pytest.raises(InputError, match=f"^{why}"):
            Asked(model, model, seed, steps)
