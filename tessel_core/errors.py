"""The two kinds of bad news that raise: wrong input, and a bug of ours.  "No answer" is a `Status` instead."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """Something a user gave us is wrong; says where and why in one sentence.

    >>> str(InputError("block F0", "duration must be at least 1, got 0"))
    'block F0: duration must be at least 1, got 0'
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, ...]]:
        """From another process it comes back whole."""
        return InputError, (self.where, self.why)

    def within(self, place: str) -> "InputError":
        """The same complaint, with the place that contains it named first."""
        return InputError(f"{place}: {self.where}", self.why)


def find(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry called `name`; InputError with the known names where there is none."""
    if name not in table:
        raise InputError(what, f"{name!r} is not known, known are {', '.join(table)}")
    return table[name]


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """What to say of an unknown name: which of the known ones it is near, else something that helps in any case."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known))
    return f"did you mean {' or '.join(close)}?" if close else otherwise


class RefereeError(AssertionError):
    """A solver of ours returned a solution that breaks a rule: always our bug, never hidden."""
