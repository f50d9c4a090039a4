"""Location of the app, its pages and the samples: the root of a checkout, or inside the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "installed"
"""Folder into which the build copies them; see `pyproject.toml`."""

BUNDLE = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
