"""Print output as text or JSON, and define the options that choose between them."""

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

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout in place of text.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="File for the answer. Nothing is written if no solution is found.")
]


def print_json(document: object) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_notes(where: str, notes: Sequence[str]) -> None:
    """Write each note as one line to stderr."""
    for note in notes:
        sys.stderr.write(f"note: {where}: {' '.join(note.split())}\n")


def console(title: str = "", **look: Any) -> Console:
    """Return a console that prints to stdout. Print the title first, if given."""
    from rich.console import Console

    opened = Console(highlight=False, **look)
    if title:
        opened.print(title, style="bold")
    return opened


def table(*headings: str, gap: int = 2, **look: Any) -> Table:
    """Return a table without borders. Columns are `gap` characters apart."""
    from rich.table import Table

    look.setdefault("padding", (0, gap, 0, 0))
    return Table(*headings, box=None, **look)


def config_of(kind: type[Any], given: Mapping[str, object], user: str = "", **typed: str) -> Any:
    """Build a config of type `kind` from the options that were given.

    Options that are no fields of `kind` are ignored. If `user` names what reads the config, a note lists each ignored
    option. `typed` maps fields to options with another name. Raises InputError if an option is out of range.
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
    """Change errors about config fields to name the command-line option. `flag` maps fields to options."""
    try:
        yield
    except OptionError as error:
        raise InputError(flag(error.field), error.why) from None


def option(name: str) -> str:
    """Return the command-line option of a parameter."""
    return f"--{name.replace('_', '-')}"
