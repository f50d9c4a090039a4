"""Files that are no model or cannot be read: one sentence that names the file, and never another exception."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from helpers.onnx_models import Writer, cnn, conditional, mlp, read_here, takes, transformer, with_function, zeros
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tessel_core.errors import InputError
from tessel_core.formats import GraphFile
from tessel_core.formats.fields import Fields
from tessel_core.formats.files import read_bytes
from tessel_core.formats.onnx import OnnxModel, reader, skeleton
from tessel_core.formats.onnx.network import NETWORK
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.networks.onnx import model_graph, network_graph
from tessel_core.networks.programs.program_file import read_program_file

Change = Callable[[onnx.ModelProto], object]


def changed(change: Change, model: onnx.ModelProto | None = None) -> bytes:
    """Return the bytes of a model after `change`, by default of the perceptron."""
    found = model or mlp(2)
    change(found)
    return found.SerializeToString()


def external(tensor: onnx.TensorProto) -> None:
    """Declare that the data is in a file outside of the model's folder."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


def in_a_branch(model: onnx.ModelProto) -> None:
    external(model.graph.node[0].attribute[0].g.initializer[0])


def in_a_constant(model: onnx.ModelProto) -> None:
    held = zeros("held", 4, 4)
    external(held)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=held))


def a_shape_elsewhere() -> bytes:
    writer = Writer()
    external(writer.weights[writer.numbers("shape", 2, 4)])
    return writer.model([takes("x", 4, 2)], [writer.add("Reshape", "x", "shape")]).SerializeToString()


def a_cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "fc2"


def a_bomb(model: onnx.ModelProto) -> None:
    """Return thirty functions that each call the previous one twice: a thousand million nodes."""
    model.functions[0].name = "f0"
    for i in range(1, 31):
        calls = [helper.make_node(f"f{i - 1}", [a, "w"], [b], domain="own") for a, b in (("x", "t"), ("t", "y"))]
        own = [helper.make_opsetid("own", 1), helper.make_opsetid("", 21)]
        model.functions.append(helper.make_function("own", f"f{i}", ["x", "w"], ["y"], calls, own))
    model.graph.node[0].op_type = "f30"
    model.graph.node[1].op_type = "f0"


def one_node(op_type: str, *, value: onnx.TensorProto | None = None, **attributes: object) -> bytes:
    """Return the model x -> a node -> ReLU."""
    writer = Writer()
    if value is not None:
        writer.weights["w"] = value
    made = writer.add(op_type, *["x", "w"][: 2 if value else 1], to="made", **attributes)
    writer.add("Relu", made, to="y")
    return writer.model([takes("x", 2, 4)], ["y"]).SerializeToString()


def input_of(size: int) -> bytes:
    """Return the perceptron with an input of this second size."""
    return changed(lambda m: m.graph.input[0].type.tensor_type.shape.dim[1].__setattr__("dim_value", size))


def declared(size: int, output: bool = False) -> bytes:
    """Return the perceptron with a tensor that declares this size."""
    name = "fc2" if output else "relu"

    def say(model: onnx.ModelProto) -> None:
        del model.graph.output[: int(output)]
        (model.graph.output if output else model.graph.value_info).append(takes(name, size, 10))

    return changed(say)


