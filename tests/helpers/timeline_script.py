"""Run the script of the timeline in Node, without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ANSWERS = Path(__file__).with_name("timeline_answers.mjs")


@cache
def _script() -> subprocess.Popen[str]:
    """Return one process for all questions, because its start takes longer than an answer. It ends with its input."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine to run the timeline's script")
    return subprocess.Popen([node, ANSWERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answers(data: bytes, *questions: tuple[str, Any]) -> list[Any]:
    """Return the answers of the script to questions about a buffer."""
    script = _script()
    assert script.stdin is not None
    assert script.stdout is not None
    script.stdin.write(json.dumps([b64encode(data).decode(), questions]) + "\n")
    script.stdin.flush()
    line = script.stdout.readline()
    if not line:
        _script.cache_clear()
    assert line, f"the script broke at {questions}, see above"
    found: list[Any] = json.loads(line)
    return found
