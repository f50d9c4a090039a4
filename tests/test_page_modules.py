"""A page loads only the packages that it needs. Shared state loads no searches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

APP = Path(__file__).resolve().parent.parent / "app.py"
NEVER = {"strategies", "simulation", "ir", "exports", "planning"}
RUN = """
import sys
from streamlit.testing.v1 import AppTest
for page in ("pages/mesh.py", ""):
    test = AppTest.from_file({app!r}, default_timeout=60)
    if page:
        test.switch_page(page)
    test.run()
    assert not test.exception
    print(*(name for name in sys.modules if name.startswith("tessel_core.")))
"""

HEAVY = ("pandas", "networkx", "numba", "ortools.sat.python.cp_model")
FIRST = """
import sys
from streamlit.testing.v1 import AppTest
test = AppTest.from_file({app!r}, default_timeout=60).run()
assert not test.exception
assert test.get("bidi_component")
print(*(name for name in {heavy!r} if name in sys.modules))
"""


def test_the_first_picture_waits_for_nothing_heavy(tmp_path: Path) -> None:
    """Each of these takes a tenth of a second or more, and the search only begins after the picture."""
    command = [sys.executable, "-c", FIRST.format(app=str(APP), heavy=HEAVY)]
    kept = {**os.environ, "TESSEL_DATA": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=APP.parent, env=kept)
    assert ended.stdout.split() == []


def test_pages_load_little() -> None:
    """*Device mesh* comes first, then *Start* in the same process, which already has the modules that both load."""
    command = [sys.executable, "-c", RUN.format(app=str(APP))]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=APP.parent)
    mesh, both = (line.split() for line in ended.stdout.splitlines())
    assert not {name.split(".")[1] for name in mesh} & {*NEVER, "networks", "sweeps"}
    assert not {name.split(".")[1] for name in both} & NEVER
    assert len(mesh) <= 128
    assert len(both) <= 180
