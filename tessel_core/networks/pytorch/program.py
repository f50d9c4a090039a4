"""Convert a user's PyTorch module to a program, with `torch.export` on tensors without data."""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from tessel_core.errors import InputError
from tessel_core.ir.definition import SAMPLES, Definition
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.operators.stated import opaque_attributes
from tessel_core.ir.program import AttributeValue
from tessel_core.ir.types import TensorType
from tessel_core.networks.pytorch.rules import Call, Value, operations
from tessel_core.networks.pytorch.source import asked_function, call, made_by, no_silent_exit
from tessel_core.torch_extra import TORCH_NAMES, need_torch

_MAX_MESSAGE_CHARACTERS = 200
"""Repeat at most this many characters of a PyTorch error message."""


@dataclass(frozen=True)
class ImportedModule:
    """Forward pass of a module on one device."""

    model: Distributed
    name: str
    batch_size: int
    opaque: Mapping[str, int]
    """Number of uses of each PyTorch operator for which only the cost is known."""


def import_module(target: str, dtype: str = "", samples: int | None = None) -> ImportedModule:
    """Call `FILE.py:FUNCTION` and convert the module that it returns, without weights.

    The function must return a module and its example inputs, a tensor or a tuple of tensors. Axis 0 of an input holds
    the samples. The function runs on PyTorch's `meta` device, where tensors have no data. `dtype` is the format of
    floating-point weights and inputs. If it is empty, they keep their own format. `samples` is the new length of axis
    0, for each input whose axis 0 is as long as that of the first input. If it is None, all lengths stay.

    Raises InputError if the file cannot be run, returns anything else, or cannot be exported, for example because
    shapes depend on data.
    """
    path, name = asked_function(target)
    need_torch("tessel graph --torch")
    with no_silent_exit():
        return _imported(target, path, name, dtype, samples)


def _imported(target: str, path: str, name: str, dtype: str, samples: int | None) -> ImportedModule:
    import torch

    def made() -> Any:
        with torch.device("meta"):
            return made_by(path, name)

    module, given = _checked(target, call(target, made))
    if dtype:
        torch_dtype = getattr(torch, TORCH_NAMES.get(dtype, ""), None)
        if torch_dtype is None or not torch_dtype.is_floating_point:
            raise InputError("dtype", f"must be a floating-point format, got {dtype!r}")
        module = module.to(torch_dtype)
        given = tuple(each.to(torch_dtype) if each.is_floating_point() else each for each in given)
    if samples is not None:
        given = tuple(_resized(each, given[0].shape[:1], samples) for each in given)
    try:
        with _quiet():
            exported = call(target, lambda: torch.export.export(module.eval(), given, strict=False))
    except InputError as error:
        raise InputError(target, f"cannot be exported: {error.why[:_MAX_MESSAGE_CHARACTERS]}") from None
    return _Translation(target, exported, Path(path).stem).imported()


def _resized(tensor: Any, usual: tuple[int, ...], samples: int) -> Any:
    """Return an input with `samples` samples. It is unchanged if its first axis does not have the length `usual`."""
    return tensor.new_empty((samples, *tensor.shape[1:])) if usual and tensor.shape[:1] == usual else tensor


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress PyTorch's logs, warnings and printed output during the export."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _checked(target: str, made: Any) -> tuple[Any, tuple[Any, ...]]:
    import torch

    what = "must return a module and its inputs, such as (nn.Linear(8, 8), torch.zeros(4, 8))"
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise InputError(target, f"{what}; it returned {type(made).__name__}")
    given = made[1] if isinstance(made[1], tuple) else (made[1],)
    if not given:
        raise InputError(target, f"{what}; it returned no inputs")
    for each in given:
        if not isinstance(each, torch.Tensor):
            raise InputError(target, f"{what}; an input is {type(each).__name__}")
    return made[0], given


