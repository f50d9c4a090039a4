"""`translate` in a process of its own.

The onnx package's shape inference is native code that ends the process on some malformed nodes (a Split with more
outputs than `num_outputs` says) and can be made to run for very long.  A file may do neither to the app.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_text
from tessel_core.formats.graph_file import GraphFile, graph_document, graph_from
from tessel_core.formats.onnx.names import printable

_MOST_SECONDS = 60
_ROOT = Path(__file__).resolve().parents[3]
_MARK = "at "
"""Begins the lines on stderr that say which node is looked at."""


def translate_apart(skeleton: bytes, given: Mapping[str, int]) -> GraphFile:
    """As `translate.translate`; InputError where the process fails, or takes longer than a minute, as well."""
    import subprocess

    # -P: a module of the onnx package's name in the working folder is not what is meant.
    command = [sys.executable, "-P", "-m", "tessel_core.formats.onnx.isolated"]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    asked = json.dumps(dict(given)).encode() + b"\n" + skeleton
    try:
        done = subprocess.run(
            command,
            input=asked,
            capture_output=True,
            timeout=_MOST_SECONDS,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError("the model", f"is not understood within {_MOST_SECONDS} s") from None
    if done.returncode != 0:
        raise InputError(_last_place(done.stderr), "the onnx package fails on it; is the file what was exported?")
    return _answer(Fields(json.loads(done.stdout), ""))


def _last_place(said: bytes) -> str:
    """The node at which the process was."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.startswith(_MARK)]
    return printable(lines[-1].removeprefix(_MARK)) if lines else "the model"


def _answer(found: Fields) -> GraphFile:
    if found.has("why"):
        raise InputError(found.text("where"), found.text("why"))
    file = graph_from(found.fields("graph"))
    return GraphFile(file.graph, None, file.fingerprint, tuple(as_text(*each) for each in found.items("warnings")))


def _main() -> None:
    """Sizes on the first line of stdin, then the skeleton; one JSON document on stdout."""
    from tessel_core.formats.onnx.translate import translate

    given, _, skeleton = sys.stdin.buffer.read().partition(b"\n")
    try:
        file = translate(skeleton, json.loads(given), lambda label: _say(f"{_MARK}{printable(label)}\n"))
        answer = {"graph": graph_document(file.graph), "warnings": list(file.warnings)}
    except InputError as error:
        answer = {"where": error.where, "why": error.why}
    sys.stdout.write(json.dumps(answer))


def _say(line: str) -> None:
    """At once, so that it is said whatever happens next."""
    os.write(2, line.encode())


if __name__ == "__main__":
    _main()
