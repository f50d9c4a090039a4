"""Names from files, as text that a figure shows literally."""

from __future__ import annotations

import html


def plain(name: str, longest: int = 18) -> str:
    """`name` without markup and not longer than fits an axis.

    >>> plain("<b>gpu0</b>")
    '&lt;b&gt;gpu0&lt;/b&gt;'
    >>> plain("a-very-long-device-name")
    'a-very-long-devic…'
    """
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return html.escape(short)
