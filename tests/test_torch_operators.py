"""Operators mean the same in PyTorch and in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.onnx_nodes import CASES, node
from helpers.onnx_programs import imported
from helpers.operators import EXAMPLES, WITH_STATISTICS, drawn

from tessel_core.ir.operators import OPERATORS, inferred
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Attributes
from tessel_core.ir.types import REAL, TensorType

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("torch_is_there")]

Case = tuple[str, Sequence[TensorType], Attributes]
CLOSE = {"fp64": 1e-12, "fp32": 4e-6, "fp16": 1e-3}


def in_format(types: Sequence[TensorType], dtype: str) -> list[TensorType]:
    return [replace(each, dtype=dtype) if each.dtype in REAL else each for each in types]


def check(kind: str, types: Sequence[TensorType], attributes: Attributes, arrays: Sequence[Array]) -> None:
    """Assert that outputs equal NumPy's up to rounding, in shape and format, and that only in-place operands change."""
    from tessel_core.execution.torch_operators import TORCH_OPERATORS, from_numpy, to_numpy

    values = dict(attributes)
    with np.errstate(all="ignore"):
        wanted = OPERATORS[kind].compute([each.copy() for each in arrays], values)
    tensors = [from_numpy(array, each.dtype) for array, each in zip(arrays, types, strict=True)]
    found = [to_numpy(each) for each in TORCH_OPERATORS[kind](tensors, values)]
    assert len(found) == len(wanted), kind
    close = CLOSE["fp32" if kind == "adam" else types[0].dtype] if types[0].dtype in REAL else 0.0
    for mine, right in zip(found, wanted, strict=True):
        assert (mine.shape, mine.dtype) == (right.shape, right.dtype), kind
        finite = np.isfinite(right) if right.dtype.kind == "f" else np.ones(right.shape, bool)
        np.testing.assert_array_equal(mine[~finite], right[~finite], err_msg=kind)
        room = close * max((abs(right[finite]).max(initial=0.0)), 1e-30) if right.dtype.kind == "f" else 0
        np.testing.assert_allclose(mine[finite], right[finite], rtol=0, atol=room, err_msg=kind)
    if not OPERATORS[kind].in_place:
        for tensor, array in zip(tensors, arrays, strict=True):
            np.testing.assert_array_equal(to_numpy(tensor), array, err_msg=kind)


def test_the_table_has_every_operator_with_a_meaning_on_one_device() -> None:
    from tessel_core.execution.torch_operators import TORCH_OPERATORS

    apart = {each.kind for each in OPERATORS.values() if each.pattern} | {"block", "delay", "opaque"}
    assert TORCH_OPERATORS.keys() == OPERATORS.keys() - apart


@pytest.mark.parametrize("more", [(), (("cap", 2.0), ("window", 2)), (("rate", 0.25), ("seed", 1))], ids=str)
def test_attention_of_shared_heads_means_the_same(more: Attributes) -> None:
    """Four query heads and two heads of keys and values, of size four."""
    q, k, v = (TensorType("fp64", (2, tokens, columns), 1) for tokens, columns in ((3, 12), (5, 6), (5, 8)))
    attributes = (("causal", 1), ("head_size", 3), *more)
    types = [q, k, v, TensorType("fp64", (2, 3, 16), 1)]
    check("attention", types[:3], attributes, drawn(types[:3], 1))
    check("attention_grad", types, attributes, drawn(types, 2))


def test_a_choice_by_softmax_means_the_same() -> None:
    """Shares are not normalised, and no two scores are equal."""
    x = TensorType("fp64", (2, 3, 6), 1)
    attributes = (("normed", 0), ("scale", 1.0), ("score", "softmax"), ("top", 2))
    check("route", [x], attributes, drawn([x], 1))
    check("route", [x, x.shaped((6,))], attributes, drawn([x, x.shaped((6,))], 1))


def test_rotations_of_a_part_of_each_head_mean_the_same() -> None:
    x = TensorType("fp64", (2, 3, 12), 1)
    attributes = (("at", 4), ("base", 100.0), ("first", 2), ("head_size", 6), ("inverse", 1), ("size", 4))
    check("rotary", [x], attributes, drawn([x], 1))


@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
def test_examples_mean_the_same(dtype: str) -> None:
    """Inputs are positive numbers, numbers around 0, and whole numbers for casts and comparisons."""
    from tessel_core.execution.torch_operators import TORCH_OPERATORS

    for kind in TORCH_OPERATORS:
        types, attributes = EXAMPLES[kind]
        state = {4, 5, 2, 3} if kind == "adam" else set[int]()
        types = [each if i in state else in_format([each], dtype)[0] for i, each in enumerate(types)]
        for seed, less in ((1, 0.0), (2, 1.2)):
            arrays = [
                (each - less if each.dtype.kind == "f" and kind != "adam" else each).astype(each.dtype)
                for each in drawn(types, seed)
            ]
            if kind.startswith("batch_norm") and len(types) > 4:
                arrays[4] = abs(arrays[4])
            check(kind, types, attributes, arrays)


