"""Compiled programs: adjacent pointwise operators, norms and reductions share a kernel, as in PyTorch's Inductor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, replace

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.elementwise import ELEMENTWISE
from tessel_core.ir.operators.formats import CAST_BYTES, CASTS, FORMAT, FUSED, OPERANDS, SCALED_CAST_BYTES
from tessel_core.ir.operators.normalization import NORMALIZATION, NORMALIZATION_GRADIENTS
from tessel_core.ir.operators.reductions import REDUCTION_GRADIENTS, REDUCTIONS
from tessel_core.ir.program import Op, Program

POINTWISE = frozenset(
    {each.kind for each in ELEMENTWISE}
    | {"add", "bias", "residual", "relu", "relu_grad", "rotary", "loss", "loss_grad", "identity"}
)
"""Operators with outputs whose elements depend on one element of each input.

A later kernel may recompute such outputs.
"""
FUSIBLE = (
    POINTWISE
    | {each.kind for each in (*REDUCTIONS, *REDUCTION_GRADIENTS, *NORMALIZATION, *NORMALIZATION_GRADIENTS)}
    | {"bias_grad", "cross_entropy", "cross_entropy_grad"}
    | {"concat", "split", "split_at", "part", "pad", "expand", "transpose", "roll", "strided_slice", "unpack_qkv"}
    | {"pack_qkv", "strided_slice_grad"}
)
"""Operators for which Inductor writes kernels. Products, attention and the choice of experts have library kernels."""
_LOSSES = {"cross_entropy", "cross_entropy_grad", "loss", "loss_grad"}
MAX_READS = 4
"""Largest number of tensors from which a pointwise value may be recomputed. A value with more sources is stored.

The number is Inductor's `realize_reads_threshold` [PyTorch, torch/_inductor/config.py].
"""

Region = tuple[object, ...]
"""Key of the operations that are compiled together: one layer and phase on one device."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Fuses operators as torch.compile does, one layer at a time [Ansel 2024, PyTorch 2, section 4.4].

    An operator joins the kernel that computes or reads one of its inputs, unless an operation of another kernel must
    run in between. A kernel reads each input from outside once. It writes each value once that other kernels use.

    A pointwise value is not written but recomputed in a later kernel, with two exceptions: an operator without a
    compiled kernel uses it, or it depends on more than `MAX_READS` tensors. The attribute `fused` records the reads and
    writes. The order of operations and their results do not change.

    Factors of FP8 products are cast once for all products of a layer and phase. The cast needs their largest magnitude.
    It is known if a compiled kernel computes the factor, or from the forward pass. Otherwise the factor is read once
    more.
    """

    loss: bool = True
    """Whether the loss is compiled, too. Otherwise the loss operators keep their own kernels."""

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model with the attributes `fused` and `casts`.

        They say which operations share a kernel and how often each tensor is moved.
        """
        fusible = FUSIBLE if self.loss else FUSIBLE - _LOSSES
        return replace(model, program=_Fusion(model.program, fusible).program())


def kernels_of(program: Program) -> dict[int, int]:
    """Return the kernel of each compiled operation, by the operation's index.

    A kernel's number is its first operation's index.
    """
    return _Fusion(program).kernel


