"""`read_onnx` and `read_onnx_network`: a file's bytes to an operator graph, or to what it says node by node."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.errors import InputError
from tessel_core.formats.graph_file import GraphFile
from tessel_core.formats.magic import LARGEST_ONNX, looks_like_onnx
from tessel_core.formats.onnx.isolated import translate_apart, translate_network_apart
from tessel_core.formats.onnx.network import OnnxNetwork
from tessel_core.formats.onnx.skeleton import skeleton_of


def read_onnx(data: bytes, name: str = "model", sizes: Mapping[str, int] | None = None) -> GraphFile:
    """The forward graph of an ONNX model: one operator a node, FLOPs and bytes from formulas, no times.

    What depends on no input is folded away: constants, weights in another shape, shapes and what is computed of them.
    A node with several outputs in use has an operator of kind "output" beside it for each of them, which holds the
    tensor.  What the file leaves open or has no formula for is said in the `warnings` of the answer.

    Parameters
    ----------
    data
        The file's bytes.  Memory is needed for little more: weights are not parsed.
    name
        Whose complaint it is, in errors.
    sizes
        What open sizes are: `{"batch": 8}`, or `{"x[0]": 8}` for the first size of input x where it has no name.
        Others are taken as 1.

    Raises
    ------
    InputError
        With the place and the reason, `name` first.  No other file is ever opened.
    """
    try:
        _check(data)
        return translate_apart(skeleton_of(data), sizes or {})
    except InputError as error:
        raise error.within(name) from None


def read_onnx_network(data: bytes, name: str = "model", sizes: Mapping[str, int] | None = None) -> OnnxNetwork:
    """What an ONNX model says, node by node, with all of its shapes; otherwise as `read_onnx`."""
    try:
        _check(data)
        return translate_network_apart(skeleton_of(data), sizes or {})
    except InputError as error:
        raise error.within(name) from None


def _check(data: bytes) -> None:
    if len(data) > LARGEST_ONNX:
        raise InputError("the model", f"has {len(data):,} bytes, more than the {LARGEST_ONNX:,} that are read")
    if not looks_like_onnx(data):
        raise InputError("the model", "is empty" if not data else "is not ONNX: it does not begin with an IR version")
