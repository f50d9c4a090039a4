"""What operators are called: the field's words, one for each thing, in lower snake case."""

from __future__ import annotations

import re

_WORDS = {
    "Gemm": "matmul",
    "MatMul": "matmul",
    "MatMulInteger": "matmul",
    "QLinearMatMul": "matmul",
    "ConvInteger": "conv",
    "QLinearConv": "conv",
    "PRelu": "prelu",
}
_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

OUTPUT = "output"
"""One of several outputs of an operator: no work, beside the operator that makes it."""


def kind_of(op_type: str, *, on_weights: bool) -> str:
    """The kind of an operator; `on_weights` says that what it looks things up in is a weight.

    >>> [kind_of(each, on_weights=False) for each in ("Gemm", "LayerNormalization", "ReduceSum", "LSTM", "PRelu")]
    ['matmul', 'layer_norm', 'reduce_sum', 'lstm', 'prelu']
    >>> kind_of("Gather", on_weights=True)
    'embedding'
    """
    if op_type == "Gather" and on_weights:
        return "embedding"
    return _WORDS.get(op_type) or _BORDER.sub("_", op_type).lower().replace("_normalization", "_norm")
