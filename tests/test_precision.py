"""Linear layers in FP8: which products are marked, their costs, and where FP8 is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.decoders import weights
from helpers.programs import gpt_inputs, same_meaning, small_gpt
from helpers.terminal import Tessel, terminal
from helpers.training import gpt_training

from tessel_core.costs.devices import find_device_kind
from tessel_core.costs.fit import kind_fit
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.formats import CAST_BYTES, FORMAT, OPERANDS, SCALED_CAST_BYTES
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.precision import Fp8Linears
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.types import TensorType
from tessel_core.networks.llama import LlamaSpec, llama
from tessel_core.networks.moe import MoeSpec, moe
from tessel_core.simulation.costs import MeshCosts, formula
from tessel_core.strategies.evaluation import Configuration, evaluate
from tessel_core.strategies.families import FAMILIES, find_family
from tessel_core.strategies.strategy import Semantics, Strategy, build_program, simulate_strategy, why_not

H100 = find_device_kind("h100")

SMALL = LlamaSpec(layers=2, hidden=32, heads=4, kv_heads=2, head_size=8, inner=48, sequence=8, vocabulary=50)
MOE = MoeSpec(layers=1, hidden=32, heads=4, kv_heads=2, head_size=8, sequence=8, vocabulary=50, experts=4, active=2)


def marked(program: Program) -> list[str]:
    return sorted({op.tag.name for op in program.ops if dict(op.attributes).get(FORMAT) == "fp8"})


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    return terminal(monkeypatch, capsys)


# Marks


def test_linear_layers_of_a_decoder_are_marked_and_its_head_is_not() -> None:
    model = Fp8Linears()(Gradients()(llama(replace(SMALL, training=True))))
    of_layer = ("attention/keys", "attention/projection", "attention/queries", "attention/values")
    of_layer += ("mlp/gate", "mlp/projection", "mlp/up")
    assert marked(model.program) == [f"layer{i}/{name}" for i in range(2) for name in of_layer]
    for op in model.program.ops:
        if op.tag.name in marked(model.program):
            assert (FORMAT in dict(op.attributes)) == (op.kind in OPERANDS)


@pytest.mark.parametrize("experts", [True, False])
def test_experts_are_marked_if_asked_and_the_router_never_is(experts: bool) -> None:
    program = Fp8Linears(experts)(Gradients()(moe(replace(MOE, training=True)))).program
    names = marked(program)
    assert ("layer0/mlp/gate" in names) is experts
    assert ("layer0/mlp/down" in names) is experts
    assert "layer0/attention/queries" in names
    assert not [name for name in names if "router" in name or "head" in name]


def test_split_gradients_are_marked_too() -> None:
    model = Fp8Linears()(gpt_training(small_gpt(2, 2, "bf16"), split_weights=True))
    kinds = {op.kind for op in model.program.ops if FORMAT in dict(op.attributes)}
    assert kinds == {"linear", "matmul", "matmul_input_grad", "matmul_weight_grad"}


@pytest.mark.parametrize("degree", [1, 2])
def test_the_meaning_stays_on_one_device_and_several(degree: int) -> None:
    """The rounding of FP8 is not modelled."""
    spec = small_gpt(2, 2, "fp64")
    original = gpt_training(spec)
    changed = TensorParallel(degree)(Fp8Linears()(original))
    same_meaning(original, changed, gpt_inputs(original, spec, 1), 1e-9)
    assert len(marked(changed.program)) == 8


def test_programs_of_several_devices_are_refused() -> None:
    model = TensorParallel(2)(gpt_training(small_gpt(1, 2, "bf16")))
    with pytest.raises(InputError, match=r"^FP8: needs a program of one device, got 2$"):
        Fp8Linears()(model)


def test_inference_of_experts_means_the_same() -> None:
    model = moe(replace(MOE, dtype="fp64", micro_batch=2))
    given = {**weights(model), "tokens": np.random.default_rng(0).integers(0, 50, (2, 8))}
    for (_, wanted), (_, array) in zip(model.run(given), Fp8Linears()(model).run(given), strict=True):
        np.testing.assert_array_equal(array, wanted)


# Costs


def product(dtype: str = "bf16", m: int = 8192, k: int = 4096, n: int = 14_336, **attributes: str) -> Program:
    build = ProgramBuilder("product")
    x, w = build.input("x", TensorType(dtype, (m, k), 1)), build.input("w", TensorType(dtype, (k, n), 1))
    return build.finish(build.add("matmul", [x, w], **attributes))


def terms(program: Program, mesh: str = "h100-1"):
    (op,) = program.ops
    types = program.types_of(op.inputs), program.types_of(op.outputs)
    return MeshCosts(find_mesh(mesh)).terms(op.kind, *types, dict(op.attributes))


def test_products_run_at_the_peak_of_fp8_after_their_casts() -> None:
    """Operands are read twice and written as one byte each. Outputs cost as long as in bf16."""
    fast, plain, fit = terms(product(format="fp8")), terms(product()), kind_fit("h200")
    m, k, n = 8192, 4096, 14_336
    kernel, peak = fit.kernel("matmul"), H100.device("d").peak("fp8")
    assert peak == 1979e12
    operations = 2 * m * k * n + kernel.per_output * 2 * m * n
    assert fast.computing == pytest.approx(operations / (0.93 * peak * kernel.compute))
    assert fast.computing == pytest.approx(plain.computing / 2 / 0.93, rel=0.06)
    moved = (m * k + k * n) + 2 * m * n
    assert fast.moving == pytest.approx(moved / (H100.memory_bandwidth * kernel.memory))
    casts = 5 * (m * k + k * n) / (H100.memory_bandwidth * fit.kernel("elementwise").memory)
    assert fast.casting == pytest.approx(casts)
    assert fast.seconds == pytest.approx(fast.computing + casts, rel=1e-3)
    assert (CAST_BYTES, SCALED_CAST_BYTES) == (3, 5)
    assert plain.casting == 0


def test_the_formula_says_what_casts_take() -> None:
    program = product(format="fp8")
    text = formula(program, program.ops[0], MeshCosts(find_mesh("h100-1")))
    assert "casts to FP8 151 µs" in text


def test_small_products_do_not_gain() -> None:
    """Casts launch and move more than the product gains."""
    small = {"m": 128, "k": 1024, "n": 1024}
    assert terms(product(format="fp8", **small)).seconds > terms(product(**small)).seconds


@pytest.mark.parametrize("kind", ["a100", "v100", "a100-pcie"])
def test_kinds_without_fp8_are_refused(kind: str) -> None:
    with pytest.raises(InputError, match=r"^device gpu0: has no flops\.fp8, from which times could be derived$"):
        terms(product(format="fp8"), f"{kind}-1")


# Strategies and the command line


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_takes_fp8(name: str, mode: str) -> None:
    family = FAMILIES[name]
    word = {"gpt": "prefill"}.get(name, mode) if mode == "inference" else mode
    modes = {"mode": word} if any(size.name == "mode" for size in family.sizes) else {}
    spec = family.spec(batch=2, dtype="bf16", **modes)
    model: Distributed = build_program(family, spec, Strategy(fp8=True))
    if name != "resnet":  # whose one product is the head
        assert marked(model.program)
    assert {op.kind for op in model.program.ops if FORMAT in dict(op.attributes)} <= set(OPERANDS)


def test_strategies_in_fp8_are_simulated_operation_by_operation() -> None:
    family, mesh = find_family("gpt"), find_mesh("h200-2")
    spec, strategy = family.spec(size="gpt3-6.7b", layers=2, batch=4), Strategy(1, 2, fp8=True)
    (found,) = evaluate(family, [Configuration(spec, strategy)], mesh)
    assert found.latency == simulate_strategy(family, spec, strategy, mesh).trace.latency
    (plain,) = evaluate(family, [Configuration(spec, Strategy(1, 2))], mesh)
    assert found.latency < plain.latency


def test_objections_say_why() -> None:
    family = find_family("mlp")
    why = why_not(family, family.spec(dtype="fp32"), Strategy(fp8=True), None, Semantics.DEFAULT)
    assert why == "linear layers in FP8 need a network with a 16-bit format, not fp32"


def test_the_command_line_takes_fp8(tessel: Tessel) -> None:
    asked = ("simulate", "llama-3-8b", "--layers", 1, "--batch", 1, "--dtype", "fp8")
    found = tessel(*asked, "--mesh", "h100-1")
    assert found.code == 0
    refused = tessel(*asked, "--mesh", "a100-1")
    assert (refused.code, refused.err) == (
        2,
        "error: strategy 1/1/1/1 pipedream, FP8: gpu0 is of kind a100, which has no FP8\n",
    )
    words = str(Strategy(fp8=True, compiled=True))
    assert words.endswith(", FP8, compiled")
