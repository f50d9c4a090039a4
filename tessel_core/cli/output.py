"""Printing for people and for programs, and the options for both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tessel_core.errors import InputError
from tessel_core.options import OptionError, check_options, config_having

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[Path | None, typer.Option("--out", help="File to write; nothing is written without a solution.")]


def print_json(document: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_notes(where: str, notes: Sequence[str]) -> None:
    """Notes that go with the answer, a line each on stderr."""
    for note in notes:
        sys.stderr.write(f"note: {where}: {' '.join(note.split())}\n")


def console(title: str = "", **look: Any) -> Console:
    """Stdout for people, after a heading if there is one."""
    from rich.console import Console

    opened = Console(highlight=False, **look)
    if title:
        opened.print(title, style="bold")
    return opened


def table(*headings: str, gap: int = 2, **look: Any) -> Table:
    """A table without lines, its columns so many characters apart."""
    from rich.table import Table

    look.setdefault("padding", (0, gap, 0, 0))
    return Table(*headings, box=None, **look)


def config_of(kind: type[Any], given: Mapping[str, object], user: str = "", **typed: str) -> Any:
    """A config with the options that were given and that it has; where a `user` is named, the others are noted.

    `typed` has the flags that are not called like their fields.  Raises InputError for an option out of range.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in sorted(chosen.keys() - {each.name for each in fields(kind)}) if user else ():
        sys.stderr.write(f"note: {option(name)} has no effect on {user}\n")
    with as_typed(lambda name: typed.get(name, option(name))):
        config = config_having(kind, chosen)
        check_options(config)
    return config


@contextmanager
def as_typed(flag: Callable[[str], str]) -> Iterator[None]:
    """Where an option is out of range, name it as it was typed, and not as forms do; `flag` is of a config's field."""
    try:
        yield
    except OptionError as error:
        raise InputError(flag(error.field), error.why) from None


def option(name: str) -> str:
    """A parameter as people type it."""
    return f"--{name.replace('_', '-')}"