class _Fusion:
    def __init__(self, program: Program, fusible: Set[str] = FUSIBLE) -> None:
        self._program, self._fusible = program, fusible
        self._base = _without_views(program)
        self._region = [_region(program, op) for op in program.ops]
        self._maker: dict[int, int] = {}
        """For each value that a compiled operation computes, the index of this operation."""
        self.kernel: dict[int, int] = {}
        """For each compiled operation, its kernel: the index of the kernel's first operation."""
        self._stored = self._used_outside()
        """Values that are written to memory."""
        self._find_kernels()
        self._sources = self._inlined()
        """For each pointwise value that is not written, the tensors from which another kernel recomputes it."""
        self._store_between_kernels()

    def program(self) -> Program:
        """Return the same operations with their cost attributes.

        Compiled operations get `fused`, and FP8 products get `casts`.
        """
        known: dict[int, set[int]] = defaultdict(set)
        """For each kernel, the values that it has read or computed so far."""
        cast, scaled = set[tuple[int, Region]](), set[int]()

        def priced(i: int, op: Op) -> Op:
            if i in self.kernel:
                return op.with_attributes(**{FUSED: self._fused_attribute(i, op, known[self.kernel[i]])})
            if FORMAT in dict(op.attributes):
                return op.with_attributes(**{CASTS: self._casts_attribute(i, op, cast, scaled)})
            return op

        return replace(self._program, ops=tuple(priced(i, op) for i, op in enumerate(self._program.ops)))

    def _bases(self, op: Op) -> list[int]:
        return [self._base[value] for value in op.inputs]

    def _used_outside(self) -> set[int]:
        """Return program outputs, and values that operations of another layer, phase or device use."""
        for i, op in enumerate(self._program.ops):
            if op.kind in self._fusible:
                self._maker.update(dict.fromkeys(op.outputs, i))
        found = {self._base[value] for value in self._program.outputs}
        for i, op in enumerate(self._program.ops):
            if not _is_view(self._program, op):
                inside = self._region[i] if op.kind in self._fusible else None
                taken = (value for value in self._bases(op) if value in self._maker)
                found.update(value for value in taken if self._region[self._maker[value]] != inside)
        return found

    def _find_kernels(self) -> None:
        """Choose kernels greedily, in program order, so that no kernel depends on itself."""
        readers: dict[tuple[int, Region], dict[int, None]] = defaultdict(dict)
        """For each value and region, the kernels that read the value."""
        behind: dict[int, frozenset[int]] = {}
        """For each value that no kernel computes, the kernels of its layer and phase on which it depends."""
        before: dict[int, frozenset[int]] = {}
        """For each kernel, the kernels of its layer and phase on which it depends."""
        awaited = set[int]()
        """Kernels whose results other operations already use.

        They must not get new dependencies, which could close a cycle.
        """
        for i, op in enumerate(self._program.ops):
            if _is_view(self._program, op):
                continue
            taken, phase = self._bases(op), self._region[i][1:]
            makers = dict.fromkeys(self.kernel[self._maker[value]] for value in taken if value in self._maker)
            own = frozenset(each for each in makers if self._region[each][1:] == phase)
            passed = frozenset().union(*(before[each] for each in own), *(behind.get(value, ()) for value in taken))
            passed = frozenset(each for each in passed if self._region[each][1:] == phase)
            if op.kind not in self._fusible:
                awaited |= own
                behind.update(dict.fromkeys(op.outputs, passed | own))
                continue
            beside = {each for value in taken for each in readers[value, self._region[i]]} - own
            fits = (
                each
                for each in (*sorted(own, reverse=True), *sorted(beside, reverse=True))
                if each not in passed and (each not in awaited or (passed | own) - {each} <= before[each])
            )
            kernel = self.kernel[i] = next(fits, i)
            before[kernel] = before.get(kernel, frozenset()) | (passed | own) - {kernel}
            awaited |= own - {kernel}
            for value in taken:
                readers[value, self._region[i]][kernel] = None

    def _inlined(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for op in self._program.ops:
            if op.kind in self._fusible & POINTWISE and self._stored.isdisjoint(op.outputs):
                sources = dict.fromkeys(each for value in self._bases(op) for each in found.get(value, (value,)))
                if len(sources) <= MAX_READS:
                    found.update(dict.fromkeys(op.outputs, tuple(sources)))
        return found

    def _store_between_kernels(self) -> None:
        for i, kernel in self.kernel.items():
            for value in self._bases(self._program.ops[i]):
                for each in self._sources_in(kernel, value):
                    if each in self._maker and self.kernel[self._maker[each]] != kernel:
                        self._stored.add(each)

    def _sources_in(self, kernel: int, value: int) -> tuple[int, ...]:
        """Return the tensors that a kernel reads to get a value, or the value itself if the kernel computes it."""
        if value in self._maker and self.kernel[self._maker[value]] == kernel:
            return (value,)
        return self._sources.get(value, (value,))

    def _fused_attribute(self, i: int, op: Op, known: set[int]) -> tuple[int, ...]:
        """Return the attribute `fused`.

        It lists the number of launches, then how often each input is read and each output is written.
        """
        types, kernel = self._program.types, self.kernel[i]
        reads = list[int]()
        for given, value in zip(op.inputs, self._bases(op), strict=True):
            new = [] if value in known else [each for each in self._sources_in(kernel, value) if each not in known]
            reads.append(round(sum(types[each].bytes for each in new) / max(1, types[given].bytes)))
            known.update((*new, value))
        known.update(op.outputs)
        return int(kernel == i), *reads, *(int(value in self._stored) for value in op.outputs)

    def _casts_attribute(self, i: int, op: Op, cast: set[tuple[int, Region]], scaled: set[int]) -> tuple[int, ...]:
        """Return the attribute `casts`: for each input, the bytes moved per number to cast it."""
        found, region = [0] * len(op.inputs), self._region[i]
        for place in OPERANDS[op.kind]:
            value = self._base[op.inputs[place]]
            if (value, region) not in cast:
                here = value in self._maker and self._region[self._maker[value]] == region
                found[place] = CAST_BYTES if here or value in scaled else SCALED_CAST_BYTES
            cast.add((value, region))
            scaled.add(value)
        return tuple(found)


def _region(program: Program, op: Op) -> Region:
    return program.types[(*op.outputs, *op.inputs)[0]].device, op.tag.scope, op.tag.phase, op.tag.micro_batch


def _is_view(program: Program, op: Op) -> bool:
    """Return whether an operation only changes the shape of its input, without moving numbers."""
    if not find_operator(op.kind).view or len(op.outputs) > 1:
        return False
    return program.types[op.inputs[0]].elements == program.types[op.outputs[0]].elements


def _without_views(program: Program) -> list[int]:
    """Return, for each value, the value of which it is a view. A value that is no view maps to itself."""
    base = list(range(len(program.types)))
    for op in program.ops:
        if _is_view(program, op):
            base[op.outputs[0]] = base[op.inputs[0]]
    return base
