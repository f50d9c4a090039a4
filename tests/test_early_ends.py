"""No test returns before its assertions. A case that does not apply is skipped by name, assumed away or not drawn."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def early_ends(tree: ast.AST) -> Iterator[ast.Return]:
    """Return the bare returns of a function, without those of nested functions."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Return) and child.value is None:
            yield child
        if not isinstance(child, _INNER):
            yield from early_ends(child)


def test_no_test_returns_early() -> None:
    found = list[str]()
    for file in sorted(Path(__file__).parent.rglob("test_*.py")):
        functions = (each for each in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if _is_test(each))
        found += [f"{file.name}:{end.lineno}" for test in functions for end in early_ends(test)]
    assert found == []


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
