"""tessel-plan, version 1."""

from __future__ import annotations

from tessel_core.formats.fields import document_text, read_with
from tessel_core.formats.record import COUNT, TEXT, Record, at_least, codec_of, list_of, or_null
from tessel_core.model import Block, Dependency, MicroBatchPlan, PlanDevice

_DEVICE = Record(PlanDevice, memory_capacity=or_null(COUNT), static_memory=COUNT)
_BLOCK = Record(Block, devices=list_of(COUNT), duration=at_least(1), label=TEXT.sparse())
_DEPENDENCY = Record(Dependency, predecessor=TEXT.under("from"), successor=TEXT.under("to"), lag=COUNT)
PLAN = Record(
    MicroBatchPlan,
    *("name", "time_unit", "memory_unit"),
    format="tessel-plan",
    time_unit=TEXT.required(),
    memory_unit=TEXT.required(),
    devices=list_of(_DEVICE),
    blocks=list_of(_BLOCK),
    dependencies=list_of(_DEPENDENCY).required(),
    samples=at_least(1).sparse(),
    replicated=codec_of(bool).sparse(),
)
"""A plan as a document, alone or inside a schedule, with every optional field written out but labels, samples and that
stages are replicated."""


def read_plan(data: bytes, name: str = "plan") -> MicroBatchPlan:
    """A plan from the bytes of a tessel-plan file; InputError with the place and the reason, `name` first."""
    return read_with(PLAN.from_fields, data, name)


def plan_text(plan: MicroBatchPlan) -> str:
    """The plan as the text of a tessel-plan file, one device, block or dependency a line."""
    return document_text(PLAN.write(plan))
