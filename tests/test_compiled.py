"""Compiled programs: which operators share a kernel, which bytes it moves, and the time saved."""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter

import pytest
from helpers.programs import random_inputs
from helpers.terminal import Tessel, terminal
from helpers.training import mlp_training

from tessel_core.costs.costed import operator_terms
from tessel_core.costs.devices import H200, find_device_kind
from tessel_core.costs.fit import kind_fit
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.formats import CASTS, FUSED
from tessel_core.ir.program import Program, Tag
from tessel_core.ir.text import program_text, read_program
from tessel_core.ir.transforms.checkpoint import Recompute, keeping_products, recomputing
from tessel_core.ir.transforms.compiled import Compiled, kernels_of
from tessel_core.ir.transforms.precision import Fp8Linears
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.types import TensorType
from tessel_core.ir.verify import verify
from tessel_core.model import Operator
from tessel_core.networks.mlp import MlpSpec
from tessel_core.simulation import simulate
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration, evaluate
from tessel_core.strategies.families import FAMILIES, find_family
from tessel_core.strategies.strategy import Semantics, Strategy, build_program, simulate_strategy, why_not

H100 = find_device_kind("h100")

ROWS = TensorType("bf16", (4096, 8192), 1)
BYTES = ROWS.bytes
LAYER = Tag(0, None, "forward", "/layer0/mlp/x")


def chain(*steps: tuple[str, tuple[int, ...]], inputs: int = 2, tags: tuple[Tag, ...] = ()) -> Program:
    """Return operators on equal tensors. The last input is a square weight, and the last value is the output."""
    build = ProgramBuilder("chain")
    values = [build.input(f"x{i}", ROWS) for i in range(inputs)]
    values.append(build.input("w", TensorType("bf16", (8192, 8192), 1)))
    for i, (kind, taken) in enumerate(steps):
        values.append(build.one(kind, [values[each] for each in taken], tags[i] if tags else LAYER))
    return build.finish(values[-1:])


def compiled(program: Program) -> Program:
    found = Compiled()(Distributed(program, (), (), {})).program
    verify(found)
    return found


def moves(program: Program) -> list[tuple[int, ...] | None]:
    return [dict(op.attributes).get(FUSED) for op in compiled(program).ops]  # type: ignore[misc]


def seconds(program: Program, mesh: str = "h100-1") -> float:
    return simulate(program, find_mesh(mesh)).latency


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    return terminal(monkeypatch, capsys)


# Kernels by hand.


def test_a_gated_mlp_reads_two_tensors_and_writes_one() -> None:
    """silu, an independent product, and the product of both: one launch that reads two tensors and writes one."""
    program = chain(("silu", (0,)), ("matmul", (1, 2)), ("mul", (3, 4)))
    assert moves(program) == [(1, 1, 0), None, (0, 0, 1, 1)]
    (silu, _, mul), fit = compiled(program).ops, kind_fit("h200")
    alone = chain(("matmul", (1, 2)))
    moved = 3 * BYTES / (H100.memory_bandwidth * fit.kernel("elementwise").memory)
    assert seconds(compiled(program)) - seconds(alone) == pytest.approx(moved, rel=0.02)
    assert (silu.kind, mul.kind) == ("silu", "mul")


def test_a_stream_is_computed_again_rather_than_written_between_kernels() -> None:
    """The kernel after the product also computes the sum before a norm, so it reads both terms of the sum."""
    program = chain(("add", (0, 1)), ("relu", (3,)), ("matmul", (4, 2)), ("add", (3, 5)))
    assert moves(program) == [(1, 1, 1, 0), (0, 0, 1), None, (1, 2, 1, 1)]
    assert kernels_of(program) == {0: 0, 1: 0, 3: 3}


def test_what_a_product_takes_is_written_and_read_again() -> None:
    program = chain(("add", (0, 1)), ("matmul", (3, 2)), ("add", (3, 4)))
    assert moves(program) == [(1, 1, 1, 1), None, (1, 1, 1, 1)]


def test_siblings_read_what_they_share_once() -> None:
    program = chain(("relu", (0,)), ("silu", (0,)), ("matmul", (3, 2)), ("add", (4, 5)))
    assert moves(program) == [(1, 1, 1), (0, 0, 0), None, (1, 1, 1, 1)]


def test_values_of_many_tensors_are_written() -> None:
    """Inductor does not recompute a value from five tensors or more."""
    sums = [("add", (0, 1)), *[("add", (6 + i, 2 + i)) for i in range(3)]]
    program = chain(*sums, ("matmul", (9, 5)), ("relu", (9,)), ("add", (10, 11)), inputs=5)
    assert [each and each[-1] for each in moves(program)] == [0, 0, 0, 1, None, 0, 1]
    behind = chain(*sums, ("relu", (9,)), ("matmul", (10, 5)), ("add", (9, 11)), inputs=5)
    assert [each and each[-1] for each in moves(behind)] == [0, 0, 0, 1, 1, None, 1]


