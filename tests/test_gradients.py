"""Derived gradients equal finite differences, for each operator and each network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.gradients import check_gradients, example, trained
from helpers.programs import gpt_inputs, random_inputs, same_meaning, small_gpt, spread
from helpers.training import gpt_training

from tessel_core.errors import InputError
from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.program import Attributes, AttributeValue
from tessel_core.ir.transforms.checkpoint import Recompute, recomputing
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.types import TensorType
from tessel_core.ir.verify import verify
from tessel_core.networks.gpt import gpt_forward, gpt_inference
from tessel_core.networks.mlp import MlpSpec, mlp_forward

POSITIVE = {"batch_norm", "log", "pow", "sqrt"}
"""Operators that are undefined, or have no slope, at negative inputs."""


KINDS = [each.kind for each in OPERATORS.values() if each.gradient and not each.loss and each.kind != "opaque"]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_differences(kind: str) -> None:
    """Inputs are positive, or on both sides of each kink of the piecewise functions."""
    for low in (0.5,) if kind in POSITIVE else (0.5, -4.0):
        check_gradients(*trained(example(kind), low))


_TOKENS, _BIAS = TensorType("fp64", (4, 3, 12), 1), TensorType("fp64", (2, 2, 3, 3), 1)

_SHARED = _TOKENS, _TOKENS.shaped((4, 5, 6)), _TOKENS.shaped((4, 5, 8))
"""Inputs of attention with four query heads of size four, and two heads of keys and values."""


@pytest.mark.parametrize(
    ("kind", "types", "attributes"),
    [
        ("relu", (_TOKENS,), (("keeps_output", 1),)),
        ("attention_bias", (*(_TOKENS,) * 3, _BIAS), (("causal", 1), ("head_size", 6))),
        ("attention_bias", (*(_TOKENS,) * 3, _BIAS), (("consecutive", 1), ("head_size", 6))),
        ("attention", _SHARED, (("cap", 2.0), ("causal", 1), ("head_size", 3), ("window", 2))),
        ("attention", _SHARED, (("causal", 0), ("head_size", 3))),
        ("attention", _SHARED, (("causal", 1), ("head_size", 3), ("rate", 0.25), ("seed", 1))),
        ("masked_softmax", (_BIAS,), (("causal", 1), ("scale", 2.0), ("window", 2))),
        ("route", (_TOKENS,), (("normed", 1), ("scale", 1.0), ("score", "softmax"), ("top", 3))),
        ("route", (_TOKENS,), (("normed", 0), ("scale", 1.0), ("score", "softmax"), ("top", 3))),
        ("rotary", (_TOKENS,), (("at", 3), ("base", 10.0), ("first", 2), ("head_size", 6), ("size", 4))),
    ],
)
def test_gradients_with_optional_attributes(kind: str, types: tuple[TensorType, ...], attributes: Attributes) -> None:
    check_gradients(*trained((kind, types, attributes), -4.0))


def test_consecutive_entries_of_a_batch_share_a_bias() -> None:
    draw = np.random.default_rng(2)
    q, k, v, bias = (draw.normal(size=each.shape) for each in (*(_TOKENS,) * 3, _BIAS))
    attend = OPERATORS["attention_bias"].compute
    (found,) = attend([q, k, v, bias], {"consecutive": 1, "head_size": 6})
    for i in range(2):
        half = slice(2 * i, 2 * i + 2)
        (part,) = attend([q[half], k[half], v[half], bias[i : i + 1]], {"head_size": 6})
        np.testing.assert_allclose(found[half], part)


def test_gradients_of_whole_networks_are_finite_differences() -> None:
    gpt = small_gpt(2, 2, "fp64")
    forward = gpt_forward(gpt)
    check_gradients(forward, gpt_inputs(forward, gpt, 3))
    forward = mlp_forward(MlpSpec(3, 6, 4, "fp64"))
    check_gradients(forward, random_inputs(forward, 3), also=("x",))


def convolutions(batch: int) -> Distributed:
    """Return a small image network that reshapes, pads, slices and reduces on the way to its loss."""
    net = Definition("convolutions")
    steps: dict[str, AttributeValue] = {"dilations": (1, 1), "pads": (1, 1, 1, 1), "strides": (1, 1)}
    x = net.input("x", "fp64", (batch, 2, 6, 6))
    x = net("conv", "conv", x, net.weight("kernel", "fp64", (4, 2, 3, 3)), groups=1, **steps)
    channels = [net.weight(name, "fp64", (4, 1, 1)) for name in ("slope", "factor")]
    x = net("times", "mul", net("prelu", "prelu", x, channels[0]), channels[1])
    pooled = net("pool", "max_pool", net("silu", "silu", x), kernel=(2, 2), **{**steps, "strides": (2, 2)})
    smooth = net("smooth", "average_pool", pooled, count_pads=0, kernel=(3, 3), **steps)
    x = net("joined", "concat", net("padded", "pad", pooled, pads=(0, 1, 0, 0) + (0,) * 4, value=0.5), smooth, axis=1)
    x = net("columns", "transpose", x, axes=(0, 2, 3, 1))
    _, x = net.all("half", "split", x, axis=1, parts=2)
    rows = net("rows", "reshape", net("cut", "slice", x, axis=2, index=1, parts=2), shape=(0, -1))
    size = net.type_of(rows).shape[1]
    y = net(
        "out",
        "gemm",
        rows,
        net.weight("w", "fp64", (5, size)),
        net.weight("b", "fp64", (5,)),
        alpha=1.0,
        beta=0.5,
        trans_a=0,
        trans_b=1,
    )
    y = net("norm", "rms_norm", y, net.weight("scale", "fp64", (5,)))
    peak = net("peak", "reduce_max", x, axes=(1, 2), keep=0)
    mean = net("mean", "reduce_mean", peak, axes=(1,), keep=1)
    y = net("roll", "roll", net("sub", "sub", y, mean), axes=(1,), shifts=(2,))
    z, n = net.input("z", "fp64", (batch, 5)), net.input("n", "int32", (), Role())
    return net.finish({"loss": net("loss", "loss", y, z, n)})


@pytest.mark.parametrize("split", [False, True])
def test_gradients_of_convolutions_hold_for_any_share_of_the_batch(split: bool) -> None:
    """No attribute of a gradient contains the number of samples, so replicas and micro-batches may have fewer."""
    forward = convolutions(8)
    given = random_inputs(forward, 2)
    check_gradients(forward, given, also=("x",))
    whole = Gradients(split_weights=split)(forward)
    same_meaning(whole, spread(whole, 2, 1, 1, 2), given, 1e-9)


@pytest.mark.parametrize(("data", "tensor", "stages"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 3, 2), (2, 2, 2)])
@pytest.mark.parametrize("recompute", Recompute)
def test_split_gradients_mean_the_same(data: int, tensor: int, stages: int, recompute: Recompute) -> None:
    """Also with recomputation, cut tensors and several stages."""
    spec = small_gpt(4, 4, "fp64")
    whole, split = gpt_training(spec), Gradients(split_weights=True)(gpt_forward(spec))
    verify(split.program)
    given = gpt_inputs(whole, spec, 5)
    same_meaning(whole, split, given, 1e-12)
    changed = spread(recomputing(recompute, split), data, tensor, stages, 2)
    same_meaning(whole, changed, given, 1e-9)


def test_split_gradients_are_apart() -> None:
    """Each weight gradient of a product is in the phase for which nothing waits.

    It costs half of the whole gradient.
    """
    program = Gradients(split_weights=True)(gpt_forward(small_gpt(2, 2))).program
    made = {value: op for op in program.ops for value in op.outputs}
    weights = [op for op in program.ops if op.tag.phase == "weight"]
    assert {op.kind for op in weights} == {"matmul_weight_grad", "bias_grad", "embedding_grad"}
    for op in program.ops:
        phases = {made[value].tag.phase for value in op.inputs if value in made}
        assert "weight" not in phases, op.kind
    for op in weights:
        assert op.tag.name.startswith(("layer", "head", "embedding"))


def test_a_value_that_is_used_twice_has_the_sum() -> None:
    net = Definition("twice")
    x = net.input("x", "fp64", (3, 4))
    w = net.weight("w", "fp64", (4, 4))
    y = net("b", "matmul", net("a", "matmul", x, w), w)
    loss = net("loss", "loss", y, net.input("z", "fp64", (3, 4)), net.input("n", "int32", ()))
    forward = net.finish({"loss": loss})
    check_gradients(forward, random_inputs(forward, 1), also=("x",))
    split = Gradients(split_weights=True)(forward).program
    assert [op.tag.phase for op in split.ops if op.kind == "add"] == ["weight"]


def test_what_cannot_be_trained_is_refused() -> None:
    spec = small_gpt(1, 2)
    for model, sentence in (
        (gpt_inference(spec), "operation 17 (matmul) returns an output that is not a loss, so its gradient is unknown"),
        (
            gpt_training(spec),
            "gradients: must be the first transform, because they need the forward pass of one device",
        ),
    ):
        with pytest.raises(InputError) as error:
            Gradients()(model)
        assert sentence in str(error.value)
    net = Definition("odd")
    w = net.weight("w", "fp32", (2, 3))
    y = net("floor", "floor", w)
    z, n = net.input("z", "fp32", (2, 3)), net.input("n", "int32", ())
    forward = net.finish({"loss": net("loss", "loss", y, z, n)})
    with pytest.raises(InputError) as error:
        Gradients()(forward)
    assert (
        str(error.value)
        == "program odd: operation 0 (floor of floor) has no gradient rule, so the program cannot be trained"
    )
    unused = replace(
        forward, roles={**forward.roles, "z": replace(forward.roles["z"], weight=True), "w": forward.roles["n"]}
    )
    with pytest.raises(InputError) as error:
        Gradients()(unused)
    assert "no loss depends on z" in str(error.value)


def test_gradients_keep_the_names_of_their_operators() -> None:
    program = gpt_training(small_gpt(2, 2)).program
    forward = {op.tag.name for op in program.ops if op.tag.phase == "forward"}
    assert {op.tag.name for op in program.ops} == forward
    assert "layer1/mlp/down" in forward
    assert np.all([op.tag.name for op in program.ops])
