"""No test ends before its law: a case that has nothing to say is skipped by name, assumed away or not drawn."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("test_*.py"))
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def early_ends(tree: ast.AST) -> Iterator[ast.Return]:
    """The bare returns of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Return) and child.value is None:
            yield child
        if not isinstance(child, _INNER):
            yield from early_ends(child)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_test_returns_early(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tests = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    assert [f"{file.name}:{end.lineno}" for test in tests for end in early_ends(test)] == []
