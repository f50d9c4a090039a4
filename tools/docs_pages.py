"""A hook of MkDocs: the reference of the command line, written from the commands themselves.

`make docs` runs it; see `mkdocs.yml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

from tessel_core.cli.command import app
from tessel_core.cli.verbs import VERBS

PAGE = "reference/command_line.md"
_USUAL = re.compile(r"\[dim\]\(default (.*?)\)\[/dim\]")
"""How an option of a solver says its default in the help of a terminal."""
_WORDS: dict[Any, str] = {int: "whole number", float: "number", Path: "file", bool: ""}
_HEAD = """# Command line

This page is written from the code. Results go to stdout, and progress and errors to stderr.
[Exit codes](numbers.md#exit-codes) are the same for all commands.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page to those that MkDocs found in the folder."""
    files.append(File.generated(config, PAGE, content=command_line_page()))
    return files


def command_line_page() -> str:
    """The page as Markdown: a section for each command, and a table of its arguments and options."""
    group = typer.main.get_command(app)
    sections = [_HEAD]
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        sections += _sections(f"tessel {name}", VERBS[name].load(name) if name in VERBS else command)
    return "\n".join(sections)


def _sections(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}\n\n{_plain(command.help)}\n"
    rows = [_row(each) for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    if rows:
        yield "| argument or option | values | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    for inner, found in getattr(command, "commands", {}).items():
        yield from _sections(f"{name} {inner}", found)


def _row(parameter: Any) -> str:
    option = parameter.param_type_name == "option"
    names = (*parameter.opts, *parameter.secondary_opts) if option else (parameter.name.upper(),)
    text, usual = _USUAL.sub("", parameter.help or ""), _USUAL.search(parameter.help or "")
    value = "required" if parameter.required else f"`{usual[1]}`" if usual else _default(parameter)
    cells = ", ".join(f"`{each}`" for each in names), _values(parameter), value, _plain(text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _values(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    if getattr(parameter, "is_flag", False):
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    return _WORDS.get(kind, "text")


def _default(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)
    return "" if value in (None, "", False) or isinstance(value, list | tuple) else f"`{value}`"


def _plain(text: str | None) -> str:
    """One line of Markdown, without the tags of the terminal's help."""
    return re.sub(r"\[/?(dim|bold)\]", "", " ".join((text or "").split())).replace("<", "&lt;")
