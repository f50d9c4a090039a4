"""Names of operators: what the file calls them, made printable and unique."""

from __future__ import annotations

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
