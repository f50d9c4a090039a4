"""The browser's part of the timeline: the scripts and the style that lie with the app, for every page that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from tessel_core.bundle import BUNDLE

FOLDER = BUNDLE / "pages" / "shared" / "timeline"
MODULES = ("data.mjs", "scale.mjs", "draw.mjs", "edit.mjs", "play.mjs", "svg.mjs", "timeline.mjs")
"""In the order in which they need each other."""
SMALLER = """
.timeline :is(.views, .choices, .details) { display: none; }
.timeline .legend { display: inline-flex; }
"""
"""Style of a timeline without what stands over and under its lanes, but for the legend."""


def text_of(name: str) -> str:
    """One of the files, such as `timeline.css`."""
    return FOLDER.joinpath(name).read_text(encoding="utf-8")


def one_module(texts: Iterable[str]) -> str:
    """Modules as one, which a browser can load without asking for the others.

    >>> one_module(["export const a = 1;", 'import { a } from "./a.mjs";\\nexport default a;'])
    'const a = 1;\\nexport default a;'
    """
    joined = "\n".join(re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE) for text in texts)
    return re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE)


@cache
def timeline_module() -> str:
    """The timeline as one module, whose default export begins it."""
    return one_module(text_of(name) for name in MODULES)


def with_begin(module: str) -> str:
    """The module with its default export as a function called `begin`, for a page without a loader of modules."""
    return module.replace("export default function (", "function begin(")


def timeline_function() -> str:
    """The timeline as an expression: the function that begins it."""
    return f"(() => {{\n{with_begin(timeline_module())}\nreturn begin;\n}})()"
