"""Location of the app, its pages and the samples.

It is the root of a checkout, or a folder in the installed package.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "installed"
"""Folder into which the build copies the app, pages and samples; see `pyproject.toml`."""

BUNDLE = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
