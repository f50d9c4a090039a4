"""MkDocs hook that writes two pages from the code: the command line and the glossary.

`make docs` runs it (see `mkdocs.yml`).
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
from tessel_core.learning import GLOSSARY
from tessel_core.samples import load_sample

_SAMPLE, _MICRO_BATCHES = "v-shape-4", 8
_DEFAULT_TEXT = re.compile(r"\[dim\]\(default (.*?)\)\[/dim\]")
"""Pattern of the default value in the terminal's help of a solver option."""
_WORDS: dict[Any, str] = {int: "whole number", float: "number", Path: "file", bool: ""}
_HEAD = """# Command line

This page is written from the code. Results go to stdout, and progress and errors to stderr.
[Exit codes](numbers.md#exit-codes) are the same for all commands.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the two pages to the files that MkDocs found in the folder."""
    for name, page in (("command_line", command_line_page()), ("glossary", glossary_page())):
        files.append(File.generated(config, f"reference/{name}.md", content=page))
    return files


def glossary_page() -> str:
    """Return the glossary of *Learn* as Markdown, in alphabetical order, with formulas filled in for one plan."""
    plan = load_sample(_SAMPLE)
    lines = ["# Glossary", f"Examples are of the sample `{_SAMPLE}` with {_MICRO_BATCHES} micro-batches."]
    for term in sorted(GLOSSARY, key=lambda term: term.name.lower()):
        example = term.filled(plan, _MICRO_BATCHES) if term.filled else ""
        lines.append(f"**{term.name}**: {_plain(term.meaning)}" + (f"<br>*Example: {example}*" if example else ""))
    return "\n\n".join(lines) + "\n"


def command_line_page() -> str:
    """Return the page as Markdown: one section per command, with a table of its arguments and options."""
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
    text, usual = _DEFAULT_TEXT.sub("", parameter.help or ""), _DEFAULT_TEXT.search(parameter.help or "")
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
    """Return one line of Markdown, without the tags of the terminal's help."""
    return re.sub(r"\[/?(dim|bold)\]", "", " ".join((text or "").split())).replace("<", "&lt;")
