"""Derived gradients equal those of torch.autograd, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from helpers.gradients import Case, example, trained
from helpers.operators import BIAS, BITS, IMAGE, SWEEP, TOKENS, X

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.types import TensorType

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("torch_is_there")]

ROW, COLUMN, PLACES = X.shaped((6,)), X.shaped((4, 1)), TensorType("int64", (2, 3), 1)
LINE, CUBE, TESSERACT = X.shaped((2, 4, 7)), X.shaped((1, 2, 3, 4, 3)), X.shaped((1, 2, 3, 3, 3, 3))


def sweep(spatial: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return pooling windows that overlap, with padding before the first axis and after the last."""
    pads = (1, *(0,) * (2 * spatial - 2), 1)
    return ("dilations", (1,) * spatial), ("pads", pads), ("strides", (*(1,) * (spatial - 1), 2))


CASES: list[Case] = [
    *((kind, (ROW, X), ()) for kind in ("add", "sub", "mul", "div", "max", "min", "prelu", "pow")),
    *((kind, (COLUMN, ROW), ()) for kind in ("add", "sub", "mul", "div", "max", "min", "prelu", "pow")),
    ("mul", (X.shaped(()), X), ()),
    ("pow", (X, PLACES.shaped((4, 6))), ()),
    ("where", (BITS, COLUMN, X.shaped(())), ()),
    ("reshape", (X,), (("shape", (-1,)),)),
    ("permute", (IMAGE,), (("axes", (2, -1, 0, 1)),)),
    ("expand", (COLUMN,), (("shape", (2, 1, 6)),)),
    ("take", (IMAGE, PLACES), (("axis", -2),)),
    ("strided_slice", (X,), (("axes", (-1,)), ("counts", (3,)), ("starts", (0,)), ("steps", (2,)))),
    ("pad", (X,), (("pads", (0, 0, 0, 0)), ("value", 1.0))),
    ("concat", (X, X.shaped((1, 6))), (("axis", -2),)),
    ("roll", (X,), (("axes", ()), ("shifts", ()))),
    *(
        (
            "gemm",
            (X.shaped((6, 4) if a else (4, 6)), X.shaped((5, 6) if b else (6, 5)), X.shaped(c)),
            (("alpha", 1.5), ("beta", beta), ("trans_a", a), ("trans_b", b)),
        )
        for a in (0, 1)
        for b in (0, 1)
        for c, beta in (((5,), 1.0), ((4, 1), 0.5))
    ),
    *(
        (f"reduce_{kind}", (IMAGE,), (("axes", axes), ("keep", keep)))
        for kind in ("sum", "mean", "max", "min", "prod", "sum_square", "l2")
        for axes, keep in (((2,), 1), ((0, 1, 2, 3), 0), ((), 0))
    ),
    *((kind, (IMAGE,), (("axes", axes),)) for kind in ("softmax", "log_softmax") for axes in ((1, 2), ())),
    ("layer_normalization", (IMAGE, X.shaped((3, 1, 1))), (("axes", (2, 3)), ("epsilon", 1e-5))),
    ("layer_normalization", (IMAGE, X.shaped(()), X.shaped((5, 4))), (("axes", (-1,)), ("epsilon", 1e-5))),
    ("batch_norm", (X, *(ROW,) * 4), (("epsilon", 1e-5),)),
    ("batch_norm_training", (X, ROW, ROW), (("epsilon", 1e-5),)),
    ("conv", (LINE, X.shaped((2, 4, 3))), (("groups", 1), *sweep(1))),
    ("conv", (CUBE, X.shaped((4, 1, 2, 2, 2)), X.shaped((4,))), (("groups", 2), *sweep(3))),
    ("conv", (TESSERACT, X.shaped((4, 1, 2, 2, 2, 2)), X.shaped((4,))), (("groups", 2), *sweep(4))),
    ("max_pool", (CUBE,), (("kernel", (2, 3, 2)), *sweep(3))),
    ("average_pool", (IMAGE,), (("count_pads", 1), ("kernel", (2, 2)), *SWEEP)),
    ("global_max_pool", (LINE,), ()),
    ("attention_bias", (*(TOKENS.shaped((4, 3, 12)),) * 3, BIAS.shaped((4, 4, 3, 3))), (("head_size", 3),)),
    ("attention_bias", (*(TOKENS.shaped((4, 3, 12)),) * 3, BIAS.shaped((1, 2, 3, 3))), (("head_size", 6),)),
    (
        "attention_bias",
        (*(TOKENS.shaped((4, 3, 12)),) * 3, BIAS.shaped((2, 2, 3, 3))),
        (("consecutive", 1), ("head_size", 6)),
    ),
    (
        "attention_bias",
        (*(TOKENS.shaped((4, 3, 12)),) * 3, BIAS.shaped((1, 2, 3, 3))),
        (("causal", 1), ("head_size", 6)),
    ),
    ("relu", (X,), (("keeps_output", 1),)),
]
"""Besides the examples: broadcasts, edges of axes, and windows with any number of axes."""


