"""Where the app, its pages and the samples lie: at the top of a checkout, or inside the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "installed"
"""Where the build puts them; see `pyproject.toml`."""

BUNDLE = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
