"""Run the app in a separate process, for tests with a real browser."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_ASKED = os.environ.get("TESSEL_BROWSER")
HEADLESS = shutil.which(_ASKED) if _ASKED else shutil.which("chromium-headless-shell") or CHROMIUM
"""Browser of the tests: TESSEL_BROWSER if set, else chromium-headless-shell, which needs a seventh less CPU time, else
Chromium."""
QUIET = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a server with its store in `folder` until the end of the `with` block. Yields its address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", f"--server.port={port}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TESSEL_DATA": str(folder)}, **quiet) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url)
            yield url, server
        finally:
            server.terminate()


def _wait_for(url: str) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the app did not start")
