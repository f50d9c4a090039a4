"""A page loads the rooms that it needs, and no others: what every tab remembers does not bring searches along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parent.parent / "app.py"
RUN = """
import sys
from streamlit.testing.v1 import AppTest
test = AppTest.from_file({app!r}, default_timeout=60)
if {page!r}:
    test.switch_page({page!r})
test.run()
assert not test.exception
print(*(name for name in sys.modules if name.startswith("tessel_core.")))
"""


@pytest.mark.parametrize(
    ("page", "most", "never"),
    [
        ("", 180, ("strategies", "simulation", "ir", "exports", "planning")),
        ("pages/mesh.py", 110, ("strategies", "simulation", "ir", "exports", "planning", "networks", "sweeps")),
    ],
)
def test_pages_load_little(page: str, most: int, never: tuple[str, ...]) -> None:
    script = RUN.format(app=str(APP), page=page)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=APP.parent)
    loaded = ended.stdout.split()
    assert not {name.split(".")[1] for name in loaded} & set(never)
    assert len(loaded) <= most
