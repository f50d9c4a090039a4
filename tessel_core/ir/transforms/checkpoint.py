"""Activation checkpointing: the backward pass repeats forward operations instead of keeping their outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program, Scope
from tessel_core.ir.transforms.compiled import FUSIBLE
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE

_BACK = ("backward", WEIGHT_PHASE)
PRODUCTS = frozenset(
    {
        *("matmul", "matmul_transposed", "grouped_matmul", "gemm", "linear", "conv"),
        *("attention", "attention_bias", "attention_scores", "attention_context"),
    }
)
"""Operators that multiply matrices. They take most of a layer's time."""


class Recompute(StrEnum):
    """Which forward operations of a layer are repeated before its backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    """Recompute cheap operations only.

    With fused attention, a layer recomputes every second product and all cheap operations: norms, activation functions,
    sums and views. It keeps the outputs of the other products and of attention [torchtitan, selective checkpointing by
    operator]. With unfused attention, it recomputes only the attention core, as in Megatron-LM [Korthikanti 2022,
    section 5]: scores, softmax and dropout, which are large and cheap. The weighted sum of the values is kept, since
    the next product uses it.
    """
    FULL = "full"
    """Recompute all operations. A layer keeps only its input."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Activation checkpointing: keep some forward outputs and recompute the rest [Chen 2016].

    Tensors that layers pass to each other are kept, and outputs that `keeps` selects. Before a layer's backward pass,
    the model repeats the forward operations whose other results the backward pass uses. A layer that ends in a loss
    keeps everything, because its backward pass follows at once.

    Raises InputError for a distributed program. Apply this transform before tensor parallelism and pipelines.
    """

    keeps: Callable[[Op], bool] = lambda op: False
    """Returns whether the outputs of a forward operation are kept."""

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model, on one device, with more computation and less memory."""
        program = model.program
        if len(program.devices) != 1 or any(op.tag.micro_batch is not None for op in program.ops):
            raise InputError("checkpointing", "must come before the program is distributed")
        return replace(model, program=_Recomputing(program, self.keeps).program())


def recomputing(how: Recompute, model: Distributed) -> Distributed:
    """Return the model, on one device, with the operations that `how` selects repeated before the backward pass.

    Raises InputError for a distributed program.
    """
    if how == Recompute.NONE:
        return model
    if how == Recompute.FULL:
        return Checkpoint()(model)
    core = _attention_cores(model.program)
    if core:
        return Checkpoint(lambda op: core.isdisjoint(op.outputs))(model)
    kept = _every_second_product(model.program)
    return Checkpoint(lambda op: not kept.isdisjoint(op.outputs))(model)


def holding_selected(model: Distributed) -> Distributed:
    """Return the model, on one device, with everything that `SELECTIVE` keeps held in memory until the layer's backward
    pass.

    Eager PyTorch stores the outputs of selected operators even if nothing uses them [torch/utils/checkpoint.py,
    `_CachingTorchDispatchMode`]. A compiler drops them. Apply this transform after the tensor, context and expert
    parallelism of a layer.
    """
    source, build = model.program, ProgramBuilder(model.program.name)
    maker = {value: op for op in source.ops for value in op.outputs}
    held: dict[Scope, list[int]] = defaultdict(list)
    for value in sorted(_every_second_product(source)):
        held[maker[value].tag.scope].append(value)
    value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
    for op in source.ops:
        taken = [value_of[value] for value in op.inputs]
        if op.tag.phase in _BACK and op.tag.scope in held:
            kept = [value_of[value] for value in held.pop(op.tag.scope)]
            taken[0] = build.one("after", [taken[0], *kept], op.tag)
        value_of.update(zip(op.outputs, build.append(op.kind, taken, op.attributes, op.tag), strict=True))
    return replace(model, program=build.finish([value_of[value] for value in source.outputs]))


