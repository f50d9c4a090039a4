"""Text from files and from errors, as it may stand on a page or in the name of a file."""

from __future__ import annotations

import re


def literal(text: str) -> str:
    """`text` with everything escaped that Streamlit's Markdown would act on.

    >>> literal("block F_0: *no*")
    'block F\\\\_0\\\\: \\\\*no\\\\*'
    """
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|$<>:~&])", r"\\\1", text)


def file_name(text: str) -> str:
    """`text` without what file systems do not like."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "plan"
