"""The shape of every tensor, and which of them are constant: node by node, as the onnx package infers them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.onnx.formulas import VIEWS
from tessel_core.formats.onnx.parsing import DEFAULT_DOMAINS, first_line, inputs_of, label_of, opset_of, subgraphs
from tessel_core.formats.onnx.tensors import (
    MOST_KNOWN,
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


_ELSE = 1
_OPEN = -1
"""Some exporters write this for an open size."""


class OpenSizes:
    """Sizes that a file leaves open: named ones such as `batch`, unnamed ones as `input[axis]`; 1 unless given."""

    def __init__(self, given: Mapping[str, int]) -> None:
        for name, size in given.items():
            check_integer("sizes", name, size, least=1)
        self._given = dict(given)
        self._taken = dict[str, int]()

    def close(self, name: str, kind: onnx.TypeProto) -> None:
        """Fill in every open size of graph input `name`; InputError where not even the rank is known, or a size is
        negative."""
        for key, size in _open_in(name, kind):
            size.dim_value = self._taken.setdefault(key, self._given.get(key, _ELSE))

    def close_known(self, name: str, kind: onnx.TypeProto) -> None:
        """Fill in the sizes that have the name of an input's or a given one, and forget the others' names.

        Raises InputError where a size of the tensor `name` is negative.
        """
        _check(name, kind)
        for size in kind.tensor_type.shape.dim:
            if size.HasField("dim_param") or size.dim_value < 0:
                key = size.dim_param
                size.Clear()
                if key in self._given:
                    self._taken[key] = self._given[key]
                if key in self._taken:
                    size.dim_value = self._taken[key]

    def check_used(self) -> None:
        """Raise InputError for a given size that the file does not ask for."""
        for name in self._given:
            if name not in self._taken:
                known = f"known are {', '.join(self._taken)}" if self._taken else "the file leaves none open"
                raise InputError("sizes", f"no tensor has an open size {name!r}, {known}")

    def warnings(self) -> tuple[str, ...]:
        """One sentence that names the sizes that nobody gave."""
        found = [name for name in self._taken if name not in self._given]
        if not found:
            return ()
        return (f"the file leaves {', '.join(found)} open; {'it is' if len(found) == 1 else 'they are'} taken as 1",)


def open_sizes_of(graph: onnx.GraphProto) -> tuple[str, ...]:
    """The names of the sizes that the inputs of a graph leave open, each once; InputError as of `OpenSizes.close`."""
    return tuple(dict.fromkeys(key for each in _asked(graph) for key, _ in _open_in(each.name, each.type)))


def _asked(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """The inputs that some node takes and the file does not hold itself."""
    held = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    used = {name for node in graph.node for name in inputs_of(node)}
    return (each for each in graph.input if each.name in used and each.name not in held)


def _open_in(name: str, kind: onnx.TypeProto) -> Iterator[tuple[str, onnx.TensorShapeProto.Dimension]]:
    """The open sizes of an input by name."""
    if kind.WhichOneof("value") == "tensor_type" and not kind.tensor_type.HasField("shape"):
        raise InputError(f"input {name}", "has no shape")
    _check(name, kind)
    for axis, size in enumerate(kind.tensor_type.shape.dim):
        if not size.HasField("dim_value") or size.dim_value < 0:
            yield size.dim_param or f"{name}[{axis}]", size


def _check(name: str, kind: onnx.TypeProto) -> None:
    """Raise InputError for a size that is negative and does not stand for an open one."""
    for axis, size in enumerate(kind.tensor_type.shape.dim):
        if size.dim_value < _OPEN:
            raise InputError(f"tensor {name}", f"has size {size.dim_value} along axis {axis}")


_SAME_DATA = VIEWS | {"Transpose", "DequantizeLinear"}
"""Their output shares a constant's data: quantized weights stay so until they are used."""
_NEVER_CONSTANT = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
_MASKS_INFERRED = 12
"""The first opset of which the package infers the shape of a Dropout's mask: that of its input."""
_BOOLEAN_MASKS = 10
"""The first opset in which the mask is of type bool, and not of its input's."""
_LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""The package infers their type only: their output has the shape of their first input, as their reference says."""


class Inference:
    """Shapes and constants of all tensors, learnt node by node in order.

    Attributes
    ----------
    tensors
        Every tensor of the graph that has a shape.
    constants
        Those that do not depend on the graph's inputs, and the tensor that holds the data of each: what is only
        renamed, reshaped or transposed is not held again.
    """

    def __init__(self, model: onnx.ModelProto, sizes: OpenSizes) -> None:
        self.tensors = dict[str, Tensor]()
        self.constants = dict[str, str]()
        self._types = dict[str, "onnx.TypeProto"]()
        self._values = dict[str, Value]()
        self._declared = dict[str, "onnx.TypeProto"]()
        self._elsewhere = set[str]()
        """Constants whose data is in another file."""
        self._model = model
        graph = model.graph
        self._used = {name for node in graph.node for name in inputs_of(node)} | {each.name for each in graph.output}
        for each in (*graph.initializer, *map(dense, graph.sparse_initializer)):
            self._hold(each.name, each)
        for one in _asked(graph):
            sizes.close(one.name, one.type)
            self._know(one.name, one.type, f"input {one.name}")
        for one in (*graph.value_info, *graph.output):
            sizes.close_known(one.name, one.type)
            self._declared[one.name] = one.type

    def is_folded(self, node: onnx.NodeProto) -> bool:
        """Whether all that the node makes is constant."""
        return all(name in self.constants for name in node.output if name in self.tensors)

    def value(self, name: str) -> Value | None:
        """The elements of a small constant; None where they are not known."""
        return self._values.get(name)

    def visit(self, node: onnx.NodeProto) -> None:
        """Learn what the outputs of a node are; those that it takes were learnt before.

        Raises InputError naming the node, and the tensor whose shape is not known.
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
        found = self._inferred(node)
        if folded and node.op_type in SHAPE_ARITHMETIC and all(name in self._values for name in inputs_of(node)):
            shapes = [tensor_of_type(name, kind) for name, kind in found.items()]
            # The indices that are not zero are the only ones whose number is not inferred; they are few, too.
            if node.op_type == "NonZero" or all(each and each.elements <= MOST_KNOWN for each in shapes):
                values = evaluate(node, self._values, opset_of(self._model) or 0)
                if values is not None:
                    self._compute(node, values)
                    return
        for name in filter(None, node.output):
            if name not in self._declared and self._is_ignored(name, node, found.get(name)):
                continue
            self._know(name, found.get(name), label_of(node), inputs_of(node))
            if folded:
                self._fold(name, node)

    def _is_ignored(self, name: str, node: onnx.NodeProto, kind: onnx.TypeProto | None) -> bool:
        """Whether nothing takes an output but the first, and the package does not infer its shape."""
        known = kind is not None and tensor_of_type(name, kind) is not None
        return not known and name not in self._used and name != node.output[0]

    def _is_foldable(self, node: onnx.NodeProto) -> bool:
        if node.domain not in DEFAULT_DOMAINS or node.op_type in _NEVER_CONSTANT or next(subgraphs(node), None):
            return False
        return all(name in self.constants for name in inputs_of(node))

    def _inferred(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        """Types of the outputs; empty for an operator that the package does not know."""
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
            found = infer_node_outputs(schema, node, types, data, None, list(self._model.opset_import))
        except (InferenceError, ValidationError, RuntimeError, ValueError) as error:
            raise InputError(where, f"does not fit its inputs: {first_line(error)}") from None
        if node.op_type in _LIKE_INPUT and not domain and node.input[0]:
            return {node.output[0]: types[node.input[0]]}
        if node.op_type == "Dropout" and not domain and len(node.output) > 1 and version < _MASKS_INFERRED:
            mask = TypeProto()
            mask.CopyFrom(types[node.input[0]])
            if version >= _BOOLEAN_MASKS:
                mask.tensor_type.elem_type = TensorProto.BOOL
            return {**found, node.output[1]: mask}
        return found

    def _know(self, name: str, kind: onnx.TypeProto | None, where: str, taken: Iterable[str] = ()) -> None:
        """The shape of a tensor from its type, or from what the file declares where that says more."""
        known = None if kind is None else tensor_of_type(name, kind)
        if known is None and name in self._declared:
            kind = self._declared[name]
            known = tensor_of_type(name, kind)
        if known is None or kind is None:
            missing = next((each for each in taken if each in self._elsewhere), None)
            why = "" if missing is None else f": the data of {missing!r} is in another file, which is never opened"
            raise InputError(where, f"the shape of tensor {name!r} is not known{why}")
        self.tensors[name], self._types[name] = known, kind

    def _hold(self, name: str, held: onnx.TensorProto) -> None:
        """A constant that the file holds."""
        from onnx import helper

        if name in self.constants:
            raise InputError(f"tensor {name}", "is held twice")
        found = tensor(name, held.data_type, tuple(held.dims))
        self._types[name] = helper.make_tensor_type_proto(held.data_type, list(held.dims))
        self.tensors[name] = found
        self.constants[name] = name
        value = value_of(held)
        if value is not None:
            self._values[name] = value
        elif held.data_location == held.EXTERNAL or held.external_data:
            self._elsewhere.add(name)

    def _fold(self, name: str, node: onnx.NodeProto) -> None:
        """A constant that a node makes of others."""
        is_same = node.op_type in _SAME_DATA and name == node.output[0]
        self.constants[name] = self.constants.get(node.input[0], name) if is_same else name

    def _compute(self, node: onnx.NodeProto, values: Iterable[Value]) -> None:
        """Constants whose elements are known."""
        from onnx import helper

        for name, value in zip(filter(None, node.output), values, strict=True):
            element = helper.np_dtype_to_tensor_dtype(value.dtype)
            self._types[name] = helper.make_tensor_type_proto(element, list(value.shape))
            self.tensors[name] = tensor(name, element, value.shape)
            self._values[name] = value
            self._fold(name, node)
