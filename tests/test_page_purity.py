"""Pages load, call and draw: what they may import, that they compute nothing, and how long they may be."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "pages").glob("*.py"))
SHARED = sorted((ROOT / "pages" / "shared").glob("*.py"))
ALLOWED = {"streamlit", "tessel_core", *sys.stdlib_module_names}


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
    """Lines that compute; a | between types is no arithmetic."""
    kinds = (ast.BinOp, ast.AugAssign)
    return [node.lineno for node in ast.walk(tree) if isinstance(node, kinds) and not isinstance(node.op, ast.BitOr)]


def test_there_are_pages() -> None:
    names = ["compare", "graph", "mesh", "placement", "program", "schedule", "start", "strategies"]
    assert [path.stem for path in PAGES] == names


@pytest.mark.parametrize("path", [ROOT / "app.py", *PAGES], ids=name_of)
def test_a_page_imports_only_what_pages_may(path: Path) -> None:
    for module in imports(ast.parse(path.read_text())):
        assert module.split(".")[0] in ALLOWED or module.startswith("pages.shared"), module


@pytest.mark.parametrize("path", [ROOT / "app.py", *PAGES], ids=name_of)
def test_a_page_does_no_arithmetic(path: Path) -> None:
    assert arithmetic(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", [ROOT / "app.py", *PAGES, *SHARED], ids=name_of)
def test_sizes(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= (120 if path in PAGES else 300)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 30, f"{node.name} has more than 30 lines"


@pytest.mark.parametrize("path", [ROOT / "app.py", *PAGES, *SHARED], ids=name_of)
def test_session_state_is_named_in_one_place_only(path: Path) -> None:
    """Apart from widgets' own keys, which are built from the workspace, only the session module has a key."""
    keys = [
        node.slice
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "st.session_state"
    ]
    assert not [key for key in keys if isinstance(key, ast.Constant)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [("x = a + 1", [1]), ("x = 0\nx -= 1", [2]), ("def f(x: int | None): ...", []), ("x = f'{a}'", [])],
)
def test_the_arithmetic_check_can_fail(text: str, lines: list[int]) -> None:
    assert arithmetic(ast.parse(text)) == lines
