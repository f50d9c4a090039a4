"""Convert an ONNX network to a program on one device."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.formats.onnx import OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.names import Names, listed
from tessel_core.formats.onnx.tensors import Tensor
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.operators import inferred
from tessel_core.ir.operators.stated import opaque_attributes
from tessel_core.ir.program import Tag
from tessel_core.ir.types import REAL, WIDTHS, TensorType
from tessel_core.networks.onnx.rules import RULES
from tessel_core.networks.onnx.use import Operation, Use

_DEVICE = 1
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.'/-]")
"""Characters that are not allowed in the names of a program's text."""


@dataclass(frozen=True)
class OnnxProgram:
    """A program with the names of the file for inputs and outputs, and warnings about the conversion."""

    model: Distributed
    warnings: tuple[str, ...]


def onnx_program(network: OnnxNetwork) -> OnnxProgram:
    """Convert a network to a program with one operation per node, in the same order and with the same names.

    Inputs and constants of the network become inputs of the program. A constant with more than one floating-point
    number is a weight. A node without an equivalent operation becomes an opaque operation with the node's FLOPs and
    bytes, and a warning names it.
    """
    writer = _Writer(network)
    for node in network.nodes:
        writer.write(node)
    program = writer.build.finish([writer.value_of[name] for name in network.outputs])
    inputs, outputs = (tuple(map(Piece, names)) for names in (writer.given, network.outputs))
    weights = {name: Role(weight=_is_weight(network.tensors[name])) for name in network.constants}
    roles = dict.fromkeys((*writer.given, *network.outputs), Role()) | weights
    model = Distributed(program, inputs, outputs, roles)
    return OnnxProgram(model, (*network.warnings, *_warnings(writer.opaque)))


def _is_weight(tensor: Tensor) -> bool:
    """Return whether training would change the constant."""
    return tensor.dtype in REAL and math.prod(tensor.shape) > 1


def _warnings(opaque: Sequence[OnnxNode]) -> Iterator[str]:
    names_of = defaultdict[str, list[str]](list)
    for node in opaque:
        names_of[node.op_type].append(node.name)
    if names_of:
        named = [f"{op} ({len(names)}, first {names[0]})" for op, names in names_of.items()]
        yield f"operators without an equivalent operation have only a cost: {listed(named)}"


class _Writer:
    """Adds the nodes of a network to a program, and records the value of each tensor."""

    def __init__(self, network: OnnxNetwork) -> None:
        self.network = network
        self.build = ProgramBuilder(_identifier(network.name))
        self.value_of: dict[str, int] = {}
        self.opaque: list[OnnxNode] = []
        self.given: list[str] = []
        self._names, self._node_names = Names(), Names()
        for name in (*network.inputs, *network.constants):
            self._give(name, self._type(name))

    def write(self, node: OnnxNode) -> None:
        """Append the operation of a node. A node that only renames its input adds no operation."""
        use = Use(node, self.network)
        if _passes_on(use):
            self.value_of[node.outputs[0]] = self.value_of[node.inputs[0]]
            return
        made = [name for name in node.outputs if name]
        operation = self._by_rule(use) or self._opaque(node)
        inputs = [self.value_of[name] for name in operation.inputs]
        tag = Tag(phase="forward", name=self._node_names.unique(node.name))
        values = self.build.append(operation.kind, inputs, operation.attributes, tag, map(self._name, made))
        self.value_of.update(zip(made, values, strict=True))

    def _give(self, name: str, of_type: TensorType) -> None:
        """Add an input to the program."""
        self.given.append(name)
        self.value_of[name] = self.build.input(self._name(name), of_type)

    def _by_rule(self, use: Use) -> Operation | None:
        """Return the operation by the node's rule. None if the types of its outputs differ from those in the file."""
        names = [name for name in (*use.node.inputs, *use.node.outputs) if name]
        rule = RULES.get(use.node.op_type)
        if rule is None or any(self.network.tensors[name].dtype not in WIDTHS for name in names):
            return None
        try:
            operation = rule(use)
            if operation is None:
                return None
            inputs = [self.build.type_of(self.value_of[name]) for name in operation.inputs]
            types = inferred(operation.kind, inputs, operation.attributes)
        except (InputError, ArithmeticError, LookupError, ValueError):  # The attributes do not fit the inputs.
            return None
        return operation if types == tuple(self._type(name) for name in use.node.outputs if name) else None

    def _opaque(self, node: OnnxNode) -> Operation:
        """Return an opaque operation with the costs of the node.

        Constants in its subgraphs become an additional input.
        """
        self.opaque.append(node)
        outputs = [self._type(name) for name in node.outputs if name]
        inputs = dict.fromkeys(name for place, name in enumerate(node.inputs) if name and place not in node.arguments)
        attributes = opaque_attributes(_identifier(node.kind), node.flops, node.bytes, outputs, _DEVICE)
        held = list[str]()
        if node.inner_bytes:
            held.append(f"{node.name}.constants")
            self._give(held[0], TensorType("int8", (node.inner_bytes,), _DEVICE))
        return Operation("opaque", (*inputs, *node.captured, *held), tuple(sorted(attributes.items())))

    def _type(self, name: str) -> TensorType:
        """Return the type of a tensor.

        Tensors of an unsupported format become int8 tensors with the same number of bytes.
        """
        tensor = self.network.tensors[name]
        if tensor.dtype not in WIDTHS:
            return TensorType("int8", (tensor.bytes,), _DEVICE)
        return TensorType(tensor.dtype, tensor.shape, _DEVICE)

    def _name(self, name: str) -> str:
        """Return a unique name that is not a number. Numbers refer to values without a name."""
        identifier = _identifier(name)
        return self._names.unique(f"_{identifier}" if identifier.isdigit() else identifier)


def _passes_on(use: Use) -> bool:
    """Return whether a node returns its input unchanged."""
    if use.node.op_type == "Dropout":
        training = use.node.arguments.get(2, (True,))[0] if use.has(2) else False
        return use.makes_one and not training
    return use.node.op_type == "Identity"


def _identifier(name: str) -> str:
    return _FORBIDDEN.sub("_", name)
