"""Attention by one fused kernel, or by an operator for each of its steps, which keep its scores in memory."""

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
    """One kernel, whose scores never reach memory [Dao 2022, FlashAttention]: the fastest of the device."""
    FLASH2 = FLASH2
    """FlashAttention 2, one kernel, too [Dao 2023, arXiv 2307.08691].  It makes no use of what GPUs of the Hopper
    generation have for it [Shah 2024, arXiv 2407.08608].  PyTorch takes it there before cuDNN 9.15."""
    UNFUSED = "unfused"
    """Products, softmax and dropout as single kernels, as Megatron-LM without FlashAttention [Korthikanti 2022]."""


def with_attention(kernel: AttentionKernel, model: Distributed) -> Distributed:
    """The forward pass with this kernel for each attention; raises InputError as `UnfusedAttention` does."""
    if kernel == AttentionKernel.UNFUSED:
        return UnfusedAttention()(model)
    return _by_flash2(model) if kernel == AttentionKernel.FLASH2 else model


def _by_flash2(model: Distributed) -> Distributed:
    """The same operations; attributes say the kernel of each attention, from which its gradient takes it over."""
    ops = (
        replace(op, attributes=tuple(sorted((*op.attributes, (KERNEL, FLASH2))))) if op.kind in ATTENTIONS else op
        for op in model.program.ops
    )
    return replace(model, program=replace(model.program, ops=tuple(ops)))


@dataclass(frozen=True, slots=True)
class UnfusedAttention:
    """Rewrites each `attention` into scores, masked softmax, dropout where asked, and the sum of the values.

    A cap of the scores becomes a `scale`, a `tanh` and the scale of the softmax.  The operators keep the name of their
    attention.  The transform comes before `Gradients`.

    Raises InputError for a program that has a backward pass or several devices, and for attention with a bias, which
    has only a fused kernel.
    """

    def __call__(self, model: Distributed) -> Distributed:
        """The model on its one device, with the same meaning."""
        source = model.program
        if len(source.devices) != 1 or any(op.tag.phase not in ("", "forward") for op in source.ops):
            raise InputError("unfused attention", "comes first: it takes the forward pass of one device")
        biased = next((op.tag.name for op in source.ops if op.kind == "attention_bias"), None)
        if biased is not None:
            raise InputError("unfused attention", f"takes attention without a bias, {biased or 'an attention'} has one")
        build = ProgramBuilder(source.name)
        value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
        for op in source.ops:
            taken = [value_of[value] for value in op.inputs]
            fused = op.kind != "attention"
            made = build.append(op.kind, taken, op.attributes, op.tag) if fused else (_steps(build, op, taken),)
            value_of.update(zip(op.outputs, made, strict=True))
        return replace(model, program=build.finish([value_of[value] for value in source.outputs]))


def _steps(build: ProgramBuilder, op: Op, taken: list[int]) -> int:
    """Write the operators of one attention; returns what comes of it."""
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
