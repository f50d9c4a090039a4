"""ONNX models as programs: their meaning, inputs, costs and messages in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers.onnx_models import Writer, cnn, conditional, mlp, read_here, takes, transformer, with_function
from helpers.onnx_nodes import ints, node
from helpers.onnx_programs import check_meaning, imported, with_random_weights
from helpers.terminal import Tessel, terminal
from onnx import TensorProto, helper

from tessel_core.costs.costed import operator_terms
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.inspection import Cause
from tessel_core.ir import read_program
from tessel_core.ir.text import program_text
from tessel_core.ir.types import TensorType
from tessel_core.ir.verify import verify
from tessel_core.networks.programs.program_file import read_program_file
from tessel_core.simulation import memory_parts, simulate
from tessel_core.strategies.strategy import equal_devices

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mlp": lambda: mlp(3),
    "cnn": cnn,
    "transformer": lambda: transformer(2),
    "old transformer": lambda: transformer(opset=17),
    "function": with_function,
}


@pytest.mark.parametrize("name", MODELS)
def test_networks_mean_what_they_did(name: str) -> None:
    program = check_meaning(with_random_weights(MODELS[name]())).model.program
    verify(program)
    assert read_program(program_text(program)) == program
    assert not [op for op in program.ops if op.kind == "opaque"]


def test_weights_are_inputs_under_their_names() -> None:
    """A weight of two operators is one input. A weight that is only transposed is held once, and views are free."""
    writer = Writer()
    hidden = writer.add("MatMul", "x", writer.weight("w", 4, 6), to="hidden")
    turned = writer.add("Transpose", "w", to="turned")
    writer.add("MatMul", hidden, writer.add("Identity", turned, to="same"), to="y")
    program = check_meaning(with_random_weights(writer.model([takes("x", 3, 4)], ["y"]))).model
    assert [piece.name for piece in program.inputs] == ["x", "w"]
    assert [op.kind for op in program.program.ops] == ["matmul", "permute", "matmul"] or [
        op.kind for op in program.program.ops
    ] == ["permute", "matmul", "matmul"]
    trace = simulate(program.program, find_mesh("h200-1"))
    assert max(trace.peak_memory) == 4 * (3 * 4 + 4 * 6 + 3 * 6 + 3 * 4)


def test_what_is_computed_of_constants_is_an_input() -> None:
    """This agrees with operator graphs: a product of weights, and a mask made of shapes."""
    writer = Writer()
    product = writer.add("MatMul", writer.weight("u", 6, 2), writer.weight("v", 2, 6), to="product")
    ones = writer.add("ConstantOfShape", writer.add("Shape", "x", to="shape"), to="ones")
    masked = writer.add("Add", "x", writer.add("Trilu", ones, to="mask", upper=0), to="masked")
    writer.add("MatMul", masked, product, to="y")
    program = check_meaning(with_random_weights(writer.model([takes("x", 5, 6)], ["y"]))).model
    assert [piece.name for piece in program.inputs] == ["x", "mask", "product"]


def test_what_has_no_meaning_is_known_by_its_costs() -> None:
    """Its time is that of the operator graph. The error on execution names the operator."""
    model = node("TopK", (5, 100), ints(8), outputs=2)
    program = imported(model)
    known_by = "operators without an equivalent operation have only a cost"
    assert program.warnings == (f"{known_by}: TopK (1, first y0)",)
    (op,) = program.model.program.ops
    assert program.model.program.types_of(op.outputs) == (TensorType("fp32", (5, 8), 1), TensorType("int64", (5, 8), 1))
    mesh = find_mesh("h200-1")
    (operator,) = (each for each in read_here(model).graph.operators if each.kind == "top_k")
    found = simulate(program.model.program, mesh)
    assert found.latency == pytest.approx(operator_terms(operator, mesh.devices[0], "fp32").seconds)
    assert max(found.peak_memory) == 4 * 500 + 12 * 40
    assert simulate(program.model.program, mesh, compat="distir").latency == 1e-5
    with pytest.raises(InputError) as told:
        program.model.run({"x0": np.ones((5, 100), np.float32)})
    assert str(told.value) == "operator top_k: has costs but no computation, so the program cannot be executed"


def test_branches_hold_their_weights() -> None:
    program = imported(conditional())
    types = program.model.program.types
    assert [(piece.name, types[value].bytes) for value, piece in program.model.piece_of.items()] == [
        ("flag", 1),
        ("x", 32),
        ("choice.constants", 64),
    ]
    assert program.warnings[0].startswith("the subgraphs of If (1, first choice)")
    assert program.warnings[1].endswith("have only a cost: If (1, first choice)")


def test_quantized_weights_are_held_as_they_are() -> None:
    """Nine numbers of four bits take five bytes until they are used."""
    writer = Writer()
    writer.weights["w"] = helper.make_tensor("w", TensorProto.INT4, [3, 3], bytes(5), raw=True)
    real = writer.add("DequantizeLinear", "w", writer.number("scale", 0.5), to="real")
    writer.add("MatMul", "x", real, to="y")
    program = imported(writer.model([takes("x", 2, 3)], ["y"])).model
    assert [str(program.program.types[value]) for value in program.program.inputs] == [
        "fp32[2, 3]@1",
        "int8[5]@1",
        "fp32[]@1",
    ]
    assert [op.kind for op in program.program.ops] == ["opaque", "matmul"]


def test_names_can_be_printed_and_read_back() -> None:
    """Old exporters use numbers as tensor names, as programs do for values.

    Others use names that text cannot contain.
    """
    nodes = [helper.make_node("Relu", ["1"], ["0"]), helper.make_node("Neg", ["0"], ["onnx::a, b"])]
    nodes += [helper.make_node("Abs", ["onnx::a, b"], ["onnx::a. b"])]
    nodes += [helper.make_node("Sub", ["0", "onnx::a. b"], ["%2"])]
    graph = helper.make_graph(nodes, "a\nb", [takes("1", 2)], [onnx.ValueInfoProto(name="%2")])
    program = imported(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).model
    assert [piece.name for piece in (*program.inputs, *program.outputs)] == ["1", "%2"]
    assert read_program(program_text(program.program)) == program.program


def test_costs_under_both_semantics() -> None:
    """4 x 64 times 64 x 128 with a bias, a ReLU, and 128 x 10. DistIR does not count written bytes."""
    program = imported(mlp(4)).model.program
    mesh = equal_devices(1, 1e13, 1e12, 100)
    trace = simulate(program, mesh, compat="distir")
    launches, flops = 4e-5, (2 * 4 * 64 * 128 + 4 * 128 + 4 * 128 + 2 * 4 * 128 * 10) / 1e13
    moved = 4 * (4 * 64 + 64 * 128 + 2 * 4 * 128 + 4 * 128 + 4 * 128 + 128 * 10) / 1e12
    assert trace.latency == pytest.approx(launches + flops + moved, rel=1e-12)
    default = simulate(program, find_mesh("h200-1"))
    graph = read_here(mlp(4)).graph
    device = find_mesh("h200-1").devices[0]
    assert default.latency == pytest.approx(
        sum(operator_terms(each, device, "fp32").seconds for each in graph.operators)
    )


def test_a_large_model_in_another_process_and_back() -> None:
    """The program is the same. The benchmark of ONNX models prints the time."""
    data = transformer(66, 16, 4, 20, 4, "batch").SerializeToString()
    found = read_program_file(data, "large.onnx", {"batch": 2})
    assert len(found.program.ops) == 4 + 31 * 66 > 2000
    assert found.warnings == ()
    assert found.program == imported(onnx.load_from_string(data), batch=2).model.program


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with three models and the text of a program."""
    monkeypatch.chdir(tmp_path)
    models = {"mlp": mlp(), "branches": conditional(), "softmax": node("Softmax", (6, 4), axis=0)}
    for name, model in models.items():
        Path(f"{name}.onnx").write_bytes(model.SerializeToString())
    Path("text.txt").write_text("program p\n%x: fp32[4, 4]@1\n%y: fp32[4, 4]@1 = relu(%x)\nreturn %y")
    return terminal(monkeypatch, capsys)


