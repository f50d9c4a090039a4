"""ONNX files to what they say node by node, understood in a process of its own.

The onnx package's shape inference is native code that ends the process on some malformed nodes (a Split with more
outputs than `num_outputs` says) and can be made to run for very long.  A file may do neither to the app.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tessel_core.errors import InputError
from tessel_core.formats.fields import LARGEST_ONNX, Fields, as_text, looks_like_onnx
from tessel_core.formats.onnx.names import printable
from tessel_core.formats.onnx.network import NETWORK, OnnxNetwork
from tessel_core.formats.onnx.skeleton import skeleton_of

_MOST_SECONDS = 60
_ROOT = Path(__file__).resolve().parents[3]
_MARK = "at "
"""Begins the lines on stderr that say which node is looked at."""


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model without its weights, to be understood for any sizes of what it leaves open."""

    name: str
    """Whose complaint it is, in errors."""
    skeleton: bytes

    @classmethod
    def of(cls, data: bytes, name: str = "model") -> OnnxModel:
        """The model in a file's bytes; InputError where they are none."""
        try:
            if len(data) > LARGEST_ONNX:
                raise InputError("the model", f"has {len(data):,} bytes, more than the {LARGEST_ONNX:,} that are read")
            if not looks_like_onnx(data):
                why = "is not ONNX: it does not begin with an IR version" if data else "is empty"
                raise InputError("the model", why)
            return cls(name, skeleton_of(data))
        except InputError as error:
            raise error.within(name) from None

    @cached_property
    def open_sizes(self) -> tuple[str, ...]:
        """The names of the sizes that it leaves open, as `network` takes them; InputError as there."""
        return tuple(as_text(*each) for each in self._asked("sizes", {}).items("sizes"))

    def network(self, sizes: Mapping[str, int] | None = None) -> OnnxNetwork:
        """What the model says node by node, with all of its shapes.

        What depends on no input is folded away: constants, weights in another shape, shapes and what is computed of
        them.  What the file leaves open or has no formula for is said in the `warnings` of the answer.  No other file
        is ever opened.

        Parameters
        ----------
        sizes
            What open sizes are: `{"batch": 8}`, or `{"x[0]": 8}` for the first size of input x where it has no name.
            Others are taken as 1.

        Raises InputError with the place and the reason, the model's name first.
        """
        return NETWORK.from_fields(self._asked("network", sizes or {}).fields("network"))

    def _asked(self, wanted: str, sizes: Mapping[str, int]) -> Fields:
        try:
            return _asked_apart(wanted, self.skeleton, sizes)
        except InputError as error:
            raise error.within(self.name) from None


def _asked_apart(wanted: str, skeleton: bytes, given: Mapping[str, int]) -> Fields:
    """The answer of the other process; InputError where it fails, or takes longer than a minute, as well."""
    import subprocess

    # -P: a module of the onnx package's name in the working folder is not what is meant.
    command = [sys.executable, "-P", "-m", "tessel_core.formats.onnx.reader"]
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
    """Read what is wanted and the sizes from the first line of stdin, then the skeleton; write one JSON document."""
    from tessel_core.formats.onnx.translate import find_open_sizes, translate

    first, _, skeleton = sys.stdin.buffer.read().partition(b"\n")
    asked = json.loads(first)
    answer: dict[str, object]
    try:
        if asked["wanted"] == "sizes":
            answer = {"sizes": find_open_sizes(skeleton)}
        else:
            answer = {"network": NETWORK.write(translate(skeleton, asked["sizes"], _say))}
    except InputError as error:
        answer = {"where": error.where, "why": error.why}
    sys.stdout.write(json.dumps(answer))


def _say(label: str) -> None:
    """Name the node at once, because the process may end while it looks at it."""
    os.write(2, f"{_MARK}{printable(label)}\n".encode())


if __name__ == "__main__":
    _main()
