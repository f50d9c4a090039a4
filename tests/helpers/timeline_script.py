"""The timeline's script, asked without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

ANSWERS = Path(__file__).with_name("timeline_answers.mjs")


def answers(data: bytes, *questions: tuple[str, Any]) -> list[Any]:
    """What it answers about a buffer, question by question."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine to run the timeline's script")
    with tempfile.TemporaryDirectory() as folder:
        buffer, asked = Path(folder, "buffer"), Path(folder, "questions.json")
        buffer.write_bytes(data)
        asked.write_text(json.dumps(questions))
        ended = subprocess.run([node, ANSWERS, buffer, asked], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: list[Any] = json.loads(ended.stdout)
    return found
