"""Sizes of GPTs as programs: the published ones, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.types import check_real


@dataclass(frozen=True, slots=True)
class GptSpec:
    """A decoder with learned positions, norms before each half of a layer, and an output projection of its own.

    Raises
    ------
    InputError
        For a size below 1, or a hidden size that the heads do not divide.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    """Tokens of a sample in training, and the most that have a position."""
    batch: int = 1
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocabulary", "sequence", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(name, f"must be a whole number of at least 1, got {value!r}")
        if self.hidden % self.heads:
            raise InputError("heads", f"hidden size {self.hidden} does not divide into {self.heads} equal heads")
        check_real(self.dtype)

    @property
    def head_size(self) -> int:
        """Numbers per token and head."""
        return self.hidden // self.heads

    @property
    def layer_parameters(self) -> int:
        """Four products of h x 3h, h x h, h x 4h and 4h x h, their biases, and two norms: 12 h² + 13 h."""
        return 12 * self.hidden**2 + 13 * self.hidden

    @property
    def parameters(self) -> int:
        """All; the embedding of tokens and the output projection are two tensors, where publications count one."""
        rows = 2 * self.vocabulary + self.sequence
        return self.layers * self.layer_parameters + (rows + 2) * self.hidden


VOCABULARY = 50_257
"""Tokens of GPT-2 and GPT-3 [Radford 2019, section 2.2]."""


def _gpt2(layers: int, hidden: int, heads: int) -> GptSpec:
    return GptSpec(layers, hidden, heads, VOCABULARY, sequence=1024)


def _gpt3(layers: int, hidden: int, heads: int) -> GptSpec:
    return GptSpec(layers, hidden, heads, VOCABULARY, sequence=2048)


GPT_SPECS = {
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "gpt3-125m": _gpt3(12, 768, 12),
    "gpt3-350m": _gpt3(24, 1024, 16),
    "gpt3-760m": _gpt3(24, 1536, 16),
    "gpt3-1.3b": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12_288, 96),
}
"""GPT-2 [Radford 2019, table 2] and GPT-3 [Brown 2020, table 2.1].  Of the latter's misprints: 1.3B has 16 heads of 128
where the table says 24, 13B is 40 heads of 128 = 5120 wide where it says 5140."""


def gpt_spec(name: str) -> GptSpec:
    """The published size of that name; InputError with the known names where there is none."""
    if name not in GPT_SPECS:
        raise InputError("model", f"{name!r} is not known, known are {', '.join(GPT_SPECS)}")
    return GPT_SPECS[name]
