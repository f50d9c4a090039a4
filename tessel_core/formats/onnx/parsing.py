"""Parse bytes into a checked ModelProto with a known opset, inlined functions and sorted nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.model.checks import find_cycle, topological_order
from tessel_core.model.operator_graph import MAX_OPERATORS

if TYPE_CHECKING:
    import onnx

DEFAULT_DOMAINS = ("", "ai.onnx")
_VERSION_LIMIT = 2**31
_OLDEST_OPSET = 7
"""First opset with today's broadcasting rules.  Older models are converted to it."""
_MAX_CALL_DEPTH = 50
"""Largest depth of functions that call each other."""


def parse_model(skeleton: bytes) -> onnx.ModelProto:
    """Parse the skeleton of a model and inline its functions.

    The onnx package converts models older than opset 7 to opset 7.

    Raises InputError for damaged bytes, an unknown opset, too many nodes, recursive functions, and old operators that
    cannot be converted.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        model = ModelProto.FromString(skeleton)
    except DecodeError:
        raise InputError("the model", "is damaged: it is not an ONNX model") from None
    if not model.graph.node:
        raise InputError("the model", "has no nodes")
    _check_opset(model)
    _check_count(model)
    model = _without_functions(model) if model.functions else model
    version = opset_of(model)
    return model if version is None or version >= _OLDEST_OPSET else _converted(model, version)


def _converted(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Convert a model to `_OLDEST_OPSET`."""
    from onnx.version_converter import ConvertError, convert_version

    try:
        return convert_version(model, _OLDEST_OPSET)
    except (ConvertError, RuntimeError, ValueError, TypeError) as error:
        why = f"is written in opset {version}, which the onnx package does not convert to {_OLDEST_OPSET}"
        raise InputError("the model", f"{why}: {first_line(error).rpartition('failed: ')[2]}") from None


def opset_of(model: onnx.ModelProto, domain: str = "") -> int | None:
    """Return the opset version of `domain`; None if the model does not use it."""
    names = DEFAULT_DOMAINS if domain in DEFAULT_DOMAINS else (domain,)
    return next((each.version for each in model.opset_import if each.domain in names), None)


def _check_opset(model: onnx.ModelProto) -> None:
    from onnx.defs import onnx_opset_version

    version, newest = opset_of(model), onnx_opset_version()
    if version is None and all(node.domain in DEFAULT_DOMAINS for node in model.graph.node):
        raise InputError("the model", "does not say which opset it is written in")
    if version is not None and not 1 <= version <= newest:
        raise InputError("the model", f"is written in opset {version}, but only 1 to {newest} are supported")
    for each in model.opset_import:
        if not 0 < each.version < _VERSION_LIMIT:
            raise InputError("the model", f"opset {each.version} is invalid for domain {each.domain!r}")


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in a node's attributes: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _check_count(model: onnx.ModelProto) -> None:
    """Raise InputError if the model has too many nodes after inlining, or recursive functions."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    sizes = dict[tuple[str, str, str], int]()
    calling = list[tuple[str, str, str]]()

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        """Return the number of nodes, including subgraphs and called functions."""
        total = 0
        for node in nodes:
            key = node.domain, node.op_type, node.overload
            total += size_of(key) if key in functions else 1
            total += sum(count(graph.node) for graph in subgraphs(node))
            if total > MAX_OPERATORS:
                raise InputError("the model", f"has more than the {MAX_OPERATORS:,} nodes allowed")
        return total

    def size_of(key: tuple[str, str, str]) -> int:
        if key in calling or len(calling) > _MAX_CALL_DEPTH:
            raise InputError(f"function {key[1]}", "calls itself" if key in calling else "is called too deep")
        if key not in sizes:
            calling.append(key)
            sizes[key] = count(functions[key].node)
            calling.pop()
        return sizes[key]

    count(model.graph.node)


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnx.inliner import inline_local_functions

    try:
        return inline_local_functions(model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError("functions", f"cannot be inlined: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """Return the first line of a library's error message, without its prefix."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return line.rpartition("] ")[2][:200]


def inputs_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the distinct names of a node's inputs, including outer tensors that its subgraphs use."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in subgraphs(node):
        names |= dict.fromkeys(_captured_by(graph))
    return tuple(names)


def _captured_by(graph: onnx.GraphProto) -> Iterator[str]:
    own = {each.name for each in (*graph.input, *graph.initializer)}
    own |= {each.values.name for each in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in inputs_of(node) if name not in own)
    yield from (each.name for each in graph.output if each.name not in own)


def label_of(node: onnx.NodeProto) -> str:
    """Return a node's label in error messages: its name, or else its first output, and its type."""
    name = node.name or next((name for name in node.output if name), "")
    return f"node {name} ({node.op_type})" if name else f"node {node.op_type}"


def ordered_nodes(graph: onnx.GraphProto) -> tuple[onnx.NodeProto, ...]:
    """Sort the nodes so that each comes after those whose outputs it uses.

    Raises InputError for a tensor that no node or two nodes make, and for a cycle of nodes.
    """
    maker = dict[str, int]()
    given = {each.name for each in (*graph.input, *graph.initializer)}
    given |= {each.values.name for each in graph.sparse_initializer}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in given or maker.setdefault(name, index) != index:
                raise InputError(f"tensor {name}", f"is made twice, the second time by {label_of(node)}")
    before = list[list[int]]()
    for node in graph.node:
        names = inputs_of(node)
        missing = next((name for name in names if name not in maker and name not in given), None)
        if missing is not None:
            raise InputError(label_of(node), f"uses tensor {missing!r}, which no node makes")
        before.append([maker[name] for name in names if name in maker])
    cycle = find_cycle(before)
    if cycle:
        raise InputError("nodes", f"they form a cycle: {' -> '.join(label_of(graph.node[i]) for i in cycle[:12])}")
    return tuple(graph.node[i] for i in topological_order(before))
