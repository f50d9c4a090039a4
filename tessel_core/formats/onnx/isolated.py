"""`translate` and `translate_network` in a process of its own.

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
from tessel_core.formats.onnx.network import OnnxNetwork, network_document, network_from

_MOST_SECONDS = 60
_ROOT = Path(__file__).resolve().parents[3]
_MARK = "at "
"""Begins the lines on stderr that say which node is looked at."""


_GRAPH, _NETWORK = "graph", "network"
"""What is asked for."""


def translate_apart(skeleton: bytes, given: Mapping[str, int]) -> GraphFile:
    """As `translate.translate`; InputError where the process fails, or takes longer than a minute, as well."""
    found = _asked_apart(_GRAPH, skeleton, given)
    file = graph_from(found.fields("graph"))
    return GraphFile(file.graph, None, file.fingerprint, tuple(as_text(*each) for each in found.items("warnings")))


def translate_network_apart(skeleton: bytes, given: Mapping[str, int]) -> OnnxNetwork:
    """As `translate.translate_network`, likewise."""
    return network_from(_asked_apart(_NETWORK, skeleton, given).fields("network"))


def _asked_apart(wanted: str, skeleton: bytes, given: Mapping[str, int]) -> Fields:
    """What the other process answers."""
    import subprocess

    # -P: a module of the onnx package's name in the working folder is not what is meant.
    command = [sys.executable, "-P", "-m", "tessel_core.formats.onnx.isolated"]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    asked = json.dumps({"wanted": wanted, "sizes": dict(given)}).encode() + b"\n" + skeleton
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
    found = Fields(json.loads(done.stdout), "")
    if found.has("why"):
        raise InputError(found.text("where"), found.text("why"))
    return found


def _last_place(said: bytes) -> str:
    """The node at which the process was."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.startswith(_MARK)]
    return printable(lines[-1].removeprefix(_MARK)) if lines else "the model"


def _main() -> None:
    """What is wanted and sizes on the first line of stdin, then the skeleton; one JSON document on stdout."""
    first, _, skeleton = sys.stdin.buffer.read().partition(b"\n")
    asked = json.loads(first)
    try:
        answer = _ANSWERS[asked["wanted"]](skeleton, asked["sizes"])
    except InputError as error:
        answer = {"where": error.where, "why": error.why}
    sys.stdout.write(json.dumps(answer))


def _graph_answer(skeleton: bytes, sizes: Mapping[str, int]) -> dict[str, object]:
    from tessel_core.formats.onnx.translate import translate

    file = translate(skeleton, sizes, _say)
    return {"graph": graph_document(file.graph), "warnings": list(file.warnings)}


def _network_answer(skeleton: bytes, sizes: Mapping[str, int]) -> dict[str, object]:
    from tessel_core.formats.onnx.translate import translate_network

    return {"network": network_document(translate_network(skeleton, sizes, _say))}


_ANSWERS = {_GRAPH: _graph_answer, _NETWORK: _network_answer}


def _say(label: str) -> None:
    """Which node is looked at, at once, so that it is said whatever happens next."""
    os.write(2, f"{_MARK}{printable(label)}\n".encode())


if __name__ == "__main__":
    _main()
