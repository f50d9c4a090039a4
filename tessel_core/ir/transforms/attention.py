"""Attention, either as one fused kernel or as one operator per step. Separate operators keep the scores in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.formats import ATTENTIONS, FLASH2, KERNEL
from tessel_core.ir.program import Op


class AttentionKernel(StrEnum):
    """How devices compute attention."""

    FUSED = "fused"
    """The device's fastest fused kernel, whose scores never reach memory [Dao 2022, FlashAttention]."""
    FLASH2 = FLASH2
    """FlashAttention 2, also one fused kernel [Dao 2023, arXiv 2307.08691].

    It does not use the features of Hopper GPUs [Shah 2024, arXiv 2407.08608]. PyTorch uses it on these GPUs with cuDNN
    versions below 9.15.
    """
    UNFUSED = "unfused"
    """Separate kernels for products, softmax and dropout.

    Megatron-LM without FlashAttention has these kernels [Korthikanti 2022].
    """


def with_attention(kernel: AttentionKernel, model: Distributed) -> Distributed:
    """Return the forward pass with every attention computed by this kernel.

    Raises InputError as `UnfusedAttention` does.
    """
    if kernel == AttentionKernel.UNFUSED:
        return UnfusedAttention()(model)
    return _by_flash2(model) if kernel == AttentionKernel.FLASH2 else model


def _by_flash2(model: Distributed) -> Distributed:
    """Set the attribute `attention_kernel` of every attention.

    `Gradients` copies the attribute to the backward pass.
    """
    marked = {KERNEL: FLASH2}
    ops = (op.with_attributes(**marked) if op.kind in ATTENTIONS else op for op in model.program.ops)
    return replace(model, program=replace(model.program, ops=tuple(ops)))


@dataclass(frozen=True, slots=True)
class UnfusedAttention:
    """Replaces each `attention` by separate operators: scores, masked softmax, optional dropout, and weighted sum of
    values.

    A cap on the scores becomes a `scale`, a `tanh`, and the scale of the softmax. The new operators have the same name
    as the attention. Apply this transform before `Gradients`.

    Raises InputError for a program with a backward pass or several devices. Raises InputError for attention with a
    bias, which exists only as a fused kernel.
    """

    def __call__(self, model: Distributed) -> Distributed:
        """Return an equivalent model without fused attention. The model must have one device."""
        source = model.program
        if len(source.devices) != 1 or any(op.tag.phase not in ("", "forward") for op in source.ops):
            raise InputError(
                "unfused attention", "must be the first transform, because it needs the forward pass of one device"
            )
        biased = next((op.tag.name for op in source.ops if op.kind == "attention_bias"), None)
        if biased is not None:
            raise InputError("unfused attention", f"cannot rewrite {biased or 'an attention'}, because it has a bias")
        build = ProgramBuilder(source.name)
        value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
        for op in source.ops:
            taken = [value_of[value] for value in op.inputs]
            fused = op.kind != "attention"
            made = build.append(op.kind, taken, op.attributes, op.tag) if fused else (_steps(build, op, taken),)
            value_of.update(zip(op.outputs, made, strict=True))
        return replace(model, program=build.finish([value_of[value] for value in source.outputs]))


def _steps(build: ProgramBuilder, op: Op, taken: list[int]) -> int:
    """Add the operators that replace one attention and return their output."""
    q, k, v = taken
    values = dict(op.attributes)
    size = integer(values, "head_size")
    scores, scale = build.one("attention_scores", [q, k], op.tag, head_size=size), 1 / math.sqrt(size)
    if "cap" in values:
        scaled = build.one("scale", [scores], op.tag, by=scale / number(values, "cap"))
        scores, scale = build.one("tanh", [scaled], op.tag), number(values, "cap")
    mask = {name: values[name] for name in ("causal", "window") if name in values}
    weights = build.one("masked_softmax", [scores], op.tag, scale=scale, **mask)
    if "rate" in values:
        weights, _ = build.add("dropout", [weights], op.tag, rate=values["rate"], seed=values["seed"])
    groups = build.type_of(k).shape[2] // size
    return build.one("attention_context", [weights, v], op.tag, head_size=build.type_of(v).shape[2] // groups)
