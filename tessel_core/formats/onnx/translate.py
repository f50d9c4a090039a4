"""A skeleton to what is made of it: the part that runs code of the onnx package on what a file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.fields import fingerprint
from tessel_core.formats.graph_file import GraphFile, graph_document
from tessel_core.formats.onnx.inference import Inference, OpenSizes, open_sizes_of
from tessel_core.formats.onnx.lowering import describe, lower
from tessel_core.formats.onnx.names import printable
from tessel_core.formats.onnx.network import OnnxNetwork
from tessel_core.formats.onnx.parsing import label_of, ordered_nodes, parse_model

if TYPE_CHECKING:
    import onnx

Listener = Callable[[str], None]

_LONGEST = 300
"""Characters of a complaint's place and of its reason."""


def _nobody(label: str) -> None:
    """The listener of callers that do not listen."""


def translate(skeleton: bytes, given: Mapping[str, int], at: Listener = _nobody) -> GraphFile:
    """The graph of a model without its weights; `at` hears of each node before it is looked at.

    Raises InputError with the place and the reason, printable whatever the file's names hold.
    """
    with _printable():
        found = _Understood.of(skeleton, given, at)
        graph, warnings = lower(found.model.graph, found.nodes, found.inference)
        return GraphFile(graph, None, fingerprint(graph_document(GraphFile(graph))), found.warnings + warnings)


def find_open_sizes(skeleton: bytes) -> tuple[str, ...]:
    """The names of the sizes that a model leaves open; InputError as of `translate`."""
    with _printable():
        return open_sizes_of(parse_model(skeleton).graph)


def translate_network(skeleton: bytes, given: Mapping[str, int], at: Listener = _nobody) -> OnnxNetwork:
    """As `translate`, node by node."""
    with _printable():
        found = _Understood.of(skeleton, given, at)
        network = describe(found.model, found.nodes, found.inference)
        return replace(network, warnings=found.warnings + network.warnings)


@contextmanager
def _printable() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(printable(error.where, _LONGEST), printable(error.why, _LONGEST)) from None


@dataclass(frozen=True)
class _Understood:
    """A model, its nodes in order, and what is known of their tensors."""

    model: onnx.ModelProto
    nodes: tuple[onnx.NodeProto, ...]
    inference: Inference
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, skeleton: bytes, given: Mapping[str, int], at: Listener) -> _Understood:
        """A model without its weights; `given` are sizes that it leaves open, `at` hears what is looked at.

        Raises InputError for what is damaged, and for a size that it has not.
        """
        model = parse_model(skeleton)
        sizes = OpenSizes(given)
        nodes = ordered_nodes(model.graph)
        inference = Inference(model, sizes)
        for node in nodes:
            at(label_of(node))
            inference.visit(node)
        sizes.check_used()
        return cls(model, nodes, inference, sizes.warnings())
