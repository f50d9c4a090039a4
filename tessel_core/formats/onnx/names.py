"""Names of operators, printable and unique, and their kinds in the field's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 160
"""Leaves room for a number in the 200 characters that a name may have."""


def printable(text: str, most: int = _LONGEST) -> str:
    """The first `most` characters with a question mark for what no terminal shows.

    >>> printable("layer\\n1")
    'layer?1'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])


def listed(names: Sequence[str]) -> str:
    """At most ten of them."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


class Names:
    """Hands out names, each once."""

    def __init__(self) -> None:
        self._taken = set[str]()
        self._next = dict[str, int]()

    def unique(self, wanted: str) -> str:
        """`wanted` where it is free, else with the first free number behind it."""
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
    """The kind of an operator.

    >>> [kind_of(each) for each in ("Gemm", "LayerNormalization", "ReduceSum", "LSTM", "PRelu")]
    ['matmul', 'layer_norm', 'reduce_sum', 'lstm', 'prelu']
    """
    return _WORDS.get(op_type) or _BORDER.sub("_", op_type).lower().replace("_normalization", "_norm")