def keeping_products(model: Distributed) -> Distributed:
    """Return the model, on one device, in which each layer keeps the activations that torch.compile would keep.

    These are outputs of products and attention, and inputs of backward operators that have their own kernels. All other
    activations are recomputed inside the kernels that use them [PyTorch, min-cut partitioner,
    `ban_if_materialized_backward`].
    """
    back = (op for op in model.program.ops if op.tag.phase in _BACK and op.kind not in FUSIBLE)
    taken = {value for op in back for value in op.inputs}
    return Checkpoint(lambda op: op.kind in PRODUCTS or not taken.isdisjoint(op.outputs))(model)


def _every_second_product(program: Program) -> set[int]:
    """Return the outputs of attention, and of the first, third, fifth … product of each layer."""
    found, count = set[int](), Counter[Scope]()
    for op in program.ops:
        if op.kind not in PRODUCTS or op.tag.phase in _BACK:
            continue
        attends = op.kind.startswith("attention")
        count[op.tag.scope] += not attends
        if attends or count[op.tag.scope] % 2:
            found.update(op.outputs)
    return found


def _attention_cores(program: Program) -> set[int]:
    """Return the values of unfused attention from the scores to the attention weights."""
    found = set[int]()
    for op in program.ops:
        inside = not found.isdisjoint(op.inputs) and op.kind != "attention_context" and op.tag.phase not in _BACK
        if inside or op.kind == "attention_scores":
            found.update(op.outputs)
    return found


class _Recomputing:
    def __init__(self, program: Program, keeps: Callable[[Op], bool]) -> None:
        self._source = program
        self._maker = {value: op for op in program.ops for value in op.outputs if op.tag.phase == "forward"}
        self._kept = self._passed_on() | {value for value, op in self._maker.items() if keeps(op)}

    def _passed_on(self) -> frozenset[int]:
        ending = {op.tag.scope for op in self._source.ops if find_operator(op.kind).loss}
        taken = ((op, value) for op in self._source.ops for value in op.inputs if value in self._maker)
        scopes = ((value, self._maker[value].tag.scope, op.tag.scope) for op, value in taken)
        return frozenset(value for value, one, other in scopes if one != other or one in ending)

    def program(self) -> Program:
        """Return the program in which each layer's backward pass is preceded by the repeated forward operations."""
        source, build = self._source, ProgramBuilder(self._source.name)
        again: dict[Scope, dict[int, int]] = {}
        """For each layer, the recomputed value that replaces each forward value."""
        value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
        for op in source.ops:
            layer = op.tag.scope
            if op.tag.phase in _BACK and layer not in again:
                again[layer] = self._repeat(build, layer, value_of)
            copies = again[layer] if op.tag.phase in _BACK else {}
            taken = [copies[value] if value in copies else value_of[value] for value in op.inputs]
            made = build.append(op.kind, taken, op.attributes, op.tag)
            value_of.update(zip(op.outputs, made, strict=True))
        return build.finish([value_of[value] for value in source.outputs])

    def _repeat(self, build: ProgramBuilder, layer: Scope, value_of: dict[int, int]) -> dict[int, int]:
        needed = self._needed(layer)
        again: dict[int, int] = {}
        for op in self._source.ops:
            if needed.isdisjoint(op.outputs) or op.tag.phase != "forward":
                continue
            taken = [again[value] if value in again else value_of[value] for value in op.inputs]
            made = build.append(op.kind, taken, op.attributes, replace(op.tag, phase="backward"))
            again |= {value: copy for value, copy in zip(op.outputs, made, strict=True) if value in needed}
        return again

    def _needed(self, layer: Scope) -> set[int]:
        """Return the forward values that must be recomputed for a layer's backward pass."""
        backward = (op for op in self._source.ops if op.tag.phase in _BACK and op.tag.scope == layer)
        waiting, needed = list(self._unkept(backward)), set[int]()
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += self._unkept([self._maker[value]])
        return needed

    def _unkept(self, ops: Iterable[Op]) -> list[int]:
        return [value for op in ops for value in op.inputs if value in self._maker and value not in self._kept]
