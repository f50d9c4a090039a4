"""Where this person's data lies on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_NAME = "tessel-explorer"


def data_folder(
    environment: Mapping[str, str] = os.environ, platform: str = sys.platform, home: Path | None = None
) -> Path:
    """`TESSEL_DATA` where it is set, else the place that the system has for such things; it may not exist yet.

    >>> data_folder({}, "linux", Path("/home/ada")).as_posix()
    '/home/ada/.local/share/tessel-explorer'
    """
    if environment.get("TESSEL_DATA"):
        return Path(environment["TESSEL_DATA"]).expanduser().absolute()
    home = Path.home() if home is None else home
    if platform == "darwin":
        return home / "Library" / "Application Support" / _NAME
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / _NAME
    shared = environment.get("XDG_DATA_HOME", "")
    # A relative path there is to be ignored [XDG Base Directory Specification 0.8].
    return (Path(shared) if os.path.isabs(shared) else home / ".local" / "share") / _NAME
