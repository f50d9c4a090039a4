"""A skeleton to an operator graph: the part that runs code of the onnx package on what a file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tessel_core.errors import InputError
from tessel_core.formats.fields import fingerprint
from tessel_core.formats.graph_file import GraphFile, graph_document
from tessel_core.formats.onnx.inference import Inference
from tessel_core.formats.onnx.lowering import lower
from tessel_core.formats.onnx.names import printable
from tessel_core.formats.onnx.parsing import label_of, ordered_nodes, parse_model
from tessel_core.formats.onnx.sizes import OpenSizes

_LONGEST = 300
"""Characters of a complaint's place and of its reason."""


def translate(skeleton: bytes, given: Mapping[str, int], at: Callable[[str], None] = lambda label: None) -> GraphFile:
    """The graph of a model without its weights; `at` hears of each node before it is looked at.

    Raises
    ------
    InputError
        With the place and the reason, printable whatever the file's names hold.
    """
    try:
        return _translate(skeleton, given, at)
    except InputError as error:
        raise InputError(printable(error.where, _LONGEST), printable(error.why, _LONGEST)) from None


def _translate(skeleton: bytes, given: Mapping[str, int], at: Callable[[str], None]) -> GraphFile:
    model = parse_model(skeleton)
    sizes = OpenSizes(given)
    nodes = ordered_nodes(model.graph)
    inference = Inference(model, sizes)
    for node in nodes:
        at(label_of(node))
        inference.visit(node)
    sizes.check_used()
    graph, warnings = lower(model.graph, nodes, inference)
    return GraphFile(graph, None, fingerprint(graph_document(graph)), sizes.warnings() + warnings)
