"""A person's own PyTorch module as a program, by `torch.export` on tensors without numbers."""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from tessel_core.errors import InputError
from tessel_core.execution.extra import need_torch
from tessel_core.execution.profile import asked_function, call, no_silent_exit
from tessel_core.ir.definition import SAMPLES, Definition
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.operators.stated import opaque_attributes
from tessel_core.ir.program import AttributeValue
from tessel_core.ir.types import TensorType

_LONGEST = 200
"""Characters of what PyTorch says that are repeated."""
_PASSED_ON = {
    "to",
    "_to_copy",
    "contiguous",
    "clone",
    "detach",
    "alias",
    "lift_fresh_copy",
    "dropout",
    "feature_dropout",
    "type_as",
}
"""Operators that hand their input on, at most in another format; dropouts do so but for random zeros."""
_RESHAPES = {"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "reshape_as"}
_UNARY = {
    "silu": "silu",
    "relu": "relu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "neg": "neg",
    "exp": "exp",
    "sqrt": "sqrt",
}
_UNARY |= {"log": "log", "sin": "sin", "cos": "cos", "abs": "abs", "erf": "erf", "reciprocal": "reciprocal"}
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
_REDUCTIONS = {"mean": "reduce_mean", "sum": "reduce_sum"}


@dataclass(frozen=True)
class ImportedModule:
    """A module's forward pass on one device, and what is said about it."""

    model: Distributed
    name: str
    batch_size: int
    opaque: Mapping[str, int]
    """How often each PyTorch operator occurs of which only the costs are known."""


def import_module(target: str, dtype: str = "") -> ImportedModule:
    """Execute `FILE.py:FUNCTION` and export the module that it returns, without weights; nothing is downloaded.

    The function returns a module and its example inputs, a tensor or a tuple of them, with samples along axis 0.  It
    runs on PyTorch's `meta` device, where tensors have no numbers.  `dtype` is the format of weights and inputs with
    fractions; as the file has them where it is empty.

    Raises InputError where the file cannot be run, returns something else, or cannot be exported: where shapes depend
    on numbers, for example.
    """
    path, name = asked_function(target)
    need_torch("tessel graph --torch")
    with no_silent_exit():
        return _imported(target, path, name, dtype)


def _imported(target: str, path: str, name: str, dtype: str) -> ImportedModule:
    import torch

    from tessel_core.execution.profile import made_by
    from tessel_core.execution.torch_operators.formats import TORCH_TYPES

    def made() -> Any:
        with torch.device("meta"):
            return made_by(path, name)

    module, given = _checked(target, call(target, made))
    if dtype:
        wanted = TORCH_TYPES.get(dtype)
        if wanted is None or not wanted.is_floating_point:
            raise InputError("dtype", f"must be a format of numbers with fractions, got {dtype!r}")
        module = module.to(wanted)
        given = tuple(each.to(wanted) if each.is_floating_point() else each for each in given)
    try:
        with _quiet():
            exported = call(target, lambda: torch.export.export(module.eval(), given, strict=False))
    except InputError as error:
        raise InputError(target, f"cannot be exported: {error.why[:_LONGEST]}") from None
    return _Translation(target, exported, Path(path).stem).imported()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps PyTorch's notes about exporting to itself; an error is said in one sentence."""
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
    strange = next((each for each in given if not isinstance(each, torch.Tensor)), None)
    if strange is not None or not given:
        raise InputError(target, f"{what}; an input is {type(strange).__name__}")
    return made[0], given


Given = Sequence[Any]
"""Arguments of an operator, tensors as values of the program's definition."""


class _Translation:
    """An exported module, operator by operator; what does not fit an operator of ours becomes opaque."""

    def __init__(self, target: str, exported: Any, name: str) -> None:
        self._target, self._exported, self._name = target, exported, name
        self._net = Definition(name)
        self._value: dict[Any, Any] = {}
        """Per node, its value, or its values."""
        self._layers: dict[str, int] = {}
        self._number = 0
        self._used = Counter[str]()
        self._opaque = Counter[str]()
        self._batch = 1

    def imported(self) -> ImportedModule:
        signature, graph = self._exported.graph_signature, self._exported.graph
        for node in graph.nodes:
            if node.op == "placeholder":
                self._input(node, signature)
            elif node.op == "call_function":
                self._value[node] = self._call(node)
        (ended,) = (node for node in graph.nodes if node.op == "output")
        made = [each for each in ended.args[0] if each in self._value and isinstance(self._value[each], int)]
        if not made:
            raise InputError(self._target, "returns no tensor that its inputs reach")
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
        from tessel_core.execution.torch_operators.formats import TORCH_TYPES

        known = next((name for name, each in TORCH_TYPES.items() if each is tensor.dtype and name != "tf32"), None)
        if known is None:
            raise InputError(self._target, f"has a tensor of {tensor.dtype}, which is no format of ours")
        return TensorType(known, tuple(map(int, tensor.shape)), 1)

    def _call(self, node: Any) -> Any:
        kind = getattr(node.target, "__name__", str(node.target))
        if kind == "getitem":
            return self._value[node.args[0]][node.args[1]]
        kind = str(node.target).removeprefix("aten.").partition(".")[0]
        made = node.meta.get("val")
        if made is None or (not hasattr(made, "shape") and not isinstance(made, tuple | list)):
            return None  # no tensor: a check, or a size
        layer, name = self._place(node, kind)
        with self._net.layer(layer, self._layers.get(layer, self._number)):
            try:
                found = self._known(kind, name, node, made)
            except InputError:  # of other shapes or formats than our operator takes
                found = None
            return self._made_opaque(kind, name, node, made) if found is None else found

    def _place(self, node: Any, kind: str) -> tuple[str, str]:
        """The layer, `layers.3`, and the name within it, by the module that runs the operator."""
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
        flat = [
            each
            for part in (*node.args, *node.kwargs.values())
            for each in (part if isinstance(part, list | tuple) else [part])
        ]
        return [
            self._value[each] for each in flat if isinstance(self._value.get(each) if _is_node(each) else None, int)
        ]

    def _known(self, kind: str, name: str, node: Any, made: Any) -> Any:
        """What one of our operators makes of it; None where there is none."""
        args = [self._argument(each) for each in node.args]
        if kind in _RULES:
            return _RULES[kind](self, name, node, args, made)
        if not args or not isinstance(args[0], int) or not _is_node(node.args[0]):
            return None
        if kind in _PASSED_ON:
            dtype = self._type(made).dtype
            same = self._net.type_of(args[0]).dtype == dtype
            return args[0] if same else self._net(name, "cast", args[0], dtype=dtype)
        if kind in _RESHAPES or (kind == "expand" and _elements(made) == self._net.type_of(args[0]).elements):
            return self._net(name, "reshape", args[0], shape=tuple(map(int, made.shape)))
        return self._elementwise(kind, name, node, args)

    def _elementwise(self, kind: str, name: str, node: Any, args: Given) -> Any:
        """Functions of one tensor, of two, and sums."""
        of_two = kind in _BINARY and len(args) > 1 and not node.kwargs
        if kind in _UNARY:
            return self._net(name, _UNARY[kind], args[0])
        if of_two and _is_node(node.args[1]):
            return self._net(name, _BINARY[kind], args[0], args[1])
        if of_two and kind in ("mul", "div"):
            return self._net(name, "scale", args[0], by=float(args[1] if kind == "mul" else 1 / args[1]))
        if kind in _REDUCTIONS and len(args) > 1 and args[1]:
            axes = tuple(args[1]) if isinstance(args[1], list) else (args[1],)
            return self._net(name, _REDUCTIONS[kind], args[0], axes=axes, keep=int(bool(args[2:] and args[2])))
        return None

    def _argument(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self._argument(each) for each in given]
        return self._value.get(given) if _is_node(given) else given

    # Operators of their own, called as in PyTorch

    def _linear(self, name: str, node: Any, args: Given, made: Any) -> Any:
        product = self._net(name, "matmul_transposed", args[0], args[1])
        return self._net(name, "bias", product, args[2]) if len(args) > 2 and args[2] is not None else product

    def _matmul(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "matmul", args[0], args[1])

    def _addmm(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "bias", self._net(name, "matmul", args[1], args[2]), args[0])

    def _embedding(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "embedding", args[0], args[1])

    def _layer_norm(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "layer_norm", args[0], args[2], args[3]) if len(args) > 3 and len(args[1]) == 1 else None

    def _rms_norm(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "rms_norm", args[0], args[2]) if len(args) > 2 and len(args[1]) == 1 else None

    def _gelu(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "gelu" if node.kwargs.get("approximate") == "tanh" else "gelu_erf", args[0])

    def _softmax(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "softmax", args[0], axes=(args[1],))

    def _transpose(self, name: str, node: Any, args: Given, made: Any) -> Any:
        axes = list(range(len(made.shape)))
        one, other = args[1] % len(axes), args[2] % len(axes)
        axes[one], axes[other] = axes[other], axes[one]
        return self._net(name, "permute", args[0], axes=tuple(axes))

    def _permute(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "permute", args[0], axes=tuple(args[1]))

    def _t(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "permute", args[0], axes=(1, 0))

    def _cat(self, name: str, node: Any, args: Given, made: Any) -> Any:
        return self._net(name, "concat", *args[0], axis=args[1] if len(args) > 1 else 0)

    def _chunk(self, name: str, node: Any, args: Given, made: Any) -> Any:
        axis = args[2] if len(args) > 2 else 0
        return self._net.all(name, "chunk", args[0], axis=axis, parts=len(made))

    def _split(self, name: str, node: Any, args: Given, made: Any) -> Any:
        axis = args[2] if len(args) > 2 else 0
        sizes = tuple(int(each.shape[axis]) for each in made)
        if len(set(sizes)) == 1:
            return self._net.all(name, "chunk", args[0], axis=axis, parts=len(sizes))
        return self._net.all(name, "split_at", args[0], axis=axis, sizes=sizes)

    def _conv2d(self, name: str, node: Any, args: Given, made: Any) -> Any:
        weights = [each for each in args[1:3] if each is not None]
        stride, padding, dilation = (
            tuple(args[place]) * (3 - len(args[place])) if len(args) > place else (usual, usual)
            for place, usual in ((3, 1), (4, 0), (5, 1))
        )
        groups = args[6] if len(args) > 6 else 1
        sweep = {"dilations": dilation, "pads": (*padding, *padding), "strides": stride}
        return self._net(name, "conv", args[0], *weights, groups=groups, **sweep)

    def _scaled_dot_product_attention(self, name: str, node: Any, args: Given, made: Any) -> Any:
        """Of [batch, heads, tokens, size]; None where a mask or a scale is given, which our attention has not."""
        q, k, v = args[:3]
        if any(each is not None for each in (*args[3:4], *args[6:7], *map(node.kwargs.get, ("attn_mask", "scale")))):
            return None
        causal = bool(args[5]) if len(args) > 5 else bool(node.kwargs.get("is_causal", False))
        size = self._net.type_of(q).shape[-1]

        def columns(value: int) -> int:
            turned = self._net(name, "permute", value, axes=(0, 2, 1, 3))
            return self._net(name, "reshape", turned, shape=(0, 0, -1))

        mixed = self._net(name, "attention", *map(columns, (q, k, v)), causal=int(causal), head_size=size)
        heads = self._net(name, "reshape", mixed, shape=(0, 0, -1, int(made.shape[-1])))
        return self._net(name, "permute", heads, axes=(0, 2, 1, 3))

    # What is known by its costs alone

    def _made_opaque(self, kind: str, name: str, node: Any, made: Any) -> Any:
        given, many = self._tensors(node), isinstance(made, tuple | list)
        types = [self._type(each) for each in (made if many else [made]) if hasattr(each, "shape")]
        moved = 0.0
        if not _is_view(node.target):
            moved = float(sum(self._net.type_of(each).bytes for each in given) + sum(each.bytes for each in types))
        if not given:  # a constant, or zeros
            given = [self._net.input(f"{node.name}.none", "int32", (), Role())]
        values: dict[str, AttributeValue] = dict(opaque_attributes(kind, _flops(node, made), moved, types, 1))
        if moved:
            self._opaque[kind] += 1
        found = self._net.all(name, "opaque", *given, **values)
        return found if many else found[0]


_RULES: Mapping[str, Callable[[_Translation, str, Any, Given, Any], Any]] = {
    "linear": _Translation._linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), _Translation._matmul),
    "addmm": _Translation._addmm,
    "embedding": _Translation._embedding,
    "layer_norm": _Translation._layer_norm,
    "rms_norm": _Translation._rms_norm,
    "gelu": _Translation._gelu,
    "softmax": _Translation._softmax,
    "transpose": _Translation._transpose,
    "permute": _Translation._permute,
    "t": _Translation._t,
    "cat": _Translation._cat,
    "chunk": _Translation._chunk,
    **dict.fromkeys(("split", "split_with_sizes"), _Translation._split),
    "conv2d": _Translation._conv2d,
    "scaled_dot_product_attention": _Translation._scaled_dot_product_attention,
}
"""By the name of a PyTorch operator: our operation for it, or None where it does not fit."""


def _is_node(given: Any) -> bool:
    return type(given).__name__ == "Node"


def _elements(tensor: Any) -> int:
    return math.prod(map(int, tensor.shape))


def _is_view(target: Any) -> bool:
    """Whether an operator looks at its first input, and moves nothing."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return False
    return bool(schema.returns) and all(each.alias_info and not each.alias_info.is_write for each in schema.returns)


def _flops(node: Any, made: Any) -> float:
    """As PyTorch counts them, else one for each number made."""
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
