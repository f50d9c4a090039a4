"""Costs of one node: FLOPs from a formula, and bytes moved between memory and processor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.onnx.formulas import ARGUMENTS, FORMULAS, TAKES_A_PART, VIEWS, Attribute, Call
from tessel_core.formats.onnx.inference import Inference
from tessel_core.formats.onnx.names import listed, printable
from tessel_core.formats.onnx.parsing import DEFAULT_DOMAINS, inputs_of, label_of, subgraphs
from tessel_core.formats.onnx.tensors import Shape, constant_of, dense, tensor

if TYPE_CHECKING:
    import onnx


class Known(StrEnum):
    """How the FLOPs of a node are known."""

    FORMULA = "formula"
    NO_FORMULA = "no formula"
    INSIDE = "inside"
    """The node has subgraphs that run an unknown number of times."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of one node. Unknown FLOPs are 0, so the time is then estimated from the bytes moved."""

    flops: float
    bytes: float
    inner_bytes: int
    """Bytes of the constants in its subgraphs."""
    known: Known


_UNKNOWN = {
    Known.NO_FORMULA: "there is no formula for the FLOPs of {}",
    Known.INSIDE: "the subgraphs of {} run an unknown number of times",
}


def unknown_costs(uses: Iterable[tuple[str, str, Known]]) -> Iterator[str]:
    """Yield a warning for each reason of unknown FLOPs, with the operator types and the first node of each.

    `uses` are triples of operator type, node name and `Known`.
    """
    uses = list(uses)
    for reason, sentence in _UNKNOWN.items():
        names_of = defaultdict[str, list[str]](list)
        for op_type, name, known in uses:
            if known is reason:
                names_of[op_type].append(name)
        if names_of:
            named = [f"{printable(op)} ({len(names)}, first {names[0]})" for op, names in names_of.items()]
            yield f"{sentence.format(listed(named))}: their time is estimated from the bytes moved"


def cost_of(node: onnx.NodeProto, inference: Inference) -> Cost:
    """Return the cost of a node whose tensors are all known.

    Raises InputError if its inputs and attributes do not fit its operator.
    """
    inside = sum(_inner_bytes(graph) for graph in subgraphs(node))
    op_type = node.op_type if node.domain in DEFAULT_DOMAINS else ""
    formula = FORMULAS.get(op_type)
    known = Known.FORMULA if formula else Known.INSIDE if next(subgraphs(node), None) else Known.NO_FORMULA
    try:
        flops = formula(_call(node, inference)) if formula else 0
    except (IndexError, ValueError, ZeroDivisionError):
        raise InputError(label_of(node), "its inputs and attributes do not fit its operator") from None
    read = list(_read(node, op_type, inference))
    moved = 0 if op_type in VIEWS else _moved(node, op_type, read, inference) + inside
    return Cost(float(flops), float(moved), inside, known)


def _call(node: onnx.NodeProto, inference: Inference) -> Call:
    def shapes(names: list[str]) -> tuple[Shape | None, ...]:
        return tuple(inference.tensors[name].shape if name else None for name in names)

    return Call(shapes(list(node.input)), shapes(list(node.output)), dict(attributes_of(node)))


def attributes_of(node: onnx.NodeProto) -> Iterator[tuple[str, Attribute]]:
    """Yield the attributes that are numbers, text or lists of integers; formulas need no others."""
    from onnx import AttributeProto as Kind

    for each in node.attribute:
        if each.type == Kind.INT:
            yield each.name, each.i
        elif each.type == Kind.FLOAT:
            yield each.name, each.f
        elif each.type == Kind.STRING:
            yield each.name, each.s.decode(errors="replace")
        elif each.type == Kind.INTS:
            yield each.name, tuple(each.ints)


def _read(node: onnx.NodeProto, op_type: str, inference: Inference) -> Iterator[str]:
    """Return each tensor that a node reads on its device, without repetition.

    Constant arguments are left out, because the host knows them.
    """
    steering = ARGUMENTS.get(op_type, ())
    host = {name for i, name in enumerate(node.input) if i in steering and name in inference.constants}
    return (name for name in inputs_of(node) if name not in host)


def _moved(node: onnx.NodeProto, op_type: str, read: list[str], inference: Inference) -> int:
    """Return the bytes of the tensors that a node reads and writes, each counted once."""
    tensors = inference.tensors
    sizes = {name: tensors[name].bytes for name in read}
    written = sum(tensors[name].bytes for name in node.output if name)
    if op_type in TAKES_A_PART and node.input[0] in sizes:
        sizes[node.input[0]] = min(sizes[node.input[0]], written)
    return sum(sizes.values()) + written


def _inner_bytes(graph: onnx.GraphProto) -> int:
    """Return the bytes of the constants in a graph and its subgraphs."""
    held = [*graph.initializer, *map(dense, graph.sparse_initializer)]
    held += [constant_of(node) for node in graph.node if node.op_type == "Constant"]
    own = sum(tensor(each.name, each.data_type, tuple(each.dims)).bytes for each in held)
    return own + sum(_inner_bytes(inner) for node in graph.node for inner in subgraphs(node))