def run_in_torch(model: Distributed, given: Mapping[str, Array], *, by_autograd: bool) -> dict[str, Array]:
    """Return the gradients of the inputs that are weights: outputs of the program, or computed by autograd."""
    from tessel_core.execution.torch_operators import TORCH_OPERATORS, from_numpy, to_numpy

    program = model.program
    values = {
        value: from_numpy(given[piece.name], program.types[value].dtype) for value, piece in model.piece_of.items()
    }
    weights = {piece.name: values[value] for value, piece in model.piece_of.items() if model.role_of(piece).weight}
    for each in weights.values():
        each.requires_grad_(by_autograd)
    for op in program.ops:
        made = TORCH_OPERATORS[op.kind]([values[value] for value in op.inputs], dict(op.attributes))
        values.update(zip(op.outputs, made, strict=True))
    outputs = [values[value] for value in program.outputs]
    if not by_autograd:
        return {piece.name: to_numpy(each) for piece, each in zip(model.outputs, outputs, strict=True)}
    sum(each.sum() for each in outputs).backward()
    return {f"d.{name}": to_numpy(each.grad) for name, each in weights.items()}


def check(case: Case, low: float, used: slice = slice(None)) -> None:
    """Assert that the backward pass, whole or split, computes the gradients of autograd in NumPy and in PyTorch."""
    forward, given = trained(case, low, used)
    wanted = run_in_torch(forward, given, by_autograd=True)
    for split in (False, True):
        model = Gradients(split_weights=split)(forward)
        in_numpy = {piece.name: array for piece, array in model.run(given)}
        for found in (in_numpy, run_in_torch(model, given, by_autograd=False)):
            for name, right in wanted.items():
                assert found[name].shape == right.shape
                room = 1e-11 * max(1.0, np.abs(right).max(initial=0.0))
                np.testing.assert_allclose(found[name], right, rtol=0, atol=room, err_msg=f"{case[0]} {name}")


KINDS = [each.kind for each in OPERATORS.values() if each.gradient and not each.loss and each.kind != "opaque"]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd(kind: str) -> None:
    for low in (0.5,) if kind in ("batch_norm", "log", "pow", "sqrt") else (0.5, -4.0):
        check(example(kind), low)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_other_shapes_and_attributes(case: Case) -> None:
    check(case, 0.5)


@pytest.mark.parametrize("used", [slice(1), slice(1, 2), slice(1, 3)])
def test_parts_that_no_loss_depends_on(used: slice) -> None:
    check(("split", (X,), (("axis", -1), ("parts", 3))), 0.5, used)
    check(("split_at", (X,), (("axis", 1), ("sizes", (1, 3, 2)))), 0.5, used)


def test_zeros_do_no_harm() -> None:
    """Slopes of powers and products at 0 are finite, although quotients would not be."""
    whole = TensorType("int64", (4, 6), 1)
    for case in (("pow", (X, whole), ()), ("reduce_prod", (X,), (("axes", (1,)), ("keep", 0)))):
        forward, given = trained(case, 0.5)
        given["x0"][1, 2] = given["x0"][2, 3] = given["x0"][2, 4] = 0.0
        wanted = run_in_torch(forward, given, by_autograd=True)["d.x0"]
        found = {piece.name: array for piece, array in Gradients()(forward).run(given)}["d.x0"]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
