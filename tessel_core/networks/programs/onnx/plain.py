"""Rules of products and of operators that go element by element or look along axes; defaults as ONNX has them."""

from __future__ import annotations

import math

from tessel_core.networks.programs.onnx.use import Rule, Said, Use, steered_axes

_SAME_INPUTS = {
    **{name: name.lower() for name in ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Not", "Equal", "Less")},
    **{name: name.lower() for name in ("Greater", "Relu", "Tanh", "Sigmoid", "Erf", "Sqrt", "Exp", "Log", "Neg")},
    **{name: name.lower() for name in ("Abs", "Sign", "Floor", "Ceil", "Round", "Sin", "Cos", "Reciprocal")},
    **{name: name.lower() for name in ("Softplus", "Softsign", "Mish", "Where", "Max", "Min", "MatMul")},
    "Sum": "add",
    "PRelu": "prelu",
    "HardSwish": "hard_swish",
    "GreaterOrEqual": "greater_or_equal",
    "LessOrEqual": "less_or_equal",
    "GlobalAveragePool": "global_average_pool",
    "GlobalMaxPool": "global_max_pool",
}
"""Operators whose inputs are those of an operation, without attributes."""

_REDUCTIONS = {
    "ReduceSum": "reduce_sum",
    "ReduceMean": "reduce_mean",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceL2": "reduce_l2",
    "ReduceSumSquare": "reduce_sum_square",
}
_SOFTMAX_OF_ONE_AXIS = 13
"""Before this opset, softmax is over all axes from one on, the second by default."""
_CLIP_BY_INPUTS = 11
_SPATIAL = 9
"""Before this opset, a batch normalization may have statistics for every place."""


def _same(kind: str) -> Rule:
    return lambda use: use.say(kind)


def _gelu(use: Use) -> Said | None:
    return use.say("gelu" if use.text("approximate", "none") == "tanh" else "gelu_erf")


def _clip(use: Use) -> Said | None:
    if use.opset < _CLIP_BY_INPUTS:
        return use.say("clip", 1, low=use.number("min", -math.inf), high=use.number("max", math.inf))
    if use.is_unknown(1) or use.is_unknown(2):
        return None
    low, high = use.node.arguments.get(1, (-math.inf,)), use.node.arguments.get(2, (math.inf,))
    return use.say("clip", 1, low=low[0], high=high[0])


def _softmax(kind: str) -> Rule:
    def said(use: Use) -> Said | None:
        rank = len(use.shape)
        one_axis = use.opset >= _SOFTMAX_OF_ONE_AXIS
        axis = use.integer("axis", -1 if one_axis else 1) % max(rank, 1)
        return use.say(kind, axes=(axis,) if one_axis else tuple(range(axis, rank)))

    return said


def _reduction(kind: str) -> Rule:
    def said(use: Use) -> Said | None:
        axes = steered_axes(use, 1)
        if use.is_unknown(1) or (not axes and use.integer("noop_with_empty_axes", 0)):
            return None
        rank = len(use.shape)
        named = tuple(axis % rank for axis in axes) if axes else tuple(range(rank))
        return use.say(kind, 1, axes=named, keep=use.integer("keepdims", 1))

    return said


def _layer_norm(use: Use) -> Said | None:
    rank = len(use.shape)
    axis = use.integer("axis", -1) % max(rank, 1)
    epsilon = use.number("epsilon", 1e-5)
    return use.say("layer_normalization", axes=tuple(range(axis, rank)), epsilon=epsilon) if use.makes_one else None


def _batch_norm(use: Use) -> Said | None:
    per_place = use.opset < _SPATIAL and not use.integer("spatial", 1)
    if not use.makes_one or use.integer("training_mode", 0) or per_place:
        return None
    return use.say("batch_norm", 5, epsilon=use.number("epsilon", 1e-5))


def _gemm(use: Use) -> Said | None:
    return use.say(
        "gemm",
        alpha=use.number("alpha", 1.0),
        beta=use.number("beta", 1.0),
        trans_a=use.integer("transA", 0),
        trans_b=use.integer("transB", 0),
    )


def _cast(use: Use) -> Said | None:
    return use.say("cast", 1, dtype=use.network.tensors[use.node.outputs[0]].dtype)


PLAIN: dict[str, Rule] = {
    **{name: _same(kind) for name, kind in _SAME_INPUTS.items()},
    **{name: _reduction(kind) for name, kind in _REDUCTIONS.items()},
    "Gelu": _gelu,
    "LeakyRelu": lambda use: use.say("leaky_relu", alpha=use.number("alpha", 0.01)),
    "Elu": lambda use: use.say("elu", alpha=use.number("alpha", 1.0)),
    "HardSigmoid": lambda use: use.say("hard_sigmoid", alpha=use.number("alpha", 0.2), beta=use.number("beta", 0.5)),
    "Clip": _clip,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "Cast": _cast,
    "CastLike": _cast,
}
