"""Pages load, call and draw. They import only allowed modules, and compute nothing."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from pages.shared.contents import PAGES

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py"))]
CONTENTS = ROOT / "pages" / "shared" / "contents.py"
ALLOWED = {"pandas", "streamlit", "tessel_core", *sys.stdlib_module_names}
"""Streamlit's tables take pandas data frames."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def arithmetic(tree: ast.AST) -> list[int]:
    """Return the lines with arithmetic. Pages may count rows and columns, but time and memory belong to the core."""
    kinds = (ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.AugAssign)]
    return [node.lineno for node in nodes if isinstance(node.op, kinds)]


def test_every_page_is_in_the_contents() -> None:
    assert {ROOT / page.path for page in PAGES} == set((ROOT / "pages").glob("*.py"))


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_a_page_imports_only_what_pages_may(path: Path) -> None:
    """Streamlit and the core, and of `pages` only its own folder and the shared modules."""
    own = path.stem if path.parent.name == "pages" else path.parent.name
    for module in imports(ast.parse(path.read_text())):
        of_pages = module.startswith(("pages.shared.", f"pages.parts.{own}."))
        assert module.split(".")[0] in ALLOWED or of_pages or path == CONTENTS, module


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_a_page_does_no_arithmetic(path: Path) -> None:
    assert arithmetic(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_a_page_lets_nothing_float_over_its_controls(path: Path) -> None:
    assert "st.toast" not in path.read_text()


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_a_page_loses_no_press(path: Path) -> None:
    """Streamlit forgets presses when a run is interrupted. `widgets.button` keeps them, and callbacks come first."""
    bare = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(".button")
        and "on_click" not in {each.arg for each in node.keywords}
        and "disabled=True" not in ast.unparse(node)
    ]
    assert not bare


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_session_state_is_named_in_one_place_only(path: Path) -> None:
    """Only the session module has a key, besides the keys of widgets, which contain the workspace."""
    keys = [
        node.slice
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "st.session_state"
    ]
    assert not [key for key in keys if isinstance(key, ast.Constant)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [("x = a * b", [1]), ("x = 0\nx /= 2", [2]), ("def f(x: int | None): ...", []), ("x = rows[n + 1]", [])],
)
def test_the_arithmetic_check_can_fail(text: str, lines: list[int]) -> None:
    assert arithmetic(ast.parse(text)) == lines
