"""Activation checkpointing: layers are computed again for their backward instead of being kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Op, Program


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Keeps what layers pass on to each other, and what the model asks to keep; the rest is made again [Chen 2016].

    Before a layer's backward, those of its forward operations are repeated whose results the backward takes.

    InputError for a program that is distributed already: checkpointing comes before tensor parallelism and pipelines.
    """

    def __call__(self, model: Distributed) -> Distributed:
        """The model on its one device, with more to compute and less to keep."""
        program = model.program
        if len(program.devices) != 1 or any(op.tag.micro_batch is not None for op in program.ops):
            raise InputError("checkpointing", "comes first, before the program is distributed")
        return replace(model, program=_Recomputing(program, model.kept).program(), kept=frozenset())


class _Recomputing:
    def __init__(self, program: Program, kept: frozenset[int]) -> None:
        self._source = program
        self._maker = {value: op for op in program.ops for value in op.outputs if op.tag.phase == "forward"}
        self._kept = kept | self._passed_on()

    def _passed_on(self) -> frozenset[int]:
        taken = ((op, value) for op in self._source.ops for value in op.inputs if value in self._maker)
        return frozenset(value for op, value in taken if self._maker[value].tag.stage != op.tag.stage)

    def program(self) -> Program:
        source, build = self._source, ProgramBuilder(self._source.name)
        again: dict[int | None, dict[int, int]] = {}
        """Per layer, what of its forward has been made again."""
        value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
        for op in source.ops:
            layer = op.tag.stage
            if op.tag.phase == "backward" and layer not in again:
                again[layer] = self._repeat(build, layer, value_of)
            copies = again[layer] if op.tag.phase == "backward" else {}
            taken = [copies[value] if value in copies else value_of[value] for value in op.inputs]
            made = build.append(op.kind, taken, op.attributes, op.tag)
            value_of.update(zip(op.outputs, made, strict=True))
        return build.finish([value_of[value] for value in source.outputs])

    def _repeat(self, build: ProgramBuilder, layer: int | None, value_of: dict[int, int]) -> dict[int, int]:
        needed = self._needed(layer)
        again: dict[int, int] = {}
        for op in self._source.ops:
            if needed.isdisjoint(op.outputs) or op.tag.phase != "forward":
                continue
            taken = [again[value] if value in again else value_of[value] for value in op.inputs]
            made = build.append(op.kind, taken, op.attributes, replace(op.tag, phase="backward"))
            again |= {value: copy for value, copy in zip(op.outputs, made, strict=True) if value in needed}
        return again

    def _needed(self, layer: int | None) -> set[int]:
        """Values of a layer's forward that its backward takes, or that are needed to make those from what is kept."""
        backward = (op for op in self._source.ops if op.tag.phase == "backward" and op.tag.stage == layer)
        waiting, needed = list(self._unkept(backward)), set[int]()
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += self._unkept([self._maker[value]])
        return needed

    def _unkept(self, ops: Iterable[Op]) -> list[int]:
        return [value for op in ops for value in op.inputs if value in self._maker and value not in self._kept]