@pytest.mark.parametrize("other", [Tag(1, None, "forward", "/layer1/mlp/x"), Tag(0, None, "backward", "/layer0/mlp/x")])
def test_layers_and_phases_are_compiled_apart(other: Tag) -> None:
    program = chain(("relu", (0,)), ("silu", (3,)), tags=(LAYER, other))
    assert moves(program) == [(1, 1, 1), (1, 1, 1)]


def test_views_do_not_part_a_kernel() -> None:
    build = ProgramBuilder("views")
    x = build.input("x", ROWS)
    flat = build.one("reshape", [build.one("relu", [x], LAYER)], LAYER, shape=(-1,))
    program = build.finish([build.one("silu", [flat], LAYER)])
    assert kernels_of(program) == {0: 0, 2: 0}
    assert moves(program) == [(1, 1, 0), None, (0, 0, 1)]


def test_a_fused_kernel_launches_once_and_runs_at_the_speed_of_memory() -> None:
    """Small tensors are limited by launches: a chain of 20 takes as long as one."""
    build = ProgramBuilder("small")
    value = build.input("x", TensorType("bf16", (16, 16), 1))
    for _ in range(20):
        value = build.one("silu", [value], LAYER)
    program = build.finish([value])
    one = operator_terms(Operator("o", "add", flops=0.0, bytes=1024.0), H200.device("d"), "bf16").seconds
    assert seconds(compiled(program), "h200-1") == pytest.approx(one, rel=0.01)
    assert seconds(program, "h200-1") > 19 * one


# Laws for every family


def example(name: str) -> Distributed:
    family = FAMILIES[name]
    small = {"layers": 2} if any(size.name == "layers" for size in family.sizes) else {}
    return family.build(family.spec(**small, batch=2))


@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_wait_for_nothing_that_waits_for_them(name: str) -> None:
    """With each kernel and each other operation as a node, the graph has no cycle. A view belongs to its input."""
    model = example(name)
    cut = [] if FAMILIES[name].objection(FAMILIES[name].spec(batch=2), 2) else [TensorParallel(2)(model)]
    for each in (model, recomputing(Recompute.SELECTIVE, model), *cut):
        program = each.program
        kernels = kernels_of(program)
        maker, needs = dict[int, int](), dict[int, set[int]]()
        for i, op in enumerate(program.ops):
            node = kernels.get(i, i)
            if find_operator(op.kind).view and len(op.outputs) == 1:
                node = maker.get(op.inputs[0], i)
            maker.update(dict.fromkeys(op.outputs, node))
            needs.setdefault(node, set()).update(maker[v] for v in op.inputs if v in maker and maker[v] != node)
        TopologicalSorter(needs).prepare()  # raises CycleError


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_programs_move_less_and_never_more_often(name: str) -> None:
    program = example(name).program
    found = compiled(program)
    eager = fused = 0.0
    for op, other in zip(found.ops, program.ops, strict=True):
        values = dict(op.attributes)
        if FUSED in values:
            types, outputs = program.types_of(op.inputs), program.types_of(op.outputs)
            _, *times = values[FUSED]  # type: ignore[misc]
            fused += sum(each * of.bytes for each, of in zip(times, (*types, *outputs), strict=True))
            eager += find_operator(op.kind).work(types, outputs, dict(other.attributes)).bytes
    assert 0.3 * eager < fused < eager


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_steps_are_shorter(name: str) -> None:
    family = FAMILIES[name]
    spec = family.spec(batch=4)
    spans = [
        simulate_strategy(family, spec, Strategy(compiled=flag), find_mesh("h200-1")).trace.latency
        for flag in (False, True)
    ]
    assert 0.3 * spans[0] < spans[1] < spans[0]


def test_a_layer_of_llama_3_8b_saves_about_what_is_published() -> None:
    """torchtitan's 8B trains 16 % more tokens per second when compiled, on H100s [github.com/pytorch/torchtitan]."""
    family = find_family("llama")
    trained = [family.spec(size="llama-3-8b", layers=layers, batch=2, vocabulary=1000) for layers in (1, 2)]

    def layer(**how: bool) -> float:
        one, two = (
            simulate_strategy(family, spec, Strategy(**how), find_mesh("h100-1")).trace.latency for spec in trained
        )
        return two - one

    assert 1.06 < layer() / layer(compiled=True) < 1.2
    assert 1.3 < layer(compiled=True) / layer(compiled=True, fp8=True) < 1.6


def test_the_meaning_stays_under_every_degree() -> None:
    original = mlp_training(MlpSpec(3, 8, 8))
    given = random_inputs(original, 3)
    for model in (original, TensorParallel(2)(original)):
        for (piece, wanted), (same, array) in zip(model.run(given), Compiled()(model).run(given), strict=True):
            assert piece == same
            assert (array == wanted).all()


# Casts of FP8, and attributes.


