"""An example of every operator: types of its inputs, and attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.operators.arrays import NUMPY_TYPES
from tessel_core.ir.operators.elementwise import BINARY, BINARY_GRADIENTS, UNARY
from tessel_core.ir.operators.functions import FUNCTION_GRADIENTS
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Attributes
from tessel_core.ir.types import TensorType

X = TensorType("fp32", (4, 6), 1)
TOKENS = TensorType("fp32", (2, 5, 12), 1)
COUNT = TensorType("int32", (), 1)
HEADS = (("causal", 1), ("head_size", 3))
BITS = TensorType("bool", (4, 6), 1)
IMAGE = TensorType("fp32", (2, 3, 5, 4), 1)
SWEEP = (("dilations", (2, 1)), ("pads", (1, 0, 0, 1)), ("strides", (1, 2)))
POOLED = IMAGE.shaped((2, 3, 4, 2))
WINDOW = (("kernel", (2, 2)), *SWEEP)
KERNEL, CONVOLVED = X.shaped((6, 1, 2, 3)), X.shaped((2, 6, 4, 2))
CHANNELS = X.shaped((3,))
STRIDES = (("axes", (1, 0)), ("counts", (2, 1)), ("starts", (5, 2)), ("steps", (-3, 1)))
BIAS = X.shaped((2, 4, 3, 5))
SCORES = X.shaped((2, 4, 3, 5))
SOFTMAX = (("causal", 1), ("scale", 0.5))
ADAM = (("beta1", 0.9), ("beta2", 0.99), ("epsilon", 1e-8), ("masters", 0), ("rate", 0.1))
CHOICE, EXPERTS = TensorType("int32", (4, 2), 1), X.shaped((4, 6, 5))
ROUTE = (("normed", 1), ("scale", 2.5), ("score", "sigmoid"), ("top", 2))
ROWS, EXCHANGE = (X.shaped((8, 6)), CHOICE), (("experts", 4),)
VARYING_ROWS = ("exchange_choice", "exchange_rows", "return_rows")
"""Operators whose number of rows per device depends on the routing; the sum over devices is as in their types."""

CLASSES, PART = TensorType("int32", (4,), 1), (("index", 1), ("parts", 2))
CHUNK, CHUNK_LOGS = TOKENS.shaped((2, 4, 12)), TOKENS.shaped((2, 4, 4))
BLOCK = (("causal", 1), ("head_size", 3), *PART, ("step", 0))
WITH_STATISTICS = ("adam", "attention_merge", "attention_block_grad", "vocabulary_loss_grad")
"""Operators with fp32 inputs beside inputs of lower precision."""

Examples = dict[str, tuple[tuple[TensorType, ...], Attributes]]


def with_gradient(kind: str, attributes: Attributes) -> Examples:
    """Return examples of a function of one tensor and of the operator of its gradient."""
    return {kind: ((X,), attributes), f"{kind}_grad": ((X, X), attributes)}


EXAMPLES: Examples = {
    "identity": ((X,), ()),
    "add": ((X, X), ()),
    "accumulate": ((X, X), ()),
    "add_in_place": ((X, X), ()),
    "after": ((X, BITS), ()),
    "concat": ((X, X, X), (("axis", 1),)),
    "split": ((X,), (("axis", 1), ("parts", 3))),
    "chunk": ((X,), (("axis", 0), ("parts", 2))),
    "gate": ((X, X), ()),
    "gate_grad": ((X, X, X), ()),
    "part": ((X,), (("axis", 0), ("index", 1), ("parts", 2))),
    "slice": ((X,), (("axis", 0), ("index", 1), ("parts", 2))),
    "matmul": ((X, TensorType("fp32", (6, 5), 1)), ()),
    "matmul_transposed": ((X, TensorType("fp32", (5, 6), 1)), ()),
    "matmul_transposed_grad": ((X, TensorType("fp32", (5, 6), 1), TensorType("fp32", (4, 5), 1)), ()),
    "matmul_grad": ((X, TensorType("fp32", (6, 5), 1), TensorType("fp32", (4, 5), 1)), ()),
    "matmul_input_grad": ((TensorType("fp32", (6, 5), 1), TensorType("fp32", (4, 5), 1)), ()),
    "matmul_weight_grad": ((X, TensorType("fp32", (6, 5), 1), TensorType("fp32", (4, 5), 1)), ()),
    "relu": ((X,), ()),
    "relu_grad": ((X, X), ()),
    "loss": ((X, X, TensorType("int32", (), 1)), ()),
    "loss_grad": ((X, X, TensorType("int32", (), 1)), ()),
    "sgd": ((X, X, X, X), (("rate", 0.1),)),
    "linear": ((X, TensorType("fp32", (6, 5), 1), TensorType("fp32", (5,), 1)), ()),
    "residual": ((X, X, X.shaped((6,))), ()),
    "bias": ((X, X.shaped((6,))), ()),
    "bias_grad": ((X,), (("axes", 1),)),
    "gelu": ((X,), ()),
    "gelu_grad": ((X, X), ()),
    "layer_norm": ((X, X.shaped((6,)), X.shaped((6,))), ()),
    "layer_norm_grad": ((X, X.shaped((6,)), X), ()),
    "embedding": ((X, TensorType("int32", (2, 3), 1)), ()),
    "embedding_grad": ((X, TensorType("int32", (2, 3), 1), X.shaped((2, 3, 6))), ()),
    "cross_entropy": ((X, TensorType("int32", (4,), 1), COUNT), ()),
    "cross_entropy_grad": ((X, TensorType("int32", (4,), 1), COUNT), ()),
    "attention": ((TOKENS.shaped((2, 3, 12)), TOKENS, TOKENS), HEADS),
    "attention_grad": ((TOKENS.shaped((2, 3, 12)), TOKENS, TOKENS, TOKENS.shaped((2, 3, 12))), HEADS),
    "attention_bias": ((TOKENS.shaped((4, 3, 12)), *(TOKENS.shaped((4, 5, 12)),) * 2, BIAS), HEADS[1:]),
    "attention_bias_grad": (
        (TOKENS.shaped((4, 3, 12)), *(TOKENS.shaped((4, 5, 12)),) * 2, BIAS, TOKENS.shaped((4, 3, 12))),
        HEADS[1:],
    ),
    "attention_scores": ((TOKENS.shaped((2, 3, 12)), TOKENS.shaped((2, 5, 6))), HEADS[1:]),
    "attention_scores_grad": ((TOKENS.shaped((2, 3, 12)), TOKENS.shaped((2, 5, 6)), SCORES), HEADS[1:]),
    "masked_softmax": ((SCORES,), SOFTMAX),
    "masked_softmax_grad": ((SCORES, SCORES), SOFTMAX),
    "attention_context": ((SCORES, TOKENS.shaped((2, 5, 6))), HEADS[1:]),
    "attention_context_grad": ((SCORES, TOKENS.shaped((2, 5, 6)), TOKENS.shaped((2, 3, 12))), HEADS[1:]),
    "dropout": ((TOKENS,), (("rate", 0.25), ("seed", 3))),
    "dropout_grad": ((TOKENS, TensorType("uint8", (2, 5, 12), 1)), (("rate", 0.25), ("seed", 3))),
    "rotary": ((TOKENS,), (("at", 2), ("base", 100.0), ("head_size", 6))),
    "route": ((X,), ROUTE),
    "route_grad": ((X, TensorType("int32", (4, 2), 1), X.shaped((4, 2))), ROUTE),
    "dispatch": ((X, CHOICE), ()),
    "dispatch_grad": ((CHOICE, X.shaped((8, 6))), ()),
    "combine": ((X.shaped((8, 6)), CHOICE, X.shaped((4, 2))), ()),
    "combine_grad": ((X.shaped((8, 6)), CHOICE, X.shaped((4, 2)), X), ()),
    "grouped_matmul": ((X.shaped((8, 6)), CHOICE, EXPERTS), ()),
    "grouped_matmul_grad": ((X.shaped((8, 6)), CHOICE, EXPERTS, X.shaped((8, 5))), ()),
    "grouped_matmul_input_grad": ((EXPERTS, CHOICE, X.shaped((8, 5))), ()),
    "grouped_matmul_weight_grad": ((X.shaped((8, 6)), CHOICE, EXPERTS, X.shaped((8, 5))), ()),
    "unpack_qkv": ((TOKENS,), (("head_size", 2),)),
    "pack_qkv": ((TOKENS, TOKENS, TOKENS), (("head_size", 4),)),
    "vocabulary_scores": ((X, CLASSES), PART),
    "vocabulary_loss": ((X, COUNT), (("dtype", "fp32"),)),
    "vocabulary_loss_grad": ((X, CLASSES, X, COUNT), PART),
    "attention_block": ((CHUNK,) * 3, BLOCK),
    "attention_merge": ((CHUNK, CHUNK_LOGS) * 2, ()),
    "attention_block_grad": ((*(CHUNK,) * 4, CHUNK_LOGS, CHUNK), BLOCK),
    "write": ((TOKENS, TOKENS.shaped((2, 2, 12))), (("at", 3), ("axis", 1))),
    "adam": ((*(X, X.shaped((3,))) * 4, COUNT), ADAM),
    "send": ((X,), (("to", 2),)),
    "allreduce": (tuple(X.on(d) for d in (1, 2, 3)), ()),
    "allgather": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 0),)),
    "allgather_in_place": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 0),)),
    "alltoall": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 1), ("joined", 0))),
    "shift": (tuple(X.on(d) for d in (1, 2, 3)), ()),
    "exchange_choice": ((CHOICE, CHOICE.on(2)), EXCHANGE),
    "exchange_rows": ((*ROWS, *(each.on(2) for each in ROWS)), EXCHANGE),
    "return_rows": ((*ROWS, *(each.on(2) for each in ROWS)), EXCHANGE),
    "reduce_scatter": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 1),)),
    "broadcast": ((X,), (("devices", (1, 2, 5)),)),
    "scatter": ((X,), (("axis", 0), ("devices", (2, 3)))),
    "gather": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 0), ("to", 1))),
    "reduce": (tuple(X.on(d) for d in (1, 2, 3)), (("to", 2),)),
    "block": ((X,), (("bytes", (3, 0)), ("devices", (1,)), ("on", (1, 1)), ("seconds", 0.5))),
    "delay": ((X,), (("seconds", 0.25), ("to", 2))),
    **dict.fromkeys((each.kind for each in UNARY), ((X,), ())),
    **dict.fromkeys((each.kind for each in FUNCTION_GRADIENTS), ((X, X), ())),
    **dict.fromkeys((each.kind for each in BINARY), ((X, X.shaped((6,))), ())),
    **dict.fromkeys((each.kind for each in BINARY_GRADIENTS), ((X, X.shaped((6,)), X), ())),
    **dict.fromkeys(("and", "or", "xor"), ((BITS, BITS.shaped((6,))), ())),
    **dict.fromkeys(("softmax", "log_softmax"), ((X,), (("axes", (1,)),))),
    **dict.fromkeys(("softmax_grad", "log_softmax_grad"), ((X, X), (("axes", (1,)),))),
    **{
        name: ((IMAGE, X.shaped((2, 5)))[: 1 + name.endswith("_grad")], (("axes", (1, -1)), ("keep", 0)))
        for name in OPERATORS
        if name.startswith("reduce_") and name != "reduce_scatter"
    },
    **dict.fromkeys(("global_average_pool", "global_max_pool"), ((IMAGE,), ())),
    **dict.fromkeys(("transpose", "permute"), ((X,), (("axes", (1, 0)),))),
    "not": ((BITS,), ()),
    **with_gradient("leaky_relu", (("alpha", 0.1),)),
    **with_gradient("elu", (("alpha", 0.5),)),
    **with_gradient("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
    **with_gradient("clip", (("high", float("inf")), ("low", 0.75))),
    "scale": ((X,), (("by", -1.5),)),
    "roll": ((X,), (("axes", (1, 0)), ("shifts", (-2, 3)))),
    "where": ((BITS, X, X.shaped((6,))), ()),
    "cast": ((X,), (("dtype", "int64"),)),
    "reshape": ((IMAGE,), (("shape", (0, -1, 4)),)),
    "expand": ((X,), (("shape", (3, 1, 6)),)),
    "take": ((X, TensorType("int64", (2, 3), 1)), (("axis", 0),)),
    "take_grad": ((TensorType("int64", (2, 3), 1), X.shaped((2, 3, 6))), (("axis", 0), ("size", 4))),
    "strided_slice": ((X,), STRIDES),
    "strided_slice_grad": ((X.shaped((1, 2)),), (*STRIDES, ("sizes", (6, 4)))),
    "split_at": ((X,), (("axis", 1), ("sizes", (1, 3, 2)))),
    "pad": ((X,), (("pads", (0, 1, 2, 3)), ("value", 1.5))),
    "layer_normalization": ((X, X.shaped((6,)), X.shaped((6,))), (("axes", (1,)), ("epsilon", 1e-6))),
    "layer_normalization_grad": ((X, X.shaped((6,)), X), (("axes", (1,)), ("epsilon", 1e-6))),
    "rms_norm": ((X, X.shaped((6,))), ()),
    "rms_norm_grad": ((X, X.shaped((6,)), X), ()),
    "batch_norm": ((IMAGE, *(CHANNELS,) * 4), (("epsilon", 1e-5),)),
    "batch_norm_grad": ((IMAGE, *(CHANNELS,) * 4, IMAGE), (("epsilon", 1e-5),)),
    "batch_norm_training": ((IMAGE, CHANNELS, CHANNELS), (("epsilon", 1e-5),)),
    "batch_norm_training_grad": ((IMAGE, CHANNELS, IMAGE), (("epsilon", 1e-5),)),
    "conv": ((IMAGE, KERNEL, X.shaped((6,))), (("groups", 3), *SWEEP)),
    "conv_grad": ((IMAGE, KERNEL, CONVOLVED), (("groups", 3), *SWEEP)),
    "conv_input_grad": ((KERNEL, CONVOLVED), (("groups", 3), *SWEEP, ("sizes", (5, 4)))),
    "conv_weight_grad": ((IMAGE, CONVOLVED), (("groups", 3), ("kernel", (2, 3)), *SWEEP)),
    "max_pool": ((IMAGE,), WINDOW),
    "max_pool_grad": ((IMAGE, POOLED), WINDOW),
    "average_pool": ((IMAGE,), (("count_pads", 0), *WINDOW)),
    "average_pool_grad": ((POOLED,), (("count_pads", 0), *WINDOW, ("sizes", (5, 4)))),
    "gemm": (
        (X.shaped((6, 4)), X.shaped((5, 6)), X.shaped((5,))),
        (("alpha", 2.0), ("beta", 0.5), ("trans_a", 1), ("trans_b", 1)),
    ),
    "opaque": (
        (X,),
        (
            ("bytes", 9.0),
            ("dtypes", "fp32 int64"),
            ("flops", 3.0),
            ("operator", "top_k"),
            ("ranks", (2, 0)),
            ("sizes", (4, 2)),
            ("to", 1),
        ),
    ),
}


def drawn(types: Sequence[TensorType], seed: int) -> list[Array]:
    """Draw positive numbers; integers are 1 … 3, so that they are also valid as rows and counts."""
    draw = np.random.default_rng(seed)
    return [
        draw.integers(1, 4, each.shape, NUMPY_TYPES[each.dtype])  # type: ignore[arg-type]
        if each.dtype.startswith("int")
        else draw.uniform(0.5, 2, each.shape).astype(NUMPY_TYPES[each.dtype])
        for each in types
    ]
