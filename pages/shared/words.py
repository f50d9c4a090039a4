"""Text from files and from errors, said literally: no markup, no links, no formulas."""

from __future__ import annotations

import re


def literal(text: str) -> str:
    """`text` with everything escaped that Streamlit's Markdown would act on.

    >>> literal("block F_0: *no*")
    'block F\\\\_0\\\\: \\\\*no\\\\*'
    """
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|$<>:~&])", r"\\\1", text)
