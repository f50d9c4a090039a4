"""Install packages that extend our tables into a folder, with the files that pip writes."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tessel_core.extensions import Extended

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "extension"

Points = Mapping[str, Mapping[str, str]]
"""Entries by group and name, such as `"module:constant"`."""


def install(folder: Path, package: str, points: Points) -> None:
    """Write the metadata of a package. The caller provides its modules."""
    record = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    record.mkdir(parents=True)
    record.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = (line for group, names in points.items() for line in (f"[{group}]", *map(" = ".join, names.items())))
    record.joinpath("entry_points.txt").write_text("\n".join(lines))


def install_example(folder: Path) -> Points:
    """Install the example package, and return the entry points of its `pyproject.toml`."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "tessel_example", folder / "tessel_example")
    points: Points = project["entry-points"]
    install(folder, project["name"], points)
    return points


def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch, table: Extended[object], folder: Path) -> None:
    """Make a table look for packages again, with the folder on Python's path, until the end of the test."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(table.__dict__, "added", raising=False)
    monkeypatch.setitem(table.__dict__, "added", Extended.added.func(table))
