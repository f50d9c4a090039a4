"""Printable and unique names of operators, and names of their kinds."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_BASE_CHARACTERS = 160
"""Longest name before a number is appended. With the number, a name may have 200 characters."""


def printable(text: str, most: int = _MAX_BASE_CHARACTERS) -> str:
    """Return the first `most` characters, with question marks for unprintable ones.

    >>> printable("layer\\n1")
    'layer?1'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])


def listed(names: Sequence[str]) -> str:
    """Join at most ten names, and count the others."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


class Names:
    """Makes unique names."""

    def __init__(self) -> None:
        self._taken = set[str]()
        self._next = dict[str, int]()

    def unique(self, wanted: str) -> str:
        """Return `wanted`, with a number appended if it was used before."""
        base = printable(wanted)
        name = base
        while name in self._taken:
            self._next[base] = self._next.get(base, 1) + 1
            name = f"{base}_{self._next[base]}"
        self._taken.add(name)
        return name


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


def kind_of(op_type: str) -> str:
    """Return the kind of an ONNX operator in operator graphs.

    >>> [kind_of(each) for each in ("Gemm", "LayerNormalization", "ReduceSum", "LSTM", "PRelu")]
    ['matmul', 'layer_norm', 'reduce_sum', 'lstm', 'prelu']
    """
    return _WORDS.get(op_type) or _BORDER.sub("_", op_type).lower().replace("_normalization", "_norm")
