"""Read ONNX models node by node, in a separate process.

The onnx package's shape inference is native code.  Some malformed nodes crash it, such as a Split with more outputs
than `num_outputs`, and others make it run for very long.  The separate process protects the app from both.
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

_MAX_SECONDS = 60
_ROOT = Path(__file__).resolve().parents[3]
_MARK = "at "
"""Prefix of lines on stderr that name the current node."""


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model without its weights, which can be read for different values of its open sizes."""

    name: str
    """Name of the model in error messages."""
    skeleton: bytes

    @classmethod
    def of(cls, data: bytes, name: str = "model") -> OnnxModel:
        """Build the model from the bytes of a file.  Raises InputError if they are not an ONNX model."""
        try:
            if len(data) > LARGEST_ONNX:
                raise InputError("the model", f"has {len(data):,} bytes, more than the limit of {LARGEST_ONNX:,}")
            if not looks_like_onnx(data):
                why = "is not ONNX: it does not begin with an IR version" if data else "is empty"
                raise InputError("the model", why)
            return cls(name, skeleton_of(data))
        except InputError as error:
            raise error.within(name) from None

    @cached_property
    def open_sizes(self) -> tuple[str, ...]:
        """Names of the open sizes.  Raises InputError like `network`."""
        return tuple(as_text(*each) for each in self._read("sizes", {}).items("sizes"))

    def network(self, sizes: Mapping[str, int] | None = None) -> OnnxNetwork:
        """Read the model node by node, with all shapes.

        Nodes that depend on no input are folded: constants, reshaped weights, shapes and values computed from shapes.
        The `warnings` of the result name open sizes without a value and operators without a formula.  No other file is
        opened.

        Parameters
        ----------
        sizes : Mapping
            Values of open sizes: `{"batch": 8}`, or `{"x[0]": 8}` for an unnamed first size of input x.  Other sizes
            are 1.

        Returns
        -------
        OnnxNetwork
            The nodes with their shapes and costs.

        Raises
        ------
        InputError
            If the model cannot be read, with the model's name, the place and the reason.
        """
        return NETWORK.from_fields(self._read("network", sizes or {}).fields("network"))

    def _read(self, wanted: str, sizes: Mapping[str, int]) -> Fields:
        try:
            return _read_in_process(wanted, self.skeleton, sizes)
        except InputError as error:
            raise error.within(self.name) from None


def _read_in_process(wanted: str, skeleton: bytes, given: Mapping[str, int]) -> Fields:
    """Read the model in a new process and return its output.

    Raises InputError if the process reports an error, crashes or takes more than a minute.
    """
    import subprocess

    # -P keeps modules in the working folder from shadowing the onnx package.
    command = [sys.executable, "-P", "-m", "tessel_core.formats.onnx.reader"]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    request = json.dumps({"wanted": wanted, "sizes": dict(given)}).encode() + b"\n" + skeleton
    try:
        done = subprocess.run(
            command,
            input=request,
            capture_output=True,
            timeout=_MAX_SECONDS,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError("the model", f"cannot be read within {_MAX_SECONDS} s") from None
    if done.returncode != 0:
        raise InputError(_last_place(done.stderr), "the onnx package crashes on it; the file may be damaged")
    answer = Fields(json.loads(done.stdout), "")
    if answer.has("why"):
        raise InputError(answer.text("where"), answer.text("why"))
    return answer


def _last_place(stderr: bytes) -> str:
    """Return the label of the node at which the process ended."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.startswith(_MARK)]
    return printable(lines[-1].removeprefix(_MARK)) if lines else "the model"


def _main() -> None:
    """Read a request line and a skeleton from stdin, and write the answer as JSON to stdout."""
    from tessel_core.formats.onnx.translate import find_open_sizes, translate

    first, _, skeleton = sys.stdin.buffer.read().partition(b"\n")
    request = json.loads(first)
    answer: dict[str, object]
    try:
        if request["wanted"] == "sizes":
            answer = {"sizes": find_open_sizes(skeleton)}
        else:
            answer = {"network": NETWORK.write(translate(skeleton, request["sizes"], _print_label))}
    except InputError as error:
        answer = {"where": error.where, "why": error.why}
    sys.stdout.write(json.dumps(answer))


def _print_label(label: str) -> None:
    """Print the current node without buffering, because the process may crash on it."""
    os.write(2, f"{_MARK}{printable(label)}\n".encode())


if __name__ == "__main__":
    _main()
