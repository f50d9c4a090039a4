"""JavaScript and CSS of the timeline, read from the files of the app. The app, reports and slides use them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from tessel_core.bundle import BUNDLE

FOLDER = BUNDLE / "pages" / "shared" / "timeline"
MODULES = ("data.mjs", "scale.mjs", "draw.mjs", "edit.mjs", "play.mjs", "svg.mjs", "timeline.mjs")
"""JavaScript modules, in the order in which they import each other."""
SMALLER = """
.timeline :is(.views, .choices, .details) { display: none; }
.timeline .legend { display: inline-flex; }
"""
"""CSS of a timeline without tools and details. It still shows the legend."""


def text_of(name: str) -> str:
    """Return the text of a file, such as `timeline.css`."""
    return FOLDER.joinpath(name).read_text(encoding="utf-8")


def one_module(texts: Iterable[str]) -> str:
    """Join modules into one that has no imports.

    >>> one_module(["export const a = 1;", 'import { a } from "./a.mjs";\\nexport default a;'])
    'const a = 1;\\nexport default a;'
    """
    joined = "\n".join(re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE) for text in texts)
    return re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE)


@cache
def timeline_module() -> str:
    """Return the timeline as one module, whose default export starts it."""
    return one_module(text_of(name) for name in MODULES)


def with_begin(module: str) -> str:
    """Return the module with its default export as a function named `begin`, for a page that cannot load modules."""
    return module.replace("export default function (", "function begin(")


def timeline_function() -> str:
    """Return a JavaScript expression whose value is the function that starts the timeline."""
    return f"(() => {{\n{with_begin(timeline_module())}\nreturn begin;\n}})()"