class _Translation:
    """Converts an exported module operator by operator. An operator without an equivalent becomes opaque."""

    def __init__(self, target: str, exported: Any, name: str) -> None:
        self._target, self._exported, self._name = target, exported, name
        self._net = Definition(name)
        self._value: dict[Any, Any] = {}
        """For each node, its value or a sequence of values."""
        self._layers: dict[str, int] = {}
        self._number = 0
        self._used = Counter[str]()
        self._opaque = Counter[str]()
        self._batch = 1

    def imported(self) -> ImportedModule:
        """Convert all nodes and return the module."""
        signature, graph = self._exported.graph_signature, self._exported.graph
        for node in graph.nodes:
            if node.op == "placeholder":
                self._input(node, signature)
            elif node.op == "call_function":
                self._value[node] = self._call(node)
        (ended,) = (node for node in graph.nodes if node.op == "output")
        made = [each for each in ended.args[0] if each in self._value and isinstance(self._value[each], int)]
        if not made:
            raise InputError(self._target, "returns no tensor that depends on its inputs")
        outputs = {f"output{i}": self._value[each] for i, each in enumerate(made)}
        return ImportedModule(self._net.finish(outputs), self._name, self._batch, dict(self._opaque))

    def _input(self, node: Any, signature: Any) -> None:
        held = node.meta.get("val")
        if not hasattr(held, "shape"):
            return
        of = self._type(held)
        for names, role in (
            (signature.inputs_to_parameters, Role(weight=True)),
            ({**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}, Role()),
        ):
            if node.name in names:
                self._value[node] = self._net.input(names[node.name], of.dtype, of.shape, role)
                return
        if of.shape:
            self._batch = of.shape[0]
        self._value[node] = self._net.input(node.name, of.dtype, of.shape, SAMPLES if of.shape else Role())

    def _type(self, tensor: Any) -> TensorType:
        torch_name = str(tensor.dtype).removeprefix("torch.")
        known = next((name for name, each in TORCH_NAMES.items() if each == torch_name and name != "tf32"), None)
        if known is None:
            raise InputError(self._target, f"has a tensor of {tensor.dtype}, which is not supported")
        return TensorType(known, tuple(map(int, tensor.shape)), 1)

    def _call(self, node: Any) -> Any:
        kind = getattr(node.target, "__name__", str(node.target))
        if kind == "getitem":
            return self._value[node.args[0]][node.args[1]]
        kind = str(node.target).removeprefix("aten.").partition(".")[0]
        made = node.meta.get("val")
        if made is None or (not hasattr(made, "shape") and not isinstance(made, tuple | list)):
            return None  # The node is a check or a size, not a tensor.
        layer, name = self._place(node, kind)
        with self._net.layer(layer, self._layers.get(layer, self._number)):
            try:
                value = self._known(kind, name, node, made)
            except InputError:  # The operation does not support these shapes or formats.
                value = None
            return self._made_opaque(kind, name, node, made) if value is None else value

    def _place(self, node: Any, kind: str) -> tuple[str, str]:
        """Return the layer of a node, such as `layers.3`, and its name in the layer.

        Both come from the module that runs it.
        """
        stack = list(node.meta.get("nn_module_stack", {}).values())
        path, of_class = stack[-1] if stack else ("", "")
        of_class = of_class if isinstance(of_class, str) else f"{of_class.__module__}.{of_class.__qualname__}"
        parts = path.split(".") if path else []
        end = next((i + 1 for i, part in enumerate(parts) if part.isdigit()), min(1, len(parts)))
        layer, within = ".".join(parts[:end]) or self._name, "/".join(parts[end:])
        if end and parts[end - 1].isdigit() and layer not in self._layers:
            self._layers[layer] = self._number = len(self._layers)
        own = of_class.startswith("torch.nn.modules.") and not of_class.startswith("torch.nn.modules.container")
        name = within if own and within else f"{within}/{node.name}".lstrip("/")
        self._used[f"{layer}/{name}"] += 1
        return layer, name if self._used[f"{layer}/{name}"] == 1 else f"{name}/{kind}"

    def _tensors(self, node: Any) -> list[int]:
        given = self._argument([*node.args, *node.kwargs.values()])
        flat = [each for part in given for each in (part if isinstance(part, list) else [part])]
        return [each for each in flat if isinstance(each, Value)]

    def _known(self, kind: str, name: str, node: Any, made: Any) -> Any:
        """Convert an operator by its rule. Return None if there is no rule or if the rule does not apply."""
        args = [self._argument(each) for each in node.args]
        dtype = self._type(made).dtype if hasattr(made, "shape") else ""
        return operations(Call(self._net, kind, name, args, node.kwargs, made, dtype))

    def _argument(self, given: Any) -> Any:
        """Return the program's value for a tensor. Return any other argument unchanged."""
        if isinstance(given, list | tuple):
            return [self._argument(each) for each in given]
        if not _is_node(given):
            return given
        value = self._value.get(given)
        return Value(value) if isinstance(value, int) else None

    def _made_opaque(self, kind: str, name: str, node: Any, made: Any) -> Any:
        given, many = self._tensors(node), isinstance(made, tuple | list)
        types = [self._type(each) for each in (made if many else [made]) if hasattr(each, "shape")]
        moved = 0.0
        if not _is_view(node.target):
            moved = float(sum(self._net.type_of(each).bytes for each in given) + sum(each.bytes for each in types))
        if not given:  # The tensor is a constant, or consists of zeros.
            given = [self._net.input(f"{node.name}.none", "int32", (), Role())]
        values: dict[str, AttributeValue] = dict(opaque_attributes(kind, _flops(node, made), moved, types, 1))
        if moved:
            self._opaque[kind] += 1
        outputs = self._net.all(name, "opaque", *given, **values)
        return outputs if many else outputs[0]


def _is_node(given: Any) -> bool:
    return type(given).__name__ == "Node"


def _elements(tensor: Any) -> int:
    return math.prod(map(int, tensor.shape))


def _is_view(target: Any) -> bool:
    """Return whether an operator returns a view, so that no data is moved."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return False
    return bool(schema.returns) and all(each.alias_info and not each.alias_info.is_write for each in schema.returns)


def _flops(node: Any, made: Any) -> float:
    """Return PyTorch's own FLOP count of the operator. If there is none, count one FLOP per output element."""
    from torch.utils.flop_counter import flop_registry

    if "scaled_dot_product_attention" in str(node.target):
        q, k, v = (each.meta["val"].shape for each in node.args[:3])
        return float(2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1]))
    rule = flop_registry.get(node.target) or flop_registry.get(getattr(node.target, "overloadpacket", None))
    tensors = made if isinstance(made, tuple | list) else [made]
    if rule is not None:
        try:
            args = [each.meta["val"] if _is_node(each) else each for each in node.args]
            return float(rule(*args, **node.kwargs, out_val=made))
        except (TypeError, KeyError, AttributeError):
            pass
    return 0.0 if _is_view(node.target) else float(sum(_elements(each) for each in tensors if hasattr(each, "shape")))