def test_operands_are_cast_once_and_scaled_where_they_are_made() -> None:
    """Queries, keys and values share their operand. The attention output and the weights are read for their maximum."""
    family = find_family("llama")
    model = family.build(family.spec(size="llama-3-8b", layers=1, batch=1, sequence=64, vocabulary=100))
    model = keeping_products(Fp8Linears()(model))
    casts = [
        (op.tag.phase, op.tag.name.rpartition("/")[2], dict(op.attributes)[CASTS])
        for op in Compiled()(model).program.ops
        if CASTS in dict(op.attributes)
    ]
    assert casts[:6] == [
        ("forward", "queries", (3, 5)),
        ("forward", "keys", (0, 5)),
        ("forward", "values", (0, 5)),
        ("forward", "projection", (5, 5)),
        ("forward", "gate", (3, 5)),
        ("forward", "up", (0, 5)),
    ]
    backward = {name: each for phase, name, each in casts if phase == "backward"}
    assert (backward["up"], backward["gate"]) == ((3, 3, 3), (0, 3, 3))


def test_attributes_of_costs_are_read_back() -> None:
    program = compiled(chain(("silu", (0,)), ("matmul", (3, 2))))
    assert read_program(program_text(program)).ops == program.ops


@pytest.mark.parametrize(
    ("kind", "attributes", "why"),
    [
        ("relu", {"format": "fp8"}, "cannot have a format"),
        ("matmul", {"format": "fp4"}, "format must be fp8, got 'fp4'"),
        ("matmul", {"casts": (3, 5)}, "casts needs the attribute format"),
        ("matmul", {"format": "fp8", "casts": (3,)}, r"casts must have 2 entries, got \(3,\)"),
        ("add", {"fused": (1, 1, 1)}, r"fused must have 4 entries, got \(1, 1, 1\)"),
        ("add", {"fused": (1, -1, 1, 1)}, "fused must be at least 0"),
    ],
)
def test_attributes_of_costs_are_checked(kind: str, attributes: dict[str, object], why: str) -> None:
    build = ProgramBuilder("bad")
    square = build.input("x", TensorType("bf16", (8, 8), 1))
    taken = [square] * (1 if kind == "relu" else 2)
    with pytest.raises(InputError, match=why):
        build.add(kind, taken, **attributes)  # type: ignore[arg-type]


# Strategies and the command line.


def test_compiled_strategies_are_simulated_operation_by_operation() -> None:
    family, mesh = find_family("gpt"), find_mesh("h200-4")
    spec, strategy = family.spec(layers=2, batch=4), Strategy(2, 2, compiled=True)
    (found,) = evaluate(family, [Configuration(spec, strategy)], mesh)
    assert found.latency == simulate_strategy(family, spec, strategy, mesh).trace.latency
    (plain,) = evaluate(family, [Configuration(spec, Strategy(2, 2))], mesh)
    assert found.latency < plain.latency


def test_compiled_layers_recompute_what_only_compiled_kernels_use() -> None:
    """Inputs of backward products are kept: outputs of norms, rotated queries and keys, and the gated activation."""
    family = find_family("llama")
    spec = family.spec(size="llama-3-8b", layers=2, batch=1)
    again = Counter(op.kind for op in build_program(family, spec, Strategy(compiled=True)).program.ops)
    again.subtract(op.kind for op in build_program(family, spec, Strategy()).program.ops)
    assert {kind for kind, count in again.items() if count} == {"silu", "add"}


@pytest.mark.parametrize(("size", "kept"), [("llama-3-8b", 1_074_856_960), ("llama-3-70b", 2_116_092_928)])
def test_compiled_layers_keep_as_much_as_was_measured(size: str, kept: int) -> None:
    """The bytes are from tests/benchmarks/h100.csv, without the layer's input, which the previous layer has made."""
    family, mesh = find_family("llama"), find_mesh("h100-1")
    spec = family.spec(size=size, layers=3, batch=1, sequence=8192)
    blocks = BlockTable(family, spec, mesh).blocks(Strategy(compiled=True), 1, 0)
    (inputs,), _ = blocks.crossing[1]
    assert blocks.held[1] - inputs.bytes == pytest.approx(kept, rel=0.002)


def test_distir_knows_no_compiled_kernels() -> None:
    family = find_family("mlp")
    why = why_not(family, family.spec(), Strategy(compiled=True), None, Semantics.DISTIR)
    assert why == "DistIR's rules have costs only for data, tensor and pipeline parallelism"


def test_the_command_line_compiles(tessel: Tessel) -> None:
    def latency(*more: str) -> float:
        found = tessel("simulate", "llama-3-8b", "--layers", 1, "--batch", 1, "--mesh", "h200-1", "--json", *more)
        assert found.code == 0, found.err
        return float(found.document["latency_s"])

    assert latency("--compiled", "--dtype", "fp8") < latency("--compiled") < latency()
