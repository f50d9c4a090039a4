"""ZeRO stages 2 and 3 [Rajbhandari 2020].

Each replica has a part of every gradient and, in stage 3, of every weight.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.program import AttributeValue, Op, Scope, Tag
from tessel_core.ir.transforms.data import replicas_of
from tessel_core.ir.transforms.expansion import Degrees, along, collective
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.transforms.update import scatter_axis
from tessel_core.ir.types import TensorType

Unit = tuple[Scope, int, bool]
"""Layer, pipeline stage, and whether it is the backward pass."""
Key = tuple[Scope, bool]
"""Weights that are gathered together: those of a layer, or the root's of a stage.

The flag marks a second gather, for the backward pass.
"""


@dataclass(frozen=True, slots=True)
class ShardedReplicas:
    """ZeRO stages 2 and 3. Stage 2 scatters gradients as soon as a layer has computed them. Stage 3 also divides
    weights.

    A layer's weights are gathered while the previous layer runs. They are gathered again before its backward pass,
    unless `reshard` is false and they are kept [Zhao 2023, PyTorch FSDP, arXiv 2304.11277]. They are gathered into a
    buffer and then copied out of it [PyTorch, torch/distributed/fsdp/_fully_shard]. Weights before and after all
    layers, such as embedding and head, are gathered together and kept, like the weights of FSDP's root module.

    Apply this transform after the other transforms of a layer and before the pipeline, so that every micro-batch
    gathers and scatters.
    """

    degrees: Degrees
    weights: bool = True
    """Whether weights are divided (stage 3)."""
    reshard: bool = True
    """Whether gathered weights are freed after a layer's forward pass and gathered again for its backward pass."""
    stage_of: Callable[[int], int] = lambda layer: 0
    """Returns the pipeline stage of a layer. Weights are gathered ahead only within a stage."""

    def __call__(self, model: Distributed) -> Distributed:
        """Return the program of one device."""
        return _Sharded(model, self).model()


