"""Infer the shape of every tensor and find constant ones, node by node, with the onnx package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.onnx.formulas import VIEWS
from tessel_core.formats.onnx.parsing import DEFAULT_DOMAINS, first_line, inputs_of, label_of, opset_of, subgraphs
from tessel_core.formats.onnx.tensors import (
    MAX_KNOWN_ELEMENTS,
    SHAPE_ARITHMETIC,
    Tensor,
    Value,
    constant_of,
    dense,
    evaluate,
    shape_value,
    tensor,
    tensor_of_type,
    value_of,
)
from tessel_core.model.checks import check_integer

if TYPE_CHECKING:
    import onnx


_DEFAULT_SIZE = 1
_OPEN_SIZE = -1
"""Value that some exporters write for an open size (a size that is not fixed in the file)."""


class OpenSizes:
    """Open sizes of a model: named ones such as `batch`, and unnamed ones as `input[axis]`.  Sizes not given are 1."""

    def __init__(self, given: Mapping[str, int]) -> None:
        for name, size in given.items():
            check_integer("sizes", name, size, least=1)
        self._given = dict(given)
        self._used = dict[str, int]()

    def close(self, name: str, kind: onnx.TypeProto) -> None:
        """Set every open size of graph input `name`.

        Raises InputError if its rank is unknown or a size is negative.
        """
        for key, size in _open_in(name, kind):
            size.dim_value = self._used.setdefault(key, self._given.get(key, _DEFAULT_SIZE))

    def close_known(self, name: str, kind: onnx.TypeProto) -> None:
        """Set those open sizes of tensor `name` that have the same name as a given size or an input's size.

        The names of other open sizes are removed. Raises InputError if a size is negative.
        """
        _check(name, kind)
        for size in kind.tensor_type.shape.dim:
            if size.HasField("dim_param") or size.dim_value < 0:
                key = size.dim_param
                size.Clear()
                if key in self._given:
                    self._used[key] = self._given[key]
                if key in self._used:
                    size.dim_value = self._used[key]

    def check_used(self) -> None:
        """Raise InputError for a given size that the model does not have."""
        for name in self._given:
            if name not in self._used:
                known = f"choose from {', '.join(self._used)}" if self._used else "all sizes in the file are fixed"
                raise InputError("sizes", f"no tensor has an open size {name!r}, {known}")

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence that lists the open sizes without a given value. Empty if all were given."""
        missing = [name for name in self._used if name not in self._given]
        if not missing:
            return ()
        are = "it is" if len(missing) == 1 else "they are"
        return (f"the file leaves {', '.join(missing)} open; {are} taken as 1",)