def test_imported_nodes_mean_the_same() -> None:
    """Every form of an ONNX operator, over its types."""
    draw = np.random.default_rng(4)
    met = set[str]()
    for op_type, inputs, rest in CASES:
        program = imported(node(op_type, *inputs, **rest)).model.program
        for op in program.ops:
            for dtype in ("fp64", "fp32"):
                if op.kind == "opaque":
                    continue
                types = in_format(program.types_of(op.inputs), dtype)
                whole = [draw.integers(0, 2, each.shape) for each in types]
                real = [draw.normal(0, 1, each.shape) for each in types]
                arrays = [
                    (r if each.dtype in REAL else w + (each.dtype != "bool" and op.kind == "div")).astype(t.dtype)
                    for r, w, each, t in zip(real, whole, types, drawn(types, 1), strict=True)
                ]
                if op.kind == "batch_norm":
                    arrays[4] = abs(arrays[4])
                check(op.kind, types, op.attributes, arrays)
                met.add(op.kind)
    assert len(met) > 50


@pytest.mark.parametrize("axes", [(), (0,), (0, 1, 2)])
def test_edges_of_axes_mean_the_same(axes: tuple[int, ...]) -> None:
    """No axis, all axes, and empty axes, also with whole numbers and booleans."""
    for kind in (each for each in EXAMPLES if each.startswith("reduce_") and OPERATORS[each].gradient):
        for dtype in ("fp32", "fp16", "int32", "int8"):
            for shape in ((2, 3, 2), (0, 3, 2)) if kind != "reduce_mean" else ((2, 3, 2),):
                of_type = TensorType(dtype, shape, 1)
                values: Attributes = (("axes", axes), ("keep", 1))
                numbers = (drawn([TensorType("fp32", shape, 1)], 3)[0] * 2).astype(drawn([of_type], 1)[0].dtype)
                check(kind, [of_type], values, [numbers])
    for kind in ("softmax", "log_softmax"):
        check(kind, [TensorType("fp32", (2, 3, 2), 1)], (("axes", axes),), drawn([TensorType("fp32", (2, 3, 2), 1)], 3))
    of_image = TensorType("fp64", (1, 2, 3, 3, 3, 3), 1)
    steps: Attributes = (("dilations", (1,) * 4), ("pads", (0, 1) * 4), ("strides", (1, 2, 1, 2)))
    types = [of_image, of_image.shaped((4, 1, 2, 2, 2, 2)), of_image.shaped((4,))]
    check("conv", types, (("groups", 2), *steps), drawn(types, 2))


def test_meanings_are_those_of_the_functions_of_pytorch() -> None:
    """In NumPy and in PyTorch, compared with functions that share no code with ours."""
    from helpers.torch_functions import FUNCTIONS

    from tessel_core.execution.torch_operators import TORCH_OPERATORS, from_numpy, to_numpy

    for kind, function in FUNCTIONS.items():
        types, attributes = EXAMPLES[kind]
        types = in_format(types, "fp64")
        for less in (0.0,) if kind in ("log", "sqrt", "pow", "batch_norm") else (0.0, 1.2):
            arrays = [each - less if each.dtype.kind == "f" else each for each in drawn(types, 1)]
            if kind == "adam":
                arrays = [each if i in (0, 1, 6, 7) else 0 * each + (i == 8) for i, each in enumerate(arrays)]
            tensors = [from_numpy(array, each.dtype) for array, each in zip(arrays, types, strict=True)]
            right = function(dict(attributes), *tensors)
            right = right if isinstance(right, tuple | list) else [right]
            in_torch = TORCH_OPERATORS[kind]([each.clone() for each in tensors], dict(attributes))
            in_numpy = OPERATORS[kind].compute(arrays, dict(attributes))
            for wanted, *found in zip(right, map(to_numpy, in_torch), in_numpy, strict=kind != "adam"):
                for each in found:
                    np.testing.assert_allclose(each, to_numpy(wanted), rtol=0, atol=1e-12, err_msg=kind)


def test_formats_and_memory_of_what_is_made() -> None:
    """Outputs have their type, bf16 too, in memory of their own that is no larger than they are."""
    from tessel_core.execution.torch_operators import TORCH_OPERATORS, TORCH_TYPES, from_numpy

    for kind, meaning in TORCH_OPERATORS.items():
        for dtype in ("fp32", "bf16"):
            types, attributes = EXAMPLES[kind]
            types = in_format(types, dtype) if kind not in WITH_STATISTICS else types
            tensors = [from_numpy(array, each.dtype) for array, each in zip(drawn(types, 1), types, strict=True)]
            given = {each.untyped_storage().data_ptr() for each in tensors}
            for of_type, made in zip(
                inferred(kind, types, attributes), meaning(tensors, dict(attributes)), strict=True
            ):
                assert (tuple(made.shape), made.dtype) == (of_type.shape, TORCH_TYPES[of_type.dtype]), kind
                if not (OPERATORS[kind].view or OPERATORS[kind].in_place):
                    memory = made.untyped_storage()
                    assert memory.data_ptr() not in given, kind
                    assert memory.nbytes() == made.nbytes, kind


def test_what_is_made_is_where_inputs_are() -> None:
    """On a device whose numbers cannot be read, like a GPU for NumPy. Only some kinds must read numbers."""
    from tessel_core.execution.torch_operators import TORCH_OPERATORS, from_numpy

    looking = set[str]()
    for kind, meaning in TORCH_OPERATORS.items():
        types, attributes = EXAMPLES[kind]
        tensors = [from_numpy(each, of.dtype, "meta") for each, of in zip(drawn(types, 1), types, strict=True)]
        try:
            made = meaning(tensors, dict(attributes))
        except (NotImplementedError, RuntimeError):
            looking.add(kind.partition("_")[0])
            continue
        assert all(each.device.type == "meta" for each in made), kind
    assert looking == {"take", "embedding", "grouped", "adam"}  # indices, rows, experts and the number of the step