class _Sharded:
    def __init__(self, model: Distributed, how: ShardedReplicas) -> None:
        self._model, self._how, self._source = model, how, model.program
        self._build = ProgramBuilder(self._source.name)
        self._value: dict[int, int] = {}
        self._cut: dict[int, tuple[int, str, int]] = {}
        """For each weight that is divided: the axis, the dimension of parallelism and the number of parts."""
        self._gathered: dict[Key, dict[int, int]] = {}
        """For each group of weights: the buffer with the gathered values of each weight."""
        self._whole: dict[Key, dict[int, int]] = {}
        """Whole weights of each layer and direction."""
        self._last = list[int]()
        """Last value that each run computes."""

    def _axis(self, value: int, piece: Piece) -> tuple[int, str, int] | None:
        over = replicas_of(piece, self._how.degrees)
        parts = self._how.degrees.of(over)
        axis = None if parts == 1 else scatter_axis(self._source.types[value].shape, parts)
        return None if axis is None else (axis, over, parts)

    def model(self) -> Distributed:
        """Return the model with divided weights, which are gathered before use, and with scattered gradients."""
        inputs = [self._input(value, piece) for value, piece in self._model.piece_of.items()]
        runs = self._runs()
        outputs = dict(zip(self._source.outputs, self._model.outputs, strict=True))
        for number, (unit, ops) in enumerate(runs):
            self._gather_ahead(runs, number)
            known = self._copied_out(unit, ops)
            for op in ops:
                taken = [known[value] if value in known else self._value[value] for value in op.inputs]
                made = self._build.append(op.kind, taken, op.attributes, op.tag)
                self._value |= zip(op.outputs, made, strict=True)
            self._last.append(self._value[ops[-1].outputs[0]])  # not its scattered parts, which nothing waits for
            self._scatter(ops, outputs)
        values = [self._value[value] for value in self._source.outputs]
        pieces = tuple(outputs[value] for value in self._source.outputs)
        return Distributed(self._build.finish(values), tuple(inputs), pieces, self._model.roles)

    def _input(self, value: int, piece: Piece) -> Piece:
        role, of_type = self._model.role_of(piece), self._source.types[value]
        cut = self._axis(value, piece) if self._how.weights and role.weight and role.trained else None
        if cut is not None:
            axis, over, parts = self._cut[value] = cut
            of_type, piece = of_type.resized(axis, of_type.shape[axis] // parts), along(piece, axis, over, parts)
        self._value[value] = self._build.input(self._source.value_name(value), of_type)
        return piece

    def _copied_out(self, unit: Unit, ops: list[Op]) -> dict[int, int]:
        """Return the whole weights that a layer uses. Copy them out of their buffers first."""
        key, tag = self._key(unit), replace(_first(ops).tag, name=f"{unit[0]}/copy_out")
        whole = self._whole.setdefault(key, {})
        for value, buffer in self._gathered.get(key, {}).items():
            if value not in whole:
                whole[value] = self._build.one("identity", [buffer], tag)
        return whole

    def _key(self, unit: Unit) -> Key:
        """Return the key of the group to which a layer's weights belong.

        The root's weights are gathered once per stage.
        """
        scope, stage, backward = unit
        return (f"/{stage}", False) if unit[:2] in self._roots else (scope, backward and self._how.reshard)

    @cached_property
    def _roots(self) -> set[tuple[Scope, int]]:
        """The first and the last unit, each only if no other unit has weights of the same types.

        They are the root of FSDP.
        """
        weights: dict[tuple[Scope, int], dict[int, TensorType]] = defaultdict(dict)
        for op in self._source.ops:
            if op.tag.phase == "forward":
                weights[self._unit(op)[:2]] |= {v: self._source.types[v] for v in op.inputs if v in self._cut}
        kinds = Counter(tuple(sorted(map(str, each.values()))) for each in weights.values())
        ends = list(weights)[:1] + list(weights)[-1:]
        return {each for each in ends if kinds[tuple(sorted(map(str, weights[each].values())))] == 1}

    def _unit(self, op: Op) -> Unit:
        return op.tag.scope, self._how.stage_of(op.tag.stage or 0), op.tag.phase != "forward"

    def _runs(self) -> list[tuple[Unit, list[Op]]]:
        """Return the operations in program order, grouped into consecutive runs of one layer and pass."""
        found = list[tuple[Unit, list[Op]]]()
        for op in self._source.ops:
            unit = self._unit(op)
            if not found or found[-1][0] != unit:
                found.append((unit, []))
            found[-1][1].append(op)
        return found

    def _gather_ahead(self, runs: list[tuple[Unit, list[Op]]], number: int) -> None:
        """Gather the weights of a layer, unless they are present, and those of the next layer of the same stage."""
        self._gather(*runs[number], None)
        if number + 1 < len(runs) and runs[number + 1][0][1] == runs[number][0][1]:
            before = self._last[number - 1] if number and runs[number - 1][0][1] == runs[number][0][1] else None
            if runs[number + 1][0][0] == runs[number][0][0]:
                # The backward pass of the last layer directly follows its forward pass, so its weights are still
                # present.
                forward, backward = self._key(runs[number][0]), self._key(runs[number + 1][0])
                self._whole[backward] = self._copied_out(*runs[number])
                self._gathered[backward] = self._gathered[forward]
            self._gather(*runs[number + 1], before)

    def _gather(self, unit: Unit, ops: list[Op], after: int | None) -> None:
        """Gather the weights of a layer, once the value `after` is there."""
        scope, key = unit[0], self._key(unit)
        known = self._gathered.setdefault(key, {})
        if unit[:2] in self._roots:
            ops = [op for op in self._source.ops if self._key(self._unit(op)) == key]
        wanted = dict.fromkeys(v for op in ops for v in op.inputs if v in self._cut and v not in known)
        by_group: dict[tuple[str, int], list[int]] = defaultdict(list)
        for value in wanted:
            by_group[self._cut[value][1:]].append(value)
        tag = replace(_first(ops).tag, name=f"{scope}/gather")
        for (over, parts), values in by_group.items():
            axes = [self._cut[value][0] for value in values]
            taken = [self._value[value] for value in values]
            if after is not None:
                taken[0] = self._build.one("after", [taken[0], after], tag)
            axis: AttributeValue = axes[0] if len(axes) == 1 else tuple(axes)
            whole = self._build.add("allgather", taken, tag, axis=axis, **collective(over, parts, len(taken)))
            known |= zip(values, whole, strict=True)

    def _scatter(self, ops: list[Op], outputs: dict[int, Piece]) -> None:
        """Scatter complete gradients, together for each layer."""
        by_group: dict[tuple[str, int, str], list[tuple[int, int]]] = defaultdict(list)
        for op in ops:
            for value in op.outputs:
                if value in outputs and self._model.role_of(outputs[value]).gradient_of:
                    cut = self._axis(value, outputs[value])
                    if cut is not None:
                        by_group[*cut[1:], op.tag.phase].append((value, cut[0]))
        for (over, parts, phase), found in by_group.items():
            axes = [axis for _, axis in found]
            axis: AttributeValue = axes[0] if len(axes) == 1 else tuple(axes)
            tag = Tag(ops[-1].tag.stage, None, phase, f"{ops[-1].tag.scope}/scatter")
            taken = [self._value[value] for value, _ in found]
            parts_of = self._build.add("reduce_scatter", taken, tag, axis=axis, **collective(over, parts, len(taken)))
            for (value, along_axis), part in zip(found, parts_of, strict=True):
                self._value[value] = part
                outputs[value] = along(
                    replace(outputs[value], sums=self._left(outputs[value])), along_axis, over, parts
                )

    def _left(self, piece: Piece) -> tuple[str, ...]:
        """Return the dimensions over which the gradient must still be summed: those of tensor parallelism."""
        return tuple(name for name in piece.sums if name == "tensor")


def _first(ops: list[Op]) -> Op:
    """Return the first operation of a layer, without separate weight gradients, which run in a later block."""
    return next((op for op in ops if op.tag.phase != WEIGHT_PHASE), ops[0])