BAD: list[tuple[str, bytes, str]] = [
    ("empty", b"", "the model: is empty"),
    ("text", b"version https://git-lfs.github.com/spec/v1", "is not ONNX: it does not begin with an IR version"),
    ("only a version", b"\x08\x0a", "the model: has no nodes"),
    ("cut off", mlp().SerializeToString()[:1000], "is damaged or cut off: byte"),
    ("text that is none", changed(lambda m: m.graph).replace(b"relu", b"re\xff\xff"), "is damaged or cut off"),
    (
        "opset of the future",
        changed(lambda m: m.opset_import[0].__setattr__("version", 999)),
        "opset 999, but only 1 to",
    ),
    ("opset of the past", changed(lambda m: m.opset_import[0].__setattr__("version", 0)), "opset 0, but only 1 to"),
    ("no opset", changed(lambda m: m.ClearField("opset_import")), "does not say which opset"),
    ("a shape elsewhere", a_shape_elsewhere(), "is not known: the data of 'shape' is in another file, which is never"),
    ("no shape", changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")), "input x: has no shape"),
    (
        "no type",
        changed(lambda m: m.graph.input[0].ClearField("type")),
        "input x: the shape of tensor 'x' is not known",
    ),
    ("shape that depends on data", one_node("NonZero"), "node made (NonZero): the shape of tensor 'made' is not known"),
    ("unknown operator", one_node("Magic"), "node made (Magic): opset 21 has no operator 'Magic'"),
    ("retired operator", one_node("Upsample", value=zeros("w", 2)), "opset 21 has no operator 'Upsample'"),
    ("no opset of a domain", one_node("Magic", domain="own"), "the model names no opset of its domain 'own'"),
    (
        "shapes that do not fit",
        one_node("MatMul", value=zeros("w", 3, 3)),
        "node made (MatMul): does not fit its inputs",
    ),
    (
        "unknown attribute",
        one_node("Relu", speed=1),
        "node made (Relu): does not fit its inputs: Unrecognized attribute",
    ),
    ("sequence", one_node("SequenceConstruct"), "tensor made: is a sequence, but only tensors can be read"),
    (
        "text tensor",
        changed(lambda m: m.graph.initializer[0].__setattr__("data_type", 8)),
        "tensor w1: has elements of",
    ),
    ("negative size", changed(lambda m: m.graph.initializer[0].dims.append(-1)), "tensor w1: has a negative size"),
    ("negative input", input_of(-3), "tensor x: has size -3 along axis 1"),
    ("negative declaration", declared(-2), "tensor relu: has size -2 along axis 0"),
    ("negative output", declared(-2, output=True), "tensor fc2: has size -2 along axis 0"),
    ("huge size", changed(lambda m: m.graph.initializer[0].dims.append(2**50)), "more than 2^53 elements"),
    ("many axes", changed(lambda m: m.graph.initializer[0].dims.extend([2] * 1000)), "has 1002 axes"),
    ("wrong payload", changed(lambda m: m.graph.initializer[1].__setattr__("raw_data", b"123")), "tensor b1: its data"),
    ("cycle", changed(a_cycle), "nodes: they form a cycle: node fc1 (Gemm) -> node relu (Relu) -> node fc2"),
    (
        "nothing makes it",
        changed(lambda m: m.graph.node[0].input.__setitem__(0, "z")),
        "uses tensor 'z', which no node",
    ),
    ("made twice", changed(lambda m: m.graph.node[1].output.__setitem__(0, "fc1")), "tensor fc1: is made twice"),
    ("held twice", changed(lambda m: m.graph.initializer.append(zeros("w1", 2))), "tensor w1: is defined twice"),
    ("all constant", changed(lambda m: m.graph.initializer.append(zeros("x", 2, 64))), "no operator that depends on"),
    ("calls itself", changed(lambda m: m.functions[0].node.append(m.graph.node[0]), with_function()), "Layer: calls"),
    ("bomb of functions", changed(a_bomb, with_function()), "has more than the 20,000 nodes allowed"),
]


def in_this_process(wanted: str, skeleton: bytes, given: Mapping[str, int]) -> Fields:
    assert wanted == "network"
    return Fields({"network": NETWORK.write(translate(skeleton, given))}, "")


def read(data: bytes, name: str = "model") -> GraphFile:
    """Read the graph of a model's bytes in the other process."""
    return model_graph(OnnxModel.of(data, name))


@pytest.mark.parametrize(("data", "why"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
def test_bad_input_is_one_sentence(data: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_read_in_process", in_this_process)  # a process for each would take long
    with pytest.raises(InputError) as caught:
        read(data, "bad.onnx")
    assert str(caught.value).startswith("bad.onnx: ")
    assert why in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("size", [-1, None])
def test_an_open_size_may_be_written_as_minus_one(size: int | None) -> None:
    """Some exporters write it like this. It is treated like any other open size."""
    writer = Writer()
    writer.add("Relu", "x", to="y")
    file = read_here(writer.model([takes("x", size, 4)], ["y"]))
    assert file.warnings == ("the file leaves x[0] open; it is taken as 1",)


@pytest.mark.parametrize(("data", "why"), [BAD[i][1:] for i in (0, 3, 12)], ids=[BAD[i][0] for i in (0, 3, 12)])
def test_programs_are_refused_in_the_same_sentences(data: bytes, why: str) -> None:
    with pytest.raises(InputError) as caught:
        read_program_file(data, "bad.onnx")
    assert str(caught.value).startswith("bad.onnx: ")
    assert why in str(caught.value)


def test_a_file_that_ends_the_process_is_refused() -> None:
    """It has more outputs than `num_outputs`, and the package's native code aborts."""
    writer = Writer()
    writer.split("Split", "x", to=("a", "b", "c"), num_outputs=2, axis=0)
    data = writer.model([takes("x", 4)], ["a", "b", "c"]).SerializeToString()
    with pytest.raises(InputError, match=r"^m: node a \(Split\): "):
        read(data, "m")


def test_a_file_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MAX_SECONDS", 0.001)
    with pytest.raises(InputError, match=r"cannot be read within 0\.001 s"):
        read(mlp().SerializeToString())


def test_the_other_process_says_the_same_sentence() -> None:
    with pytest.raises(InputError, match=r"^m: node made \(MatMul\): does not fit its inputs: Incompatible dimensions"):
        read(one_node("MatMul", value=zeros("w", 3, 3)), "m")


def test_too_many_nodes() -> None:
    nodes = [helper.make_node("Relu", ["x"], [f"y{i}"]) for i in range(20_001)]
    model = helper.make_model(helper.make_graph(nodes, "many", [takes("x", 2)], [takes("y0", 2)]))
    with pytest.raises(InputError, match="has more than the 20,000 nodes allowed"):
        read(model.SerializeToString())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x08\x0a\x3a\xd0\x0f" + b"\x0a\x00" * 1000, "has more than the limit of 500 fields"),
        (b"\x08\x0a\x12\xe8\x07" + bytes(1000), "has more than 500 bytes beside its weights"),
    ],
)
def test_much_memory_is_refused_before_it_is_taken(data: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty nodes and a long name, with limits as small as the files."""
    monkeypatch.setattr(skeleton, "_MAX_FIELDS", 500)
    monkeypatch.setattr(skeleton, "LARGEST_FILE", 500)
    with pytest.raises(InputError, match=why):
        skeleton_of(data)


def test_nesting_has_an_end() -> None:
    """Graphs in attributes of nodes of graphs, 40 deep: three messages per level."""
    data = b""
    for _ in range(40):
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            length = len(data)
            data = tag + (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])) + data
    length = len(data)
    with pytest.raises(InputError, match="is nested deeper than 100 messages"):
        read(b"\x08\x0a\x3a" + bytes([length & 127 | 128, length >> 7]) + data)


def test_no_other_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight files are not opened, even if they are there. Python reports each file that is opened."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(4 * 128))
    model = mlp(2)
    external(model.graph.initializer[1])
    model.graph.initializer[1].external_data[0].value = "weights.bin"
    opened = list[object]()

    def inside(path: object) -> bool:
        return isinstance(path, str) and Path(path).parent in (Path(), tmp_path)

    sys.addaudithook(lambda event, rest: opened.append(rest[0]) if event == "open" else None)
    assert read_here(model) == read_here(mlp(2))
    for change, of in ((in_a_branch, conditional), (in_a_constant, mlp)):
        read(changed(change, of()))
    (tmp_path / "seen").write_text("")
    assert [Path(each).name for each in opened if inside(each)] == ["seen"]


def test_a_model_on_disk_is_read_without_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as from its bytes, in pieces of any size. A file that is cut off meanwhile is refused."""
    path = tmp_path / "m.onnx"
    for model in (transformer(hidden=64, vocabulary=50), conditional()):
        path.write_bytes(model.SerializeToString())
        assert read_bytes(path) == skeleton_of(path.read_bytes()) == skeleton_of(read_bytes(path))
        for window in (1, 7, 1000):
            monkeypatch.setattr(skeleton, "_WINDOW", window)
            assert read_bytes(path) == skeleton_of(path.read_bytes())
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size - 10])
    with path.open("rb", buffering=0) as file, pytest.raises(InputError, match="has become shorter"):
        skeleton_of(skeleton.OnDisk(file, size))


def test_a_model_larger_than_is_ever_uploaded_opens_by_its_path(tmp_path: Path) -> None:
    """It has 4 GB of weights, in a sparse file that needs no disk space."""
    path, most, encoded = tmp_path / "large.onnx", 2**32, skeleton._encoded
    unused = TensorProto(name="unused", data_type=1, dims=[most // 4]).SerializeToString() + b"J" + encoded(most)
    held = b"*" + encoded(len(unused) + most) + unused
    with path.open("wb") as file:  # in a graph of two parts, both count
        file.write(mlp(2).SerializeToString() + b":" + encoded(len(held) + most) + held)
        file.truncate(file.tell() + most)
    assert read_graph_file(path).graph == read_here(mlp(2)).graph


def test_neither_json_nor_onnx_is_one_sentence(tmp_path: Path) -> None:
    for name, data in (("a.onnx", b"{}"), ("b.json", b"\x7fELF"), ("c", b"\x08\x08")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=r"is not ONNX|is not JSON|is not text|has no nodes|cut off"):
            read_graph_file(tmp_path / name)


SEEDS = [
    model.SerializeToString() for model in (cnn(), transformer(hidden=4, vocabulary=5), conditional(), with_function())
]
Edit = tuple[int, int, bytes]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, len(SEEDS) - 1),
    edits=st.lists(st.tuples(st.integers(1), st.integers(0, 8), st.binary(max_size=4)), min_size=1, max_size=4),
    keep=st.one_of(st.none(), st.integers(0)),
)
def test_damaged_files_raise_nothing_else(seed: int, edits: list[Edit], keep: int | None) -> None:
    """Bytes are removed and inserted at random, and the end is cut off.

    The file is read, or refused in one sentence.
    """
    data = SEEDS[seed]
    for place, removed, put in edits:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + removed :]
    if keep is not None:
        data = data[: keep % (len(data) + 1)]
    said = ""
    try:
        said = network_graph(translate(skeleton_of(data), {})).graph.name
    except InputError as error:
        said = str(error)
    assert said
    assert said.isprintable()
