"""A skeleton to what it says node by node: the part that runs code of the onnx package on what a file says."""

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
from tessel_core.formats.onnx.parsing import (
    DEFAULT_DOMAINS,
    inputs_of,
    label_of,
    opset_of,
    ordered_nodes,
    parse_model,
)

if TYPE_CHECKING:
    import onnx

Listener = Callable[[str], None]

_LONGEST = 300
"""Characters of a complaint's place and of its reason."""


def _nobody(label: str) -> None:
    """The listener of callers that do not listen."""


def translate(skeleton: bytes, given: Mapping[str, int], at: Listener = _nobody) -> OnnxNetwork:
    """The network of a model without its weights; `at` hears of each node before it is looked at.

    `given` are sizes that the model leaves open.

    Raises InputError with the place and the reason, printable whatever the file's names hold: for what is damaged, for
    a size that the model has not, and where nothing is left.
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
    """The names of the sizes that a model leaves open; InputError as of `translate`."""
    with _printable():
        return open_sizes_of(parse_model(skeleton).graph)


@contextmanager
def _printable() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(printable(error.where, _LONGEST), printable(error.why, _LONGEST)) from None


def _network(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inference: Inference, warnings: tuple[str, ...]
) -> OnnxNetwork:
    """The network of nodes in order."""
    ends = tuple(dict.fromkeys(each.name for each in model.graph.output if each.name in inference.tensors))
    costed = _left(nodes, ends, inference)
    left = tuple(node for node, _ in costed)
    if all(node.is_ready for node in left):
        raise InputError("the model", "has no operator that depends on its inputs")
    made = {name for node in left for name in node.outputs}
    taken = dict.fromkeys(name for node in left for name in _operands(node))
    given = [name for name in dict.fromkeys((*taken, *ends)) if name not in made]
    named = dict.fromkeys((*given, *(name for node in left for name in (*node.inputs, *node.outputs) if name)))
    return OnnxNetwork(
        printable(model.graph.name) or "onnx",
        opset_of(model) or 0,
        {name: inference.tensors[name] for name in named},
        tuple(each.name for each in model.graph.input if each.name in given and each.name not in inference.constants),
        tuple(name for name in given if name in inference.constants),
        left,
        ends,
        (*warnings, *unknown_costs((node.op_type, node.name, known) for node, known in costed)),
    )


def _left(nodes: Sequence[onnx.NodeProto], ends: Sequence[str], inference: Inference) -> list[tuple[OnnxNode, Known]]:
    """Without those that make constants, but for those that only look at one in another way."""
    wanted, found = set(ends), list[tuple[OnnxNode, Known]]()
    for node in reversed(nodes):
        looks = inference.is_folded(node)
        if looks and not _is_a_look(node, wanted, inference):
            continue
        each = _node(node, inference, is_ready=looks)
        wanted.update(_operands(each[0]))
        found.append(each)
    return found[::-1]


def _is_a_look(node: onnx.NodeProto, wanted: set[str], inference: Inference) -> bool:
    """Whether a constant that is wanted is the data of another one."""
    made = [name for name in node.output if name in wanted]
    return bool(made) and all(inference.constants[name] != name for name in made)


def _operands(node: OnnxNode) -> Iterator[str]:
    """The tensors that it reads on its device."""
    yield from (name for place, name in enumerate(node.inputs) if name and place not in node.arguments)
    yield from node.captured


def _node(node: onnx.NodeProto, inference: Inference, *, is_ready: bool) -> tuple[OnnxNode, Known]:
    cost = cost_of(node, inference)
    is_default = node.domain in DEFAULT_DOMAINS
    own = set(node.input)
    found = OnnxNode(
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
    return found, cost.known


def _arguments(node: onnx.NodeProto, inference: Inference) -> Iterator[tuple[int, Numbers]]:
    for place in ARGUMENTS.get(node.op_type, ()):
        value = inference.value(node.input[place]) if place < len(node.input) else None
        if value is not None:
            yield place, tuple(value.ravel().tolist())
