"""`read_onnx`: a file's bytes to an operator graph."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.errors import InputError
from tessel_core.formats.fields import fingerprint
from tessel_core.formats.graph_file import GraphFile, graph_document
from tessel_core.formats.onnx.inference import Inference
from tessel_core.formats.onnx.lowering import lower
from tessel_core.formats.onnx.names import printable
from tessel_core.formats.onnx.parsing import ordered_nodes, parse_model
from tessel_core.formats.onnx.sizes import OpenSizes

LARGEST_ONNX = 2**31 - 1
"""Bytes: protobuf's own limit of a message."""

_LONGEST = 300
_FIRST_BYTE = b"\x08"
"""The tag of `ir_version`, the first field of every model; no text begins with it."""


def looks_like_onnx(data: bytes) -> bool:
    """True for bytes that begin as an ONNX model does and no text can."""
    return data[:1] == _FIRST_BYTE


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
        return _read(data, sizes or {})
    except InputError as error:
        # Names from the file stand in complaints, and may hold anything.
        raise InputError(printable(error.where, _LONGEST), printable(error.why, _LONGEST)).within(name) from None


def _read(data: bytes, given: Mapping[str, int]) -> GraphFile:
    if len(data) > LARGEST_ONNX:
        raise InputError("the model", f"has {len(data):,} bytes, more than the {LARGEST_ONNX:,} that are read")
    if not looks_like_onnx(data):
        raise InputError("the model", "is empty" if not data else "is not ONNX: it does not begin with an IR version")
    model = parse_model(data)
    sizes = OpenSizes(given)
    nodes = ordered_nodes(model.graph)
    inference = Inference(model, sizes)
    for node in nodes:
        inference.visit(node)
    sizes.check_used()
    graph, warnings = lower(model.graph, nodes, inference)
    return GraphFile(graph, None, fingerprint(graph_document(graph)), sizes.warnings() + warnings)
