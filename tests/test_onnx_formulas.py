"""FLOPs and bytes of single operators: by hand, and by running the loops that define them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.onnx_models import INT64, Writer, read_here, takes
from onnx import defs, numpy_helper

from tessel_core.formats.onnx.formulas import ARGUMENTS, FORMULAS
from tessel_core.model import Operator

NEWEST = defs.onnx_opset_version()


def one(op_type: str, *shapes: tuple[int, ...], constants: tuple[Any, ...] = (), to: int = 1, **rest: Any) -> Operator:
    """Return a model of one operator with inputs of these shapes, then constants."""
    writer, opset = Writer(), rest.pop("opset", NEWEST)
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = [takes(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    for i, each in enumerate(constants):
        names.append(f"c{i}" if each is not None else "")
        if each is not None:
            writer.weights[names[-1]] = numpy_helper.from_array(np.array(each), names[-1])
    writer.split(op_type, *names, to=[f"y{i}" for i in range(to)], **rest)
    return read_here(writer.model(inputs, ["y0"], opset)).graph.operators[0]


CASES: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any], int]] = [
    ("Add", ((2, 3), (3,)), {}, 6),
    ("Sum", ((4,), (4,), (4,)), {}, 8),
    ("Mean", ((4,), (4,), (4,)), {}, 12),
    ("Sigmoid", ((2, 3),), {}, 24),
    ("Gelu", ((10,),), {}, 50),
    ("Gelu", ((10,),), {"approximate": "tanh"}, 90),
    ("Swish", ((10,),), {}, 60),
    ("Clip", ((10,),), {"constants": (np.float32(0), np.float32(6))}, 20),
    ("Softmax", ((3, 7),), {}, 105),
    ("LayerNormalization", ((3, 7), (7,)), {}, 168),
    ("RMSNormalization", ((3, 7), (7,)), {}, 84),
    ("GroupNormalization", ((2, 4, 5), (4,), (4,)), {"num_groups": 2}, 320),
    ("InstanceNormalization", ((2, 4, 5), (4,), (4,)), {}, 320),
    ("ReduceMean", ((3, 7),), {"constants": (np.array([1]),)}, 21),
    ("ReduceMean", ((3, 7),), {"axes": [1], "opset": 13}, 21),
    ("ReduceL2", ((3, 7),), {}, 42),
    ("CumSum", ((3, 7),), {"constants": (np.array(1),)}, 21),
    ("ArgMax", ((3, 7),), {}, 21),
    ("AveragePool", ((1, 2, 6, 6),), {"kernel_shape": [3, 3], "strides": [3, 3]}, 2 * 4 * 9),
    ("GlobalMaxPool", ((1, 2, 6, 6),), {}, 72),
    ("Resize", ((1, 2, 3, 3),), {"constants": (None, np.float32([1, 1, 2, 2])), "mode": "linear"}, 72 * 2 * 4),
    ("Resize", ((1, 2, 3, 3),), {"constants": (None, np.float32([1, 1, 2, 2]))}, 0),
    ("Upsample", ((1, 2, 3, 3),), {"constants": (np.float32([1, 1, 2, 2]),), "mode": "linear", "opset": 9}, 72 * 2 * 4),
    ("TopK", ((5, 100),), {"constants": (np.array([8]),), "to": 2}, 500 * 3),
    ("Transpose", ((5, 100),), {}, 0),
    ("GRU", ((5, 2, 8), (1, 48, 8), (1, 48, 16)), {"hidden_size": 16}, 10 * (2 * 48 * 24 + 14 * 16)),
    ("RNN", ((5, 2, 8), (1, 16, 8), (1, 16, 16)), {"hidden_size": 16}, 10 * (2 * 16 * 24 + 2 * 16)),
    ("LRN", ((1, 4, 2, 2),), {"size": 3}, 16 * 8),
    ("RotaryEmbedding", ((1, 2, 3, 4), (1, 3, 2), (1, 3, 2)), {}, 72),
]


@pytest.mark.parametrize(
    ("op_type", "shapes", "rest", "flops"), CASES, ids=lambda each: each if type(each) is str else ""
)
def test_flops(op_type: str, shapes: tuple[tuple[int, ...], ...], rest: dict[str, Any], flops: int) -> None:
    assert one(op_type, *shapes, **rest).flops == flops


@pytest.mark.parametrize("seed", range(6))
def test_a_convolution_multiplies_and_adds_what_its_loops_do(seed: int) -> None:
    """Both directions with random sizes and no padding.

    Each element of a window is a multiplication and an addition.
    """
    choose = np.random.default_rng(seed)
    groups, kernel, stride = (int(each) for each in choose.integers(1, 4, 3))
    into, out = groups * int(choose.integers(1, 3)), groups * int(choose.integers(1, 4))
    size = kernel + int(choose.integers(0, 6))
    made = (size - kernel) // stride + 1
    places, taps = list(product(range(made), repeat=2)), list(product(range(kernel), repeat=2))
    steps = sum(2 for _ in range(2) for _ in range(out) for _ in places for _ in range(into // groups) for _ in taps)
    attributes = {"group": groups, "strides": [stride] * 2}
    assert one("Conv", (2, into, size, size), (out, into // groups, kernel, kernel), **attributes).flops == steps
    biased = one("Conv", (2, into, size, size), (out, into // groups, kernel, kernel), (out,), **attributes)
    assert biased.flops == steps + 2 * out * made**2
    # The transposed one maps outputs to inputs: each of its inputs meets every element of the window once.
    back = one("ConvTranspose", (2, out, made, made), (out, into // groups, kernel, kernel), **attributes)
    assert back.flops == steps


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("ij,jk", ((2, 3), (3, 4))),
        ("bij,bjk->bik", ((5, 2, 3), (5, 3, 4))),
        ("...ij,...jk->...ik", ((7, 2, 3), (7, 3, 4))),
        ("b...d,dh->b...h", ((2, 3, 4), (4, 5))),
        ("i,j->ij", ((3,), (4,))),
        ("ij->j", ((3, 4),)),
        ("ij->ji", ((3, 4),)),
        ("ij,ij->", ((3, 4), (3, 4))),
        ("a,ab,b->a", ((3,), (3, 4), (4,))),
    ],
)
def test_einsum_counts_its_loops(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """One loop over all indices has a multiplication per further operand, and an addition if something is summed."""
    inputs = [np.ones(shape) for shape in shapes]
    result = np.einsum(equation, *inputs)
    # All inputs are ones, so the sum of the result is the number of iterations of the innermost loop.
    loops = int(result.sum())
    summed = loops != result.size
    assert one("Einsum", *shapes, equation=equation).flops == loops * (len(shapes) - 1 + summed)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("folded", [True, False])
def test_attention_counts_its_scores(causal: int, folded: bool) -> None:
    """Two samples, 4 query heads of size 16, 2 key heads. 8 tokens have 1 + 2 + … + 8 causal scores per head."""
    scores = 36 if causal else 64
    flops = 2 * 4 * scores * (2 * (16 + 16) + 6)
    shapes = ((2, 8, 64), (2, 8, 32), (2, 8, 32)) if folded else ((2, 4, 8, 16), (2, 2, 8, 16), (2, 2, 8, 16))
    heads = {"q_num_heads": 4, "kv_num_heads": 2} if folded else {}
    assert one("Attention", *shapes, is_causal=causal, **heads).flops == flops


def test_attention_sees_the_past() -> None:
    """One new token after 7 has 8 scores per head."""
    writer = Writer()
    query, past = (2, 4, 1, 16), (2, 4, 7, 16)
    inputs = [takes(name, *query) for name in "qkv"] + [takes(name, *past) for name in ("pk", "pv")]
    writer.split("Attention", "q", "k", "v", "", "pk", "pv", to=("y", "nk", "nv"), is_causal=1)
    (found,) = read_here(writer.model(inputs, ["y"], 23)).graph.operators
    assert found.flops == 2 * 4 * 8 * (2 * 32 + 6)


def test_a_lookup_reads_what_it_takes() -> None:
    """It reads three rows of a table of a thousand. A slice reads its part. Indices do not count."""
    writer = Writer()
    writer.add("Gather", writer.weight("table", 1000, 4), "i", to="rows")
    (rows,) = read_here(writer.model([takes("i", 3, element=INT64)], ["rows"])).graph.operators
    assert (rows.kind, rows.bytes, rows.weight_bytes) == ("gather", 24 + 48 + 48, 16000)
    part = one("Slice", (1000, 4), constants=(np.array([0]), np.array([3])))
    assert (part.bytes, part.weight_bytes) == (2 * 48, 0)


def test_tables_name_operators_of_the_standard() -> None:
    known = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}
    assert set(FORMULAS) | set(ARGUMENTS) <= known
    assert len(FORMULAS) >= 60


@pytest.mark.parametrize("op_type", ["Reshape", "Squeeze", "Flatten"])
def test_views_are_free(op_type: str) -> None:
    constants = {"Reshape": (np.array([6]),)}.get(op_type, ())
    found = one(op_type, (1, 6), constants=constants)
    assert (found.flops, found.bytes, found.weight_bytes, found.output_bytes) == (0, 0, 0, 24)
