"""Translate the skeleton of a model to an `OnnxNetwork`.  This part runs the onnx package on untrusted contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.onnx.costs import Known, attributes_of, cost_of, unknown_costs
from tessel_core.formats.onnx.formulas import ARGUMENTS
from tessel_core.formats.onnx.inference import Inference, OpenSizes, open_sizes_of
from tessel_core.formats.onnx.names import kind_of, printable
from tessel_core.formats.onnx.network import Numbers, OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.parsing import DEFAULT_DOMAINS, inputs_of, label_of, opset_of, ordered_nodes, parse_model

if TYPE_CHECKING:
    import onnx

Listener = Callable[[str], None]

_MAX_MESSAGE_CHARACTERS = 300
"""Longest place and longest reason in an error message."""


def _ignore(label: str) -> None:
    """Do nothing. This is the default for `at`."""


def translate(skeleton: bytes, given: Mapping[str, int], at: Listener = _ignore) -> OnnxNetwork:
    """Translate a model without its weights.

    Parameters
    ----------
    skeleton : bytes
        The model without large payloads.
    given : Mapping
        Values of open sizes.
    at : Callable
        Called with the label of each node before the node is read.

    Raises
    ------
    InputError
        If the model is damaged, a given size is unknown, or no node depends on an input.  The message is printable,
        whatever names the file contains.
    """
    with _printable():
        model = parse_model(skeleton)
        sizes = OpenSizes(given)
        nodes = ordered_nodes(model.graph)
        inference = Inference(model, sizes)
        for node in nodes:
            at(label_of(node))
            inference.visit(node)
        sizes.check_used()
        return _network(model, nodes, inference, sizes.warnings())


def find_open_sizes(skeleton: bytes) -> tuple[str, ...]:
    """Return the names of a model's open sizes.  Raises InputError like `translate`."""
    with _printable():
        return open_sizes_of(parse_model(skeleton).graph)


@contextmanager
def _printable() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(
            printable(error.where, _MAX_MESSAGE_CHARACTERS), printable(error.why, _MAX_MESSAGE_CHARACTERS)
        ) from None


def _network(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inference: Inference, warnings: tuple[str, ...]
) -> OnnxNetwork:
    """Build the network from sorted nodes and their inferred tensors."""
    ends = tuple(dict.fromkeys(each.name for each in model.graph.output if each.name in inference.tensors))
    costed = _unfolded(nodes, ends, inference)
    kept = tuple(node for node, _ in costed)
    if all(node.is_ready for node in kept):
        raise InputError("the model", "has no operator that depends on its inputs")
    made = {name for node in kept for name in node.outputs}
    used = dict.fromkeys(name for node in kept for name in _operands(node))
    given = [name for name in dict.fromkeys((*used, *ends)) if name not in made]
    named = dict.fromkeys((*given, *(name for node in kept for name in (*node.inputs, *node.outputs) if name)))
    return OnnxNetwork(
        printable(model.graph.name) or "onnx",
        opset_of(model) or 0,
        {name: inference.tensors[name] for name in named},
        tuple(each.name for each in model.graph.input if each.name in given and each.name not in inference.constants),
        tuple(name for name in given if name in inference.constants),
        kept,
        ends,
        (*warnings, *unknown_costs((node.op_type, node.name, known) for node, known in costed)),
    )


def _unfolded(
    nodes: Sequence[onnx.NodeProto], ends: Sequence[str], inference: Inference
) -> list[tuple[OnnxNode, Known]]:
    """Return the nodes without those that compute constants.  Views of constants that are used are kept."""
    used, kept = set(ends), list[tuple[OnnxNode, Known]]()
    for node in reversed(nodes):
        folded = inference.is_folded(node)
        if folded and not _is_used_view(node, used, inference):
            continue
        each = _node(node, inference, is_ready=folded)
        used.update(_operands(each[0]))
        kept.append(each)
    return kept[::-1]


def _is_used_view(node: onnx.NodeProto, used: set[str], inference: Inference) -> bool:
    """Return whether the used outputs of a node are views of another constant."""
    made = [name for name in node.output if name in used]
    return bool(made) and all(inference.constants[name] != name for name in made)


def _operands(node: OnnxNode) -> Iterator[str]:
    """Yield the tensors that a node reads on its device."""
    yield from (name for place, name in enumerate(node.inputs) if name and place not in node.arguments)
    yield from node.captured


def _node(node: onnx.NodeProto, inference: Inference, *, is_ready: bool) -> tuple[OnnxNode, Known]:
    cost = cost_of(node, inference)
    is_default = node.domain in DEFAULT_DOMAINS
    own = set(node.input)
    translated = OnnxNode(
        printable(node.name or next(filter(None, node.output))),
        node.op_type if is_default else printable(f"{node.domain}.{node.op_type}"),
        printable(kind_of(node.op_type)),
        tuple(node.input),
        tuple(node.output),
        tuple(name for name in inputs_of(node) if name not in own),
        dict(attributes_of(node)),
        dict(_arguments(node, inference)) if is_default else {},
        cost.flops,
        cost.bytes,
        cost.inner_bytes,
        is_ready,
    )
    return translated, cost.known


def _arguments(node: onnx.NodeProto, inference: Inference) -> Iterator[tuple[int, Numbers]]:
    for place in ARGUMENTS.get(node.op_type, ()):
        value = inference.value(node.input[place]) if place < len(node.input) else None
        if value is not None:
            yield place, tuple(value.ravel().tolist())
