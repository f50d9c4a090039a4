"""Exceptions for wrong input and for bugs in solvers.  A search without a result returns a `Status` instead."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """Input from the user is wrong.  The message names the place and the reason in one sentence.

    >>> str(InputError("block F0", "duration must be at least 1, got 0"))
    'block F0: duration must be at least 1, got 0'
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, ...]]:
        """Pickle both arguments, so that the error can pass between processes."""
        return InputError, (self.where, self.why)

    def within(self, place: str) -> "InputError":
        """Return this error with the containing `place` named first."""
        return InputError(f"{place}: {self.where}", self.why)


def find(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry called `name`.  Raises InputError with the known names if there is none."""
    if name not in table:
        raise InputError(what, f"{name!r} is not known, choose from {', '.join(table)}")
    return table[name]


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint for an unknown name: the most similar known names, or `otherwise` if none is similar."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known))
    return f"did you mean {' or '.join(close)}?" if close else otherwise


class RefereeError(AssertionError):
    """A built-in solver returned a solution that breaks a rule.  This is always a bug, so nothing catches it."""
