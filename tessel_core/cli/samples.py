"""`tessel samples`: list the samples, or write one of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tessel_core import samples as catalogue
from tessel_core.cli.output import Json, console, print_json, table
from tessel_core.formats import write_file


def samples(
    name: Annotated[str | None, typer.Argument(help="Sample to write. Omit it to list all samples.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File for the sample. Default: print it to stdout.")] = None,
    json: Json = False,
) -> None:
    """List the samples, or write one of them to a file."""
    if name is None:
        kinds = {
            "plan": catalogue.list_samples(),
            "operator graph": catalogue.list_graphs(),
            "device mesh": catalogue.list_meshes(),
        }
        _list(kinds, as_json=json)
    elif out is None:
        sys.stdout.write(catalogue.sample_text(name))
    else:
        write_file(out, catalogue.sample_text(name))


def _list(kinds: Mapping[str, Sequence[catalogue.Sample]], *, as_json: bool) -> None:
    """Print the catalogue as one table per kind of file, or as one JSON list."""
    if as_json:
        print_json([{**asdict(each), "path": str(each.path), "kind": kind} for kind in kinds for each in kinds[kind]])
        return
    for kind, found in kinds.items():
        shown = table(kind, "description", header_style="bold")
        for sample in found:
            shown.add_row(sample.name, sample.title)
        console().print(shown)
