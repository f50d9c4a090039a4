"""Costs of one node: FLOPs by its formula, and bytes between memory and processor."""

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
    """It has subgraphs: how often they run is not known."""


@dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs are 0 where they are not known: the node is then bound by the bytes that it moves."""

    flops: float
    bytes: float
    inner_bytes: int
    """Bytes of the constants in its subgraphs."""
    known: Known


_UNKNOWN = {
    Known.NO_FORMULA: "there is no formula for the FLOPs of {}",
    Known.INSIDE: "how often the subgraphs run is not known of {}",
}


def unknown_costs(uses: Iterable[tuple[str, str, Known]]) -> Iterator[str]:
    """A sentence for each reason, with the operators' types and the first of each; uses are type, name and `Known`."""
    uses = list(uses)
    for reason, sentence in _UNKNOWN.items():
        found = defaultdict[str, list[str]](list)
        for op_type, name, known in uses:
            if known is reason:
                found[op_type].append(name)
        if found:
            named = [f"{printable(op)} ({len(names)}, first {names[0]})" for op, names in found.items()]
            yield f"{sentence.format(listed(named))}: taken as bound by the bytes moved"


def cost_of(node: onnx.NodeProto, inference: Inference) -> Cost:
    """The cost of a node whose tensors are all known.

    Raises InputError where its inputs are not those of its operator.
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
    """Numbers, texts and lists of them; tensors and graphs are no business of a formula."""
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
    """Each tensor that it reads, once; arguments that the host knows beforehand are not read."""
    steering = ARGUMENTS.get(op_type, ())
    host = {name for i, name in enumerate(node.input) if i in steering and name in inference.constants}
    return (name for name in inputs_of(node) if name not in host)


def _moved(node: onnx.NodeProto, op_type: str, read: list[str], inference: Inference) -> int:
    """Bytes of what is read and of what is written, each once."""
    tensors = inference.tensors
    sizes = {name: tensors[name].bytes for name in read}
    written = sum(tensors[name].bytes for name in node.output if name)
    if op_type in TAKES_A_PART and node.input[0] in sizes:
        sizes[node.input[0]] = min(sizes[node.input[0]], written)
    return sum(sizes.values()) + written


def _inner_bytes(graph: onnx.GraphProto) -> int:
    """Bytes of the constants in a graph, at any depth."""
    held = [*graph.initializer, *map(dense, graph.sparse_initializer)]
    held += [constant_of(node) for node in graph.node if node.op_type == "Constant"]
    own = sum(tensor(each.name, each.data_type, tuple(each.dims)).bytes for each in held)
    return own + sum(_inner_bytes(inner) for node in graph.node for inner in subgraphs(node))