def test_a_model_is_simulated(tessel: Tessel) -> None:
    ended = tessel("simulate", "mlp.onnx", "--set", "batch=4", "--json")
    assert (ended.code, ended.err) == (0, "")
    trace = simulate(imported(mlp(4)).model.program, find_mesh("h200-1"))
    assert ended.document == {
        "latency_s": trace.latency,
        "device_end_s": list(trace.device_end),
        "peak_memory": list(trace.peak_memory),
        "events": 3,
        "memory_parts": memory_parts(trace, 1),
        **dict.fromkeys(("seconds_per_sample", "samples_per_s", "tokens_per_s_per_device", "model_flops_utilization")),
        **dict.fromkeys(("rank_order", "groups")),
        **dict.fromkeys(("idle_rate", "imbalance_rate", "bubble_rate"), 0.0),
        "idle_causes": dict.fromkeys(map(str, Cause), 0.0),
    }
    shared = tessel("simulate", "mlp.onnx", "--set", "batch=8", "--data", 2, "--mesh", "h200-2", "--json").document
    assert shared["peak_memory"] == [*trace.peak_memory] * 2
    distir = tessel("simulate", "mlp.onnx", "--set", "batch=4", "--compat", "distir", "--json").document
    assert distir["events"] == 3
    assert tessel("simulate", "mlp.onnx").err == "note: mlp.onnx: the file leaves batch open; it is taken as 1\n"
    assert "have only a cost: If (1, first choice)" in tessel("simulate", "branches.onnx").err


WORDS: list[tuple[tuple[object, ...], str]] = [
    (("mlp.onnx", "--data", 2), "mlp.onnx: x: its 1 along axis 0 do not divide into 2 equal parts"),
    (("softmax.onnx", "--data", 2), "softmax.onnx: operation 0 (softmax): mixes the samples of a batch"),
    (("mlp.onnx", "--set", "bach=8"), "mlp.onnx: sizes: no tensor has an open size 'bach', choose from batch"),
    (("mlp.onnx", "--set", "batch=0"), "mlp.onnx: sizes: batch must be at least 1, got 0"),
    (("mlp.onnx", "--set", "batch"), "--set: wants NAME=N, with a whole number, got 'batch'"),
    (("mlp.onnx", "--tensor", 2), "--tensor: is for networks"),
    (("mlp.onnx", "--batch", 2), "--batch: is for networks"),
    (("text.txt", "--data", 2), "text.txt: is the text of a program, whose sizes and devices cannot be changed"),
    (("text.onnx",), "text.onnx: No such file or directory"),
    (
        ("mlp", "--layers", 2, "--width", 8, "--batch", 2, "--set", "a=1"),
        "--a: is not a size of mlp, which has layers, width, batch, dtype",
    ),
]


@pytest.mark.parametrize(("words", "why"), WORDS, ids=[" ".join(map(str, each[0])) for each in WORDS])
def test_wrong_words_are_one_line(tessel: Tessel, words: tuple[object, ...], why: str) -> None:
    ended = tessel("simulate", *words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"error: {why}")


def test_what_is_no_model_says_so(tessel: Tessel) -> None:
    Path("text.txt").rename("text.onnx")
    ended = tessel("simulate", "text.onnx")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: text.onnx: the model: is not ONNX: it does not begin with an IR version\n"