def open_sizes_of(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Return the distinct names of open sizes of a graph's inputs.  Raises InputError like `OpenSizes.close`."""
    return tuple(dict.fromkeys(key for each in _fed_inputs(graph) for key, _ in _open_in(each.name, each.type)))


def _fed_inputs(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Return the inputs that a node uses and for which the file has no data."""
    held = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    used = {name for node in graph.node for name in inputs_of(node)}
    return (each for each in graph.input if each.name in used and each.name not in held)


def _open_in(name: str, kind: onnx.TypeProto) -> Iterator[tuple[str, onnx.TensorShapeProto.Dimension]]:
    """Yield the open sizes of an input with their names."""
    if kind.WhichOneof("value") == "tensor_type" and not kind.tensor_type.HasField("shape"):
        raise InputError(f"input {name}", "has no shape")
    _check(name, kind)
    for axis, size in enumerate(kind.tensor_type.shape.dim):
        if not size.HasField("dim_value") or size.dim_value < 0:
            yield size.dim_param or f"{name}[{axis}]", size


def _check(name: str, kind: onnx.TypeProto) -> None:
    """Raise InputError for a negative size that does not mean an open one."""
    for axis, size in enumerate(kind.tensor_type.shape.dim):
        if size.dim_value < _OPEN_SIZE:
            raise InputError(f"tensor {name}", f"has size {size.dim_value} along axis {axis}")


_SAME_DATA = VIEWS | {"Transpose", "DequantizeLinear"}
"""Operators whose output shares the data of a constant.  Quantized weights stay quantized until they are used."""
_NEVER_CONSTANT = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
_INFERRED_MASK_OPSET = 12
"""First opset for which the package infers the shape of a Dropout's mask, which is that of its input."""
_BOOLEAN_MASK_OPSET = 10
"""First opset in which the mask is boolean instead of having its input's type."""
_LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""Operators of which the package infers only the type.  By definition, the output has the shape of the first input."""


class Inference:
    """Shapes and constants of all tensors, inferred node by node in order.

    Attributes
    ----------
    tensors
        Every tensor of the graph with a known shape, by name.
    constants
        Tensors that do not depend on the graph's inputs, each with the tensor that holds its data.  A renamed,
        reshaped or transposed constant has the data of the original.
    """

    def __init__(self, model: onnx.ModelProto, sizes: OpenSizes) -> None:
        self.tensors = dict[str, Tensor]()
        self.constants = dict[str, str]()
        self._types = dict[str, "onnx.TypeProto"]()
        self._values = dict[str, Value]()
        self._declared = dict[str, "onnx.TypeProto"]()
        self._external = set[str]()
        """Constants whose data is in another file."""
        self._model = model
        graph = model.graph
        self._used = {name for node in graph.node for name in inputs_of(node)} | {each.name for each in graph.output}
        for each in (*graph.initializer, *map(dense, graph.sparse_initializer)):
            self._hold(each.name, each)
        for info in _fed_inputs(graph):
            sizes.close(info.name, info.type)
            self._record(info.name, info.type, f"input {info.name}")
        for info in (*graph.value_info, *graph.output):
            sizes.close_known(info.name, info.type)
            self._declared[info.name] = info.type

    def is_folded(self, node: onnx.NodeProto) -> bool:
        """Return whether all outputs of the node are constant."""
        return all(name in self.constants for name in node.output if name in self.tensors)

    def value(self, name: str) -> Value | None:
        """Return the elements of a small constant; None if they are unknown."""
        return self._values.get(name)

    def visit(self, node: onnx.NodeProto) -> None:
        """Infer the outputs of a node.  Its inputs must be known.

        Raises InputError with the node, and with the tensor whose shape is unknown.
        """
        op_type = node.op_type if node.domain in DEFAULT_DOMAINS else ""
        if not any(node.output):
            return
        if op_type == "Constant":
            self._hold(node.output[0], constant_of(node))
        elif op_type in ("Shape", "Size") and node.input and node.input[0]:
            self._compute(node, (shape_value(node, self.tensors[node.input[0]].shape),))
        else:
            self._infer(node)

    def _infer(self, node: onnx.NodeProto) -> None:
        folded = self._is_foldable(node)
        types = self._inferred(node)
        if folded and node.op_type in SHAPE_ARITHMETIC and all(name in self._values for name in inputs_of(node)):
            shapes = [tensor_of_type(name, kind) for name, kind in types.items()]
            # NonZero is the only such operator whose output size is not inferred; it is small too.
            if node.op_type == "NonZero" or all(each and each.elements <= MAX_KNOWN_ELEMENTS for each in shapes):
                values = evaluate(node, self._values, opset_of(self._model) or 0)
                if values is not None:
                    self._compute(node, values)
                    return
        for name in filter(None, node.output):
            if name not in self._declared and self._is_ignored(name, node, types.get(name)):
                continue
            self._record(name, types.get(name), label_of(node), inputs_of(node))
            if folded:
                self._fold(name, node)

    def _is_ignored(self, name: str, node: onnx.NodeProto, kind: onnx.TypeProto | None) -> bool:
        """Return whether an output after the first is unused and its shape is not inferred."""
        known = kind is not None and tensor_of_type(name, kind) is not None
        return not known and name not in self._used and name != node.output[0]

    def _is_foldable(self, node: onnx.NodeProto) -> bool:
        if node.domain not in DEFAULT_DOMAINS or node.op_type in _NEVER_CONSTANT or next(subgraphs(node), None):
            return False
        return all(name in self.constants for name in inputs_of(node))

    def _inferred(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        """Return the types of the outputs by name; empty for an operator that the package does not know."""
        from onnx import TensorProto, TypeProto, numpy_helper
        from onnx.checker import ValidationError
        from onnx.defs import SchemaError, get_schema
        from onnx.shape_inference import InferenceError, infer_node_outputs

        where, domain = label_of(node), "" if node.domain in DEFAULT_DOMAINS else node.domain
        version = opset_of(self._model, domain)
        if version is None:
            raise InputError(where, f"the model names no opset of its domain {domain!r}")
        try:
            schema = get_schema(node.op_type, version, domain)
        except SchemaError:
            schema = None
        if schema is None or schema.deprecated:
            if domain:
                return {}
            raise InputError(where, f"opset {version} has no operator {node.op_type!r}")
        types = {name: self._types[name] for name in inputs_of(node)}
        data = {name: numpy_helper.from_array(self._values[name], name) for name in types if name in self._values}
        try:
            inferred = infer_node_outputs(schema, node, types, data, None, list(self._model.opset_import))
        except (InferenceError, ValidationError, RuntimeError, ValueError) as error:
            raise InputError(where, f"does not fit its inputs: {first_line(error)}") from None
        if node.op_type in _LIKE_INPUT and not domain and node.input[0]:
            return {node.output[0]: types[node.input[0]]}
        if node.op_type == "Dropout" and not domain and len(node.output) > 1 and version < _INFERRED_MASK_OPSET:
            mask = TypeProto()
            mask.CopyFrom(types[node.input[0]])
            if version >= _BOOLEAN_MASK_OPSET:
                mask.tensor_type.elem_type = TensorProto.BOOL
            return {**inferred, node.output[1]: mask}
        return inferred

    def _record(self, name: str, kind: onnx.TypeProto | None, where: str, inputs: Iterable[str] = ()) -> None:
        """Record a tensor with its inferred type, or with the type that the file declares if that has a shape."""
        known = None if kind is None else tensor_of_type(name, kind)
        if known is None and name in self._declared:
            kind = self._declared[name]
            known = tensor_of_type(name, kind)
        if known is None or kind is None:
            missing = next((each for each in inputs if each in self._external), None)
            why = "" if missing is None else f": the data of {missing!r} is in another file, which is never opened"
            raise InputError(where, f"the shape of tensor {name!r} is not known{why}")
        self.tensors[name], self._types[name] = known, kind

    def _hold(self, name: str, held: onnx.TensorProto) -> None:
        """Record a constant whose data is in the model."""
        from onnx import helper

        if name in self.constants:
            raise InputError(f"tensor {name}", "is defined twice")
        self.tensors[name] = tensor(name, held.data_type, tuple(held.dims))
        self._types[name] = helper.make_tensor_type_proto(held.data_type, list(held.dims))
        self.constants[name] = name
        value = value_of(held)
        if value is not None:
            self._values[name] = value
        elif held.data_location == held.EXTERNAL or held.external_data:
            self._external.add(name)

    def _fold(self, name: str, node: onnx.NodeProto) -> None:
        """Record a constant that a node computes from other constants."""
        is_same = node.op_type in _SAME_DATA and name == node.output[0]
        self.constants[name] = self.constants.get(node.input[0], name) if is_same else name

    def _compute(self, node: onnx.NodeProto, values: Iterable[Value]) -> None:
        """Record constants with known elements."""
        from onnx import helper

        for name, value in zip(filter(None, node.output), values, strict=True):
            element = helper.np_dtype_to_tensor_dtype(value.dtype)
            self._types[name] = helper.make_tensor_type_proto(element, list(value.shape))
            self.tensors[name] = tensor(name, element, value.shape)
            self._values[name] = value
            self._fold(name, node)
