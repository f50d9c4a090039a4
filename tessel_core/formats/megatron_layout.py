"""The layers of each pipeline stage as the string of Megatron-LM's `--pipeline-model-parallel-layout`.

E is the embedding, t a transformer layer, m a layer of multi-token prediction, and L the loss.  A bar | separates
stages.  *n repeats the letter or the group in parentheses before it.  Commas are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from tessel_core.errors import InputError

_TOKEN = re.compile(r"(?P<what>[EtmL|])(?:\*(?P<times>\d{1,9}))?|(?P<open>\()|\)\*(?P<repeat>\d{1,9})|(?P<comma>,)")
_MAX_LETTERS = 100_000
"""Largest number of letters and bars after repetition."""

_Letters = list[tuple[str, int]]
"""Letters and bars with their position in the text, from 1."""


def read_layout(text: str) -> tuple[str, ...]:
    """Return the letters of each stage, such as ("Ett", "tt", "tL").

    >>> read_layout("Et*2|(t*2|)*2,tL")
    ('Ett', 'tt', 'tt', 'tL')

    Raises InputError with the position in the text, from 1.
    """
    letters = _letters(text)
    _check_letters(letters, len(text))
    return tuple("".join(letter for letter, _ in letters).split("|"))


def layout_text(stages: Sequence[str]) -> str:
    """Return the layout string for the letters of each stage, with repetitions shortened.

    >>> layout_text(("Ett", "tt", "tt", "tL"))
    'Et*2|(t*2|)*2,tL'
    """
    shortened = ["".join(_times(letter, len(list(each))) for letter, each in groupby(stage)) for stage in stages]
    runs = [(f"{stage}|", len(list(each))) for stage, each in groupby(shortened[:-1])]
    return "".join(f"({stage})*{count}," if count > 1 else stage for stage, count in runs) + shortened[-1]


def _times(letter: str, count: int) -> str:
    return letter if count == 1 else f"{letter}*{count}"


def _letters(text: str) -> _Letters:
    """Return all letters and bars, with repetitions expanded."""
    letters, group, opened, at = _Letters(), _Letters(), 0, 0
    while at < len(text):
        match, here = _TOKEN.match(text, at), at + 1
        if match is None or (match["open"] and opened) or (match["repeat"] and not group):
            raise InputError(f"position {here}", _why_not(text[at:], opened))
        times = int(match["times"] or match["repeat"] or 1)
        if times < 1:
            raise InputError(f"position {here}", "repeats nothing: *0")
        if match["what"]:
            piece = [(match["what"], here)] * min(times, _MAX_LETTERS + 1)
            (group if opened else letters).extend(piece)
        elif match["open"]:
            opened = here
        elif match["repeat"]:
            letters += group * min(times, 1 + _MAX_LETTERS // len(group))
            group, opened = [], 0
        if len(letters) + len(group) > _MAX_LETTERS:
            raise InputError(f"position {here}", f"makes more than {_MAX_LETTERS:,} layers and stages")
        at = match.end()
    if opened:
        raise InputError(f"position {opened}", "this ( is never closed")
    return letters


def _why_not(rest: str, opened: int) -> str:
    letter = rest[0]
    if letter == "(":
        return "a group within a group is not allowed"
    if letter == ")":
        return (
            "closes a group and needs *n, a number, after it" if opened else "closes a group that is not open or empty"
        )
    return f"{letter!r} is none of E, t, m, L, |, (…)*n and t*n"


def _check_letters(letters: _Letters, end: int) -> None:
    """Raise InputError unless E is first, L is last, and no t follows an m."""
    inside = [each for each in letters if each[0] != "|"]
    if not inside or inside[0][0] != "E":
        raise InputError(f"position {inside[0][1] if inside else 1}", "the first layer must be E, the embedding")
    if inside[-1][0] != "L":
        raise InputError(f"position {end}", "the last layer must be L, the loss")
    for letter, position in inside[1:-1]:
        if letter in "EL":
            raise InputError(
                f"position {position}", f"a second {letter}; there is one, {'first' if letter == 'E' else 'last'}"
            )
    predicting = [position for letter, position in inside if letter == "m"]
    if predicting and (late := [position for letter, position in inside if letter == "t" and position > predicting[0]]):
        raise InputError(
            f"position {late[0]}", "a transformer layer, t, may not follow one of multi-token prediction, m"
        )
